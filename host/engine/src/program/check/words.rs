//! Words of the step vocabulary that several steps share.

use crate::program::{
    fault::Fault,
    ir::{Activation, Pooling},
};

pub(super) fn pooling(subject: &str, word: &str) -> Result<Pooling, Box<Fault>> {
    match word {
        "mean" => Ok(Pooling::Mean),
        "cls" => Ok(Pooling::Cls),
        "last" => Ok(Pooling::Last),
        _ => Err(Fault::unknown(subject, "mean, cls or last", format!("`{word}`"))),
    }
}

pub(super) fn activation(name: &str, word: &str) -> Result<Activation, Box<Fault>> {
    match word {
        "silu" => Ok(Activation::Silu),
        "gelu-tanh" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        "relu" => Ok(Activation::Relu),
        "relu-squared" => Ok(Activation::ReluSquared),
        "sigmoid" => Ok(Activation::Sigmoid),
        "identity" => Ok(Activation::Identity),
        "swiglu-oai" => Ok(Activation::SwigluOai),
        _ => Err(Fault::unknown(
            format!("attribute `{name}`"),
            "silu, gelu-tanh, gelu, relu, relu-squared, sigmoid, identity or swiglu-oai",
            format!("`{word}`"),
        )),
    }
}
