//! How a token is chosen from logits.
//!
//! The order is fixed, and is llama.cpp's:
//!
//! 1. log probabilities are read from the untouched logits (only when asked for),
//! 2. `logit_bias` is added,
//! 3. penalties: tokens among the last `repeat_last_n` (prompt included) have positive logits
//!    divided and negative ones multiplied by `repeat_penalty`, then
//!    `count · frequency_penalty + presence_penalty` subtracted,
//! 4. temperature 0: the largest logit wins (the lowest id among equals); nothing below applies,
//! 5. `top_k`, `typical_p`, `top_p`, `min_p`, each on what the one before left, renormalised,
//! 6. `temperature`, and one draw.
//!
//! What neither the request nor the family sets is what people who come from Ollama expect:
//! temperature 0.8, top-k 40, top-p 0.9, everything else off, penalties over 64 tokens. A dialect
//! with other defaults (`/v1`: temperature 1, top-p 1) sets them in the request.
//!
//! Where an answer is bound by a grammar, steps 4 to 6 see only the tokens that may come.
//!
//! Nothing here sorts the vocabulary, and where one token is wanted or `top_k` of them nothing reads
//! it: they are found by the peaks of its blocks ([`Logits`](crate::logits::Logits)). Only the picked
//! ones (about `top_k`, or those that hold `top_p` of the mass) are ordered.

mod choose;
mod settings;

pub use choose::{Sampler, log_probabilities};
pub use settings::Settings;
