//! What the end-to-end tests share: a bridge's component with its shipped grant in the real sandbox,
//! behind the real HTTP client, and answers as text.
//!
//! Nothing here is part of the product.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{fmt::Write as _, fs, sync::Arc, time::Duration};

use gristmill_core::{
    Error,
    event::{Event, TokenInfo},
    request::{Constraint, Message, Prompt, Request, Role, Tool, ToolChoice},
};
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::Grant;
use gristmill_sandbox::{Backend, Sandbox, SandboxConfig, Services, inspect};
use gristmill_testing::components;
use gristmill_upstream::{Client, Config, Endpoint, SystemResolver, Times, Trust};

/// Times within which every test's server does what it does, or never does it.
pub const SHORT: Times = Times {
    connect: Duration::from_secs(5),
    head: Duration::from_millis(700),
    idle: Duration::from_millis(700),
    total: Duration::from_secs(30),
};

/// A bridge, live.
pub struct Bridge {
    /// Kept: it runs the component.
    _sandbox: Sandbox,
    /// The back-end.
    pub backend: Arc<dyn Backend>,
}

impl Bridge {
    /// The bridge of this kind to the server at this address.
    ///
    /// # Panics
    /// When the component does not build or is refused.
    #[must_use]
    pub fn new(kind: &str, url: &str, times: Times) -> Self {
        let file = format!("gristmill_backend_{}.wasm", kind.replace('-', "_"));
        let bytes = fs::read(components::components().unwrap().join(&file)).unwrap();
        let found = inspect(&bytes).unwrap();
        let pin = Pin::first(kind, file, &bytes, found.kind, found.contract, found.imports);
        assert_eq!(pin.kind, Kind::Backend);
        let grant = components::root().join(format!("policies/grants/{kind}.toml"));
        let grant = Grant::parse(&fs::read_to_string(grant).unwrap()).unwrap();
        let config = Config {
            backend: "fake".into(),
            upstream: "primary".into(),
            endpoint: Endpoint::parse(url).unwrap(),
            credential: None,
            times,
        };
        let granted = grant.upstreams["primary"].clone();
        let client =
            Client::new(config, granted, Arc::new(SystemResolver), Trust::new(None).unwrap());
        let services = Services { upstream: Some(Arc::new(client)), ..Services::default() };
        let sandbox = Sandbox::new(SandboxConfig::default()).unwrap();
        let backend = sandbox.load_backend(&bytes, &pin, &grant, services).unwrap();
        Self { _sandbox: sandbox, backend }
    }

    /// Every event of an answer, and the error that ended it.
    pub async fn play(&self, request: Request, max: u32) -> (Vec<Event>, Option<Error>) {
        let mut events = Vec::new();
        let mut answer = match self.backend.generate(request).await {
            Ok(answer) => answer,
            Err(error) => return (events, Some(error)),
        };
        loop {
            match answer.next(max).await {
                Ok(Some(batch)) => events.extend(batch),
                Ok(None) => return (events, None),
                Err(error) => return (events, Some(error)),
            }
        }
    }
}

/// The request that a transcript answers; the first word of its name says which kind.
#[must_use]
pub fn request(case: &str) -> Request {
    let user = Message::text(Role::User, "what is the weather in Rome?");
    let mut request = Request::new("t1", "m", Prompt::Chat(vec![user]));
    let tool = |name: &str| Tool {
        name: name.into(),
        description: None,
        parameters: r#"{"type":"object"}"#.into(),
        strict: None,
        extras: Vec::new(),
    };
    match case.split('-').next().unwrap_or_default() {
        "raw" => request.prompt = Prompt::Text("Once upon".into()),
        "infill" => request.prompt = Prompt::Infill("def f(".into(), "): pass".into()),
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

/// One line an event, and the error: the form of a transcript's `.events`.
#[must_use]
pub fn listing((events, error): &(Vec<Event>, Option<Error>)) -> String {
    let mut text = String::new();
    for event in events {
        text += &match event {
            Event::Reasoning(said) => format!("reasoning {said:?}"),
            Event::Text(said) => format!("text {said:?}"),
            Event::ToolStart(start) => format!("start {} {} {}", start.index, start.id, start.name),
            Event::ToolArguments(index, piece) => format!("arguments {index} {piece}"),
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
                    let _ = write!(line, " {name}={value}");
                }
                line
            }
            Event::Timings(times) => format!(
                "timings queue={} load={} prefill={} decode={}",
                times.queue, times.load, times.prefill, times.decode
            ),
            Event::Finish(finish) => format!("finish {} {:?}", finish.reason, finish.stop),
            Event::Other(name, value) => format!("other {name} {value}"),
        };
        text.push('\n');
    }
    if let Some(error) = error {
        let _ = writeln!(text, "error {} {}", error.code, error.message);
        if let Some(ms) = error.retry_after_ms {
            let _ = writeln!(text, "  retry-after-ms={ms}");
        }
        for (name, value) in &error.details {
            let _ = writeln!(text, "  {name}={value}");
        }
    }
    text
}

fn token(token: &TokenInfo) -> String {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let others: Vec<String> = token
        .alternatives
        .iter()
        .map(|other| format!("{}:{:?}:{}", other.id, shown(&other.bytes), other.logprob))
        .collect();
    format!("{}:{:?}:{}[{}]", token.id, shown(&token.bytes), token.logprob, others.join(","))
}
