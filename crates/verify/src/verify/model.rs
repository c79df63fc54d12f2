//! The final model against the ledger's last line, and its description against the report.

use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::outlet;
use undertone_coordinator::record::PrivacyReport;
use undertone_coordinator::trainings::Training;
use undertone_models::weights;
use undertone_text::{Vocab, VocabProvenance};

use super::same::exactly;
use super::{Check, Run};
use undertone_run_directory::error::Result;
use undertone_run_directory::files::names::MODEL_FILE;
use undertone_run_directory::initial_model::{Description, description_of};
use undertone_run_directory::plan_inputs::trained_model;

/// Checks that the parameters are those of the ledger's last line, and that the frozen ones are unchanged.
pub(super) fn matches_ledger(run: &Run<'_>, report: Option<&PrivacyReport>) -> Check {
    let mut check = Check::new("model");
    if run.subject.is_evaluation() {
        check.found = "none: an evaluation releases rates".to_owned();
        return check;
    }
    let Some(vocabulary) = &run.vocabulary else {
        return super::session::model(run, report);
    };
    let read = trained_model(run.folder, &run.task().model, vocabulary);
    let (Some((model, parameters)), Some(last)) = (check.keep(read), run.entries.last()) else {
        return check;
    };
    let digest = ModelIdentity::new(model.as_ref()).digest(&parameters);
    if Some(&digest) != last.parameters_sha256.as_ref() {
        check.problem(format!(
            "{MODEL_FILE}: parameters of SHA-256 {digest}, the ledger's last round ended with {} (parameters_sha256)",
            super::shown(last.parameters_sha256.as_ref())
        ));
    }
    if let Some(report) = report {
        let described = description(run, vocabulary, report, &mut check);
        check.keep(described);
    }
    check.found = format!("{}, those of round {}", run.counts, last.round);
    check
}

/// Checks that the file describes its model, its words and the guarantee of its training.
fn description(run: &Run<'_>, vocabulary: &Vocab, report: &PrivacyReport, check: &mut Check) -> Result<()> {
    let mut trained_on = run.trainings.clone();
    if let Some(source) = run.subject.source_name(run.folder)? {
        trained_on.push(run.claims()?.training(report, source, run.subject.is_of_people()));
    }
    let bytes = undertone_run_directory::files::read(&run.folder.join(MODEL_FILE))?;
    nothing_else_said(&bytes, check)?;
    let rounds = run.entries.len() as u64;
    let made = Description {
        obstacles: outlet::obstacles(&run.claims()?, report),
        ..Description::new(&run.task().model, rounds, vocabulary, trained_on)
    };
    let place = format!("{MODEL_FILE}, its description");
    let Some(text) = weights::description(&bytes)? else {
        check.problem(format!("{place}: missing"));
        return Ok(());
    };
    let mut made = made;
    if made.vocabulary_provenance.is_none() && run.claims()?.vocabulary == VocabProvenance::TrainingData {
        // A run of an earlier version has no record of its words. The version that ended it may say in the header where they come from.
        made.vocabulary_provenance = description_of(Some(text.clone()), &run.folder.join(MODEL_FILE))
            .ok()
            .flatten()
            .and_then(|own| own.vocabulary_provenance);
    }
    is_described(&text, made, check);
    Ok(())
}

/// Checks that the description of a model is this one.
pub(super) fn is_described(text: &str, mut made: Description, check: &mut Check) {
    let place = format!("{MODEL_FILE}, its description");
    match exactly::<Description>(&place, text.as_bytes()) {
        Ok(written) => {
            // Earlier versions named no obstacle.
            if written.obstacles.is_empty() {
                for obstacle in made.obstacles.drain(..) {
                    check.warning(format!(
                        "{place}: does not say what its guarantee does not cover: {obstacle}"
                    ));
                }
            }
            // Nor did they say whose text a run without privacy read.
            if let (
                Some(Training::NotPrivate { from_people, .. }),
                Some(Training::NotPrivate {
                    from_people: false, ..
                }),
            ) = (made.trained_on.last_mut(), written.trained_on.last())
                && std::mem::take(from_people)
            {
                check.warning(format!(
                    "{place}: does not say that the text is people's, so a run that starts from it declares it public"
                ));
            }
            check.agree(&place, &made, &written);
        }
        Err(problems) => check.problems(problems),
    }
}

/// Checks that the header of a model says nothing beside its tensors and its description: a reader would take it for a statement of the run.
pub(super) fn nothing_else_said(model: &[u8], check: &mut Check) -> Result<()> {
    for place in weights::foreign_in_header(model)? {
        check.problem(format!(
            "{MODEL_FILE}, its header, {}: no run writes this; take the file of the run",
            super::quoted(&place)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_an_earlier_version_that_does_not_say_whose_text_it_was_is_named_by_a_warning() {
        let of = |source: &str, from_people| {
            let source_sha256 = source.to_owned();
            Description::of_session(
                3,
                vec![Training::NotPrivate {
                    source_sha256,
                    from_people,
                }],
            )
        };
        let checked = |written: Description| {
            let mut check = Check::new("model");
            is_described(&written.to_json().unwrap(), of("a", true), &mut check);
            check
        };
        let today = checked(of("a", true));
        assert!(today.problems.is_empty() && today.warnings.is_empty());
        let earlier = checked(of("a", false));
        assert!(earlier.problems.is_empty(), "{:?}", earlier.problems);
        assert!(earlier.warnings[0].contains("does not say that the text is people's"));
        // Nothing else may be other.
        assert!(!checked(of("b", false)).problems.is_empty());
    }
}
