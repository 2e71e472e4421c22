//! Reads what remembers by recurrence: the states `conv` and `recurrent`, and their steps.

use gristmill_core::program::State as RawState;

use super::{Checker, activation};
use crate::program::{
    attributes::Attributes,
    fault::Fault,
    ir::{Conv, DeltaRule, Memory, Recurrent},
    limits,
};

/// Numbers of one state: far above any published model's.
const STATE: usize = 1 << 26;

/// A state of kind `conv` or `recurrent`.
pub(super) fn read(state: &RawState, layer: usize) -> Result<Recurrent, Box<Fault>> {
    let mut a = Attributes::new(&state.attributes)?;
    let memory = if state.kind == "conv" {
        Memory::Conv {
            width: a.count("width", limits::WIDTH)?,
            kernel: a.count("kernel", limits::KERNEL)?,
        }
    } else {
        Memory::Delta {
            heads: a.count("heads", limits::HEADS)?,
            key_dim: a.count("key-dim", limits::HEAD_DIM)?,
            value_dim: a.count("value-dim", limits::HEAD_DIM)?,
        }
    };
    a.finish()?;
    let found = Recurrent { layer, memory };
    if found.size() > STATE {
        return Err(Fault::wrong("state", format!("at most {STATE} numbers"), found.size()));
    }
    Ok(found)
}

impl Checker<'_> {
    pub(super) fn conv(
        &mut self,
        layer: Option<u32>,
        width: usize,
        a: &mut Attributes<'_>,
    ) -> Result<Conv, Box<Fault>> {
        let name = a.tensor("weight")?;
        let kernel = self.dimension(name, 0).unwrap_or(0);
        if kernel as u64 > limits::KERNEL {
            let expected = format!("a kernel of at most {}", limits::KERNEL);
            return Err(Fault::wrong(format!("weight `{name}`"), expected, kernel));
        }
        let weight = self.tensor("weight", name, &[kernel, width])?;
        let bias = a.tensor_or("bias")?;
        let bias = bias.map(|name| self.tensor("bias", name, &[width])).transpose()?;
        let activation = activation("activation", a.text_or("activation", "identity")?)?;
        let state = self.remembers(layer, Memory::Conv { width, kernel })?;
        Ok(Conv { state, weight, bias, kernel, activation })
    }

    /// Widths of query, key, value, decay and strength.
    pub(super) fn delta_rule(
        &mut self,
        layer: Option<u32>,
        widths: [usize; 5],
        a: &mut Attributes<'_>,
    ) -> Result<DeltaRule, Box<Fault>> {
        let heads = a.count("heads", limits::HEADS)?;
        let key_heads = a.count("key-heads", limits::HEADS)?;
        let key_dim = a.count("key-dim", limits::HEAD_DIM)?;
        let value_dim = a.count("value-dim", limits::HEAD_DIM)?;
        if !heads.is_multiple_of(key_heads) {
            let expected = format!("a divisor of {heads} heads");
            return Err(Fault::wrong("attribute `key-heads`", expected, key_heads));
        }
        let wanted = [key_heads * key_dim, key_heads * key_dim, heads * value_dim, heads, heads];
        for ((name, wanted), found) in
            ["q", "k", "v", "decay", "strength"].into_iter().zip(wanted).zip(widths)
        {
            if found != wanted {
                return Err(Fault::wrong(name, format!("width {wanted}"), found));
            }
        }
        let rate = self.tensor("rate", a.tensor("rate")?, &[heads])?;
        let bias = a.tensor_or("bias")?;
        let bias = bias.map(|name| self.tensor("bias", name, &[heads])).transpose()?;
        let scale = a.float("scale")? as f32;
        let tiled = match a.text_or("sharing", "runs")? {
            "runs" => false,
            "turns" => true,
            word => {
                let expected = "runs or turns";
                return Err(Fault::unknown("attribute `sharing`", expected, format!("`{word}`")));
            }
        };
        let state = self.remembers(layer, Memory::Delta { heads, key_dim, value_dim })?;
        Ok(DeltaRule { state, heads, key_heads, key_dim, value_dim, rate, bias, scale, tiled })
    }

    /// The layer's state of this kind, which must say these numbers, and which no step has used.
    fn remembers(&mut self, layer: Option<u32>, memory: Memory) -> Result<usize, Box<Fault>> {
        let Some(layer) = layer.map(|layer| layer as usize) else {
            return Err(Fault::wrong("layer", "the layer whose state is used", "none"));
        };
        let kind = memory.kind();
        let found = self
            .recurrent
            .iter_mut()
            .enumerate()
            .find(|(_, (state, _))| state.layer == layer && state.memory.kind() == kind);
        let Some((place, (state, used))) = found else {
            let expected = format!("a {kind} state of layer {layer}");
            return Err(Fault::wrong("state", expected, "none"));
        };
        if *used {
            let expected = format!("one step for the {kind} state of layer {layer}");
            return Err(Fault::wrong("state", expected, "two"));
        }
        *used = true;
        if state.memory != memory {
            return Err(Fault::wrong("state", memory, state.memory));
        }
        self.causal_only.get_or_insert(self.steps.len());
        Ok(place)
    }
}
