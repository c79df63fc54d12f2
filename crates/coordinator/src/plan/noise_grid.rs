//! The integers that the server adds its noise to.

use undertone_aggregation::{Encoding, NoiseDomain};
use undertone_mechanisms::Denominator;

use super::{Bounded, PrivacyPlan};
use crate::error::Result;
use crate::record::NoiseLabel;

/// The integers that the server adds its noise to: averages on the fixed-point grid, or the residues of encoded updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NoiseGrid {
    /// Averages on the fixed-point grid.
    Averages {
        /// Number of coordinates.
        dim: usize,
        /// The denominator of the average.
        denominator: Denominator,
    },
    /// Sums modulo a number, before they are divided.
    Residues {
        /// The residues.
        domain: NoiseDomain,
        /// The denominator of the average.
        denominator: f64,
    },
}

impl NoiseGrid {
    /// Number of coordinates.
    pub(crate) fn dim(self) -> usize {
        match self {
            Self::Averages { dim, .. } => dim,
            Self::Residues { domain, .. } => domain.dim,
        }
    }

    /// The denominator that a mechanism on this grid is made for.
    pub(crate) fn denominator(self) -> Denominator {
        match self {
            Self::Averages { denominator, .. } => denominator,
            Self::Residues { .. } => Denominator::WHOLE_STEPS,
        }
    }

    /// The distance by which one user moves the integers, in the unit of a mechanism on this grid. `sensitivity` is that of the average.
    pub(crate) fn sensitivity(self, sensitivity: f64) -> f64 {
        match self {
            Self::Averages { .. } => sensitivity,
            // PRIVACY: the bound that each client enforces on its integers.
            Self::Residues { domain, .. } => domain.l2,
        }
    }

    /// The noise in the unit of a mechanism on this grid. `noise_std` is that in a coordinate of the average.
    pub(crate) fn noise_std(self, noise_std: f64) -> f64 {
        match self {
            Self::Averages { .. } => noise_std,
            // PRIVACY: rounded up past the roundings of the product.
            Self::Residues { domain, denominator } => {
                noise_std * denominator / domain.step * (1.0 + 4.0 * f64::EPSILON)
            }
        }
    }
}

impl PrivacyPlan {
    /// The integers that the server adds its noise to.
    ///
    /// # Errors
    /// An average whose denominator is the observed weight.
    pub(crate) fn noise_grid(&self) -> Result<NoiseGrid> {
        let denominator = self.estimator.denominator()?;
        let dim = self.layout.len();
        Ok(match (self.noise_domain(), denominator) {
            (Some(domain), Denominator::Fixed(denominator)) => NoiseGrid::Residues { domain, denominator },
            _ => NoiseGrid::Averages { dim, denominator },
        })
    }

    /// The residues that the server releases, after it has added its noise to them; `None` without an encoding, where clients add the
    /// noise, and for the ledgers of earlier versions, which lifted the sum first.
    #[must_use]
    pub fn noise_domain(&self) -> Option<NoiseDomain> {
        self.encoding
            .as_ref()
            .filter(|_| !self.lifted)
            .and_then(Encoding::noise_domain)
    }

    /// The place of the noise, as the lines of the ledger say it.
    #[must_use]
    pub(crate) fn noise_label(&self) -> Option<NoiseLabel> {
        let modular = self.is_private() && self.noise_domain().is_some();
        modular.then_some(NoiseLabel::Modular)
    }

    /// `true` if the server lifts the sum of encoded updates before it adds the noise, as runs of earlier versions did.
    #[must_use]
    pub fn adds_noise_after_lifting(&self) -> bool {
        self.lifted && self.encoding.is_some() && self.is_private() && self.client_noise().is_none()
    }

    /// Widens the modulus of the encoding until it has room for noise of `noise_std` in a coordinate of the average. Returns `true` if
    /// that changed the residues, so that a mechanism has to be made again.
    ///
    /// # Errors
    /// A modulus above `2^62`.
    pub(super) fn make_room(&mut self, noise_std: f64) -> Result<bool> {
        if let (Some(_), Some(encoding), Denominator::Fixed(denominator)) =
            (self.noise_domain(), &self.encoding, self.estimator.denominator()?)
        {
            let wider = encoding.clone().with_room_for_noise(noise_std * denominator)?;
            if wider.modulus().get() > encoding.modulus().get() {
                self.encoding = Some(wider);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// [`make_room`](Self::make_room) for the round of a mechanism that has the most noise.
    ///
    /// # Errors
    /// The errors of [`make_room`](Self::make_room), and of the mechanism.
    pub(super) fn make_room_for(&mut self, bounded: &Bounded) -> Result<bool> {
        let (Some(_), Some(sensitivity)) = (self.noise_domain(), self.round(0).sensitivity) else {
            return Ok(false);
        };
        let row = bounded.mechanism().largest_row()?;
        self.make_room(row * bounded.sum_noise_multiplier()?.get() * sensitivity)
    }
}

/// The length of an update after the encoding's rounding, over the clip norm.
pub(super) fn inflation(encoding: Option<&Encoding>, lifted: bool) -> f64 {
    encoding.map_or(1.0, |encoding| {
        let l2 = match lifted {
            true => encoding.lifted_sensitivity(),
            false => encoding.sensitivity().l2,
        };
        l2 / encoding.size().clip_norm
    })
}
