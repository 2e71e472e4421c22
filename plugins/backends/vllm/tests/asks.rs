//! What vLLM is asked: what the caller set, byte for byte, and nothing that it did not set.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_vllm::Vllm;
use gristmill_bridge::openai::{Speaks, detokenize, embed, generate, rerank, tokenize};
use gristmill_plugin::prelude::*;
use testing::{Fake, Recorded};

#[test]
fn each_field_is_sent_in_its_words_or_refused_by_its_name() {
    testing::asks(
        |fake, request| generate(&Vllm::PROFILE, fake, request).err(),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        &[
            ("top-k", |r| r.sampling.top_k = Some(0), Ok(r#""top_k":0"#)),
            ("min-p", |r| r.sampling.min_p = Some(0.1), Ok(r#""min_p":0.1"#)),
            ("typical", |r| r.sampling.typical_p = Some(0.5), Err("typical-p")),
            (
                "repeat",
                |r| r.sampling.repeat_penalty = Some(1.1),
                Ok(r#""repetition_penalty":1.1"#),
            ),
            ("last", |r| r.sampling.repeat_last_n = Some(64), Err("repeat-last-n")),
            ("bias", |r| r.sampling.logit_bias = vec![(7, -1.5)], Ok(r#""logit_bias":{"7":-1.5}"#)),
            (
                "tokens",
                |r| r.prompt = Prompt::Tokens(vec![1, 2]),
                Ok(
                    r#"{"model":"m","prompt":[1,2],"stream":true,"stream_options":{"include_usage":true}}"#,
                ),
            ),
            ("infill", |r| r.prompt = Prompt::Infill(("a".into(), "b".into())), Err("suffix")),
            ("context", |r| r.context = Some(8192), Err("context")),
            (
                "off",
                |r| r.reasoning = Reasoning::Off,
                Ok(r#""chat_template_kwargs":{"enable_thinking":false}"#),
            ),
            (
                "high",
                |r| r.reasoning = Reasoning::Effort("high".into()),
                Ok(r#""reasoning_effort":"high""#),
            ),
            (
                "512",
                |r| r.reasoning = Reasoning::Effort("512".into()),
                Ok(r#""thinking_token_budget":512"#),
            ),
            (
                "object",
                |r| r.constraint = Some(Constraint::JsonObject),
                Ok(r#""response_format":{"type":"json_object"}"#),
            ),
            (
                "schema",
                |r| r.constraint = Some(Constraint::JsonSchema(r#"{"z":1, "a":2}"#.into())),
                Ok(r#""schema":{"z":1, "a":2}"#),
            ),
            (
                "regex",
                |r| r.constraint = Some(Constraint::Regex("\"a\\d".into())),
                Ok(r#""structured_outputs":{"regex":"\"a\\d"}"#),
            ),
            (
                "grammar",
                |r| r.constraint = Some(Constraint::Grammar("root ::= x".into())),
                Ok(r#""structured_outputs":{"grammar":"root ::= x"}"#),
            ),
            (
                "other",
                |r| r.constraint = Some(Constraint::Other(("lark".into(), "x".into()))),
                Err("lark"),
            ),
            (
                "named",
                |r| {
                    r.tools = testing::full().tools;
                    r.tool_choice = ToolChoice::Named("weather".into());
                },
                Ok(r#""tool_choice":{"type":"function","function":{"name":"weather"}}"#),
            ),
            (
                "one at a time",
                |r| {
                    r.tools = testing::full().tools;
                    r.parallel_tool_calls = Some(false);
                },
                Ok(r#""parallel_tool_calls":false"#),
            ),
            (
                "choice without tools",
                |r| r.tool_choice = ToolChoice::Required,
                Ok(r#""content":"hi"}],"stream""#),
            ),
            (
                "four of five stops",
                |r| r.stop = ["a", "b", "c", "d", "e"].map(Into::into).into(),
                Ok(r#""stop":["a","b","c","d"],"#),
            ),
            ("logprobs", |r| r.logprobs = Some(3), Ok(r#""logprobs":true,"top_logprobs":3"#)),
            (
                "priority",
                |r| {
                    r.extras =
                        vec![("priority".into(), "-2".into()), ("unheard-of".into(), "x".into())]
                },
                Ok(r#"}],"priority":-2,"stream""#),
            ),
            (
                "salt",
                |r| r.extras = vec![("cache-salt".into(), "tenant a".into())],
                Ok(r#""cache_salt":"tenant a""#),
            ),
        ],
    );
}

#[test]
fn a_whole_conversation_keeps_its_bytes() {
    let fake = Fake::new([]);
    assert!(generate(&Vllm::PROFILE, &fake, &testing::full()).is_err());
    assert_eq!(
        fake.body(),
        r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"Größe \"x\"?"},{"role":"assistant","content":null,"reasoning":"hm","tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"z\": 1.50, \"city\": \"Rom\\u00e9\"}"}},{"id":"call_b","type":"function","function":{"name":"clock","arguments":""}}]},{"role":"tool","content":"sunny","tool_call_id":"call_a","name":"weather"},{"role":"tool","content":"noon","tool_call_id":"call_b","name":"clock"}],"tools":[{"type":"function","function":{"name":"weather","description":"tells","parameters":{"$schema":"x","type":"object","properties":{"z":{},"a":{"const":1e3}}},"strict":true}}],"temperature":0.7,"top_p":0.95,"presence_penalty":0.5,"frequency_penalty":0.25,"seed":42,"max_tokens":9,"stop":["END"],"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[test]
fn a_fifth_stop_string_is_found_here() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"alpha be\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"ta gamma\"}}]}\n\n";
    let fake = Fake::new([Recorded { status: 200, headers: vec![], body: body.into() }]);
    let mut request = testing::request("chat");
    request.stop = ["1", "2", "3", "4", "beta"].map(Into::into).into();
    let (events, error) = testing::play(generate(&Vllm::PROFILE, &fake, &request), 64);
    assert_eq!(error, None);
    let finish = Finish { reason: "stop".into(), stop: Some("beta".into()) };
    assert_eq!(events, [Event::Text("alpha ".into()), Event::Finish(finish)]);
}

#[test]
fn vectors_keep_the_order_of_their_texts() {
    let mut request = EmbedRequest {
        model: "m".into(),
        inputs: vec!["a".into(), "b".into()],
        dimensions: Some(2),
        truncate: true,
        extras: vec![],
    };
    let answer = |a: u32, b: u32| {
        Recorded::json(
            200,
            &format!(
                r#"{{"data":[{{"index":{a},"embedding":[1,0]}},{{"index":{b},"embedding":[0,1]}}],"usage":{{"prompt_tokens":3}}}}"#
            ),
        )
    };
    let fake = Fake::new([
        answer(1, 0),
        answer(0, 0),
        answer(0, 2),
        Recorded::json(
            200,
            r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#,
        ),
        Recorded::json(200, r#"{"data":[{"index":0,"embedding":[1]}]}"#),
        Recorded::json(
            200,
            r#"{"data":[{"index":0,"embedding":[null]},{"index":1,"embedding":[1]}]}"#,
        ),
    ]);
    let found = embed(&Vllm::PROFILE, &fake, &request).unwrap();
    assert_eq!((found.dim, found.rows, found.prompt_tokens), (2, 2, 3));
    assert_eq!(found.data, [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(
        fake.body(),
        r#"{"model":"m","input":["a","b"],"dimensions":2,"truncate_prompt_tokens":-1}"#
    );
    request.truncate = false;
    for what in ["twice", "unknown", "lengths", "missing", "null"] {
        let error = embed(&Vllm::PROFILE, &fake, &request).unwrap_err();
        assert_eq!(error.code, "upstream-error", "{what}");
    }
}

#[test]
fn ranks_and_tokens() {
    let request = RerankRequest {
        model: "m".into(),
        query: "q".into(),
        documents: vec!["a".into(), "b".into()],
        top_n: Some(1),
        extras: vec![],
    };
    let fake = Fake::new([
        Recorded::json(
            200,
            r#"{"results":[{"index":0,"relevance_score":0.1,"document":{"text":"a"}},{"index":1,"relevance_score":0.9}]}"#,
        ),
        Recorded::json(200, r#"{"results":[{"index":2,"relevance_score":0.1}]}"#),
        Recorded::json(200, r#"{"count":2,"max_model_len":4096,"tokens":[1,2]}"#),
        Recorded::json(200, r#"{"prompt":"hé"}"#),
    ]);
    let p = &Vllm::PROFILE;
    assert_eq!(rerank(p, &fake, &request).unwrap(), [Ranked { index: 1, score: 0.9 }]);
    assert_eq!(rerank(p, &fake, &request).unwrap_err().code, "upstream-error");
    assert_eq!(tokenize(p, &fake, "m", "hé", false).unwrap(), [1, 2]);
    assert_eq!(fake.body(), r#"{"model":"m","prompt":"hé","add_special_tokens":false}"#);
    assert_eq!(detokenize(p, &fake, "m", &[1, 2]).unwrap(), "hé".as_bytes());
    // Its tokenizer turns every spelling of a special token into that token.
    let error = tokenize(p, &fake, "m", "<|im_end|>", false).unwrap_err();
    assert_eq!((error.code.as_str(), fake.sent.borrow().len()), ("unsupported", 4));
}
