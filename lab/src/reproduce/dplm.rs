//! \[DPLM\]: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models"
//! (ICLR 2018).

pub(crate) mod table_1;
pub(crate) mod table_2;
pub(crate) mod text;

use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};

use crate::reproduce::table::Entry;
use crate::reproduce::{ReproduceError, Rounding, Tighter};

/// The recipe of all numbers of this paper.
const RECIPE: &str = "moments accountant of 2016: moments 1 to 32, classic conversion; Poisson sampling, add-or-remove \
                      one user";

/// Users of the paper's corpus.
const REDDIT_USERS: f64 = 763_430.0;

/// A run of equal rounds over equally weighted users.
struct Setting {
    /// `K`.
    users: f64,
    /// Expected users per round (`C~ = q K`).
    sample: f64,
    /// `z`.
    noise: f64,
    delta: f64,
}

impl Setting {
    /// The paper's epsilon after each number of rounds, beside ours.
    fn entries(
        &self,
        printed: &[(u64, &'static str)],
        rounding: Rounding,
    ) -> Result<Vec<Entry>, ReproduceError> {
        let round = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(self.sample / self.users)?,
            noise_multiplier: NoiseMultiplier::new(self.noise)?,
        };
        let delta = Delta::new(self.delta)?;
        let (mut moments, mut rdp) = (Accountant::new(Recipe::Moments2016), Accountant::new(Recipe::Rdp));
        let mut entries = Vec::new();
        for &(rounds, paper) in printed {
            let epsilon = |accountant: &mut Accountant| {
                accountant.compose(&round, rounds.saturating_sub(accountant.rounds()))?;
                accountant
                    .guarantee(delta)
                    .map(|guarantee| guarantee.epsilon.get())
            };
            let ours = epsilon(&mut moments)?;
            let tighter = Tighter {
                value: epsilon(&mut rdp)?,
                recipe: "RDP",
            };
            entries.push(Entry::new(paper, ours, rounding, tighter));
        }
        Ok(entries)
    }
}
