//! The cohorts of a run, round by round: drawn by its scheme, named in the ledger, checked against the declared schema.

use undertone_accounting::participation::Participation;

use crate::error::{CoordinatorError, Result};
use crate::kept_examples::{KeptExamples, Microbatch};
use crate::participant::Salt;
use crate::participation::epochs::ShuffledEpochs;
use crate::participation::policy::Policy;
use crate::participation::timers::DeviceTimers;
use crate::participation::{ParticipantId, ParticipationKey};
use crate::plan::PrivacyPlan;
use crate::random::{Purpose, Randomness};
use crate::record::LedgerEntry;
use crate::sampling::Sampling;
use crate::task::TaskConfig;
use undertone_mechanisms::draws;

/// The cohorts of a run, and the participation schema that they keep to.
///
/// # Guarantee
/// With a declared schema a cohort that breaks it is refused, or, with `on_violation = "account"`, widens what
/// [`Cohorts::accounted`] tells the accountant before anything of the round is released.
#[derive(Debug)]
pub struct Cohorts {
    scheme: Scheme,
    salt: Salt,
    policy: Option<Policy>,
    users: usize,
}

#[derive(Debug)]
enum Scheme {
    Poisson {
        probability: f64,
    },
    /// Example-level sampling.
    Examples {
        probability: f64,
        kept: KeptExamples,
        /// Max number of examples in a microbatch.
        microbatch: usize,
    },
    /// The names of all users, in their order, where a schema asks in each round for those who may take part.
    FixedSize {
        size: usize,
        names: Vec<ParticipantId>,
    },
    Epochs(ShuffledEpochs),
    Devices(Box<DeviceTimers>),
}

/// The users of a round, ascending, and their pseudonyms, ascending too: the ledger does not tell which user has which one.
#[derive(Debug)]
pub struct Cohort {
    /// Indices into the population.
    pub users: Vec<usize>,
    /// Names in the ledger.
    pub pseudonyms: Vec<ParticipantId>,
    /// Example-level sampling: the sampled examples of these users, ordered by user.
    pub microbatches: Option<Vec<Microbatch>>,
    /// `true` if the schema to account for is wider than before.
    pub widened: bool,
    /// Users of the cohort who contribute zeros: nobody in a run, and the audited user in the neighbour of a secure sum, whose place
    /// must stay.
    pub silent: Vec<usize>,
}

impl Cohorts {
    /// The cohorts before the first round, for users with these numbers of examples. Only example-level sampling reads the
    /// numbers.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the key.
    pub fn new(
        config: &TaskConfig,
        plan: &PrivacyPlan,
        examples: &[u32],
        key: &ParticipationKey,
    ) -> Result<Self> {
        let users = plan.population().users;
        let count = u32::try_from(users)
            .map_err(|_| CoordinatorError::value("data", "at most 4,294,967,295 users", users))?;
        let size = plan.users_per_round();
        let probability = plan.sampling_probability();
        let mut scheme = match (config.cohort.sampling, plan.kept_per_user()) {
            (Sampling::Poisson, Some(group_size)) => Scheme::Examples {
                probability,
                kept: KeptExamples::new(examples, group_size, key),
                microbatch: config.user_update.batch_size(),
            },
            (Sampling::Poisson, None) => Scheme::Poisson { probability },
            (Sampling::FixedSize, _) => Scheme::FixedSize {
                size: size as usize,
                names: Vec::new(),
            },
            (Sampling::ShuffledEpochs, _) => {
                Scheme::Epochs(ShuffledEpochs::with_report_goal(count, size as u32, key)?)
            }
            (Sampling::CheckIn, _) => {
                return Err(CoordinatorError::value(
                    "cohort.sampling",
                    "a scheme that a simulated run can draw (`device_timers` simulates devices); `undertone serve` takes \
                     `check_in`",
                    "check_in",
                ));
            }
            (Sampling::DeviceTimers, _) => {
                let mut timers = config.cohort.timers.clone().unwrap_or_default();
                timers.report_goal = size as u32;
                Scheme::Devices(Box::new(DeviceTimers::new(count, &timers, key)?))
            }
        };
        let (policy, salt) = (plan.policy(config)?, key.salt());
        if let (Scheme::FixedSize { names, .. }, Some(_)) = (&mut scheme, &policy) {
            names.extend((0..users).map(|user| salt.pseudonym(user)));
        }
        Ok(Self {
            scheme,
            salt,
            policy,
            users: users as usize,
        })
    }

    /// Replays the rounds of a ledger, to go on after them.
    ///
    /// # Errors
    /// A ledger that breaks the schema although the run would have refused it; from the simulation of devices.
    pub fn replay(&mut self, ledger: &[LedgerEntry]) -> Result<()> {
        if let Some(policy) = &mut self.policy {
            for entry in ledger {
                policy.admit(entry.round, &entry.participants)?;
            }
        }
        match &mut self.scheme {
            Scheme::Devices(devices) => devices.replay(ledger.len() as u64),
            _ => Ok(()),
        }
    }

    /// Draws the cohort of a round.
    ///
    /// # Errors
    /// [`CoordinatorError::Participation`] for a round that the schema does not admit; from the simulation of devices.
    pub fn draw(&mut self, round: u64, randomness: &Randomness) -> Result<Cohort> {
        let mut generator = randomness.generator(Purpose::Cohort, round, 0);
        let mut microbatches = None;
        let mut users = match &mut self.scheme {
            Scheme::Examples {
                probability,
                kept,
                microbatch,
            } => {
                let sampled = kept.sample(*probability, &mut generator);
                let mut users: Vec<usize> = sampled.iter().map(|&(user, _)| user).collect();
                users.dedup();
                microbatches = Some(kept.microbatches(&sampled, *microbatch));
                users
            }
            Scheme::Poisson { probability } => draws::poisson(self.users, *probability, &mut generator),
            Scheme::FixedSize { size, names } => match &self.policy {
                None => draws::fixed_size(self.users, *size, &mut generator),
                Some(policy) => {
                    let may = |&user: &usize| policy.violation(round, names[user]).is_none();
                    let eligible: Vec<usize> = (0..self.users).filter(may).collect();
                    if eligible.len() < *size {
                        return Err(CoordinatorError::TooFewEligible {
                            round,
                            expected: *size,
                            eligible: eligible.len(),
                        });
                    }
                    let chosen = draws::fixed_size(eligible.len(), *size, &mut generator);
                    chosen.into_iter().map(|place| eligible[place]).collect()
                }
            },
            Scheme::Epochs(epochs) => epochs.cohort(round).iter().map(|&user| user as usize).collect(),
            Scheme::Devices(devices) => {
                let next = devices.next_round()?;
                next.participants
                    .into_iter()
                    .map(|device| device as usize)
                    .collect()
            }
        };
        users.sort_unstable();
        let pseudonyms = self.salt.cohort(users.iter().map(|&user| user as u64));
        let mut widened = false;
        if let Some(policy) = &mut self.policy {
            let before = policy.violations();
            policy.admit(round, &pseudonyms)?;
            widened = policy.violations() > before;
        }
        Ok(Cohort {
            users,
            pseudonyms,
            microbatches,
            widened,
            silent: Vec::new(),
        })
    }

    /// The schema to account for: the declared one, or a wider one where violations were accounted.
    ///
    /// # Errors
    /// From the accountant's types.
    pub fn accounted(&self) -> Result<Option<Participation>> {
        self.policy.as_ref().map(Policy::accounted).transpose()
    }
}
