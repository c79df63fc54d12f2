//! The terms of a guarantee: the relation between populations, the sampling of users and the recipe.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The relation between the two populations that a guarantee compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// All data of one user is added or removed.
    AddOrRemoveOne,
    /// All data of one user is replaced by another's; the number of users is public. Costs more than
    /// add-or-remove: one replacement is a removal and an addition.
    ReplaceOne,
    /// All that one user contributes is set to zero; the rounds take place as before. The relation of mechanisms whose
    /// schedule may depend on which users are present (\[Gboard\] Appendix A).
    ZeroOut,
}

impl Adjacency {
    /// Maximum distance by which a sum of updates of norm at most 1 moves.
    pub(crate) fn sensitivity_factor(self) -> f64 {
        match self {
            Adjacency::AddOrRemoveOne | Adjacency::ZeroOut => 1.0,
            Adjacency::ReplaceOne => 2.0,
        }
    }
}

impl fmt::Display for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Adjacency::AddOrRemoveOne => "add-or-remove one user",
            Adjacency::ReplaceOne => "replace one user",
            Adjacency::ZeroOut => "zero out one user",
        })
    }
}

/// The way in which the users of a round are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Each user joins independently with a fixed probability.
    Poisson,
    /// A uniform cohort of fixed size without replacement, fresh each round.
    FixedSize,
    /// Poisson sampling whose cohort is cut to a maximum size.
    TruncatedPoisson,
    /// Every user takes part in every round.
    FullParticipation,
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sampling::Poisson => "Poisson sampling",
            Sampling::FixedSize => "fixed-size cohorts without replacement",
            Sampling::TruncatedPoisson => "truncated Poisson sampling",
            Sampling::FullParticipation => "full participation",
        })
    }
}

/// The method that turns events into a guarantee. Every recipe gives an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Recipe {
    /// The moments accountant of 2016 as \[DPLM\] used it: moments 1 to 32 and the classic conversion. For
    /// reproducing printed numbers; [`Recipe::Rdp`] is tighter.
    #[serde(rename = "moments-2016")]
    Moments2016,
    /// Renyi divergences on [`crate::rdp::default_orders`] and the improved conversion.
    Rdp,
    /// Privacy loss distributions, composed numerically: the tightest for most events, with a lower
    /// bound beside it.
    Pld,
    /// Zero-concentrated differential privacy and the improved conversion over continuous orders; refuses sampled
    /// events.
    Zcdp,
    /// The exact trade-off of composed Gaussians; refuses everything else.
    ExactGaussian,
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recipe::Moments2016 => "moments accountant of 2016",
            Recipe::Rdp => "RDP upper bound",
            Recipe::Pld => "PLD upper bound",
            Recipe::Zcdp => "zCDP upper bound",
            Recipe::ExactGaussian => "exact Gaussian",
        })
    }
}
