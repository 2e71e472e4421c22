//! What the tests of every bridge share: recorded answers played back to it, and what it made of them.
//!
//! `tests/fakes/transcripts/SERVER/CASE.http` is an answer as the server sends it, head and body; its
//! transfer coding is left out. `CASE.events` beside it lists the events and the error it becomes;
//! `GOLDEN=update cargo test` writes it anew.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly, and no test uses everything"
)]

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use gristmill_bridge::{Reply, Server};
use gristmill_plugin::{
    prelude::*,
    upstream::{Frame, Framing, HttpRequest},
};

/// A recorded answer.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// Reads a transcript.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = std::str::from_utf8(&bytes[..end]).expect("a head in ascii");
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { status, headers: lines.map(header).collect(), body: bytes[end + 4..].to_vec() }
    }

    /// A JSON answer.
    pub(crate) fn json(status: u16, body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { status, headers, body: body.as_bytes().to_vec() }
    }

    /// The body in frames, as the host cuts it.
    fn frames(&self, framing: Framing) -> VecDeque<Frame> {
        let json = self.headers.iter().any(|(name, value)| {
            name == "content-type" && value.contains("json") && !value.contains("ndjson")
        });
        let piece = |data: &[u8]| Frame { event: None, data: data.to_vec() };
        match framing {
            Framing::Lines => {
                let lines = self.body.split(|byte| *byte == b'\n');
                lines.map(|line| piece(line.trim_ascii_end())).collect()
            }
            Framing::Sse if self.status == 200 && !json => events(&self.body),
            Framing::Sse | Framing::Raw => self.body.chunks(100).map(piece).collect(),
        }
    }
}

/// Server-sent events, as far as transcripts have them.
fn events(body: &[u8]) -> VecDeque<Frame> {
    let mut frames = VecDeque::new();
    let (mut event, mut data) = (None, None::<Vec<u8>>);
    for line in body.split(|byte| *byte == b'\n').chain([&b""[..]]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut data {
                Some(data) => data.extend([b"\n", value].concat()),
                None => data = Some(value.to_vec()),
            }
        } else if let Some(value) = line.strip_prefix(b"event:") {
            event = Some(String::from_utf8_lossy(value).trim().to_owned());
        } else if line.is_empty()
            && let Some(data) = data.take()
        {
            frames.push_back(Frame { event: event.take(), data });
        }
    }
    frames
}

/// A server that plays recorded answers, one a request, and keeps what it was sent.
pub(crate) struct Fake {
    replies: RefCell<VecDeque<Recorded>>,
    /// What came.
    pub(crate) sent: RefCell<Vec<HttpRequest>>,
    /// Frames a read gives at most.
    pub(crate) at_once: u32,
}

impl Fake {
    pub(crate) fn new(replies: impl IntoIterator<Item = Recorded>) -> Self {
        Self {
            replies: RefCell::new(replies.into_iter().collect()),
            sent: RefCell::default(),
            at_once: u32::MAX,
        }
    }

    /// The body of the last request.
    pub(crate) fn body(&self) -> String {
        String::from_utf8(self.sent.borrow().last().expect("something was sent").body.clone())
            .expect("JSON is UTF-8")
    }
}

struct Playing {
    recorded: Recorded,
    frames: VecDeque<Frame>,
    at_once: u32,
}

impl Server for Fake {
    fn send(&self, request: &HttpRequest, framing: Framing) -> Result<Box<dyn Reply>> {
        self.sent.borrow_mut().push(HttpRequest {
            method: request.method.clone(),
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
        });
        let Some(recorded) = self.replies.borrow_mut().pop_front() else {
            return Err(Error::new("upstream-unavailable", "the connection was refused"));
        };
        let frames = recorded.frames(framing);
        Ok(Box::new(Playing { recorded, frames, at_once: self.at_once }))
    }
}

impl Reply for Playing {
    fn status(&self) -> u16 {
        self.recorded.status
    }

    fn header(&self, name: &str) -> Option<String> {
        let found = self.recorded.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }

    fn next(&mut self, frames: u32, _: u32) -> Result<Option<Vec<Frame>>> {
        let count = self.frames.len().min(frames.min(self.at_once) as usize);
        Ok((count > 0).then(|| self.frames.drain(..count).collect()))
    }
}

/// Every event of an answer, and the error that ended it.
pub(crate) fn play(answer: Result<impl Generation>, max: u32) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::new();
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(error) => return (events, Some(error)),
    };
    loop {
        match answer.next(max) {
            Ok(Some(batch)) => {
                assert!(!batch.is_empty() && batch.len() <= max as usize, "{batch:?}");
                events.extend(batch);
            }
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

/// One line an event, and the error.
pub(crate) fn listing((events, error): &(Vec<Event>, Option<Error>)) -> String {
    let mut text = String::new();
    for event in events {
        text += &match event {
            Event::Reasoning(said) => format!("reasoning {said:?}"),
            Event::Text(said) => format!("text {said:?}"),
            Event::ToolStart(start) => format!("start {} {} {}", start.index, start.id, start.name),
            Event::ToolArguments((index, piece)) => format!("arguments {index} {piece}"),
            Event::ToolEnd(index) => format!("end {index}"),
            Event::Tokens(tokens) => {
                format!("tokens {}", tokens.iter().map(token).collect::<Vec<_>>().join(" "))
            }
            Event::Usage(usage) => {
                let mut line = format!(
                    "usage prompt={} cached={} completion={} reasoning={}",
                    usage.prompt, usage.cached, usage.completion, usage.reasoning
                );
                for (name, value) in &usage.extras {
                    line += &format!(" {name}={value}");
                }
                line
            }
            Event::Timings(times) => format!(
                "timings queue={} load={} prefill={} decode={}",
                times.queue, times.load, times.prefill, times.decode
            ),
            Event::Finish(finish) => format!("finish {} {:?}", finish.reason, finish.stop),
            Event::Other((name, value)) => format!("other {name} {value}"),
        };
        text.push('\n');
    }
    if let Some(error) = error {
        text += &format!("error {} {}\n", error.code, error.message);
        if let Some(ms) = error.retry_after_ms {
            text += &format!("  retry-after-ms={ms}\n");
        }
        for (name, value) in &error.details {
            text += &format!("  {name}={value}\n");
        }
    }
    text
}

fn token(token: &TokenInfo) -> String {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let others = token
        .alternatives
        .iter()
        .map(|(id, bytes, logprob)| format!("{id}:{:?}:{logprob}", shown(bytes)));
    let others: Vec<String> = others.collect();
    format!("{}:{:?}:{}[{}]", token.id, shown(&token.bytes), token.logprob, others.join(","))
}

/// The request that a transcript answers; the first word of its name says which kind.
pub(crate) fn request(case: &str) -> Request {
    let user = Message::text(Role::User, "what is the weather in Rome?");
    let mut request = Request::new("m", Prompt::Chat(vec![user]));
    request.id = "t1".into();
    let tool = |name: &str| Tool {
        name: name.into(),
        description: None,
        parameters: r#"{"type":"object"}"#.into(),
        strict: None,
        extras: Vec::new(),
    };
    match case.split('-').next().unwrap_or_default() {
        "raw" => request.prompt = Prompt::Text("Once upon".into()),
        "infill" => request.prompt = Prompt::Infill(("def f(".into(), "): pass".into())),
        "tools" => request.tools = vec![tool("weather"), tool("clock")],
        "required" => {
            request.tools = vec![tool("weather")];
            request.tool_choice = ToolChoice::Required;
        }
        "json" => request.constraint = Some(Constraint::JsonObject),
        "logprobs" => request.logprobs = Some(1),
        _ => {}
    }
    request
}

/// Plays every transcript of a server. However many frames a read gives and however many events are
/// asked for, the events are the same, in the contract's order, and the ones that are written down.
pub(crate) fn absorbs(
    server: &str,
    answer: impl Fn(&Fake, &Request, u32) -> (Vec<Event>, Option<Error>),
) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fakes/transcripts").join(server);
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    cases.sort();
    assert!(cases.len() > 5, "{} has hardly any transcripts", folder.display());
    let update = std::env::var("GOLDEN").is_ok_and(|what| what == "update");
    let mut wrong = Vec::new();
    for path in cases {
        let case = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let recorded = Recorded::parse(&fs::read(&path).unwrap());
        let request = request(&case);
        let whole = answer(&Fake::new([recorded.clone()]), &request, u32::MAX);
        for (at_once, max) in [(1, 1), (2, 64), (3, 2), (u32::MAX, 1)] {
            let fake = Fake { at_once, ..Fake::new([recorded.clone()]) };
            let found = answer(&fake, &request, max);
            assert_eq!(found, whole, "{case}: {at_once} frames a read, {max} events");
        }
        in_order(&whole, &case);
        let golden = path.with_extension("events");
        let found = listing(&whole);
        if update {
            fs::write(&golden, &found).unwrap();
        }
        if fs::read_to_string(&golden).unwrap_or_default() != found {
            wrong.push(format!("{case}:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "not as written down:\n{}", wrong.join("\n"));
}

/// The contract's order, and never an end without one of the two ends.
fn in_order((events, error): &(Vec<Event>, Option<Error>), case: &str) {
    let mut open = Vec::new();
    let mut closing = false;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::ToolStart(start) => open.push(start.index),
            Event::ToolArguments((index, _)) => assert!(open.contains(index), "{case}: {index}"),
            Event::ToolEnd(index) => open.retain(|known| known != index),
            Event::Usage(_) | Event::Timings(_) => closing = true,
            Event::Finish(finish) => {
                assert_eq!(at, events.len() - 1, "{case}: something follows the end");
                let cut = finish.reason == "length";
                assert!(open.is_empty() || cut, "{case}: calls {open:?} are open at the end");
            }
            _ => assert!(!closing, "{case}: {event:?} follows the counts"),
        }
    }
    let finished = matches!(events.last(), Some(Event::Finish(_)));
    assert!(finished != error.is_some(), "{case}: one end, and only one: {error:?}");
}

/// A request with everything set that most servers can express.
pub(crate) fn full() -> Request {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let mut asked = Message::text(Role::Assistant, "");
    asked.content.clear();
    asked.reasoning = Some("hm".into());
    asked.tool_calls = vec![
        call("call_a", "weather", "{\"z\": 1.50, \"city\": \"Rom\\u00e9\"}"),
        call("call_b", "clock", ""),
    ];
    let mut told = Message::text(Role::Tool, "sunny");
    told.tool_call_id = Some("call_a".into());
    // Some clients send a result with the tool's name alone.
    let mut timed = Message::text(Role::Tool, "noon");
    timed.name = Some("clock".into());
    let mut request = Request::new(
        "m",
        Prompt::Chat(vec![
            Message::text(Role::System, "be brief"),
            Message::text(Role::User, "Größe \"x\"?"),
            asked,
            told,
            timed,
        ]),
    );
    request.tools = vec![Tool {
        name: "weather".into(),
        description: Some("tells".into()),
        parameters: r#"{"$schema":"x","type":"object","properties":{"z":{},"a":{"const":1e3}}}"#
            .into(),
        strict: Some(true),
        extras: Vec::new(),
    }];
    request.max_tokens = Some(9);
    request.stop = vec!["END".into()];
    request.sampling.temperature = Some(0.7);
    request.sampling.top_p = Some(0.95);
    request.sampling.presence_penalty = Some(0.5);
    request.sampling.frequency_penalty = Some(0.25);
    request.sampling.seed = Some(42);
    request
}

/// Change by change: the JSON that is sent, or the field that is refused.
pub(crate) type Change = (&'static str, fn(&mut Request), Result<&'static str, &'static str>);

/// The least request changed once, and what became of it. The JSON is the part of the body that is
/// not in `least`, the body of the unchanged request.
pub(crate) fn asks(
    answer: impl Fn(&Fake, &Request) -> Option<Error>,
    least: &str,
    changes: &[Change],
) {
    let send = |request: &Request| {
        let fake = Fake::new([Recorded::json(500, "{}")]);
        let error = answer(&fake, request).expect("the fake has no answer");
        let sent = (!fake.sent.borrow().is_empty()).then(|| fake.body());
        (sent, error)
    };
    let fresh = || Request::new("m", Prompt::Chat(vec![Message::text(Role::User, "hi")]));
    assert_eq!(send(&fresh()).0.as_deref(), Some(least));
    for (name, change, wanted) in changes {
        let mut request = fresh();
        change(&mut request);
        let (sent, error) = send(&request);
        match (wanted, sent) {
            (Ok(part), Some(body)) => {
                let shown = if part.starts_with("{\"model\"") {
                    body == *part
                } else {
                    body.contains(part)
                };
                assert!(shown, "{name}: wanted {part} in {body}");
            }
            (Err(field), None) => {
                assert_eq!(error.code, "unsupported", "{name}: {error:?}");
                let told = gristmill_plugin::extra(&error.details, "field");
                assert_eq!(told, Some(*field), "{name}: {error:?}");
            }
            (Ok(part), None) => panic!("{name}: wanted {part}, refused: {error:?}"),
            (Err(field), Some(body)) => panic!("{name}: {field} should be refused, sent {body}"),
        }
    }
}
