//! Sentences of privacy reports and audits that earlier versions worded otherwise, with the same meaning.

use std::borrow::Cow;

use undertone_coordinator::privacy_report::DECLARED_WORDS;
use undertone_coordinator::record::PrivacyReport;

/// Earlier wordings, each with the current one.
const EARLIER: [(&str, &str); 11] = [
    (
        "The run is seeded: whoever knows the seed can recompute",
        "The run is seeded. Anyone who knows the seed can recompute",
    ),
    (
        "central differential privacy; whoever runs the training is trusted",
        "central differential privacy. The operator, who runs the training, is trusted",
    ),
    (
        "every update is seen by whoever runs the training",
        "the operator sees every update",
    ),
    (
        "nothing was hidden from whoever runs the process",
        "nothing was hidden from the operator",
    ),
    ("of the rounds a user at most", "of the rounds per user at most"),
    (
        "It is taken as public on the word of the person who chose it.",
        "It is declared public by the run file.",
    ),
    (
        "Whoever has its config.toml knows them.",
        "Anyone who has its config.toml knows them.",
    ),
    (" a user are ever read,", " per user are ever read,"),
    ("| Users a round |", "| Users per round |"),
    (
        "| whoever runs the training sees the text;",
        "| the operator sees the text;",
    ),
    (
        "Whoever sees metrics, ledger or this run's report sees exact statistics of cohorts, and with the checkpoint's \
         participation key which user bears which pseudonym. `undertone verify` recomputes the figures above from the \
         run's files; that the noise was drawn as the ledger says is for whoever ran the training to vouch for.",
        "Metrics, ledger and the report of this run hold exact statistics of cohorts. With the participation key in the \
         checkpoint they show which user bears which pseudonym. `undertone verify` recomputes the figures above from the \
         files of the run. No file proves that the noise was drawn as the ledger says: that is the word of the operator.",
    ),
];

/// A report with the current wordings. Bytes that are no text stay as they are.
pub(super) fn current(report: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(report) else {
        return Cow::Borrowed(report);
    };
    if !EARLIER.iter().any(|(earlier, _)| text.contains(earlier)) {
        return Cow::Borrowed(report);
    }
    let text = EARLIER
        .iter()
        .fold(text.to_owned(), |text, (earlier, now)| text.replace(earlier, now));
    Cow::Owned(text.into_bytes())
}

/// The report as the version of a written one makes it: earlier versions did not say that the words are declared public.
pub(super) fn of_version(mut made: PrivacyReport, written: &[u8]) -> PrivacyReport {
    let says = |report: &str| report.contains(DECLARED_WORDS.trim());
    if !std::str::from_utf8(written).is_ok_and(says) {
        for statement in &mut made.statements {
            *statement = statement.replace(DECLARED_WORDS, "");
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &str) -> String {
        String::from_utf8(current(report.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn every_earlier_wording_becomes_the_current_one_and_nothing_else_changes() {
        for (earlier, now) in EARLIER {
            assert_eq!(
                text(&format!("before {earlier} after")),
                format!("before {now} after")
            );
            assert_eq!(text(now), now);
        }
        let forged = "The run is seeded: nobody knows the seed.";
        assert_eq!(text(forged), forged);
        assert_eq!(*current(&[0xff, 0xfe]), [0xff, 0xfe]);
    }
}
