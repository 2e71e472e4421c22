//! Which steps become one phase, and in which order the phases run.

use std::collections::HashMap;

use super::MOST_PRODUCTS;
use crate::program::{Checked, Op, ValueId};

/// How the steps of one phase belong together; the last number is the step that writes the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Group {
    Single(usize),
    /// Linears of one input.
    Linears(Vec<usize>),
    /// Gate, up, glu.
    Glu(usize, usize, usize),
    /// Linear, add, and the other summand.
    Accumulate(usize, usize, ValueId),
}

impl Group {
    /// Values the phase writes.
    pub(super) fn outputs(&self) -> Vec<ValueId> {
        match self {
            Self::Single(step) | Self::Glu(_, _, step) | Self::Accumulate(_, step, _) => {
                vec![*step]
            }
            Self::Linears(steps) => steps.clone(),
        }
    }

    pub(super) fn steps(&self) -> Vec<usize> {
        match self {
            Self::Single(step) => vec![*step],
            Self::Linears(steps) => steps.clone(),
            Self::Glu(gate, up, glu) => vec![*gate, *up, *glu],
            Self::Accumulate(linear, add, _) => vec![*linear, *add],
        }
    }

    /// Values the phase reads.
    pub(super) fn inputs(&self, program: &Checked) -> Vec<ValueId> {
        let of = |step: usize| program.steps.get(step).map_or(&[][..], |step| &step.inputs);
        match self {
            Self::Single(step) => of(*step).to_vec(),
            Self::Linears(steps) => steps.first().map_or_else(Vec::new, |step| of(*step).to_vec()),
            Self::Glu(gate, _, _) => of(*gate).to_vec(),
            Self::Accumulate(linear, _, other) => [of(*linear), &[*other]].concat(),
        }
    }
}

/// Finds what belongs together and puts it in order.
pub(super) fn group(program: &Checked) -> Vec<Group> {
    let steps = &program.steps;
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (index, step) in steps.iter().enumerate() {
        for &input in &step.inputs {
            if let Some(uses) = uses.get_mut(input) {
                uses.push(index);
            }
        }
    }
    let used = |value: usize| uses.get(value).map_or(0, Vec::len);
    let last_use = |value: usize| uses.get(value).and_then(|uses| uses.last()).copied();
    let linear = |value: usize| {
        let step = steps.get(value)?;
        let Op::Linear { weight, bias, scale } = &step.op else { return None };
        Some((step.inputs.first().copied()?, *weight, bias.is_none() && *scale == 1.0))
    };

    // Which group each step is in, if not one of its own.
    let mut taken = vec![false; steps.len()];
    let mut groups: Vec<(usize, Group)> = Vec::new();
    let take =
        |group: Group, at: usize, taken: &mut Vec<bool>, groups: &mut Vec<(usize, Group)>| {
            for step in group.steps() {
                if let Some(taken) = taken.get_mut(step) {
                    *taken = true;
                }
            }
            groups.push((at, group));
        };
    for (index, step) in steps.iter().enumerate() {
        match (&step.op, step.inputs.as_slice()) {
            (Op::Glu(_), &[gate, up]) if gate != up && used(gate) == 1 && used(up) == 1 => {
                if let (Some((x, a, true)), Some((y, b, true))) = (linear(gate), linear(up))
                    && x == y
                    && a != b
                    && steps.get(gate).map(|step| step.width)
                        == steps.get(up).map(|step| step.width)
                {
                    // It stands where the later product stood, so that nothing reads `x` later than
                    // the program did.
                    let at = gate.max(up);
                    take(Group::Glu(gate, up, index), at, &mut taken, &mut groups);
                }
            }
            (Op::Add, &[a, b]) if a != b => {
                // Either summand may be the product; the later one is the usual case.
                let fits = |product: usize, other: usize| {
                    linear(product).is_some_and(|(x, _, _)| x != other)
                        && used(product) == 1
                        && last_use(other) == Some(index)
                };
                let pair = if fits(b, a) {
                    Some((b, a))
                } else if fits(a, b) {
                    Some((a, b))
                } else {
                    None
                };
                if let Some((product, other)) = pair
                    && !taken.get(product).copied().unwrap_or(true)
                {
                    let group = Group::Accumulate(product, index, other);
                    take(group, index, &mut taken, &mut groups);
                }
            }
            _ => {}
        }
    }
    let mut by_input: HashMap<ValueId, usize> = HashMap::new();
    for index in 0..steps.len() {
        if taken.get(index).copied().unwrap_or(true) {
            continue;
        }
        match linear(index) {
            Some((x, _, _)) => {
                if let Some(&place) = by_input.get(&x)
                    && let Some((_, Group::Linears(members))) = groups.get_mut(place)
                    && members.len() < MOST_PRODUCTS
                {
                    members.push(index);
                } else {
                    by_input.insert(x, groups.len());
                    groups.push((index, Group::Linears(vec![index])));
                }
            }
            None => groups.push((index, Group::Single(index))),
        }
    }
    groups.sort_by_key(|(at, _)| *at);
    // A product that waits for its sum reads its input later than the program did. Where that input
    // is another sum's accumulator, the two stay apart.
    let order: Vec<Group> = groups.iter().map(|(_, group)| group.clone()).collect();
    let mut safe = Vec::with_capacity(groups.len());
    for (index, (at, group)) in groups.into_iter().enumerate() {
        match group {
            Group::Accumulate(linear, add, other)
                if order.iter().skip(index + 1).any(|g| g.inputs(program).contains(&other)) =>
            {
                safe.push((linear, Group::Linears(vec![linear])));
                safe.push((add, Group::Single(add)));
            }
            group => safe.push((at, group)),
        }
    }
    safe.sort_by_key(|(at, _)| *at);
    safe.into_iter().map(|(_, group)| group).collect()
}
