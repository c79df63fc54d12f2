//! The composition step: put each loss distribution on a lattice, raise it to its number of rounds, then convolve the pairs.

use super::combine::{Summand, combine};
use super::compose::{self, Allowance, Wrapped};
use super::composition::COARSE;
use super::discretize::{Atom, Atoms, Bound};
use super::lattice::{Cut, Lattice, WHOLE};
use super::loss_range::{Moments, Sum, Tails};
use super::pair::{Pair, Resolution};
use super::readout::Total;
use super::tail_split::{Parted, Term};
use super::tilt_search::{Direction, NOISE, Outline, Pass, spare};

/// Tilted mass that windows may cut off, relative to what lies at the losses that decide.
const LOG_TILTED_SPARE: f64 = -20.0;

/// Standard deviations that a cell spans at most.
const WIDEST: f64 = 0.5;
/// The most Gaussian densities that are evaluated for the cells of losses, where the slope is that of losses alone.
const MAX_DENSITIES: f64 = 1.6e7;

/// One convolution: the pairs, the accuracy, and the side of the truth that the result must lie on.
pub(super) struct Convolution<'a> {
    pub(super) parts: &'a [(Pair, u64)],
    pub(super) direction: &'a Direction,
    pub(super) outline: &'a Outline,
    pub(super) bound: Bound,
    pub(super) accuracy: f64,
    /// Rate at which `ln delta` falls in epsilon, for the distance of lattices.
    pub(super) slope: f64,
    /// `ln` of the tail mass of one release that may be counted as lost.
    pub(super) log_tail: f64,
    /// True if all bulk losses of a release are one outcome.
    pub(super) forget: bool,
}

/// The results of the passes.
#[derive(Default)]
struct Composed {
    lattices: Vec<Lattice>,
    /// The releases of each part, where nothing was rare.
    summands: Vec<Summand>,
    settled: Vec<Term>,
    wrapped: Wrapped,
    /// Coarseness of the coarsest lattice of all passes, as in `Spacing`.
    coarseness: f64,
    /// `ln` of the probability that no release has an infinite loss.
    log_finite: f64,
}

/// Releases of one pair.
struct Part<'a> {
    pair: &'a Pair,
    releases: u64,
    parted: &'a Parted,
    moments: Moments,
    /// Share of the part in the allowed error of epsilon.
    error: f64,
    /// The atoms of this pass, and their resolution.
    atoms: Atoms,
    resolution: Option<Resolution>,
}

impl Part<'_> {
    /// True if nothing is ever learnt (besides infinite losses).
    fn is_silent(&self) -> bool {
        self.moments.variance == 0.0 && self.moments.mean == 0.0
    }

    /// Releases that are composed level by level.
    fn together(&self) -> u64 {
        self.releases - self.parted.apart
    }

    /// Releases whose windows are asked for: where all of few are added at the end, the windows are those of one.
    fn windows(&self) -> u64 {
        self.together().max(1)
    }

    /// The distance of the last lattice in units of the first.
    fn growth_over_levels(&self, growth: usize) -> f64 {
        (growth as f64).powi(compose::levels(self.together()) as i32 - 1)
    }
}

/// Distances of the lattices of a part in a pass.
struct Spacing {
    tails: Tails,
    /// The distance of the first lattice, and the smallest that a lattice of its own may have on every level.
    step: f64,
    min_gap: f64,
    /// The distance that the longest transform allows, in units of the one that the accuracy asks for.
    coarseness: f64,
    resolution: Resolution,
}

/// The cells of rare losses, equal in all passes of a part.
///
/// PRIVACY: terms of different passes add up to all of the loss only where both call the same outcomes rare. The first rare cell leaves a share
/// of its mass at the threshold, which depends on its width. Cells of Gaussians end at the threshold, so that those of the bulk may differ;
/// cells of other losses lie across it.
struct RareCells {
    step: f64,
    rare_step: f64,
}

impl RareCells {
    /// The finest cells that a pass asks for.
    fn of<'a>(spacings: impl Iterator<Item = &'a Spacing>) -> Self {
        let none = Self {
            step: f64::INFINITY,
            rare_step: f64::INFINITY,
        };
        spacings.fold(none, |finest, spacing| Self {
            step: finest.step.min(spacing.resolution.step),
            rare_step: finest.rare_step.min(spacing.resolution.rare_step),
        })
    }

    /// The resolution of a pass with the cells of all passes.
    fn shared_by(&self, pair: &Pair, resolution: Resolution) -> Resolution {
        Resolution {
            step: if pair.is_gaussian() {
                resolution.step
            } else {
                self.step
            },
            rare_step: self.rare_step,
            ..resolution
        }
    }
}

/// The lattices of a part: the first, and how they grow to the last.
struct Mesh {
    step: f64,
    anchor: f64,
    growth: usize,
    last_step: f64,
    /// A loss of which every lattice holds the sums.
    kink: Option<f64>,
}

impl Mesh {
    /// Kinks of the curve stay lattice points on every level, at most `step` apart at first; losses that all lie on a
    /// lattice of their own keep it, as long as its distance is at least `min_gap`. Kinks closer together than the last lattice are split
    /// like all other losses.
    fn new(
        pair: &Pair,
        atoms: &Atoms,
        tilt: f64,
        (step, min_gap): (f64, f64),
        growth_over_levels: impl Fn(usize) -> f64,
    ) -> Self {
        let mut mesh = Self {
            step,
            anchor: 0.0,
            growth: compose::GROWTH,
            last_step: step * growth_over_levels(compose::GROWTH),
            kink: None,
        };
        if let Some(grid) = pair.grid(atoms, tilt) {
            mesh.anchor = grid.anchor;
            if grid.whole && grid.gap >= min_gap {
                (mesh.step, mesh.growth) = (grid.gap, 1);
            } else if grid.gap >= mesh.last_step {
                mesh.step *= grid.gap / mesh.last_step / (grid.gap / mesh.last_step).ceil();
                mesh.kink = Some(grid.anchor);
            }
            mesh.last_step = mesh.step * growth_over_levels(mesh.growth);
        }
        mesh
    }
}

impl Convolution<'_> {
    /// All terms of all passes.
    pub(super) fn total(&self) -> Total {
        let mut all = Composed::default();
        let mut parts = self.parts();
        let spaced = |pass| {
            let spacing = |part: &Part<'_>| (!part.is_silent()).then(|| self.spacing(pass, part));
            (pass, parts.iter().map(spacing).collect())
        };
        let passes: Vec<(&Pass, Vec<Option<Spacing>>)> = self.outline.passes.iter().map(spaced).collect();
        let rare_cells: Vec<RareCells> = (0..parts.len())
            .map(|index| RareCells::of(passes.iter().filter_map(|(_, spacings)| spacings[index].as_ref())))
            .collect();
        for (pass, spacings) in passes {
            let coarseness = spacings.iter().flatten().map(|spacing| spacing.coarseness);
            all.coarseness = coarseness.fold(all.coarseness, f64::max);
            for ((part, spacing), rare) in parts.iter_mut().zip(&spacings).zip(&rare_cells) {
                let resolution = match spacing {
                    Some(spacing) => rare.shared_by(part.pair, spacing.resolution),
                    None => Resolution::without_loss(self.log_tail),
                };
                if part.resolution != Some(resolution) {
                    part.atoms = self.atoms(part.pair, &resolution);
                    part.resolution = Some(resolution);
                }
            }
            let composed = self.compose(pass, &parts, spacings);
            all.lattices.extend(composed.lattices);
            all.settled.extend(composed.settled);
            all.wrapped.above += composed.wrapped.above;
            all.wrapped.tilted += composed.wrapped.tilted;
            all.wrapped.left_out += composed.wrapped.left_out;
            // The same in every pass.
            all.log_finite = composed.log_finite;
        }
        let infinite = match self.bound {
            Bound::Upper => all.wrapped.above - all.log_finite.exp_m1(),
            Bound::Lower => -all.log_finite.exp_m1(),
        };
        let releases: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        Total {
            bound: self.bound,
            lattices: all.lattices,
            settled: all.settled,
            infinite,
            wrapped: all.wrapped,
            coarseness: all.coarseness,
            noise: NOISE * (releases - 1.0),
        }
    }

    /// The terms of one pass over all parts.
    fn compose(&self, pass: &Pass, parts: &[Part<'_>], spacings: Vec<Option<Spacing>>) -> Composed {
        let mut composed = Composed::default();
        for (part, spacing) in parts.iter().zip(spacings) {
            composed.log_finite += part.releases as f64 * (-part.atoms.infinite_p.min(1.0)).ln_1p();
            if let Some(spacing) = spacing
                && !part.atoms.atoms.is_empty()
            {
                self.compose_part(pass, part, spacing, &mut composed);
            }
        }
        let summands = std::mem::take(&mut composed.summands);
        let sum = combine(
            self.bound,
            summands,
            self.finest(),
            self.allowance(pass),
            &mut composed.wrapped,
        );
        composed.lattices.extend(sum);
        composed
    }

    fn moments(&self) -> Vec<(Moments, f64)> {
        let parts = self.outline.parted.iter().zip(&self.direction.probes);
        parts
            .map(|(parted, (_, count))| (parted.bulk.moments(self.direction.tilt), *count))
            .collect()
    }

    /// Points of the longest transform.
    fn max_points(&self) -> f64 {
        if self.accuracy >= COARSE {
            compose::MAX_COARSE_POINTS
        } else if self.direction.epsilon == 0.0 {
            compose::MAX_POINTS_AT_ZERO
        } else {
            compose::MAX_POINTS
        }
    }

    /// The loss above which a rare one decides by little but its mass under `P`.
    fn far(&self) -> f64 {
        /// A cell of a lower bound is one outcome, which rounds down by up to a step. That changes delta by its mass under `Q` alone.
        const LOG_LITTLE: f64 = 18.0;
        match self.bound {
            Bound::Upper => self.direction.epsilon,
            Bound::Lower => self.direction.epsilon + LOG_LITTLE,
        }
    }

    /// Cells of losses, each of which costs as much as the pair has Gaussians. An upper bound that has one lattice may have any number.
    fn most_cells(&self, pair: &Pair) -> f64 {
        let components = pair.components();
        if components == 0 || self.bound == Bound::Upper && !self.direction.is_apart {
            return f64::INFINITY;
        }
        MAX_DENSITIES / components as f64
    }

    /// The allowed error of epsilon, where the losses have this variance in all.
    fn error(&self, variance: f64) -> f64 {
        self.accuracy * self.direction.epsilon.max(0.2 * variance.sqrt())
    }

    /// The distance of a common lattice for losses that lie on different lattices of their own. Few of them decide, so
    /// the error is more than that of smooth losses: the lattice is finer by a factor of eight.
    fn finest(&self) -> f64 {
        let variance = self.moments().iter().map(|(m, count)| m.variance * count).sum();
        let rounded = self.parts.len() as f64 * (self.slope + 1.0);
        (12.0 * self.error(variance) / rounded).sqrt() / 8.0
    }

    /// The parts, among which the allowed error is shared by their variance.
    fn parts(&self) -> Vec<Part<'_>> {
        let moments = self.moments();
        let variance: f64 = moments.iter().map(|(m, count)| m.variance * count).sum();
        let parts = self.parts.iter().zip(&self.outline.parted).zip(moments);
        parts
            .map(|(((pair, releases), parted), (moments, count))| Part {
                pair,
                releases: *releases,
                parted,
                moments,
                error: self.error(variance) * (count * moments.variance / variance).max(1e-3),
                atoms: Atoms::default(),
                resolution: None,
            })
            .collect()
    }

    /// The distances that the accuracy asks for, or the longest transform.
    fn spacing(&self, pass: &Pass, part: &Part<'_>) -> Spacing {
        let allowance = self.allowance(pass);
        let (parted, moments) = (part.parted, part.moments);
        let releases = part.releases as f64;
        let (windows, levels) = (part.windows(), compose::levels(part.together()));
        let last_growth = part.growth_over_levels(compose::GROWTH);
        // A lattice of distance h adds count s (s + 1) h^2 / 12 to the cumulant at s, the slope, hence that over s to
        // epsilon; the error is shared between the cells and the levels. Releases that are added at the end meet the
        // coarsest lattice alone.
        let few = parted.apart as f64 * last_growth.powi(2) / releases;
        let stages = f64::from(levels) + 1.0 + few;
        let slope = self.slope;
        // The terms of a pass of their own fall as fast as its tilt, and so much steeper they need not be: the part that they add to delta
        // errs by the square of that tilt.
        let slope = if self.outline.passes.len() > 1 && !self.direction.is_apart {
            slope.max(pass.tilt * pass.tilt / slope)
        } else {
            slope
        };
        let cell = (12.0 * part.error / stages / (releases * (slope + 1.0))).sqrt();
        let tails = Tails::new(
            &parted.bulk,
            parted.rare.as_ref(),
            pass.tilt,
            releases,
            moments.variance.max(1e-300),
        );
        let floor = |growth: usize| compose::min_step(&tails, windows, allowance, growth, self.max_points());
        // The windows of the sums with rare losses lie on the last lattice.
        let sums = self
            .outline
            .terms
            .iter()
            .filter(|term| pass.rare.contains(&term.rare));
        let widest = sums
            .map(|term| {
                let (bottom, top) = tails.range(
                    term.sum(part.releases),
                    allowance.log_mass,
                    allowance.log_tilted_mass,
                );
                top - bottom
            })
            .fold(0.0, f64::max);
        // And the rare losses themselves, of one release.
        let rare_width = if pass.has_rare() { tails.rare_width() } else { 0.0 };
        let widest = widest.max(rare_width);
        let last_floor = widest / (0.9 * self.max_points() * last_growth);
        let floors = floor(compose::GROWTH).max(last_floor);
        let decisive = match self.bound {
            Bound::Lower if !self.forget => {
                tails.range(Sum::of(1.0), 0.0, allowance.log_tilted_mass + 5.0 - releases.ln())
            }
            Bound::Upper | Bound::Lower => (0.0, 0.0),
        };
        let most_cells = self.most_cells(part.pair);
        let step = cell
            .max(floors)
            .max((decisive.1.min(parted.threshold) - decisive.0) / most_cells);
        let width = if self.forget {
            WIDEST
        } else {
            (cell / moments.squared_slope.sqrt()).min(WIDEST)
        };
        let resolution = Resolution {
            step,
            // Outcomes lie within so many standard deviations on either side.
            width: width.max(2.0 * (-2.0 * self.log_tail).sqrt() / most_cells),
            decisive: self.oriented(decisive),
            log_tail: self.log_tail,
            bulk: self.oriented((f64::NEG_INFINITY, parted.threshold)),
            far: self.oriented((f64::NEG_INFINITY, self.far())),
            // A pass without rare losses asks for no cells of theirs.
            rare_step: if pass.has_rare() || self.outline.passes.len() == 1 {
                step * last_growth
            } else {
                f64::INFINITY
            },
        };
        Spacing {
            coarseness: floors / cell,
            step,
            min_gap: floor(1),
            tails,
            resolution,
        }
    }

    /// Adds the lattices of a part, one for each number of rare losses.
    fn compose_part(&self, pass: &Pass, part: &Part<'_>, spacing: Spacing, composed: &mut Composed) {
        let allowance = self.allowance(pass);
        let (pair, parted, atoms) = (part.pair, part.parted, &part.atoms);
        let Spacing {
            tails, step, min_gap, ..
        } = spacing;
        let releases = part.releases as f64;
        let (together, windows, levels) = (part.together(), part.windows(), compose::levels(part.together()));
        let growth = |growth: usize| part.growth_over_levels(growth);
        let mesh = Mesh::new(pair, atoms, pass.tilt, (step, min_gap), growth);
        let mut tails =
            tails
                .on_lattices(mesh.step, levels)
                .ending_on(mesh.last_step, parted.apart as f64, releases);
        if self.bound == Bound::Lower && mesh.growth > 1 {
            tails = tails.rounded_down(3.0 * mesh.step);
        }
        let (bulk, rare): (Vec<Atom>, Vec<Atom>) =
            atoms.atoms.iter().partition(|atom| atom.loss <= parted.threshold);
        let window = compose::range(&tails, 1, windows, allowance);
        let on_lattice = |step: f64| {
            if self.forget {
                return (Lattice::merged(&bulk, pass.tilt, step), Cut::default());
            }
            Lattice::new(self.bound, &bulk, pass.tilt, (step, mesh.anchor), window)
        };
        // Merged outcomes lie on no lattice.
        let kink = mesh.kink.filter(|_| self.bound == Bound::Upper);
        let wrapped = &mut composed.wrapped;
        let (single, cut) = on_lattice(mesh.step);
        wrapped.cut(cut, together);
        let base = if together == 0 {
            Lattice::nothing(pass.tilt, mesh.last_step)
        } else if self.forget {
            Lattice {
                step: mesh.last_step,
                ..single.repeated(together)
            }
        } else {
            let (base, lost) = compose::self_compose(
                self.bound,
                &single,
                together,
                &tails,
                allowance,
                (mesh.growth, kink),
            );
            wrapped.above += lost.above;
            wrapped.tilted += lost.tilted;
            base
        };
        if parted.apart == 0 {
            composed.summands.push(Summand {
                lattice: base,
                whole: mesh.growth == 1,
            });
            return;
        }
        let (bulk, cut) = on_lattice(mesh.last_step);
        wrapped.cut(cut, parted.apart);
        self.add_rare(pass, part, &mesh, &tails, (&base, &bulk, &rare), composed);
    }

    /// Adds the last of the releases to `base`, a term for each number of rare losses among them.
    fn add_rare(
        &self,
        pass: &Pass,
        part: &Part<'_>,
        mesh: &Mesh,
        tails: &Tails,
        (base, bulk, rare): (&Lattice, &Lattice, &[Atom]),
        composed: &mut Composed,
    ) {
        let allowance = self.allowance(pass);
        let (parted, releases) = (part.parted, part.releases as f64);
        // PRIVACY: what has no term of its own counts as lost.
        let mass: f64 = rare.iter().map(|atom| atom.log_p.exp()).sum();
        if mass > 0.0 {
            composed.wrapped.above += parted.log_more(mass).exp();
        }
        let rare = (pass.has_rare() && !rare.is_empty())
            .then(|| Lattice::new(self.bound, rare, pass.tilt, (mesh.last_step, mesh.anchor), WHOLE).0);
        let mut few = compose::RareTerms::new(base, bulk, rare.as_ref().unwrap_or(bulk));
        let followed = |term: &&Term| pass.rare.contains(&term.rare);
        for term in self.outline.terms.iter().filter(followed) {
            if term.rare > 0 && rare.is_none() {
                break;
            }
            let moved = term.clone().spread_by(releases * tails.spread());
            if moved.is_settled(self.direction.epsilon, self.direction.log_delta) {
                composed.settled.push(moved);
                continue;
            }
            let window = tails.range(
                term.sum(part.releases),
                allowance.log_mass,
                allowance.log_tilted_mass,
            );
            composed.wrapped.above += allowance.log_mass.exp();
            composed.wrapped.tilted += 2.0 * allowance.log_tilted_mass.exp();
            let mut lattice = few.sum(parted.apart - term.rare, term.rare, window);
            lattice.log_scale += term.log_ways;
            composed.lattices.push(lattice);
        }
    }

    /// The mass that the windows of a pass may cut off.
    fn allowance(&self, pass: &Pass) -> Allowance {
        Allowance {
            log_mass: self.direction.log_delta + spare(self.direction.log_delta),
            log_tilted_mass: LOG_TILTED_SPARE + pass.log_share,
        }
    }

    /// The atoms of a pair in this direction.
    fn atoms(&self, pair: &Pair, resolution: &Resolution) -> Atoms {
        let atoms = pair.atoms(self.bound, resolution);
        if self.direction.reversed {
            atoms.reversed()
        } else {
            atoms
        }
    }

    /// A range of losses of this direction, as one of the pair.
    fn oriented(&self, (lowest, highest): (f64, f64)) -> (f64, f64) {
        if self.direction.reversed {
            (-highest, -lowest)
        } else {
            (lowest, highest)
        }
    }
}
