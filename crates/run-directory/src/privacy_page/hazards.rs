//! The checklist of `privacy.md`: common hazards of differential privacy, and the state of each in this run.
//!
//! # Source
//! NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees" (March 2025), whose pyramid of hazards goes from
//! parameters and unit over algorithms and correctness to the trust model and data collection. The words are ours.

use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::numbers::{epsilon_delta, grouped, scientific, upper_bound};

/// The way in which the state of a hazard is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// `undertone verify` computes it again from the files.
    Recomputed,
    /// The configuration or the party that ran the training states it.
    Stated,
    /// Nobody tested it here.
    NotTested,
}

impl Known {
    fn name(self) -> &'static str {
        match self {
            Self::Recomputed => "recomputed by `undertone verify`",
            Self::Stated => "stated, not tested",
            Self::NotTested => "not tested",
        }
    }
}

/// The rows of the checklist: hazard, state in this run, and how it is known.
pub(super) fn rows(privacy: &PrivacyReport) -> Vec<[String; 3]> {
    let Some((_, record)) = privacy.of_release() else {
        return Vec::new();
    };
    let rows: [(&str, String, Known); 13] = [
        ("Size of epsilon", epsilon(record), Known::Recomputed),
        ("Size of delta", delta(record), Known::Recomputed),
        (
            "Unit of privacy",
            "one user, with all text that they contributed; two accounts of one person are two users"
                .to_owned(),
            Known::Stated,
        ),
        (
            "Neighbouring relation",
            format!(
                "{}; figures under other relations are not comparable",
                record.adjacency
            ),
            Known::Recomputed,
        ),
        (
            "Bound on contributions",
            "every update is clipped before it is added, to the norm in the ledger".to_owned(),
            Known::Stated,
        ),
        (
            "Composition",
            format!(
                "{} rounds by {}; other releases about the same people are not counted",
                grouped(record.rounds),
                record.recipe
            ),
            Known::Recomputed,
        ),
        ("Sampling", record.sampling.clone(), Known::Stated),
        ("Tuning on people's text", tuning(privacy), Known::Stated),
        (
            "Random numbers",
            random_numbers(privacy).to_owned(),
            Known::Stated,
        ),
        ("Floating point", floating_point(record), Known::Recomputed),
        (
            "Side channels",
            "running times, memory and traffic of the training are outside the guarantee".to_owned(),
            Known::NotTested,
        ),
        (
            "Bias and accuracy for small groups",
            "noise and clipping cost rare words and users with unusual text the most".to_owned(),
            Known::NotTested,
        ),
        (
            "Trust and collection of data",
            "the operator sees the text; how it was collected and kept is outside the guarantee".to_owned(),
            Known::NotTested,
        ),
    ];
    let rows = rows.map(|(hazard, state, known)| [hazard.to_owned(), state, known.name().to_owned()]);
    rows.into()
}

/// The source of the noise, and the place where its keys are kept.
fn random_numbers(privacy: &PrivacyReport) -> &'static str {
    let says = |sentences: &[String], start: &str| sentences.iter().any(|said| said.starts_with(start));
    match (
        says(&privacy.warnings, "The run is seeded"),
        says(&privacy.statements, "Trained outside: "),
    ) {
        (true, _) => "a known seed: the guarantee is for study only",
        // The journal of a session brings its noise back after a crash.
        (false, true) => {
            "ChaCha20 under keys of the operating system, each kept in the private folder of the session until the next state; a \
             backup of a live session removes its noise"
        }
        (false, false) => "ChaCha20 under keys of the operating system that are never stored",
    }
}

fn epsilon(record: &GuaranteeRecord) -> String {
    let stated = epsilon_delta(record.epsilon, record.delta);
    let factor = record.epsilon.exp();
    match factor.is_finite() {
        true => format!(
            "{stated}: up to delta, no set of outcomes is more than {} times as probable as for a neighbouring population",
            upper_bound(factor)
        ),
        false => stated,
    }
}

fn delta(record: &GuaranteeRecord) -> String {
    let share = record.delta * record.population as f64;
    format!(
        "{} for each of {} users, {} over all of them; it should be far below 1",
        upper_bound(record.delta),
        grouped(record.population),
        upper_bound(share)
    )
}

fn tuning(privacy: &PrivacyReport) -> String {
    match privacy.selected {
        Some(_) => {
            "the choice by the private sweep is counted; any other choice by looking at results is not"
        }
        None => "no choice of settings or of a checkpoint by looking at results is counted",
    }
    .to_owned()
}

fn floating_point(record: &GuaranteeRecord) -> String {
    match record.sampler_delta {
        Some(delta) => format!(
            "sums and noise are integers; the distance of the samples from ideal ones adds {} to delta, counted",
            scientific(delta)
        ),
        None => "sums and noise are integers that are drawn exactly".to_owned(),
    }
}
