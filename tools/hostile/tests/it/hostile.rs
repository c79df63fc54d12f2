//! Every case of the corpus, and some mutations of every kind; `undertone-hostile mutations` reads 10,000 of each.

use std::path::Path;
use std::sync::OnceLock;

use undertone_hostile::hunt::{Inputs, hunt};
use undertone_hostile::{KINDS, World, corpus};

const PROGRAM: &str = env!("CARGO_BIN_EXE_undertone-hostile");

/// Mutations of each kind; more where `UNDERTONE_MUTATIONS` says so.
const MUTATIONS: u64 = 60;

fn world() -> &'static World {
    static MADE: OnceLock<(tempfile::TempDir, World)> = OnceLock::new();
    let (_, world) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::make(folder.path()).expect("honest files");
        (folder, world)
    });
    world
}

#[test]
#[ignore = "slow"]
fn honest_files_of_every_kind_are_accepted() {
    for kind in KINDS {
        for place in kind.honest {
            let copy = tempfile::tempdir().expect("a folder");
            let world = world().copy(copy.path()).expect("a copy");
            let bytes = kind.honest_bytes(&world, place).expect("an honest file");
            let outcome = kind.read(&world, place, &bytes).expect("reading");
            assert_eq!(
                outcome,
                undertone_hostile::Outcome::Accepted,
                "{} {place}",
                kind.name
            );
        }
    }
}

#[test]
#[ignore = "slow"]
fn no_case_of_the_corpus_does_more_than_end_in_an_error() {
    let mut wrong = Vec::new();
    for kind in KINDS {
        let cases = corpus::cases(world(), kind).expect("cases");
        let folder = tempfile::tempdir().expect("a folder");
        for case in &cases {
            std::fs::write(folder.path().join(&case.name), &case.bytes).expect("a file");
        }
        let inputs = Inputs::Files(folder.path().to_owned());
        let tally = hunt(Path::new(PROGRAM), world(), kind, &inputs).expect("reading");
        assert_eq!(tally.inputs, cases.len() as u64);
        for (case, index) in cases.iter().zip(0..) {
            let failure = tally.failures.iter().find(|failure| failure.index == index);
            let refused = tally.errors.iter().any(|(at, _)| *at == index);
            match failure {
                Some(failure) => wrong.push(format!("{} {}: {}", kind.name, case.name, failure.what)),
                None if case.refused && !refused => {
                    wrong.push(format!("{} {}: accepted", kind.name, case.name));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "slow"]
fn mutations_of_honest_files_end_in_an_error_or_are_harmless() {
    let count = std::env::var("UNDERTONE_MUTATIONS")
        .ok()
        .and_then(|count| count.parse().ok());
    for kind in KINDS {
        let inputs = Inputs::Mutations {
            seed: 18,
            from: 0,
            to: count.unwrap_or(MUTATIONS),
        };
        let tally = hunt(Path::new(PROGRAM), world(), kind, &inputs).expect("reading");
        assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
        // A harness whose mutations change nothing, or whose readers read nothing, would find nothing.
        // A damaged cache alone is made again instead.
        assert!(
            tally.refused > 0 || kind.name == "corpus-cache",
            "{}: nothing was refused",
            kind.name
        );
    }
}
