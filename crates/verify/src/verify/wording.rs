//! Sentences of privacy reports and audits that earlier versions worded otherwise: with the same meaning, or with less than holds.

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

/// The place of the sentence about the operator, which each report of a run has.
const OPERATOR: usize = 1;

/// The place of the paragraph that ends each page of a private run. It stands last here, too.
const LAST_PARAGRAPH: usize = EARLIER.len() - 1;

/// An earlier wording that said less than holds, the current one, and the fault in a few words.
struct Faulty {
    earlier: &'static str,
    now: &'static str,
    fault: &'static str,
}

/// Earlier wordings with a fault, which a verification names.
const FAULTY: [Faulty; 2] = [
    Faulty {
        earlier: "Each was bounded here, whatever it held. The guarantee covers the released averages",
        now: "Each was bounded here, whatever it held. The guarantee assumes that a unit's update is a function of that unit and of \
            the released model alone, and of no other unit. It covers the released averages",
        fault: "the statements lack a condition of the guarantee: a unit's update is a function of that unit and of the released model \
            alone. An earlier version wrote them, whose PyTorch optimizer kept local steps of fused optimizers, `.data` and numpy in the \
            model: train anew if units took such steps",
    },
    Faulty {
        earlier: "The guarantee assumes that it computes what its program says, and that a unit's update is computed from that unit and \
            the model alone. The sum is one",
        now: "The guarantee assumes that it computes what its program says. The sum is one",
        // The fault of the sentence above, which every session has.
        fault: "",
    },
];

/// The row of the checklist about the keys of a session that earlier versions wrote, with the current one.
const KEYS_OF_A_SESSION: (&str, &str) = (
    "| Random numbers | ChaCha20 under keys of the operating system that are never stored |",
    "| Random numbers | ChaCha20 under keys of the operating system, each kept in the private folder of the session until the next \
     state; a backup of a live session removes its noise |",
);

/// The fault of that row.
const KEYS_ARE_STORED: &str = "the checklist says that the keys of the noise are never stored. A session keeps them in its private \
    folder until its next state. An earlier version wrote it";

/// A report with the current wordings. Bytes that are no text stay as they are.
pub(super) fn current(report: &[u8]) -> Cow<'_, [u8]> {
    let wordings = EARLIER
        .into_iter()
        .chain(FAULTY.iter().map(|wording| (wording.earlier, wording.now)));
    reworded(report, wordings)
}

/// The page of a session with the current wording about its keys, of a page whose other wordings are current.
pub(super) fn page_of_session(page: &[u8]) -> Cow<'_, [u8]> {
    reworded(page, std::iter::once(KEYS_OF_A_SESSION))
}

/// The faults of the wordings of a report. `is_session` where it is that of a session.
pub(super) fn faults(report: &[u8], is_session: bool) -> Vec<&'static str> {
    let text = String::from_utf8_lossy(report);
    let faulty = FAULTY.iter().filter(|wording| text.contains(wording.earlier));
    let faulty = faulty
        .map(|wording| wording.fault)
        .filter(|fault| !fault.is_empty());
    let of_keys = is_session && text.contains(KEYS_OF_A_SESSION.0);
    faulty.chain(of_keys.then_some(KEYS_ARE_STORED)).collect()
}

/// `true` if page and report are in the words of the versions before the checklist, and in none that came after it.
pub(super) fn are_before_the_checklist(page: &[u8], report: &[u8]) -> bool {
    let (_, operator) = EARLIER[OPERATOR];
    let (last_paragraph, _) = EARLIER[LAST_PARAGRAPH];
    String::from_utf8_lossy(page).contains(last_paragraph)
        && !String::from_utf8_lossy(report).contains(operator)
}

fn reworded<'a>(
    report: &'a [u8],
    wordings: impl Iterator<Item = (&'static str, &'static str)>,
) -> Cow<'a, [u8]> {
    let Ok(text) = std::str::from_utf8(report) else {
        return Cow::Borrowed(report);
    };
    let mut found = Cow::Borrowed(text);
    for (earlier, now) in wordings {
        if found.contains(earlier) {
            found = Cow::Owned(found.replace(earlier, now));
        }
    }
    match found {
        Cow::Borrowed(_) => Cow::Borrowed(report),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The fault of a report that lacks the sentence about declared words.
pub(super) const UNDECLARED: &str = "the statements do not say that the words are declared public";

/// `true` if the report that is made has the sentence about declared words, and the written one, of an earlier version, lacks it.
pub(super) fn lacks_declaration(made: &PrivacyReport, written: &[u8]) -> bool {
    let has = |text: &str| text.contains(DECLARED_WORDS.trim());
    made.statements.iter().any(|statement| has(statement)) && !has(&String::from_utf8_lossy(written))
}

/// The report as the version of a written one makes it: earlier versions did not say that the words are declared public.
pub(super) fn of_version(mut made: PrivacyReport, written: &[u8]) -> PrivacyReport {
    if lacks_declaration(&made, written) {
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
        let faulty = FAULTY.map(|wording| (wording.earlier, wording.now));
        for (earlier, now) in faulty {
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

    #[test]
    fn a_session_of_an_earlier_version_is_told_what_its_report_lacks() {
        let without_condition = FAULTY[0].earlier.as_bytes();
        assert_eq!(faults(without_condition, true), [FAULTY[0].fault]);
        assert!(faults(FAULTY[0].now.as_bytes(), true).is_empty());
        let keys = KEYS_OF_A_SESSION.0.as_bytes();
        assert_eq!(faults(keys, true), [KEYS_ARE_STORED]);
        assert!(faults(keys, false).is_empty(), "a run stores no key");
        assert_eq!(*page_of_session(keys), *KEYS_OF_A_SESSION.1.as_bytes());
    }

    #[test]
    fn only_words_of_that_version_make_a_page_one_from_before_the_checklist() {
        let (trainer, operator) = EARLIER[OPERATOR];
        let (earlier, now) = EARLIER[LAST_PARAGRAPH];
        assert!(
            trainer.starts_with("central differential privacy")
                && earlier.starts_with("Whoever sees metrics")
        );
        let before = |page: &str, report: &str| are_before_the_checklist(page.as_bytes(), report.as_bytes());
        assert!(before(earlier, trainer));
        assert!(!before(now, trainer) && !before(earlier, operator));
    }
}
