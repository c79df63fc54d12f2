//! Composition: level by level, on lattices that grow coarser as the loss grows wider.
//!
//! `T = d_0 + 16 d_1 + 16^2 d_2 + ...` (or with divisors of `T` near 16, which leave no remainder). At level `k` the base
//! is the distribution of `16^k` releases; it enters the
//! result `d_k` times and its 16th power, put on a lattice four times as coarse, is the base of the next level.
//! The distance of the lattice grows as fast as the standard deviation, so each level adds the same small error
//! and needs the same few points, whatever `T` is: a million rounds cost twice as much as a thousand.
//!
//! Transforms are circular. Mass above the window of the losses that matter comes back at its lower end, where
//! it would count for too little: its Chernoff bound is added to the infinite losses. What
//! comes back elsewhere counts for too much, which is safe for an upper bound; for a lower bound its tilted
//! Chernoff bound is subtracted.
//!
//! # Source
//! Koskela, Jalko, Honkela (2020) for Fourier accounting; Doroshenko et al. (2022) for connect-the-dots; Ghazi et
//! al. (2022) for composing on a lattice that evolves. The tilt and the bounds of the wrapped mass are ours.

use realfft::num_complex::Complex64;

use super::atoms::Bound;
use super::fourier::{Fourier, power};
use super::lattice::{Cut, Lattice};
use super::probe::{Sum, Tails};

/// Releases per level, about, and the growth of the lattice, its square root.
const RADIX: u64 = 16;
pub(crate) const GROWTH: usize = 4;
/// No transform is longer; where a window needs more points the lattice is coarser and the bound wider.
const MAX_POINTS: f64 = (1u64 << 21) as f64;

/// What wrapped around at the ends of windows, as bounds.
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

/// How much mass may leave the windows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// `ln` of the mass of `P`, over the whole composition.
    pub(crate) log_mass: f64,
    /// `ln` of the tilted mass on either side.
    pub(crate) log_tilted_mass: f64,
}

/// How many releases of a level make one of the next, for each level but the last, which takes what remains.
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

/// How many of `count` releases, at least `least` of them, to leave out so that the others have few remainders.
pub(crate) fn convenient(count: u64, least: u64) -> u64 {
    let remainders = |count: u64| {
        let mut rest = count;
        let mut remainders = 0;
        for radix in radices(count) {
            remainders += u64::from(!rest.is_multiple_of(radix));
            rest /= radix;
        }
        remainders
    };
    (least..least + 4)
        .filter(|apart| *apart < count)
        .min_by_key(|apart| remainders(count - apart))
        .unwrap_or(least)
}

/// Levels that `count` releases take.
pub(crate) fn levels(count: u64) -> u32 {
    radices(count).len() as u32 + 1
}

/// The smallest distance of the lattice that keeps every level of `count` releases within the longest transform.
pub(crate) fn least_step(tails: &Tails, count: u64, allowance: Allowance, growth: usize) -> f64 {
    let step = |releases: u64, growth: f64| {
        let (bottom, top) = range(tails, releases, count, allowance);
        (top - bottom) / (0.9 * MAX_POINTS * growth)
    };
    let mut releases = 1u64;
    let mut least = step(1, 1.0);
    for (level, radix) in radices(count).into_iter().chain([24]).enumerate() {
        releases = releases.saturating_mul(radix).min(count);
        least = least.max(step(releases, (growth as f64).powi(level as i32)));
    }
    least
}

/// Composes `count` releases of the loss in `single`, on lattices `growth` times as coarse at each level.
pub(crate) fn self_compose(
    bound: Bound,
    single: &Lattice,
    count: u64,
    tails: &Tails,
    allowance: Allowance,
    growth: usize,
) -> (Lattice, Wrapped) {
    let mut wrapped = Wrapped::default();
    let mut base = single.clone();
    let mut result: Option<Lattice> = None;
    let mut rest = count;
    let mut releases = 1u64;
    let mut radices = radices(count).into_iter();
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
        let mut fourier = Fourier::new(Fourier::length(needed as usize + 8));
        let spectrum = fourier.spectrum(&base.masses);
        let mut count_wrapped = || {
            wrapped.above += allowance.log_mass.exp();
            wrapped.tilted += 2.0 * allowance.log_tilted_mass.exp();
        };
        if let Some(bottom) = result_bottom {
            let mut product = power(&spectrum, digit);
            let mut origin = digit as f64 * base.origin;
            let mut log_scale = digit as f64 * base.log_scale;
            if let Some(held) = &result {
                let held_spectrum = fourier.spectrum(&held.masses);
                product.iter_mut().zip(&held_spectrum).for_each(|(p, h)| *p *= *h);
                origin += held.origin;
                log_scale += held.log_scale;
            }
            count_wrapped();
            result = Some(windowed(&mut fourier, product, &base, origin, log_scale, bottom));
        }
        if let Some(bottom) = next_bottom {
            let product = power(&spectrum, radix);
            count_wrapped();
            let (origin, log_scale) = (radix as f64 * base.origin, radix as f64 * base.log_scale);
            let next = windowed(&mut fourier, product, &base, origin, log_scale, bottom);
            if growth > 1 {
                base = next.coarsened(bound, growth);
                result = result.map(|held| held.coarsened(bound, growth));
            } else {
                base = next;
            }
            releases *= radix;
        }
    }
    (result.unwrap_or(base), wrapped)
}

/// Sums of a composition of bulk losses, of a few bulk losses more, and of a few rare ones, all on one lattice.
pub(crate) struct Few<'a> {
    base: &'a Lattice,
    bulk: &'a Lattice,
    rare: &'a Lattice,
    /// Transforms of the three, of a length that suits the last window asked for.
    spectra: Option<Spectra>,
}

struct Spectra {
    length: usize,
    fourier: Fourier,
    base: Vec<Complex64>,
    bulk: Vec<Complex64>,
    rare: Vec<Complex64>,
}

impl<'a> Few<'a> {
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
        let length = Fourier::length(((top - bottom) / self.base.step) as usize + 8);
        let mut spectra = match self.spectra.take() {
            Some(held) if held.length >= length => held,
            _ => {
                let mut fourier = Fourier::new(length);
                Spectra {
                    length,
                    base: fourier.spectrum(&self.base.masses),
                    bulk: fourier.spectrum(&self.bulk.masses),
                    rare: fourier.spectrum(&self.rare.masses),
                    fourier,
                }
            }
        };
        let product = spectra
            .base
            .iter()
            .zip(power(&spectra.bulk, bulk))
            .zip(power(&spectra.rare, rare))
            .map(|((base, bulk), rare)| base * bulk * rare)
            .collect();
        let (b, r) = (bulk as f64, rare as f64);
        let origin = self.base.origin + b * self.bulk.origin + r * self.rare.origin;
        let log_scale = self.base.log_scale + b * self.bulk.log_scale + r * self.rare.log_scale;
        let sum = windowed(
            &mut spectra.fourier,
            product,
            self.base,
            origin,
            log_scale,
            bottom,
        );
        self.spectra = Some(spectra);
        sum
    }
}

/// The sum of two independent losses on lattices of one step; `bottom` is the least loss to keep, `points` the
/// number of points.
pub(crate) fn convolve(a: &Lattice, b: &Lattice, bottom: f64, top: f64) -> Lattice {
    let mut fourier = Fourier::new(Fourier::length(((top - bottom) / a.step) as usize + 8));
    let mut product = fourier.spectrum(&a.masses);
    product
        .iter_mut()
        .zip(fourier.spectrum(&b.masses))
        .for_each(|(p, h)| *p *= h);
    windowed(
        &mut fourier,
        product,
        a,
        a.origin + b.origin,
        a.log_scale + b.log_scale,
        bottom,
    )
}

fn windowed(
    fourier: &mut Fourier,
    product: Vec<Complex64>,
    like: &Lattice,
    origin: f64,
    log_scale: f64,
    bottom: f64,
) -> Lattice {
    let start = ((bottom - origin) / like.step).floor() - 2.0;
    let mut lattice = Lattice {
        tilt: like.tilt,
        origin: origin + start * like.step,
        step: like.step,
        masses: fourier.sequence(product, start as i64),
        log_scale,
    };
    lattice.normalise();
    lattice
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
