//! What MLX-LM's server is asked: little, and what it cannot express is refused by name.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_mlx::Mlx;
use gristmill_bridge::openai::{Speaks, embed, generate, tokenize};
use gristmill_plugin::{Media, prelude::*};
use testing::Fake;

#[test]
fn each_field_is_sent_in_its_words_or_refused_by_its_name() {
    testing::asks(
        |fake, request| generate(&Mlx::PROFILE, fake, request).err(),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        &[
            ("top-k", |r| r.sampling.top_k = Some(5), Ok(r#""top_k":5"#)),
            (
                "repeat",
                |r| r.sampling.repeat_penalty = Some(1.1),
                Ok(r#""repetition_penalty":1.1"#),
            ),
            ("typical", |r| r.sampling.typical_p = Some(0.5), Err("typical-p")),
            ("tokens", |r| r.prompt = Prompt::Tokens(vec![1]), Err("prompt")),
            ("infill", |r| r.prompt = Prompt::Infill(("a".into(), "b".into())), Err("suffix")),
            ("object", |r| r.constraint = Some(Constraint::JsonObject), Err("response_format")),
            ("logprobs", |r| r.logprobs = Some(0), Err("logprobs")),
            (
                "on",
                |r| r.reasoning = Reasoning::On,
                Ok(r#""chat_template_kwargs":{"enable_thinking":true}"#),
            ),
            ("high", |r| r.reasoning = Reasoning::Effort("high".into()), Err("reasoning")),
            ("512", |r| r.reasoning = Reasoning::Effort("512".into()), Err("reasoning")),
            (
                "raw reasoning",
                |r| {
                    r.prompt = Prompt::Text("x".into());
                    r.reasoning = Reasoning::On;
                },
                Err("reasoning"),
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
                Ok(r#""content":"hi"}],"stream""#),
            ),
            (
                "image",
                |r| {
                    r.prompt = {
                        let mut message = Message::text(Role::User, "hi");
                        let media = Media { mime: "image/png".into(), data: b"png".to_vec() };
                        message.content.push(Part::Image(media));
                        Prompt::Chat(vec![message])
                    }
                },
                Err("messages[0].content[1]"),
            ),
        ],
    );
}

#[test]
fn what_it_has_no_route_for_is_never_sent() {
    let fake = Fake::new([]);
    let request = EmbedRequest {
        model: "m".into(),
        inputs: vec!["a".into()],
        dimensions: None,
        truncate: false,
        extras: vec![],
    };
    assert_eq!(embed(&Mlx::PROFILE, &fake, &request).unwrap_err().code, "unsupported");
    assert_eq!(tokenize(&Mlx::PROFILE, &fake, "m", "a", true).unwrap_err().code, "unsupported");
    assert!(fake.sent.borrow().is_empty());
}
