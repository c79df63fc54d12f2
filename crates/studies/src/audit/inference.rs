//! User inference: tells the users of a training run from others by texts of theirs.
//!
//! PRIVACY: the figures are exact statistics of users. They belong to `audit-private.json`, which is no part of any release.
//!
//! # Source
//! Kandpal et al., "User Inference Attacks on Large Language Models" (2023).

use std::path::Path;

use undertone_accounting::audit::attack::user_inference as statistic;
use undertone_audit::attack::{Attack, Membership, SCHEMA, took_part};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_data::{Corpus, Partition, Split};
use undertone_mechanisms::draws;
use undertone_run::likelihood::{self, Likelihood};
use undertone_run::membership::Losses;
use undertone_run::{Result, RunError, RunFile};
use undertone_run_directory::config::AuditConfig;

use super::attack::{TRAINED_ON, limit_of, measured, statements, trained, without_privacy};

/// The questions of an attack by user inference.
#[derive(Debug, Clone, Copy)]
pub struct InferenceRequest<'a> {
    /// The max number of users on each side.
    pub most: usize,
    /// The model that scores are relative to; `None` for the initial model of the run.
    pub reference: Option<&'a Path>,
    /// The fraction of each user's texts that a copy of the run is not trained on. The attack then has these texts, and tests that copy.
    /// `None` to attack the run itself, with the texts that it held back, or else with texts that it was trained on.
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
    request: &InferenceRequest<'_>,
) -> Result<Attack> {
    let (corpus, of_run) = likelihood::of_run(run_dir, &file.base)?;
    let of_this_run = file.config.holdback();
    let fraction = match request.holdback {
        Some(_) if of_this_run > 0.0 => {
            let expected = "this option absent for a run that holds texts back itself";
            return Err(RunError::value("--holdback", expected, of_this_run));
        }
        Some(fraction) if !(fraction > 0.0 && fraction < 1.0) => {
            return Err(RunError::value("--holdback", "a number in (0, 1)", fraction));
        }
        Some(fraction) => fraction,
        None => of_this_run,
    };
    let sides = Sides::of(&corpus, fraction, request.most)?;
    let (model, vocab) = (&file.config.task.model, corpus.vocab());
    let reference = match request.reference {
        Some(path) => Likelihood::of_file(model, path, vocab)?,
        None => Likelihood::initial(file, vocab)?,
    };
    let holding_back = |mut file: RunFile| {
        file.config.audit = (fraction > 0.0).then(|| AuditConfig::holding_back(fraction));
        file.with_corpus(corpus.clone())
    };
    let (attacked, claim, took_part) = match request.holdback.is_some() {
        true => {
            let copy = holding_back(RunFile::new(file.config.clone(), file.base.clone()))?;
            let summary = trained(&copy, &request.scratch.join("copy"), request.threads)?;
            let copied = Likelihood::trained(&summary.run_dir, model, vocab)?;
            (
                copied,
                summary.privacy.claimed().cloned(),
                took_part(&summary.run_dir)?,
            )
        }
        false => (of_run, claim, took_part(run_dir)?),
    };
    let (attack, whole_texts) = sides.attacked(&attacked, &reference)?;
    let control = match request.control {
        Some(rounds) => {
            let plain = holding_back(without_privacy(file, rounds))?;
            let out = request.scratch.join("control");
            let run_dir = trained(&plain, &out, request.threads)?.run_dir;
            let control = Likelihood::trained(&run_dir, model, vocab)?;
            Some((rounds, sides.attacked(&control, &reference)?.0))
        }
        None => None,
    };
    let texts = match request.holdback {
        Some(_) => {
            "A copy of this run was trained without some texts of each user, and the attack has those texts. This run itself was not tested."
        }
        None if fraction > 0.0 => {
            "This run was trained without the last texts of each user, and the attack has those texts."
        }
        None => TRAINED_ON,
    };
    let limit = limit_of(claim.as_ref(), &attack)?;
    let mut statements = statements(texts, took_part, &attack, limit.as_ref(), control.is_some());
    if request.reference.is_none() && file.config.initial_model.is_none() && file.config.seed.is_none() {
        statements.push(
            "The run has no seed and kept no initial model. The reference is another random model of the same kind.".to_owned(),
        );
    }
    Ok(Attack {
        schema: SCHEMA.to_owned(),
        kind: "user-inference".to_owned(),
        run: file.config.task.name.clone(),
        limit,
        claim,
        attack,
        whole_texts: Some(whole_texts),
        control,
        statements,
    })
}

impl<'a> Sides<'a> {
    /// The texts that were held back, or all texts where nothing was.
    fn of(corpus: &'a Corpus, fraction: f64, most: usize) -> Result<Self> {
        let train = corpus.partition(Split::Train);
        let held_out = [Split::Validation, Split::Test].map(|split| corpus.partition(split));
        let Some(others) = held_out.into_iter().find(|users| users.num_users() > 0) else {
            let hint = "give `data.split` a share of users: an attack compares people who were trained on with others";
            return Err(RunError::EmptyPartition {
                split: "validation",
                hint,
            });
        };
        let (members, others) = (texts_of(&train, fraction)?, texts_of(&others, fraction)?);
        for (side, texts) in [("training", &members), ("held-out", &others)] {
            if fraction > 0.0 && texts.len() < 2 {
                let expected = format!("at least two {side} users with two texts or more");
                return Err(RunError::value("--holdback", expected, texts.len()));
            }
        }
        Ok(Self {
            members: chosen(members, most),
            // Held-out users stand in the order of a hash, so the first ones are as good as random.
            others: others.into_iter().take(most).collect(),
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

/// The texts of each user that the attacker has. A user none of whose texts is held back is left out.
fn texts_of<'a>(users: &Partition<'a>, fraction: f64) -> Result<Vec<Texts<'a>>> {
    let all = users.holding_back(fraction)?;
    let texts = all.users().map(|user| match fraction > 0.0 {
        true => user.held_back().collect::<Texts<'a>>(),
        false => user.examples().collect(),
    });
    Ok(texts.filter(|texts| !texts.is_empty()).collect())
}

/// At most `most` of the users, chosen by a fixed seed.
fn chosen(users: Vec<Texts<'_>>, most: usize) -> Vec<Texts<'_>> {
    let mut generator = Randomness::seeded(0).generator(Purpose::Attack, 0, 0);
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
