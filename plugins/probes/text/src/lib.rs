//! Probe: tokens and text come back unchanged, in any script, however they are fetched; greedy and
//! seeded answers repeat; thought and answer are two channels.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod prompt;
mod reasoning;
mod repeat;
mod tokens;

probe_kit::suite! {
    "text.tokens-ascii" of "tokenize" if Claimed => tokens::ascii,
    "text.tokens-unicode" of "tokenize" if Claimed => tokens::unicode,
    "text.tokens-special" of "tokenize" if Claimed => tokens::special,
    "text.bos-once" of "tokenize" if Claimed => prompt::bos_once,
    "text.template" of "inference.chat" if Always => prompt::template,
    "text.system-role" of "inference.chat" if Always => prompt::system,
    "text.unicode-answer" of "streaming.content" if Generates => tokens::answer,
    "text.logprobs" of "logprobs" if Claimed => tokens::logprobs,
    "text.streaming" of "streaming.content" if Generates => repeat::streaming,
    "text.greedy" of "conduct.determinism" if Generates => repeat::greedy,
    "text.seed" of "conduct.determinism" if Generates => repeat::seed,
    "reasoning.off" of "reasoning.control" if Claimed => reasoning::off,
    "reasoning.on" of "reasoning.control" if Claimed => reasoning::on,
}
