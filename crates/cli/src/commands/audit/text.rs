//! An audit as tables and sentences.

use undertone_present::numbers::{epsilon_delta, number};
use undertone_run::audit::text::LEVEL;
use undertone_studies::audit::noise::Source;
use undertone_studies::audit::record::{Audit, Bound};

use crate::output::facts;

pub(super) fn of(audit: &Audit) -> String {
    let tested = match (&audit.replay, &audit.noise) {
        (Some(replay), Some(_)) => format!("{} and its mechanism: {}", replay.tested, audit.run.name),
        (Some(replay), None) => format!("{}: {}", replay.tested, audit.run.name),
        (None, Some(noise)) if noise.source == Source::ThisRun => format!("lane of {}", audit.run.name),
        (None, None) if audit.canaries.iter().any(|bound| bound.level == LEVEL) => {
            format!("copy of {} with invented users", audit.run.name)
        }
        (None, _) => format!("mechanism of {}", audit.run.name),
    };
    let mut rows = vec![("tested", tested)];
    if let Some(claim) = &audit.claim {
        let figures = epsilon_delta(claim.epsilon, claim.delta);
        rows.push(("claim", format!("{figures}, {}", claim.adjacency)));
    }
    rows.extend(audit.canaries.iter().map(|bound| ("shown", of_bound(bound))));
    if let Some(replay) = &audit.replay {
        rows.push((
            "replayed",
            format!(
                "{} pairs of {} users in {} rounds, under '{}'",
                replay.pairs, replay.users, replay.rounds, replay.adjacency
            ),
        ));
        for check in &replay.checks {
            let found = match (check.compared, check.first_failure) {
                (0, _) => "not applicable to this run".to_owned(),
                (compared, None) => format!("holds in {compared} comparisons"),
                (compared, Some(round)) => {
                    format!("FAILS in {} of {compared}, first in round {round}", check.failed)
                }
            };
            rows.push((&check.name, format!("{}: {found}", check.property)));
        }
    }
    if let Some(noise) = &audit.noise {
        for test in &noise.tests {
            let found = format!(
                "{}: statistic {}, p {} ({} after Holm)",
                test.property,
                number(test.statistic),
                number(test.p),
                number(test.p_holm)
            );
            rows.push((&test.name, found));
        }
    }
    rows.push(("verdict", audit.verdict.to_owned()));
    facts(rows) + "\n\n" + &audit.statements.join("\n")
}

fn of_bound(bound: &Bound) -> String {
    let guesses = match (bound.guesses, bound.correct) {
        (Some(guesses), Some(correct)) => format!("{correct} of {guesses} guesses right"),
        _ => "a lower limit of scores".to_owned(),
    };
    let most = bound
        .most_that_could_show
        .map(|most| format!(", at most {} could have been shown", number(most)));
    format!(
        "epsilon at least {} with {} % confidence from {}, by {} ({guesses} about {} canaries; assumption: {}{}){}",
        number(bound.epsilon_lower),
        number(100.0 * bound.confidence),
        bound.seen(),
        bound.estimator,
        bound.canaries,
        bound.assumption,
        most.unwrap_or_default(),
        if bound.headline { "; headline" } else { "" },
    )
}
