//! Comparing rows of logits.

/// Kullback-Leibler divergence from a reference, summed over the positions of a text.
#[derive(Debug, Clone, Default)]
pub struct Divergence {
    each: Vec<f64>,
    agreed: u32,
}

impl Divergence {
    /// Compares one position: `expected` and `found` are logits over the same vocabulary.
    pub fn add(&mut self, expected: &[f32], found: &[f32]) {
        assert_eq!(expected.len(), found.len(), "logits over different vocabularies");
        for (whose, row) in [("the reference", expected), ("the compared", found)] {
            // A NaN would vanish in the maxima below and count as no divergence at all.
            assert!(row.iter().all(|logit| logit.is_finite()), "{whose} has logits that are none");
        }
        let kl = divergence(expected, found);
        self.each.push(kl);
        self.agreed += u32::from(best(expected) == best(found));
    }

    /// Mean over the positions, in nats.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.each.iter().sum::<f64>() / f64::from(self.positions().max(1))
    }

    /// The position's in the middle, in nats: what a few that went another way do not move.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut each = self.each.clone();
        each.sort_by(f64::total_cmp);
        each.get(each.len() / 2).copied().unwrap_or(0.0)
    }

    /// The worst position's, in nats.
    #[must_use]
    pub fn worst(&self) -> f64 {
        self.each.iter().copied().fold(0.0, f64::max)
    }

    /// Share of positions at which both think the same token likeliest, in percent.
    #[must_use]
    pub fn agreement(&self) -> f64 {
        f64::from(self.agreed) * 100.0 / f64::from(self.positions().max(1))
    }

    /// Positions compared.
    #[must_use]
    pub fn positions(&self) -> u32 {
        u32::try_from(self.each.len()).unwrap_or(u32::MAX)
    }
}

fn divergence(expected: &[f32], found: &[f32]) -> f64 {
    let (p, q) = (log_sum_exp(expected), log_sum_exp(found));
    let terms = expected.iter().zip(found).map(|(a, b)| {
        let (a, b) = (f64::from(*a) - p, f64::from(*b) - q);
        a.exp() * (a - b)
    });
    terms.sum::<f64>().max(0.0)
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum::<f64>().ln()
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|a, b| {
        logits.get(*a).partial_cmp(&logits.get(*b)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

#[cfg(test)]
mod tests {
    use super::Divergence;

    #[test]
    fn equal_up_to_a_constant_is_no_divergence() {
        let mut all = Divergence::default();
        all.add(&[1.0, 2.0, -3.0], &[101.0, 102.0, 97.0]);
        assert!(all.mean() < 1e-12 && all.agreement() == 100.0);
    }

    #[test]
    fn a_known_case_by_hand() {
        // p = (3/4, 1/4), q = (1/4, 3/4): KL = ln 3 / 2.
        let mut all = Divergence::default();
        all.add(&[3_f32.ln(), 0.0], &[0.0, 3_f32.ln()]);
        assert!((all.mean() - 3_f64.ln() / 2.0).abs() < 1e-7, "{}", all.mean());
        assert!(all.agreement() == 0.0 && all.worst() == all.mean());
    }

    #[test]
    fn one_position_does_not_move_the_median() {
        let mut all = Divergence::default();
        all.add(&[1.0, 2.0], &[1.0, 2.0]);
        all.add(&[1.0, 2.0], &[9.0, 2.0]);
        all.add(&[5.0, 2.0], &[5.0, 2.0]);
        assert!(all.median() < 1e-12 && all.mean() > 1.0, "{} {}", all.median(), all.mean());
    }

    #[test]
    #[should_panic(expected = "the compared has logits that are none")]
    fn a_row_that_is_not_a_number_is_no_agreement() {
        Divergence::default().add(&[1.0, 2.0], &[f32::NAN, 2.0]);
    }

    #[test]
    #[should_panic(expected = "the reference has logits that are none")]
    fn nor_is_one_that_is_infinite() {
        Divergence::default().add(&[f32::INFINITY, 2.0], &[1.0, 2.0]);
    }
}
