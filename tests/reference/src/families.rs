//! The first-party families as the native crates they are too.
//!
//! Comparing numbers needs no sandbox: what a component answers is what its crate answers, and
//! `tests/components.rs` holds every one to that.

use std::path::{Path, PathBuf};

use gristmill_core::{
    Code, Error, Result,
    program::{
        Attribute, Dialect, Families, Metadata, Program, Resolved, Span, State, Step, TensorInfo,
        ToolFormat, Value,
    },
    request::Sampling,
};
use gristmill_plugin::family::{self as plugin, Family};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All families.
#[derive(Debug, Clone, Copy)]
pub struct Native;

type Answer = gristmill_plugin::Result<(plugin::Program, plugin::Dialect)>;
type Asked = Option<(&'static str, Answer)>;

fn ask<F: Family>(model: &plugin::Metadata) -> Asked {
    let answer = || Ok((F::architecture(model)?, F::speak(model)?));
    F::matches(model).map(|name| (name, answer()))
}

/// In the order of the product's settings.
const FAMILIES: [fn(&plugin::Metadata) -> Asked; 13] = [
    ask::<gristmill_family_llama::Llama>,
    ask::<gristmill_family_qwen::Qwen>,
    ask::<gristmill_family_gemma::Gemma>,
    ask::<gristmill_family_phi::Phi>,
    ask::<gristmill_family_glm::Glm>,
    ask::<gristmill_family_gpt_oss::GptOss>,
    ask::<gristmill_family_deepseek::DeepSeek>,
    ask::<gristmill_family_olmo::Olmo>,
    ask::<gristmill_family_granite::Granite>,
    ask::<gristmill_family_cohere::Cohere>,
    ask::<gristmill_family_starcoder::StarCoder>,
    ask::<gristmill_family_lfm::Lfm>,
    ask::<gristmill_family_qwen_next::QwenNext>,
];

impl Families for Native {
    fn resolve(&self, metadata: &Metadata) -> Result<Resolved> {
        let model = shown(metadata);
        let Some((family, answer)) = FAMILIES.iter().find_map(|ask| ask(&model)) else {
            let known = format!("no family knows the architecture `{}`", metadata.architecture);
            return Err(Error::unsupported(known));
        };
        let (program, dialect) =
            answer.map_err(|error| Error::new(Code::Unsupported, error.message))?;
        Ok(Resolved {
            family: family.to_owned(),
            digest: "sha256:native".to_owned(),
            program: taken(program),
            dialect: spoken(dialect),
        })
    }
}

fn shown(metadata: &Metadata) -> plugin::Metadata {
    let value = |value: &Value| match value.clone() {
        Value::Int(value) => plugin::Value::Int(value),
        Value::Float(value) => plugin::Value::Float(value),
        Value::Flag(value) => plugin::Value::Flag(value),
        Value::Text(value) => plugin::Value::Text(value),
        Value::Ints(value) => plugin::Value::Ints(value),
        Value::Floats(value) => plugin::Value::Floats(value),
        Value::Texts(value) => plugin::Value::Texts(value),
        Value::Long(value) => plugin::Value::Long(value),
    };
    let tensor = |TensorInfo { name, shape, element }: &TensorInfo| plugin::TensorInfo {
        name: name.clone(),
        shape: shape.clone(),
        element: element.clone(),
    };
    plugin::Metadata {
        architecture: metadata.architecture.clone(),
        keys: metadata.keys.iter().map(|(key, found)| (key.clone(), value(found))).collect(),
        tensors: metadata.tensors.iter().map(tensor).collect(),
    }
}

fn taken(program: plugin::Program) -> Program {
    let attributes = |given: Vec<(String, plugin::Attribute)>| {
        let value = |attribute| match attribute {
            plugin::Attribute::Int(value) => Attribute::Int(value),
            plugin::Attribute::Float(value) => Attribute::Float(value),
            plugin::Attribute::Flag(value) => Attribute::Flag(value),
            plugin::Attribute::Text(value) => Attribute::Text(value),
            plugin::Attribute::Tensor(value) => Attribute::Tensor(value),
            plugin::Attribute::Ints(value) => Attribute::Ints(value),
            plugin::Attribute::Floats(value) => Attribute::Floats(value),
            plugin::Attribute::Texts(value) => Attribute::Texts(value),
        };
        given.into_iter().map(|(name, attribute)| (name, value(attribute))).collect()
    };
    Program {
        vocabulary: program.vocabulary,
        width: program.width,
        layers: program.layers,
        context_native: program.context_native,
        states: program
            .states
            .into_iter()
            .map(|state| State {
                kind: state.kind,
                layer: state.layer,
                attributes: attributes(state.attributes),
            })
            .collect(),
        steps: program
            .steps
            .into_iter()
            .map(|step| Step {
                op: step.op,
                layer: step.layer,
                inputs: step.inputs,
                outputs: step.outputs,
                attributes: attributes(step.attributes),
            })
            .collect(),
        result_value: program.result_value,
        extras: program.extras,
    }
}

fn spoken(dialect: plugin::Dialect) -> Dialect {
    let plugin::Dialect { template, system_role, stops, reasoning, tools, defaults, extras } =
        dialect;
    let span = |plugin::Span { open, close, open_at_start }| Span { open, close, open_at_start };
    let format = |given: plugin::ToolFormat| {
        let plugin::ToolFormat { open, close, shape, name_key, arguments_key, extras } = given;
        ToolFormat { open, close, shape, name_key, arguments_key, extras }
    };
    Dialect {
        template,
        system_role,
        stops,
        reasoning: reasoning.map(span),
        tools: tools.map(format),
        defaults: Sampling {
            temperature: defaults.temperature,
            top_p: defaults.top_p,
            top_k: defaults.top_k,
            min_p: defaults.min_p,
            typical_p: defaults.typical_p,
            repeat_penalty: defaults.repeat_penalty,
            repeat_last_n: defaults.repeat_last_n,
            presence_penalty: defaults.presence_penalty,
            frequency_penalty: defaults.frequency_penalty,
            seed: defaults.seed,
            logit_bias: defaults.logit_bias,
            extras: defaults.extras,
        },
        extras,
    }
}
