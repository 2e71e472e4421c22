//! From a checked program to what is executed: few phases, and a slot for every value.
//!
//! Fusion is by shape of the program, not by family:
//!
//! - linears that read the same value become one phase: their input is quantised once and all
//!   their rows are one parallel loop (q, k, v);
//! - `glu` of two linears of the same input becomes one phase (gate, up, activation);
//! - `add` of a linear that nothing else reads accumulates into the other summand (residuals);
//! - pointwise steps write where they read when nothing reads their input later;
//! - after the last attention only rows whose logits are wanted go on.
//!
//! Slots are assigned by liveness before the first token, and their buffers are made once: a pass
//! makes none. [`Plan`] also knows what everything costs in bytes.

mod capacity;
mod describe;
mod group;
mod work;

use std::sync::Arc;

pub use capacity::{Capacity, Cost};
pub use work::{Phase, Product, Slot, Work};

use group::{Group, group};

use crate::program::{Activation, Checked, Op, Result as Kind, Rope, ValueId};

/// A program ready to be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The checked program.
    pub program: Arc<Checked>,
    /// In order.
    pub phases: Vec<Phase>,
    /// Width of a row of each buffer.
    pub slots: Vec<usize>,
    /// The rotary embeddings that differ in their angles.
    pub ropes: Vec<Rope>,
    /// Longest context it will be used for: some embeddings turn otherwise in long ones.
    pub context: usize,
    /// Where the hidden state is when everything but the head is done, and its width.
    hidden: (Slot, usize),
}

impl Plan {
    /// Plans a checked program. It cannot fail: whatever does not fuse is executed as it is.
    #[must_use]
    pub fn new(program: Arc<Checked>) -> Self {
        let groups = group(&program);
        Builder::new(&program, &groups).build(Arc::clone(&program), &groups)
    }

    /// The same plan for contexts of at most so many tokens.
    #[must_use]
    pub fn for_context(self, tokens: usize) -> Self {
        Self { context: tokens.min(self.program.context_native), ..self }
    }

    /// Whether some embedding turns otherwise than in short contexts: what a cache holds then fits
    /// no plan for those.
    #[must_use]
    pub fn turns_long(&self) -> bool {
        let long = |rope: &Rope| rope.long.is_some_and(|long| self.context > long.original_context);
        self.ropes.iter().any(long)
    }

    /// The slot and the width of the value an embedding is made from.
    #[must_use]
    pub fn hidden(&self) -> (Slot, usize) {
        self.hidden
    }
}

/// Whether the angles of a position are the same.
fn same_angles(a: &Rope, b: &Rope) -> bool {
    (a.dims, a.base, a.scaling, a.factors, a.long) == (b.dims, b.base, b.scaling, b.factors, b.long)
}

/// Products of one linear phase; more than any program needs, few enough for the stack.
pub const MOST_PRODUCTS: usize = 8;

struct Builder {
    /// Phase after which a value is not read again.
    last: Vec<usize>,
    slot: Vec<Option<Slot>>,
    slots: Vec<usize>,
    free: Vec<Slot>,
    ropes: Vec<Rope>,
}

impl Builder {
    fn new(program: &Checked, groups: &[Group]) -> Self {
        let mut last = vec![0; program.steps.len()];
        for (index, group) in groups.iter().enumerate() {
            for input in group.inputs(program) {
                if let Some(last) = last.get_mut(input) {
                    *last = index;
                }
            }
        }
        Self {
            last,
            slot: vec![None; program.steps.len()],
            slots: Vec::new(),
            free: Vec::new(),
            ropes: Vec::new(),
        }
    }

    fn at(&self, value: ValueId) -> Slot {
        self.slot.get(value).copied().flatten().unwrap_or(0)
    }

    /// A slot for a value: the narrowest free one that is wide enough, else the widest made wider,
    /// else a new one.
    fn allocate(&mut self, value: ValueId, width: usize) -> Slot {
        let widths = &self.slots;
        let of = |slot: Slot| widths.get(slot).copied().unwrap_or(0);
        let fit = self
            .free
            .iter()
            .copied()
            .filter(|&slot| of(slot) >= width)
            .min_by_key(|&slot| of(slot))
            .or_else(|| self.free.iter().copied().max_by_key(|&slot| of(slot)));
        let slot = if let Some(slot) = fit {
            self.free.retain(|&other| other != slot);
            if let Some(old) = self.slots.get_mut(slot) {
                *old = (*old).max(width);
            }
            slot
        } else {
            self.slots.push(width);
            self.slots.len() - 1
        };
        self.put(value, slot);
        slot
    }

    fn put(&mut self, value: ValueId, slot: Slot) {
        if let Some(place) = self.slot.get_mut(value) {
            *place = Some(slot);
        }
    }

    /// The slot of `input` if nothing reads it after this phase and the widths agree, otherwise
    /// another.
    fn in_place(
        &mut self,
        phase: usize,
        input: ValueId,
        value: ValueId,
        width: usize,
        same: bool,
    ) -> Slot {
        if same && self.last.get(input) == Some(&phase) {
            let slot = self.at(input);
            self.put(value, slot);
            return slot;
        }
        self.allocate(value, width)
    }

    fn build(mut self, program: Arc<Checked>, groups: &[Group]) -> Plan {
        // Every row must pass through every step that has a state.
        let last_attention = groups.iter().rposition(|group| {
            let step = group.outputs().last().and_then(|&step| program.steps.get(step));
            let op = step.map(|step| &step.op);
            matches!(op, Some(Op::Attention(_) | Op::Conv(_) | Op::DeltaRule(_)))
        });
        let mut phases = Vec::with_capacity(groups.len() + 1);
        for (index, group) in groups.iter().enumerate() {
            let work = self.work(&program, index, group);
            let steps = group.steps();
            let layer = steps.last().and_then(|&step| program.steps.get(step)?.layer);
            phases.push(Phase { layer, steps, work });
            // Free what is not read again, unless its slot lives on under another value.
            let outputs: Vec<Slot> = group.outputs().iter().map(|&value| self.at(value)).collect();
            for input in group.inputs(&program) {
                let slot = self.at(input);
                if self.last.get(input) == Some(&index)
                    && !outputs.contains(&slot)
                    && !self.free.contains(&slot)
                {
                    self.free.push(slot);
                }
            }
            if program.result == Kind::Logits && Some(index) == last_attention {
                let written: Vec<ValueId> =
                    groups.iter().take(index + 1).flat_map(Group::outputs).collect();
                let mut live: Vec<(Slot, usize)> = Vec::new();
                for value in written {
                    let slot = self.at(value);
                    let width = program.steps.get(value).map_or(0, |step| step.width);
                    if self.last.get(value).is_some_and(|&last| last > index)
                        && !live.iter().any(|(other, _)| *other == slot)
                    {
                        live.push((slot, width));
                    }
                }
                phases.push(Phase { layer, steps: Vec::new(), work: Work::Narrow { live } });
            }
        }
        let width = program.steps.get(program.hidden).map_or(0, |step| step.width);
        let hidden = (self.at(program.hidden), width);
        let context = program.context_native;
        Plan { program, phases, slots: self.slots, ropes: self.ropes, context, hidden }
    }

    fn work(&mut self, program: &Checked, phase: usize, group: &Group) -> Work {
        let width_of = |value: ValueId| program.steps.get(value).map_or(0, |step| step.width);
        let input_of = |step: usize, n: usize| {
            program.steps.get(step).and_then(|step| step.inputs.get(n)).copied().unwrap_or(0)
        };
        let weight_of = |step: usize| match program.steps.get(step).map(|step| &step.op) {
            Some(Op::Linear { weight, bias, scale }) => (*weight, *bias, *scale),
            _ => (0, None, 1.0),
        };
        match group {
            Group::Linears(steps) => {
                let x = steps.first().map_or(0, |&step| input_of(step, 0));
                let products = steps
                    .iter()
                    .map(|&step| {
                        let (weight, bias, scale) = weight_of(step);
                        let out = self.allocate(step, width_of(step));
                        Product { weight, bias, scale, out, accumulate: false }
                    })
                    .collect();
                Work::Linear { x: self.at(x), width: width_of(x), products }
            }
            &Group::Accumulate(linear, add, other) => {
                let x = input_of(linear, 0);
                let (weight, bias, scale) = weight_of(linear);
                let out = self.at(other);
                self.put(add, out);
                let products = vec![Product { weight, bias, scale, out, accumulate: true }];
                Work::Linear { x: self.at(x), width: width_of(x), products }
            }
            &Group::Glu(gate, up, glu) => {
                let x = input_of(gate, 0);
                let activation = match program.steps.get(glu).map(|step| &step.op) {
                    Some(Op::Glu(activation)) => *activation,
                    _ => Activation::Silu,
                };
                let out = self.allocate(glu, width_of(glu));
                let (gate, up) = (weight_of(gate).0, weight_of(up).0);
                Work::GluLinear { x: self.at(x), width: width_of(x), gate, up, activation, out }
            }
            &Group::Single(step) => self.single(program, phase, step),
        }
    }

    fn single(&mut self, program: &Checked, phase: usize, index: usize) -> Work {
        let Some(step) = program.steps.get(index) else {
            return Work::Narrow { live: Vec::new() };
        };
        let input = |n: usize| step.inputs.get(n).copied().unwrap_or(0);
        let in_width = program.steps.get(input(0)).map_or(0, |step| step.width);
        let (value, width) = (input(0), step.width);
        let x = self.at(value);
        // A slot may be written where it is read only if nothing else of this phase reads it.
        let alone = step.inputs.iter().filter(|&&other| other == value).count() == 1;
        let out = |builder: &mut Self, same: bool| {
            builder.in_place(phase, value, index, width, same && alone)
        };
        match &step.op {
            &Op::Embed { weight, scale } => {
                Work::Embed { weight, scale, out: self.allocate(index, width) }
            }
            &Op::PositionEmbed { weight } => {
                Work::PositionEmbed { weight, x, out: out(self, true) }
            }
            &Op::SegmentEmbed { weight } => Work::SegmentEmbed { weight, x, out: out(self, true) },
            &Op::RmsNorm { weight, eps, heads } => {
                Work::RmsNorm { x, weight, eps, heads, width, out: out(self, true) }
            }
            &Op::LayerNorm { weight, bias, eps } => {
                Work::LayerNorm { x, weight, bias, eps, width, out: out(self, true) }
            }
            Op::Rope(rope) => {
                let table = self.ropes.iter().position(|other| same_angles(other, rope));
                let table = table.unwrap_or_else(|| {
                    self.ropes.push(rope.clone());
                    self.ropes.len() - 1
                });
                Work::Rope { x, rope: rope.clone(), table, out: out(self, true) }
            }
            Op::Attention(attention) => Work::Attention {
                q: x,
                k: self.at(input(1)),
                v: self.at(input(2)),
                attention: attention.clone(),
                out: self.allocate(index, width),
            },
            &Op::Glu(activation) if in_width != width => {
                let up = self.at(input(1));
                let out = self.in_place(phase, input(1), index, width, input(0) != input(1));
                Work::GluParts { gate: x, gate_width: in_width, up, activation, width, out }
            }
            &Op::Glu(activation) => {
                let up = self.at(input(1));
                Work::Glu { gate: x, up, activation, width, out: out(self, true) }
            }
            &Op::Activation(kind) => Work::Activation { x, kind, width, out: out(self, true) },
            Op::Add => {
                let b = self.at(input(1));
                Work::Add { a: x, b, width, out: out(self, true) }
            }
            &Op::Scale(factor) => Work::Scale { x, factor, width, out: out(self, true) },
            &Op::PositionScale { factor, length } => {
                Work::PositionScale { x, factor, length, width, out: out(self, true) }
            }
            &Op::Slice { start, length, heads } => {
                let out = self.allocate(index, width);
                Work::Slice { x, width: in_width, start, length, heads, out }
            }
            &Op::Concat { heads } => {
                let (b, b_width) = (self.at(input(1)), width - in_width);
                let out = self.allocate(index, width);
                Work::Concat { a: x, a_width: in_width, b, b_width, heads, out }
            }
            &Op::HeadLinear { weight, .. } => {
                let out = self.allocate(index, width);
                Work::HeadLinear { x, width: in_width, weight, out_width: width, out }
            }
            Op::Conv(conv) => {
                Work::Conv { x, width, conv: conv.clone(), out: self.allocate(index, width) }
            }
            Op::DeltaRule(rule) => {
                let inputs = [0, 1, 2, 3, 4].map(|n| self.at(input(n)));
                let out = self.allocate(index, width);
                Work::DeltaRule { inputs, rule: rule.clone(), out }
            }
            Op::Moe(moe) => {
                Work::Moe { x, width, moe: moe.clone(), out: self.allocate(index, width) }
            }
            Op::Head(head) => Work::Head { x, width: in_width, head: head.clone() },
            &Op::Pool { kind, normalize } => Work::Pool { x, width, kind, normalize },
            Op::Linear { weight, bias, scale } => {
                let out = self.allocate(index, width);
                let (weight, bias, scale) = (*weight, *bias, *scale);
                let products = vec![Product { weight, bias, scale, out, accumulate: false }];
                Work::Linear { x, width: in_width, products }
            }
        }
    }
}
