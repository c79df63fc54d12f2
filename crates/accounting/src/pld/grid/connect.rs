//! Distributions on a grid from points of a hockey-stick curve.

use super::{GridError, GridPld, out_of_range, points};

impl GridPld {
    /// The distribution whose curve connects the points `(step * epsilons[i], deltas[i])` by chords in `e^epsilon`, after the point
    /// `(0, 1)` and up to a constant (Doroshenko et al., "Connect the Dots", 2022).
    ///
    /// The curve of a mechanism is convex in `e^epsilon`, so its chords are an upper bound. Points that rounding has put below the chord of
    /// their neighbours never make a probability negative: the bound goes above them.
    ///
    /// # Errors
    /// Lists of unequal length or without entries; epsilons that do not rise; deltas that rise or lie outside `[0, 1]`; too many points.
    pub fn connect_the_dots(step: f64, epsilons: &[i64], deltas: &[f64]) -> Result<Self, GridError> {
        if !(step > 0.0 && step.is_finite()) {
            return Err(out_of_range("step", "a finite number > 0", step));
        }
        check(epsilons, deltas)?;
        let (first, last) = (epsilons[0], epsilons[epsilons.len() - 1]);
        let mut probabilities = vec![0.0; points(first, last)?];
        // With `t = e^epsilon`, the chord from point i to i + 1 falls by `fall / t_i` for each unit of `t`. The distribution Q has the mass
        // that the slope loses at a point; P has `t` times it.
        let mut next_fall = 0.0;
        for index in (1..epsilons.len()).rev() {
            let gap = step * (epsilons[index] - epsilons[index - 1]) as f64;
            let drop = deltas[index - 1] - deltas[index];
            let at_least = next_fall * (-gap).exp();
            let fall = (drop / gap.exp_m1()).max(at_least);
            // `e^gap fall` without the overflow of `e^gap`.
            let risen = (drop / -(-gap).exp_m1()).max(next_fall);
            probabilities[(epsilons[index] - first) as usize] = (risen - next_fall).max(0.0);
            next_fall = fall;
        }
        probabilities[0] = (1.0 - deltas[0] - next_fall).max(0.0);
        Self::new(step, first, probabilities, deltas[deltas.len() - 1], true)
    }
}

fn check(epsilons: &[i64], deltas: &[f64]) -> Result<(), GridError> {
    if epsilons.len() != deltas.len() || epsilons.is_empty() {
        return Err(GridError::Lengths {
            what: "epsilons and deltas",
            first: epsilons.len(),
            second: deltas.len(),
        });
    }
    if let Some(&got) = deltas.iter().find(|delta| !(0.0..=1.0).contains(*delta)) {
        return Err(out_of_range(
            "deltas are not between 0 and 1",
            "numbers in [0, 1]",
            got,
        ));
    }
    for (pair, at) in epsilons.windows(2).zip(deltas.windows(2)) {
        if pair[0] >= pair[1] {
            return Err(GridError::Unsorted {
                previous: pair[0],
                next: pair[1],
            });
        }
        if at[0] < at[1] {
            return Err(GridError::RisingDeltas {
                previous: at[0],
                next: at[1],
            });
        }
    }
    Ok(())
}
