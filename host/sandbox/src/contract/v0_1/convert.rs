//! The words of contract 0.1 and those of `gristmill_core`, mapped one to the other, both ways.
//!
//! Shapes are equal by design, so the maps are lists of names: a field that one side lacks does not
//! compile. Only errors that come from a guest are treated specially ([`guest_error`]).

use gristmill_core::{
    Code, Error, capability, event,
    program::{self, Attribute, Value},
    request,
};
use gristmill_engine::runtime;

use super::wit;
use crate::{
    fault::Fault,
    probe::{Check, Outcome, Plan},
};

/// A value of one side as the same value of the other.
pub(super) trait To<T> {
    /// Moves, converting piece by piece.
    fn to(self) -> T;
}

macro_rules! same {
    ($($type:ty),*) => {$(
        impl To<$type> for $type {
            fn to(self) -> $type {
                self
            }
        }
    )*};
}
same!(bool, u8, u32, u64, i32, i64, f32, f64, String);

impl<A: To<B>, B> To<Vec<B>> for Vec<A> {
    fn to(self) -> Vec<B> {
        self.into_iter().map(To::to).collect()
    }
}

impl<A: To<B>, B> To<Option<B>> for Option<A> {
    fn to(self) -> Option<B> {
        self.map(To::to)
    }
}

impl<A: To<B>, B, C: To<D>, D> To<(B, D)> for (A, C) {
    fn to(self) -> (B, D) {
        (self.0.to(), self.1.to())
    }
}

/// A record, field by field.
macro_rules! record {
    ($wit:ty, $core:ty { $($field:ident),* $(,)? }) => {
        impl To<$core> for $wit {
            fn to(self) -> $core {
                let Self { $($field),* } = self;
                type Core = $core;
                Core { $($field: $field.to()),* }
            }
        }
        impl To<$wit> for $core {
            fn to(self) -> $wit {
                let Self { $($field),* } = self;
                type Wit = $wit;
                Wit { $($field: $field.to()),* }
            }
        }
    };
}

/// A variant, case by case: without a payload, with one, and with two (a tuple in WIT).
macro_rules! variant {
    ($wit:ty, $core:ty { $($unit:ident),* ; $($one:ident),* ; $($two:ident),* }) => {
        impl To<$core> for $wit {
            fn to(self) -> $core {
                type Core = $core;
                match self {
                    $(Self::$unit => Core::$unit,)*
                    $(Self::$one(value) => Core::$one(value.to()),)*
                    $(Self::$two((first, second)) => Core::$two(first.to(), second.to()),)*
                }
            }
        }
        impl To<$wit> for $core {
            fn to(self) -> $wit {
                type Wit = $wit;
                match self {
                    $(Self::$unit => Wit::$unit,)*
                    $(Self::$one(value) => Wit::$one(value.to()),)*
                    $(Self::$two(first, second) => Wit::$two((first.to(), second.to())),)*
                }
            }
        }
    };
}

// types: request
variant!(wit::Role, request::Role { System, User, Assistant, Tool; Other; });
record!(wit::Media, request::Media { mime, data });
variant!(wit::Part, request::Part { ; Text, Image, Audio; Other });
record!(wit::ToolCall, request::ToolCall { id, name, arguments });
record!(
    wit::Message,
    request::Message { role, content, reasoning, tool_calls, tool_call_id, name, extras }
);
record!(wit::Tool, request::Tool { name, description, parameters, strict, extras });
variant!(wit::ToolChoice, request::ToolChoice { Auto, None, Required; Named; });
variant!(wit::Constraint, request::Constraint { JsonObject; JsonSchema, Regex, Grammar; Other });
variant!(wit::Reasoning, request::Reasoning { Unset, Off, On; Effort; });
record!(
    wit::Sampling,
    request::Sampling {
        temperature,
        top_p,
        top_k,
        min_p,
        typical_p,
        repeat_penalty,
        repeat_last_n,
        presence_penalty,
        frequency_penalty,
        seed,
        logit_bias,
        extras,
    }
);
variant!(wit::Prompt, request::Prompt { ; Chat, Text, Tokens; Infill });
record!(
    wit::Request,
    request::Request {
        id,
        model,
        prompt,
        tools,
        tool_choice,
        parallel_tool_calls,
        constraint,
        reasoning,
        sampling,
        max_tokens,
        stop,
        logprobs,
        context,
        extras,
    }
);
record!(wit::EmbedRequest, request::EmbedRequest { model, inputs, dimensions, truncate, extras });
record!(wit::Embeddings, request::Embeddings { dim, rows, data, prompt_tokens });
record!(wit::RerankRequest, request::RerankRequest { model, query, documents, top_n, extras });
record!(wit::Ranked, request::Ranked { index, score });

// types: event
record!(wit::ToolStart, event::ToolStart { index, id, name });
record!(wit::TokenInfo, event::TokenInfo { id, bytes, logprob, alternatives });
record!(wit::Usage, event::Usage { prompt, cached, completion, reasoning, extras });
record!(wit::Timings, event::Timings { queue, load, prefill, decode, extras });
record!(wit::Finish, event::Finish { reason, stop });
variant!(wit::Event, event::Event {
    ; Reasoning, Text, ToolStart, ToolEnd, Tokens, Usage, Timings, Finish; ToolArguments, Other
});

impl To<event::Alternative> for (u32, Vec<u8>, f32) {
    fn to(self) -> event::Alternative {
        let (id, bytes, logprob) = self;
        event::Alternative { id, bytes, logprob }
    }
}

impl To<(u32, Vec<u8>, f32)> for event::Alternative {
    fn to(self) -> (u32, Vec<u8>, f32) {
        (self.id, self.bytes, self.logprob)
    }
}

// capability
record!(wit::Reason, capability::Reason { code, detail });
variant!(wit::Support, capability::Support { Supported, Unknown; Unsupported, Conditional; });
record!(wit::Claim, capability::Claim { name, support, value });
record!(wit::Descriptor, capability::Descriptor { id, kind, version, execution, claims, extras });
record!(
    wit::ModelInfo,
    capability::ModelInfo {
        id,
        names,
        digest,
        family,
        quantization,
        parameters,
        size_bytes,
        context_native,
        claims,
        extras,
    }
);
record!(wit::Readiness, capability::Readiness { ready, detail, extras });

// family
variant!(wit::family::Value, Value { ; Int, Float, Flag, Text, Ints, Floats, Texts, Long; });
record!(wit::family::TensorInfo, program::TensorInfo { name, shape, element });
record!(wit::family::Metadata, program::Metadata { architecture, keys, tensors });
variant!(wit::family::Attribute, Attribute {
    ; Int, Float, Flag, Text, Tensor, Ints, Floats, Texts;
});
record!(wit::family::Step, program::Step { op, layer, inputs, outputs, attributes });
record!(wit::family::State, program::State { kind, layer, attributes });
record!(
    wit::family::Program,
    program::Program {
        vocabulary,
        width,
        layers,
        context_native,
        states,
        steps,
        result_value,
        extras,
    }
);
record!(wit::family::Span, program::Span { open, close, open_at_start });
record!(
    wit::family::ToolFormat,
    program::ToolFormat { open, close, shape, name_key, arguments_key, extras }
);
record!(
    wit::family::Dialect,
    program::Dialect { template, system_role, stops, reasoning, tools, defaults, extras }
);

// engine
impl To<runtime::Segment> for wit::engine::Segment {
    fn to(self) -> runtime::Segment {
        // `extras` has nothing yet that the engine reads.
        let Self { kind, tokens, stable, cache_class, extras: _ } = self;
        runtime::Segment { kind, tokens, stable, cache_class }
    }
}
record!(
    wit::engine::PrefixStatus,
    runtime::PrefixStatus { reused, prefilled, dropped, resident, available, manifest_digest }
);

// probing
record!(wit::probing::Plan, Plan { model, checks, budget_ms, extras });
variant!(wit::probing::Outcome, Outcome { Passed; Failed, NotApplicable; });
record!(wit::probing::Check, Check { id, capability, outcome, evidence });

// errors
impl To<wit::Error> for Error {
    fn to(self) -> wit::Error {
        let Self { code, message, retry_after_ms, details } = self;
        wit::Error { code: code.into(), message, retry_after_ms, details }
    }
}

/// Bytes of an error's code, message and detail, and how many details, that a guest may say.
const CODE: usize = 64;
const MESSAGE: usize = 1 << 10;
const DETAIL: usize = 256;
const DETAILS: usize = 32;

/// An error that a guest returned, cut to what an error may be. `Err`: it said what only the host
/// may say.
pub(super) fn guest_error(error: wit::Error) -> Result<Error, Fault> {
    let wit::Error { mut code, mut message, retry_after_ms, mut details } = error;
    cut(&mut code, CODE);
    cut(&mut message, MESSAGE);
    details.truncate(DETAILS);
    for (name, value) in &mut details {
        cut(name, CODE);
        cut(value, DETAIL);
    }
    let code = Code::from(code);
    if code == Code::PluginFault {
        return Err(Fault::Contract("it returned plugin-fault, which is the host's word"));
    }
    Ok(Error { code, message, retry_after_ms, details })
}

/// Cuts a text to at most so many bytes, between characters.
fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> gristmill_core::Extras {
        vec![("a".into(), "b".into())]
    }

    /// There and back again: equal.
    fn trip<A: To<B> + Clone + PartialEq + std::fmt::Debug, B: To<A>>(value: &A) {
        assert_eq!(&value.clone().to().to(), value);
    }

    #[test]
    fn requests_come_back_unchanged() {
        let mut request = request::Request::new(
            "id",
            "model",
            request::Prompt::Chat(vec![request::Message {
                role: request::Role::Other("critic".into()),
                content: vec![
                    request::Part::Text("é".into()),
                    request::Part::Image(request::Media {
                        mime: "image/png".into(),
                        data: vec![1],
                    }),
                    request::Part::Other("kind".into(), "content".into()),
                ],
                reasoning: Some("hm".into()),
                tool_calls: vec![request::ToolCall {
                    id: "1".into(),
                    name: "f".into(),
                    arguments: "{".into(),
                }],
                tool_call_id: Some("1".into()),
                name: Some("n".into()),
                extras: words(),
            }]),
        );
        trip::<_, wit::Request>(&request);
        request.tools.push(request::Tool {
            name: "f".into(),
            description: None,
            parameters: "{}".into(),
            strict: Some(true),
            extras: words(),
        });
        request.tool_choice = request::ToolChoice::Named("f".into());
        request.constraint = Some(request::Constraint::Other("k".into(), "s".into()));
        request.reasoning = request::Reasoning::Effort("low".into());
        request.sampling = request::Sampling {
            temperature: Some(0.5),
            repeat_last_n: Some(-1),
            seed: Some(u64::MAX),
            logit_bias: vec![(1, -1.0)],
            ..Default::default()
        };
        request.stop = vec!["x".into()];
        for prompt in [
            request::Prompt::Text("t".into()),
            request::Prompt::Tokens(vec![1, 2]),
            request::Prompt::Infill("a".into(), "b".into()),
        ] {
            request.prompt = prompt;
            trip::<_, wit::Request>(&request);
        }
    }

    #[test]
    fn events_come_back_unchanged() {
        let events = vec![
            event::Event::Reasoning("r".into()),
            event::Event::Text("t".into()),
            event::Event::ToolStart(event::ToolStart {
                index: 1,
                id: "i".into(),
                name: "n".into(),
            }),
            event::Event::ToolArguments(1, "{}".into()),
            event::Event::ToolEnd(1),
            event::Event::Tokens(vec![event::TokenInfo {
                id: 3,
                bytes: vec![0xff],
                logprob: -0.5,
                alternatives: vec![event::Alternative { id: 4, bytes: vec![1], logprob: -1.0 }],
            }]),
            event::Event::Usage(event::Usage { prompt: 1, extras: words(), ..Default::default() }),
            event::Event::Timings(event::Timings { decode: 9, ..Default::default() }),
            event::Event::Finish(event::Finish { reason: "stop".into(), stop: Some("x".into()) }),
            event::Event::Other("a".into(), "b".into()),
        ];
        trip::<_, Vec<wit::Event>>(&events);
    }

    #[test]
    fn a_guests_error_is_cut_between_characters_and_never_a_fault() {
        let error = guest_error(wit::Error {
            code: "é".repeat(100),
            message: "é".repeat(10_000),
            retry_after_ms: Some(1),
            details: vec![("é".repeat(100), "é".repeat(1000)); 100],
        })
        .unwrap();
        assert_eq!(error.code.as_str().len(), CODE);
        assert_eq!(error.message.len(), MESSAGE);
        assert_eq!(error.details.len(), DETAILS);
        assert!(error.details.iter().all(|(n, v)| n.len() == CODE && v.len() == DETAIL));
        let forged = wit::Error {
            code: "plugin-fault".into(),
            message: String::new(),
            retry_after_ms: None,
            details: Vec::new(),
        };
        assert_eq!(guest_error(forged).unwrap_err().word(), "contract-violation");
    }
}
