//! A server that does what a script says, byte for byte, and remembers what it was told.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use gristmill_core::{Error, Result};
use gristmill_policies::{Grant, Upstream as Granted};
use gristmill_sandbox::{Frame, Framing, HttpRequest, Response, Upstream as _};
use gristmill_upstream::{Client, Config, Credential, Endpoint, Resolve, Times, Trust};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
};

/// What the server does next on a connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Reads one request, head and body.
    Read,
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes again and again, until the other side has gone.
    Flood(Vec<u8>),
    /// Closes in an orderly way.
    Close,
    /// Waits until the test says so.
    Wait(Arc<Notify>),
    /// Breaks the connection.
    Reset,
    /// Says nothing until the other side has gone.
    Hang,
}

pub fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// A server on a free port of this machine. Connection `n` plays script `n`, the last one for ever.
pub struct Fake {
    pub address: SocketAddr,
    /// Every request, as it came.
    pub requests: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<AtomicUsize>,
    gone: tokio::sync::Mutex<mpsc::UnboundedReceiver<Instant>>,
}

impl Fake {
    pub async fn new(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (tell, gone) = mpsc::unbounded_channel();
        let (log, count) = (Arc::clone(&requests), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let script = scripts.get(number).or(scripts.last()).cloned().unwrap_or_default();
                tokio::spawn(play(stream, script, Arc::clone(&log), tell.clone()));
            }
        });
        Self { address, requests, connections, gone: tokio::sync::Mutex::new(gone) }
    }

    /// One script for every connection: a request, then this answer, then the end.
    pub async fn answering(answer: impl AsRef<[u8]>) -> Self {
        Self::new(vec![vec![Step::Read, send(answer), Step::Close]]).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// When the next connection was seen to be closed by the client.
    pub async fn gone(&self) -> Instant {
        let mut gone = self.gone.lock().await;
        tokio::time::timeout(Duration::from_secs(10), gone.recv())
            .await
            .expect("the client closes its connection")
            .expect("the server lives")
    }
}

async fn play(
    mut stream: TcpStream,
    script: Vec<Step>,
    log: Arc<Mutex<Vec<Vec<u8>>>>,
    tell: mpsc::UnboundedSender<Instant>,
) {
    for step in script {
        let done = match step {
            Step::Read => match read_request(&mut stream).await {
                Some(request) => {
                    log.lock().unwrap().push(request);
                    true
                }
                None => false,
            },
            Step::Send(bytes) => stream.write_all(&bytes).await.is_ok(),
            Step::Flood(bytes) => {
                while stream.write_all(&bytes).await.is_ok() {}
                false
            }
            Step::Close => {
                let _ = stream.shutdown().await;
                false
            }
            Step::Wait(said) => {
                said.notified().await;
                true
            }
            Step::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
            Step::Hang => {
                let mut byte = [0];
                while matches!(stream.read(&mut byte).await, Ok(1)) {}
                false
            }
        };
        if !done {
            break;
        }
    }
    let mut byte = [0];
    while matches!(stream.read(&mut byte).await, Ok(1)) {}
    let _ = tell.send(Instant::now());
}

async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    request.extend(body);
    Some(request)
}

/// A resolver whose answers are a script too; the last one stands for ever.
#[derive(Default)]
pub struct Names {
    pub answers: Vec<Vec<IpAddr>>,
    pub asked: AtomicUsize,
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        self.answers
            .get(number)
            .or(self.answers.last())
            .cloned()
            .ok_or_else(|| std::io::Error::other("no such name"))
    }
}

pub const SECRET: &str = "sk-never-shown";

/// A grant of the upstream `primary`, with these lines in place of the usual ones.
pub fn granted(lines: &str) -> Granted {
    let mut table: toml::Table = "network = ['loopback']\nmethods = ['GET', 'HEAD', 'POST']\n\
                                  paths = ['/health', '/v1/*']"
        .parse()
        .unwrap();
    table.extend(lines.parse::<toml::Table>().unwrap());
    let text = format!("kind = 'backend'\n[upstreams.primary]\n{table}");
    Grant::parse(&text).unwrap().upstreams.remove("primary").unwrap()
}

pub fn config(url: &str) -> Config {
    Config {
        backend: "fake".into(),
        upstream: "primary".into(),
        endpoint: Endpoint::parse(url).unwrap(),
        credential: Some(Credential::new(SECRET, None).unwrap()),
        times: Times::default(),
    }
}

pub fn client(config: Config, lines: &str, names: &Arc<Names>) -> Client {
    let trust = Trust::new(None).unwrap();
    Client::new(config, granted(lines), Arc::clone(names) as Arc<dyn Resolve>, trust)
}

/// A client of this server with the usual grant.
pub fn client_of(fake: &Fake) -> Client {
    client(config(&fake.url()), "", &Arc::default())
}

/// A client of this server, which may be asked everything twice.
pub fn repeating(fake: &Fake) -> Client {
    client(config(&fake.url()), "repeatable = true", &Arc::default())
}

pub fn request(method: &str, path: &str, body: &str) -> HttpRequest {
    HttpRequest { method: method.into(), path: path.into(), headers: Vec::new(), body: body.into() }
}

pub async fn post(client: &Client, framing: Framing) -> Result<Box<dyn Response>> {
    client.send("primary", request("POST", "/v1/chat", "{}"), framing).await
}

/// All frames of an answer, and the error that ended it, if one did.
pub async fn drain(response: &mut dyn Response) -> (Vec<Frame>, Option<Error>) {
    let mut frames = Vec::new();
    loop {
        match response.next(16, 1 << 20).await {
            Ok(Some(more)) => {
                assert!(!more.is_empty() && more.len() <= 16);
                frames.extend(more);
            }
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

pub fn texts(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| String::from_utf8_lossy(&frame.data).into_owned()).collect()
}
