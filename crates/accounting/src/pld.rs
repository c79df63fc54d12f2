//! Privacy loss distributions: numerical composition with a rigorous upper and lower bound.
//!
//! A release is reduced to a pair of distributions `(P, Q)` that is at least as easy to tell apart as any two
//! neighbours' outputs; its privacy loss is `ln P/Q` under `P`. The loss of a composition is the sum of independent
//! losses, and `delta(epsilon) = E (1 - e^{epsilon - L})_+`.
//!
//! The upper bound puts each loss on the two neighbouring points of a lattice so that both `P` and `Q` keep their
//! mass (connect the dots: the hockey-stick curve is replaced by its chords, which lie above it). The lower bound
//! merges outcomes, which is a post-processing, and rounds losses down. Both err by the square of the lattice
//! distance.
//!
//! Rare large losses are counted apart: how many of the releases have one is told apart, the others are composed on a fine
//! lattice, and the few are added on a coarse one. So a delta that a single release decides is as precise as one that all
//! of them share.
//!
//! The two directions `(P, Q)` and `(Q, P)` are composed apart; the larger epsilon counts.
//!
//! Numbers are kept exponentially tilted towards the losses that decide at the target, so a delta of 1e-30 or an
//! epsilon of 10,000 is as precise as any other; [`compose`](self) works level by level, so that a million rounds
//! take milliseconds.

mod buffers;
mod combine;
mod compose;
mod composition;
mod connect_the_dots;
mod convolve;
mod discretize;
mod events;
mod fourier;
mod gaussian_grid;
pub mod grid;
mod integrate_one;
mod lattice;
mod loss_range;
mod mixture;
mod pair;
mod query;
mod readout;
mod spectrum;
mod tail_split;
mod tilt_search;

pub(crate) use composition::Composition;
pub(crate) use discretize::Bound;
pub(crate) use mixture::GaussianMixtures;
pub(crate) use pair::Pair;
pub(crate) use query::ACCURACY;
