//! The controls of a generation that policies and profiles speak of, and the values they take.
//!
//! Owns one vocabulary for all dialects: the words of Ollama's `options`, because no other dialect
//! has as many. What a dialect calls a control is the dialect's to say. A word that is not here is
//! refused when a file is read.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest whole number that is exact wherever a number is.
const MOST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Most texts of one value, and the longest of them in bytes: they are told in a header.
const MOST_TEXTS: usize = 16;
const LONGEST_TEXT: usize = 128;

/// What values a control takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// A number from … to ….
    Number(f64, f64),
    /// A whole number from … to ….
    Whole(f64, f64),
    /// A short list of short texts.
    Texts,
    /// Something a policy does not compare: only whether it is there counts.
    Opaque,
}

macro_rules! controls {
    ($($variant:ident, $word:literal, $shape:expr, $placement:literal, $help:literal;)*) => {
        /// One control.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Control {
            $(#[doc = $help] #[serde(rename = $word)] $variant,)*
        }

        impl Control {
            /// All of them, in the order in which they are judged and told.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in files.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What values it takes.
            #[must_use]
            pub fn shape(self) -> Shape {
                match self { $(Self::$variant => $shape,)* }
            }

            /// Whether it says only where and how to compute. No back-end is given such a control; a
            /// policy decides whether asking for it is an error.
            #[must_use]
            pub fn is_placement(self) -> bool {
                match self { $(Self::$variant => $placement,)* }
            }

            /// What it does, in a sentence.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

const ANY: f64 = f32::MAX as f64;
const COUNT: f64 = u32::MAX as f64;

controls! {
    Temperature, "temperature", Shape::Number(0.0, ANY), false, "Spread of the choice; 0 is greedy.";
    TopK, "top_k", Shape::Whole(0.0, COUNT), false, "The likeliest so many tokens; 0 is all.";
    TopP, "top_p", Shape::Number(0.0, 1.0), false, "The smallest set of tokens with this much probability.";
    MinP, "min_p", Shape::Number(0.0, 1.0), false, "At least this share of the likeliest token's probability.";
    TypicalP, "typical_p", Shape::Number(0.0, 1.0), false, "Locally typical sampling.";
    RepeatPenalty, "repeat_penalty", Shape::Number(0.0, ANY), false, "Divides the logits of recent tokens.";
    RepeatLastN, "repeat_last_n", Shape::Whole(-1.0, i32::MAX as f64), false, "How far back penalties look.";
    PresencePenalty, "presence_penalty", Shape::Number(-ANY, ANY), false, "Subtracted once from tokens that occurred.";
    FrequencyPenalty, "frequency_penalty", Shape::Number(-ANY, ANY), false, "Subtracted for each occurrence.";
    Seed, "seed", Shape::Whole(0.0, MOST_WHOLE), false, "The same seed gives the same answer.";
    LogitBias, "logit_bias", Shape::Opaque, false, "Added to the logits of single tokens.";
    NumPredict, "num_predict", Shape::Whole(1.0, COUNT), false, "At most so many tokens of answer.";
    NumCtx, "num_ctx", Shape::Whole(1.0, COUNT), false, "The length of the context, in tokens.";
    Stop, "stop", Shape::Texts, false, "Strings that end the answer.";
    NumThread, "num_thread", Shape::Opaque, true, "Threads that compute.";
    NumBatch, "num_batch", Shape::Opaque, true, "Tokens read at once.";
    NumGpu, "num_gpu", Shape::Opaque, true, "Layers on an accelerator.";
    MainGpu, "main_gpu", Shape::Opaque, true, "The accelerator for small tensors.";
    NumKeep, "num_keep", Shape::Opaque, true, "Tokens kept when a context is cut.";
    UseMmap, "use_mmap", Shape::Opaque, true, "Whether weights are mapped.";
    UseMlock, "use_mlock", Shape::Opaque, true, "Whether weights are locked in memory.";
    LowVram, "low_vram", Shape::Opaque, true, "Whether accelerator memory is spared.";
    Numa, "numa", Shape::Opaque, true, "Whether memory nodes are minded.";
    F16Kv, "f16_kv", Shape::Opaque, true, "Whether the cache is of half precision.";
    DraftNumPredict, "draft_num_predict", Shape::Opaque, true, "Tokens guessed at once.";
}

impl Control {
    /// The control of a word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|control| control.as_str() == word)
    }

    /// Whether it may have this value.
    ///
    /// # Errors
    /// What was expected and found.
    pub(crate) fn check(self, value: &Setting) -> Result<(), String> {
        let fits = match (self.shape(), value) {
            (Shape::Number(least, most), Setting::Number(number)) => {
                (least..=most).contains(number)
            }
            (Shape::Whole(least, most), Setting::Number(number)) => {
                number.fract() == 0.0 && (least..=most).contains(number)
            }
            (Shape::Texts, Setting::Texts(texts)) => {
                (1..=MOST_TEXTS).contains(&texts.len())
                    && texts.iter().all(|text| (1..=LONGEST_TEXT).contains(&text.len()))
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(match self.shape() {
            Shape::Number(least, most) if most < ANY => {
                format!("{self}: expected a number from {least} to {most}, found {value}")
            }
            Shape::Number(..) => format!("{self}: expected a number in its range, found {value}"),
            Shape::Whole(least, most) => {
                format!("{self}: expected a whole number from {least} to {most}, found {value}")
            }
            Shape::Texts => format!(
                "{self}: expected 1 to {MOST_TEXTS} texts of 1 to {LONGEST_TEXT} bytes, found {value}"
            ),
            Shape::Opaque => {
                format!("{self}: no value can be set or compared; leave out the value")
            }
        })
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A control's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number or a list of texts")]
pub enum Setting {
    /// A number, whole or not.
    Number(f64),
    /// Texts, in order.
    Texts(Vec<String>),
}

impl Setting {
    /// A number of single precision as it is written, so that 0.95 is the 0.95 of a file.
    #[must_use]
    pub fn single(number: f32) -> Self {
        Self::Number(number.to_string().parse().unwrap_or(f64::from(number)))
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Texts(_) => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Texts(texts) => write!(f, "{texts:?}"),
        }
    }
}

/// What a request asks for: its controls, each with its value where it has one that can be compared.
pub type Asked = BTreeMap<Control, Option<Setting>>;

/// A table with one optional key for each control, all of one shape; nothing else is in it.
pub(crate) fn table_of<T: JsonSchema>(
    generator: &mut schemars::SchemaGenerator,
    controls: impl Iterator<Item = Control>,
) -> schemars::Schema {
    let entry = generator.subschema_for::<T>();
    let properties: serde_json::Map<_, _> = controls
        .map(|control| {
            let mut entry = entry.clone();
            entry.insert("description".to_owned(), control.help().into());
            (control.as_str().to_owned(), entry.to_value())
        })
        .collect();
    schemars::json_schema!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}
