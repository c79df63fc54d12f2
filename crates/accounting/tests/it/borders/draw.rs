//! Random questions: events of every kind, relations, deltas and numbers of releases.

use undertone_accounting::rdp::repeat_and_select::Repetitions;
use undertone_accounting::{
    Accountant, Adjacency, Delta, Epsilon, Event, NoiseMultiplier, Recipe, Rho, SamplingProbability,
};

/// Kinds of events.
pub(crate) const KINDS: usize = 20;

/// A sequence of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number between `low` and `high`, uniform in its logarithm.
    pub(crate) fn log(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.unit() * (high / low).ln()).exp()
    }

    fn whole(&mut self, low: f64, high: f64) -> u64 {
        self.log(low, high + 1.0).floor().clamp(low, high) as u64
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }

    fn probability(&mut self) -> SamplingProbability {
        let q = match self.next() % 6 {
            0 => 1.0,
            1 => 1.0 - self.log(1e-13, 0.5),
            _ => self.log(1e-9, 1.0),
        };
        SamplingProbability::new(q).unwrap()
    }
}

fn noise(multiplier: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(multiplier).unwrap()
}

/// A noise multiplier of which one release costs about `epsilon`.
fn multiplier(epsilon: f64) -> f64 {
    if epsilon > 8.0 {
        (2.0 * epsilon).sqrt().recip()
    } else {
        4.0 / epsilon
    }
}

/// An event of a kind, of which one release costs about `epsilon` without sampling.
fn event(kind: usize, epsilon: f64, delta: f64, draw: &mut Draw) -> Event {
    let z = multiplier(epsilon);
    match kind {
        0 => Event::PoissonGaussian {
            sampling_probability: draw.probability(),
            noise_multiplier: noise(z),
        },
        1 => Event::Gaussian {
            noise_multiplier: noise(z),
        },
        2 => {
            let population = draw.whole(1.0, 1e9);
            let share = draw.probability().get();
            Event::FixedSizeGaussian {
                population,
                cohort_size: ((share * population as f64) as u64).clamp(1, population),
                noise_multiplier: noise(z),
            }
        }
        3 => {
            let population = draw.whole(1.0, 5e9);
            let q = draw.probability();
            let mean = q.get() * population as f64;
            let far = draw.among(&[0.0, 0.0, -1.0, 1.0, 3.0, 8.0]);
            let cap = (mean + far * (mean * (1.0 - q.get())).sqrt()).round();
            Event::TruncatedPoissonGaussian {
                population,
                sampling_probability: q,
                max_cohort_size: (cap as u64).clamp(1, population),
                noise_multiplier: noise(z),
            }
        }
        4 => {
            let count = draw.whole(1.0, 4.0) as usize;
            let sensitivities: Vec<f64> = (0..count).map(|_| draw.unit()).collect();
            let weights: Vec<f64> = (0..count).map(|_| draw.log(1e-6, 1.0)).collect();
            let total: f64 = weights.iter().sum();
            Event::MixtureOfGaussians {
                noise_multiplier: noise(z),
                sensitivities,
                probabilities: weights.iter().map(|weight| weight / total).collect(),
            }
        }
        5 => {
            let group_size = draw.whole(1.0, 64.0) as u32;
            Event::ExampleLevelSampling {
                group_size,
                sampling_probability: draw.probability(),
                noise_multiplier: noise(z * f64::from(group_size).sqrt()),
            }
        }
        6 => {
            let sensitivity_squared = draw.log(0.1, 1e4);
            Event::CorrelatedGaussian {
                sensitivity_squared,
                noise_multiplier: noise(z * sensitivity_squared.sqrt()),
            }
        }
        7 => Event::Laplace {
            scale: epsilon.recip(),
        },
        8 => {
            let sensitivity = draw.whole(1.0, 20.0);
            Event::DiscreteLaplace {
                parameter: epsilon / sensitivity as f64,
                sensitivity,
            }
        }
        9 => {
            let sensitivity = draw.whole(1.0, 5.0);
            Event::DiscreteGaussian {
                sigma: z * sensitivity as f64,
                sensitivity,
            }
        }
        10 => {
            let num_buckets = draw.whole(2.0, 1e6);
            let count = num_buckets as f64;
            Event::RandomizedResponse {
                num_buckets,
                noise_parameter: (count / (count - 1.0 + epsilon.exp())).clamp(1e-300, 1.0),
            }
        }
        11 => Event::Binomial {
            trials: draw.whole(10.0, 1e6),
            success_probability: 0.05 + 0.9 * draw.unit(),
            shift: draw.whole(1.0, 9.0),
        },
        12 => {
            let inner = draw.among(&[7, 7, 8, 9, 11]);
            Event::PoissonSampled {
                sampling_probability: draw.probability(),
                event: Box::new(event(inner, epsilon, delta, draw)),
            }
        }
        13 => {
            let clients = draw.whole(2.0, 1e4);
            Event::DistributedDiscreteGaussian {
                clip_norm: 1.0,
                granularity: draw.log(1e-3, 0.1),
                dimension: draw.whole(1.0, 1e5),
                conditional_beta: 0.5,
                local_stddev: (z / (clients as f64).sqrt()).max(0.06),
                clients,
            }
        }
        14 => Event::Skellam {
            clip_norm: 1.0,
            granularity: draw.log(1e-3, 0.1),
            dimension: draw.whole(1.0, 1e5),
            conditional_beta: 0.5,
            central_stddev: z.max(0.06),
        },
        15 => Event::ZeroConcentrated {
            rho: Rho::new(0.5 / z / z).unwrap(),
            xi: if draw.one_in(2) { 0.0 } else { 0.1 * epsilon },
        },
        16 => Event::BoundedRange {
            epsilon: Epsilon::new(epsilon).unwrap(),
        },
        17 => {
            let own = draw.among(&[0.0, 1e-3, 0.5, 1.0, 1.01]) * delta;
            Event::ApproximateDp {
                epsilon: Epsilon::new(epsilon).unwrap(),
                delta: Delta::new(own).ok(),
            }
        }
        18 => {
            let inner = draw.among(&[0, 1, 2, 7, 8, 16]);
            let mean = draw.log(1.0, 1e3);
            Event::RepeatAndSelect {
                event: Box::new(event(inner, epsilon, delta, draw)),
                repetitions: if draw.one_in(3) {
                    Repetitions::Poisson { mean }
                } else {
                    Repetitions::TruncatedNegativeBinomial {
                        shape: draw.among(&[-0.5, 0.0, 1.0, 2.0]),
                        mean,
                    }
                },
            }
        }
        _ => Event::NonPrivate,
    }
}

/// A composition with a relation and a delta.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) events: Vec<(Event, u64)>,
    pub(crate) adjacency: Adjacency,
    pub(crate) recipe: Recipe,
    pub(crate) delta: Delta,
}

impl Question {
    /// A question about one event of each of the kinds, each composed a number of times.
    pub(crate) fn new(kinds: &[usize], most_rounds: f64, draw: &mut Draw) -> Self {
        let delta = match draw.next() % 4 {
            0 => draw.log(1e-300, 1e-30),
            1 => 1.0 - draw.log(1e-6, 0.9),
            _ => draw.log(1e-30, 0.5),
        };
        let events: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let epsilon = draw.log(1e-6, 1e3);
                let rounds = if draw.one_in(3) {
                    1
                } else {
                    draw.whole(1.0, most_rounds)
                };
                (event(*kind, epsilon, delta, draw), rounds)
            })
            .collect();
        let relations = [
            Adjacency::AddOrRemoveOne,
            Adjacency::ReplaceOne,
            Adjacency::ZeroOut,
        ];
        let holds = |adjacency: &Adjacency| {
            let mut accountant = Accountant::under(Recipe::Rdp, *adjacency);
            events.iter().all(|(event, rounds)| {
                let composed = accountant.compose(event, *rounds);
                !matches!(
                    composed,
                    Err(undertone_accounting::AccountingError::UnsupportedAdjacency { .. }
                        | undertone_accounting::AccountingError::AdjacencyMismatch { .. })
                )
            })
        };
        let possible: Vec<Adjacency> = relations.into_iter().filter(holds).collect();
        let adjacency = if possible.is_empty() {
            draw.among(&relations)
        } else {
            draw.among(&possible)
        };
        let recipe = match draw.next() % 8 {
            0 => Recipe::Rdp,
            1 => Recipe::Pld,
            _ => Recipe::best_for(events.iter().map(|(event, _)| event)),
        };
        Self {
            events,
            adjacency,
            recipe,
            delta: Delta::new(delta).unwrap(),
        }
    }

    pub(crate) fn accountant(&self) -> Result<Accountant, undertone_accounting::AccountingError> {
        let mut accountant = Accountant::under(self.recipe, self.adjacency);
        for (event, rounds) in &self.events {
            accountant.compose(event, *rounds)?;
        }
        Ok(accountant)
    }

    /// The question with every event changed; `None` where one cannot be.
    pub(crate) fn with_events(&self, change: impl Fn(&Event) -> Option<Event>) -> Option<Self> {
        let events = self
            .events
            .iter()
            .map(|(event, rounds)| Some((change(event)?, *rounds)));
        Some(Self {
            events: events.collect::<Option<_>>()?,
            ..self.clone()
        })
    }
}

/// The event with `factor` times the noise; `None` for events whose noise has no one number, or of which more noise may cost more.
///
/// More of discrete Laplace noise is less of it and an independent rest, and so a post-processing. Discrete Gaussian noise is no such sum:
/// `f11_more_discrete_gaussian_noise_may_cost_more`.
pub(crate) fn noisier(event: &Event, factor: f64) -> Option<Event> {
    let mut event = event.clone();
    match &mut event {
        Event::PoissonGaussian { noise_multiplier, .. }
        | Event::Gaussian { noise_multiplier }
        | Event::FixedSizeGaussian { noise_multiplier, .. }
        | Event::TruncatedPoissonGaussian { noise_multiplier, .. }
        | Event::MixtureOfGaussians { noise_multiplier, .. }
        | Event::ExampleLevelSampling { noise_multiplier, .. }
        | Event::CorrelatedGaussian { noise_multiplier, .. } => {
            *noise_multiplier = noise(noise_multiplier.get() * factor);
        }
        Event::Laplace { scale } => *scale *= factor,
        Event::DiscreteLaplace { parameter, .. } => *parameter /= factor,
        Event::RandomizedResponse { noise_parameter, .. } => {
            *noise_parameter = (*noise_parameter * factor).min(1.0);
        }
        Event::PoissonSampled { event, .. } => **event = noisier(event, factor)?,
        Event::ZeroConcentrated { rho, xi } => {
            *rho = Rho::new(rho.get() / factor).unwrap();
            *xi /= factor;
        }
        Event::BoundedRange { epsilon } | Event::ApproximateDp { epsilon, .. } => {
            *epsilon = Epsilon::new(epsilon.get() / factor).unwrap();
        }
        Event::RepeatAndSelect { event, .. } => **event = noisier(event, factor)?,
        _ => return None,
    }
    Some(event)
}

/// The event without sampling; itself where there is none.
pub(crate) fn unsampled(event: &Event, adjacency: Adjacency) -> Event {
    let gaussian = |noise_multiplier: NoiseMultiplier, moved: f64| Event::CorrelatedGaussian {
        // The relation doubles the sensitivity again, so it is taken relative to that.
        sensitivity_squared: (moved
            / if adjacency == Adjacency::ReplaceOne {
                2.0
            } else {
                1.0
            })
        .powi(2),
        noise_multiplier,
    };
    match event {
        // A sample of everybody is none.
        Event::PoissonGaussian {
            sampling_probability, ..
        }
        | Event::ExampleLevelSampling {
            group_size: 1,
            sampling_probability,
            ..
        } if sampling_probability.get() == 1.0 => event.clone(),
        Event::PoissonGaussian { noise_multiplier, .. } => Event::Gaussian {
            noise_multiplier: *noise_multiplier,
        },
        Event::ExampleLevelSampling {
            group_size,
            noise_multiplier,
            ..
        } => Event::Gaussian {
            noise_multiplier: noise(noise_multiplier.get() / f64::from(*group_size)),
        },
        Event::FixedSizeGaussian {
            population,
            noise_multiplier,
            ..
        } => Event::FixedSizeGaussian {
            population: *population,
            cohort_size: *population,
            noise_multiplier: *noise_multiplier,
        },
        Event::TruncatedPoissonGaussian { noise_multiplier, .. } => match adjacency {
            Adjacency::AddOrRemoveOne => Event::Gaussian {
                noise_multiplier: noise(0.5 * noise_multiplier.get()),
            },
            Adjacency::ReplaceOne => gaussian(*noise_multiplier, 2.0),
            Adjacency::ZeroOut => gaussian(*noise_multiplier, 1.0),
        },
        Event::PoissonSampled { event, .. } => (**event).clone(),
        event => event.clone(),
    }
}
