//! The losses of different pairs, added.

use super::buffers::Buffer;
use super::compose::{self, Allowance, MAX_POINTS, Wrapped};
use super::discretize::{Atom, Bound};
use super::lattice::{Lattice, WHOLE};
use super::outcome_sums;

/// The composed releases of one pair.
pub(crate) struct Summand {
    pub(crate) lattice: Lattice,
    /// True if all losses lie on the lattice, so that none was rounded.
    pub(crate) whole: bool,
    /// A loss that stays a lattice point where others were rounded: the largest of all, where there is one.
    pub(crate) anchor: f64,
}

/// The sum of the losses of `summands` and of `outcomes`, as a lattice and outcomes to add to it.
///
/// Losses on a lattice of their own may lie far apart: a common lattice as coarse as theirs would round all others. While
/// they take few values they stay outcomes; otherwise the common lattice divides the coarsest of theirs into parts no
/// longer than the steps of the others, or than `finest` where all losses lie on lattices of their own.
pub(crate) fn combine(
    bound: Bound,
    mut summands: Vec<Summand>,
    mut outcomes: Vec<Atom>,
    finest: f64,
    (allowance, tilt): (Allowance, f64),
    wrapped: &mut Wrapped,
) -> (Option<Lattice>, Vec<Atom>) {
    let alone = summands.len() == 1 && outcomes.len() == 1;
    if !alone {
        summands.sort_by_key(|summand| summand.lattice.masses.len());
        summands.retain(|summand| {
            if !summand.whole {
                return true;
            }
            let values: Vec<Atom> = summand.lattice.atoms().collect();
            let sum = outcome_sums::sum(bound, &outcomes, &values);
            let stays = sum.is_none();
            if let Some(sum) = sum {
                outcomes = sum;
            }
            stays
        });
    }
    if summands.is_empty() {
        let point = Lattice {
            tilt,
            origin: 0.0,
            step: 1.0,
            masses: Buffer::from([1.0].as_slice()),
            log_scale: 0.0,
        };
        return (Some(point), outcomes);
    }
    let step = common_step(&summands, finest);
    let mut parts = summands.into_iter().map(|summand| {
        let lattice = summand.lattice;
        if lattice.step == step {
            return lattice;
        }
        let atoms: Vec<Atom> = lattice.atoms().collect();
        let anchor = if summand.whole {
            lattice.origin
        } else {
            summand.anchor
        };
        Lattice::new(bound, &atoms, lattice.tilt, (step, anchor), WHOLE).0
    });
    let mut total = parts.next();
    for part in parts {
        total = total.map(|total| {
            // The window holds both supports whole: nothing wraps.
            let bottom = total.origin + part.origin;
            let points = (total.masses.len() + part.masses.len()) as f64;
            let mut total = compose::convolve(&total, &part, bottom, bottom + points * step);
            trim(&mut total, allowance, wrapped);
            total
        });
    }
    (total, outcomes)
}

/// The distance of the lattice on which the losses are added.
fn common_step(summands: &[Summand], finest: f64) -> f64 {
    if let [only] = summands {
        return only.lattice.step;
    }
    let coarsest = |whole: bool| {
        let steps = summands.iter().filter(|summand| summand.whole == whole);
        steps.map(|summand| summand.lattice.step).fold(0.0, f64::max)
    };
    let (gap, rounded) = (coarsest(true), coarsest(false));
    // A step below this asks for more points than a transform has.
    let reach: f64 = summands
        .iter()
        .map(|summand| summand.lattice.step * summand.lattice.masses.len() as f64)
        .sum();
    let least = if rounded > 0.0 { rounded } else { finest }.max(reach / (0.9 * MAX_POINTS));
    if gap > least {
        gap / (gap / least).ceil()
    } else {
        least
    }
}

/// Cuts the ends of a lattice that hold next to nothing.
fn trim(lattice: &mut Lattice, allowance: Allowance, wrapped: &mut Wrapped) {
    let spare = allowance.log_tilted_mass.exp();
    let mut below = 0.0;
    let first = lattice.masses.iter().position(|mass| {
        below += mass;
        below > spare
    });
    if let Some(first) = first.filter(|first| *first > 0) {
        // PRIVACY: dropped, and counted as what an upper bound may lack. (Moving it up with its tilted mass would lose
        // real mass.)
        let dropped: f64 = lattice.masses[..first].iter().sum();
        lattice.origin += first as f64 * lattice.step;
        lattice.masses.keep(first, lattice.masses.len());
        wrapped.left_out += dropped;
    }
    let log_mass =
        |index: usize, mass: f64| mass.ln() + lattice.log_scale - lattice.tilt * lattice.loss(index);
    let mut keep = lattice.masses.len();
    let mut above = 0.0;
    while keep > 1 {
        let here = log_mass(keep - 1, lattice.masses[keep - 1]).exp();
        if above + here > allowance.log_mass.exp() || lattice.masses[keep - 1] > spare {
            break;
        }
        above += here;
        keep -= 1;
    }
    lattice.masses.keep(0, keep);
    wrapped.above += above;
}
