//! A folder that a forger changes, and makes agree with the change in all that follows from the files alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use undertone_verify::{Verification, verify};

use super::document::Forged;

const MANIFEST: &str = "manifest.json";
const METRICS: &str = "metrics.jsonl";
const AUDIT: &str = "audit.json";
const SERVICE: &str = "service.json";
const LANE: &str = "lane.json";
/// The ledger of a folder; a published one has the second.
const LEDGERS: [&str; 2] = ["ledger.jsonl", "ledger.public.jsonl"];

/// A folder, and its files as they were made.
pub(crate) struct Folder {
    path: PathBuf,
    honest: BTreeMap<String, Vec<u8>>,
}

/// The result of one change.
pub(crate) enum Outcome {
    /// Verification refused the folder, or the repair of a digest took the change back.
    Refused,
    /// All checks hold, and a warning names a fault of the folder, which has none as it was made.
    Warned,
    /// All checks hold. The text is everything that verification said.
    Passed(String),
}

impl Folder {
    /// A copy of the files of a finished folder, as they are, without its folders, without what is a view of them, and without some.
    pub(crate) fn kept(from: &Path, to: &Path, without: &[&str]) -> Self {
        std::fs::create_dir_all(to).unwrap();
        let mut honest = BTreeMap::new();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_view = entry.path().is_dir() || name.starts_with('.') || name.ends_with(".html");
            if is_view || without.contains(&name.as_str()) {
                continue;
            }
            honest.insert(name, std::fs::read(entry.path()).unwrap());
        }
        let folder = Self {
            path: to.to_owned(),
            honest,
        };
        folder.restore();
        folder
    }

    /// Such a copy with documents as the forger writes them, so that a file that nobody changed keeps its digest.
    pub(crate) fn copied(from: &Path, to: &Path, without: &[&str]) -> Self {
        let mut folder = Self::kept(from, to, without);
        folder.agree("", None);
        let names: Vec<String> = folder.honest.keys().cloned().collect();
        folder.honest = (names.into_iter())
            .map(|name| (name.clone(), folder.read(&name).unwrap()))
            .collect();
        folder
    }

    /// The names of the files, and their bytes.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.honest
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    fn restore(&self) {
        for (name, bytes) in &self.honest {
            if self.read(name).as_ref() != Some(bytes) {
                self.write(name, bytes);
            }
        }
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path.join(name)).ok()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path.join(name), bytes).unwrap();
    }

    fn json(&self, name: &str) -> Option<Value> {
        serde_json::from_slice(&self.read(name)?).ok()
    }

    fn lines(&self, name: &str) -> Option<Vec<Value>> {
        let text = String::from_utf8(self.read(name)?).ok()?;
        text.lines().map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The problems and warnings of the folder as it was made: everything was made again, so there are none.
    pub(crate) fn problems(&self) -> Vec<String> {
        let verification = verify(&self.path).unwrap();
        [problems(&verification), verification.warnings].concat()
    }

    /// Makes a change and all that follows from it, verifies, and takes the change back.
    pub(crate) fn forge(&self, forged: &Forged) -> Outcome {
        let file = self.path.join(&forged.file);
        match &forged.bytes {
            Some(bytes) => self.write(&forged.file, bytes),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let outcome = self.verified(forged);
        self.restore();
        outcome
    }

    fn verified(&self, forged: &Forged) -> Outcome {
        let mut genesis = None;
        // The refusals of a digest say which one the folder needs: first that of a task, then that of the settings.
        for _ in 0..4 {
            self.agree(&forged.file, genesis.as_deref());
            let Ok(verification) = verify(&self.path) else {
                return Outcome::Refused;
            };
            let problems = problems(&verification);
            if problems.is_empty() {
                return match (self.still_has(forged), verification.warnings.is_empty()) {
                    (true, true) => Outcome::Passed(said(&verification)),
                    (true, false) => Outcome::Warned,
                    (false, _) => Outcome::Refused,
                };
            }
            let told = |before: &str| problems.iter().find_map(|problem| digest_after(problem, before));
            let task = told("service.json, task: expected ");
            let first = told("line 1: expected to follow").filter(|first| genesis.as_ref() != Some(first));
            if first.is_none() && task.is_none() {
                return Outcome::Refused;
            }
            genesis = first.or(genesis);
            if let Some(task) = task
                && let Some(mut record) = self.json(SERVICE)
            {
                record["task"] = task.into();
                self.write(SERVICE, record.to_string().as_bytes());
            }
        }
        Outcome::Refused
    }

    /// `true` if the changed file is as the forger wanted it, apart from the digests that were made again.
    fn still_has(&self, forged: &Forged) -> bool {
        match (&forged.bytes, self.read(&forged.file)) {
            (Some(wanted), Some(found)) => {
                let honest = &self.honest[&forged.file];
                *wanted == found || !same_but_digests(honest, &found)
            }
            (None, None) => true,
            _ => false,
        }
    }

    /// Makes the chain, the digests in metrics and audit, and the manifest again. The changed leaf itself is left alone.
    fn agree(&self, changed: &str, genesis: Option<&str>) {
        let ledger = LEDGERS.into_iter().find(|name| self.path.join(name).exists());
        let mut head = None;
        if let Some(name) = ledger
            && let Some(mut lines) = self.lines(name)
        {
            let mut digests = Vec::new();
            let mut before: Option<String> = genesis.map(str::to_owned);
            let mut text = String::new();
            for line in &mut lines {
                if let (Some(before), Some(line)) = (&before, line.as_object_mut()) {
                    line.insert("previous_sha256".to_owned(), before.clone().into());
                }
                let line = line.to_string();
                let digest = sha256(line.as_bytes());
                digests.push(digest.clone());
                before = Some(digest);
                text += &(line + "\n");
            }
            self.write(name, text.as_bytes());
            head = digests.last().cloned();
            self.link_metrics(changed, &digests);
        }
        if changed != AUDIT
            && let Some(mut audit) = self.json(AUDIT)
            && let Some(head) = &head
        {
            audit["run"]["ledger_head"] = head.clone().into();
            self.write(AUDIT, audit.to_string().as_bytes());
        }
        if changed != LANE
            && let Some(mut lane) = self.json(LANE)
            && let Some(coins) = self.read("coins.json")
        {
            lane["coins_sha256"] = sha256(&coins).into();
            self.write(LANE, lane.to_string().as_bytes());
        }
        if changed != MANIFEST {
            self.manifest(head);
        }
    }

    /// Lets the metrics name the lines of the ledger.
    fn link_metrics(&self, changed: &str, digests: &[String]) {
        let Some(mut records) = self.lines(METRICS) else {
            return;
        };
        if changed == METRICS {
            return;
        }
        let rounds = records.iter_mut().filter(|line| line["kind"] == "round");
        for (record, digest) in rounds.zip(digests) {
            if record.get("ledger_sha256").is_some() {
                record["ledger_sha256"] = digest.clone().into();
            }
        }
        let text: String = records.iter().map(|line| format!("{line}\n")).collect();
        self.write(METRICS, text.as_bytes());
    }

    fn manifest(&self, head: Option<String>) {
        let Some(mut manifest) = self.json(MANIFEST) else {
            return;
        };
        if let Some(files) = manifest["files"].as_object_mut() {
            files.retain(|name, _| self.path.join(name).exists());
            for (name, digest) in files.iter_mut() {
                *digest = sha256(&self.read(name).unwrap_or_default()).into();
            }
        }
        if let Some(head) = head {
            manifest["ledger_head"] = head.into();
        }
        self.write(MANIFEST, manifest.to_string().as_bytes());
    }
}

fn sha256(bytes: &[u8]) -> String {
    undertone_present::numbers::hex(&Sha256::digest(bytes))
}

fn problems(verification: &Verification) -> Vec<String> {
    let checks = verification.checks.iter();
    checks.flat_map(|check| check.problems.clone()).collect()
}

/// Everything that a verification says where it holds.
fn said(verification: &Verification) -> String {
    let found = verification
        .checks
        .iter()
        .map(|check| format!("{}: {}", check.name, check.found));
    let notes = verification.notes.iter().map(|note| (*note).to_owned());
    found.chain(notes).collect::<Vec<_>>().join("\n")
}

/// The first digest after some words of a problem.
fn digest_after(problem: &str, words: &str) -> Option<String> {
    let (_, rest) = problem.split_once(words)?;
    let digits = |part: &&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.split(|letter: char| !letter.is_ascii_alphanumeric())
        .find(digits)
        .map(str::to_owned)
}

/// `true` if two files differ in digests of a chain alone.
fn same_but_digests(one: &[u8], other: &[u8]) -> bool {
    let settled = |bytes: &[u8]| -> Option<Vec<Value>> {
        let text = std::str::from_utf8(bytes).ok()?;
        let whole = serde_json::from_str(text).ok().map(|value| vec![value]);
        let mut values: Vec<Value> = match whole {
            Some(values) => values,
            None => text
                .lines()
                .map(|line| serde_json::from_str(line).ok())
                .collect::<Option<_>>()?,
        };
        for value in &mut values {
            if let Some(fields) = value.as_object_mut() {
                fields.remove("previous_sha256");
                fields.remove("ledger_sha256");
            }
        }
        Some(values)
    };
    match (settled(one), settled(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}
