//! User inference: tells the users of a training run from others by texts of theirs.
//!
//! PRIVACY: the figures are exact statistics of users. They belong to `audit-private.json`, which is no part of any release.
//!
//! # Source
//! Kandpal et al., "User Inference Attacks on Large Language Models" (2023).

use std::path::Path;

use undertone_accounting::audit::attack::user_inference as statistic;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_data::{Corpus, Partition, Split};
use undertone_mechanisms::draws;
use undertone_run::config::RunFile;
use undertone_run::error::{Result, RunError};
use undertone_run::likelihood::{self, Likelihood};
use undertone_run::membership::Losses;

use super::attack::{
    Attack, Membership, SCHEMA, TRAINED_ON, limit_of, measured, statements, trained, without_privacy,
};

/// The questions of an attack by user inference.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The max number of users on each side.
    pub most: usize,
    /// The model that scores are relative to; `None` for the initial model of the run.
    pub reference: Option<&'a Path>,
    /// The fraction of each user's texts that a copy of the run is not trained on. The attack then has these texts, and tests that copy.
    /// `None` to attack the run itself, with texts that it was trained on.
    pub holdback: Option<f64>,
    /// An empty folder for the runs that are trained, which the caller removes.
    pub scratch: &'a Path,
    /// Cores to use.
    pub threads: usize,
    /// Rounds of a positive control: the same run without clipping and noise.
    pub control: Option<u64>,
}

/// The texts of one user that the attacker has.
type Texts<'a> = Vec<&'a [u32]>;

/// The texts of both sides.
struct Sides<'a> {
    members: Vec<Texts<'a>>,
    others: Vec<Texts<'a>>,
    /// The training partition without the texts that are held back.
    kept: Option<Vec<Texts<'a>>>,
}

/// Attacks the model of a run, or of a copy of it, by the mean log ratio of the likelihoods of a user's texts.
///
/// # Errors
/// [`RunError::EmptyPartition`] without held-out users; [`RunError`] for a fraction outside (0, 1), for users with too few texts, and for
/// a reference with another model or other words; from the run and from the training of the copy and the control.
pub fn user_inference(
    run_dir: &Path,
    file: &RunFile,
    claim: Option<GuaranteeRecord>,
    question: &Question<'_>,
) -> Result<Attack> {
    let (corpus, of_run) = likelihood::of_run(run_dir, &file.base)?;
    let sides = Sides::of(&corpus, question)?;
    let (model, vocab) = (&file.config.task.model, corpus.vocab());
    let reference = match question.reference {
        Some(path) => Likelihood::of_file(model, path, vocab)?,
        None => Likelihood::initial(file, vocab)?,
    };
    let fresh = match &sides.kept {
        Some(kept) => Some(corpus.with_training_users(kept, question.scratch)?),
        None => None,
    };
    let on_fresh = |file: RunFile| match &fresh {
        Some(fresh) => file.with_corpus(fresh.clone()),
        None => Ok(file),
    };
    let (attacked, claim) = match fresh.is_some() {
        true => {
            let copy = on_fresh(RunFile::new(file.config.clone(), file.base.clone()))?;
            let summary = trained(&copy, &question.scratch.join("copy"), question.threads)?;
            let copied = Likelihood::trained(&summary.run_dir, model, vocab)?;
            (copied, summary.privacy.observed)
        }
        false => (of_run, claim),
    };
    let (attack, whole_texts) = sides.attacked(&attacked, &reference)?;
    let control = match question.control {
        Some(rounds) => {
            let plain = on_fresh(without_privacy(file, rounds))?;
            let out = question.scratch.join("control");
            let run_dir = trained(&plain, &out, question.threads)?.run_dir;
            let control = Likelihood::trained(&run_dir, model, vocab)?;
            Some((rounds, sides.attacked(&control, &reference)?.0))
        }
        None => None,
    };
    let texts = match question.holdback {
        Some(_) => {
            "A copy of this run was trained without some texts of each user, and the attack has those texts. This run itself was not tested."
        }
        None => TRAINED_ON,
    };
    let mut statements = statements(texts, control.is_some());
    if question.reference.is_none() && file.config.initial_model.is_none() && file.config.seed.is_none() {
        statements.push(
            "The run has no seed and kept no initial model. The reference is another random model of the same kind.".to_owned(),
        );
    }
    Ok(Attack {
        schema: SCHEMA,
        kind: "user-inference",
        run: file.config.task.name.clone(),
        limit: limit_of(claim.as_ref())?,
        claim,
        attack,
        whole_texts: Some(whole_texts),
        control,
        statements,
    })
}

impl<'a> Sides<'a> {
    fn of(corpus: &'a Corpus, question: &Question<'_>) -> Result<Self> {
        let train = corpus.partition(Split::Train);
        let held_out = [Split::Validation, Split::Test].map(|split| corpus.partition(split));
        let Some(others) = held_out.into_iter().find(|users| users.num_users() > 0) else {
            let hint = "give `data.split` a share of users: an attack compares people who were trained on with others";
            return Err(RunError::EmptyPartition {
                split: "validation",
                hint,
            });
        };
        let Some(fraction) = question.holdback else {
            let all = |users: &Partition<'a>| users.users().map(|user| user.examples().collect()).collect();
            return Ok(Self {
                members: chosen(all(&train), question.most),
                others: chosen(all(&others), question.most),
                kept: None,
            });
        };
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(RunError::value("--holdback", "a number in (0, 1)", fraction));
        }
        let (kept, members) = held_back(&train, fraction, 0);
        let (_, others) = held_back(&others, fraction, 1);
        for (side, texts) in [("training", &members), ("held-out", &others)] {
            if texts.len() < 2 {
                let expected = format!("at least two {side} users with two texts or more");
                return Err(RunError::value("--holdback", expected, texts.len()));
            }
        }
        Ok(Self {
            members: chosen(members, question.most),
            others: chosen(others, question.most),
            kept: Some(kept),
        })
    }

    /// The attack per token, and the one with whole texts as units.
    fn attacked(&self, model: &Likelihood, reference: &Likelihood) -> Result<(Membership, Membership)> {
        let scores = |users: &[Texts<'a>]| -> Result<Vec<(f64, f64)>> {
            users
                .iter()
                .map(|texts| {
                    let score = statistic(&model.of_examples(texts)?, &reference.of_examples(texts)?)?;
                    Ok((score.mean_over_texts_per_token, score.mean_over_texts))
                })
                .collect()
        };
        let (members, others) = (scores(&self.members)?, scores(&self.others)?);
        // An attack by losses looks for the smallest.
        let measured = |of: fn(&(f64, f64)) -> f64| {
            measured(&Losses {
                members: members.iter().map(|score| -of(score)).collect(),
                others: others.iter().map(|score| -of(score)).collect(),
                median_tokens: (median_tokens(&self.members), median_tokens(&self.others)),
            })
        };
        Ok((measured(|score| score.0)?, measured(|score| score.1)?))
    }
}

/// The texts that stay, and those that are held back, of the users of a partition. A user keeps at least one text, and a user with
/// one text has none held back.
fn held_back<'a>(users: &Partition<'a>, fraction: f64, side: u64) -> (Vec<Texts<'a>>, Vec<Texts<'a>>) {
    let (mut kept, mut held) = (Vec::new(), Vec::new());
    for (index, user) in users.users().enumerate() {
        let all = user.num_examples();
        let size = ((fraction * all as f64).ceil() as usize).min(all - 1);
        let mut generator = Randomness::seeded(side).generator(Purpose::Audit, index as u64, 2);
        let chosen = draws::fixed_size(all, size, &mut generator);
        let is_held = |example: usize| chosen.binary_search(&example).is_ok();
        let texts = |held: bool| -> Texts<'a> {
            let of_side = user.examples().enumerate();
            of_side
                .filter(|(example, _)| is_held(*example) == held)
                .map(|(_, text)| text)
                .collect()
        };
        kept.push(texts(false));
        if size > 0 {
            held.push(texts(true));
        }
    }
    (kept, held)
}

/// At most `most` of the users, chosen by a fixed seed.
fn chosen(users: Vec<Texts<'_>>, most: usize) -> Vec<Texts<'_>> {
    let mut generator = Randomness::seeded(0).generator(Purpose::Evaluation, 0, 0);
    let chosen = draws::fixed_size(users.len(), most.min(users.len()), &mut generator);
    let mut users: Vec<Option<Texts<'_>>> = users.into_iter().map(Some).collect();
    chosen.into_iter().filter_map(|user| users[user].take()).collect()
}

fn median_tokens(users: &[Texts<'_>]) -> usize {
    let tokens = |texts: &Texts<'_>| texts.iter().map(|text| text.len()).sum();
    let mut sizes: Vec<usize> = users.iter().map(tokens).collect();
    sizes.sort_unstable();
    sizes.get(sizes.len() / 2).copied().unwrap_or(0)
}
