//! A session beside the run of the same settings: what adaptive clipping makes of the same bits.

use std::collections::BTreeSet;
use std::path::Path;
use undertone_run_directory::session_config::SessionConfig;

use undertone_coordinator::record::{LedgerEntry, PrivacyReport};
use undertone_models::ExternalTensor;
use undertone_run::session::Session;
use undertone_verify::verify;

use crate::support::{World, config, ledger, train};

const SETTINGS: [&str; 4] = [
    "user_update={algorithm='uls',group_size=3}",
    "cohort={sampling='shuffled_epochs',users_per_round=12}",
    // Every update is longer than any estimate, so that the bits are known: each run and each session counts nobody.
    "clip={kind='adaptive',initial_norm=1e-4,bit_noise_std=3.0}",
    "privacy={noise_multiplier=4.0,delta=1e-5,mechanism={kind='tree',restarts={first=2,every=3}}}",
];

/// A line without the digests of what was trained or given out.
fn settled(entry: LedgerEntry) -> LedgerEntry {
    LedgerEntry {
        parameters_sha256: None,
        released_sha256: None,
        previous_sha256: String::new(),
        ..entry
    }
}

fn report(folder: &Path) -> PrivacyReport {
    let bytes = std::fs::read(folder.join("privacy.json")).expect("a report");
    serde_json::from_slice(&bytes).expect("a report")
}

#[test]
fn adaptive_clipping_in_a_session_has_the_ledger_of_the_run() {
    let run = config(&SETTINGS);
    let (_kept, summary) = train(&run, 2);
    let expected: Vec<LedgerEntry> = ledger(&summary.run_dir).into_iter().map(settled).collect();

    let world = World::new(&run);
    let tensors: Vec<ExternalTensor> = (world.model.layout().tensors().iter())
        .map(|tensor| ExternalTensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
        })
        .collect();
    let text = format!(
        "name = \"test\"\nseed = 1\nrounds = 10\n{}\n",
        SETTINGS.join("\n")
    );
    let users = expected[0].population;
    let settings = SessionConfig::new(&text, "config".as_ref(), users, &tensors).expect("settings");
    let out = tempfile::tempdir().expect("a folder");
    let mut session = Session::create(out.path(), settings, ".".as_ref(), None, false).expect("a session");
    let update = vec![1.0; session.dim()];
    let mut average = vec![0.0; session.dim()];
    let mut norms = Vec::new();
    while let Some(round) = session.next_round().expect("a round") {
        for (unit, user) in round.users().to_vec().into_iter().enumerate() {
            let available = world.users().user(user).num_examples();
            session.choose(user, available).expect("places");
            let round = session.open_round().expect("a round");
            assert!(round.add(unit, &update).expect("an update").report().clipped);
        }
        norms.push(session.release(&mut average).expect("a release").clip_norm);
    }
    let folder = session.finish(&average).expect("a folder");

    let found: Vec<LedgerEntry> = ledger(&folder).into_iter().map(settled).collect();
    assert_eq!(found, expected);
    assert_eq!(
        norms,
        expected.iter().map(|entry| entry.clip_norm).collect::<Vec<_>>()
    );
    let different: BTreeSet<u64> = norms.iter().flatten().map(|norm| norm.to_bits()).collect();
    assert_eq!(different.len(), 4, "{norms:?}");
    let (of_run, of_session) = (report(&summary.run_dir), report(&folder));
    assert!(of_session.planned.is_some());
    assert_eq!(
        (of_session.planned, of_session.observed),
        (of_run.planned, of_run.observed)
    );
    assert!(verify(&folder).expect("a verification").holds());
}
