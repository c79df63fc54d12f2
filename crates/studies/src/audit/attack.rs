//! Attacks on the final model of a run: membership by loss, with a positive control; and what all attacks share.
//!
//! PRIVACY: the figures are exact statistics of users. They belong to `audit-private.json`, which is no part of any release.

use std::path::Path;

use undertone_accounting::audit::attack::{area, limits};
use undertone_accounting::audit::many_runs::clopper_pearson_upper;
use undertone_accounting::{Delta, Epsilon};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_coordinator::task::{ClipConfig, EstimatorConfig};
use undertone_run::audit::attack::{Attack, Limit, Membership, SCHEMA};
use undertone_run::config::RunFile;
use undertone_run::error::Result;
use undertone_run::membership::{self, Losses};
use undertone_run::{RunOptions, Silent, Summary, train};

/// The rate of false alarms at which an attack is stated.
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
    Ok(Attack {
        schema: SCHEMA.to_owned(),
        kind: "membership".to_owned(),
        run: file.config.task.name.clone(),
        limit: limit_of(claim.as_ref())?,
        claim,
        attack,
        whole_texts: None,
        statements: statements(TRAINED_ON, control.is_some()),
        control,
    })
}

/// The sentence about texts that were trained on.
pub(super) const TRAINED_ON: &str = "The texts are ones that were trained on: this is membership inference of users, which is stronger \
                                     than user inference from fresh texts.";

/// The sentences of an attack on people's texts.
pub(super) fn statements(texts: &str, controlled: bool) -> Vec<String> {
    let mut statements = vec![
        texts.to_owned(),
        "It does not show that no better attack exists. The promise is the claim, which rests on proof."
            .to_owned(),
        "These figures are exact statistics of users and no part of a release.".to_owned(),
    ];
    if !controlled {
        statements.push(
            "No positive control was made. Without one, an area near one half means only that the attack is weak.".to_owned(),
        );
    }
    statements
}

/// The limits that a claim sets to every attack.
pub(super) fn limit_of(claim: Option<&GuaranteeRecord>) -> Result<Option<Limit>> {
    let Some(claim) = claim else {
        return Ok(None);
    };
    let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
    let limits = limits(epsilon, delta, FALSE_ALARMS)?;
    Ok(Some(Limit {
        auc: limits.auc,
        auc_gaussian: limits.auc_gaussian,
        found: limits.tpr,
        found_gaussian: limits.tpr_gaussian,
    }))
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
    let allowed = (FALSE_ALARMS * others.len() as f64).floor() as usize;
    let threshold = sorted.get(allowed).copied().unwrap_or(f64::NEG_INFINITY);
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
}
