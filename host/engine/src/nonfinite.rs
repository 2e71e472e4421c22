//! Numbers that are none: weights that are looked at, and the search for where a pass lost its
//! numbers.
//!
//! Logits of every step are checked before a token is chosen, so a NaN or an infinity ends an
//! answer with an error and never becomes text. Activations carry one to the logits: norms,
//! products and the kernels' quantiser keep it. When it has arrived, the answer's tokens are
//! computed once more with a look at every buffer after every phase, to name the tensor.

use gristmill_core::{Code, Error, Result};
use gristmill_kernels::Matrix;

use crate::{
    plan::{Phase, Plan},
    program::{Tensor, TensorId},
    weights::{Weights, operands},
};

/// The code of these errors.
pub const CODE: &str = "non-finite";

fn error(message: String) -> Error {
    Error::new(Code::Other(CODE.to_owned()), message)
}

/// Fails if a weight is no finite number; `matrix` begins at row `first` of the tensor.
///
/// # Errors
/// `non-finite` with details `tensor` and `row`.
pub(crate) fn matrix(tensor: &Tensor, first: usize, matrix: &Matrix) -> Result<()> {
    let Some((row, column)) = matrix.first_nonfinite() else { return Ok(()) };
    let mut numbers = vec![0.0; matrix.cols()];
    let found = matrix.row_f32(row, &mut numbers).ok().and_then(|()| numbers.get(column).copied());
    Err(weight(tensor, first + row, column, found))
}

/// Fails if a number of a vector is not finite.
///
/// # Errors
/// As [`matrix`].
pub(crate) fn vector(tensor: &Tensor, numbers: &[f32]) -> Result<()> {
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(place) => Err(weight(tensor, 0, place, numbers.get(place).copied())),
        None => Ok(()),
    }
}

fn weight(tensor: &Tensor, row: usize, column: usize, found: Option<f32>) -> Error {
    error(format!(
        "tensor `{}`: expected finite weights, found {} in row {row}, column {column}: the model file is damaged or was made wrong; get it again",
        tensor.name,
        found.unwrap_or(f32::NAN)
    ))
    .with("tensor", &tensor.name)
    .with("row", row)
}

/// The error for a phase after which a buffer has a number that is none: a weight of it if one is
/// to blame, otherwise the phase itself.
pub(crate) fn blame(plan: &Plan, weights: &Weights, phase: &Phase, position: usize) -> Error {
    let steps = phase.steps.iter().filter_map(|&step| plan.program.steps.get(step));
    let tensors: Vec<TensorId> = steps.clone().flat_map(|step| operands(&step.op)).collect();
    for &id in &tensors {
        let Some(tensor) = plan.program.tensors.get(id) else { continue };
        for (n, held) in weights.experts(id).unwrap_or_default().iter().enumerate() {
            if let Err(error) = matrix(tensor, n * held.rows(), held) {
                return error;
            }
        }
    }
    let step = phase.steps.last().copied().unwrap_or_default();
    let op = plan.program.steps.get(step).map_or("?", |step| step.op.name());
    let names: Vec<&str> = tensors
        .iter()
        .filter_map(|&id| Some(plan.program.tensors.get(id)?.name.as_str()))
        .collect();
    let layer = phase.layer.map(|layer| format!(" of layer {layer}")).unwrap_or_default();
    let with =
        if names.is_empty() { String::new() } else { format!(" (`{}`)", names.join("`, `")) };
    let mut out = error(format!(
        "program step {step}, {op}{layer}{with}: its result at position {position} is no finite number, though its weights are: the model overflows on this text"
    ))
    .with("step", step)
    .with("op", op)
    .with("position", position);
    if let Some(name) = names.first() {
        out = out.with("tensor", name);
    }
    out
}

/// The error for logits that are no numbers.
pub(crate) fn logits(token: usize, found: f32) -> Error {
    error(format!("logits: expected finite numbers, found {found} for token {token}"))
}

/// The error for numbers that were lost and, computed again, were not.
pub(crate) fn vanished() -> Error {
    error(
        "a result was no finite number, and computed again it was one: the machine's memory or processor may be failing"
            .to_owned(),
    )
}
