//! Advice before a private fine-tuning: example-level or user-level sampling, with group size, cohort and noise.
//!
//! Source: \[UserDP\] sections 3 and 6, appendix F (Charles et al., "Fine-Tuning Large Language Models with User-Level
//! Differential Privacy", 2024).

pub mod doubling;
pub mod probe;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;
use undertone_accounting::calibrate::noise_multiplier_of;
use undertone_accounting::{Delta, Epsilon, Event, Recipe, SamplingProbability};
use undertone_data::{Corpus, Partition, Split};
use undertone_mechanisms::PrivateMedian;
use undertone_present::numbers::number;

use self::doubling::{Doubling, estimate_and_double};
use self::probe::Probe;
use undertone_coordinator::random::{NoiseOf, Randomness};
use undertone_run::{CorpusProgress, Observer, Result, RunError, RunFile};
use undertone_run_directory::entropy::randomness;
use undertone_run_directory::files::names::CORPORA_FOLDER;
use undertone_run_directory::initial_model::{self, starting_parameters};

/// The fraction of failures that [`MedianCost::rank_error`] leaves.
const RANK_FAILURE: f64 = 0.01;

/// A request for advice.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviceRequest {
    /// `B`: expected gradients per step.
    pub compute_budget: u64,
    /// `T`.
    pub rounds: u64,
    /// Epsilon of the median and the training together.
    pub epsilon: f64,
    /// Delta of the training; the median needs none.
    pub delta: f64,
    /// The source of `G_ELS`.
    pub group_size: GroupSize,
    /// Number of users whose gradients are measured.
    pub probe_users: usize,
    /// `(G, M)` that doubling starts from.
    pub start: (u64, u64),
    /// The seed that fixes all draws, for study: the median is not private then.
    pub seed: Option<u64>,
    /// Number of cores to use.
    pub threads: usize,
}

/// The source of the group size of example-level sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GroupSize {
    /// A given size, from public knowledge.
    Given(u32),
    /// The private median of the users' numbers of examples.
    PrivateMedian {
        /// Epsilon of the median.
        epsilon: f64,
        /// Max group size.
        largest: u32,
    },
}

/// The privacy cost of the median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MedianCost {
    /// Epsilon of one release, with delta 0; each call spends it again.
    pub epsilon: f64,
    /// Number of users by which the median can miss the middle, except in one case of a hundred.
    pub rank_error: f64,
    /// Max value of the median.
    pub largest: u32,
    /// `true` if its randomness was seeded, so that nothing is promised.
    pub seeded: bool,
}

/// One of the two algorithms, configured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Configured {
    /// Max number of examples per user: in the training set (ELS), in a step (ULS).
    pub group_size: u64,
    /// Expected examples (ELS, `B`) or users (ULS, `M`) per step: the denominator of the average.
    pub batch: u64,
    /// `p` of examples or `q` of users.
    pub sampling_probability: f64,
    /// `sigma`, calibrated by the loss distribution.
    pub noise_multiplier: f64,
    /// `L`: median norm of the gradients to clip, a clip norm to start tuning from.
    pub gradient_norm: f64,
    /// Predicted standard deviation of the noise on a coordinate of the average: `sigma L / B` or `sigma L / M`.
    pub noise_std: f64,
}

/// The algorithm that is predicted to add less noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recommended {
    /// Example-level sampling.
    Els,
    /// User-level sampling.
    Uls,
}

/// The advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// `N`.
    pub users: u64,
    /// Number of examples of all users.
    pub examples: u64,
    /// Number of examples in the training set of ELS.
    pub els_examples: u64,
    /// The requested epsilon, of median and training together.
    pub epsilon: f64,
    /// Epsilon that is left to the training.
    pub training_epsilon: f64,
    /// Delta of the training.
    pub delta: f64,
    /// `T`.
    pub rounds: u64,
    /// `B`.
    pub compute_budget: u64,
    /// The cost of the median; `None` if the group size was given.
    pub median: Option<MedianCost>,
    /// Example-level sampling.
    pub els: Configured,
    /// User-level sampling.
    pub uls: Configured,
    /// The search for group size and cohort of ULS.
    pub doubling: Doubling,
    /// Predicted variance of ULS over that of ELS (equation 7: ELS adds less where it is above 1).
    pub variance_ratio: f64,
    /// The algorithm with less predicted noise.
    pub recommended: Recommended,
    /// Number of users whose gradients were measured.
    pub probed_users: usize,
    /// `true` if they were users of a different, public corpus.
    pub probed_proxy: bool,
    /// Statements about the private and the other parts of this advice.
    pub privacy: Vec<String>,
}

/// Advises on the corpus, model and initial parameters of a run file. With a `proxy`, gradients are measured on that
/// run file's corpus and model instead. Corpora are cached under `out`, as those of runs.
///
/// # Guarantee
/// `els.group_size` is `(median.epsilon, 0)`-differentially private for adding or removing one user. Both noise multipliers
/// give a training with their sampling `(training_epsilon, delta)`, so that the two together hold `(epsilon, delta)`
/// (basic composition). PRIVACY: nothing else of the advice is private: gradient norms and what follows from them
/// (without a `proxy`), and the numbers of users and examples, are exact.
///
/// # Errors
/// [`RunError::Coordinator`] for a budget that the start does not reach by doubling, or that exceeds the corpus; from corpus,
/// model and accountant.
pub fn advise(
    file: &RunFile,
    proxy: Option<&RunFile>,
    request: &AdviceRequest,
    out: &Path,
    observer: &dyn Observer,
) -> Result<Advice> {
    let drawn = randomness(request.seed)?;
    let open = |file: &RunFile| -> Result<Corpus> {
        let progress = CorpusProgress(observer);
        Ok(Corpus::open(
            &file.config.data,
            &file.base,
            &out.join(CORPORA_FOLDER),
            &progress,
        )?)
    };
    let corpus = open(file)?;
    let public = proxy.map(open).transpose()?;
    let (probed_file, probed) = match (proxy, &public) {
        (Some(proxy), Some(public)) => (proxy, public),
        _ => (file, &corpus),
    };
    let config = &probed_file.config;
    let (initial, base) = (config.initial_model.as_deref(), &probed_file.base);
    let model = initial_model::model(&config.task.model, initial, base, probed.vocab())?;
    let mut parameters = starting_parameters(
        &config.task.model,
        initial,
        base,
        model.as_ref(),
        probed.vocab(),
        &randomness(config.seed)?,
    )?;
    if let Some(folder) = &config.initial_adapters {
        let (spec, words) = (&config.task.model, probed.vocab());
        initial_model::add_adapters(spec, folder, base, model.as_ref(), words, &mut parameters)?;
    }
    let partition = probed.partition(Split::Train);
    let mut probe = Probe::new(
        model.as_ref(),
        &parameters,
        &partition,
        request.probe_users,
        &drawn,
        request.threads,
    )?;
    let mut advice = AdviceInputs::new(&corpus.partition(Split::Train), request, &drawn)?
        .advise(&mut probe, &|| observer.on_user())?;
    advice.probed_proxy = proxy.is_some();
    advice.privacy = statements(&advice, corpus.vocabulary_privacy().is_some());
    Ok(advice)
}

/// The inputs of advice that do not depend on gradients.
struct AdviceInputs<'a> {
    request: &'a AdviceRequest,
    sizes: Vec<u64>,
    group_size: u32,
    median: Option<MedianCost>,
    target: (Epsilon, Delta),
}

impl<'a> AdviceInputs<'a> {
    fn new(users: &Partition<'_>, request: &'a AdviceRequest, randomness: &Randomness) -> Result<Self> {
        if users.num_users() == 0 {
            let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
            return Err(RunError::EmptyPartition { split: "train", hint });
        }
        let sizes: Vec<u64> = users.users().map(|user| user.num_examples() as u64).collect();
        let (group_size, median) = match request.group_size {
            GroupSize::Given(0) => return Err(RunError::value("group_size", "at least 1", 0)),
            GroupSize::Given(group_size) => (group_size, None),
            GroupSize::PrivateMedian { epsilon, largest } => {
                let median = PrivateMedian::new(epsilon, u64::from(largest))?;
                let key = randomness.noise_key(NoiseOf::GroupSize, 0);
                let released = median.release(&sizes, &key, 0)?;
                let cost = MedianCost {
                    epsilon: median.epsilon(),
                    rank_error: median.rank_error(RANK_FAILURE),
                    largest,
                    seeded: randomness.is_seeded(),
                };
                (u32::try_from(released).unwrap_or(largest), Some(cost))
            }
        };
        let spent = median.map_or(0.0, |median| median.epsilon);
        let left = request.epsilon - spent;
        if left.is_nan() || left <= 0.0 {
            let expected = format!("more than the {spent} of the median");
            return Err(RunError::value("epsilon", expected, request.epsilon));
        }
        Ok(Self {
            request,
            sizes,
            group_size,
            median,
            target: (Epsilon::new(left)?, Delta::new(request.delta)?),
        })
    }

    /// The min noise multiplier, if each of at most `group_size` examples per user joins a step with this probability.
    fn noise(&self, group_size: u32, probability: f64) -> Result<f64> {
        let sampling_probability = SamplingProbability::new(probability)?;
        let step = |noise_multiplier| Event::ExampleLevelSampling {
            group_size,
            sampling_probability,
            noise_multiplier,
        };
        let rounds = self.request.rounds;
        Ok(noise_multiplier_of(self.target, rounds, Recipe::Pld, step)?.get())
    }

    fn advise(self, probe: &mut Probe<'_>, on_user: &(dyn Fn() + Sync)) -> Result<Advice> {
        let request = self.request;
        let users = self.sizes.len() as u64;
        let els_examples = self
            .sizes
            .iter()
            .map(|size| (*size).min(u64::from(self.group_size)))
            .sum::<u64>();
        let budget = request.compute_budget;
        if budget > els_examples {
            let expected = format!(
                "at most {els_examples}, the examples left with at most {} of a user",
                self.group_size
            );
            return Err(RunError::value("compute_budget", expected, budget));
        }
        let mut known = std::collections::BTreeMap::new();
        let mut uls_noise = |cohort: u64| -> Result<Option<f64>> {
            if cohort > users {
                return Ok(None);
            }
            if let Some(noise) = known.get(&cohort) {
                return Ok(Some(*noise));
            }
            let noise = self.noise(1, cohort as f64 / users as f64)?;
            known.insert(cohort, noise);
            Ok(Some(noise))
        };
        let doubling = estimate_and_double(
            request.start,
            budget,
            |group_size| probe.median_norm(group_size, on_user),
            &mut uls_noise,
        )?;
        let cohort = doubling.cohort_size;
        let Some(noise) = uls_noise(cohort)? else {
            let expected = format!("at most {users}, the users");
            return Err(RunError::value("start_cohort", expected, cohort));
        };
        let configured = |group_size, batch: u64, probability, noise, norm| Configured {
            group_size,
            batch,
            sampling_probability: probability,
            noise_multiplier: noise,
            gradient_norm: norm,
            noise_std: noise * norm / batch as f64,
        };
        let uls = configured(
            doubling.group_size,
            cohort,
            cohort as f64 / users as f64,
            noise,
            probe.median_norm(doubling.group_size, on_user)?,
        );
        let p = budget as f64 / els_examples as f64;
        let els = configured(
            u64::from(self.group_size),
            budget,
            p,
            self.noise(self.group_size, p)?,
            probe.median_norm(1, on_user)?,
        );
        let variance_ratio = (uls.noise_std / els.noise_std).powi(2);
        Ok(Advice {
            users,
            examples: self.sizes.iter().sum(),
            els_examples,
            epsilon: request.epsilon,
            training_epsilon: self.target.0.get(),
            delta: request.delta,
            rounds: request.rounds,
            compute_budget: budget,
            median: self.median,
            els,
            uls,
            doubling,
            variance_ratio,
            recommended: if variance_ratio < 1.0 {
                Recommended::Uls
            } else {
                Recommended::Els
            },
            probed_users: probe.num_users(),
            probed_proxy: false,
            privacy: Vec::new(),
        })
    }
}

/// The statements about the private and the other parts of the advice.
fn statements(advice: &Advice, private_vocabulary: bool) -> Vec<String> {
    let mut said = Vec::new();
    match &advice.median {
        Some(median) if median.seeded => said.push(
            "the group size of ELS is a median with seeded randomness: who knows the seed learns from it; for study only"
                .to_owned(),
        ),
        Some(median) => said.push(format!(
            "private: the group size of ELS, a median of the users' sizes at epsilon {} and delta 0 for adding or removing one user; \
             asking again spends it again",
            number(median.epsilon)
        )),
        None => said.push("the group size of ELS was given: nothing was computed for it".to_owned()),
    }
    said.push(format!(
        "the noise multipliers leave epsilon {} to the training, by Poisson sampling; with the median it is {} in all",
        number(advice.training_epsilon),
        advice.epsilon
    ));
    said.push(if advice.probed_proxy {
        "gradient norms were measured on the proxy corpus: they cost this corpus nothing".to_owned()
    } else {
        "NOT private: the gradient norms L(G), and so the group and cohort sizes of ULS, the clip norms and the \
         recommendation, are read off the users' text without noise, as in the paper; with --proxy they come from public text"
            .to_owned()
    });
    said.push(
        "NOT private: the numbers of users and examples, which sampling probabilities and denominators are made of".to_owned(),
    );
    if private_vocabulary {
        said.push("the private choice of the vocabulary comes on top".to_owned());
    }
    said
}
