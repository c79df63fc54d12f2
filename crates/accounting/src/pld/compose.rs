//! Composition: level by level, on lattices that grow coarser as the loss grows wider.
//!
//! `T = d_0 + 16 d_1 + 16^2 d_2 + ...` (or with divisors of `T` near 16, which leave no remainder). At level `k` the base
//! is the distribution of `16^k` releases; it enters the
//! result `d_k` times and its 16th power, put on a lattice four times as coarse, is the base of the next level.
//! The distance of the lattice grows as fast as the standard deviation, so each level adds the same small error
//! and needs the same few points, whatever `T` is: a million rounds cost twice as much as a thousand. For an upper bound
//! the coarser lattice is made of the spectrum, so that only a quarter of it is transformed back.
//!
//! Transforms are circular. Mass above the window of the losses that matter comes back at its lower end, where
//! it would count for too little: its Chernoff bound is added to the infinite losses. What
//! comes back elsewhere counts for too much, which is safe for an upper bound; for a lower bound its tilted
//! Chernoff bound is subtracted.
//!
//! # Source
//! Koskela, Jalko, Honkela (2020) for Fourier accounting; Doroshenko et al. (2022) for connect-the-dots; Ghazi et
//! al. (2022) for composing on a lattice that evolves. The tilt and the bounds of the wrapped mass are ours.

use super::connect_the_dots::PointSplit;
use super::discretize::Bound;
use super::fourier::{self, Spectrum};
use super::lattice::{Cut, Lattice};
use super::loss_range::{Sum, Tails};

/// Releases per level, about, and the growth of the lattice, its square root.
const RADIX: u64 = 16;
pub(crate) const GROWTH: usize = 4;
/// No transform is longer; where a window needs more points the lattice is coarser and the bound wider.
pub(super) const MAX_POINTS: f64 = (1u64 << 21) as f64;
/// The longest transform of a first look, and of delta at epsilon 0, which a calibration asks for many times.
pub(super) const MAX_COARSE_POINTS: f64 = (1u64 << 18) as f64;
pub(super) const MAX_POINTS_AT_ZERO: f64 = (1u64 << 19) as f64;

/// Points that a window needs beyond the losses that matter: it starts up to six below them, and shares of its last four
/// points may go to its first.
const SLACK: usize = 16;

/// Bounds on the mass that wrapped around at the ends of windows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wrapped {
    /// Mass of `P` at losses above.
    pub(crate) above: f64,
    /// Tilted mass that came back on either side.
    pub(crate) tilted: f64,
    /// Tilted mass that was left out before it could.
    pub(crate) left_out: f64,
}

impl Wrapped {
    /// Counts what was cut off a release that is composed `count` times.
    pub(crate) fn cut(&mut self, cut: Cut, count: u64) {
        self.above += count as f64 * cut.above;
        self.left_out += count as f64 * cut.tilted_below;
    }
}

/// The mass that may leave the windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// `ln` of the mass of `P`, over the whole composition.
    pub(crate) log_mass: f64,
    /// `ln` of the tilted mass on either side.
    pub(crate) log_tilted_mass: f64,
}

/// Number of releases of each level that make one of the next; the last level takes the remainder and has no number.
///
/// A divisor near sixteen spares the transform of a remainder.
fn radices(count: u64) -> Vec<u64> {
    let mut rest = count;
    let mut radices = Vec::new();
    while rest > 24 {
        let near = [16, 15, 17, 14, 18, 20, 13, 19, 12, 21, 22, 23, 24];
        let radix = near
            .into_iter()
            .find(|radix| rest.is_multiple_of(*radix))
            .unwrap_or(RADIX);
        radices.push(radix);
        rest /= radix;
    }
    radices
}

/// Number of releases, at least `min` of `count`, to leave out so that the others have few remainders.
pub(crate) fn convenient(count: u64, min: u64) -> u64 {
    let remainders = |count: u64| {
        let mut rest = count;
        let mut remainders = 0;
        for radix in radices(count) {
            remainders += u64::from(!rest.is_multiple_of(radix));
            rest /= radix;
        }
        remainders
    };
    (min..min + 4)
        .filter(|apart| *apart < count)
        .min_by_key(|apart| remainders(count - apart))
        .unwrap_or(min)
}

/// Levels that `count` releases take.
pub(crate) fn levels(count: u64) -> u32 {
    radices(count).len() as u32 + 1
}

/// The smallest distance of the lattice that keeps every level of `count` releases within a transform of `max_points`.
pub(super) fn min_step(
    tails: &Tails,
    count: u64,
    allowance: Allowance,
    growth: usize,
    max_points: f64,
) -> f64 {
    let step = |releases: u64, growth: f64| {
        let (bottom, top) = range(tails, releases, count, allowance);
        (top - bottom) / (0.9 * max_points * growth)
    };
    let mut releases = 1u64;
    let mut min = step(1, 1.0);
    for (level, radix) in radices(count).into_iter().chain([24]).enumerate() {
        releases = releases.saturating_mul(radix).min(count);
        min = min.max(step(releases, (growth as f64).powi(level as i32)));
    }
    min
}

/// Composes `count` releases of the loss in `single`, on lattices `growth` times as coarse at each level. Each of them holds the sums of
/// `kink`, if a loss of one release must not be split.
pub(crate) fn self_compose(
    bound: Bound,
    single: &Lattice,
    count: u64,
    tails: &Tails,
    allowance: Allowance,
    (growth, kink): (usize, Option<f64>),
) -> (Lattice, Wrapped) {
    let mut wrapped = Wrapped::default();
    let aligned = |lattice: Lattice, releases: u64| match kink {
        Some(kink) => lattice.aligned(releases as f64 * kink, growth),
        None => lattice,
    };
    let mut base = aligned(single.clone(), 1);
    let mut result: Option<Lattice> = None;
    let mut rest = count;
    let mut releases = 1u64;
    let mut radices = radices(count).into_iter();
    // result = result * base^digit and base = base^radix, as convolutions, until count = sum of digit * releases
    while rest > 0 {
        // The last level takes all that remains.
        let (digit, radix) = radices.next().map_or((rest, rest), |radix| (rest % radix, radix));
        rest = if digit == rest { 0 } else { rest / radix };
        let composed = if rest == 0 {
            count
        } else {
            count % (releases * radix)
        };
        let mut needed = 0.0f64;
        let mut window = |releases: u64| {
            let (bottom, top) = range(tails, releases, count, allowance);
            needed = needed.max((top - bottom) / base.step);
            bottom
        };
        // A single distribution needs no transform.
        if digit == 1 && rest == 0 && result.is_none() {
            return (base, wrapped);
        }
        let result_bottom = (digit > 0).then(|| window(composed));
        let next_bottom = (rest > 0).then(|| window(releases * radix));
        // The lattice of the next level is coarser at once.
        let coarser = if rest > 0 { growth } else { 1 };
        let spectrum = Spectrum::new(&base.masses, fourier::length(needed as usize + SLACK));
        let mut count_wrapped = || {
            wrapped.above += allowance.log_mass.exp();
            wrapped.tilted += 2.0 * allowance.log_tilted_mass.exp();
        };
        // A power of the base, times what is held of earlier levels.
        let raised = |power: u64, spectrum: Spectrum, held: Option<&Lattice>, bottom: f64| {
            let length = spectrum.length;
            let mut product = spectrum.raised(power);
            let mut origin = power as f64 * base.origin;
            let mut log_scale = power as f64 * base.log_scale;
            if let Some(held) = held {
                product = product.times(&Spectrum::new(&held.masses, length));
                origin += held.origin;
                log_scale += held.log_scale;
            }
            let window = Window {
                origin,
                log_scale,
                bottom,
            };
            windowed(bound, product, &base, window, coarser)
        };
        if let (Some(bottom), None) = (result_bottom, next_bottom) {
            count_wrapped();
            result = Some(raised(digit, spectrum, result.as_ref(), bottom));
            continue;
        }
        if let Some(bottom) = result_bottom {
            count_wrapped();
            let sum = raised(digit, spectrum.clone(), result.as_ref(), bottom);
            result = Some(aligned(sum, composed));
        } else if coarser > 1 {
            result = result.map(|held| aligned(held.coarsened(bound, coarser), composed));
        }
        if let Some(bottom) = next_bottom {
            count_wrapped();
            base = aligned(raised(radix, spectrum, None, bottom), releases * radix);
            releases *= radix;
        }
    }
    (result.unwrap_or(base), wrapped)
}

/// Sums of a composition of bulk losses, of a few bulk losses more, and of a few rare ones, all on one lattice.
pub(crate) struct RareTerms<'a> {
    base: &'a Lattice,
    bulk: &'a Lattice,
    rare: &'a Lattice,
    /// Transforms of the three, of a length that suits the last window asked for.
    spectra: Option<Spectra>,
}

struct Spectra {
    base: Spectrum,
    bulk: Spectrum,
    rare: Spectrum,
}

impl<'a> RareTerms<'a> {
    pub(crate) fn new(base: &'a Lattice, bulk: &'a Lattice, rare: &'a Lattice) -> Self {
        Self {
            base,
            bulk,
            rare,
            spectra: None,
        }
    }

    /// The base, `bulk` losses more and `rare` rare ones, in the window from `bottom` to `top`.
    pub(crate) fn sum(&mut self, bulk: u64, rare: u64, (bottom, top): (f64, f64)) -> Lattice {
        let length = fourier::length(((top - bottom) / self.base.step) as usize + SLACK);
        let held = self.spectra.take().filter(|held| held.base.length >= length);
        let spectra = self.spectra.insert(held.unwrap_or_else(|| Spectra {
            base: Spectrum::new(&self.base.masses, length),
            bulk: Spectrum::new(&self.bulk.masses, length),
            rare: Spectrum::new(&self.rare.masses, length),
        }));
        let mut product = spectra.base.clone();
        for (spectrum, count) in [(&spectra.bulk, bulk), (&spectra.rare, rare)] {
            if count > 0 {
                product = product.times(&spectrum.clone().raised(count));
            }
        }
        let (b, r) = (bulk as f64, rare as f64);
        let window = Window {
            origin: self.base.origin + b * self.bulk.origin + r * self.rare.origin,
            log_scale: self.base.log_scale + b * self.bulk.log_scale + r * self.rare.log_scale,
            bottom,
        };
        windowed(Bound::Upper, product, self.base, window, 1)
    }
}

/// The sum of two independent losses on lattices of one step, between losses `bottom` and `top`.
pub(crate) fn convolve(a: &Lattice, b: &Lattice, bottom: f64, top: f64) -> Lattice {
    let length = fourier::length(((top - bottom) / a.step) as usize + SLACK);
    let product = Spectrum::new(&a.masses, length).times(&Spectrum::new(&b.masses, length));
    let window = Window {
        origin: a.origin + b.origin,
        log_scale: a.log_scale + b.log_scale,
        bottom,
    };
    windowed(Bound::Upper, product, a, window, 1)
}

/// Position of a sum of losses: the loss and the scale of the first point of the circle, and the least loss to keep.
#[derive(Clone, Copy)]
struct Window {
    origin: f64,
    log_scale: f64,
    bottom: f64,
}

/// The sum of losses with the spectrum `product`, on a lattice `ratio` times as coarse as that of `like` (on the side of
/// `bound`, where the lattice changes).
fn windowed(bound: Bound, product: Spectrum, like: &Lattice, window: Window, ratio: usize) -> Lattice {
    // PRIVACY: starts below the window, at a coarse point; shares of the last points come back at the first, and all of
    // the last lie above the window, where what wraps is counted.
    let points = ratio as f64;
    let coarse_start = (((window.bottom - window.origin) / like.step - 2.0) / points).floor();
    let at_once = bound == Bound::Upper && ratio > 1;
    let masses = if at_once {
        let split = PointSplit::new(like.tilt, like.step, ratio);
        product.thinned(&split).sequence(coarse_start as i64)
    } else {
        product.sequence((coarse_start * points) as i64)
    };
    let mut lattice = Lattice {
        tilt: like.tilt,
        origin: window.origin + coarse_start * points * like.step,
        step: if at_once { points * like.step } else { like.step },
        masses,
        log_scale: window.log_scale,
    };
    lattice.normalise();
    match bound {
        Bound::Lower if ratio > 1 => lattice.coarsened(bound, ratio),
        Bound::Upper | Bound::Lower => lattice,
    }
}

/// The window of `releases` of `count` releases.
pub(crate) fn range(tails: &Tails, releases: u64, count: u64, allowance: Allowance) -> (f64, f64) {
    let log_share = (releases as f64 / count as f64).ln();
    tails.range(
        Sum::of(releases as f64),
        allowance.log_mass + log_share,
        allowance.log_tilted_mass + log_share,
    )
}

#[cfg(test)]
mod tests {
    use super::super::discretize::Atom;
    use super::super::lattice::WHOLE;
    use super::*;

    /// The coarse lattice of a sum depends only on the points that stay, not on when it is made.
    #[test]
    fn coarser_at_once_is_coarsened_afterwards() {
        let atoms: Vec<Atom> = (0..40)
            .map(|index| Atom {
                loss: 0.013 * f64::from(index) - 0.2,
                log_p: -4.0 - 0.3 * f64::from(index % 11),
            })
            .collect();
        for tilt in [0.0, 2.5] {
            let single = Lattice::new(Bound::Upper, &atoms, tilt, (0.01, 0.0), WHOLE).0;
            let window = Window {
                origin: 6.0 * single.origin,
                log_scale: 6.0 * single.log_scale,
                bottom: 6.0 * single.origin,
            };
            let length = fourier::length(6 * single.masses.len() + SLACK);
            let sum = |ratio: usize| {
                let spectrum = Spectrum::new(&single.masses, length).raised(6);
                windowed(Bound::Upper, spectrum, &single, window, ratio)
            };
            let (fine, coarse) = (sum(1), sum(4));
            let mut atoms: Vec<Atom> = fine.atoms().collect();
            atoms.retain(|atom| atom.log_p > -60.0);
            let after = Lattice::new(Bound::Upper, &atoms, tilt, (0.04, coarse.origin), WHOLE).0;
            for tenth in -12..20 {
                let epsilon = 0.1 * f64::from(tenth);
                let (want, got) = (after.log_delta(epsilon), coarse.log_delta(epsilon));
                assert!(
                    (want.exp() - got.exp()).abs() < 1e-12,
                    "{tilt} {epsilon}: {want} {got}"
                );
                // And it errs above.
                assert!(fine.log_delta(epsilon).exp() <= got.exp() + 1e-13);
            }
        }
    }
}
