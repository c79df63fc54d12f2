//! An audit as tables and sentences.

use undertone_audit::record;
use undertone_present::numbers::{epsilon_delta, number};
use undertone_studies::audit::noise::Source;
use undertone_studies::audit::record::{Audit, Bound};

use crate::output::facts;

pub(super) fn of(audit: &Audit) -> String {
    let mut rows = rows_of(audit);
    for other in &audit.others {
        rows.push(("earlier", other.verdict.clone()));
        rows.extend(rows_of(other));
    }
    rows.push(("verdict", audit.verdict.clone()));
    facts(rows) + "\n\n" + &audit.statements.join("\n")
}

/// Names the tests of all sections of an audit.
fn tested(audit: &Audit) -> String {
    let mut all: Vec<&str> = Vec::new();
    if let Some(replay) = &audit.replay {
        all.push(&replay.tested);
    }
    let of_bounds = audit.canaries.iter().map(|bound| match bound.level.as_str() {
        record::LANE => "the lane",
        record::TEXT => "a copy with invented users",
        _ => "the mechanism",
    });
    let of_noise = audit.noise.iter().map(|noise| match noise.source {
        Source::ThisRun => "the lane",
        Source::Rehearsal => "the mechanism",
    });
    let of_secrets = audit.exposure.iter().map(|_| "a copy with invented users");
    for name in of_bounds.chain(of_noise).chain(of_secrets) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    format!("{}: {}", audit.run.name, all.join("; "))
}

/// The figures of an audit without the others that stand beside it.
fn rows_of(audit: &Audit) -> Vec<(&str, String)> {
    let mut rows = vec![("tested", tested(audit))];
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
    if let Some(exposure) = &audit.exposure {
        let found = format!(
            "{} bits in the median of {} secrets, {} at most",
            number(exposure.attack.median),
            exposure.secrets,
            number(exposure.attack.highest)
        );
        rows.push(("exposure", found));
    }
    rows
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
