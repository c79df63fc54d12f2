//! The privacy report as Markdown: the checklist of \[Gboard\] Appendix A, filled from the run.

mod hazards;

use std::fmt::Write;

use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::numbers::{grouped, number, scientific, upper_bound};

/// The document of the run of this name.
#[must_use]
pub fn document(run: &str, privacy: &PrivacyReport) -> String {
    page(run, privacy, true)
}

/// The document as versions before the checklist wrote it. Their runs are verified against it.
#[must_use]
pub fn earlier_document(run: &str, privacy: &PrivacyReport) -> String {
    page(run, privacy, false)
}

fn page(run: &str, privacy: &PrivacyReport, has_checklist: bool) -> String {
    let mut text = format!("# Privacy report of {}\n", plain(run));
    for warning in &privacy.warnings {
        let _ = write!(text, "\n> **Warning.** {}\n", plain(warning));
    }
    if !privacy.private {
        text.push_str("\nThis run adds no noise and gives no guarantee.\n");
        return text;
    }
    text.push_str("\n## Setting and definition\n\n");
    for statement in &privacy.statements {
        let _ = match statement.split_once(": ") {
            Some((topic, rest)) => writeln!(text, "- **{}.** {}", plain(topic), plain(rest)),
            None => writeln!(text, "- {}", plain(statement)),
        };
    }
    text.push_str("\n## Accounting\n\n");
    for (name, how, record) in named(privacy) {
        section(&mut text, name, how, record);
    }
    let rows = hazards::rows(privacy);
    if has_checklist && !rows.is_empty() {
        text.push_str(
            "## Checklist\n\nThe hazards are those that NIST SP 800-226 describes. The last column says what was tested and what \
             was not.\n\n| hazard | in this run | known how |\n|---|---|---|\n",
        );
        for row in &rows {
            let _ = writeln!(text, "| {} |", row.each_ref().map(|cell| plain(cell)).join(" | "));
        }
        text.push('\n');
    }
    text.push_str(
        "## Not covered\n\n\
         Metrics, ledger and the report of this run hold exact statistics of cohorts. With the participation key in the \
         checkpoint they show which user bears which pseudonym. `undertone verify` recomputes the figures above from the \
         files of the run. No file proves that the noise was drawn as the ledger says: that is the word of the operator.",
    );
    text.push_str(match has_checklist {
        true => {
            " No attack on the model was made for this page: `undertone audit` makes some, and what they find is a lower bound \
             with its confidence.\n"
        }
        false => "\n",
    });
    text
}

/// Text from a file as text of the page: no markup, links, table cells or lines of its own. Code spans in backticks stay.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '[' | ']' | '|' | '*' | '#' => {
                escaped.push('\\');
                escaped.push(character);
            }
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The guarantees of a run, in the order in which a reader asks for them.
pub fn named(
    privacy: &PrivacyReport,
) -> impl Iterator<Item = (&'static str, &'static str, &GuaranteeRecord)> {
    let stopped = privacy.stopped.as_ref();
    let pick = |claimed, observed| if stopped.is_some() { claimed } else { observed };
    [
        (
            "Selected",
            "the release as the best of a private sweep, all candidates together",
            privacy.selected.as_ref(),
        ),
        (
            "Claimed",
            "all rounds of the plan, because the round of the stop may depend on a release",
            stopped.and_then(|stopped| stopped.claimed.as_ref()),
        ),
        (
            "Observed",
            pick(
                "the rounds that were made, if nobody looked at a release before the stop; recomputed from the ledger",
                "recomputed from the ledger",
            ),
            privacy.observed.as_ref(),
        ),
        (
            pick("Claimed, with its vocabulary", "Observed, with its vocabulary"),
            "the training and the private choice of its words together",
            privacy.with_vocabulary.as_ref(),
        ),
        (
            pick("Claimed, with its initial model", "Observed, with its initial model"),
            "the training, the private vocabulary where there is one, and what its initial model says of itself, together",
            privacy.with_initial_model.as_ref(),
        ),
        (
            "Worst case",
            "the rounds that were made, for everyone who keeps to the declared participation",
            privacy.worst_case.as_ref(),
        ),
        (
            "Planned",
            "from the configuration, before training",
            privacy.planned.as_ref(),
        ),
        (
            "Estimate",
            "for a larger run with this noise; not the guarantee of this run",
            privacy.estimate.as_ref(),
        ),
    ]
    .into_iter()
    .filter_map(|(name, how, record)| Some((name, how, record?)))
}

/// The conditions of a guarantee, as names and values.
#[must_use]
pub fn facts(record: &GuaranteeRecord) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Neighbours", record.adjacency.clone()),
        ("Sampling", record.sampling.clone()),
        ("Accountant", record.recipe.clone()),
        ("Rounds", grouped(record.rounds)),
        ("Population", grouped(record.population)),
        ("Users per round", number(record.users_per_round)),
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
        let _ = writeln!(text, "| {fact} | {} |", plain(&value));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_privacy_json_is_text_on_the_page() {
        let evil =
            "<script>alert(1)</script> [x](javascript:1) ![y](http://z) | cell\n\n# Heading \u{1b}[31m &lt;";
        let record = GuaranteeRecord {
            epsilon: 1.0,
            delta: 1e-6,
            adjacency: evil.to_owned(),
            sampling: evil.to_owned(),
            recipe: evil.to_owned(),
            rounds: 1,
            population: 2,
            users_per_round: 1.0,
            group_size: None,
            noise_multiplier: 1.0,
            schema: None,
            sampler_delta: None,
            points: Vec::new(),
        };
        let report = PrivacyReport {
            private: true,
            statements: vec![
                evil.to_owned(),
                format!("{evil}: {evil}"),
                "Coded: `a_b` stays".to_owned(),
            ],
            warnings: vec![evil.to_owned()],
            planned: Some(record),
            ..PrivacyReport::default()
        };
        let page = document(evil, &report);
        assert!(!page.contains('<') && !page.contains('\u{1b}'), "{page}");
        assert!(
            !page.replace("\\]", "").contains("](") && !page.contains("\n# Heading"),
            "{page}"
        );
        assert!(
            page.contains("&lt;script&gt;") && page.contains("\\[x\\](javascript:1)"),
            "{page}"
        );
        assert!(page.contains("- **Coded.** `a_b` stays"), "{page}");
        // The quote of the warning, and no other line begins with one.
        assert_eq!(
            page.lines().filter(|line| line.starts_with('>')).count(),
            1,
            "{page}"
        );
    }
}
