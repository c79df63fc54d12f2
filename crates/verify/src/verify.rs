//! `undertone verify RUN`: checks of a run, or of an exported task of the service, against its own files.
//!
//! Everything is recomputed from the files of the directory: the chain of the ledger, each round's clip norm, sensitivity
//! and noise, the participation of users, the whole privacy report, the figures of the metrics that ledger and configuration
//! determine, and the final model with its description. The report is made by the code of the run, from the ledger's lines, and
//! compared leaf by leaf.
//!
//! No file can prove that the noise was drawn as the ledger says, that pseudonyms stand for different users, that losses and
//! accuracies are true, or that a directory was not forged as a whole. A copy of the ledger's last digest (`ledger_head` in
//! `manifest.json`) in a different place detects the last.
//!
//! Source: \[Gboard\] section 2.5, point 7; \[BLT\] Appendix A.

mod audit;
mod directory;
mod guarantee;
mod identity;
mod ledger;
mod mechanism;
mod metrics;
mod model;
mod published;
mod replays;
mod same;
mod selection;
mod session;
mod subject;
mod wording;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::Serialize;
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::plan::{Population, PrivacyPlan, StartCost};
use undertone_coordinator::privacy_report::{Claims, FOLLOWS_THE_ENCODING};
use undertone_coordinator::record::{GuaranteeRecord, LedgerEnd, LedgerEntry};
use undertone_coordinator::task::{TaskConfig, TaskFile};
use undertone_settings::VocabularySpec;
use undertone_text::{Vocab, VocabProvenance};
use undertone_vocabulary::FileRecord;

use self::guarantee::Recomputed;
use self::same::{Precision, differences};
use self::subject::Subject;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{
    CONFIG_FILE, LEDGER_FILE, TASK_FILE, VOCAB_FILE, VOCAB_PRIVACY_FILE,
};
use undertone_run_directory::initial_model::{SourceName, Training};
use undertone_run_directory::plan_inputs::{
    begun, mechanism_of, trainings_of, vocabulary_cost, vocabulary_of, words_record,
};
use undertone_run_directory::task::{self, ServiceRecord};

pub use audit::read_lane;
pub(crate) use published::settings_of;
pub use published::{obstacles, release};
pub use replays::read_replays;

/// Problems that one check lists; a hostile ledger may have a million.
const MOST_PROBLEMS: usize = 1000;

/// One check of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub name: &'static str,
    /// The findings in a few words.
    pub found: String,
    /// The failed claims, each naming its file, line or figure, at most 1,000; empty if the check passed.
    pub problems: Vec<String>,
    /// The faults of an earlier version that wrote the files, for [`Verification::warnings`].
    #[serde(skip)]
    warnings: Vec<String>,
}

impl Check {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            found: String::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a fault of an earlier version that wrote the files. The check still holds.
    fn warning(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds a problem; the last place is that of a line which says that there are more.
    fn problem(&mut self, problem: impl Display) {
        match MOST_PROBLEMS.saturating_sub(self.problems.len()) {
            0 => {}
            1 => self.problems.push(format!(
                "more than {} problems; the others are not listed",
                MOST_PROBLEMS - 1
            )),
            _ => self.problems.push(problem.to_string()),
        }
    }

    fn problems(&mut self, problems: Vec<String>) {
        for problem in problems {
            self.problem(problem);
        }
    }

    /// `true` where no further problem would be listed.
    fn is_full(&self) -> bool {
        self.problems.len() >= MOST_PROBLEMS
    }

    /// Adds a problem of a place whose value is not the expected one.
    fn wrong(&mut self, place: impl Display, expected: impl Display, got: impl Display) {
        self.problem(format!("{place}: expected {expected}, got {got}"));
    }

    /// Adds a problem if two figures differ.
    fn same(&mut self, place: impl Display, expected: &impl Figure, got: &impl Figure) {
        let (expected, got) = (expected.value(), got.value());
        // Recomputed on another machine, a last digit may differ.
        let differ = match (expected, got) {
            (Some(a), Some(b)) => (a - b).abs() > 1e-9 * a.abs().max(b.abs()) || a.is_nan() != b.is_nan(),
            (a, b) => a.is_some() != b.is_some(),
        };
        if differ {
            self.wrong(place, shown(expected), shown(got));
        }
    }

    /// Compares two values leaf by leaf, of which one was computed again.
    fn agree(&mut self, place: &str, expected: &impl Serialize, got: &impl Serialize) {
        match (serde_json::to_value(expected), serde_json::to_value(got)) {
            (Ok(expected), Ok(got)) => {
                self.problems(differences(place, &expected, &got, Precision::Recomputed));
            }
            (Err(error), _) | (_, Err(error)) => self.problem(format!("{place}: {error}")),
        }
    }

    /// Keeps the value, or the error as a problem.
    fn keep<T, E: Display>(&mut self, result: std::result::Result<T, E>) -> Option<T> {
        result.map_err(|error| self.problem(error)).ok()
    }
}

/// A key or a text from a file, cut to what a problem shows.
fn quoted(text: &str) -> String {
    let start: String = text.chars().take(120).collect();
    format!("{start:?}")
}

/// A number, or that there is none.
fn shown(value: Option<impl Display>) -> String {
    value.map_or("no value".to_owned(), |value| value.to_string())
}

/// A number, or none.
trait Figure {
    fn value(&self) -> Option<f64>;
}

impl Figure for f64 {
    fn value(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Figure for u64 {
    fn value(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Figure for Option<f64> {
    fn value(&self) -> Option<f64> {
        *self
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// The run directory.
    pub run: PathBuf,
    /// Every check, in order. Where one fails that others build on, they are missing.
    pub checks: Vec<Check>,
    /// The faults of the versions that wrote the files. What holds, holds beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The guarantee that the run may claim, recomputed from the ledger; `None` where that failed, or where the run promises none.
    pub recomputed: Option<GuaranteeRecord>,
    /// Conditions of the guarantee beside the files, and the figures that no file determines.
    pub notes: Vec<&'static str>,
}

impl Verification {
    /// A verification before its first check.
    fn of(run_dir: &Path) -> Self {
        Self {
            run: run_dir.to_owned(),
            checks: Vec::new(),
            warnings: Vec::new(),
            recomputed: None,
            notes: match undertone_run_directory::public_ledger::is_published(run_dir) {
                true => published::NOT_CHECKED.to_vec(),
                false => Vec::new(),
            },
        }
    }

    /// `true` if all claims hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.problems.is_empty())
    }

    /// Keeps a check, and returns the value that later ones build on, if it passed.
    fn then<T>(&mut self, (check, value): (Check, Option<T>)) -> Option<T> {
        self.checks.push(check);
        value
    }
}

/// The values that later checks build on.
struct Run<'a> {
    folder: &'a Path,
    subject: Subject,
    /// The words of the model; `None` where another program trained it.
    vocabulary: Option<Vocab>,
    /// `true` for a published folder, whose ledger lacks what only insiders may see.
    published: bool,
    counts: ParameterCounts,
    entries: Vec<LedgerEntry>,
    /// The last line of a task that has ended.
    end: Option<LedgerEnd>,
    plan: PrivacyPlan,
    /// The trainings that the initial model describes.
    trainings: Vec<Training>,
}

impl Run<'_> {
    /// The settings that privacy depends on.
    fn task(&self) -> &TaskConfig {
        self.subject.task()
    }

    /// The name of the ledger.
    fn ledger_file(&self) -> &'static str {
        published::ledger_file(self.published)
    }

    /// `true` where a published ledger names nobody, because the guarantee rests on sampling.
    fn withholds_participation(&self) -> bool {
        self.published && !undertone_run_directory::public_ledger::by_schema(self.task())
    }

    /// The origin of the words: what their record says, or else the configuration.
    fn words_provenance(&self, config: &RunConfig) -> VocabProvenance {
        match self.vocabulary.as_ref().map(Vocab::provenance) {
            Some(VocabProvenance::TrainingData) => VocabProvenance::TrainingData,
            _ => config.data.vocabulary_provenance(),
        }
    }

    /// The inputs of the run's report, made as before the first round.
    fn claims(&self) -> Result<Claims<'_>> {
        match &self.subject {
            Subject::Task { file, .. } => Ok(Claims::of_task(file, self.counts, &self.plan)?),
            Subject::Session(config) => {
                let planned = self.plan.planned()?;
                let entries = &self.entries;
                Ok(undertone_run_directory::session_config::claims(
                    config,
                    &self.plan,
                    self.counts,
                    planned,
                    entries,
                ))
            }
            Subject::Run(config) => Ok(Claims {
                task: &config.task,
                service: None,
                seeded: config.seed.is_some(),
                vocabulary: self.words_provenance(config),
                counts: self.counts,
                plan: &self.plan,
                planned: self.plan.planned()?,
                estimate: self.plan.estimated()?,
                assumptions: config.engine.assumption().into_iter().collect(),
            }),
        }
    }
}

/// Verifies a finished run, or the directory of an exported task of the service.
///
/// # Errors
/// [`DirectoryError::Io`] where the folder is no run directory; all other errors are problems of a check.
pub fn verify(run_dir: &Path) -> Result<Verification> {
    Ok(checked(run_dir)?.0)
}

/// The verification, and the run with its report where they could be read.
fn checked(run_dir: &Path) -> Result<(Verification, Option<(Run<'_>, Recomputed)>)> {
    let of_task = undertone_run_directory::task::is_exported(run_dir);
    files::read(&run_dir.join(if of_task { TASK_FILE } else { CONFIG_FILE }))?;
    let mut verification = Verification::of(run_dir);
    let mut found = None;
    if let Some(run) = open(run_dir, of_task, &mut verification) {
        verification
            .notes
            .extend(match (run.published, run.subject.is_external()) {
                (false, true) => Some(session::NOT_DETERMINED),
                (false, false) => Some(metrics::NOT_DETERMINED),
                (true, true) => Some(published::TRAINED_OUTSIDE),
                (true, false) => None,
            });
        if run.plan.adds_noise_after_lifting() {
            verification.notes.push(FOLLOWS_THE_ENCODING);
        }
        if run.published {
            let faults = published::faults(&run);
            verification
                .warnings
                .extend(faults.unwrap_or_else(|error| vec![error.to_string()]));
        }
        verification.checks.extend(selection::alone(&run));
        verification.checks.push(mechanism::matches_configuration(&run));
        verification.checks.push(ledger::rounds(&run));
        verification.checks.push(ledger::participation(&run));
        if run.withholds_participation() {
            verification.notes.push(published::WITHOUT_PARTICIPATION);
        }
        let made = verification.then(guarantee::agree(&run));
        let report = made.as_ref().map(|made| &made.report);
        if !run.published {
            verification.checks.push(metrics::agree(&run));
        }
        verification
            .checks
            .push(model::matches_ledger(&run, made.as_ref().map(Recomputed::stated)));
        verification.checks.extend(audit::lane(&run));
        verification.checks.extend(replays::agree(&run));
        let audited = audit::agree(&run, made.as_ref().map(Recomputed::stated));
        verification
            .notes
            .extend(audited.as_ref().map(|_| audit::NOT_DETERMINED));
        verification.checks.extend(audited);
        verification.recomputed = report.and_then(|report| match run.plan.selection() {
            Some(_) => report.selected.clone(),
            None => report.claimed().cloned(),
        });
        found = made.map(|made| (run, made));
    }
    let of_checks = verification.checks.iter().flat_map(|check| &check.warnings);
    let of_checks: Vec<String> = of_checks.cloned().collect();
    verification.warnings.extend(of_checks);
    Ok((verification, found))
}

fn open<'a>(folder: &'a Path, of_task: bool, verification: &mut Verification) -> Option<Run<'a>> {
    let (configuration, subject) = subject::read(folder, of_task);
    let published = undertone_run_directory::public_ledger::is_published(folder);
    let files = directory::Files::of(of_task, published, subject.as_ref());
    verification
        .checks
        .push(directory::as_when_it_ended(folder, &files));
    verification.checks.push(configuration);
    let subject = subject?;
    let (chained, found) = ledger::chain(folder, published, &subject);
    if let Subject::Task { file, record } = &subject {
        let identity = identity::stated(file, record, found.as_ref());
        verification.checks.push(identity);
    }
    let found = verification.then((chained, found))?;
    verification.then(mechanism::is_one(folder, subject.task().rounds))?;
    let Settings {
        vocabulary,
        counts,
        plan,
        trainings,
    } = verification.then(settings(folder, published, &subject, &found.entries))?;
    Some(Run {
        folder,
        subject,
        published,
        vocabulary,
        counts,
        entries: found.entries,
        end: found.end,
        plan,
        trainings,
    })
}

/// Model and plan, recomputed from configuration, vocabulary and mechanism.
struct Settings {
    vocabulary: Option<Vocab>,
    counts: ParameterCounts,
    plan: PrivacyPlan,
    trainings: Vec<Training>,
}

fn settings(
    folder: &Path,
    published: bool,
    subject: &Subject,
    entries: &[LedgerEntry],
) -> (Check, Option<Settings>) {
    let mut check = Check::new("settings");
    for (entry, line) in entries.iter().zip(1..).skip(1) {
        let first = &entries[0];
        let place = |what: &str| {
            format!(
                "{}, line {line}, {what} as in line 1",
                published::ledger_file(published)
            )
        };
        check.same(place("population"), &first.population, &entry.population);
        check.same(place("total_weight"), &first.total_weight, &entry.total_weight);
        if entry.noise_domain != first.noise_domain {
            let key = |entry: &LedgerEntry| entry.noise_domain.map_or("no key", |_| "modular");
            check.wrong(place("noise_domain"), key(first), key(entry));
        }
    }
    let made = match subject {
        Subject::Run(config) => of_run(folder, config, entries),
        Subject::Session(config) => session::settings(folder, config, entries),
        Subject::Task { file, record } => of_task(folder, file, record),
    };
    let made = check.keep(made);
    if let (Subject::Run(config), Some(words)) =
        (subject, made.as_ref().and_then(|made| made.vocabulary.as_ref()))
        && config.data.vocabulary_provenance() == VocabProvenance::TrainingData
        && words.provenance() != VocabProvenance::TrainingData
    {
        check.warning(format!(
            "{VOCAB_FILE}: no record beside it says that its words are not private, so a run that takes it as a file calls them public"
        ));
    }
    check.found = match subject.is_external() {
        true => format!(
            "mechanism fits the configuration; model {}",
            session::NOT_RECOMPUTED
        ),
        false => {
            let made = made.as_ref();
            let words = made.map_or("", |made| origin_of(subject, made.vocabulary.as_ref()));
            let start = made
                .and_then(|made| made.plan.start())
                .map_or("", StartCost::statement);
            let start = match start.contains("declared public") {
                true => " (its start declared public by the run file)",
                false => "",
            };
            format!("vocabulary{words}, model{start} and mechanism fit the configuration")
        }
    };
    (check, made)
}

/// The origin of words, where it is a person's claim or people's text.
fn origin_of(subject: &Subject, vocabulary: Option<&Vocab>) -> &'static str {
    let of_settings = match subject {
        Subject::Run(config) => config.data.vocabulary_provenance(),
        Subject::Session(_) | Subject::Task { .. } => VocabProvenance::File,
    };
    match (vocabulary.map(Vocab::provenance), of_settings) {
        (Some(VocabProvenance::TrainingData), _) | (_, VocabProvenance::TrainingData) => " (not private)",
        (_, VocabProvenance::File | VocabProvenance::PublicCorpus) => " (declared public by the run file)",
        _ => "",
    }
}

/// The settings of a task. Its population is the declared one, not that of its ledger.
fn of_task(folder: &Path, file: &TaskFile, record: &ServiceRecord) -> Result<Settings> {
    let path = folder.join(VOCAB_FILE);
    let vocabulary =
        undertone_vocabulary::parse_words(&path, &files::read(&path)?)?.with_rule(file.text.words);
    let (mechanism, trainings) = (mechanism_of(folder)?, trainings_of(folder)?);
    let words = vocabulary.len();
    let plan = task::plan_with(file, mechanism.as_ref(), words, &trainings, &record.population)?;
    Ok(Settings {
        counts: task::counts(file, words)?,
        vocabulary: Some(vocabulary),
        plan,
        trainings,
    })
}

fn of_run(folder: &Path, config: &RunConfig, entries: &[LedgerEntry]) -> Result<Settings> {
    let vocabulary = vocabulary_of(folder, &config.data)?;
    let layout = config.task.model.layout(vocabulary.len())?;
    let counts = ParameterCounts::of(&config.task.model, vocabulary.len())?;
    let first = entries.first();
    let first = first.ok_or_else(|| DirectoryError::damaged(&folder.join(LEDGER_FILE), "no rounds"))?;
    let population = Population {
        users: first.population,
        total_weight: first.total_weight,
    };
    let begun = begun(folder, first.noise_multiplier)?;
    let trainings = trainings_of(folder)?;
    // PRIVACY: lines without this key were made by earlier versions, and are priced as those made them.
    let make = match first.noise_domain {
        Some(_) => PrivacyPlan::of_begun,
        None => PrivacyPlan::of_lifted_sums,
    };
    let plan = make(&config.task, &begun, &layout, population)?;
    let (vocabulary, words) = match vocabulary_record(folder, config, &vocabulary)? {
        Some(FileRecord::NotPrivate(_)) => (vocabulary.with_provenance(VocabProvenance::TrainingData), None),
        Some(FileRecord::Chosen(record)) => (vocabulary, Some(record)),
        None => (vocabulary, None),
    };
    let words = vocabulary_cost(&plan, words.as_ref())?;
    let plan = plan
        .with_vocabulary(words)
        .with_start(&trainings, &SourceName::of(folder, &config.data)?.public);
    let plan =
        undertone_run_directory::sweep_statement::with_selection(folder, config, plan, vocabulary.len())?;
    Ok(Settings {
        vocabulary: Some(vocabulary),
        counts,
        plan,
        trainings,
    })
}

/// The record of the words: checked, and of these words. It fits the configuration, which names words that were chosen privately.
fn vocabulary_record(folder: &Path, config: &RunConfig, vocabulary: &Vocab) -> Result<Option<FileRecord>> {
    let record = words_record(folder, vocabulary)?;
    let is_private = matches!(config.data.vocabulary, Some(VocabularySpec::Private { .. }));
    if is_private == matches!(record, Some(FileRecord::Chosen(_))) {
        return Ok(record);
    }
    let expected = match is_private {
        true => "expected the record of words that were chosen privately, as data.vocabulary says",
        false => {
            "expected no record of words that were chosen privately, which data.vocabulary does not name"
        }
    };
    Err(DirectoryError::damaged(
        &folder.join(VOCAB_PRIVACY_FILE),
        expected,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_lists_a_thousand_problems_and_says_that_there_are_more() {
        let mut check = Check::new("ledger");
        check.problems((1..1000).map(|line| format!("line {line}")).collect());
        assert!(!check.is_full());
        check.problem("line 1000");
        check.problems(vec!["line 1001".to_owned(); 5]);
        assert!(check.is_full());
        assert_eq!(check.problems.len(), MOST_PROBLEMS);
        assert_eq!(check.problems[998], "line 999");
        assert_eq!(
            check.problems[999],
            "more than 999 problems; the others are not listed"
        );
    }

    /// A verifier that is built alone has no dictionaries of languages, and reads the runs that had them.
    #[test]
    fn the_name_of_a_rule_of_words_is_read_without_the_rule() {
        let text = r#"
            name = "mine"
            rounds = 1
            data = { words = "unicode", source = { kind = "synthetic" } }
            model = { family = "cifg", cells = 8, embedding = 4, projection = 4 }
            cohort = { sampling = "poisson", users_per_round = 40 }
            user_update = { batch_size = 8, learning_rate = 0.5 }
        "#;
        let config = RunConfig::parse(text, Path::new("config.toml"), &[]).unwrap();
        assert_eq!(config.data.words.name(), "unicode");
    }
}
