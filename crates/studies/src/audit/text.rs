//! An audit with canaries that have text: invented users in a copy of a run, half of whom take part.
//!
//! The attacker sees the final model alone, as a stranger does, and tells the users who took part from the others by the likelihood of their
//! sentences. This is the weakest of the three levels and the one nearest to a real attack.

use std::path::Path;
use undertone_run::training_users;

use rand_core::Rng;
use undertone_accounting::audit::Significance;
use undertone_audit::canaries::{CONFIRMATION, bounds_of_model, plan};
use undertone_audit::record::{Audit, Bound, CanaryPlan, Control, TEXT};
use undertone_audit::text::{check_copy, fix_rates};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_data::{Corpus, Partition};
use undertone_mechanisms::draws;
use undertone_run::likelihood::{self, Likelihood};
use undertone_run::{Result, RunError, RunFile};
use undertone_run_directory::plan_inputs::config_digest;

use super::attack::{trained, without_privacy};

/// Number of texts of an invented user, each of which is the user's sentence.
const TEXTS: usize = 8;

/// Max number of words of a sentence.
const WORDS: usize = 12;

/// The draws of the coins and of the sentences.
const COINS: u64 = 20;
const SENTENCES: u64 = 21;

/// The questions of an audit with canaries that have text.
#[derive(Debug, Clone, Copy)]
pub struct TextAuditRequest<'a> {
    /// Number of canaries.
    pub canaries: u64,
    /// Rounds of a positive control, in which the copy is trained without clipping and noise.
    pub control: Option<u64>,
    /// An empty folder for the copies, which the caller removes.
    pub scratch: &'a Path,
    /// Cores to use.
    pub threads: usize,
}

/// Trains a copy of a finished run with invented users, and bounds epsilon by what its final model tells about them. `fresh` gives the
/// randomness of the coins and the sentences; a confirmation takes it once more.
///
/// # Errors
/// [`RunError`] naming the setting of a run that may not have such canaries; from the run, the training of the copy and the estimators.
pub fn audit(
    run_dir: &Path,
    file: &RunFile,
    request: &TextAuditRequest<'_>,
    fresh: &mut dyn FnMut() -> Result<Randomness>,
) -> Result<Audit> {
    let (corpus, _) = likelihood::of_run(run_dir, &file.base)?;
    let mut copy = RunFile::new(file.config.clone(), file.base.clone());
    fix_rates(run_dir, &mut copy.config.task)?;
    // The corpus of the copy lacks what the run held back, and nothing of a canary is held back.
    copy.config.audit = None;
    copy.config.evaluation.every = 0;
    let missing = || RunError::missing("privacy", "noise with a finite guarantee");
    let privacy = undertone_run_directory::read::read(run_dir)?.privacy;
    let claim = privacy.and_then(|privacy| privacy.planned).ok_or_else(missing)?;
    let digest = config_digest(&file.config)?;
    let fixed = plan(&digest, request.canaries, 0, &claim)?;
    let mut audit = Audit::new(&file.config.task.name, &digest);
    let world = World {
        run_dir,
        corpus: &corpus,
        training_users: &training_users(&file.config, &corpus)?,
        copy: &copy,
        claim: &claim,
        fixed: &fixed,
    };
    audit.canaries = world.attacked(request, &fresh()?, Significance::REPORTED)?;
    let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > claim.epsilon;
    if audit.canaries.iter().any(exceeds) {
        let mut again = world.attacked(request, &fresh()?, Significance::new(CONFIRMATION)?)?;
        again.retain(|bound| bound.headline);
        audit.canaries.extend(again);
    }
    audit.control = request.control.map(|_| Control::WithoutPrivacy);
    audit.plan_sha256 = Some(fixed.sha256()?);
    audit.plan = Some(fixed);
    audit.claim = Some(claim);
    Ok(audit.finish())
}

/// The run that is copied, and what is fixed before any coin.
struct World<'a> {
    run_dir: &'a Path,
    corpus: &'a Corpus,
    /// The text that the run was trained on.
    training_users: &'a Partition<'a>,
    copy: &'a RunFile,
    claim: &'a GuaranteeRecord,
    fixed: &'a CanaryPlan,
}

impl World<'_> {
    /// The bounds from one copy.
    fn attacked(
        &self,
        request: &TextAuditRequest<'_>,
        randomness: &Randomness,
        significance: Significance,
    ) -> Result<Vec<Bound>> {
        let mut generator = randomness.generator(Purpose::Audit, 0, COINS);
        let coins: Vec<bool> = (0..request.canaries)
            .map(|_| generator.next_u32() & 1 == 1)
            .collect();
        let sentences = self.sentences(request.canaries, randomness)?;
        let mut users: Vec<Vec<&[u32]>> = (self.training_users.users())
            .map(|user| user.examples().collect())
            .collect();
        let members = sentences.iter().zip(&coins).filter(|(_, coin)| **coin);
        users.extend(members.map(|(sentence, _)| vec![sentence.as_slice(); TEXTS]));
        let (config, base) = (self.copy.config.clone(), self.copy.base.clone());
        let file = match request.control {
            Some(rounds) => without_privacy(self.copy, rounds),
            None => RunFile::new(config, base),
        };
        let scratch = tempfile::tempdir_in(request.scratch)
            .map_err(|error| RunError::io("create a folder in", request.scratch, error))?;
        let file = file.with_corpus(self.corpus.with_training_users(&users, scratch.path())?)?;
        let summary = trained(&file, scratch.path(), request.threads)?;
        if request.control.is_none() {
            check_copy(self.run_dir, &summary.run_dir)?;
        }
        let (spec, vocab) = (&file.config.task.model, self.corpus.vocab());
        let model = Likelihood::trained(&summary.run_dir, spec, vocab)?;
        let reference = Likelihood::initial(&file, vocab)?;
        let texts: Vec<&[u32]> = sentences.iter().map(Vec::as_slice).collect();
        let (of_model, of_reference) = (model.of_examples(&texts)?, reference.of_examples(&texts)?);
        let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
        let both = of_model.iter().zip(&of_reference);
        let mut scores: Vec<f64> = both
            .map(|(model, reference)| mean(model) - mean(reference))
            .collect();
        // Half of the canaries are in, so the middle score parts them. It follows from the scores alone and from no coin.
        let mut sorted = scores.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = 0.5 * (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]);
        scores.iter_mut().for_each(|score| *score -= middle);
        Ok(bounds_of_model(TEXT, &scores, &coins, (self.claim, self.fixed), significance)?.to_vec())
    }

    /// A sentence of random words per canary.
    fn sentences(&self, canaries: u64, randomness: &Randomness) -> Result<Vec<Vec<u32>>> {
        let vocab = self.corpus.vocab();
        let special = vocab.special();
        let words: Vec<u32> = (0..vocab.len())
            .filter_map(|id| u32::try_from(id).ok())
            .filter(|&id| special.is_candidate(id, false))
            .collect();
        if words.len() < 2 {
            return Err(RunError::value(
                "data.vocabulary",
                "at least two words",
                words.len(),
            ));
        }
        let length = WORDS.min(self.copy.config.data.max_sentence_tokens).max(1);
        let mut generator = randomness.generator(Purpose::Audit, 0, SENTENCES);
        let mut sentence = || {
            let word = |_| words[draws::below(words.len() as u64, &mut generator) as usize];
            let mut tokens: Vec<u32> = (0..length).map(word).collect();
            tokens.push(special.eos);
            tokens
        };
        Ok((0..canaries).map(|_| sentence()).collect())
    }
}
