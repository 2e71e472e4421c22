//! Sampling parameters: what is set is sent, what has no field is refused.

use gristmill_plugin::prelude::*;

use super::{Profile, refused};
use crate::Fields;

/// Writes what is set.
///
/// # Errors
/// `unsupported` with the parameter's name.
pub(super) fn write(profile: &Profile, sampling: &Sampling, body: &mut Fields) -> Result<()> {
    body.maybe("temperature", sampling.temperature);
    body.maybe("top_p", sampling.top_p);
    body.maybe("presence_penalty", sampling.presence_penalty);
    body.maybe("frequency_penalty", sampling.frequency_penalty);
    number(profile, body, "top-k", sampling.top_k)?;
    number(profile, body, "min-p", sampling.min_p)?;
    number(profile, body, "typical-p", sampling.typical_p)?;
    number(profile, body, "repeat-penalty", sampling.repeat_penalty)?;
    number(profile, body, "repeat-last-n", sampling.repeat_last_n)?;
    if let Some(seed) = sampling.seed {
        if seed > profile.most_seed {
            return Err(refused(profile, "seed", &format!("at most {}", profile.most_seed)));
        }
        body.set("seed", seed);
    }
    if !sampling.logit_bias.is_empty() {
        if !profile.logit_bias {
            return Err(refused(profile, "logit-bias", "the server does not read it"));
        }
        let mut biases = Fields::new();
        for (token, bias) in &sampling.logit_bias {
            biases.set(&token.to_string(), bias);
        }
        body.object("logit_bias", biases);
    }
    Ok(())
}

fn number<N: serde::Serialize>(
    profile: &Profile,
    body: &mut Fields,
    name: &str,
    value: Option<N>,
) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    match profile.sampling.iter().find(|sampler| sampler.name == name) {
        Some(sampler) => {
            body.set(sampler.field, value);
            Ok(())
        }
        None => Err(refused(profile, name, "the server does not read it")),
    }
}
