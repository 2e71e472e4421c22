//! Which experts a router's numbers choose for a token, and with which weights.

use crate::program::{Moe, Scoring};

/// The experts of one token and their weights, by falling score, the lower expert among equals.
/// `selection` is added to the scores while experts are chosen.
pub(crate) fn route(moe: &Moe, logits: &[f32], selection: Option<&[f32]>) -> Vec<(usize, f32)> {
    let scores: Vec<f64> = match moe.scoring {
        Scoring::Softmax => softmax(logits.iter().copied().map(f64::from).collect()),
        Scoring::Sigmoid => logits.iter().map(|&x| 1.0 / (1.0 + f64::from(-x).exp())).collect(),
        Scoring::Chosen => logits.iter().copied().map(f64::from).collect(),
    };
    let mut ranked: Vec<(usize, f64)> = scores
        .iter()
        .enumerate()
        .map(|(expert, score)| {
            let more = selection.and_then(|bias| bias.get(expert)).copied().unwrap_or(0.0);
            (expert, score + f64::from(more))
        })
        .collect();
    if moe.active_groups < moe.groups {
        keep_groups(moe, &mut ranked);
    }
    ranked.sort_by(falling);
    ranked.truncate(moe.active);
    let mut weights: Vec<f64> =
        ranked.iter().map(|(expert, _)| scores.get(*expert).copied().unwrap_or(0.0)).collect();
    if moe.scoring == Scoring::Chosen {
        weights = softmax(weights);
    }
    // A sum of nothing divides by the least number of a half float, as llama.cpp has it.
    let total = weights.iter().sum::<f64>().max(6.103_515_625e-5);
    let divisor = if moe.normalize { total } else { 1.0 };
    let weights = weights.into_iter().map(|weight| (weight / divisor) as f32 * moe.scale);
    ranked.into_iter().map(|(expert, _)| expert).zip(weights).collect()
}

/// Leaves only experts of the groups whose two best scores have the greatest sums.
fn keep_groups(moe: &Moe, ranked: &mut Vec<(usize, f64)>) {
    let size = (moe.experts / moe.groups).max(1);
    let mut groups: Vec<(usize, f64)> = ranked
        .chunks(size)
        .map(|group| {
            let mut group = group.to_vec();
            group.sort_by(falling);
            group.iter().take(2).map(|(_, score)| score).sum()
        })
        .enumerate()
        .collect();
    groups.sort_by(falling);
    groups.truncate(moe.active_groups);
    ranked.retain(|(expert, _)| groups.iter().any(|(group, _)| *group == expert / size));
}

fn falling(a: &(usize, f64), b: &(usize, f64)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

fn softmax(mut x: Vec<f64>) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter_mut().for_each(|x| *x = (*x - most).exp());
    let total: f64 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= total);
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Activation;

    fn moe(scoring: Scoring) -> Moe {
        Moe {
            router: 0,
            router_bias: None,
            selection_bias: None,
            gate: 0,
            gate_bias: None,
            up: 0,
            up_bias: None,
            down: 0,
            down_bias: None,
            ff: 1,
            experts: 4,
            active: 2,
            groups: 1,
            active_groups: 1,
            activation: Activation::Silu,
            scoring,
            normalize: false,
            scale: 1.0,
        }
    }

    fn close(found: &[(usize, f32)], wanted: &[(usize, f32)]) {
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for ((expert, weight), (other, expected)) in found.iter().zip(wanted) {
            assert_eq!(expert, other, "{found:?}");
            assert!((weight - expected).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn weights_are_a_softmax_over_all_or_over_the_chosen() {
        let logits = [0.0, 3.0_f32.ln(), 2.0_f32.ln(), 0.0];
        close(&route(&moe(Scoring::Softmax), &logits, None), &[(1, 3.0 / 7.0), (2, 2.0 / 7.0)]);
        close(&route(&moe(Scoring::Chosen), &logits, None), &[(1, 0.6), (2, 0.4)]);
        let normal = Moe { normalize: true, scale: 2.0, ..moe(Scoring::Softmax) };
        close(&route(&normal, &logits, None), &[(1, 1.2), (2, 0.8)]);
        close(&route(&moe(Scoring::Softmax), &[0.0; 4], None), &[(0, 0.25), (1, 0.25)]);
    }

    #[test]
    fn a_selection_bias_chooses_and_does_not_weigh() {
        let chosen = route(&moe(Scoring::Sigmoid), &[0.0; 4], Some(&[0.0, 0.1, 0.0, 0.2]));
        close(&chosen, &[(3, 0.5), (1, 0.5)]);
    }

    #[test]
    fn groups_are_chosen_by_their_two_best() {
        let grouped = Moe { groups: 2, active_groups: 1, ..moe(Scoring::Chosen) };
        // The best expert of all stands in the weaker group.
        close(&route(&grouped, &[5.0, -9.0, 2.0, 2.0], None), &[(2, 0.5), (3, 0.5)]);
    }
}
