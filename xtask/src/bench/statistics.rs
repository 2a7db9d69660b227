//! Medians, percentiles and ratios of samples. Owns the arithmetic; measures and judges nothing. Called by the benches.

use serde::{Deserialize, Serialize};

/// Durations in nanoseconds, or any other positive numbers of one unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn extend(&mut self, other: &Samples) {
        self.0.extend_from_slice(&other.0);
    }

    /// The middle sample, or the mean of the two in the middle; zero of nothing.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        }
    }

    /// The smallest sample: what the machine can do when no other process disturbs it; zero of nothing.
    pub(crate) fn best(&self) -> f64 {
        self.sorted().first().copied().unwrap_or_default()
    }

    /// The smallest sample that at least `percent` of all samples do not exceed (nearest rank); zero of nothing.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.sorted().get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// A ratio of medians and the interval that it lies in with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

const RESAMPLES: usize = 2000;

/// The median of `these` over that of `those`, two samples of each round. The interval is a percentile bootstrap over rounds:
/// both samples of a round stay together, because a slow moment of the machine hits both. The same samples give the
/// same interval.
pub(crate) fn paired(these: &Samples, those: &Samples) -> Interval {
    let rounds: Vec<(f64, f64)> = these.0.iter().copied().zip(those.0.iter().copied()).collect();
    let of = |rounds: &[(f64, f64)]| {
        let (a, b): (Samples, Samples) = (rounds.iter().map(|r| r.0).collect(), rounds.iter().map(|r| r.1).collect());
        ratio(a.median(), b.median())
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut drawn = || {
        // xorshift64: good enough to choose rounds, and the same everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or(0) % rounds.len()
    };
    let ratios: Samples = (0..if rounds.is_empty() { 0 } else { RESAMPLES })
        .map(|_| of(&(0..rounds.len()).map(|_| rounds[drawn()]).collect::<Vec<_>>()))
        .collect();
    let sorted = ratios.sorted();
    let at = |rank: usize| sorted.get(rank).copied().unwrap_or(f64::INFINITY);
    Interval { ratio: of(&rounds), low: at(RESAMPLES / 40), high: at(RESAMPLES - 1 - RESAMPLES / 40) }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(samples: T) -> Self {
        Samples(samples.into_iter().collect())
    }
}

/// `a / b`; infinite where `b` is zero, so that nothing measured never looks like a good result of a quotient.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { f64::INFINITY } else { a / b }
}

/// Three digits after the point are more than any figure here is worth.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        for (values, expected) in [
            (&[][..], 0.0),
            (&[7.0], 7.0),
            (&[3.0, 1.0], 2.0),
            (&[9.0, 1.0, 5.0], 5.0),
            (&[4.0, 1.0, 3.0, 1000.0], 3.5),
        ] {
            assert!((samples(values).median() - expected).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn percentile_is_a_sample_and_ignores_the_rare_outlier() {
        let hundred: Samples = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(0, 1.0), (1, 1.0), (50, 50.0), (95, 95.0), (100, 100.0)] {
            assert!((hundred.percentile(percent) - expected).abs() < 1e-9, "{percent}");
        }
        assert!((samples(&[1.0, 2.0, 3.0]).percentile(95) - 3.0).abs() < 1e-9);
        assert!(samples(&[]).percentile(95).abs() < 1e-9);
    }

    #[test]
    fn ratio_to_nothing_is_infinite() {
        assert!(ratio(1.0, 0.0).is_infinite());
        assert!((ratio(1.0, 4.0) - 0.25).abs() < 1e-9);
    }

    /// Rounds whose machine is slow or fast by turns, the first of a pair `factor` times as slow, with some noise.
    fn rounds(factor: f64, count: u32) -> [Samples; 2] {
        let machine = |round: u32| 100.0 + f64::from(round * 37 % 50);
        let noise = |round: u32| 1.0 + f64::from(round * 61 % 21) / 1000.0;
        [
            (0..count).map(|round| machine(round) * factor * noise(round)).collect(),
            (0..count).map(|round| machine(round) * noise(round + 7)).collect(),
        ]
    }

    #[test]
    fn an_interval_holds_the_ratio_and_tells_slower_from_equal() {
        for (factor, above, below) in [(1.0, 0.95, 1.05), (1.1, 1.05, 1.16), (0.9, 0.85, 0.95)] {
            let [these, those] = rounds(factor, 100);
            let interval = paired(&these, &those);
            assert!(interval.low <= interval.ratio && interval.ratio <= interval.high, "{interval:?}");
            assert!(interval.low > above && interval.high < below, "{factor}: {interval:?}");
            assert_eq!(interval, paired(&these, &those));
        }
    }

    #[test]
    fn an_interval_of_nothing_shows_nothing() {
        assert!(paired(&samples(&[]), &samples(&[])).high.is_infinite());
    }

    #[test]
    fn rounding_keeps_three_digits() {
        assert!((rounded(0.600_49) - 0.6).abs() < 1e-9);
        assert!((rounded(12.345_678) - 12.346).abs() < 1e-9);
    }
}
