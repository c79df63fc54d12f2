//! Samplers: the draws of a run, for training loops of one's own. Each states the event that its draws earn.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use undertone_accounting::{self as accounting, NoiseMultiplier, SamplingProbability};
use undertone_coordinator::kept_examples::{self, KeptExamples};
use undertone_coordinator::participation::{ParticipationKey, epochs};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_mechanisms::draws;

use crate::buffer::{Array, read_integers};
use crate::count;
use crate::error::Answer;
use crate::event::object;
use crate::failures::setting;
use crate::sensitivity::PyParticipation;
use crate::stream::{NoiseKey, check_process, hexadecimal};

/// The way in which a round's users or examples are drawn.
enum Scheme {
    Poisson {
        users: usize,
        probability: SamplingProbability,
    },
    FixedSize {
        users: usize,
        size: usize,
    },
    Epochs(epochs::ShuffledEpochs),
    Users {
        examples: Examples,
        group_size: usize,
        probability: SamplingProbability,
    },
    Examples {
        examples: Examples,
        kept: KeptExamples,
        group_size: u32,
        probability: SamplingProbability,
    },
}

/// The numbers of each user's examples, users by their ascending names.
struct Examples(Vec<Vec<i64>>);

impl Examples {
    fn new(user_of_example: &Bound<'_, PyAny>) -> PyResult<Self> {
        let names = read_integers(user_of_example, "user_of_example")?;
        let mut users = BTreeMap::<i64, Vec<i64>>::new();
        for (example, user) in names.into_iter().enumerate() {
            users.entry(user).or_default().push(example as i64);
        }
        if users.is_empty() {
            return Err(PyValueError::new_err(
                "user_of_example: expected at least one example, got none",
            ));
        }
        Ok(Self(users.into_values().collect()))
    }

    fn counts(&self) -> PyResult<Vec<u32>> {
        let count = |examples: &Vec<i64>| {
            u32::try_from(examples.len()).map_err(|_| {
                let count = examples.len();
                PyValueError::new_err(format!(
                    "user_of_example: expected at most 4294967295 examples of one user, got {count}"
                ))
            })
        };
        self.0.iter().map(count).collect()
    }
}

/// Draws of a run, round by round. Iterating gives one int64 array per round.
///
/// A round is drawn once. The draws follow from the key, so `state_dict` holds the next round and the key's name. A sampler
/// that is made anew with this key continues after `load_state_dict`. With `NoiseKey.insecure_seed(n)`, the draws are those of
/// a run whose file has `seed = n`.
///
/// Sampling amplifies privacy only while nobody learns who was drawn. Keep the draws as secret as the noise.
///
/// >>> import undertone_dp as udp
/// >>> isinstance(udp.PoissonUsers(9, 0.5, rounds=1), udp.Sampler)
/// True
#[pyclass(subclass, frozen, module = "undertone_dp")]
pub(crate) struct Sampler {
    scheme: Scheme,
    rounds: u64,
    next: Mutex<u64>,
    randomness: Randomness,
    key: String,
    /// The call that made the sampler, for `repr`.
    shown: String,
    process: u32,
}

impl Sampler {
    fn new(
        scheme: Scheme,
        rounds: u64,
        key: &NoiseKey,
        randomness: Randomness,
        shown: String,
    ) -> Answer<PyClassInitializer<Self>> {
        if rounds == 0 {
            return Err(PyValueError::new_err("rounds must be at least 1, got 0").into());
        }
        Ok(PyClassInitializer::from(Self {
            scheme,
            rounds,
            next: Mutex::new(0),
            randomness,
            key: hexadecimal(&key.noise().id()?),
            shown,
            process: std::process::id(),
        }))
    }

    /// The draw of a round: users, or examples grouped by user; ascending users.
    fn draw(&self, round: u64) -> Vec<i64> {
        let mut generator = self.randomness.generator(Purpose::Cohort, round, 0);
        let whole = |drawn: Vec<usize>| drawn.into_iter().map(|user| user as i64).collect();
        match &self.scheme {
            Scheme::Poisson { users, probability } => {
                whole(draws::poisson(*users, probability.get(), &mut generator))
            }
            Scheme::FixedSize { users, size } => whole(draws::fixed_size(*users, *size, &mut generator)),
            Scheme::Epochs(epochs) => {
                let mut users: Vec<i64> = epochs.cohort(round).iter().map(|&user| i64::from(user)).collect();
                users.sort_unstable();
                users
            }
            Scheme::Users {
                examples,
                group_size,
                probability,
            } => {
                let users = draws::poisson(examples.0.len(), probability.get(), &mut generator);
                let chosen = |user: usize| {
                    let own = &examples.0[user];
                    // The choice of a run: from the secret of the user in the round.
                    let order = self.randomness.user_seeds(round, user as u64).order;
                    let places = kept_examples::drawn(own.len(), *group_size, order);
                    places.into_iter().map(|place| own[place])
                };
                users.into_iter().flat_map(chosen).collect()
            }
            Scheme::Examples {
                examples,
                kept,
                probability,
                ..
            } => kept
                .sample(probability.get(), &mut generator)
                .into_iter()
                .map(|(user, place)| examples.0[user][place])
                .collect(),
        }
    }
}

#[pymethods]
impl Sampler {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Array>> {
        check_process(self.process, "sampler")?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next >= self.rounds {
            return Ok(None);
        }
        let round = *next;
        *next += 1;
        drop(next);
        let drawn = py.detach(|| self.draw(round));
        Ok(Some(Array::of(&drawn)))
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.rounds).unwrap_or(usize::MAX)
    }

    /// Rounds drawn.
    #[getter]
    fn round(&self) -> u64 {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rounds to draw in all.
    #[getter]
    fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The event of one round whose sum of clipped contributions gets Gaussian noise of `noise_multiplier` clip norms.
    ///
    /// The clip norm bounds what the sampler draws: a user's contribution, or one example's under example-level sampling.
    fn event(&self, py: Python<'_>, noise_multiplier: f64) -> Answer<Py<PyAny>> {
        let noise_multiplier = NoiseMultiplier::new(noise_multiplier)?;
        let event = match &self.scheme {
            Scheme::Poisson { probability, .. } | Scheme::Users { probability, .. } => {
                accounting::Event::PoissonGaussian {
                    sampling_probability: *probability,
                    noise_multiplier,
                }
            }
            Scheme::FixedSize { users, size } => accounting::Event::FixedSizeGaussian {
                population: *users as u64,
                cohort_size: *size as u64,
                // Replacing a user moves the sum twice as far as adding one.
                noise_multiplier: NoiseMultiplier::new(0.5 * noise_multiplier.get())?,
            },
            Scheme::Epochs(_) => {
                return Err(setting(
                    "shuffled epochs amplify no round; the event of the whole run is that of a Mechanism with the \
                     participation of this sampler"
                        .to_owned(),
                )
                .into());
            }
            Scheme::Examples {
                group_size,
                probability,
                ..
            } => accounting::Event::ExampleLevelSampling {
                group_size: *group_size,
                sampling_probability: *probability,
                noise_multiplier,
            },
        };
        Ok(object(py, event)?)
    }

    /// The participation schema that every user keeps to; `None` where users are drawn anew in each round.
    #[getter]
    fn participation(&self) -> Answer<Option<PyParticipation>> {
        match &self.scheme {
            Scheme::Epochs(epochs) => Ok(Some(PyParticipation {
                inner: epochs.participation(self.rounds)?,
            })),
            _ => Ok(None),
        }
    }

    /// The next round and the name of the key.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = PyDict::new(py);
        state.set_item("round", self.round())?;
        state.set_item("key", &self.key)?;
        Ok(state)
    }

    /// Continues after the rounds of a state of this key.
    fn load_state_dict(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let item = |name: &str| {
            let found = state.get_item(name)?;
            found.ok_or_else(|| PyValueError::new_err(format!("state: expected the key {name:?}, got none")))
        };
        let (round, key): (u64, String) = (item("round")?.extract()?, item("key")?.extract()?);
        if key != self.key {
            return Err(PyValueError::new_err(format!(
                "state: expected the key {}, got {key}: another key draws other users",
                self.key
            )));
        }
        if round > self.rounds {
            return Err(PyValueError::new_err(format!(
                "state: expected a round up to {}, got {round}",
                self.rounds
            )));
        }
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = round;
        Ok(())
    }

    fn __repr__(&self) -> String {
        self.shown.clone()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a sampler is as secret as its key; use state_dict() and a sampler of the same key",
        ))
    }
}

/// The key given, or one of the operating system.
fn with_key<T>(key: Option<&Bound<'_, NoiseKey>>, make: impl FnOnce(&NoiseKey) -> Answer<T>) -> Answer<T> {
    match key {
        Some(key) => {
            key.get().check_process()?;
            make(key.get())
        }
        None => make(&NoiseKey::from_system()?),
    }
}

fn positive(name: &str, value: usize) -> PyResult<u32> {
    match u32::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(PyValueError::new_err(format!(
            "{name} must be from 1 to 4294967295, got {value}"
        ))),
    }
}

/// Poisson sampling: every user joins every round independently with `probability`.
///
/// >>> import undertone_dp as udp
/// >>> sampler = udp.PoissonUsers(1000, 0.01, rounds=3, key=udp.NoiseKey.insecure_seed(1))
/// >>> cohorts = [list(users) for users in sampler]
/// >>> len(cohorts), cohorts[0] == sorted(cohorts[0])
/// (3, True)
/// >>> sampler.event(1.0)
/// Event.PoissonGaussian(sampling_probability=0.01, noise_multiplier=1.0)
#[pyclass(extends = Sampler, frozen, module = "undertone_dp")]
pub(crate) struct PoissonUsers;

#[pymethods]
impl PoissonUsers {
    #[new]
    #[pyo3(signature = (num_users, probability, *, rounds, key=None))]
    fn new(
        #[pyo3(from_py_with = count::num_users)] num_users: usize,
        probability: f64,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
        key: Option<&Bound<'_, NoiseKey>>,
    ) -> Answer<PyClassInitializer<Self>> {
        let users = positive("num_users", num_users)? as usize;
        let shown = format!("PoissonUsers({num_users}, {probability:?}, rounds={rounds})");
        let probability = SamplingProbability::new(probability)?;
        let scheme = Scheme::Poisson { users, probability };
        with_key(key, |key| {
            Ok(Sampler::new(scheme, rounds, key, key.draws(), shown)?.add_subclass(Self))
        })
    }
}

/// Cohorts of exactly `size` users, every subset equally likely, fresh in each round.
///
/// >>> import undertone_dp as udp
/// >>> sampler = udp.FixedSizeUsers(100, 7, rounds=2)
/// >>> [len(users) for users in sampler]
/// [7, 7]
#[pyclass(extends = Sampler, frozen, module = "undertone_dp")]
pub(crate) struct FixedSizeUsers;

#[pymethods]
impl FixedSizeUsers {
    #[new]
    #[pyo3(signature = (num_users, size, *, rounds, key=None))]
    fn new(
        #[pyo3(from_py_with = count::num_users)] num_users: usize,
        #[pyo3(from_py_with = count::size)] size: usize,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
        key: Option<&Bound<'_, NoiseKey>>,
    ) -> Answer<PyClassInitializer<Self>> {
        let users = positive("num_users", num_users)? as usize;
        if size == 0 || size > users {
            return Err(PyValueError::new_err(format!("size must be from 1 to {users}, got {size}")).into());
        }
        let shown = format!("FixedSizeUsers({num_users}, {size}, rounds={rounds})");
        let scheme = Scheme::FixedSize { users, size };
        with_key(key, |key| {
            Ok(Sampler::new(scheme, rounds, key, key.draws(), shown)?.add_subclass(Self))
        })
    }
}

/// Shuffled epochs: one random order of all users, walked through in cohorts of at least `users_per_round`, again and again.
///
/// A user's participations are exactly one epoch apart: `participation` states this schema.
///
/// >>> import undertone_dp as udp
/// >>> sampler = udp.ShuffledEpochs(1218, 128, rounds=40)
/// >>> sampler.participation
/// Participation.fixed_epochs(gap=9, max_participation=5)
#[pyclass(extends = Sampler, frozen, module = "undertone_dp")]
pub(crate) struct ShuffledEpochs;

#[pymethods]
impl ShuffledEpochs {
    #[new]
    #[pyo3(signature = (num_users, users_per_round, *, rounds, key=None))]
    fn new(
        #[pyo3(from_py_with = count::num_users)] num_users: usize,
        #[pyo3(from_py_with = count::users_per_round)] users_per_round: usize,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
        key: Option<&Bound<'_, NoiseKey>>,
    ) -> Answer<PyClassInitializer<Self>> {
        let (users, goal) = (
            positive("num_users", num_users)?,
            positive("users_per_round", users_per_round)?,
        );
        let shown = format!("ShuffledEpochs({num_users}, {users_per_round}, rounds={rounds})");
        with_key(key, |key| {
            let draws = key.draws();
            let order = ParticipationKey::new(&draws);
            let epochs = epochs::ShuffledEpochs::with_report_goal(users, goal, &order)?;
            Ok(Sampler::new(Scheme::Epochs(epochs), rounds, key, draws, shown)?.add_subclass(Self))
        })
    }
}

/// User-level sampling: users join by Poisson sampling, each with at most `group_size` random examples of its own.
///
/// `user_of_example` names the user of each example by a whole number. A round's array holds the numbers of examples, grouped
/// by user. Clip what each user's examples give together: the event is that of users.
///
/// >>> import undertone_dp as udp
/// >>> owners = [0, 0, 0, 7, 7, 3]
/// >>> sampler = udp.UserLevelSampling(owners, group_size=2, probability=1.0, rounds=1)
/// >>> [owners[example] for example in next(sampler)]
/// [0, 0, 3, 7, 7]
#[pyclass(extends = Sampler, frozen, module = "undertone_dp")]
pub(crate) struct UserLevelSampling;

#[pymethods]
impl UserLevelSampling {
    #[new]
    #[pyo3(signature = (user_of_example, *, group_size, probability, rounds, key=None))]
    fn new(
        user_of_example: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = count::group_size)] group_size: usize,
        probability: f64,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
        key: Option<&Bound<'_, NoiseKey>>,
    ) -> Answer<PyClassInitializer<Self>> {
        let examples = Examples::new(user_of_example)?;
        let shown = format!(
            "<UserLevelSampling of {} users, group_size={group_size}, probability={probability:?}, rounds={rounds}>",
            examples.0.len()
        );
        let scheme = Scheme::Users {
            examples,
            group_size: positive("group_size", group_size)? as usize,
            probability: SamplingProbability::new(probability)?,
        };
        with_key(key, |key| {
            Ok(Sampler::new(scheme, rounds, key, key.draws(), shown)?.add_subclass(Self))
        })
    }
}

/// Example-level sampling: at most `group_size` examples per user are kept for the whole run, and each joins every round
/// independently with `probability`.
///
/// Clip each example by itself. The event promises privacy to users: one may hold several of a round's examples.
///
/// >>> import undertone_dp as udp
/// >>> sampler = udp.ExampleLevelSampling([0, 0, 0, 1], group_size=2, probability=1.0, rounds=2)
/// >>> first, second = sampler
/// >>> list(first) == list(second), len(first)
/// (True, 3)
#[pyclass(extends = Sampler, frozen, module = "undertone_dp")]
pub(crate) struct ExampleLevelSampling;

#[pymethods]
impl ExampleLevelSampling {
    #[new]
    #[pyo3(signature = (user_of_example, *, group_size, probability, rounds, key=None))]
    fn new(
        user_of_example: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = count::group_size)] group_size: usize,
        probability: f64,
        #[pyo3(from_py_with = count::rounds)] rounds: u64,
        key: Option<&Bound<'_, NoiseKey>>,
    ) -> Answer<PyClassInitializer<Self>> {
        let examples = Examples::new(user_of_example)?;
        let shown = format!(
            "<ExampleLevelSampling of {} users, group_size={group_size}, probability={probability:?}, rounds={rounds}>",
            examples.0.len()
        );
        let group_size = positive("group_size", group_size)?;
        let probability = SamplingProbability::new(probability)?;
        with_key(key, |key| {
            let draws = key.draws();
            let kept = KeptExamples::new(&examples.counts()?, group_size, &ParticipationKey::new(&draws));
            let scheme = Scheme::Examples {
                examples,
                kept,
                group_size,
                probability,
            };
            Ok(Sampler::new(scheme, rounds, key, draws, shown)?.add_subclass(Self))
        })
    }
}

/// Adds the classes of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sampler>()?;
    module.add_class::<PoissonUsers>()?;
    module.add_class::<FixedSizeUsers>()?;
    module.add_class::<ShuffledEpochs>()?;
    module.add_class::<UserLevelSampling>()?;
    module.add_class::<ExampleLevelSampling>()
}
