//! Attacks on the final model of a run: membership by loss, with a positive control; and what all attacks share.
//!
//! PRIVACY: the figures are exact statistics of users. They belong to `audit-private.json`, which is no part of any release.

use std::path::Path;

use undertone_accounting::audit::attack::{area, limits};
use undertone_accounting::audit::many_runs::clopper_pearson_upper;
use undertone_accounting::{Delta, Epsilon};
use undertone_audit::attack::{Attack, Limit, Membership, SCHEMA, TookPart, took_part};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_coordinator::task::{ClipConfig, EstimatorConfig};
use undertone_run::membership::{self, Losses};
use undertone_run::{Result, RunFile, RunOptions, Silent, Summary, train};

/// The rate of false alarms among the held-out users that a threshold may have.
const FALSE_ALARMS: f64 = 0.01;

/// One side of an interval with 95 % confidence.
const ONE_SIDE: f64 = 0.025;

/// Standard errors on each side of an interval with 95 % confidence.
const TWO_SIDED: f64 = 1.959_963_984_540_054;

/// A positive control: the same run without clipping and noise, for so many rounds.
#[derive(Debug, Clone, Copy)]
pub struct Control<'a> {
    /// Number of rounds.
    pub rounds: u64,
    /// An empty folder for the run, which the caller removes.
    pub scratch: &'a Path,
    /// Cores to use.
    pub threads: usize,
}

/// Attacks the model of a finished run by the losses of at most `most` users on each side.
///
/// # Errors
/// From the run: not finished, no held-out users, a corpus that moved; from the training of the control.
pub fn membership(
    run_dir: &Path,
    file: &RunFile,
    claim: Option<GuaranteeRecord>,
    most: usize,
    control: Option<Control<'_>>,
) -> Result<Attack> {
    let attack = measured(&membership::losses(run_dir, Some(&file.base), most)?)?;
    let control = match control {
        Some(control) => {
            let plain = without_privacy(file, control.rounds);
            let run_dir = trained(&plain, control.scratch, control.threads)?.run_dir;
            let losses = membership::losses(&run_dir, Some(&file.base), most)?;
            Some((control.rounds, measured(&losses)?))
        }
        None => None,
    };
    let limit = limit_of(claim.as_ref(), &attack)?;
    Ok(Attack {
        schema: SCHEMA.to_owned(),
        kind: "membership".to_owned(),
        run: file.config.task.name.clone(),
        statements: statements(
            TRAINED_ON,
            took_part(run_dir)?,
            &attack,
            limit.as_ref(),
            control.is_some(),
        ),
        limit,
        claim,
        attack,
        whole_texts: None,
        control,
    })
}

/// The sentence about texts that the training had.
pub(super) const TRAINED_ON: &str = "The texts are those that the run trains on: this is membership inference of users, which is stronger than \
                                     user inference from fresh texts.";

/// The sentences of an attack on people's texts.
pub(super) fn statements(
    texts: &str,
    took_part: TookPart,
    attack: &Membership,
    limit: Option<&Limit>,
    controlled: bool,
) -> Vec<String> {
    let TookPart { users, population } = took_part;
    let mut statements = vec![
        texts.to_owned(),
        format!(
            "The members are users of the training partition. {users} of its {population} users took part in a round, and the others were never \
             trained on."
        ),
        "It does not show that no better attack exists. The promise is the claim, which rests on proof."
            .to_owned(),
        "These figures are exact statistics of users and no part of a release.".to_owned(),
        "No verdict follows from them: the intervals take users to be independent, and no secret coin chose who is a member.".to_owned(),
    ];
    let above =
        limit.is_some_and(|limit| attack.auc_interval.0 > limit.auc || attack.found_interval.0 > limit.found);
    if above {
        statements.push(
            "The lower end of an interval is above the limit of the claim. Look for an error: a replay and canaries can show one.".to_owned(),
        );
    }
    if !controlled {
        statements.push(
            "No positive control was made. Without one, an area near one half means only that the attack is weak.".to_owned(),
        );
    }
    statements
}

/// The limits that a claim sets to every attack with the false alarms of this one.
pub(super) fn limit_of(claim: Option<&GuaranteeRecord>, attack: &Membership) -> Result<Option<Limit>> {
    let Some(claim) = claim else {
        return Ok(None);
    };
    let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
    // A threshold that so many of n held-out users exceed is exceeded by another one with this probability in the mean. The limits are
    // concave in the rate, so the limit at the mean rate holds for the mean of what is found.
    let false_alarms = (allowed(attack.others) + 1) as f64 / (attack.others + 1) as f64;
    let limits = limits(epsilon, delta, false_alarms)?;
    Ok(Some(Limit {
        auc: limits.auc,
        auc_gaussian: limits.auc_gaussian,
        false_alarms,
        found: limits.tpr,
        found_gaussian: limits.tpr_gaussian,
    }))
}

/// Number of held-out users who may exceed the threshold.
fn allowed(others: usize) -> usize {
    (FALSE_ALARMS * others as f64).floor() as usize
}

/// A run like the one of the file, without clipping and noise.
pub(super) fn without_privacy(file: &RunFile, rounds: u64) -> RunFile {
    let mut config = file.config.clone();
    let task = &mut config.task;
    task.rounds = rounds;
    (task.privacy, task.aggregation, task.participation) = (None, None, None);
    (task.estimate, task.clip, task.estimator) = (None, ClipConfig::None, EstimatorConfig::Exact);
    task.schedule.clear();
    task.user_update.clip_every_step = false;
    config.evaluation.every = 0;
    config.leave_audits_out();
    RunFile::new(config, file.base.clone())
}

/// Trains a run that an attack needs beside the one that it attacks.
pub(super) fn trained(file: &RunFile, out: &Path, threads: usize) -> Result<Summary> {
    let options = RunOptions {
        out: out.to_owned(),
        threads,
        resume: false,
    };
    train(file, &options, &Silent)
}

/// The attack that guesses the users with the smallest losses.
pub(super) fn measured(losses: &Losses) -> Result<Membership> {
    let negated = |losses: &[f64]| losses.iter().map(|loss| -loss).collect::<Vec<f64>>();
    let (members, others) = (negated(&losses.members), negated(&losses.others));
    let area = area(&members, &others)?;
    let half = TWO_SIDED * area.standard_error;
    // The smallest threshold that at most one in a hundred of the held-out users exceeds.
    let mut sorted = others.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let threshold = sorted
        .get(allowed(others.len()))
        .copied()
        .unwrap_or(f64::NEG_INFINITY);
    let above = |scores: &[f64]| scores.iter().filter(|score| **score > threshold).count();
    let (found, alarms, all) = (above(&members), above(&others), members.len());
    let upper = |count: usize| clopper_pearson_upper(count as u64, all as u64, ONE_SIDE);
    Ok(Membership {
        members: all,
        others: others.len(),
        median_tokens: losses.median_tokens,
        auc: area.auc,
        auc_interval: ((area.auc - half).max(0.0), (area.auc + half).min(1.0)),
        found: found as f64 / all as f64,
        found_interval: (1.0 - upper(all - found)?, upper(found)?),
        false_alarms: alarms as f64 / others.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median of scores is exceeded by the members alone: all are found, without a false alarm.
    #[test]
    fn a_perfect_attack_finds_all_and_a_blind_one_nothing_in_particular() {
        let losses = |members: Vec<f64>, others: Vec<f64>| Losses {
            members,
            others,
            median_tokens: (1, 1),
        };
        let perfect = measured(&losses(
            vec![1.0; 60],
            (0..60).map(|i| 2.0 + f64::from(i)).collect(),
        ))
        .unwrap();
        assert_eq!(
            (perfect.auc, perfect.found, perfect.false_alarms),
            (1.0, 1.0, 0.0)
        );
        // Clopper and Pearson: all of 60 leaves a lower limit of 0.025^(1/60).
        assert!((perfect.found_interval.0 - 0.025f64.powf(1.0 / 60.0)).abs() < 1e-6);
        let same: Vec<f64> = (0..200).map(f64::from).collect();
        let blind = measured(&losses(same.clone(), same)).unwrap();
        assert!((blind.auc - 0.5).abs() < 1e-12 && blind.auc_interval.0 < 0.5 && blind.auc_interval.1 > 0.5);
        assert!(blind.false_alarms <= 0.01 && blind.found <= 0.02, "{blind:?}");
    }
    /// With 39 held-out users the threshold is their largest score, which one user in 40 exceeds; with 100 it is their second largest.
    #[test]
    fn limits_are_those_at_the_rate_of_false_alarms_that_so_few_people_allow() {
        let claim: GuaranteeRecord = serde_json::from_value(serde_json::json!({
            "epsilon": 1.0, "delta": 1e-5, "adjacency": "", "sampling": "", "recipe": "", "rounds": 1, "population": 70,
            "users_per_round": 12.0, "noise_multiplier": 1.0,
        }))
        .unwrap();
        let attack = |others: usize| {
            measured(&Losses {
                members: (0..70).map(|user| f64::from(user) - 60.0).collect(),
                others: (0..others).map(|user| user as f64).collect(),
                median_tokens: (1, 1),
            })
            .unwrap()
        };
        for (others, rate) in [
            (39, 1.0 / 40.0),
            (99, 1.0 / 100.0),
            (100, 2.0 / 101.0),
            (1000, 11.0 / 1001.0),
        ] {
            let limit = limit_of(Some(&claim), &attack(others)).unwrap().unwrap();
            assert!((limit.false_alarms - rate).abs() < 1e-12, "{others}: {limit:?}");
            assert!(
                (limit.found - (1.0f64.exp() * rate + 1e-5)).abs() < 1e-12,
                "{others}: {limit:?}"
            );
        }
        let (found, took_part) = (
            attack(39),
            TookPart {
                users: 50,
                population: 70,
            },
        );
        let limit = limit_of(Some(&claim), &found).unwrap();
        let said = statements(TRAINED_ON, took_part, &found, limit.as_ref(), true).join(" ");
        for part in [
            "50 of its 70 users took part",
            "No verdict follows",
            "above the limit of the claim",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(limit_of(None, &found).unwrap().is_none());
    }
}
