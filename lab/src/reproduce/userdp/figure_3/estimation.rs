//! The mean-estimation task of section 4, and Algorithms 1 and 2 on it.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use undertone_mechanisms::NoiseKey;

use crate::normal::standard_normal;

use crate::reproduce::ReproduceError;
use crate::reproduce::userdp::Promise;

/// `d`.
pub(super) const DIM: usize = 32;
/// `N`.
pub(super) const USERS: usize = 256;
/// `K`, examples of every user.
pub(super) const EXAMPLES: usize = 16;
/// `T`.
pub(super) const STEPS: u64 = 256;
const DELTA: f64 = 1e-6;

/// Coordinates that are added up side by side.
const LANES: usize = 8;

type Vector = [f32; DIM];

/// One point of the sweeps: what the paper varies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    pub(super) epsilon: f64,
    /// Expected gradients per step.
    pub(super) budget: u32,
    /// `sigma_2`, the standard deviation of a user's examples about the user's mean.
    pub(super) within: f64,
}

impl Setting {
    /// The paper's defaults.
    pub(super) const DEFAULT: Self = Self {
        epsilon: 1.0,
        budget: 64,
        within: 1.0,
    };
}

/// One of the paper's two algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// Algorithm 1 with all examples of every user.
    Els,
    /// Algorithm 2.
    Uls {
        /// `G_ULS`.
        group_size: usize,
    },
}

impl Algorithm {
    /// The probability that an example (ELS) or a user (ULS) joins a step; `None` where the budget wants more users than
    /// there are.
    fn probability(self, budget: u32) -> Option<f64> {
        let joins = match self {
            Self::Els => f64::from(budget) / (USERS * EXAMPLES) as f64,
            Self::Uls { group_size } => f64::from(budget) / (group_size * USERS) as f64,
        };
        (joins <= 1.0).then_some(joins)
    }

    /// The expected number of summands, `B` or `M`: what the sum is divided by.
    fn expected(self, budget: u32) -> f64 {
        match self {
            Self::Els => f64::from(budget),
            Self::Uls { group_size } => f64::from(budget) / group_size as f64,
        }
    }
}

/// An algorithm at a setting, with the noise that its promise takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Configured {
    pub(super) algorithm: Algorithm,
    budget: u32,
    probability: f64,
    /// `sigma`.
    pub(super) noise: f64,
}

impl Configured {
    /// `None` where the budget wants more users than there are.
    pub(super) fn new(algorithm: Algorithm, setting: Setting) -> Result<Option<Self>, ReproduceError> {
        let Some(probability) = algorithm.probability(setting.budget) else {
            return Ok(None);
        };
        let promise = Promise {
            epsilon: setting.epsilon,
            delta: DELTA,
            steps: STEPS,
        };
        let noise = match algorithm {
            Algorithm::Els => promise.els_noise(EXAMPLES as u32, probability)?,
            Algorithm::Uls { .. } => promise.uls_noise(probability)?,
        };
        Ok(Some(Self {
            algorithm,
            budget: setting.budget,
            probability,
            noise,
        }))
    }
}

/// Learning rate and clip norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tuning {
    pub(super) learning_rate: f32,
    pub(super) clip_norm: f32,
}

/// The examples of all users, and the mean that they were drawn around.
pub(super) struct Population {
    mean: Vector,
    /// User by user.
    points: Vec<Vector>,
    trial: u64,
}

/// Keys of what is drawn: one for the population, one for the noise.
const POPULATION_SEED: u64 = 1;
const NOISE_SEED: u64 = 2;
/// The seed of the samples that each algorithm draws.
const SAMPLING_SEED: u64 = 3;

impl Population {
    /// The population of one trial; at another within-user deviation it differs in nothing else.
    pub(super) fn draw(within: f64, trial: u64) -> Result<Self, ReproduceError> {
        let count = DIM * (1 + USERS + USERS * EXAMPLES);
        let normal = standard_normal(&NoiseKey::from_insecure_seed(POPULATION_SEED), trial, count)?;
        let mut draws = normal.as_chunks::<DIM>().0.iter();
        let mut about = |centre: &Vector, deviation: f32| -> Vector {
            let mut point = *centre;
            if let Some(draw) = draws.next() {
                for (value, normal) in point.iter_mut().zip(draw) {
                    *value += deviation * *normal as f32;
                }
            }
            point
        };
        let mean = about(&[0.0; DIM], 1.0);
        let users: Vec<Vector> = (0..USERS).map(|_| about(&mean, 1.0)).collect();
        let points = users
            .iter()
            .flat_map(|user| [user; EXAMPLES])
            .map(|user| about(user, within as f32))
            .collect();
        Ok(Self { mean, points, trial })
    }

    /// Squared distance of the last iterate from the mean, for every tuning. All of them see the same samples and the same
    /// noise; the loss of section 4, less what no estimate can avoid.
    ///
    /// The loss of an example is half its squared distance from the iterate, so that its gradient is their difference.
    pub(super) fn losses(
        &self,
        configured: &Configured,
        tunings: &[Tuning],
    ) -> Result<Vec<f64>, ReproduceError> {
        let noise_key = NoiseKey::from_insecure_seed(NOISE_SEED);
        let noise = standard_normal(&noise_key, self.trial, DIM * STEPS as usize)?;
        let mut generator = ChaCha8Rng::seed_from_u64(SAMPLING_SEED);
        generator.set_stream(self.trial);
        let mut sample = Sample::new(self, configured, generator);
        let expected = configured.algorithm.expected(configured.budget) as f32;
        let mut iterates = vec![[0.0f32; DIM]; tunings.len()];
        for normal in noise.as_chunks::<DIM>().0 {
            let averages = sample.next();
            for (iterate, tuning) in iterates.iter_mut().zip(tunings) {
                let mut sum = [0.0; DIM];
                add_clipped(iterate, averages, tuning.clip_norm, &mut sum);
                let deviation = tuning.clip_norm * configured.noise as f32;
                let step = tuning.learning_rate / expected;
                for ((value, sum), normal) in iterate.iter_mut().zip(&sum).zip(normal) {
                    *value -= step * (sum + deviation * *normal as f32);
                }
            }
        }
        Ok(iterates.iter().map(|iterate| self.error(iterate)).collect())
    }

    fn error(&self, iterate: &Vector) -> f64 {
        let differences = iterate.iter().zip(&self.mean);
        differences
            .map(|(value, mean)| f64::from(value - mean).powi(2))
            .sum()
    }
}

undertone_simd::vectorised! {
    /// Adds `clip(iterate - average, clip_norm)` for every average.
    fn add_clipped(iterate: &Vector, averages: &[Vector], clip_norm: f32, sum: &mut Vector) {
        for average in averages {
            let mut gradient = *iterate;
            let mut squares = [0.0f32; LANES];
            for (value, other) in gradient.iter_mut().zip(average) {
                *value -= other;
            }
            for lanes in gradient.as_chunks::<LANES>().0 {
                for (square, value) in squares.iter_mut().zip(lanes) {
                    *square += value * value;
                }
            }
            let norm = squares.iter().sum::<f32>().sqrt();
            let factor = if norm > clip_norm { clip_norm / norm } else { 1.0 };
            for (total, value) in sum.iter_mut().zip(&gradient) {
                *total += factor * value;
            }
        }
    }
}

/// The averages whose gradients are clipped: single examples in ELS, users' groups in ULS (the gradient of a group is that
/// of its average).
struct Sample<'a> {
    population: &'a Population,
    configured: &'a Configured,
    generator: ChaCha8Rng,
    averages: Vec<Vector>,
}

impl<'a> Sample<'a> {
    fn new(population: &'a Population, configured: &'a Configured, generator: ChaCha8Rng) -> Self {
        Self {
            population,
            configured,
            generator,
            averages: Vec::new(),
        }
    }

    /// Returns the sample of the next step.
    fn next(&mut self) -> &[Vector] {
        self.averages.clear();
        // Exact to 2^-32: a simulation.
        let below = (self.configured.probability * f64::from(u32::MAX)) as u32;
        match self.configured.algorithm {
            Algorithm::Els => {
                for point in &self.population.points {
                    if self.generator.next_u32() <= below {
                        self.averages.push(*point);
                    }
                }
            }
            Algorithm::Uls { group_size } => {
                for user in self.population.points.as_chunks::<EXAMPLES>().0 {
                    if self.generator.next_u32() <= below {
                        self.averages
                            .push(average_of_some(user, group_size, &mut self.generator));
                    }
                }
            }
        }
        &self.averages
    }
}

/// The average of so many of a user's examples, drawn without replacement.
fn average_of_some(user: &[Vector; EXAMPLES], group_size: usize, generator: &mut impl Rng) -> Vector {
    let mut order: [usize; EXAMPLES] = std::array::from_fn(|at| at);
    let mut sum = [0.0f32; DIM];
    for place in 0..group_size.min(EXAMPLES) {
        let left = (EXAMPLES - place) as u64;
        let other = place + ((u64::from(generator.next_u32()) * left) >> 32) as usize;
        order.swap(place, other);
        for (total, value) in sum.iter_mut().zip(&user[order[place]]) {
            *total += value;
        }
    }
    sum.map(|total| total / group_size as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Tuning = Tuning {
        learning_rate: 0.05,
        clip_norm: f32::INFINITY,
    };

    fn noiseless(algorithm: Algorithm, budget: u32) -> Configured {
        Configured {
            algorithm,
            budget,
            probability: algorithm.probability(budget).unwrap(),
            noise: 0.0,
        }
    }

    /// Everybody in every step, no clipping, no noise: gradient descent to the mean of the points, in closed form.
    #[test]
    fn without_noise_training_is_plain_gradient_descent() {
        let population = Population::draw(1.0, 0).unwrap();
        let mut average = [0.0f64; DIM];
        for point in &population.points {
            for (total, value) in average.iter_mut().zip(point) {
                *total += f64::from(*value) / population.points.len() as f64;
            }
        }
        let left = (1.0 - f64::from(PLAIN.learning_rate)).powi(STEPS as i32);
        let want: f64 = average
            .iter()
            .zip(&population.mean)
            .map(|(average, mean)| (average * (1.0 - left) - f64::from(*mean)).powi(2))
            .sum();
        for algorithm in [Algorithm::Els, Algorithm::Uls { group_size: EXAMPLES }] {
            let configured = noiseless(algorithm, (USERS * EXAMPLES) as u32);
            // A clip norm that never binds, so that infinity times no noise is not asked for.
            let tuning = Tuning {
                clip_norm: 1e6,
                ..PLAIN
            };
            let got = population.losses(&configured, &[tuning]).unwrap()[0];
            assert!((got / want - 1.0).abs() < 1e-3, "{algorithm:?}: {got} {want}");
        }
    }

    /// One example per user and step: both algorithms would sum up as many gradients, of as many users.
    #[test]
    fn samples_are_as_many_as_the_budget() {
        let population = Population::draw(1.0, 3).unwrap();
        for (algorithm, summands) in [
            (Algorithm::Els, 64.0),
            (Algorithm::Uls { group_size: 1 }, 64.0),
            (Algorithm::Uls { group_size: 8 }, 8.0),
        ] {
            let configured = noiseless(algorithm, 64);
            let mut sample = Sample::new(&population, &configured, ChaCha8Rng::seed_from_u64(5));
            let total: usize = (0..1000).map(|_| sample.next().len()).sum();
            // Four standard deviations of a binomial.
            let deviation = 4.0 * (summands / 1000.0f64).sqrt();
            assert!(
                (total as f64 / 1000.0 - summands).abs() < deviation,
                "{algorithm:?} {total}"
            );
        }
        assert!(Algorithm::Uls { group_size: 1 }.probability(512).is_none());
    }

    #[test]
    fn a_group_is_drawn_without_replacement() {
        let mut user = [[0.0; DIM]; EXAMPLES];
        for (at, point) in user.iter_mut().enumerate() {
            point[0] = f32::from(1u16 << at);
        }
        let mut generator = ChaCha8Rng::seed_from_u64(1);
        let mut seen = [0u32; EXAMPLES];
        for _ in 0..4000 {
            let sum = (5.0 * average_of_some(&user, 5, &mut generator)[0]).round() as u32;
            assert_eq!(sum.count_ones(), 5);
            for (at, seen) in seen.iter_mut().enumerate() {
                *seen += sum >> at & 1;
            }
        }
        // Mean 1250, standard deviation 29: five of them.
        assert!(seen.iter().all(|seen| seen.abs_diff(1250) < 147), "{seen:?}");
    }

    #[test]
    fn clipping_bounds_every_summand() {
        let (mut sum, iterate) = ([0.0; DIM], [0.0; DIM]);
        let mut far = [0.0; DIM];
        far[3] = -8.0;
        let mut near = [0.0; DIM];
        near[4] = 0.5;
        add_clipped(&iterate, &[far, near], 2.0, &mut sum);
        assert_eq!((sum[3], sum[4]), (2.0, -0.5));
    }
}
