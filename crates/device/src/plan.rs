//! A signed plan as typed values, and its comparison with the floors of the device and the settings of a round.

mod claim;
mod round;

use serde::Deserialize;
use undertone_aggregation::{EncodingConfig, UPDATE_LIMIT};
use undertone_models::ModelSpec;
use undertone_protocol::{
    AggregationRule, Blob, Digest32, Label, Plan, Signed, SumMode, TaskKind, TrustedKeys, clip_rule,
    digest_of, limits, read,
};
use undertone_secagg::{Terms, ThreatModel};
use undertone_settings::{Algorithm, Batching, UserSettings};
use undertone_text::{TextRules, WordRule};

use crate::error::Refusal;
use crate::floors::{Limits, Neighbours, PolicyFloors};
use crate::memory::Memory;

pub(crate) use round::{Prepared, RoundTerms};

/// Max number of tokens of one example in a plan.
const MAX_EXAMPLE_TOKENS: u64 = 1 << 14;

/// Max number of examples that a plan may ask of one device.
const MAX_EXAMPLES: u32 = 1 << 16;

/// The purpose of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Purpose {
    /// The task trains a model.
    Train,
    /// The task measures a model on text that devices withhold from training.
    Evaluate {
        /// The loss at which the mean loss of a user is capped.
        loss_cap: f64,
    },
}

/// The bound on an update.
#[derive(Debug, Clone, PartialEq)]
pub enum ClipPolicy {
    /// One norm for the whole update.
    Flat(f64),
    /// One norm per parameter vector.
    Layers(Vec<f64>),
    /// A norm that follows the users' norms.
    Adaptive {
        /// The max norm.
        max: f64,
    },
}

impl ClipPolicy {
    /// The max L2 norm of a whole update.
    #[must_use]
    pub fn norm(&self) -> f64 {
        match self {
            Self::Flat(norm) | Self::Adaptive { max: norm } => *norm,
            Self::Layers(norms) => norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt(),
        }
    }
}

/// The parties that see an update.
#[derive(Debug, Clone, PartialEq)]
pub enum SumPolicy {
    /// The server sees each update.
    Plain,
    /// The server sees sums of groups.
    SecAgg(Box<SecAggPolicy>),
}

/// The settings of secure sums.
#[derive(Debug, Clone, PartialEq)]
pub struct SecAggPolicy {
    /// The encoding of an update as integers.
    pub encoding: EncodingConfig,
    /// The key of the rotations.
    pub rotations: Digest32,
    /// The issuers whose certificates count for neighbours.
    pub issuers: TrustedKeys,
    /// The terms of one group, on which its clients agree.
    pub terms: Terms,
}

/// The planned guarantee of a whole task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    /// Epsilon.
    pub epsilon: f64,
    /// Delta.
    pub delta: f64,
    /// The zCDP cost.
    pub rho: f64,
    /// The noise multiplier.
    pub noise_multiplier: f64,
}

/// A plan that a trusted key signed, read and checked against the floors of this device.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPlan {
    /// SHA-256 of the signed plan as it travels.
    pub digest: Digest32,
    /// The task.
    pub task: Digest32,
    /// The purpose of the task.
    pub purpose: Purpose,
    /// Number of rounds.
    pub rounds: u64,
    /// The model.
    pub model: ModelSpec,
    /// The local training.
    pub settings: UserSettings,
    /// The rules that cut text into examples.
    pub text: TextRules,
    /// The vocabulary.
    pub vocabulary: Blob,
    /// Parameters that are not trained.
    pub frozen: Option<Blob>,
    /// The bound on an update.
    pub clip: ClipPolicy,
    /// The parties that see an update.
    pub sum: SumPolicy,
    /// Min and max number of devices in the sum of a round.
    pub clients: (u32, u32),
    /// The modulus of the sum; 0 for a sum of numbers.
    pub modulus: u64,
    /// Number of coordinates after padding.
    pub length: u64,
    /// Min distance of two participations, in rounds.
    pub min_sep: u32,
    /// Max number of participations.
    pub max_part: u32,
    /// Min time between two participations, in milliseconds.
    pub timer_ms: u64,
    /// Min number of examples.
    pub min_examples: u32,
    /// Max number of examples that one round uses.
    pub max_examples: u32,
    /// The planned guarantee.
    pub planned: Planned,
    /// Min speed of an upload, in kilobits per second; 0 for any.
    pub upload_kbps_min: u32,
    /// Max processor time that the plan asks for, in milliseconds.
    pub cpu_ms: u64,
}

/// The views of a device that decide whether it accepts a plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanChecks<'a> {
    /// The population of the device.
    pub population: &'a str,
    /// The keys whose plans the device follows.
    pub trusted: &'a TrustedKeys,
    /// The floors.
    pub floors: &'a PolicyFloors,
    /// The limits of what a session may take.
    pub limits: &'a Limits,
    /// The version of the app.
    pub client_version: u32,
}

impl TaskPlan {
    /// `true` if the device has as many examples for the purpose of the plan as it asks for.
    pub(crate) fn has_examples(&self, memory: &Memory) -> bool {
        let counted = (memory.training_examples, memory.withheld_examples);
        let (training, withheld) = match self.text.words {
            WordRule::English => memory.english_examples.unwrap_or(counted),
            _ => counted,
        };
        let examples = match self.purpose {
            Purpose::Train => training,
            Purpose::Evaluate { .. } => withheld,
        };
        examples >= u64::from(self.min_examples)
    }

    /// Reads the plan of a task and checks it.
    ///
    /// # Errors
    /// A [`Refusal`] that names the first value that is not signed, not readable, outside its range, weaker than the floors, or better than
    /// the noise of the plan can keep.
    pub fn read(bytes: &[u8], task: &Digest32, checks: &PlanChecks<'_>) -> Result<Self, Refusal> {
        let signed: Signed = read("the signed plan", bytes, limits::MAX_PLAN)?;
        let (body, _) = checks.trusted.open(Label::Plan, &signed)?;
        let plan: Plan = read("the plan", body, limits::MAX_PLAN)?;
        let read = Self::of(&plan, digest_of(bytes), checks)?;
        if read.task != *task {
            return Err(Refusal::value(
                "the plan's task",
                "that of the assignment",
                "another",
            ));
        }
        read.check_floors(checks.floors)?;
        read.check_claim()?;
        Ok(read)
    }

    fn of(plan: &Plan, digest: Digest32, checks: &PlanChecks<'_>) -> Result<Self, Refusal> {
        if plan.population != checks.population {
            let expected = checks.population.to_owned();
            return Err(Refusal::value(
                "the plan's population",
                expected,
                &plan.population,
            ));
        }
        if plan.min_client_version > checks.client_version {
            return Err(Refusal::value(
                "the app's version",
                format!("at least {}", plan.min_client_version),
                checks.client_version,
            ));
        }
        let purpose = purpose(plan)?;
        let model: ModelSpec = json("model", &plan.model)?;
        let settings = match purpose {
            Purpose::Train => training(plan)?,
            Purpose::Evaluate { .. } => evaluation_settings(),
        };
        let text: TextRules = json("text", &plan.text)?;
        let longest = text.longest() as u64;
        within("the length of an example in text", longest, 1, MAX_EXAMPLE_TOKENS)?;
        let vocabulary = blob(
            "vocabulary",
            plan.vocabulary.as_ref(),
            limits::MAX_VOCABULARY as u64,
        )?;
        let frozen = match &plan.frozen {
            None => None,
            Some(frozen) => Some(blob("frozen", Some(frozen), checks.limits.down_bytes)?),
        };
        let guarantee = plan.guarantee.unwrap_or_default();
        let planned = Planned {
            epsilon: positive("guarantee.epsilon", guarantee.epsilon)?,
            delta: positive("guarantee.delta", guarantee.delta)?,
            rho: positive("guarantee.rho", guarantee.rho)?,
            noise_multiplier: positive("guarantee.noise_multiplier", guarantee.noise_multiplier)?,
        };
        let clip = clip(plan)?;
        let rule = plan.aggregation.clone().unwrap_or_default();
        within("aggregation.min_clients", rule.min_clients.into(), 2, 1 << 22)?;
        within(
            "aggregation.max_clients",
            rule.max_clients.into(),
            rule.min_clients.into(),
            1 << 22,
        )?;
        within("rounds", plan.rounds, 1, 1 << 40)?;
        within("min_sep", plan.min_sep.into(), 1, u32::MAX.into())?;
        within("max_part", plan.max_part.into(), 1, u32::MAX.into())?;
        within("max_examples", plan.max_examples.into(), 1, MAX_EXAMPLES.into())?;
        within(
            "min_examples",
            plan.min_examples.into(),
            1,
            plan.max_examples.into(),
        )?;
        let sum = sum(&rule, &clip)?;
        if matches!(purpose, Purpose::Evaluate { .. }) && !matches!(clip, ClipPolicy::Flat(_)) {
            return Err(Refusal::value("clip", "one flat norm in an evaluation", "others"));
        }
        let budget = plan.budget.unwrap_or_default();
        let over = |name, limit: u64, got: u64| {
            Err(Refusal::floor(name, format!("at most {limit}"), got)) as Result<(), Refusal>
        };
        if budget.cpu_ms > checks.limits.cpu_ms {
            over("budget.cpu", checks.limits.cpu_ms, budget.cpu_ms)?;
        }
        if budget.battery_percent > checks.limits.battery_percent {
            let limit = checks.limits.battery_percent.into();
            over("budget.battery_percent", limit, budget.battery_percent.into())?;
        }
        Self {
            digest,
            task: array("task", &plan.task)?,
            purpose,
            rounds: plan.rounds,
            model,
            settings,
            text,
            vocabulary,
            frozen,
            clip,
            sum,
            clients: (rule.min_clients, rule.max_clients),
            modulus: rule.modulus,
            length: rule.length,
            min_sep: plan.min_sep,
            max_part: plan.max_part,
            timer_ms: plan.timer_s.saturating_mul(1000),
            min_examples: plan.min_examples,
            max_examples: plan.max_examples,
            planned,
            upload_kbps_min: budget.upload_kbps_min,
            cpu_ms: match budget.cpu_ms {
                0 => checks.limits.cpu_ms,
                some => some,
            },
        }
        .with_goal(plan.report_goal, checks.floors)
    }

    fn with_goal(self, goal: u64, floors: &PolicyFloors) -> Result<Self, Refusal> {
        match goal >= floors.min_goal {
            true => Ok(self),
            false => Err(Refusal::floor(
                "report_goal",
                format!("at least {}", floors.min_goal),
                goal,
            )),
        }
    }

    /// `true` if devices add the noise.
    fn adds_own_noise(&self) -> bool {
        match &self.sum {
            SumPolicy::Plain => false,
            SumPolicy::SecAgg(secagg) => secagg.encoding.is_distributed(),
        }
    }

    /// PRIVACY: the floors are the device's own, whatever was signed.
    fn check_floors(&self, floors: &PolicyFloors) -> Result<(), Refusal> {
        let Planned {
            epsilon,
            delta,
            rho,
            noise_multiplier,
        } = self.planned;
        let floor = |holds: bool, name, expected: String, got: f64| match holds {
            true => Ok(()),
            false => Err(Refusal::floor(name, expected, got)),
        };
        floor(
            noise_multiplier >= floors.min_noise_multiplier,
            "guarantee.noise_multiplier",
            format!("at least {}", floors.min_noise_multiplier),
            noise_multiplier,
        )?;
        floor(
            epsilon <= floors.max_epsilon,
            "guarantee.epsilon",
            format!("at most {}", floors.max_epsilon),
            epsilon,
        )?;
        floor(
            delta <= floors.max_delta,
            "guarantee.delta",
            format!("at most {}", floors.max_delta),
            delta,
        )?;
        floor(
            rho <= floors.population_rho,
            "guarantee.rho",
            format!("at most {}", floors.population_rho),
            rho,
        )?;
        let group = match &self.sum {
            SumPolicy::Plain if floors.require_secagg => {
                return Err(Refusal::floor("aggregation.mode", "a secure sum", "plain"));
            }
            SumPolicy::Plain => self.clients.0,
            SumPolicy::SecAgg(secagg) => {
                let active = secagg.terms.threat_model() == ThreatModel::Active;
                if !active && !matches!(floors.neighbours, Neighbours::Anyone) {
                    let expected = "at least one public key";
                    return Err(Refusal::floor("aggregation.issuers", expected, "none"));
                }
                secagg.terms.min_survivors()
            }
        };
        let min = floors.min_group.max(2);
        floor(
            group >= min,
            "the min number of devices in a sum",
            format!("at least {min}"),
            group.into(),
        )
    }
}

fn purpose(plan: &Plan) -> Result<Purpose, Refusal> {
    match plan.kind() {
        TaskKind::Train => Ok(Purpose::Train),
        TaskKind::Evaluate => {
            array::<32>("of", &plan.of)?;
            let loss_cap = positive("loss_cap", plan.loss_cap)?;
            Ok(Purpose::Evaluate { loss_cap })
        }
        TaskKind::Unspecified => Err(Refusal::value("kind", "training or evaluation", plan.kind)),
    }
}

fn training(plan: &Plan) -> Result<UserSettings, Refusal> {
    let settings: UserSettings = json("user_update", &plan.user_update)?;
    let refused = |error| Refusal::value("user_update", "settings of one user", error);
    settings.validate().map_err(refused)?;
    if settings.algorithm == Algorithm::Els || settings.weight_cap.is_some() {
        let expected = "an algorithm with one update of weight 1 per user";
        return Err(Refusal::value("user_update", expected, settings.algorithm.name()));
    }
    // A worker takes its memory from these sizes before it sees an example.
    for (name, size) in [
        ("user_update.batch_size", settings.batch_size()),
        ("user_update.unroll", settings.unroll),
    ] {
        within(name, size as u64, 1, MAX_EXAMPLES.into())?;
    }
    Ok(settings)
}

/// The settings of a worker that only measures.
fn evaluation_settings() -> UserSettings {
    UserSettings {
        algorithm: Algorithm::FedAvg,
        batching: Batching::Sentences,
        batch_size: None,
        group_size: None,
        unroll: 1,
        epochs: 1,
        learning_rate: None,
        max_steps: None,
        clip_every_step: false,
        max_examples: None,
        weight_cap: None,
    }
}

fn clip(plan: &Plan) -> Result<ClipPolicy, Refusal> {
    let norm = |name, norm: f64| match (1e-6..UPDATE_LIMIT).contains(&norm) {
        true => Ok(norm),
        false => Err(Refusal::value(name, format!("from 1e-6 to {UPDATE_LIMIT}"), norm)),
    };
    match plan.clip.as_ref().and_then(|rule| rule.kind.as_ref()) {
        Some(clip_rule::Kind::Flat(flat)) => Ok(ClipPolicy::Flat(norm("clip.flat", *flat)?)),
        Some(clip_rule::Kind::Layers(layers)) => {
            for &each in &layers.norms {
                norm("clip.layers", each)?;
            }
            let policy = ClipPolicy::Layers(layers.norms.clone());
            norm("the norm of clip.layers", policy.norm())?;
            Ok(policy)
        }
        Some(clip_rule::Kind::Adaptive(adaptive)) => {
            let max = norm("clip.adaptive.max", adaptive.max)?;
            let initial = norm("clip.adaptive.initial", adaptive.initial)?;
            match initial <= max {
                true => Ok(ClipPolicy::Adaptive { max }),
                false => Err(Refusal::value(
                    "clip.adaptive.initial",
                    format!("at most {max}"),
                    initial,
                )),
            }
        }
        None => Err(Refusal::value("clip", "a clip norm", "none")),
    }
}

fn sum(rule: &AggregationRule, clip: &ClipPolicy) -> Result<SumPolicy, Refusal> {
    match rule.mode() {
        SumMode::Plain => {
            if !rule.encoding.is_empty() || rule.modulus != 0 {
                let expected = "empty beside a sum of numbers, as is the modulus";
                return Err(Refusal::value("aggregation.encoding", expected, "an encoding"));
            }
            Ok(SumPolicy::Plain)
        }
        SumMode::Secagg => {
            if matches!(clip, ClipPolicy::Adaptive { .. }) {
                let expected = "flat or by layers beside a secure sum";
                return Err(Refusal::value("clip", expected, "adaptive"));
            }
            let mut issuers = TrustedKeys::default();
            for key in &rule.issuers {
                issuers.add(key)?;
            }
            let threat_model = match rule.issuers.is_empty() {
                true => ThreatModel::HonestButCurious,
                false => ThreatModel::Active,
            };
            if rule.group_min < 2 || rule.group_target > rule.max_clients {
                let expected = format!("2 to max_clients = {}", rule.max_clients);
                return Err(Refusal::value(
                    "aggregation.group_min and group_target",
                    expected,
                    rule.group_min,
                ));
            }
            let terms = Terms::new(rule.length, rule.modulus, threat_model)?
                .with_clients(rule.group_min, rule.group_target)?;
            Ok(SumPolicy::SecAgg(Box::new(SecAggPolicy {
                encoding: json("aggregation.encoding", &rule.encoding)?,
                rotations: array("aggregation.rotations", &rule.rotations)?,
                issuers,
                terms,
            })))
        }
        SumMode::Unspecified => Err(Refusal::value("aggregation.mode", "plain or secure", rule.mode)),
    }
}

fn json<T: for<'de> Deserialize<'de>>(name: &'static str, text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|error| Refusal::value(name, "the JSON of its table", error))
}

/// A blob of the plan, which must be named by a digest and within the limit.
fn blob(name: &'static str, blob: Option<&Blob>, limit: u64) -> Result<Blob, Refusal> {
    let blob = blob.ok_or_else(|| Refusal::value(name, "a blob", "none"))?;
    blob.digest()?;
    within(name, blob.length, 1, limit)?;
    Ok(blob.clone())
}

pub(crate) fn array<const N: usize>(name: &'static str, bytes: &[u8]) -> Result<[u8; N], Refusal> {
    bytes
        .try_into()
        .map_err(|_| Refusal::value(name, format!("{N} bytes"), bytes.len()))
}

fn within(name: &'static str, got: u64, min: u64, max: u64) -> Result<(), Refusal> {
    match (min..=max).contains(&got) {
        true => Ok(()),
        false => Err(Refusal::value(name, format!("from {min} to {max}"), got)),
    }
}

fn positive(name: &'static str, got: f64) -> Result<f64, Refusal> {
    match got > 0.0 && got.is_finite() {
        true => Ok(got),
        false => Err(Refusal::value(name, "a finite number above 0", got)),
    }
}
