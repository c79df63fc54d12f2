//! The lines of a task's metrics, of what a service learns.

use undertone_coordinator::head::Next;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::task::{TaskFile, TaskPurpose};

use super::settings::counts;
use crate::error::Result;
use crate::metrics::{RoundRecord, StartRecord};
use crate::plan_inputs::signal_to_noise;

/// The first line of a task's metrics.
///
/// # Errors
/// Sizes of the model that are out of range; from the strategy.
pub fn start_record(file: &TaskFile, plan: &PrivacyPlan, vocab_len: usize) -> Result<StartRecord> {
    let counts = counts(file, vocab_len)?;
    let warning = match &file.purpose {
        TaskPurpose::Train { initial_model } => {
            plan.warning(&file.task, &file.layout(vocab_len)?, initial_model.is_some())?
        }
        TaskPurpose::Evaluate { .. } => None,
    };
    Ok(StartRecord {
        run: file.task.name.clone(),
        model: file.task.model.family().to_owned(),
        parameters: counts.trained,
        frozen_parameters: counts.frozen,
        train_users: plan.population().users as usize,
        train_tokens: None,
        rounds: file.task.rounds,
        user_sizes: None,
        best_accuracy: None,
        unigram_accuracy: None,
        unigram_standard_error: None,
        warning,
    })
}

/// The line of a released round. `seconds` is the time from the opening of the attempt to its release.
///
/// The line holds no epsilon, which a service may state in it at any round.
#[must_use]
pub fn round_record(next: &Next, seconds: f64) -> RoundRecord {
    let plan = next.head.plan();
    RoundRecord {
        estimated_clip_norm: next.head.clip().map(|clip| clip.estimate()),
        release_norm: next.release_norm,
        signal_to_noise: signal_to_noise(plan, next.entry.noise_std, plan.layout().len(), next.release_norm),
        ledger_sha256: Some(next.head.chain().head().to_owned()),
        seconds,
        ..determined(&next.entry)
    }
}

/// The figures of a round that its line of the ledger determines, and nothing of what a service never learns.
#[must_use]
pub fn determined(entry: &LedgerEntry) -> RoundRecord {
    RoundRecord {
        round: entry.round,
        cohort_size: entry.cohort_size as usize,
        survivors: entry.survivors,
        abandoned: entry.abandoned,
        cohort_weight: entry.cohort_size as f64,
        examples: None,
        tokens: None,
        train_loss: None,
        clip_norm: entry.clip_norm,
        discarded: None,
        clipped_fraction: None,
        update_norms: None,
        release_norm: 0.0,
        noise_std: entry.noise_std,
        signal_to_noise: None,
        epsilon: None,
        estimated_clip_norm: None,
        ledger_sha256: None,
        seconds: 0.0,
        phases: None,
    }
}
