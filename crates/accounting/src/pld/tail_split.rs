//! Rare large losses, counted apart from the bulk.
//!
//! A loss above a threshold is rare when next to none of the releases has one. With `B` and `R` the outcomes below and
//! above it, `(B + R)^T = sum_k C(T, k) B^(T-k) R^k` without any loss: which part an outcome belongs to can be told from
//! it. The bulk is narrow and needs a fine lattice, the rare losses reach far and need a coarse one; and a tilt that
//! suits the terms that decide is not spoiled by those that do not, which Chernoff's bound settles.

use super::compose;
use super::loss_range::{Probe, Sum};
use crate::special::LogSum;

/// Expected number of rare losses, at most.
pub(crate) const EXPECTED: f64 = 1e-4;
/// More than so many rare losses at once have no term of their own.
const MAX_RARE: u64 = 8;
/// Compositions of fewer releases are parted only where they have to be.
pub(super) const MIN_RELEASES: u64 = 64;
/// Share of the range of losses that has to be rare for a lattice so much shorter to be worth the terms.
pub(super) const WORTH: f64 = 0.6;
/// Terms whose Chernoff bound is so far below delta need not be computed.
const LOG_SETTLED: f64 = -22.0;

/// One direction of a release, parted at a threshold.
#[derive(Debug, Clone)]
pub(crate) struct Parted {
    /// Losses up to here are bulk.
    pub(crate) threshold: f64,
    pub(crate) bulk: Probe,
    pub(crate) rare: Option<Probe>,
    /// Number of `releases` that are not composed with the others but added at the end: at least the number of rare
    /// losses that are followed.
    pub(crate) apart: u64,
    /// Largest number of rare losses that is followed.
    pub(crate) max_rare: u64,
    releases: u64,
}

/// A number of rare losses, and `ln` of the number of ways to choose their releases.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    pub(crate) rare: u64,
    pub(crate) log_ways: f64,
    /// Chernoff's bounds on the mass at losses above `epsilon`, as tilts and exponents: `e^{exponent - tilt epsilon}`.
    bounds: Vec<(f64, f64)>,
}

impl Term {
    /// The losses of so many releases of which the term's have a rare one.
    pub(crate) fn sum(&self, releases: u64) -> Sum {
        Sum {
            bulk: releases as f64 - self.rare as f64,
            rare: self.rare as f64,
            log_ways: self.log_ways,
        }
    }

    /// `ln` of Chernoff's bound at `epsilon`.
    pub(crate) fn log_bound(&self, epsilon: f64) -> f64 {
        self.bounds
            .iter()
            .map(|(tilt, exponent)| exponent - tilt * epsilon)
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns true if that bound suffices for the term.
    pub(crate) fn is_settled(&self, epsilon: f64, log_delta: f64) -> bool {
        self.log_bound(epsilon) < log_delta + LOG_SETTLED
    }

    /// The term of losses that were moved to the points of lattices, which raises the cumulant by `spread` per squared
    /// tilt.
    pub(crate) fn spread_by(mut self, spread: f64) -> Self {
        for (tilt, exponent) in &mut self.bounds {
            *exponent += spread * *tilt * (*tilt + 1.0);
        }
        self
    }
}

impl Parted {
    /// Everything is bulk.
    pub(crate) fn whole(probe: &Probe, releases: u64) -> Self {
        Self {
            threshold: f64::INFINITY,
            bulk: probe.clone(),
            rare: None,
            apart: 0,
            max_rare: 0,
            releases,
        }
    }

    /// Parts the losses so that at most `expected` of the releases have a rare one, in the mean, and more than are
    /// followed have a mass of `e^log_mass` at most; if a share of `worth` of their range is rare.
    pub(crate) fn new(probe: &Probe, releases: u64, expected: f64, log_mass: f64, worth: f64) -> Self {
        // (T w)^k / k! at k = MAX_RARE + 1 is what is left out.
        let expected = expected.min(((log_mass + log_factorial(MAX_RARE + 1)) / (MAX_RARE + 1) as f64).exp());
        let (lowest, highest) = probe.ends();
        let found = probe.rare_above(expected / releases as f64);
        let Some((threshold, mass)) =
            found.filter(|(threshold, _)| highest - threshold > worth * (highest - lowest))
        else {
            return Self::whole(probe, releases);
        };
        let log_expected = (mass * releases as f64).ln();
        let max_rare = (1..MAX_RARE)
            .find(|max_rare| log_more(*max_rare, log_expected) <= log_mass)
            .unwrap_or(MAX_RARE)
            .min(releases);
        let (bulk, rare) = probe.parted(threshold);
        Self {
            threshold,
            bulk,
            rare: Some(rare),
            apart: compose::convenient(releases, max_rare),
            max_rare,
            releases,
        }
    }

    /// `ln` of a bound on the mass of more rare losses than are followed, when one has the mass `mass`.
    pub(crate) fn log_more(&self, mass: f64) -> f64 {
        if self.max_rare == self.releases {
            return f64::NEG_INFINITY;
        }
        log_more(self.max_rare, (mass * self.releases as f64).ln())
    }

    /// The terms of the sum over the number of rare losses; none where nothing was parted.
    pub(crate) fn terms(&self, best_tilt: f64) -> Vec<Term> {
        let Some(rare) = &self.rare else {
            return Vec::new();
        };
        let releases = self.releases as f64;
        // Bulk losses that are cut off far below epsilon are bounded by the largest tilts only.
        let tilts: Vec<(f64, f64, f64)> = (-6..=24)
            .map(|power| best_tilt * 1.5f64.powi(power))
            .map(|tilt| (tilt, self.bulk.cumulant(tilt), rare.cumulant(tilt)))
            .collect();
        (0..=self.max_rare)
            .map(|rare| {
                let count = rare as f64;
                let log_choices: f64 = (0..rare).map(|i| (releases - i as f64).ln()).sum();
                let log_ways = log_choices - log_factorial(rare);
                let bound = |&(tilt, bulk, of_rare): &(f64, f64, f64)| {
                    let of_rare = if rare > 0 { count * of_rare } else { 0.0 };
                    (tilt, log_ways + (releases - count) * bulk + of_rare)
                };
                Term {
                    rare,
                    log_ways,
                    bounds: tilts.iter().map(bound).collect(),
                }
            })
            .collect()
    }

    /// `ln` of the mass of terms, tilted.
    pub(crate) fn log_mass(&self, terms: &[&Term], tilt: f64) -> f64 {
        let bulk = self.bulk.cumulant(tilt);
        let of_rare = self.rare.as_ref().map_or(0.0, |rare| rare.cumulant(tilt));
        let mut sum = LogSum::new();
        for term in terms {
            let count = term.rare as f64;
            let rare = if term.rare > 0 { count * of_rare } else { 0.0 };
            sum.add(term.log_ways + (self.releases as f64 - count) * bulk + rare);
        }
        sum.get()
    }
}

fn log_factorial(n: u64) -> f64 {
    (2..=n).map(|i| (i as f64).ln()).sum()
}

/// `ln` of a bound on the probability of more than `max_rare` events of which `e^log_expected` are expected.
fn log_more(max_rare: u64, log_expected: f64) -> f64 {
    (max_rare + 1) as f64 * log_expected - log_factorial(max_rare + 1)
}
