//! The listener and its scripts.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};

/// A gate that a script waits at: it says that it is there, and goes on when it is opened.
#[derive(Debug, Clone)]
pub struct Latch {
    there: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Default for Latch {
    fn default() -> Self {
        Self { there: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }
}

impl Latch {
    /// Waits until a script is at the gate.
    pub async fn reached(&self) {
        self.there.acquire().await.expect("never closed").forget();
    }

    /// Lets one script through.
    pub fn open(&self) {
        self.open.add_permits(1);
    }

    async fn pass(&self) {
        self.there.add_permits(1);
        self.open.acquire().await.expect("never closed").forget();
    }
}

/// What a script does next. When it has ended, the connection waits for its next request.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes bytes.
    Send(Vec<u8>),
    /// Writes bytes one by one, each in a packet of its own.
    Trickle(Vec<u8>),
    /// Writes these bytes again and again, until nobody reads them.
    Endless(Vec<u8>),
    /// Waits at a gate.
    Wait(Latch),
    /// Closes the connection in order.
    Close,
    /// Resets it.
    Reset,
    /// Does nothing until the other side goes, and tells that ([`Fake::gone`]).
    Hang,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Method and path, as in the request's first line.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The body as text.
    ///
    /// # Panics
    /// When it is no UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a request is UTF-8")
    }
}

type Script = dyn Fn(&Received) -> Vec<Step> + Send + Sync;

/// A listening fake. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Fake {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    gone: tokio::sync::Mutex<mpsc::UnboundedReceiver<()>>,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    /// Listens on a free port of this machine and plays `script` for each request.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (tell, gone) = mpsc::unbounded_channel();
        let script: Arc<Script> = Arc::new(script);
        let kept = Arc::clone(&received);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("a TCP socket");
                let played = serve(stream, Arc::clone(&script), Arc::clone(&kept), tell.clone());
                connections.spawn(played);
            }
        });
        Self { address, received, gone: tokio::sync::Mutex::new(gone), task }
    }

    /// One that plays the same steps whatever is asked.
    pub async fn of(steps: Vec<Step>) -> Self {
        Self::start(move |_| steps.clone()).await
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    ///
    /// # Panics
    /// Never: nobody panics while holding the list.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("nobody panics here").clone()
    }

    /// Waits until the other side of a connection that hangs ([`Step::Hang`]) or writes without end
    /// has gone.
    pub async fn gone(&self) {
        self.gone.lock().await.recv().await;
    }
}

/// Plays scripts on one connection until it ends.
async fn serve(
    mut stream: TcpStream,
    script: Arc<Script>,
    kept: Arc<Mutex<Vec<Received>>>,
    gone: mpsc::UnboundedSender<()>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = receive(&mut stream, &mut buffer).await {
        let steps = script(&request);
        kept.lock().expect("nobody panics here").push(request);
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Step::Trickle(bytes) => {
                    for byte in bytes {
                        if stream.write_all(&[byte]).await.is_err() {
                            return;
                        }
                        // So that the reader has a chance to see this byte alone.
                        tokio::task::yield_now().await;
                    }
                }
                Step::Endless(bytes) => {
                    while stream.write_all(&bytes).await.is_ok() {}
                    let _ = gone.send(());
                    return;
                }
                Step::Wait(latch) => latch.pass().await,
                Step::Close => {
                    let _ = stream.shutdown().await;
                    return;
                }
                Step::Reset => {
                    let _ = stream.set_zero_linger();
                    return;
                }
                Step::Hang => {
                    let mut byte = [0];
                    while matches!(stream.read(&mut byte).await, Ok(1)) {}
                    let _ = gone.send(());
                    return;
                }
            }
        }
    }
}

/// The next request: a head, and as many bytes as its `content-length` says.
async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..end].to_vec()).expect("a head in ascii");
    buffer.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let target = first.rsplit_once(' ').map_or(first, |(target, _)| target).to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().expect("a length"));
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer.drain(..length).collect();
    Some(Received { target, headers, body })
}
