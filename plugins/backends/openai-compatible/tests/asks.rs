//! What a server of the published format is asked, and nothing of anybody's extensions.
#[path = "../../testing.rs"]
mod testing;

use gristmill_backend_openai_compatible::OpenAiCompatible;
use gristmill_bridge::openai::{Speaks, generate};
use gristmill_plugin::{Media, prelude::*};

fn with(part: Part) -> Prompt {
    let mut message = Message::text(Role::User, "hi");
    message.content.push(part);
    Prompt::Chat(vec![message])
}

fn media(mime: &str) -> Media {
    Media { mime: mime.into(), data: b"png".to_vec() }
}

#[test]
fn each_field_is_sent_in_its_words_or_refused_by_its_name() {
    testing::asks(
        |fake, request| generate(&OpenAiCompatible::PROFILE, fake, request).err(),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#,
        &[
            ("temperature", |r| r.sampling.temperature = Some(0.0), Ok(r#""temperature":0.0"#)),
            ("top-k", |r| r.sampling.top_k = Some(5), Err("top-k")),
            ("min-p", |r| r.sampling.min_p = Some(0.1), Err("min-p")),
            ("repeat", |r| r.sampling.repeat_penalty = Some(1.1), Err("repeat-penalty")),
            (
                "infill",
                |r| r.prompt = Prompt::Infill(("a".into(), "b".into())),
                Ok(r#""prompt":"a","suffix":"b""#),
            ),
            ("off", |r| r.reasoning = Reasoning::Off, Ok(r#""reasoning_effort":"none""#)),
            ("on", |r| r.reasoning = Reasoning::On, Err("reasoning")),
            (
                "low",
                |r| r.reasoning = Reasoning::Effort("low".into()),
                Ok(r#""reasoning_effort":"low""#),
            ),
            ("512", |r| r.reasoning = Reasoning::Effort("512".into()), Err("reasoning")),
            ("regex", |r| r.constraint = Some(Constraint::Regex("a".into())), Err("regex")),
            (
                "image",
                |r| r.prompt = with(Part::Image(media("image/png"))),
                Ok(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}"#),
            ),
            (
                "audio",
                |r| r.prompt = with(Part::Audio(media("audio/wav"))),
                Ok(r#""input_audio":{"data":"cG5n","format":"wav"}"#),
            ),
            (
                "other audio",
                |r| r.prompt = with(Part::Audio(media("audio/ogg"))),
                Err("messages[0].content[1]"),
            ),
            (
                "other part",
                |r| r.prompt = with(Part::Other(("video".into(), "x".into()))),
                Err("messages[0].content[1]"),
            ),
            (
                "speaker",
                |r| {
                    r.prompt = {
                        let mut message = Message::text(Role::User, "hi");
                        message.name = Some("Ann".into());
                        Prompt::Chat(vec![message])
                    }
                },
                Ok(r#"{"role":"user","content":"hi","name":"Ann"}"#),
            ),
            (
                "extras",
                |r| r.extras = vec![("priority".into(), "1".into())],
                Ok(r#""content":"hi"}],"stream""#),
            ),
        ],
    );
}
