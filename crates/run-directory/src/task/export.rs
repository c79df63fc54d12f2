//! The directory of an ended task: its files, written whole or not at all.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::outlet;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::privacy_report::Claims;
use undertone_coordinator::record::{LedgerEnd, LedgerEntry, LedgerLine, PrivacyReport};
use undertone_coordinator::task::TaskFile;
use undertone_models::SequenceModel;
use undertone_present::numbers::hex;
use undertone_text::Vocab;
use undertone_vocabulary::parse_words;

use super::settings::{counts, genesis, source_sha256, trainings_json};
use crate::error::{DirectoryError, Result};
use crate::files::names::{
    INITIAL_MODEL_FILE, LEDGER_FILE, MECHANISM_FILE, METRICS_FILE, MODEL_FILE, PRIVACY_FILE, PRIVACY_PAGE,
    SERVICE_FILE, TASK_FILE, VOCAB_FILE,
};
use crate::initial_model::{Description, Training};
use crate::manifest::Manifest;
use crate::plan_inputs::trainings_of;
use crate::{files, privacy_page};

/// The files that the manifest of an exported task covers.
pub const TASK_FILES: [&str; 10] = [
    TASK_FILE,
    INITIAL_MODEL_FILE,
    LEDGER_FILE,
    MECHANISM_FILE,
    METRICS_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    PRIVACY_PAGE,
    SERVICE_FILE,
    VOCAB_FILE,
];

/// `service.json`: the population of a task, its identifier, and the issuers that vouched for its subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceRecord {
    /// Version of the format.
    pub version: u32,
    /// The name of the population.
    pub population: String,
    /// The identifier of the task, in hexadecimal digits.
    pub task: String,
    /// The public keys of the issuers, in hexadecimal digits, ascending; empty with `identity = "dev"`.
    pub issuers: Vec<String>,
}

impl ServiceRecord {
    /// The record of a task of a population.
    ///
    /// # Errors
    /// The errors of [`TaskFile::id`].
    pub fn new(file: &TaskFile, population: &str, issuers: &[[u8; 32]]) -> Result<Self> {
        let mut issuers: Vec<String> = issuers.iter().map(|key| hex(key)).collect();
        issuers.sort_unstable();
        issuers.dedup();
        Ok(Self {
            version: 1,
            population: population.to_owned(),
            task: hex(&file.id(population)?),
            issuers,
        })
    }
}

/// The parts of an ended task that its directory is made of.
#[expect(missing_debug_implementations, reason = "a model cannot be shown")]
pub struct TaskExport<'a> {
    /// The task file.
    pub file: &'a TaskFile,
    /// The name of the population.
    pub population: &'a str,
    /// The public keys of the issuers that vouched for its subjects; empty with `identity = "dev"`.
    pub issuers: &'a [[u8; 32]],
    /// The list of words, as devices read it.
    pub vocabulary: &'a [u8],
    /// The plan of the task, with the cost of its initial model.
    pub plan: &'a PrivacyPlan,
    /// The content of `mechanism.json` as it was at the start, where there is one.
    pub mechanism: Option<&'a [u8]>,
    /// The trainings of the initial model.
    pub trainings: &'a [Training],
    /// The lines of the ledger, without line feeds. The last one ends the task.
    pub ledger: &'a [Vec<u8>],
    /// The lines of the metrics, without line feeds.
    pub metrics: &'a [Vec<u8>],
    /// The model with the parameters after the last round; `None` for an evaluation.
    pub model: Option<(&'a dyn SequenceModel, &'a [f32])>,
}

impl TaskExport<'_> {
    /// Writes the directory of the task. It appears under its name when all of its files are durable. Returns the privacy report.
    ///
    /// # Errors
    /// [`DirectoryError::RunExists`] where the name is taken; [`DirectoryError::Damaged`] for a ledger without an end; [`DirectoryError::Io`] naming
    /// the path, and then nothing is left behind.
    pub fn write(&self, folder: &Path) -> Result<PrivacyReport> {
        files::new_folder(folder, |staged| self.fill(staged))
    }

    fn fill(&self, folder: &Path) -> Result<PrivacyReport> {
        let damaged = |message: String| DirectoryError::Damaged {
            path: folder.join(LEDGER_FILE),
            message,
        };
        let (entries, end) = self.ledger().map_err(damaged)?;
        let words = parse_words(&folder.join(VOCAB_FILE), self.vocabulary)?.with_rule(self.file.text.words);
        let claims = Claims::of_task(self.file, counts(self.file, words.len())?, self.plan)?;
        let report = claims.report(&entries, Some(&end))?;
        let write = |name: &str, bytes: &[u8]| files::write_atomic(&folder.join(name), bytes);
        write(TASK_FILE, super::text(self.file)?.as_bytes())?;
        let record = ServiceRecord::new(self.file, self.population, self.issuers)?;
        files::write_json(&folder.join(SERVICE_FILE), &record)?;
        write(VOCAB_FILE, self.vocabulary)?;
        if let Some(mechanism) = self.mechanism {
            write(MECHANISM_FILE, mechanism)?;
        }
        if let Some(trainings) = trainings_json(self.trainings)? {
            write(INITIAL_MODEL_FILE, &trainings)?;
        }
        write(LEDGER_FILE, &lines(self.ledger))?;
        write(METRICS_FILE, &lines(self.metrics))?;
        files::write_json(&folder.join(PRIVACY_FILE), &report)?;
        write(
            PRIVACY_PAGE,
            privacy_page::document(&self.file.task.name, &report).as_bytes(),
        )?;
        if let Some((model, parameters)) = self.model {
            let description = self.description(&claims, &report, &words, entries.len() as u64)?;
            let bytes = model.write_params(parameters, &description.to_json()?)?;
            write(MODEL_FILE, &bytes)?;
        }
        let head = self.ledger.last().map_or_else(String::new, |line| digest(line));
        Manifest::of(folder, &TASK_FILES, entries.len() as u64, &head)?.write(folder)?;
        Ok(report)
    }

    /// The lines as values.
    fn ledger(&self) -> Result<(Vec<LedgerEntry>, LedgerEnd), String> {
        let (mut entries, mut end) = (Vec::new(), None);
        for (line, number) in self.ledger.iter().zip(1..) {
            match LedgerLine::read(line).map_err(|error| format!("line {number}: {error}"))? {
                _ if end.is_some() => return Err(format!("line {number}: it follows the end of the task")),
                LedgerLine::Round(entry) => entries.push(*entry),
                LedgerLine::End(found) => end = Some(found),
            }
        }
        match end {
            Some(end) => Ok((entries, end)),
            None => Err("expected a last line with the key `end`: the task has not ended".to_owned()),
        }
    }

    fn description(
        &self,
        claims: &Claims<'_>,
        report: &PrivacyReport,
        words: &Vocab,
        rounds: u64,
    ) -> Result<Description> {
        let mut trained_on = self.trainings.to_vec();
        trained_on.push(claims.training(report, source_sha256(self.population), true));
        Ok(Description {
            obstacles: outlet::obstacles(claims, report),
            ..Description::new(&self.file.task.model, rounds, words, trained_on)
        })
    }
}

fn digest(line: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(line))
}

fn lines(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
    for line in lines {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}

/// The digest that the first line of an exported task's ledger follows, from the files of its directory.
pub fn genesis_of(folder: &Path, id: &[u8; 32]) -> Result<String> {
    let mechanism = files::read_if_there(&folder.join(MECHANISM_FILE))?;
    let vocabulary = files::read(&folder.join(VOCAB_FILE))?;
    genesis(id, mechanism.as_deref(), &vocabulary, &trainings_of(folder)?)
}
