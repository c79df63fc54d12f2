//! A forger changes every leaf of every file of a folder, one at a time, and makes all digests agree: the chain of the ledger from the
//! settings on, its lines in the metrics, its head in the audit, the identifier of a task and the manifest. Verification refuses the
//! change, or the leaf stands in the list of those that no file can prove, with the reason.

mod document;
mod folder;
mod folders;
mod passes;
mod task;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use undertone_verify::publish;

use document::forged;
use folder::{Folder, Outcome};
use folders::{KINDS, Kind};
use passes::{PASSES, listed};

/// A folder that is forged.
struct Case {
    name: &'static str,
    kind: Kind,
    published: bool,
    /// The files that are removed first.
    without: &'static [&'static str],
    /// The files that are forged; empty for all.
    only: &'static [&'static str],
}

const fn case(name: &'static str, kind: Kind, published: bool) -> Case {
    Case {
        name,
        kind,
        published,
        without: &[],
        only: &[],
    }
}

const CASES: [Case; 16] = [
    Case {
        without: &["audit.json"],
        ..case("run", Kind::Audited, false)
    },
    case("run, published", Kind::Audited, true),
    case("ftrl, published", Kind::Ftrl, true),
    case("els, published", Kind::Els, true),
    case("sampled, published", Kind::Sampled, true),
    case("uls, published", Kind::Uls, true),
    case("memory", Kind::Memory, false),
    case("emulator, published", Kind::Emulator, true),
    case("session", Kind::Session, false),
    case("session, published", Kind::Session, true),
    case("gpu-sum, published", Kind::GpuSum, true),
    case("sweep, published", Kind::Sweep, true),
    case("task", Kind::Task, false),
    case("task, published", Kind::Task, true),
    Case {
        only: &["audit.json", "coins.json"],
        ..case("audit", Kind::Audited, false)
    },
    Case {
        without: &["coins.json"],
        only: &["audit.json"],
        ..case("audit without coins", Kind::Audited, false)
    },
];

/// The figures of one folder.
struct Walk {
    leaves: usize,
    tried: usize,
    refused: usize,
    /// Changes that leave a folder as an earlier version would have written it, and that a warning names.
    warned: usize,
    /// The places in the list that let something pass.
    listed: BTreeSet<(usize, usize)>,
    /// The changes that pass and are not in the list.
    unlisted: Vec<String>,
}

/// A folder of each kind, made when somebody asks for it first.
struct Made {
    root: tempfile::TempDir,
    private: [OnceLock<PathBuf>; KINDS.len()],
    published: [OnceLock<PathBuf>; KINDS.len()],
}

impl Made {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            private: [const { OnceLock::new() }; KINDS.len()],
            published: [const { OnceLock::new() }; KINDS.len()],
        }
    }

    fn folder(&self, kind: Kind, published: bool) -> &Path {
        let index = KINDS.iter().position(|(other, _)| *other == kind).unwrap();
        let out = self.root.path().join(KINDS[index].1);
        let private = self.private[index].get_or_init(|| {
            std::fs::create_dir(&out).unwrap();
            folders::make(kind, &out)
        });
        match published {
            false => private,
            true => self.published[index].get_or_init(|| {
                let folder = out.join("published");
                publish(private, &folder).unwrap().folder
            }),
        }
    }
}

/// Forges every `stride`-th change of a folder, or all with 1.
fn walk(case: &Case, stride: usize, made: &Made) -> Walk {
    let scratch = tempfile::tempdir().unwrap();
    let source = made.folder(case.kind, case.published);
    let folder = Folder::copied(source, &scratch.path().join("forged"), case.without);
    assert_eq!(folder.problems(), Vec::<String>::new(), "{}", case.name);
    let mut walk = Walk {
        leaves: 0,
        tried: 0,
        refused: 0,
        warned: 0,
        listed: BTreeSet::new(),
        unlisted: Vec::new(),
    };
    let mut turn = 0;
    for (file, bytes) in folder.files() {
        if !case.only.is_empty() && !case.only.contains(&file) {
            continue;
        }
        let mut leaves = BTreeSet::new();
        for change in forged(file, bytes) {
            turn += 1;
            if turn % stride != 0 {
                continue;
            }
            leaves.insert(change.leaf.clone());
            walk.tried += 1;
            let said = match folder.forge(&change) {
                Outcome::Refused => {
                    walk.refused += 1;
                    continue;
                }
                Outcome::Warned => {
                    walk.warned += 1;
                    continue;
                }
                Outcome::Passed(said) => said,
            };
            let place = format!("{}: {} {}: {}", case.name, change.file, change.leaf, change.what);
            match listed(&place, &said) {
                Some(place) => drop(walk.listed.insert(place)),
                None => walk.unlisted.push(place),
            }
        }
        walk.leaves += leaves.len();
    }
    let Walk {
        leaves,
        tried,
        refused,
        warned,
        ..
    } = walk;
    let unlisted = walk.unlisted.len();
    let mut text = format!(
        "{}: {leaves} leaves, {tried} changes tried, {refused} refused, {warned} named by a warning, {} pass by {} lines of the list, \
         {unlisted} pass unlisted",
        case.name,
        tried - refused - warned - unlisted,
        walk.listed.len(),
    );
    for unlisted in &walk.unlisted {
        text += &format!("\n  UNLISTED {unlisted}");
    }
    println!("{text}");
    walk
}

/// Forges the folders of all cases on a few threads.
fn walk_all(stride: usize) -> Vec<Walk> {
    let made = Made::new();
    let (next, walks) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let walk = walk(case, stride, &made);
            walks.lock().unwrap().push(walk);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    walks.into_inner().unwrap()
}

#[test]
#[ignore = "slow"]
fn a_sample_of_forged_leaves_is_refused_or_listed_with_its_reason() {
    for walk in walk_all(61) {
        assert_eq!(walk.unlisted, Vec::<String>::new());
    }
}

mod by_hand {
    use super::*;

    /// The walk takes minutes. What it prints belongs to the note of a release.
    #[test]
    #[ignore = "minutes"]
    fn every_forged_leaf_of_every_kind_of_folder_is_refused_or_listed_with_its_reason() {
        let walks = walk_all(1);
        let listed: BTreeSet<(usize, usize)> = walks.iter().flat_map(|walk| walk.listed.clone()).collect();
        for (number, reason) in PASSES.iter().enumerate() {
            println!("PASS because {}", reason.why);
            for (index, place) in reason.places.iter().enumerate() {
                let passes = listed.contains(&(number, index));
                println!(
                    "  {place}{}",
                    if passes { "" } else { " NEVER PASSES: remove it" }
                );
            }
        }
        let unlisted: Vec<&String> = walks.iter().flat_map(|walk| &walk.unlisted).collect();
        assert!(
            unlisted.is_empty(),
            "{} changes pass that the list does not name",
            unlisted.len()
        );
        assert!(walks.iter().all(|walk| walk.leaves >= 120));
    }

    /// Writes the folders of all kinds, each also published, below `UNDERTONE_FOLDERS`: the way in which the ones that are kept were made.
    #[test]
    #[ignore = "writes files"]
    fn folders_of_all_kinds_are_written() {
        let out = std::env::var_os("UNDERTONE_FOLDERS").expect("UNDERTONE_FOLDERS: a folder");
        let made = Made::new();
        for (kind, name) in KINDS {
            for (published, place) in [(false, "private"), (true, "published")] {
                Folder::kept(
                    made.folder(kind, published),
                    &Path::new(&out).join(name).join(place),
                    &[],
                );
            }
        }
    }
}
