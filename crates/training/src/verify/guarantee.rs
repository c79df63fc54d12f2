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
use crate::error::{Result, TrainingError};
use crate::figures::upper_bound;
use crate::record::{GuaranteeRecord, PrivacyReport};
use crate::run::PRIVACY_FILE;

/// Claims count roundings and the sampler's distance from ideal noise; more than this above the ideal is another guarantee.
const MARGIN: f64 = 1e-4;

/// The guarantee of the rounds that the ledger shows, and whether the claims agree with it.
pub(super) fn recompute(run: &Run<'_>, shown: Option<&Shown>) -> (Check, Option<GuaranteeRecord>) {
    let mut check = Check::new("guarantee");
    let path = run.folder.join(PRIVACY_FILE);
    let read = crate::files::read(&path).and_then(|bytes| {
        serde_json::from_slice::<PrivacyReport>(&bytes).map_err(|error| TrainingError::Damaged {
            path,
            message: error.to_string(),
        })
    });
    let Some(claims) = check.keep(read) else {
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
    let made = |schema| from_ledger(run, schema).map(|made| GuaranteeRecord::from(&made));
    let observed = check.keep(made(observed_schema));
    compare(
        &mut check,
        "observed",
        observed.as_ref(),
        claims.observed.as_ref(),
        run.entries.len() as u64,
    );
    if run.plan.participation().is_some() {
        let worst = check.keep(made(accounted_schema));
        compare(
            &mut check,
            "worst_case",
            worst.as_ref(),
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
            && made.as_ref().map(rounded) != claimed.as_ref().map(rounded)
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

/// What the lines cost with ideal noise and exact arithmetic.
fn from_ledger(run: &Run<'_>, schema: Option<Participation>) -> Result<Guarantee> {
    let delta = Delta::new(run.plan.delta().unwrap_or(f64::NAN))?;
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
    claimed: Option<&GuaranteeRecord>,
    rounds: u64,
) {
    let Some(computed) = computed else { return };
    let Some(claimed) = claimed else {
        check.problem(format!("{PRIVACY_FILE}, {name}: missing"));
        return;
    };
    let epsilon = computed.epsilon;
    // PRIVACY: written so that a NaN does not hold.
    let holds =
        claimed.epsilon >= epsilon * (1.0 - 1e-12) && claimed.epsilon <= epsilon * (1.0 + MARGIN) + MARGIN;
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

/// Everything of a record, without digits that another machine may compute otherwise.
fn rounded(record: &GuaranteeRecord) -> String {
    let mut record = record.clone();
    let round = |value: f64| format!("{value:.9e}").parse().unwrap_or(value);
    record.epsilon = round(record.epsilon);
    record.noise_multiplier = round(record.noise_multiplier);
    record.users_per_round = round(record.users_per_round);
    if let Some(schema) = &mut record.schema {
        schema.sensitivity = round(schema.sensitivity);
        schema.rho = round(schema.rho);
    }
    format!("{record:?}")
}

fn stated(record: Option<&GuaranteeRecord>) -> String {
    record.map_or("nothing".to_owned(), |record| {
        crate::figures::epsilon_delta(record.epsilon, record.delta)
    })
}
