//! What a model remembers of its trainings, its words and its texts, and who believes it.

use std::path::{Path, PathBuf};

use undertone_coordinator::record::PrivacyReport;
use undertone_models::ExternalTensor;
use undertone_run::config::{RunConfig, RunFile};
use undertone_run::session::{Session, SessionConfig};
use undertone_run::{RunError, Silent, Summary};

use crate::support::{World, config, holds, options, overrides};

fn report(folder: &Path) -> PrivacyReport {
    let bytes = std::fs::read(folder.join("privacy.json")).expect("a report");
    serde_json::from_slice(&bytes).expect("a report")
}

/// The description in the header of a model.
fn header(model: &Path) -> serde_json::Value {
    let bytes = std::fs::read(model).expect("a model");
    let text = undertone_models::weights::description(&bytes).expect("a header");
    serde_json::from_str(&text.expect("a description")).expect("a description")
}

/// A finished session over the tensors of the run's model.
fn session(out: &Path, run: &RunConfig, privacy: &str) -> PathBuf {
    let world = World::new(run);
    let tensors: Vec<ExternalTensor> = (world.model.layout().tensors().iter())
        .map(|tensor| ExternalTensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
        })
        .collect();
    let text = format!(
        "name = \"session\"\nrounds = 2\ncohort = {{ users_per_round = 12 }}\nclip = {{ kind = \"flat\", norm = 0.3 }}\n\
         privacy = {privacy}\n"
    );
    let settings = SessionConfig::new(&text, "config".as_ref(), 48, &tensors).expect("settings");
    let mut session = Session::create(out, settings, ".".as_ref(), None, false).expect("a session");
    let mut average = vec![0.0; session.dim()];
    while session.next_round().expect("a round").is_some() {
        session.release(&mut average).expect("a release");
    }
    session.finish(&average).expect("a folder")
}

/// A run that starts from a model.
fn from(out: &Path, model: &Path, name: &str, changes: &[&str]) -> Result<Summary, RunError> {
    let start = format!("initial_model='{}'", model.display());
    let own = format!("name='{name}'");
    let all: Vec<&str> = changes.iter().copied().chain([&*start, &*own]).collect();
    undertone_run::train(&RunFile::new(config(&all), out), &options(out), &Silent)
}

const RUN: [&str; 3] = [
    "rounds=2",
    "evaluation={every=0}",
    "privacy={target_epsilon=3.0,delta=1e-5,max_epsilon=3.1}",
];

#[test]
fn a_session_of_7_5_and_a_run_of_3_are_refused_under_a_limit_of_3_1() {
    let out = tempfile::tempdir().expect("a folder");
    let folder = session(
        out.path(),
        &config(&RUN),
        "{ target_epsilon = 7.5, delta = 1e-5 }",
    );
    holds(&folder);
    let model = folder.join("model.safetensors");
    let described = header(&model);
    assert_eq!(described["trained_on"][0]["kind"], "undescribed", "{described}");
    assert_eq!(described["trained_on"][1]["kind"], "private", "{described}");

    let error = from(out.path(), &model, "within", &RUN)
        .expect_err("a refusal")
        .to_string();
    assert!(error.contains("max_epsilon"), "{error}");
    // With room for both, everything together is stated, and nobody calls the start public.
    let room = "privacy={target_epsilon=3.0,delta=1e-5,max_epsilon=11}";
    let run = from(out.path(), &model, "both", &[RUN[0], RUN[1], room]).expect("a run");
    let report = report(&run.run_dir);
    let together = report
        .with_initial_model
        .expect("a figure for everything")
        .epsilon;
    assert!((10.0..10.6).contains(&together), "{together}");
    let text = report.warnings.join("\n");
    assert!(
        text.contains("by a session, whose text nobody here knows"),
        "{text}"
    );
    let statements = report.statements.join("\n");
    assert!(statements.contains("is not public"), "{statements}");
    holds(&run.run_dir);
}

#[test]
fn a_session_whose_model_hides_its_own_training_does_not_verify() {
    let out = tempfile::tempdir().expect("a folder");
    let folder = session(
        out.path(),
        &config(&RUN),
        "{ target_epsilon = 7.5, delta = 1e-5 }",
    );
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("a model");
    let text = b"private";
    let place = bytes
        .windows(text.len())
        .position(|found| found == text)
        .expect("a training");
    bytes[place..place + text.len()].copy_from_slice(b"PRIVATE");
    std::fs::write(&path, bytes).expect("writing");
    let problems = crate::support::problems(&folder);
    assert!(
        problems.contains("model.safetensors, its description"),
        "{problems}"
    );
}
