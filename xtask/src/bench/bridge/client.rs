//! A streaming client small enough to measure with: one connection, kept, and a clock.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// What one streamed answer took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// From the request to the first text.
    pub(super) first: Duration,
    /// From the request to the end.
    pub(super) whole: Duration,
    /// Events with text in them.
    pub(super) events: u64,
    /// Bytes of that text. What stands between may put several events into one.
    pub(super) text: u64,
}

/// Where a server is asked for one model.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// For the table.
    pub(super) name: &'static str,
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
    /// As this server calls it.
    pub(super) model: String,
}

/// A client of one target.
pub(super) struct Client {
    target: Target,
    kept: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(super) fn new(target: &Target) -> Self {
        Self { target: target.clone(), kept: None }
    }

    /// Asks for a streamed chat answer and reads it to its end.
    pub(super) fn ask(&mut self, prompt: &str, tokens: u32) -> Result<Timing> {
        let request = request(&self.target, prompt, tokens, true);
        let (mut stream, begun) = match self.kept.take() {
            // A server may have hung up in the meantime; then nothing comes back.
            Some(mut kept) => {
                let begun = Instant::now();
                match kept.get_mut().write_all(&request).is_ok()
                    && kept.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
                {
                    true => (kept, begun),
                    false => self.fresh(&request)?,
                }
            }
            None => self.fresh(&request)?,
        };
        let keeps = read_head(&mut stream)?;
        let mut body = Chunks { stream, left: 0, ended: false };
        let (mut first, mut events, mut text) = (None, 0, 0);
        let mut line = String::new();
        {
            let mut lines = BufReader::new(&mut body);
            loop {
                line.clear();
                if lines.read_line(&mut line)? == 0 {
                    break;
                }
                let Some(data) = line.strip_prefix("data: ") else { continue };
                if data.trim() == "[DONE]" {
                    continue;
                }
                let bytes = text_of(data)?;
                if bytes > 0 {
                    first.get_or_insert_with(|| begun.elapsed());
                    events += 1;
                    text += bytes;
                }
            }
        }
        let whole = begun.elapsed();
        if keeps && body.ended {
            self.kept = Some(body.stream);
        }
        let first =
            first.with_context(|| format!("{}: an answer without text", self.target.name))?;
        Ok(Timing { first, whole, events, text })
    }

    fn fresh(&self, request: &[u8]) -> Result<(BufReader<TcpStream>, Instant)> {
        let begun = Instant::now();
        Ok((BufReader::new(send(&self.target, request)?), begun))
    }
}

/// Sends a request and leaves the connection to the caller, unread.
pub(super) fn begin(target: &Target, prompt: &str, stream: bool) -> Result<TcpStream> {
    send(target, &request(target, prompt, 1 << 20, stream))
}

fn send(target: &Target, request: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(&target.address)
        .with_context(|| format!("cannot connect to {}", target.name))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(300)))?;
    stream.write_all(request)?;
    Ok(stream)
}

fn request(target: &Target, prompt: &str, tokens: u32, stream: bool) -> Vec<u8> {
    let body = json!({
        "model": target.model, "stream": stream, "max_tokens": tokens, "temperature": 0,
        "messages": [{"role": "user", "content": prompt}],
    })
    .to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         authorization: Bearer none\r\ncontent-length: {}\r\n\r\n{body}",
        target.address,
        body.len()
    )
    .into_bytes()
}

/// Whether the connection may be kept.
fn read_head(stream: &mut BufReader<TcpStream>) -> Result<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(&mut head)? > 0, "the connection ended in {head:?}");
    }
    let lower = head.to_ascii_lowercase();
    if !lower.starts_with("http/1.1 200") {
        let mut body = vec![0; 2_000];
        let read = stream.read(&mut body)?;
        body.truncate(read);
        bail!("{head}{}", String::from_utf8_lossy(&body));
    }
    ensure!(lower.contains("transfer-encoding: chunked"), "expected chunks: {head}");
    Ok(!lower.contains("connection: close"))
}

/// Bytes of text in an event.
fn text_of(data: &str) -> Result<u64> {
    let event: Value = serde_json::from_str(data).with_context(|| format!("event {data}"))?;
    ensure!(event.get("error").is_none(), "the stream failed: {data}");
    let content = event.pointer("/choices/0/delta/content").and_then(Value::as_str);
    Ok(content.unwrap_or_default().len() as u64)
}

/// A chunked body.
struct Chunks {
    stream: BufReader<TcpStream>,
    left: usize,
    ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wrong =
            |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let size = line.trim().split(';').next().unwrap_or_default();
            self.left = usize::from_str_radix(size, 16).map_err(|_| wrong("no chunk"))?;
            if self.left == 0 {
                self.stream.read_line(&mut line)?;
                self.ended = true;
                return Ok(0);
            }
        }
        let most = buffer.len().min(self.left);
        let read = self.stream.read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(wrong("the connection ended in a chunk"));
        }
        self.left -= read;
        if self.left == 0 {
            let mut end = [0; 2];
            self.stream.read_exact(&mut end)?;
        }
        Ok(read)
    }
}
