//! A server that speaks the hub's API over plain HTTP on a loopback address, with faults on cue.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use gristmill_models::store::{Digest, Sources};

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Send only so many bytes of the body, then close.
    pub(crate) cut: Option<usize>,
    /// Say this of the length, in place of the truth.
    pub(crate) length: Option<Option<usize>>,
    /// Send the head, or nothing at all, and then keep the connection open in silence.
    pub(crate) hang: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let (headers, body) = (Vec::new(), body.into());
        Self { status, headers, body, cut: None, length: None, hang: false }
    }

    pub(crate) fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

/// A running server; stops when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, stopped, handler) = (requests.clone(), stop.clone(), Arc::new(handler));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (seen, handler) = (seen.clone(), handler.clone());
                thread::spawn(move || {
                    // A client that goes away is none of this server's business.
                    let _ = serve(stream.unwrap(), &seen, handler.as_ref());
                });
            }
        });
        Self { address, requests, stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for files, not for the list of them.
    pub(crate) fn downloads(&self) -> Vec<Request> {
        let is_file = |request: &Request| !request.path.starts_with("/api/");
        self.requests().into_iter().filter(is_file).collect()
    }

    /// Settings that go there, without retries.
    pub(crate) fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        sources.hub = self.url();
        sources.retries = 0;
        sources.pause = Duration::ZERO;
        sources
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    handler: &dyn Fn(&Request) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    let request = Request { path, headers };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.length {
        None => head.push_str(&format!("Content-Length: {}\r\n", reply.body.len())),
        Some(Some(length)) => head.push_str(&format!("Content-Length: {length}\r\n")),
        Some(None) => {}
    }
    head.push_str("\r\n");
    if !(reply.hang && reply.body.is_empty()) {
        stream.write_all(head.as_bytes())?;
        let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
        stream.write_all(&reply.body[..end])?;
        stream.flush()?;
    }
    if reply.hang {
        // Until the client goes away.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest)?;
    }
    Ok(())
}

/// A file of a repository and how it is served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) etag: Option<String>,
    /// Whether the list of files and the head of the answer tell the digest and the size.
    pub(crate) published: bool,
    /// Bytes after which the connections break, one for each request; then they hold.
    pub(crate) cuts: Vec<usize>,
    /// Whether ranges are served at all.
    pub(crate) ranges: bool,
    /// Serve the range without looking at `If-Range`.
    pub(crate) careless: bool,
}

impl Served {
    pub(crate) fn new(name: &str, bytes: Vec<u8>) -> Self {
        let etag = Some(format!("\"{}\"", &Digest::of(&bytes).hex()[..8]));
        Self {
            name: name.to_owned(),
            bytes,
            etag,
            published: true,
            cuts: Vec::new(),
            ranges: true,
            careless: false,
        }
    }
}

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The repository `org/repo` with files that a test may change while it is served.
#[derive(Clone)]
pub(crate) struct Repository(pub(crate) Arc<Mutex<Vec<Served>>>);

impl Repository {
    pub(crate) fn new(files: Vec<Served>) -> Self {
        Self(Arc::new(Mutex::new(files)))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Served)) {
        change(&mut self.0.lock().unwrap()[0]);
    }

    /// A hub with this repository.
    pub(crate) fn serve(&self) -> Server {
        let this = self.clone();
        Server::start(move |request| this.reply(request))
    }

    pub(crate) fn reply(&self, request: &Request) -> Reply {
        let mut files = self.0.lock().unwrap();
        if request.path.starts_with("/api/models/org/repo/revision/main?") {
            return Reply::new(200, listing(&files));
        }
        let prefix = format!("/org/repo/resolve/{COMMIT}/");
        let name = request.path.strip_prefix(&prefix).unwrap_or_default();
        match files.iter_mut().find(|file| file.name == name) {
            Some(file) => send(file, request),
            None => Reply::new(404, "not here"),
        }
    }
}

fn listing(files: &[Served]) -> String {
    let list: Vec<String> = files
        .iter()
        .map(|file| {
            let (size, digest) = (file.bytes.len(), Digest::of(&file.bytes).hex());
            let more = if file.published {
                format!(r#","size":{size},"lfs":{{"sha256":"{digest}","size":{size}}}"#)
            } else {
                String::new()
            };
            format!(r#"{{"rfilename":"{}"{more}}}"#, file.name)
        })
        .collect();
    format!(
        r#"{{"id":"org/repo","sha":"{COMMIT}","tags":["gguf","license:mit"],"siblings":[{}]}}"#,
        list.join(",")
    )
}

fn send(file: &mut Served, request: &Request) -> Reply {
    let total = file.bytes.len();
    let start = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok())
        .filter(|_| file.ranges);
    let same = file.careless
        || request.header("if-range").is_none_or(|etag| Some(etag) == file.etag.as_deref());
    let mut reply = match start {
        Some(start) if start >= total => return Reply::new(416, ""),
        Some(start) if same => Reply::new(206, &file.bytes[start..])
            .header("Content-Range", format!("bytes {start}-{}/{total}", total - 1)),
        _ => Reply::new(200, file.bytes.clone()),
    };
    if let Some(etag) = &file.etag {
        reply = reply.header("ETag", etag);
    }
    if file.published {
        reply = reply
            .header("X-Linked-Size", total)
            .header("X-Linked-ETag", format!("\"{}\"", Digest::of(&file.bytes).hex()));
    }
    if !file.cuts.is_empty() {
        reply.cut = Some(file.cuts.remove(0));
    }
    reply
}
