//! What Ollama is asked: what the caller set, byte for byte, and nothing that it did not set but the
//! two switches that keep an answer whole.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_ollama::{embed, generate, health, models};
use gristmill_plugin::prelude::*;
use testing::{Fake, Recorded};

fn error(fake: &Fake, request: &Request) -> Option<Error> {
    generate(fake, request).err()
}

#[test]
fn each_field_is_sent_in_its_words_or_refused_by_its_name() {
    testing::asks(
        error,
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"truncate":false,"shift":false,"stream":true}"#,
        &[
            ("top-k", |r| r.sampling.top_k = Some(0), Ok(r#""options":{"top_k":0}"#)),
            ("min-p", |r| r.sampling.min_p = Some(0.1), Ok(r#""options":{"min_p":0.1}"#)),
            ("typical", |r| r.sampling.typical_p = Some(0.5), Ok(r#"{"typical_p":0.5}"#)),
            ("repeat", |r| r.sampling.repeat_penalty = Some(1.1), Ok(r#""repeat_penalty":1.1"#)),
            ("last", |r| r.sampling.repeat_last_n = Some(-1), Ok(r#""repeat_last_n":-1"#)),
            ("seed", |r| r.sampling.seed = Some(u64::MAX), Err("seed")),
            ("bias", |r| r.sampling.logit_bias = vec![(1, 2.0)], Err("logit-bias")),
            ("tokens", |r| r.prompt = Prompt::Tokens(vec![1]), Err("prompt")),
            (
                "raw",
                |r| r.prompt = Prompt::Text("x".into()),
                Ok(
                    r#"{"model":"m","prompt":"x","raw":true,"truncate":false,"shift":false,"stream":true}"#,
                ),
            ),
            (
                "infill",
                |r| r.prompt = Prompt::Infill(("a".into(), "b".into())),
                Ok(r#""prompt":"a","suffix":"b""#),
            ),
            ("context", |r| r.context = Some(8192), Err("context")),
            (
                "verified context",
                |r| {
                    r.context = Some(8192);
                    r.extras.push(("context".into(), "verified".into()));
                },
                Ok(r#""options":{"num_ctx":8192}"#),
            ),
            ("off", |r| r.reasoning = Reasoning::Off, Ok(r#""think":false"#)),
            ("on", |r| r.reasoning = Reasoning::On, Ok(r#""think":true"#)),
            ("high", |r| r.reasoning = Reasoning::Effort("high".into()), Ok(r#""think":"high""#)),
            ("512", |r| r.reasoning = Reasoning::Effort("512".into()), Err("reasoning")),
            ("object", |r| r.constraint = Some(Constraint::JsonObject), Ok(r#""format":"json""#)),
            (
                "schema",
                |r| r.constraint = Some(Constraint::JsonSchema(r#"{"z":1, "a":2}"#.into())),
                Ok(r#""format":{"z":1, "a":2}"#),
            ),
            ("regex", |r| r.constraint = Some(Constraint::Regex("a+".into())), Err("regex")),
            (
                "grammar",
                |r| r.constraint = Some(Constraint::Grammar("root ::= a".into())),
                Err("grammar"),
            ),
            (
                "choice",
                |r| {
                    r.tools = testing::full().tools;
                    r.tool_choice = ToolChoice::Required;
                },
                Err("tool_choice"),
            ),
            (
                "no choice",
                |r| {
                    r.tools = testing::full().tools;
                    r.tool_choice = ToolChoice::None;
                },
                Ok(r#""content":"hi"}],"truncate""#),
            ),
            ("logprobs", |r| r.logprobs = Some(0), Ok(r#""logprobs":true,"truncate""#)),
            ("alternatives", |r| r.logprobs = Some(3), Ok(r#""logprobs":true,"top_logprobs":3"#)),
            (
                "name",
                |r| {
                    r.prompt = {
                        let mut message = Message::text(Role::User, "hi");
                        message.name = Some("Ann".into());
                        Prompt::Chat(vec![message])
                    }
                },
                Err("messages[0].name"),
            ),
            (
                "image",
                |r| {
                    r.prompt = {
                        let mut message = Message::text(Role::User, "hi");
                        message.content.push(Part::Image(gristmill_plugin::Media {
                            mime: "image/png".into(),
                            data: b"png".to_vec(),
                        }));
                        Prompt::Chat(vec![message])
                    }
                },
                Ok(r#""content":"hi","images":["cG5n"]"#),
            ),
            (
                "audio",
                |r| {
                    r.prompt = {
                        let mut message = Message::text(Role::User, "hi");
                        message.content.push(Part::Audio(gristmill_plugin::Media {
                            mime: "audio/wav".into(),
                            data: b"wav".to_vec(),
                        }));
                        Prompt::Chat(vec![message])
                    }
                },
                Err("messages[0].content[1]"),
            ),
        ],
    );
}

#[test]
fn a_whole_conversation_keeps_its_bytes() {
    let fake = Fake::new([]);
    assert!(generate(&fake, &testing::full()).is_err());
    assert_eq!(fake.sent.borrow()[0].path, "/api/chat");
    assert_eq!(
        fake.body(),
        r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"Größe \"x\"?"},{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"id":"call_a","function":{"index":0,"name":"weather","arguments":{"z": 1.50, "city": "Rom\u00e9"}}},{"id":"call_b","function":{"index":1,"name":"clock","arguments":{}}}]},{"role":"tool","content":"sunny","tool_name":"weather","tool_call_id":"call_a"},{"role":"tool","content":"noon","tool_name":"clock","tool_call_id":"call_b"}],"tools":[{"type":"function","function":{"name":"weather","description":"tells","parameters":{"$schema":"x","type":"object","properties":{"z":{},"a":{"const":1e3}}},"strict":true}}],"options":{"temperature":0.7,"top_p":0.95,"presence_penalty":0.5,"frequency_penalty":0.25,"seed":42,"num_predict":9,"stop":["END"]},"truncate":false,"shift":false,"stream":true}"#
    );
}

#[test]
fn arguments_that_are_no_object_are_refused_by_their_place() {
    let mut request = testing::full();
    let Prompt::Chat(messages) = &mut request.prompt else { panic!("a conversation") };
    for (arguments, code) in [("{\"a", "invalid-request"), ("[1]", "invalid-request")] {
        messages[2].tool_calls[1].arguments = arguments.into();
        let fake = Fake::new([]);
        let error =
            generate(&fake, &Request { prompt: Prompt::Chat(messages.clone()), ..testing::full() });
        let error = error.err().unwrap();
        assert_eq!(error.code, code);
        assert!(
            error.message.starts_with("messages[2].tool_calls[1].function.arguments"),
            "{error:?}"
        );
        assert!(fake.sent.borrow().is_empty());
    }
}

#[test]
fn only_the_first_call_counts_when_one_at_a_time_is_wanted() {
    let line = r#"{"message":{"content":"","tool_calls":[{"function":{"name":"a","arguments":{}}},{"function":{"name":"b","arguments":{}}}]},"done":true,"done_reason":"stop"}"#;
    let mut request = testing::request("tools");
    request.parallel_tool_calls = Some(false);
    let fake = Fake::new([Recorded { status: 200, headers: vec![], body: line.into() }]);
    let (events, error) = testing::play(generate(&fake, &request), 64);
    assert_eq!(error, None);
    let starts = events.iter().filter(|event| matches!(event, Event::ToolStart(_))).count();
    assert_eq!(starts, 1, "{events:?}");
}

#[test]
fn models_say_what_show_says() {
    let tags = r#"{"models":[{"name":"m:latest","model":"m:latest","size":7,"digest":"abc","details":{"family":"llama","quantization_level":"Q4_K_M"}},{"name":"e:1b","details":null}]}"#;
    let show = r#"{"capabilities":["completion","tools","thinking"],"model_info":{"general.architecture":"llama","llama.context_length":8192,"general.parameter_count":135000000}}"#;
    let fake = Fake::new([
        Recorded::json(200, tags),
        Recorded::json(200, show),
        Recorded::json(404, r#"{"error":"model 'e:1b' not found"}"#),
    ]);
    let found = models(&fake).unwrap();
    assert_eq!(found.len(), 2);
    let first = &found[0];
    assert_eq!((first.id.as_str(), first.names.as_slice()), ("m:latest", &["m".to_owned()][..]));
    assert_eq!(first.context_native, Some(8192));
    assert_eq!(first.parameters, Some(135_000_000));
    assert_eq!(first.quantization.as_deref(), Some("Q4_K_M"));
    let claim = |name: &str| first.claims.iter().find(|claim| claim.name == name).unwrap();
    assert_eq!(*claim("tools.calling"), Claim::supported("tools.calling"));
    assert!(matches!(claim("embeddings").support, gristmill_plugin::Support::Unsupported(_)));
    assert!(found[1].claims.is_empty(), "nothing is claimed for what could not be asked");
}

#[test]
fn vectors_are_as_many_as_texts() {
    let mut request = EmbedRequest {
        model: "m".into(),
        inputs: vec!["a".into(), "b".into()],
        dimensions: None,
        truncate: false,
        extras: vec![],
    };
    let fake = Fake::new([
        Recorded::json(200, r#"{"embeddings":[[1,0],[0,1]],"prompt_eval_count":4}"#),
        Recorded::json(200, r#"{"embeddings":[[1,0]]}"#),
        Recorded::json(400, r#"{"error":"the input length exceeds the context length"}"#),
    ]);
    let vectors = embed(&fake, &request).unwrap();
    assert_eq!((vectors.dim, vectors.rows, vectors.data), (2, 2, vec![1.0, 0.0, 0.0, 1.0]));
    assert_eq!(fake.body(), r#"{"model":"m","input":["a","b"],"truncate":false}"#);
    assert_eq!(embed(&fake, &request).unwrap_err().code, "upstream-error");
    request.truncate = true;
    assert_eq!(embed(&fake, &request).unwrap_err().code, "context-overflow");
}

#[test]
fn health_tells_the_version_and_a_server_that_is_not_there() {
    let fake = Fake::new([
        Recorded::json(200, r#"{"version":"0.33.1"}"#),
        Recorded::json(503, r#"{"error":"server busy"}"#),
    ]);
    let ready = health(&fake).unwrap();
    assert!(ready.ready);
    assert_eq!(ready.extras, [("server-version".to_owned(), "0.33.1".to_owned())]);
    assert!(!health(&fake).unwrap().ready);
    assert_eq!(health(&fake).unwrap_err().code, "upstream-unavailable");
}
