//! What a handful of samples says: the middle one and how far the others lie from it.

/// The median, the least and the most of some values, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// `None` for no values.
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median =
            if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper };
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        Some(Spread { median, least, most, count: sorted.len() })
    }

    /// Of the quotients pair by pair, for as many pairs as there are.
    pub(crate) fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
        Spread::of(&ours.iter().zip(theirs).map(|(a, b)| a / b).collect::<Vec<_>>())
    }
}

/// The median, `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_spread() {
        let spread = Spread { median: 2.0, least: 1.0, most: 3.0, count: 3 };
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(spread));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let spread = Spread::of_ratios(&[20.0, 40.0, 90.0], &[10.0, 10.0, 30.0, 1.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most, spread.count), (3.0, 2.0, 4.0, 3));
    }
}
