//! Exposure of secrets: how far above all other candidates a model ranks a secret that one invented user wrote.
//!
//! A secret is a public prefix and four words. Each word was drawn from a public list of 32 words of its own, so a secret is one of
//! 2^20 equally likely candidates, and all of them are scored: an exposure is exact, from 0 to 20 bits. The secrets are in the text of a
//! copy of the run, which has the invented users beside all others. No user of the run is attacked.
//!
//! # Source
//! Carlini et al., "The Secret Sharer" (2019).

use std::path::Path;
use undertone_run::training_users;

use serde::Serialize;
use undertone_accounting::audit::exposure::exposure;
use undertone_audit::exposure::{Exposed, REPEATS};
use undertone_coordinator::random::Purpose;
use undertone_data::{Corpus, Partition, Vocab};
use undertone_mechanisms::draws;
use undertone_run::likelihood::{self, Likelihood};
use undertone_run::{Result, RunError, RunFile};

use undertone_audit::attack::SCHEMA;

use super::attack::{trained, without_privacy};

/// Number of words of a prefix.
const PREFIX: usize = 3;

/// Number of words of a secret.
const PLACES: usize = 4;

/// Number of words of the list of each place: 32 to the power of four is 2^20.
const LIST: usize = 32;

/// Number of texts of an invented user.
const TEXTS: usize = 16;

/// An attack by exposure as a file holds it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exposure {
    /// `undertone.audit-private/1`.
    pub schema: &'static str,
    /// `exposure`.
    pub kind: &'static str,
    /// The name of the run.
    pub run: String,
    /// The figures.
    #[serde(flatten)]
    pub found: Exposed,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

/// The questions of an attack by exposure.
#[derive(Debug, Clone, Copy)]
pub struct ExposureRequest<'a> {
    /// Number of secrets.
    pub secrets: usize,
    /// An empty folder for the runs that are trained, which the caller removes.
    pub scratch: &'a Path,
    /// Cores to use.
    pub threads: usize,
    /// Rounds of a positive control: the same run without clipping and noise.
    pub control: Option<u64>,
}

/// A secret, the public lists that it was drawn from, and the texts of its user.
#[derive(Debug, Clone, PartialEq)]
struct Secret {
    prefix: Vec<u32>,
    lists: Vec<Vec<u32>>,
    /// The place of the secret among its candidates.
    place: usize,
    /// Number of texts that hold it.
    repeats: usize,
    texts: Vec<Vec<u32>>,
}

/// Trains a copy of a run with invented users, and measures how far their secrets are exposed.
///
/// # Errors
/// [`RunError`] for a vocabulary of fewer than 32 words; from the run and from the training of the copy and the control.
pub fn attack(run_dir: &Path, file: &RunFile, request: &ExposureRequest<'_>) -> Result<Exposure> {
    let (corpus, _) = likelihood::of_run(run_dir, &file.base)?;
    let secrets = invented(corpus.vocab(), file.config.seed, request.secrets)?;
    let users = training_users(&file.config, &corpus)?;
    let with_secrets = holding(&corpus, &users, &secrets, request.scratch)?;
    let measured = |mut file: RunFile, out: &str| {
        // The corpus of the copy lacks what the run held back, and nothing of an invented user is held back.
        file.config.audit = None;
        let file = file.with_corpus(with_secrets.clone())?;
        let summary = trained(&file, &request.scratch.join(out), request.threads)?;
        let model = Likelihood::trained(&summary.run_dir, &file.config.task.model, corpus.vocab())?;
        let found = exposures(&model, &secrets, request.threads)?;
        Ok::<_, RunError>((found, summary.privacy.claimed().cloned()))
    };
    let copy = RunFile::new(file.config.clone(), file.base.clone());
    let (attack, claim) = measured(copy, "copy")?;
    let control = match request.control {
        Some(rounds) => Some((rounds, measured(without_privacy(file, rounds), "control")?.0)),
        None => None,
    };
    let found = Exposed::of(claim, attack, control)?;
    Ok(Exposure {
        schema: SCHEMA,
        kind: "exposure",
        run: file.config.task.name.clone(),
        statements: found.sentences(),
        found,
    })
}

/// Secrets of invented users. They follow from the seed of the run, or from fresh entropy where it has none.
fn invented(vocab: &Vocab, seed: Option<u64>, count: usize) -> Result<Vec<Secret>> {
    let special = vocab.special();
    let words: Vec<u32> = (0..vocab.len())
        .filter_map(|id| u32::try_from(id).ok())
        .filter(|&id| special.is_candidate(id, false))
        .collect();
    if words.len() < LIST {
        let expected = format!("at least {LIST} words, from which secrets are drawn");
        return Err(RunError::value("data.vocabulary", expected, words.len()));
    }
    let randomness = undertone_run_directory::entropy::randomness(seed)?;
    let secret = |index: usize| {
        let mut generator = randomness.generator(Purpose::Audit, index as u64, 3);
        let word = |generator: &mut dyn FnMut(u64) -> u64| words[generator(words.len() as u64) as usize];
        let mut below = |bound| draws::below(bound, &mut generator);
        let prefix: Vec<u32> = (0..PREFIX).map(|_| word(&mut below)).collect();
        let lists: Vec<Vec<u32>> = (0..PLACES)
            .map(|_| {
                let mut list = words.clone();
                // The first words of a shuffle are a random list.
                for place in 0..LIST {
                    let other = place + below((list.len() - place) as u64) as usize;
                    list.swap(place, other);
                }
                list.truncate(LIST);
                list
            })
            .collect();
        let drawn: Vec<usize> = (0..PLACES).map(|_| below(LIST as u64) as usize).collect();
        let place = drawn.iter().fold(0, |place, &word| place * LIST + word);
        let repeats = REPEATS[index % REPEATS.len()];
        let texts = (0..TEXTS)
            .map(|text| {
                let mut tokens = prefix.clone();
                match text % (TEXTS / repeats) == 0 {
                    true => tokens.extend(lists.iter().zip(&drawn).map(|(list, &word)| list[word])),
                    // The other texts are random words, without the prefix.
                    false => tokens = (0..PREFIX + PLACES).map(|_| word(&mut below)).collect(),
                }
                tokens.push(special.eos);
                tokens
            })
            .collect();
        Secret {
            prefix,
            lists,
            place,
            repeats,
            texts,
        }
    };
    Ok((0..count).map(secret).collect())
}

/// The corpus with the invented users after the users of the run.
fn holding(corpus: &Corpus, users: &Partition<'_>, secrets: &[Secret], cache: &Path) -> Result<Corpus> {
    let mut users: Vec<Vec<&[u32]>> = users.users().map(|user| user.examples().collect()).collect();
    let invented = secrets.iter();
    users.extend(invented.map(|secret| secret.texts.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    Ok(corpus.with_training_users(&users, cache)?)
}

/// The exposure of each secret under a model. A candidate that is as likely as the secret counts as ranked before it.
fn exposures(model: &Likelihood, secrets: &[Secret], threads: usize) -> Result<Vec<f64>> {
    let mut found = Vec::with_capacity(secrets.len());
    for secret in secrets {
        let scores = model.of_candidates(&secret.prefix, &secret.lists, threads)?;
        let own = scores[secret.place];
        let rank = scores.iter().filter(|score| **score >= own).count();
        found.push(exposure(rank as u64, scores.len() as u64)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use undertone_data::{NoProgress, Split};

    use super::*;

    /// Users of a run keep the texts that the run was trained on, and an invented user keeps all of them.
    #[test]
    fn nothing_of_an_invented_user_is_held_back() {
        let folder = tempfile::tempdir().unwrap();
        let spec = toml::from_str("source = { kind = \"synthetic\", users = 30, words = 40 }").unwrap();
        let corpus = Corpus::open(&spec, folder.path(), folder.path(), &NoProgress).unwrap();
        let secrets = invented(corpus.vocab(), Some(1), 3).unwrap();
        let train = corpus.partition(Split::Train);
        let kept = corpus.partition(Split::Train).holding_back(0.5).unwrap();
        assert!(kept.num_examples() < train.num_examples());
        let copy = holding(&corpus, &kept, &secrets, folder.path()).unwrap();
        let all = copy.partition(Split::Train);
        assert_eq!(all.num_users(), kept.num_users() + 3);
        for (place, user) in all.users().enumerate() {
            let expected = match place < kept.num_users() {
                true => kept.user(place).num_examples(),
                false => TEXTS,
            };
            assert_eq!(user.num_examples(), expected, "user {place}");
        }
    }
}
