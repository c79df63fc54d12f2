//! The privacy report as Markdown: the checklist of \[Gboard\] Appendix A, filled from the run.

use std::fmt::Write;

use super::RunData;
use crate::figures::{grouped, number, scientific, upper_bound};
use crate::record::{GuaranteeRecord, PrivacyReport};

/// The document; `None` for a run that has not written `privacy.json` yet.
pub(super) fn document(run: &RunData) -> Option<String> {
    let privacy = run.privacy.as_ref()?;
    let mut text = format!("# Privacy report of {}\n", run.start.run);
    for warning in &privacy.warnings {
        let _ = write!(text, "\n> **Warning.** {warning}\n");
    }
    if !privacy.private {
        text.push_str("\nThis run adds no noise and gives no guarantee.\n");
        return Some(text);
    }
    text.push_str("\n## Setting and definition\n\n");
    for statement in &privacy.statements {
        let _ = match statement.split_once(": ") {
            Some((topic, rest)) => writeln!(text, "- **{topic}.** {rest}"),
            None => writeln!(text, "- {statement}"),
        };
    }
    text.push_str("\n## Accounting\n\n");
    for (name, how, record) in named(privacy) {
        section(&mut text, name, how, record);
    }
    text.push_str(
        "## Not covered\n\n\
         Whoever sees metrics, ledger or this run's report sees exact statistics of cohorts, and with the checkpoint's \
         participation key which user bears which pseudonym. `undertone verify` recomputes the figures above from the \
         run's files; that the noise was drawn as the ledger says is for whoever ran the training to vouch for.\n",
    );
    Some(text)
}

/// The guarantees that there are, in the order in which a reader asks for them.
pub(super) fn named(
    privacy: &PrivacyReport,
) -> impl Iterator<Item = (&'static str, &'static str, &GuaranteeRecord)> {
    [
        ("Observed", "recomputed from the ledger", &privacy.observed),
        (
            "Observed, with its vocabulary",
            "the training and the private choice of its words together",
            &privacy.with_vocabulary,
        ),
        (
            "Worst case",
            "the rounds that were made, for everyone who keeps to the declared participation",
            &privacy.worst_case,
        ),
        (
            "Planned",
            "from the configuration, before training",
            &privacy.planned,
        ),
        (
            "Estimate",
            "for a larger run with this noise; not the guarantee of this run",
            &privacy.estimate,
        ),
    ]
    .into_iter()
    .filter_map(|(name, how, record)| Some((name, how, record.as_ref()?)))
}

/// What a guarantee rests on, as names and values.
pub(super) fn facts(record: &GuaranteeRecord) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Neighbours", record.adjacency.clone()),
        ("Sampling", record.sampling.clone()),
        ("Accountant", record.recipe.clone()),
        ("Rounds", grouped(record.rounds)),
        ("Population", grouped(record.population)),
        ("Users a round", number(record.users_per_round)),
        ("Noise multiplier", number(record.noise_multiplier)),
    ];
    if let Some(group_size) = record.group_size {
        let kept = grouped(u64::from(group_size));
        facts.push((
            "Examples of a user",
            format!("at most {kept} kept, each of them sampled"),
        ));
    }
    if let Some(delta) = record.sampler_delta {
        facts.push(("Sampler", format!("adds {} to delta, counted", scientific(delta))));
    }
    if let Some(schema) = &record.schema {
        facts.extend([
            ("Mechanism", schema.mechanism.clone()),
            ("Participation", schema.participation()),
            (
                "Sensitivity",
                format!("{} clip norms", number(schema.sensitivity)),
            ),
            ("zCDP", format!("rho = {}", upper_bound(schema.rho))),
        ]);
    }
    facts
}

fn section(text: &mut String, name: &str, how: &str, record: &GuaranteeRecord) {
    let _ = write!(
        text,
        "### {name}: ({}, {})-DP\n\n{how}\n\n| | |\n|---|---|\n",
        upper_bound(record.epsilon),
        upper_bound(record.delta)
    );
    for (fact, value) in facts(record) {
        let _ = writeln!(text, "| {fact} | {value} |");
    }
    if !record.points.is_empty() {
        text.push_str("\n| delta | epsilon |\n|---|---|\n");
        for point in &record.points {
            let _ = writeln!(
                text,
                "| {} | {} |",
                upper_bound(point.delta),
                upper_bound(point.epsilon)
            );
        }
    }
    text.push('\n');
}
