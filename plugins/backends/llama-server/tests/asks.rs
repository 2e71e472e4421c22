//! What llama-server is asked, where it differs from others, and what `/props` tells.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_llama_server::LlamaServer;
use gristmill_bridge::openai::{Speaks, embed, generate, rerank, tokenize};
use gristmill_plugin::{Support, prelude::*};
use testing::{Fake, Recorded};

#[test]
fn each_field_is_sent_in_its_words_or_refused_by_its_name() {
    testing::asks(
        |fake, request| generate(&LlamaServer::PROFILE, fake, request).err(),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        &[
            ("typical", |r| r.sampling.typical_p = Some(0.5), Ok(r#""typical_p":0.5"#)),
            ("repeat", |r| r.sampling.repeat_penalty = Some(1.1), Ok(r#""repeat_penalty":1.1"#)),
            ("last", |r| r.sampling.repeat_last_n = Some(-1), Ok(r#""repeat_last_n":-1"#)),
            ("seed", |r| r.sampling.seed = Some(u64::from(u32::MAX)), Err("seed")),
            (
                "infill",
                |r| {
                    r.prompt = Prompt::Infill(("a".into(), "b".into()));
                    r.max_tokens = Some(3);
                },
                Ok(
                    r#"{"model":"m","input_prefix":"a","input_suffix":"b","n_predict":3,"stream":true}"#,
                ),
            ),
            ("context", |r| r.context = Some(8192), Err("context")),
            (
                "512",
                |r| r.reasoning = Reasoning::Effort("512".into()),
                Ok(r#""thinking_budget_tokens":512"#),
            ),
            (
                "schema",
                |r| r.constraint = Some(Constraint::JsonSchema(r#"{"z":1}"#.into())),
                Ok(
                    r#""response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":{"z":1}}}"#,
                ),
            ),
            (
                "raw schema",
                |r| {
                    r.prompt = Prompt::Text("x".into());
                    r.constraint = Some(Constraint::JsonSchema(r#"{"z":1}"#.into()));
                },
                Ok(r#""json_schema":{"z":1},"stream""#),
            ),
            ("regex", |r| r.constraint = Some(Constraint::Regex("a".into())), Err("regex")),
            (
                "grammar",
                |r| r.constraint = Some(Constraint::Grammar("root ::= x".into())),
                Ok(r#""grammar":"root ::= x""#),
            ),
            (
                "grammar and tools",
                |r| {
                    r.tools = testing::full().tools;
                    r.constraint = Some(Constraint::Grammar("root ::= x".into()));
                },
                Err("grammar"),
            ),
            (
                "named",
                |r| {
                    r.tools = testing::request("tools").tools;
                    r.tool_choice = ToolChoice::Named("clock".into());
                },
                Ok(
                    r#""tool_choice":"required","tools":[{"type":"function","function":{"name":"clock","parameters":{"type":"object"}}}]"#,
                ),
            ),
            (
                "logprobs with tools",
                |r| {
                    r.tools = testing::request("tools").tools;
                    r.logprobs = Some(1);
                },
                Ok(r#""logprobs":true,"top_logprobs":1}"#),
            ),
            (
                "stops",
                |r| r.stop = ["a", "b", "c", "d", "e"].map(Into::into).into(),
                Ok(r#""stop":["a","b","c","d","e"]"#),
            ),
        ],
    );
}

#[test]
fn a_model_says_what_props_says() {
    let list = r#"{"models":[],"object":"list","data":[{"id":"smollm2","meta":{"n_ctx_train":8192,"n_params":134515008,"size":96576768}}]}"#;
    let props = r#"{"default_generation_settings":{"n_ctx":1024},"model_ftype":"Q4_1","modalities":{"vision":false,"audio":true},"chat_template_caps":{"supports_tools":false,"supports_tool_calls":false}}"#;
    let fake = Fake::new([Recorded::json(200, list), Recorded::json(200, props)]);
    let models = LlamaServer::models(&fake).unwrap();
    let model = &models[0];
    assert_eq!((model.id.as_str(), model.context_native), ("smollm2", Some(8192)));
    assert_eq!(model.quantization.as_deref(), Some("Q4_1"));
    let claim = |name: &str| &model.claims.iter().find(|claim| claim.name == name).unwrap().support;
    assert_eq!(*claim("multimodal.audio"), Support::Supported);
    for name in ["multimodal.vision", "tools.calling"] {
        assert!(matches!(claim(name), Support::Unsupported(_)), "{name}");
    }
    assert!(model.claims.contains(&Claim::valued("context.effective_max", "1024")));
}

#[test]
fn scores_are_made_probabilities_and_vectors_are_cut_here() {
    let request = RerankRequest {
        model: "m".into(),
        query: "q".into(),
        documents: vec!["a".into(), "b".into()],
        top_n: None,
        extras: vec![],
    };
    let fake = Fake::new([
        Recorded::json(
            200,
            r#"{"results":[{"index":1,"relevance_score":0.0},{"index":0,"relevance_score":-8.5}]}"#,
        ),
        Recorded::json(200, r#"{"data":[{"index":0,"embedding":[3,4,12]}]}"#),
        Recorded::json(
            500,
            r#"{"error":{"code":500,"message":"input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)","type":"server_error"}}"#,
        ),
        Recorded::json(200, r#"{"tokens":[6004,216,2]}"#),
    ]);
    let ranked = rerank(&LlamaServer::PROFILE, &fake, &request).unwrap();
    assert_eq!((ranked[0].index, ranked[0].score), (1, 0.5));
    assert!(ranked[1].score > 0.0 && ranked[1].score < 0.001, "{ranked:?}");
    let embedding = EmbedRequest {
        model: "m".into(),
        inputs: vec!["a".into()],
        dimensions: Some(2),
        truncate: true,
        extras: vec![],
    };
    let vectors = embed(&LlamaServer::PROFILE, &fake, &embedding).unwrap();
    assert_eq!(vectors.data, [0.6, 0.8]);
    let error = embed(&LlamaServer::PROFILE, &fake, &embedding).unwrap_err();
    assert_eq!(error.code, "context-overflow");
    assert!(error.details.contains(&("limit".into(), "512".into())), "{error:?}");
    assert!(error.details.contains(&("additional".into(), "600".into())), "{error:?}");
    let tokens = tokenize(&LlamaServer::PROFILE, &fake, "m", "hi <|im_end|>", true).unwrap();
    assert_eq!(tokens, [6004, 216, 2]);
    assert!(fake.body().contains(r#""add_special":false,"parse_special":true"#));
}
