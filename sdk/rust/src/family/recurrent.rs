//! Steps whose state is carried from token to token instead of kept for each.

use alloc::{borrow::ToOwned, format, string::String, vec, vec::Vec};

use super::{Activation, Attribute, Builder, Operand, State, program};
use crate::Error;

/// The gated delta rule of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaRule {
    /// Heads of values.
    pub heads: u32,
    /// Heads of queries and keys.
    pub key_heads: u32,
    /// Numbers in a head of queries and keys.
    pub key_dim: u32,
    /// Numbers in a head of values.
    pub value_dim: u32,
    /// What is recalled is multiplied by this.
    pub scale: f64,
    /// Whether heads of values share keys in turns (0, 1, 0, 1) and not in runs (0, 0, 1, 1).
    pub tiled: bool,
}

impl Builder<'_> {
    /// A convolution of each channel over the last tokens, by the kernels of `stem`
    /// (`[kernel, width]`), then an activation.
    #[must_use]
    pub fn conv(&self, x: Operand, stem: &str, activation: Activation) -> Operand {
        let tensor = self.known(stem, "weight");
        let shape = self.model.find_tensor(&tensor).map(|tensor| tensor.shape.clone());
        let size = |n: usize| {
            let size = shape.as_ref().and_then(|shape| shape.get(n)).copied().unwrap_or(1);
            u32::try_from(size).unwrap_or(u32::MAX)
        };
        self.state("conv", vec![program::int("width", size(1)), program::int("kernel", size(0))]);
        let mut with = vec![("weight".to_owned(), Attribute::Tensor(tensor))];
        with.extend(self.bias(stem));
        with.push(program::text("activation", activation.word()));
        self.step("conv", &[x], with)
    }

    /// The gated delta rule over a state of the layer: `q`, `k`, `v`, and for each head of values a
    /// number from which the state's decay is made (with the tensors `ssm_a` and `ssm_dt.bias`) and
    /// one whose sigmoid is the strength of what is written.
    #[must_use]
    pub fn delta_rule(&self, inputs: [Operand; 5], of: &DeltaRule) -> Operand {
        let sizes = || {
            [("heads", of.heads), ("key-dim", of.key_dim), ("value-dim", of.value_dim)]
                .map(|(name, number)| program::int(name, number))
        };
        self.state("recurrent", sizes().to_vec());
        let layer = self.layer.unwrap_or_default();
        let rate = format!("blk.{layer}.ssm_a");
        if let Err(error) = self.model.tensor(&rate) {
            self.fail(error);
        }
        let mut with: Vec<(String, Attribute)> = sizes().to_vec();
        with.extend([
            program::int("key-heads", of.key_heads),
            ("rate".to_owned(), Attribute::Tensor(rate)),
        ]);
        with.extend(self.bias("ssm_dt"));
        with.push(program::float("scale", of.scale));
        with.push(program::text("sharing", if of.tiled { "turns" } else { "runs" }));
        self.step("delta-rule", &inputs, with)
    }

    /// Each of `heads` parts of a row divided by its length, `eps` added to its square.
    #[must_use]
    pub fn unit_norm(&self, x: Operand, eps: f64, heads: u32, head_dim: u32) -> Operand {
        let size = f64::from(head_dim.max(1));
        let with = vec![program::float("eps", eps / size), program::int("heads", heads)];
        self.scale(self.step("rms-norm", &[x], with), 1.0 / crate::sqrt(size))
    }

    fn state(&self, kind: &str, attributes: Vec<(String, Attribute)>) {
        match self.layer {
            Some(layer) => {
                let state = State { kind: kind.to_owned(), layer, attributes };
                self.parts.borrow_mut().states.push(state);
            }
            None => self.fail(Error::internal("a step with a state must be inside a layer")),
        }
    }
}
