//! The cohorts of a neighbouring population: every index stays, and one user is not there.

use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::kept_examples::Microbatch;
use undertone_coordinator::participation::Salt;
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::TaskConfig;
use undertone_settings::Algorithm;

use undertone_run_directory::replays::replaces;

/// The neighbour that a run's guarantee speaks of.
pub(super) enum Neighbour {
    /// The user is not in the cohort.
    Absent,
    /// The user keeps the slot and contributes zeros.
    Zero,
    /// The text of another user, who is not in the cohort, stands in the slot.
    Replaced {
        /// Number of users.
        users: usize,
    },
    /// The user keeps the place in a secure sum, and its update is the zero vector.
    Silent {
        /// Clip norms that the stated sensitivity of a round covers: 2 where it is that of a replaced user.
        stated: f64,
    },
    /// The user's examples are not sampled.
    WithoutExamples {
        /// Max number of examples per microbatch.
        microbatch: usize,
    },
}

/// The cohorts of one audited round.
pub(super) struct Sides {
    /// The audited user.
    pub(super) user: usize,
    /// The cohort of the neighbour.
    pub(super) neighbour: Cohort,
    /// The audited user alone.
    pub(super) alone: Cohort,
    /// The user in the slot, alone; nobody where nobody is.
    pub(super) replacement: Cohort,
    /// Number of bounded contributions that may move the sum.
    pub(super) contributions: f64,
    /// `true` if several examples were added at once.
    pub(super) in_microbatches: bool,
    /// `true` if the ledger of the neighbour names the same users.
    pub(super) names_stay: bool,
}

impl Sides {
    /// The cohort without the slot of the user; `None` where the neighbour is that cohort, or the slot of a secure sum stays.
    pub(super) fn without_slot(&self) -> Option<Cohort> {
        let replaced = !self.replacement.users.is_empty() && self.neighbour.silent.is_empty();
        replaced.then(|| {
            let users = self.neighbour.users.iter().copied();
            let users: Vec<usize> = users
                .filter(|user| !self.replacement.users.contains(user))
                .collect();
            Cohort {
                pseudonyms: Vec::new(),
                users,
                microbatches: None,
                widened: self.neighbour.widened,
                silent: Vec::new(),
            }
        })
    }

    /// A cohort of nobody.
    pub(super) fn nobody(&self) -> Cohort {
        Cohort {
            pseudonyms: Vec::new(),
            users: Vec::new(),
            microbatches: None,
            widened: self.neighbour.widened,
            silent: Vec::new(),
        }
    }

    /// The factor on the bound for sums of several examples: their kernels add in `f32`.
    pub(super) fn margin(&self) -> f64 {
        match self.in_microbatches {
            true => 1.0 + 1e-4,
            false => 1.0,
        }
    }
}

impl Neighbour {
    pub(super) fn of(task: &TaskConfig, users: usize) -> Self {
        let by_schema = task
            .privacy
            .as_ref()
            .is_some_and(|privacy| privacy.mechanism.is_some());
        match (task.user_update.algorithm, task.cohort.sampling) {
            _ if task.aggregation.is_some() => Self::Silent {
                stated: match task.cohort.sampling == Sampling::FixedSize
                    && !by_schema
                    && !task.encoding_is_noisy()
                {
                    true => 2.0,
                    false => 1.0,
                },
            },
            (Algorithm::Els, _) => Self::WithoutExamples {
                microbatch: task.user_update.batch_size(),
            },
            _ if by_schema => Self::Zero,
            _ if replaces(task) => Self::Replaced { users },
            _ => Self::Absent,
        }
    }

    /// The bound on the difference of the sum of a round in clip norms, per participation.
    pub(super) fn clip_norms(&self) -> f64 {
        match self {
            Self::Replaced { .. } => 2.0,
            Self::Absent | Self::Zero | Self::Silent { .. } | Self::WithoutExamples { .. } => 1.0,
        }
    }

    /// Clip norms that the ledger's sensitivity of a round covers.
    pub(super) fn stated(&self) -> f64 {
        match self {
            Self::Silent { stated } => *stated,
            _ => self.clip_norms(),
        }
    }

    pub(super) fn sides(&self, cohort: &Cohort, user: usize, salt: &Salt) -> Sides {
        let make = |users: Vec<usize>, microbatches| Cohort {
            pseudonyms: salt.cohort(users.iter().map(|&user| user as u64)),
            users,
            microbatches,
            widened: cohort.widened,
            silent: Vec::new(),
        };
        if let Self::Silent { .. } = self {
            let with_silent = |silent: Vec<usize>| Cohort {
                silent,
                ..make(cohort.users.clone(), None)
            };
            let others = cohort.users.iter().copied().filter(|&other| other != user);
            return Sides {
                user,
                neighbour: with_silent(vec![user]),
                alone: with_silent(others.collect()),
                replacement: with_silent(cohort.users.clone()),
                contributions: 1.0,
                in_microbatches: false,
                names_stay: true,
            };
        }
        let keep = |inside: bool| -> Vec<usize> {
            let users = cohort.users.iter().copied();
            users.filter(|&other| (other == user) == inside).collect()
        };
        let examples = |inside: bool| {
            let all = cohort.microbatches.as_ref()?.iter();
            let part = |microbatch: &Microbatch| -> Microbatch {
                let examples = microbatch.iter().copied();
                examples.filter(|&(other, _)| (other == user) == inside).collect()
            };
            let parts: Vec<Microbatch> = all.map(part).filter(|part| !part.is_empty()).collect();
            Some(parts)
        };
        let nobody = || make(Vec::new(), cohort.microbatches.as_ref().map(|_| Vec::new()));
        let mut sides = Sides {
            user,
            neighbour: make(keep(false), examples(false)),
            alone: make(keep(true), examples(true)),
            replacement: nobody(),
            contributions: self.clip_norms(),
            in_microbatches: false,
            names_stay: matches!(self, Self::Zero),
        };
        match self {
            Self::Absent | Self::Zero | Self::Silent { .. } => {}
            Self::Replaced { users } => {
                let free = (0..*users).find(|other| cohort.users.binary_search(other).is_err());
                if let Some(other) = free {
                    let mut slots = keep(false);
                    slots.push(other);
                    slots.sort_unstable();
                    sides.neighbour = make(slots, None);
                    sides.replacement = make(vec![other], None);
                }
            }
            Self::WithoutExamples { microbatch } => {
                let sampled: usize = sides.alone.microbatches.iter().flatten().map(Vec::len).sum();
                sides.contributions = sampled as f64;
                sides.in_microbatches = *microbatch > 1;
            }
        }
        sides
    }
}
