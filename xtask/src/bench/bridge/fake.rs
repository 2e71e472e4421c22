//! A server that answers as fast as it is read, or never, and tells when its caller has gone.
//!
//! The prompt says what it does: `events N` sends that many, `flood` never stops, `hang` sends one
//! event and then nothing; without streaming it never answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Instant,
};

use anyhow::Result;
use serde_json::Value;

/// What happened at the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Note {
    /// A request for `hang` is here.
    Asked,
    /// Its caller has gone.
    Gone(Instant),
}

/// The server; it lives as long as the process.
pub(super) struct Fake {
    pub(super) address: String,
    pub(super) notes: Receiver<Note>,
}

pub(super) const MODEL: &str = "fake";
/// The texts of the events, in turns: the proxy ends an answer whose pieces are all the same.
const WORDS: [&str; 2] = ["word ", "sack "];
/// Bytes of each.
pub(super) const LENGTH: u64 = 5;

impl Fake {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let (tell, notes) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tell = tell.clone();
                // A thread that only waits needs little stack; there may be a thousand.
                let thread = thread::Builder::new().stack_size(128 << 10);
                // An error here is the caller's going away, which is what it is for.
                let _ = thread.spawn(move || serve(stream, &tell));
            }
        });
        Ok(Self { address, notes })
    }
}

fn serve(stream: TcpStream, tell: &Sender<Note>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let out = reader.get_mut();
        if head.starts_with("GET") {
            let list = r#"{"object":"list","data":[{"id":"fake","object":"model","created":0,"owned_by":"fake"}]}"#;
            write!(
                out,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{list}",
                list.len()
            )?;
            continue;
        }
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let prompt = asked.pointer("/messages/0/content").map(Value::to_string).unwrap_or_default();
        if asked.get("stream") != Some(&Value::Bool(true)) {
            return hang(reader, tell);
        }
        write!(
            out,
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )?;
        let pair = WORDS.map(|word| chunk(&format!(r#"{{"content":"{word}"}}"#), "null"));
        let mut events = pair.iter().cycle();
        let mut send = || match events.next() {
            Some(event) => out.write_all(event.as_bytes()),
            None => Ok(()),
        };
        if prompt.contains("flood") {
            loop {
                send()?;
            }
        }
        if prompt.contains("hang") {
            send()?;
            return hang(reader, tell);
        }
        let digits: String = prompt.chars().filter(char::is_ascii_digit).collect();
        for _ in 0..digits.parse::<u64>().unwrap_or(1) {
            send()?;
        }
        out.write_all(chunk("{}", r#""stop""#).as_bytes())?;
        out.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")?;
    }
}

fn hang(mut reader: BufReader<TcpStream>, tell: &Sender<Note>) -> std::io::Result<()> {
    let _ = tell.send(Note::Asked);
    while reader.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    let _ = tell.send(Note::Gone(Instant::now()));
    Ok(())
}

fn chunk(delta: &str, finish: &str) -> String {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"fake\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    );
    format!("{:x}\r\n{event}\r\n", event.len())
}
