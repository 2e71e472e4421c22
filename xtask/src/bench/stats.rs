//! Medians and what they leave out.

/// Measurements of one thing, in the order in which they were taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series(Vec<f64>);

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Series {
    /// The median; of an even number, the mean of the middle two.
    pub(super) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
            (_, None) => f64::NAN,
            (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => (low + high) / 2.0,
            (_, Some(high)) => *high,
        }
    }

    /// Round by round, how often the other's value goes into ours.
    pub(super) fn over(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// Round by round.
    pub(super) fn values(&self) -> &[f64] {
        &self.0
    }

    /// `12.3 (11.9-12.8)`
    pub(super) fn show(&self, digits: usize) -> String {
        let sorted = self.sorted();
        match (sorted.first(), sorted.last()) {
            (Some(least), Some(most)) => {
                format!("{:.digits$} ({least:.digits$}-{most:.digits$})", self.median())
            }
            _ => "–".to_owned(),
        }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::Series;

    #[test]
    fn medians_ranges_and_paired_ratios() {
        let ours: Series = [30.0, 10.0, 20.0].into_iter().collect();
        let theirs: Series = [10.0, 10.0, 10.0].into_iter().collect();
        assert_eq!(ours.median(), 20.0);
        assert_eq!(ours.show(1), "20.0 (10.0-30.0)");
        assert_eq!(ours.over(&theirs), [3.0, 1.0, 2.0].into_iter().collect());
        let even: Series = [4.0, 1.0, 2.0, 3.0].into_iter().collect();
        assert_eq!(even.median(), 2.5);
        assert_eq!([].into_iter().collect::<Series>().show(1), "–");
    }
}
