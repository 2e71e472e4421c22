//! How a family speaks, read off the chat template where that is the only witness: GGUF says
//! neither which texts end a turn nor how tools are called.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use super::{Dialect, Metadata, Span, ToolFormat};
use crate::{Result, Sampling};

impl Dialect {
    /// The template in the file, a system role, nothing else.
    #[must_use]
    pub fn of_file() -> Self {
        Self {
            template: None,
            system_role: true,
            stops: Vec::new(),
            reasoning: None,
            tools: None,
            defaults: Sampling::default(),
            extras: Vec::new(),
        }
    }

    /// What most templates show: those of `marks` they write as stops, thinking between `<think>`
    /// marks, calls in Hermes' way, and the sampling that the file recommends.
    ///
    /// # Errors
    /// `invalid-request` when one of the keys has another type.
    pub fn of_template(model: &Metadata, marks: &[&str]) -> Result<Self> {
        let template = model.template()?;
        Ok(Self {
            stops: Self::stops_in(template, marks),
            reasoning: Span::think(template),
            tools: template.contains("<tool_call>").then(ToolFormat::hermes),
            defaults: Sampling::of(model)?,
            ..Self::of_file()
        })
    }

    /// Those of `marks` that the template writes: a mark it never writes is no token to stop at.
    #[must_use]
    pub fn stops_in(template: &str, marks: &[&str]) -> Vec<String> {
        marks
            .iter()
            .filter(|mark| template.contains(**mark))
            .map(|mark| (*mark).to_owned())
            .collect()
    }
}

impl Span {
    /// `<think>…</think>`, if the template writes it. It is open at the start where the template
    /// ends the generation prompt with the opening mark.
    #[must_use]
    pub fn think(template: &str) -> Option<Self> {
        let opened = ["assistant\\n<think>\\n'", "<｜Assistant｜><think>\\n'"];
        template.contains("<think>").then(|| Self {
            open: "<think>".to_owned(),
            close: "</think>".to_owned(),
            open_at_start: opened.iter().any(|end| template.contains(end)),
        })
    }
}

impl ToolFormat {
    /// Calls between two marks, in this shape: `json` and `json-list` with these keys, `xml` and `dsml`
    /// with these tags, `mistral` with what stands before an id and before the arguments, `deepseek` with
    /// the word before the separator or none, `glm`, `kimi`, `pythonic` and `harmony` without either.
    #[must_use]
    pub fn new(open: &str, close: &str, shape: &str, name_key: &str, arguments_key: &str) -> Self {
        Self {
            open: open.to_owned(),
            close: close.to_owned(),
            shape: shape.to_owned(),
            name_key: name_key.to_owned(),
            arguments_key: arguments_key.to_owned(),
            extras: Vec::new(),
        }
    }

    /// Hermes' way: `<tool_call>{"name": …, "arguments": …}</tool_call>`.
    #[must_use]
    pub fn hermes() -> Self {
        Self::new("<tool_call>", "</tool_call>", "json", "name", "arguments")
    }
}

impl Sampling {
    /// What the file itself recommends (`general.sampling.*`).
    ///
    /// # Errors
    /// `invalid-request` when such a key has another type.
    pub fn of(model: &Metadata) -> Result<Self> {
        #[allow(clippy::cast_possible_truncation, reason = "f32 is what sampling works in")]
        let number = |key: &str| -> Result<Option<f32>> {
            Ok(model.find_f64(key)?.map(|number| number as f32))
        };
        Ok(Self {
            temperature: number("general.sampling.temp")?,
            top_k: model.find_u32("general.sampling.top_k")?,
            top_p: number("general.sampling.top_p")?,
            min_p: number("general.sampling.min_p")?,
            repeat_penalty: number("general.sampling.penalty_repeat")?,
            ..Self::default()
        })
    }

    /// These settings, and `usual` for what they leave open.
    #[must_use]
    pub fn or(self, usual: Self) -> Self {
        Self {
            temperature: self.temperature.or(usual.temperature),
            top_p: self.top_p.or(usual.top_p),
            top_k: self.top_k.or(usual.top_k),
            min_p: self.min_p.or(usual.min_p),
            typical_p: self.typical_p.or(usual.typical_p),
            repeat_penalty: self.repeat_penalty.or(usual.repeat_penalty),
            repeat_last_n: self.repeat_last_n.or(usual.repeat_last_n),
            presence_penalty: self.presence_penalty.or(usual.presence_penalty),
            frequency_penalty: self.frequency_penalty.or(usual.frequency_penalty),
            seed: self.seed.or(usual.seed),
            logit_bias: if self.logit_bias.is_empty() { usual.logit_bias } else { self.logit_bias },
            extras: if self.extras.is_empty() { usual.extras } else { self.extras },
        }
    }
}
