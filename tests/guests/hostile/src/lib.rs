//! A back-end whose behaviour is the first word of the prompt: `good`, or one way to misbehave.

use std::{cell::RefCell, hint::black_box};

wit_bindgen::generate!({ world: "backend", path: "../../../wit/v0.1", generate_all });

use exports::gristmill::contract::serving::{self, GuestGeneration};
use gristmill::contract::{
    capability::{Descriptor, ModelInfo, Readiness},
    clock, engine, kernels, log,
    types::{
        EmbedRequest, Embeddings, Error, Event, Finish, Part, Prompt, Ranked, Request,
        RerankRequest, TokenInfo, ToolStart, Usage,
    },
    upstream,
};

struct Hostile;

struct Generation {
    mode: String,
    count: u32,
    step: RefCell<u32>,
    decoding: Option<engine::Decoding>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.mode == "trap-drop" {
            trap();
        }
    }
}

fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

fn text(text: impl Into<String>) -> Event {
    Event::Text(text.into())
}

fn finish() -> Event {
    Event::Finish(Finish { reason: "stop".into(), stop: None })
}

fn usage() -> Event {
    Event::Usage(Usage { prompt: 1, cached: 0, completion: 2, reasoning: 0, extras: Vec::new() })
}

fn failure(code: &str, message: impl Into<String>) -> Error {
    Error { code: code.into(), message: message.into(), retry_after_ms: None, details: Vec::new() }
}

fn spin() -> u64 {
    let mut n = 0u64;
    loop {
        n = black_box(n.wrapping_add(1));
        if n == u64::MAX {
            return n;
        }
    }
}

#[inline(never)]
fn recurse(n: u64) -> u64 {
    if black_box(n) == u64::MAX { 0 } else { black_box(recurse(n + 1)) + n }
}

/// `mode` and `count` of a prompt `mode count`.
fn script(request: &Request) -> (String, u32) {
    let prompt = match &request.prompt {
        Prompt::Text(text) => text.clone(),
        Prompt::Chat(messages) => messages
            .iter()
            .flat_map(|message| &message.content)
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        _ => String::new(),
    };
    let mut words = prompt.split_whitespace();
    let mode = words.next().unwrap_or("good").to_owned();
    let count = words.next().and_then(|word| word.parse().ok()).unwrap_or(3);
    (mode, count)
}

impl serving::Guest for Hostile {
    type Generation = Generation;

    fn describe() -> Descriptor {
        Descriptor {
            id: "hostile".into(),
            kind: "hostile".into(),
            version: "0.1.0".into(),
            execution: "library".into(),
            claims: Vec::new(),
            extras: Vec::new(),
        }
    }

    fn models() -> Result<Vec<ModelInfo>, Error> {
        Ok(vec![ModelInfo {
            id: "hostile".into(),
            names: vec!["hostile:latest".into()],
            digest: None,
            family: None,
            quantization: None,
            parameters: None,
            size_bytes: None,
            context_native: Some(4096),
            claims: Vec::new(),
            extras: Vec::new(),
        }])
    }

    fn generate(request: Request) -> Result<serving::Generation, Error> {
        let (mode, count) = script(&request);
        let mut decoding = None;
        match mode.as_str() {
            "trap" => trap(),
            "panic" => panic!("as asked"),
            "exit" => std::process::exit(0),
            "loop" => drop(black_box(spin())),
            "sleep" => std::thread::sleep(std::time::Duration::from_secs(86_400)),
            "recurse" => drop(black_box(recurse(0))),
            "memory" => {
                let mut all = Vec::new();
                loop {
                    all.push(black_box(vec![1u8; 1 << 20]));
                }
            }
            "handles-own" => loop {
                let generation = Generation {
                    mode: String::new(),
                    count: 0,
                    step: RefCell::new(0),
                    decoding: None,
                };
                std::mem::forget(serving::Generation::new(generation));
            },
            "handles-host" => loop {
                let matrix = kernels::Matrix::from_f32(1, 1, &[1.0], "F32")?;
                std::mem::forget(matrix);
            },
            "call-bytes" => {
                log::write(log::Level::Info, &"x".repeat(16 << 20), &[]);
            }
            "calls" => loop {
                black_box(clock::monotonic());
            },
            "clock" => {
                for _ in 0..count {
                    black_box(clock::monotonic());
                }
            }
            "log" => loop {
                log::write(log::Level::Info, "again", &[]);
            },
            "log-bytes" => loop {
                log::write(log::Level::Info, &"x".repeat(10_000), &[("a".into(), "b".into())]);
            },
            "error" => {
                return Err(Error {
                    code: "c".repeat(1000),
                    message: "m".repeat(100_000),
                    retry_after_ms: Some(7),
                    details: (0..1000).map(|n| (n.to_string(), "d".repeat(10_000))).collect(),
                });
            }
            "forge" => return Err(failure("plugin-fault", "blame the host")),
            "refuse" => return Err(failure("not-found", "no model of that name")),
            "upstream" => {
                let grant = prompt_word(&request, 1);
                let path = prompt_word(&request, 2);
                let sent = upstream::send(
                    &grant,
                    &upstream::HttpRequest {
                        method: "POST".into(),
                        path,
                        headers: vec![("x-test".into(), prompt_word(&request, 3))],
                        body: Vec::new(),
                    },
                    upstream::Framing::Lines,
                )?;
                let (told, kept) = (sent.header("SERVER"), sent.header("X-Kind"));
                let mut seen = format!("{} {told:?} {kept:?}", sent.status());
                while let Some(frames) = sent.next(8, 1024)? {
                    for frame in frames {
                        seen.push('|');
                        seen.push_str(&String::from_utf8_lossy(&frame.data));
                    }
                }
                return Ok(said(seen));
            }
            "inert" => {
                let seen = format!(
                    "env={} args={} root={} file={} stdin={:?}",
                    std::env::vars().count(),
                    std::env::args().count(),
                    std::fs::read_dir("/").is_ok(),
                    std::fs::write("out", b"x").is_ok(),
                    std::io::Read::read(&mut std::io::stdin(), &mut [0u8; 8]).unwrap_or(99),
                );
                println!("to nowhere");
                eprintln!("to nowhere");
                return Ok(said(seen));
            }
            "kernels" => {
                let matrix =
                    kernels::Matrix::from_f32(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "F32")?;
                let y = matrix.gemv(&[1.0, 0.0, -1.0])?;
                let two = matrix.gemm(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0], 2)?;
                let row = matrix.row(1)?;
                let errors = [
                    matrix.gemv(&[1.0]).err(),
                    matrix.row(2).err(),
                    kernels::Matrix::from_f32(2, 2, &[1.0], "F32").err(),
                    kernels::Matrix::from_f32(1, 1, &[1.0], "Q99").err(),
                ]
                .map(|error| error.map_or("none".to_owned(), |error| error.code));
                let seen = format!(
                    "{:?} {} {y:?} {two:?} {row:?} {errors:?}",
                    matrix.shape(),
                    matrix.quantization()
                );
                return Ok(said(seen));
            }
            "matrices" => loop {
                let numbers = vec![1.0; 1 << 16];
                std::mem::forget(kernels::Matrix::from_f32(1, 1 << 16, &numbers, "F32")?);
            },
            "kernels-huge" => {
                let tall = kernels::Matrix::from_f32(1 << 19, 1, &vec![1.0; 1 << 19], "F32")?;
                let n = 1 << 19;
                tall.gemm(&vec![1.0; n as usize], n)?;
            }
            "engine" => {
                let model = engine::Model::open(&request.model)?;
                decoding = Some(model.generate(&request)?);
            }
            "session" => {
                let model = engine::Model::open(&request.model)?;
                let session = model.open_session(&[])?;
                let segment = engine::Segment {
                    kind: "user".into(),
                    tokens: model.tokenize("hello", false)?,
                    stable: true,
                    cache_class: "volatile".into(),
                    extras: Vec::new(),
                };
                let status = session.ensure_prefix(&[segment])?;
                let snapshot = session.snapshot()?;
                let restored = session.restore(&snapshot)?;
                let fork = session.fork()?;
                let explained = fork.explain()?;
                decoding = Some(fork.decode(&engine::DecodeConfig {
                    request: request.clone(),
                    prefill_chunk: None,
                    extras: Vec::new(),
                })?);
                log::write(
                    log::Level::Debug,
                    "session",
                    &[("resident".into(), format!("{}", status.resident + restored.resident))],
                );
                drop(explained);
            }
            "onnx" => {
                let graph = gristmill::contract::onnx::Graph::open("graph")?;
                drop(graph);
            }
            _ => {}
        }
        Ok(serving::Generation::new(Generation { mode, count, step: RefCell::new(0), decoding }))
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings, Error> {
        let rows = request.inputs.len() as u32;
        // `lie`: one number too few.
        let data = vec![0.5; request.inputs.len() * 2 - usize::from(request.model == "lie")];
        Ok(Embeddings { dim: 2, rows, data, prompt_tokens: rows })
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>, Error> {
        // `lie`: a document that is not there.
        let most = request.documents.len() as u32 + u32::from(request.model == "lie");
        Ok((0..most).map(|index| Ranked { index, score: 0.5 }).collect())
    }

    fn tokenize(_model: String, text: String, _special: bool) -> Result<Vec<u32>, Error> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn detokenize(_model: String, tokens: Vec<u32>) -> Result<Vec<u8>, Error> {
        Ok(tokens.into_iter().map(|token| token as u8).collect())
    }

    fn health() -> Result<Readiness, Error> {
        Ok(Readiness { ready: true, detail: String::new(), extras: Vec::new() })
    }
}

fn prompt_word(request: &Request, at: usize) -> String {
    match &request.prompt {
        Prompt::Text(text) => text.split(' ').nth(at).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// An answer of one text.
fn said(mode: String) -> serving::Generation {
    serving::Generation::new(Generation {
        mode: format!("say {mode}"),
        count: 0,
        step: RefCell::new(0),
        decoding: None,
    })
}

impl GuestGeneration for Generation {
    fn next(&self, max: u32) -> Result<Option<Vec<Event>>, Error> {
        if let Some(decoding) = &self.decoding {
            return decoding.next(max);
        }
        let step = {
            let mut step = self.step.borrow_mut();
            *step += 1;
            *step
        };
        if let Some(words) = self.mode.strip_prefix("say ") {
            return Ok(Some(vec![text(words), finish()]));
        }
        let tool = |index| {
            Event::ToolStart(ToolStart { index, id: format!("call-{index}"), name: "tool".into() })
        };
        let events = match self.mode.as_str() {
            "loop-next" => {
                black_box(spin());
                Vec::new()
            }
            "trap-next" if step > 1 => trap(),
            "error-next" if step > 1 => return Err(failure("upstream-error", "broke off")),
            "sleep-next" if step > 1 => {
                std::thread::sleep(std::time::Duration::from_secs(86_400));
                Vec::new()
            }
            "result-bytes" => vec![text("x".repeat(16 << 20))],
            "stream" => (0..max).map(|_| text("again ")).collect(),
            "empty" => Vec::new(),
            "too-many" => (0..=max).map(|_| text("one")).collect(),
            "no-finish" => return Ok(None),
            "after-finish" => vec![finish(), text("one more thing")],
            "two-finish" => vec![finish(), finish()],
            "after-finish-later" => vec![text("done"), finish()],
            "text-after-usage" => vec![usage(), text("late"), finish()],
            "two-usage" => vec![usage(), usage(), finish()],
            "tool-unknown" => vec![Event::ToolArguments((0, "{}".into())), finish()],
            "tool-twice" => vec![tool(0), Event::ToolEnd(0), tool(0), Event::ToolEnd(0), finish()],
            "tool-open" => vec![tool(0), finish()],
            "nan" => vec![
                Event::Tokens(vec![TokenInfo {
                    id: 1,
                    bytes: Vec::new(),
                    logprob: f32::NAN,
                    alternatives: Vec::new(),
                }]),
                finish(),
            ],
            "tools" => vec![
                tool(0),
                Event::ToolArguments((0, "{}".into())),
                tool(1),
                Event::ToolEnd(1),
                Event::ToolEnd(0),
                usage(),
                finish(),
            ],
            _ if step <= self.count => vec![text(format!("{step} "))],
            _ if step == self.count + 1 => vec![usage(), finish()],
            _ => return Ok(None),
        };
        Ok(Some(events))
    }
}

export!(Hostile);
