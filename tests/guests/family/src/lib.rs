//! A model family: `golden` is a small whole program; other architectures are ways to misbehave.

use std::time::{SystemTime, UNIX_EPOCH};

wit_bindgen::generate!({ world: "model-family", path: "../../../wit/v0.1", generate_all });

use exports::gristmill::contract::family::{
    Attribute, Dialect, Error, Guest, Metadata, Program, Span, State, Step, Value,
};
use gristmill::contract::types::Sampling;

struct Family;

fn number(model: &Metadata, key: &str) -> u32 {
    model
        .keys
        .iter()
        .find(|(name, _)| name == key)
        .and_then(|(_, value)| match value {
            Value::Int(number) => u32::try_from(*number).ok(),
            Value::Long(length) => u32::try_from(*length).ok(),
            _ => None,
        })
        .unwrap_or(0)
}

impl Guest for Family {
    fn matches(model: Metadata) -> Option<String> {
        match model.architecture.as_str() {
            "golden" | "big" | "refuse" => Some(model.architecture),
            "impure" => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
                // The keys of a HashMap's hasher come from wasi:random.
                let random = std::hash::BuildHasher::hash_one(
                    &std::collections::hash_map::RandomState::new(),
                    1u8,
                );
                Some(format!("impure-{time}-{random}"))
            }
            "trap" => core::arch::wasm32::unreachable(),
            "loop" => loop {
                std::hint::black_box(0);
            },
            "wait" => {
                std::thread::sleep(std::time::Duration::from_millis(1_500));
                None
            }
            "sleep" => {
                std::thread::sleep(std::time::Duration::from_secs(86_400));
                None
            }
            _ => None,
        }
    }

    fn architecture(model: Metadata) -> Result<Program, Error> {
        if model.architecture == "refuse" {
            return Err(Error {
                code: "unsupported".into(),
                message: "a variant this family does not know".into(),
                retry_after_ms: None,
                details: Vec::new(),
            });
        }
        let copies = if model.architecture == "big" { 100_000 } else { 1 };
        let step = Step {
            op: "embed".into(),
            layer: None,
            inputs: Vec::new(),
            outputs: vec![0],
            attributes: vec![
                ("weight".into(), Attribute::Tensor("token_embd.weight".into())),
                ("scale".into(), Attribute::Float(2.0)),
                ("flags".into(), Attribute::Flag(true)),
                ("ints".into(), Attribute::Ints(vec![1, 2])),
                ("floats".into(), Attribute::Floats(vec![0.5])),
                ("texts".into(), Attribute::Texts(vec!["a".into()])),
                ("word".into(), Attribute::Text("b".into())),
                ("int".into(), Attribute::Int(-1)),
            ],
        };
        Ok(Program {
            vocabulary: number(&model, "tokens"),
            width: number(&model, "width"),
            layers: 1,
            context_native: 128,
            states: vec![State {
                kind: "kv".into(),
                layer: 0,
                attributes: vec![("kv-heads".into(), Attribute::Int(1))],
            }],
            steps: vec![step; copies],
            result_value: 0,
            extras: vec![("tensors".into(), model.tensors.len().to_string())],
        })
    }

    fn speak(_model: Metadata) -> Result<Dialect, Error> {
        Ok(Dialect {
            template: Some("{{ messages }}".into()),
            system_role: true,
            stops: vec!["<end>".into()],
            reasoning: Some(Span {
                open: "<think>".into(),
                close: "</think>".into(),
                open_at_start: false,
            }),
            tools: None,
            defaults: Sampling {
                temperature: Some(0.5),
                top_p: None,
                top_k: None,
                min_p: None,
                typical_p: None,
                repeat_penalty: None,
                repeat_last_n: None,
                presence_penalty: None,
                frequency_penalty: None,
                seed: None,
                logit_bias: Vec::new(),
                extras: Vec::new(),
            },
            extras: Vec::new(),
        })
    }
}

export!(Family);
