//! The claim that an audit tests.

use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_run_directory::error::{DirectoryError, Result};

/// The relative difference that a figure may have which was computed for the coordinates of a rehearsal.
const OTHER_COORDINATES: f64 = 1e-3;

/// The report that follows from ledger and configuration.
///
/// # Errors
/// [`DirectoryError`] where there is none; the check of the guarantee has said why.
pub(super) fn report(report: Option<&PrivacyReport>) -> Result<&PrivacyReport> {
    report.ok_or_else(|| DirectoryError::missing("privacy.json", "a guarantee that holds: an audit tests it"))
}

/// The guarantee of all rounds of the configuration.
///
/// # Errors
/// [`DirectoryError`] where there is none.
pub(super) fn planned(made: Option<&PrivacyReport>) -> Result<GuaranteeRecord> {
    let planned = report(made)?.planned.clone();
    planned.ok_or_else(|| DirectoryError::missing("privacy", "a claim that an audit can test"))
}

/// The planned guarantee, with those figures of the written one that differ by the number of coordinates alone: a rehearsal has others than the
/// model.
pub(super) fn rehearsed(written: Option<&GuaranteeRecord>, planned: GuaranteeRecord) -> GuaranteeRecord {
    let Some(written) = written else {
        return planned;
    };
    let near = |made: &mut f64, written: f64| {
        if (written - *made).abs() <= OTHER_COORDINATES * made.abs() {
            *made = written;
        }
    };
    let mut made = planned;
    near(&mut made.epsilon, written.epsilon);
    near(&mut made.noise_multiplier, written.noise_multiplier);
    if let (Some(made), Some(written)) = (&mut made.schema, &written.schema) {
        near(&mut made.rho, written.rho);
    }
    for (made, written) in made.points.iter_mut().zip(&written.points) {
        near(&mut made.epsilon, written.epsilon);
    }
    // The distance of the samples from ideal noise is proportional to the number of coordinates.
    let delta = made.delta;
    if let (Some(made), Some(written)) = (&mut made.sampler_delta, written.sampler_delta)
        && (0.0..delta).contains(&written)
    {
        *made = written;
    }
    made
}

/// The claim of a copy that has more users than its run, beside that of the run.
///
/// The rounds of the copy are those of the run with a smaller or the same sampling probability, so its epsilon is at most that of the run, or the
/// target that both were made for.
///
/// # Errors
/// The expected claim, where the written one is larger or absent: a larger claim would hide what the copy exposes.
pub(super) fn of_copy(
    written: Option<&GuaranteeRecord>,
    planned: Option<&GuaranteeRecord>,
    target: Option<f64>,
) -> std::result::Result<(), String> {
    let Some(planned) = planned else {
        return Ok(());
    };
    let most = planned.epsilon.max(target.unwrap_or(0.0)) * (1.0 + OTHER_COORDINATES);
    match written {
        Some(written) if written.epsilon <= most && written.delta <= planned.delta => Ok(()),
        _ => Err(format!(
            "a claim of epsilon at most {most} at a delta of at most {}, as the run has",
            planned.delta
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> GuaranteeRecord {
        serde_json::from_value(serde_json::json!({
            "epsilon": 2.0,
            "delta": 1e-5,
            "adjacency": "add-or-remove-one",
            "sampling": "poisson",
            "recipe": "pld",
            "rounds": 10,
            "population": 100,
            "users_per_round": 5.0,
            "noise_multiplier": 1.0,
            "sampler_delta": 1e-20,
            "points": [{ "delta": 1e-6, "epsilon": 3.0 }],
        }))
        .unwrap()
    }

    #[test]
    fn a_copy_claims_no_more_than_its_run_or_their_target() {
        let run = record();
        let mut copy = record();
        assert!(of_copy(Some(&copy), Some(&run), None).is_ok());
        copy.epsilon = 2.4;
        assert!(of_copy(Some(&copy), Some(&run), None).is_err());
        assert!(of_copy(Some(&copy), Some(&run), Some(2.4)).is_ok());
        assert!(of_copy(Some(&copy), None, None).is_ok());
        copy.delta = 1e-4;
        assert!(of_copy(Some(&copy), Some(&run), Some(2.4)).is_err());
        copy.epsilon = f64::NAN;
        assert!(of_copy(Some(&copy), Some(&run), None).is_err());
        assert!(of_copy(None, Some(&run), None).is_err());
    }

    #[test]
    fn figures_of_other_coordinates_may_differ_in_their_last_digits_and_nothing_else_may() {
        let mut written = record();
        written.epsilon *= 1.0 + 1e-9;
        written.noise_multiplier *= 1.0 - 1e-9;
        written.points[0].epsilon *= 1.0 + 1e-9;
        written.sampler_delta = Some(1e-17);
        assert_eq!(rehearsed(Some(&written), record()), written);
        assert_eq!(rehearsed(None, record()), record());
        let changes: [&dyn Fn(&mut GuaranteeRecord); 10] = [
            &|claim| claim.epsilon = 2.01,
            &|claim| claim.delta = 1e-4,
            &|claim| claim.group_size = Some(u32::MAX),
            &|claim| claim.population = 1,
            &|claim| claim.rounds = 1,
            &|claim| claim.users_per_round = 4.0,
            &|claim| claim.recipe.push('!'),
            &|claim| claim.points.clear(),
            &|claim| claim.points[0].epsilon = 1.0,
            &|claim| claim.sampler_delta = Some(1.0),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut written = record();
            change(&mut written);
            assert_eq!(rehearsed(Some(&written), record()), record(), "change {number}");
        }
    }
}
