//! The guarantee, computed from the ledger's lines by the accountant, against what `privacy.json` claims.

use undertone_accounting::participation::Participation;
use undertone_accounting::{
    Accountant, Adjacency, Delta, Event, Guarantee, NoiseMultiplier, Recipe, SamplingProbability,
};
use undertone_mechanisms::Mechanism;

use super::ledger::Shown;
use super::{Check, Run};
use crate::cohort::Sampling;
use crate::config::{AccountantName, Algorithm};
use crate::error::Result;
use crate::figures::upper_bound;
use crate::record::{GuaranteeRecord, PrivacyReport};
use crate::run::PRIVACY_FILE;

/// Claims count roundings and the sampler's distance from ideal noise; more than this above the ideal is another guarantee.
const MARGIN: f64 = 1e-4;

/// Where the sampler's distance takes more than this of delta, half of delta was set aside for it.
const SMALL_SHARE: f64 = 1e-3;

/// Figures computed again, on another machine or by another order of sums, agree as far as this: of epsilon at a delta of
/// 1e-10 the eighth digit was seen to differ. What a claim is better by below that promises nothing more to anybody.
const SAME: f64 = 1e-7;

/// The guarantee of the rounds that the ledger shows, and whether the claims agree with it.
pub(super) fn recompute(run: &Run<'_>, shown: Option<&Shown>) -> (Check, Option<GuaranteeRecord>) {
    let mut check = Check::new("guarantee");
    let path = run.folder.join(PRIVACY_FILE);
    let Some(claims) = check.keep(crate::files::read_json::<PrivacyReport>(&path)) else {
        return (check, None);
    };
    if claims.private != run.plan.is_private() {
        check.problem(format!(
            "{PRIVACY_FILE}, private: expected {}, got {}",
            run.plan.is_private(),
            claims.private
        ));
    }
    if !run.plan.is_private() {
        check.found = "no noise, no guarantee".to_owned();
        for (name, claim) in [("planned", &claims.planned), ("observed", &claims.observed)] {
            if claim.is_some() {
                check.problem(format!("{PRIVACY_FILE}, {name}: a guarantee without noise"));
            }
        }
        return (check, None);
    }
    if claims.observed.is_none() && matches!(run.plan.planned(), Ok(None)) {
        check.found = "the noise is too small for any guarantee to be stated".to_owned();
        return (check, None);
    }
    let observed_schema = shown.and_then(|shown| shown.observed);
    let accounted_schema = shown.and_then(|shown| shown.accounted);
    let made = |schema, claim| from_ledger(run, schema, claim);
    let observed = check.keep(made(observed_schema, claims.observed.as_ref()));
    let (observed, most) = observed.unzip();
    compare(
        &mut check,
        "observed",
        observed.as_ref(),
        most,
        claims.observed.as_ref(),
        run.entries.len() as u64,
    );
    if run.plan.participation().is_some() {
        let worst = check.keep(made(accounted_schema, claims.worst_case.as_ref()));
        let (worst, most) = worst.unzip();
        compare(
            &mut check,
            "worst_case",
            worst.as_ref(),
            most,
            claims.worst_case.as_ref(),
            run.entries.len() as u64,
        );
    }
    let words = run.plan.vocabulary();
    let with_words = words.zip(observed.as_ref());
    compare(
        &mut check,
        "with_vocabulary",
        with_words.map(|(words, observed)| words.with(observed)).as_ref(),
        None,
        claims.with_vocabulary.as_ref(),
        run.entries.len() as u64,
    );
    if words.is_none() && claims.with_vocabulary.is_some() {
        check.problem(format!(
            "{PRIVACY_FILE}, with_vocabulary: expected none, the configuration has no private vocabulary"
        ));
    }
    // The plan and the estimate are no more than the configuration's; made again as before the first round.
    for (name, made, claimed) in [
        ("planned", run.plan.planned(), &claims.planned),
        ("estimate", run.plan.estimated(), &claims.estimate),
    ] {
        if let Some(made) = check.keep(made)
            && made != settled(claimed.as_ref(), made.as_ref())
        {
            check.problem(format!(
                "{PRIVACY_FILE}, {name}: expected {}, got {}",
                stated(made.as_ref()),
                stated(claimed.as_ref())
            ));
        }
    }
    statements(run, &claims, &mut check);
    check.found = format!("observed {}", stated(claims.observed.as_ref()));
    (check, observed)
}

/// What the lines cost with ideal noise and exact arithmetic, and the epsilon that a claim may state where it says that the
/// samples' distance from ideal ones takes much of delta.
fn from_ledger(
    run: &Run<'_>,
    schema: Option<Participation>,
    claim: Option<&GuaranteeRecord>,
) -> Result<(GuaranteeRecord, f64)> {
    let delta = Delta::new(run.plan.delta().unwrap_or(f64::NAN))?;
    let ideal = GuaranteeRecord::from(&ideal(run, schema, delta)?);
    let sampler = claim.and_then(|claim| claim.sampler_delta).unwrap_or(0.0);
    let most = if sampler > SMALL_SHARE * delta.get() {
        self::ideal(run, schema, Delta::new(0.5 * delta.get())?)?
            .epsilon
            .get()
    } else {
        ideal.epsilon
    };
    Ok((ideal, most))
}

fn ideal(run: &Run<'_>, schema: Option<Participation>, delta: Delta) -> Result<Guarantee> {
    if let Some(bounded) = run.plan.bounded() {
        let stated = run.entries.first().and_then(|entry| entry.noise_multiplier);
        // PRIVACY: the noise that the lines state, on the matrix of mechanism.json; not the plan's own figures.
        let mechanism = Mechanism::new(
            bounded.mechanism().strategy().clone(),
            run.entries.len(),
            schema.unwrap_or(bounded.mechanism().participation()),
            NoiseMultiplier::new(stated.unwrap_or(f64::NAN))?,
        )?;
        return Ok(mechanism.guarantee(delta)?);
    }
    if let Some(shares) = run.plan.shares() {
        let schema = schema.unwrap_or(shares.participation());
        return Ok(shares
            .accountant(run.entries.len() as u64, schema)?
            .guarantee(delta)?);
    }
    let recipe = match run.config.privacy.as_ref().map(|privacy| privacy.accountant) {
        Some(AccountantName::Pld) => Recipe::Pld,
        Some(AccountantName::Moments2016) => Recipe::Moments2016,
        _ => Recipe::Rdp,
    };
    let adjacency = match run.config.cohort.sampling {
        Sampling::Poisson => Adjacency::AddOrRemoveOne,
        _ => Adjacency::ReplaceOne,
    };
    let mut accountant = Accountant::under(recipe, adjacency);
    for entry in &run.entries {
        let noise_multiplier = NoiseMultiplier::new(entry.noise_multiplier.unwrap_or(f64::NAN))?;
        let event = match run.config.cohort.sampling {
            // PRIVACY: the group size that the line states, which has to be the configuration's.
            Sampling::Poisson if run.config.user_update.algorithm == Algorithm::Els => {
                Event::ExampleLevelSampling {
                    group_size: entry.group_size.unwrap_or(0),
                    sampling_probability: SamplingProbability::new(entry.sampling_probability)?,
                    noise_multiplier,
                }
            }
            Sampling::Poisson => Event::PoissonGaussian {
                sampling_probability: SamplingProbability::new(entry.sampling_probability)?,
                noise_multiplier,
            },
            _ => Event::FixedSizeGaussian {
                population: entry.population,
                cohort_size: entry.cohort_size,
                noise_multiplier,
            },
        };
        accountant.compose(&event, 1)?;
    }
    Ok(accountant.guarantee(delta)?)
}

fn compare(
    check: &mut Check,
    name: &str,
    computed: Option<&GuaranteeRecord>,
    most: Option<f64>,
    claimed: Option<&GuaranteeRecord>,
    rounds: u64,
) {
    let Some(computed) = computed else { return };
    let Some(claimed) = claimed else {
        check.problem(format!("{PRIVACY_FILE}, {name}: missing"));
        return;
    };
    let epsilon = computed.epsilon;
    let most = most.unwrap_or(epsilon);
    // PRIVACY: written so that a NaN does not hold.
    let holds =
        claimed.epsilon >= epsilon * (1.0 - 1e-12) && claimed.epsilon <= most * (1.0 + MARGIN) + MARGIN;
    if !holds {
        check.problem(format!(
            "{PRIVACY_FILE}, {name}.epsilon: the ledger gives {}, claimed is {}",
            upper_bound(epsilon),
            claimed.epsilon
        ));
    }
    let figure = |what: &str| format!("{PRIVACY_FILE}, {name}.{what}");
    check.same(figure("delta"), &computed.delta, &claimed.delta);
    check.same(figure("rounds"), &rounds, &claimed.rounds);
    if claimed.adjacency != computed.adjacency {
        check.problem(format!(
            "{}: expected {}, got {}",
            figure("adjacency"),
            computed.adjacency,
            claimed.adjacency
        ));
    }
}

/// The sentences and warnings are those that the configuration gives.
fn statements(run: &Run<'_>, claims: &PrivacyReport, check: &mut Check) {
    let expected = crate::run::statements_of(&run.config, run.counts);
    if claims.statements != expected {
        check.problem(format!(
            "{PRIVACY_FILE}, statements: not those of this configuration"
        ));
    }
    let seeded = claims.warnings.iter().any(|warning| warning.contains("seeded"));
    if seeded != run.config.seed.is_some() {
        check.problem(format!(
            "{PRIVACY_FILE}, warnings: expected {} about a seed",
            if run.config.seed.is_some() { "one" } else { "none" }
        ));
    }
}

/// What was claimed, with the figures of `made` wherever both are the same but for their last digits.
fn settled(claimed: Option<&GuaranteeRecord>, made: Option<&GuaranteeRecord>) -> Option<GuaranteeRecord> {
    let mut record = claimed?.clone();
    let Some(made) = made else {
        return Some(record);
    };
    let settle = |claimed: &mut f64, made: f64| {
        if (*claimed - made).abs() <= SAME * made.abs() {
            *claimed = made;
        }
    };
    settle(&mut record.epsilon, made.epsilon);
    settle(&mut record.noise_multiplier, made.noise_multiplier);
    settle(&mut record.users_per_round, made.users_per_round);
    if let (Some(claimed), Some(made)) = (&mut record.sampler_delta, made.sampler_delta) {
        settle(claimed, made);
    }
    if let (Some(claimed), Some(made)) = (&mut record.schema, &made.schema) {
        settle(&mut claimed.sensitivity, made.sensitivity);
        settle(&mut claimed.rho, made.rho);
    }
    for (claimed, made) in record.points.iter_mut().zip(&made.points) {
        settle(&mut claimed.epsilon, made.epsilon);
    }
    Some(record)
}

fn stated(record: Option<&GuaranteeRecord>) -> String {
    record.map_or("nothing".to_owned(), |record| {
        crate::figures::epsilon_delta(record.epsilon, record.delta)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::GuaranteePoint;

    #[test]
    fn claims_may_differ_in_their_last_digits_only() {
        let made = GuaranteeRecord {
            epsilon: 1.735_481_113_896_157,
            delta: 1e-6,
            adjacency: "add-or-remove one user".to_owned(),
            sampling: "Poisson sampling".to_owned(),
            recipe: "PLD upper bound".to_owned(),
            rounds: 3,
            population: 100,
            users_per_round: 10.0,
            group_size: None,
            noise_multiplier: 0.75,
            schema: None,
            sampler_delta: Some(3e-20),
            points: vec![GuaranteePoint {
                delta: 1e-5,
                epsilon: 1.5,
            }],
        };
        let changed = |change: fn(&mut GuaranteeRecord)| {
            let mut claimed = made.clone();
            change(&mut claimed);
            settled(Some(&claimed), Some(&made)) != Some(made.clone())
        };
        assert!(!changed(|claim| claim.epsilon *= 1.0 + 1e-13));
        assert!(!changed(|claim| claim.points[0].epsilon *= 1.0 - 1e-13));
        assert!(!changed(|claim| claim.sampler_delta = Some(3e-20 * (1.0 + 1e-10))));
        assert!(changed(|claim| claim.epsilon *= 1.0 - 1e-6));
        assert!(changed(|claim| claim.epsilon = f64::NAN));
        assert!(changed(|claim| claim.points[0].epsilon *= 1.0 - 1e-6));
        assert!(changed(|claim| claim.points.clear()));
        assert!(changed(|claim| claim.sampler_delta = None));
        assert!(changed(|claim| claim.rounds = 2));
        assert!(settled(None, Some(&made)).is_none());
    }
}
