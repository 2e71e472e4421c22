//! Sampling parameters, checked: every field in range, or an error that names the field.

use gristmill_core::{Error, Result, request::Sampling};

/// Biased tokens in one request.
const BIASES: usize = 1 << 16;

/// Parameters that can be used without another question.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 is off.
    pub top_k: usize,
    /// 1 is off.
    pub top_p: f32,
    /// 0 is off.
    pub min_p: f32,
    /// 1 is off.
    pub typical_p: f32,
    /// 1 is off.
    pub repeat_penalty: f32,
    /// Tokens the penalties look at; `usize::MAX` is all.
    pub repeat_last_n: usize,
    /// 0 is off.
    pub presence_penalty: f32,
    /// 0 is off.
    pub frequency_penalty: f32,
    /// None: a fresh one.
    pub seed: Option<u64>,
    /// Token and what is added to its logit.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Settings {
    /// The request's parameters over the family's over the plain ones.
    ///
    /// # Errors
    /// `invalid-request` with detail `field` for a value out of range or a biased token outside the
    /// vocabulary; `unsupported` for a sampling parameter this engine does not know.
    pub fn new(request: &Sampling, family: &Sampling, vocabulary: usize) -> Result<Self> {
        if let Some((name, _)) = request.extras.iter().chain(&family.extras).next() {
            return Err(Error::unsupported(format!(
                "the sampling parameter `{name}` is not implemented by this engine"
            ))
            .with("field", name));
        }
        if request.logit_bias.len() > BIASES {
            return Err(bad(
                "logit_bias",
                &format!("at most {BIASES} tokens"),
                request.logit_bias.len(),
            ));
        }
        let mut logit_bias = family.logit_bias.clone();
        logit_bias.retain(|(token, _)| !request.logit_bias.iter().any(|(other, _)| other == token));
        logit_bias.extend_from_slice(&request.logit_bias);
        for &(token, bias) in &logit_bias {
            if token as usize >= vocabulary {
                let expected = format!("a token below {vocabulary}");
                return Err(bad("logit_bias", &expected, token));
            }
            if !bias.is_finite() {
                return Err(bad("logit_bias", "a finite number", bias));
            }
        }
        let float = |field, ours: Option<f32>, theirs: Option<f32>, plain, low, high| {
            let value = ours.or(theirs).unwrap_or(plain);
            // A NaN is in no range.
            if (low..=high).contains(&value) {
                Ok(value)
            } else {
                Err(range(field, low, high, value))
            }
        };
        let last = request.repeat_last_n.or(family.repeat_last_n).unwrap_or(64);
        let repeat_last_n = match last {
            -1 => usize::MAX,
            last => usize::try_from(last)
                .map_err(|_| bad("repeat_last_n", "-1 (all), 0 (off) or more", last))?,
        };
        let (r, f) = (request, family);
        Ok(Self {
            temperature: float("temperature", r.temperature, f.temperature, 0.8, 0.0, 100.0)?,
            top_k: r.top_k.or(f.top_k).unwrap_or(40) as usize,
            top_p: float("top_p", r.top_p, f.top_p, 0.9, 0.0, 1.0)?,
            min_p: float("min_p", r.min_p, f.min_p, 0.0, 0.0, 1.0)?,
            typical_p: float("typical_p", r.typical_p, f.typical_p, 1.0, 0.0, 1.0)?,
            repeat_penalty: float(
                "repeat_penalty",
                r.repeat_penalty,
                f.repeat_penalty,
                1.0,
                f32::MIN_POSITIVE,
                100.0,
            )?,
            repeat_last_n,
            presence_penalty: float(
                "presence_penalty",
                r.presence_penalty,
                f.presence_penalty,
                0.0,
                -100.0,
                100.0,
            )?,
            frequency_penalty: float(
                "frequency_penalty",
                r.frequency_penalty,
                f.frequency_penalty,
                0.0,
                -100.0,
                100.0,
            )?,
            seed: r.seed.or(f.seed),
            logit_bias,
        })
    }

    /// Whether the penalties change anything.
    #[must_use]
    pub fn penalises(&self) -> bool {
        self.repeat_last_n > 0
            && (self.repeat_penalty != 1.0
                || self.presence_penalty != 0.0
                || self.frequency_penalty != 0.0)
    }
}

fn range(field: &str, low: f32, high: f32, found: f32) -> Error {
    if low == f32::MIN_POSITIVE {
        return bad(field, &format!("a number above 0 and at most {high}"), found);
    }
    bad(field, &format!("a number in {low}..={high}"), found)
}

fn bad(field: &str, expected: &str, found: impl std::fmt::Display) -> Error {
    Error::invalid(format!("`{field}`: expected {expected}, found {found}")).with("field", field)
}
