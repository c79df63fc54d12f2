//! Conversion of rows in any order into users with their examples.
//!
//! Rows are tokenised as they stream by and spooled to an unnamed temporary file; what stays in memory is one record per
//! row and the users' names. Then records are sorted by partition, user and time, and the spool is read in that order.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use rayon::prelude::*;

use crate::cache::CacheWriter;
use crate::error::{DataError, Result, no_usable_text};
use crate::examples::{Measure, cut_rows};
use crate::file::Spool;
use crate::hash::{evaluation_place, hash_bytes, head, hex};
use crate::names::UserNames;
use crate::noted::Noted;
use crate::progress::{Progress, Stage, proceed};
use crate::random::Stream;
use crate::rows::number;
use crate::source::Source;
use crate::split::Split;
use crate::splitter::{Splitter, assign};
use crate::stats::{CorpusStats, PartitionCounter};
use crate::synthetic::{BestAccuracy, BestPredictor, Population, Tally};
use undertone_settings::{CorpusSpec, Keep};
use undertone_text::{ExampleCutter, SpecialIds, Vocab};

/// One row's tokens in the spool: `words` times `u32` from `start`, each example preceded by its length.
struct Record {
    user: u32,
    split: Split,
    time: i64,
    start: usize,
    words: u32,
}

/// Tokenised rows, not yet grouped.
struct Spooled {
    spool: Mmap,
    records: Vec<Record>,
    users: Vec<Box<str>>,
    rows: u64,
    measure: Measure,
    noted: Noted,
}

/// Reads, tokenises, groups and writes; returns what the corpus holds.
pub(crate) fn build(
    source: &Source<'_>,
    vocab: &Vocab,
    spec: &CorpusSpec,
    writer: &mut CacheWriter,
    scratch_dir: &Path,
    progress: &dyn Progress,
) -> Result<(CorpusStats, Option<BestAccuracy>)> {
    let mut spooled = spool(source, vocab, spec, scratch_dir, progress)?;
    let names = UserNames::of(&spooled.users, spooled.records.iter().map(|record| record.user));
    // Stable: rows of a user at the same time (or without one) keep the order of the source.
    spooled
        .records
        .sort_by_key(|record| (record.split, record.user, record.time));

    let mut has_text = vec![false; spooled.users.len()];
    spooled
        .records
        .iter()
        .filter(|record| record.words > 0)
        .for_each(|record| has_text[record.user as usize] = true);
    let users_without_text = has_text.iter().filter(|&&has_text| !has_text).count() as u64;

    let tokens: &[u32] = bytemuck::cast_slice(&spooled.spool);
    let total_users = spooled.users.len() as u64;
    let mut counters = Split::ALL.map(|_| PartitionCounter::new(vocab));
    let mut dropped = Dropped::default();
    let mut best = Tally::default();
    let mut done = 0;
    let mut examples = Vec::new();
    for split in Split::ALL {
        let first = spooled.records.partition_point(|record| record.split < split);
        let last = spooled.records.partition_point(|record| record.split <= split);
        writer.begin(split)?;
        let counter = &mut counters[split.index()];
        let name = |group: &[Record]| &*spooled.users[group[0].user as usize];
        let by_user = spooled.records[first..last].chunk_by(|one, other| one.user == other.user);
        let mut groups: Vec<&[Record]> = by_user.collect();
        if split != Split::Train {
            groups.sort_by_cached_key(|group| evaluation_place(name(group)));
        }
        for group in groups {
            done += 1;
            if done % 1024 == 0 {
                progress.update(Stage::Writing, done.min(total_users), Some(total_users));
                proceed(progress)?;
            }
            list_examples(tokens, group, &mut examples);
            if examples.is_empty() {
                continue;
            }
            // Caps and minima shape training only: evaluation is comparable across them.
            if split == Split::Train && !dropped.apply(spec, name(group), &mut examples) {
                continue;
            }
            for example in &examples {
                let example = &tokens[example.clone()];
                writer.example(example)?;
                example.iter().for_each(|&id| counter.targets[id as usize] += 1);
            }
            writer.end_user()?;
            counter.examples_per_user.push(examples.len() as u64);
            counter
                .tokens_per_user
                .push(examples.iter().map(|example| example.len() as u64).sum());
        }
        if let (Split::Validation, Source::Synthetic(population)) = (split, source) {
            best = score(
                population,
                tokens,
                &spooled.users,
                &spooled.records[first..last],
                progress,
            );
        }
    }
    progress.update(Stage::Writing, total_users, Some(total_users));

    if counters[0].examples_per_user.is_empty() {
        let reason = if dropped.users > 0 {
            format!(
                "all {} users that have text are below min_examples = {} or min_tokens = {}",
                dropped.users, spec.min_examples, spec.min_tokens
            )
        } else {
            "the split puts no user with usable text into it".to_owned()
        };
        return Err(DataError::EmptyPartition {
            split: Split::Train,
            reason,
        });
    }
    let train_targets = counters[0].targets.clone();
    let [train, validation, test] = counters.map(|counter| counter.finish(&train_targets, vocab.special()));
    let stats = CorpusStats {
        source: spec.source.describe(),
        vocabulary_words: vocab.text_ids(),
        vocabulary_provenance: vocab.provenance(),
        rows: spooled.rows,
        users: total_users,
        users_without_text,
        names,
        users_below_minimum: dropped.users,
        examples_capped: dropped.examples,
        tokens_capped: dropped.tokens,
        tokens_per_word: spooled.measure.tokens_per_word(),
        noted: spooled.noted,
        train,
        validation,
        test,
    };
    Ok((stats, best.finish()))
}

fn spool(
    source: &Source<'_>,
    vocab: &Vocab,
    spec: &CorpusSpec,
    scratch_dir: &Path,
    progress: &dyn Progress,
) -> Result<Spooled> {
    let splitter = Splitter::new(&spec.split_in_force())?;
    let mut output = Spool::new(scratch_dir)?;
    let mut records: Vec<Record> = Vec::new();
    let mut users: Vec<Box<str>> = Vec::new();
    let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
    let mut wrote: Vec<bool> = Vec::new();
    let (mut start, mut done) = (0_usize, 0_u64);
    let cutter = ExampleCutter::new(vocab, spec.examples, spec.longest_example());
    let (mut measure, mut noted) = (Measure::default(), Noted::default());
    let by_time = spec.caps_by_time();
    source.read(&mut |rows, total| {
        for chunk in cut_rows(&cutter, spec.words, rows, progress)? {
            output.write(bytemuck::cast_slice(&chunk.spool))?;
            measure.add(chunk.measure);
            for (row, words) in chunk.rows.clone().zip(chunk.lengths) {
                let name = rows.users.get(row);
                let user = number(&mut numbers, name);
                if user as usize == users.len() {
                    users.push(name.into());
                    wrote.push(false);
                }
                wrote[user as usize] |= !rows.texts.get(row).trim_start().is_empty();
                let split = assign(&splitter, rows, row)?;
                if by_time && split == Split::Train && words > 0 {
                    rows.need_time(row, "data.keep = { kind = \"earliest\" } with a cap")?;
                }
                records.push(Record {
                    user,
                    split,
                    time: rows.times[row],
                    start,
                    words,
                });
                start += words as usize;
            }
        }
        noted.merge(&rows.noted);
        done += rows.len() as u64;
        progress.update(Stage::Reading, done, total);
        proceed(progress)
    })?;
    if start == 0 {
        let mute = wrote.iter().filter(|&&wrote| wrote).count() as u64;
        let seen = (users.len() as u64, mute);
        return Err(no_usable_text(spec.source.describe(), seen, done, spec.words));
    }
    let spool = output.map()?;
    Ok(Spooled {
        spool,
        records,
        users,
        rows: done,
        measure,
        noted,
    })
}

/// Lists the ranges of the spool that hold the examples of a group of rows.
fn list_examples(tokens: &[u32], group: &[Record], examples: &mut Vec<Range<usize>>) {
    examples.clear();
    for record in group {
        let (mut at, end) = (record.start, record.start + record.words as usize);
        while at < end {
            let length = tokens[at] as usize;
            examples.push(at + 1..at + 1 + length);
            at += 1 + length;
        }
    }
}

/// The examples and users that caps and minima leave out of the training partition.
#[derive(Default)]
struct Dropped {
    users: u64,
    examples: u64,
    tokens: u64,
}

impl Dropped {
    /// Applies minima, then caps, to a user's examples; `false` where the user is left out.
    fn apply(&mut self, spec: &CorpusSpec, user: &str, examples: &mut Vec<Range<usize>>) -> bool {
        let size =
            |examples: &[Range<usize>]| examples.iter().map(|example| example.len() as u64).sum::<u64>();
        let (count, tokens) = (examples.len() as u64, size(examples));
        if count < spec.min_examples || tokens < spec.min_tokens {
            self.users += 1;
            return false;
        }
        let max_examples = spec.max_examples.unwrap_or(u64::MAX);
        let max_tokens = spec.max_tokens.unwrap_or(u64::MAX);
        if count > max_examples || tokens > max_tokens {
            if let Keep::Random { seed } = spec.keep {
                let head = head(&hash_bytes(user.as_bytes()));
                Stream::new("caps", seed, u64::from_le_bytes(head)).shuffle(examples);
            }
            let mut kept_tokens = 0;
            let fits = examples.iter().take_while(|example| {
                kept_tokens += example.len() as u64;
                kept_tokens <= max_tokens
            });
            let kept = fits
                .count()
                .min(usize::try_from(max_examples).unwrap_or(usize::MAX));
            examples.truncate(kept);
            if matches!(spec.keep, Keep::Random { .. }) {
                examples.sort_by_key(|example| example.start);
            }
            self.examples += count - kept as u64;
            self.tokens += tokens - size(examples);
        }
        true
    }
}

/// Scores the best predictors on the validation rows of a synthetic population.
fn score(
    population: &Population,
    tokens: &[u32],
    users: &[Box<str>],
    records: &[Record],
    progress: &dyn Progress,
) -> Tally {
    let predictor = BestPredictor::new(population.process());
    let total = records.len() as u64;
    progress.update(Stage::Scoring, 0, Some(total));
    let tallies: Vec<Tally> = records
        .par_iter()
        .map(|record| {
            let mut tally = Tally::default();
            let Some(index) = Population::index(&users[record.user as usize]) else {
                return tally;
            };
            let traits = population.traits(index);
            let mut examples = Vec::new();
            list_examples(tokens, std::slice::from_ref(record), &mut examples);
            let mut words = Vec::new();
            for example in examples {
                let example = &tokens[example];
                words.clear();
                words.extend(
                    example
                        .iter()
                        .filter(|&&id| id >= SpecialIds::FIRST_WORD)
                        .map(|&id| (id - SpecialIds::FIRST_WORD) as usize),
                );
                // The population brings its own word list.
                let ended = example.last() == Some(&SpecialIds::WORDS.eos);
                predictor.score(&words, ended, &traits, &mut tally);
            }
            tally
        })
        .collect();
    progress.update(Stage::Scoring, total, Some(total));
    let mut sum = Tally::default();
    tallies.iter().for_each(|tally| sum.add(tally));
    sum
}

/// Digest of everything that decides the contents of a corpus.
pub(crate) fn digest(identities: &[&str], spec: &CorpusSpec) -> String {
    // Serialising plain data with string keys cannot fail; an empty text would only make the key coarser.
    let settings = serde_json::to_string(&spec.without_paths()).unwrap_or_default();
    let text = [
        &[concat!("undertone corpus, tokeniser ", "1")],
        identities,
        &[&settings],
    ]
    .concat()
    .join("\n");
    hex(&hash_bytes(text.as_bytes()))
}
