//! The output of the `data` commands.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;
use undertone_data::{
    BestAccuracy, Corpus, CorpusStats, Distribution, Noted, PartitionStats, Progress, Stage, UserNames,
    Vocab, WordCounts,
};
use undertone_present::numbers::grouped;

use crate::output::{Output, facts, value};

/// One bar for the stage at work.
pub(super) struct StageBar<'a> {
    output: &'a Output,
    current: Mutex<Option<(Stage, ProgressBar)>>,
}

impl<'a> StageBar<'a> {
    pub(super) fn new(output: &'a Output) -> StageBar<'a> {
        StageBar {
            output,
            current: Mutex::new(None),
        }
    }

    /// Removes the bar from the screen.
    pub(super) fn clear(&self) {
        if let Some((_, bar)) = self.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for StageBar<'_> {
    fn update(&self, stage: Stage, done: u64, total: Option<u64>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*current, Some((shown, _)) if *shown == stage) {
            if let Some((_, bar)) = current.take() {
                bar.finish_and_clear();
            }
            let template = match total {
                Some(_) => "{msg} {bar:40} {human_pos}/{human_len}  {per_sec}, {elapsed} elapsed, {eta} left",
                None => "{spinner} {msg} {human_pos}  {per_sec}, {elapsed} elapsed",
            };
            let bar = self.output.bar(total.unwrap_or(0), template);
            bar.set_message(stage.to_string());
            *current = Some((stage, bar));
        }
        if let Some((_, bar)) = &*current {
            bar.set_position(done);
        }
    }
}

/// A corpus for machines.
#[derive(Serialize)]
pub(super) struct Described<'a> {
    digest: &'a str,
    stats: &'a CorpusStats,
    best_accuracy: Option<&'a BestAccuracy>,
    vocabulary_is_private_safe: bool,
}

impl<'a> Described<'a> {
    pub(super) fn of(corpus: &'a Corpus) -> Described<'a> {
        Described {
            digest: corpus.digest(),
            stats: corpus.stats(),
            best_accuracy: corpus.best_accuracy(),
            vocabulary_is_private_safe: corpus.vocab().provenance().is_private_safe(),
        }
    }
}

/// A corpus as text for readers.
pub(super) fn described(corpus: &Corpus) -> String {
    let stats = corpus.stats();
    let mut rows = vec![
        ("source", stats.source.clone()),
        ("digest", corpus.digest()[..16].to_owned()),
        (
            "vocabulary",
            format!(
                "{} {}, {}",
                grouped(stats.vocabulary_words as u64),
                match corpus.vocab().file_name() {
                    Vocab::TOKENIZER_FILE => "sub-word tokens",
                    _ => "words",
                },
                stats.vocabulary_provenance
            ),
        ),
        (
            "tokens per word",
            stats
                .tokens_per_word
                .map_or_else(|| "–".to_owned(), |tokens| format!("{tokens:.2}")),
        ),
        ("rows", grouped(stats.rows)),
        (
            "users",
            format!(
                "{}; {} of them have no usable text and {} are below the minimum size",
                grouped(stats.users),
                grouped(stats.users_without_text),
                grouped(stats.users_below_minimum)
            ),
        ),
        (
            "left out by limits",
            format!(
                "{} examples, {} tokens",
                grouped(stats.examples_capped),
                grouped(stats.tokens_capped)
            ),
        ),
    ];
    rows.extend(names(&stats.names, stats.rows));
    rows.extend(noted(&stats.noted));
    let mut text = facts(rows);
    text.push_str("\n\n");
    text.push_str(&partitions(stats));
    if let Some(best) = corpus.best_accuracy() {
        text.push_str("\n\n");
        text.push_str(&facts([
            ("best reachable top-1 on validation", percent(Some(best.with_eos))),
            ("  without EOS targets", percent(Some(best.without_eos))),
            (
                "best reachable, knowing each user",
                percent(Some(best.personal_with_eos)),
            ),
            ("  without EOS targets", percent(Some(best.personal_without_eos))),
        ]));
    }
    text.push_str("\n\n");
    text.push_str(&histogram(&stats.train.examples_per_user));
    text
}

/// Names that may not be one person each; one row for each kind, with the next step.
pub(super) fn names(names: &UserNames, rows: u64) -> Vec<(&'static str, String)> {
    let mut shown = Vec::new();
    if names.alike > 0 {
        shown.push((
            "users of like names",
            format!(
                "{}, who would be {}: they differ in case, spaces or normal form, and `data import --join-users` joins them",
                grouped(names.alike),
                grouped(names.alike_joined)
            ),
        ));
    }
    for (name, count) in &names.placeholders {
        let name = match &**name {
            "" => "a blank name",
            name => name,
        };
        shown.push((
            "rows of no user",
            format!(
                "{} of {}, which is no person; `data import --drop-user NAME` leaves out a name",
                grouped(*count),
                value(name)
            ),
        ));
    }
    if let Some(largest) = names.largest {
        shown.push((
            "rows of one user",
            format!(
                "{} of {}: an account of many people or a program is no person; `data import --drop-user NAME` leaves it out",
                grouped(largest),
                grouped(rows)
            ),
        ));
    }
    shown
}

/// Counts of what readers replaced, skipped or cut; one row for each kind.
pub(super) fn noted(noted: &Noted) -> impl Iterator<Item = (&str, String)> {
    noted.iter().map(|(kind, count)| (kind, grouped(count)))
}

fn partitions(stats: &CorpusStats) -> String {
    let all = [&stats.train, &stats.validation, &stats.test];
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "train", "validation", "test"]);
    type Cell = fn(&PartitionStats) -> String;
    let rows: [(&str, Cell); 14] = [
        ("users", |part| grouped(part.users)),
        ("examples", |part| grouped(part.examples)),
        ("words or tokens", |part| grouped(part.words)),
        ("targets (words or tokens, and EOS)", |part| grouped(part.tokens)),
        ("unknown words", |part| percent(part.unknown_rate)),
        ("unigram top-1 without EOS", |part| {
            percent(part.unigram_without_eos)
        }),
        ("unigram top-1 with EOS", |part| percent(part.unigram_with_eos)),
        ("examples per user: mean", |part| {
            format!("{:.1}", part.examples_per_user.mean)
        }),
        ("  median", |part| grouped(part.examples_per_user.median)),
        ("  90th percentile", |part| grouped(part.examples_per_user.p90)),
        ("  99th percentile", |part| grouped(part.examples_per_user.p99)),
        ("  max", |part| grouped(part.examples_per_user.max)),
        ("tokens per user: median", |part| {
            grouped(part.tokens_per_user.median)
        }),
        ("  max", |part| grouped(part.tokens_per_user.max)),
    ];
    for (name, cell) in rows {
        table.add_row([name.to_owned(), cell(all[0]), cell(all[1]), cell(all[2])]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Training users by number of examples, as bars.
fn histogram(sizes: &Distribution) -> String {
    let max = sizes.counts.iter().copied().max().unwrap_or(0).max(1);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (edges, &count) in sizes.edges.windows(2).zip(&sizes.counts) {
        let range = if edges[0] + 1 == edges[1] {
            grouped(edges[0])
        } else {
            format!("{} to {}", grouped(edges[0]), grouped(edges[1] - 1))
        };
        let bar = "█".repeat(((40 * count).div_ceil(max)) as usize);
        table.add_row([range, grouped(count), bar]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("Training users by number of examples:\n{}", table.trim_fmt())
}

/// A written vocabulary.
#[derive(Serialize)]
pub(super) struct Vocabulary {
    file: PathBuf,
    words: usize,
    distinct_words: usize,
    /// Fraction of all counted words that the vocabulary holds.
    coverage: f64,
    provenance: undertone_data::VocabProvenance,
    is_private_safe: bool,
}

impl Vocabulary {
    pub(super) fn of(counts: &WordCounts, size: usize, path: &Path) -> Vocabulary {
        let covered: u64 = counts.iter().take(size).map(|(_, count)| count).sum();
        Vocabulary {
            file: path.to_owned(),
            words: counts.len().min(size),
            distinct_words: counts.len(),
            coverage: covered as f64 / counts.total() as f64,
            provenance: counts.provenance(),
            is_private_safe: counts.provenance().is_private_safe(),
        }
    }

    pub(super) fn table(&self) -> String {
        facts([
            ("file", self.file.display().to_string()),
            (
                "words",
                format!(
                    "{} of {} distinct words",
                    grouped(self.words as u64),
                    grouped(self.distinct_words as u64)
                ),
            ),
            (
                "coverage",
                format!("{} of all counted words", percent(Some(self.coverage))),
            ),
            ("counted on", self.provenance.to_string()),
        ])
    }
}

pub(super) fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "–".to_owned(), |fraction| format!("{:.2} %", 100.0 * fraction))
}
