//! The lines of a ledger and the guarantee of a run, as types.
//!
//! `ledger.jsonl` holds one [`LedgerEntry`] per line, and `privacy.json` one [`PrivacyReport`].
//!
//! PRIVACY: the ledger contains exact statistics of the cohort and belongs to the operator of the training.

use serde::{Deserialize, Serialize};
use undertone_present::numbers::hex;

use crate::participation::ParticipantId;

/// One line of `ledger.jsonl`: everything that the accountant needs of one round. It is durable before the checkpoint that
/// holds the round's parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Round index, from 0.
    pub round: u64,
    /// `poisson`, `fixed_size` (without replacement), `shuffled_epochs`, `device_timers` or `check_in`.
    pub sampling: String,
    /// The kind of service that made the round; simulations write no such key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<LedgerMode>,
    /// Poisson probability of a user, or of an example with example-level sampling; cohort size / population for fixed-size
    /// cohorts.
    pub sampling_probability: f64,
    /// Number of users in the population that is sampled.
    pub population: u64,
    /// Total weight `W` of the population, which a private run with weights has from its run file; with example-level sampling
    /// the number of kept examples, `|D_sub|`.
    pub total_weight: f64,
    /// Number of users that took part.
    pub cohort_size: u64,
    /// Max number of examples per user: drawn in a round (ULS), or kept for the run (ELS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// ULS and ELS: number of examples whose gradients are in the sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Number of users in the released sum, where users can fail on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<u64>,
    /// `true` if too few users were left, so that nothing was released. Participation counts all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// `true` if the parameters would not have been finite after the round, so that they stayed as they were. The round is spent
    /// all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// `true` if the sum of a session's round was made on a GPU, also where nobody took part. The key of the
    /// ledger is older than this name.
    #[serde(
        rename = "summed_on_device",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub summed_on_gpu: bool,
    /// The participants' pseudonyms under the run's salt, 16 hexadecimal digits each.
    pub participants: Vec<ParticipantId>,
    /// Users of a service who had joined the round and are not in its sum. They count as participants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ParticipantId>,
    /// The attempts at this round that made no release, first to last. Their users count as participants of this round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AbandonedAttempt>,
    /// The issuer that vouched for the users of the round; none in a simulation and where nobody vouches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Issuer>,
    /// Bound `S` on every user's update, with example-level sampling on every example's gradient; `None` without clipping.
    pub clip_norm: Option<f64>,
    /// Sensitivity of the released average (L2).
    pub sensitivity: Option<f64>,
    /// Noise standard deviation per coordinate of the released average; of correlated noise, of every entry of `Z`.
    pub noise_std: f64,
    /// The noise multiplier that the accountant composes, `noise_std / sensitivity` (adaptive clipping: with the users' bits
    /// counted); `None` when not private.
    pub noise_multiplier: Option<f64>,
    /// A name of the key that the round's noise came from; no two sums were ever noised under one name and round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_key: Option<String>,
    /// `modular` if the server added the noise to the sum of encoded updates modulo a number. Without this key in a run with
    /// `[aggregation]` and noise of the server, an earlier version lifted the sum first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_domain: Option<NoiseLabel>,
    /// SHA-256 of the parameters after the round (hex). A line of a session has no such key, since another program trains the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_sha256: Option<String>,
    /// SHA-256 (hex) of the average that left a session, as little-endian 32-bit floats. Only lines of sessions have this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_sha256: Option<String>,
    /// SHA-256 (hex) of the line before, or of the run's settings for the first line: a change of a line changes all after it.
    pub previous_sha256: String,
}

impl LedgerEntry {
    /// Each participation of the round, abandoned attempts first. A user who stands twice in it breaks every schema.
    #[must_use]
    pub fn everyone(&self) -> Vec<ParticipantId> {
        let mut everyone = everyone_in(&self.attempts);
        everyone.extend(self.participants.iter().chain(&self.lost));
        everyone
    }
}

/// The participations of abandoned attempts, one attempt after the other.
#[must_use]
pub fn everyone_in(attempts: &[AbandonedAttempt]) -> Vec<ParticipantId> {
    attempts
        .iter()
        .flat_map(|attempt| attempt.participants.iter().copied())
        .collect()
}

/// The issuer that vouches for the users of a service, with its public keys in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The name of the issuer: its first public key. One user is one subject of this name, while keys are replaced.
    pub name: String,
    /// The keys whose certificates counted, ascending.
    pub keys: Vec<String>,
}

impl Issuer {
    /// The issuer of this name, whose certificates count under these keys.
    #[must_use]
    pub fn new(name: &[u8; 32], keys: &[[u8; 32]]) -> Self {
        let mut keys: Vec<String> = keys.iter().map(|key| hex(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            name: hex(name),
            keys,
        }
    }
}

/// The kind of service that made a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerMode {
    /// Devices checked in, and the server names each participant by a pseudonym.
    Service,
    /// Devices checked in and keep to the schema by their own memory. The server names nobody, so participation is declared and
    /// not observed.
    DeviceLedger,
    /// A seeded service that repeats the cohorts of a simulation, for tests.
    ParityTest,
}

/// An attempt at a round that made no release.
///
/// # Guarantee
/// It spent no row of noise. Its participants count from its round on all the same, whatever they had sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonedAttempt {
    /// The number of the attempt within its round, from 0.
    pub attempt: u32,
    /// The reason. None depends on the value of an update.
    pub reason: AbandonReason,
    /// The users who count as participants, ascending.
    pub participants: Vec<ParticipantId>,
    /// `false` where the attempt spent no row of correlated noise, as in every service; written where it is `false`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub row_spent: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// The reason for an attempt without a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbandonReason {
    /// The number of devices that came or reported was too small.
    Few,
    /// The attempt took too long.
    Deadline,
    /// The process that led it was lost.
    Crash,
    /// A later lease took the task over.
    Fence,
    /// The store failed.
    Store,
    /// The network failed.
    Network,
    /// A subject stood twice in the sum.
    Duplicate,
    /// A message of the protocol of secure sums was wrong.
    Protocol,
    /// The operator ended it.
    Operator,
}

/// The last line of the ledger of a service's task, and of a run in which too few users may take part again. No round follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEnd {
    /// The reason of the end.
    pub end: EndReason,
    /// Number of released rounds.
    pub rounds: u64,
    /// The attempts that were abandoned since the last release, first to last. Their users count as participants of the round with
    /// the index `rounds`.
    pub attempts: Vec<AbandonedAttempt>,
    /// The issuer that vouched for the users of these attempts; none where nobody vouches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Issuer>,
    /// SHA-256 (hex) of the line before, or of the task's settings where there is none.
    pub previous_sha256: String,
}

/// The reason for the end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All rounds of the task were released.
    Completed,
    /// The operator stopped the task.
    Stopped,
    /// The number of users of the population who may take part again is too small.
    Starved,
}

impl EndReason {
    /// `true` if a training that ends for this reason ends in the same round whatever its releases are. The list is closed.
    ///
    /// PRIVACY: an operator stops a training for any reason, and the round at which a loss looked good is a function of the text. The
    /// guarantee of the rounds so far does not hold for such a round. Who may take part again follows from participation, which the
    /// accounting takes as independent of examples.
    #[must_use]
    pub fn is_independent_of_releases(self) -> bool {
        match self {
            Self::Completed | Self::Starved => true,
            Self::Stopped => false,
        }
    }
}

/// A line of a ledger.
#[derive(Debug, Clone, PartialEq)]
pub enum LedgerLine {
    /// A round.
    Round(Box<LedgerEntry>),
    /// The end of a task.
    End(LedgerEnd),
}

impl LedgerLine {
    /// `true` if a line has the key `end`, which only the last line of a task has.
    ///
    /// # Errors
    /// Text that is no JSON object.
    pub fn is_end(line: &[u8]) -> serde_json::Result<bool> {
        #[derive(Deserialize)]
        struct Kind {
            end: Option<serde::de::IgnoredAny>,
        }
        serde_json::from_slice::<Kind>(line).map(|kind| kind.end.is_some())
    }

    /// Reads a line, without its line feed.
    ///
    /// # Errors
    /// A line that is neither kind of line.
    pub fn read(line: &[u8]) -> serde_json::Result<Self> {
        Ok(match Self::is_end(line)? {
            true => Self::End(serde_json::from_slice(line)?),
            false => Self::Round(Box::new(serde_json::from_slice(line)?)),
        })
    }
}

/// The place where the server adds its noise to encoded updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseLabel {
    /// To the sum modulo a number, before anything is read from it.
    Modular,
}

/// `privacy.json`: the guarantee and what it covers, in the form of Appendix A of \[Gboard\]. The default promises nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PrivacyReport {
    /// `true` if the run gives a guarantee.
    pub private: bool,
    /// Sentences about the protected and the released data.
    pub statements: Vec<String>,
    /// Warnings: seeded noise, vocabulary from the training data, estimates, ...
    pub warnings: Vec<String>,
    /// The guarantee computed before training from the configuration.
    pub planned: Option<GuaranteeRecord>,
    /// The guarantee of the rounds that were made, for each user who keeps to the declared participation schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_case: Option<GuaranteeRecord>,
    /// The guarantee recomputed from the ledger.
    pub observed: Option<GuaranteeRecord>,
    /// The end of the training before its last round, where the round of that end may depend on a release. The claim is then that of
    /// this record, and `observed` is a figure with a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StopRecord>,
    /// The guarantee of the run as the best of a private sweep, for all of its candidates together. Where it is there, it is the
    /// guarantee of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<GuaranteeRecord>,
    /// The guarantee of the run and the private choice of its vocabulary together: the claimed one composed with the
    /// vocabulary's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_vocabulary: Option<GuaranteeRecord>,
    /// The guarantee of everything together that is known to have read these users' text: the run, its private vocabulary, and
    /// the trainings of its initial model on the same source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_initial_model: Option<GuaranteeRecord>,
    /// The guarantee that a larger run with this noise would have (`[estimate]`); never the guarantee of this run.
    pub estimate: Option<GuaranteeRecord>,
}

impl PrivacyReport {
    /// The guarantee that the training may claim: with a private sweep that of all candidates, otherwise [`alone`](Self::alone).
    #[must_use]
    pub fn claimed(&self) -> Option<&GuaranteeRecord> {
        self.selected.as_ref().or_else(|| self.alone())
    }

    /// The guarantee of one training by itself: that of all rounds where somebody may have chosen the last one, otherwise the observed
    /// one. `None` where none can be stated.
    #[must_use]
    pub fn alone(&self) -> Option<&GuaranteeRecord> {
        match &self.stopped {
            Some(stopped) => stopped.claimed.as_ref(),
            None => self.observed.as_ref(),
        }
    }

    /// The guarantee that covers everything known about the release, with its key in `privacy.json`.
    #[must_use]
    pub fn of_release(&self) -> Option<(&'static str, &GuaranteeRecord)> {
        let together = [
            ("selected", &self.selected),
            ("with_initial_model", &self.with_initial_model),
            ("with_vocabulary", &self.with_vocabulary),
        ];
        let together = together
            .into_iter()
            .find_map(|(key, record)| Some((key, record.as_ref()?)));
        let alone = match self.stopped {
            Some(_) => "stopped.claimed",
            None => "observed",
        };
        together.or_else(|| Some((alone, self.claimed()?)))
    }
}

/// The end of a training before the last of its rounds, for a reason that may depend on its releases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Number of rounds that were made.
    pub rounds: u64,
    /// Number of rounds that configuration and budget allow.
    pub planned_rounds: u64,
    /// The guarantee of all these rounds; `None` where none can be stated.
    pub claimed: Option<GuaranteeRecord>,
}

/// One guarantee with its derivation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuaranteeRecord {
    /// Upper bound on epsilon.
    pub epsilon: f64,
    /// Delta of the guarantee.
    pub delta: f64,
    /// Neighbouring relation.
    pub adjacency: String,
    /// Sampling assumption.
    pub sampling: String,
    /// Accountant.
    pub recipe: String,
    /// Rounds composed.
    pub rounds: u64,
    /// Population size.
    pub population: u64,
    /// Expected users per round; an upper bound with example-level sampling.
    pub users_per_round: f64,
    /// Example-level sampling: `G`, the max number of kept examples per user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// Noise multiplier of the first round.
    pub noise_multiplier: f64,
    /// The participation schema that the guarantee rests on, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaRecord>,
    /// The delta that the distance of the real sampler from ideal noise adds; it is counted in `epsilon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler_delta: Option<f64>,
    /// Epsilon at other deltas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<GuaranteePoint>,
}

/// One point of a guarantee's curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GuaranteePoint {
    /// Delta of the guarantee.
    pub delta: f64,
    /// Upper bound on epsilon.
    pub epsilon: f64,
}

/// A participation schema, the mechanism that was run under it, and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaRecord {
    /// The strategy, by name.
    pub mechanism: String,
    /// `b`: min distance in rounds of two participations of one user (MinS + 1).
    pub min_sep: u64,
    /// `true` if consecutive participations are exactly `min_sep` rounds apart.
    pub exact_sep: bool,
    /// `k`: max number of participations of one user (MaxP).
    pub max_part: u64,
    /// L2 sensitivity of the strategy under the schema, in clip norms.
    pub sensitivity: f64,
    /// Zero-concentrated differential privacy, `sensitivity^2 / (2 noise_multiplier^2)`.
    pub rho: f64,
}

impl SchemaRecord {
    /// The schema in words.
    #[must_use]
    pub fn participation(&self) -> String {
        if self.max_part == 1 {
            return "each user once (MaxP 1)".to_owned();
        }
        format!(
            "at most {} times (MaxP), {} {} rounds apart (MinS {})",
            self.max_part,
            if self.exact_sep { "exactly" } else { "at least" },
            self.min_sep,
            self.min_sep.saturating_sub(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_no_run_writes_is_still_described() {
        let schema = SchemaRecord {
            mechanism: "tree".to_owned(),
            min_sep: 0,
            exact_sep: false,
            max_part: 2,
            sensitivity: 1.0,
            rho: 1.0,
        };
        assert!(
            schema
                .participation()
                .ends_with("at least 0 rounds apart (MinS 0)")
        );
    }
}
