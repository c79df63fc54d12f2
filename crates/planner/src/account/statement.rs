//! `--statement`: one paragraph about an answer that a person may copy into a report.

use undertone_accounting::{Accountant, Adjacency, Delta, Guarantee, Recipe};
use undertone_present::numbers::{grouped, upper_bound};

use super::answer::{Answer, bounds_certain};
use super::unit::Unit;
use super::words::Words;

/// The words of a question that only a statement needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Wording {
    /// The mechanism, as a noun.
    pub(super) mechanism: String,
    /// The sampling, as sentences.
    pub(super) sampling: String,
    /// The command that computes the answer again, without the target.
    pub(super) command: Words,
}

/// Epsilons at a larger and two smaller deltas, or at three smaller ones; a delta without an epsilon is left out.
pub(super) fn other_deltas(accountant: &Accountant, delta: Delta) -> Vec<Guarantee> {
    let factors = if delta.get() < 0.1 {
        [10.0, 0.1, 0.01]
    } else {
        [0.1, 0.01, 0.001]
    };
    let others = factors.into_iter().filter_map(|factor| {
        let delta = Delta::new(rounded(factor * delta.get())).ok()?;
        accountant.guarantee(delta).ok()
    });
    others.collect()
}

/// The value without the last bits of a product, which a reader would see.
fn rounded(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

/// The paragraph.
pub(super) fn paragraph(answer: &Answer, unit: Unit, wording: &Wording, command: &str) -> String {
    let Guarantee {
        epsilon,
        delta,
        adjacency,
        recipe,
        ..
    } = answer.guarantee;
    let pair = format!("({}, {})", upper_bound(epsilon.get()), upper_bound(delta.get()));
    let mut sentences = vec![
        format!("The release is {pair}-differentially private, as (epsilon, delta)"),
        match unit {
            Unit::User => "The unit is one user, with all data of that user".to_owned(),
            Unit::Example => {
                "The unit is one example, and a user with several examples has a weaker guarantee".to_owned()
            }
        },
        format!(
            "Neighbouring data sets differ in that unit: {}",
            neighbours(adjacency, unit)
        ),
        format!("The mechanism is {}", wording.mechanism),
        wording.sampling.clone(),
        format!(
            "Undertone {} accounts for it by {}: {}",
            env!("CARGO_PKG_VERSION"),
            method(recipe),
            bounds_certain(epsilon.get(), answer.lower_bound)
        ),
    ];
    if let Some(others) = listed(&answer.other_deltas) {
        sentences.push(others);
    }
    if let Some(user) = &answer.whole_user {
        let Guarantee { epsilon, delta, .. } = user.guarantee;
        sentences.push(format!(
            "For one user with at most {} examples, at delta {}, {}",
            grouped(user.max_examples.into()),
            upper_bound(delta.get()),
            bounds_certain(epsilon.get(), user.lower_bound)
        ));
    }
    sentences.push(
        "The figures do not cover hyper-parameters, words or a number of rounds that were chosen on the same data. They do not cover statistics that \
         were computed beside the release, or other releases about the same data"
            .to_owned(),
    );
    sentences.push(
        "The figures hold if every contribution was clipped, the noise was fresh and added once, and the sampling was as stated".to_owned(),
    );
    sentences.push(format!("This command computes the figures again: `{command}`"));
    sentences.join(". ") + "."
}

/// The difference between two neighbours.
fn neighbours(adjacency: Adjacency, unit: Unit) -> String {
    let unit = unit.name();
    match adjacency {
        Adjacency::AddOrRemoveOne => {
            format!("one of them has the {unit}, and the other does not (add or remove one {unit})")
        }
        Adjacency::ReplaceOne => {
            format!(
                "the {unit} of one of them is replaced by another {unit} in the other (replace one {unit})"
            )
        }
        Adjacency::ZeroOut => {
            format!(
                "the contributions of the {unit} are zero in one of them, and the rounds are kept (zero out one {unit})"
            )
        }
    }
}

fn method(recipe: Recipe) -> String {
    match recipe {
        Recipe::Pld => "privacy loss distributions (PLD)".to_owned(),
        Recipe::Rdp => "Renyi divergences (RDP)".to_owned(),
        Recipe::Zcdp => "zero-concentrated differential privacy (zCDP)".to_owned(),
        Recipe::ExactGaussian => "the exact epsilon of Gaussians".to_owned(),
        other => format!("the {other}"),
    }
}

/// Epsilons at other deltas; `None` if there are none.
fn listed(others: &[Guarantee]) -> Option<String> {
    let epsilon = |guarantee: &Guarantee| {
        let (epsilon, delta) = (guarantee.epsilon.get(), guarantee.delta.get());
        format!("{} at delta {}", upper_bound(epsilon), upper_bound(delta))
    };
    let (last, first) = others.split_last()?;
    let mut text = first.iter().map(epsilon).collect::<Vec<_>>().join(", ");
    if !text.is_empty() {
        text += " and ";
    }
    Some(format!("The epsilon is {text}{}", epsilon(last)))
}
