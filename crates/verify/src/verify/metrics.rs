//! `metrics.jsonl` against ledger and configuration: each figure that they determine, and the order of the records.

mod evaluation;

use evaluation::{Measured, possible_over_users};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use undertone_coordinator::account::Account;
use undertone_coordinator::adaptive_clip::AdaptiveClip;
use undertone_coordinator::plan::Spending;
use undertone_coordinator::record::LedgerEntry;
use undertone_present::numbers::hex;
use undertone_settings::Algorithm;
use undertone_text::Vocab;

use super::mechanism::keys_of;
use super::same::exactly;
use super::subject::Subject;
use super::{Check, Run};
use undertone_run_directory::config::EvaluationConfig;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files::names::{LEDGER_FILE, METRICS_FILE};
use undertone_run_directory::files::{Line, Lines};
use undertone_run_directory::metrics::{
    EvaluationRecord, Histogram, Metrics, MetricsLine, RoundRecord, StartRecord,
};
use undertone_run_directory::plan_inputs::{evaluates, shows_epsilon, signal_to_noise};
use undertone_run_directory::task;

/// The figures of `metrics.jsonl` that the files of a run do not determine.
pub(super) const NOT_DETERMINED: &str = "Losses, accuracies, norms, tokens and times in metrics.jsonl, who the pseudonyms are, \
    and that the noise was drawn as the ledger says: no file determines them, and they are the word of the operator.";

/// Checks that each record is where a run writes it, with the figures that ledger and configuration determine.
pub(super) fn agree(run: &Run<'_>) -> Check {
    let mut check = Check::new("metrics");
    let Some(vocabulary) = &run.vocabulary else {
        super::session::NOT_RECOMPUTED.clone_into(&mut check.found);
        return check;
    };
    let Some(lines) = lines(run, &mut check) else {
        return check;
    };
    let Some((MetricsLine::Start(start), rest)) = lines.split_first() else {
        check.problem(format!(
            "{METRICS_FILE}, line 1, kind: expected the start of a run"
        ));
        return check;
    };
    check_start(run, vocabulary.len(), start, &mut check);
    let digests = check.keep(ledger_digests(run)).unwrap_or_default();
    let epsilons = check.keep(epsilons(run, &stated(run, rest))).unwrap_or_default();
    let mut rounds: Vec<&RoundRecord> = Vec::new();
    let mut evaluations = vec![0_u64; run.entries.len() + 1];
    let mut curve = None;
    for (line, number) in rest.iter().zip(2..) {
        match line {
            MetricsLine::Start(_) => {
                check.problem(format!("{METRICS_FILE}, line {number}, kind: a second start"));
            }
            MetricsLine::Evaluation(record) => {
                if let Some(count) = evaluations.get_mut(rounds.len()) {
                    *count += 1;
                }
                check_evaluation(run, vocabulary, record, &rounds, number, &mut check);
                check_curve(record, &mut curve, number, &mut check);
            }
            MetricsLine::Round(record) => {
                let index = rounds.len();
                match run.entries.get(index) {
                    None => check.problem(format!(
                        "{METRICS_FILE}, line {number}, round: the ledger has only {} rounds",
                        run.entries.len()
                    )),
                    Some(entry) => {
                        let expected = Determined {
                            entry,
                            ledger_sha256: digests.get(index).cloned(),
                            epsilon: epsilons.get(index).copied().flatten(),
                        };
                        check_round(run, record, &expected, &mut check);
                    }
                }
                rounds.push(record);
            }
        }
    }
    if rounds.len() < run.entries.len() {
        check.problem(format!(
            "{METRICS_FILE}: {} rounds, the ledger has {}",
            rounds.len(),
            run.entries.len()
        ));
    }
    check_adaptive(run, &rounds, &mut check);
    check_evaluations(run, &evaluations, &mut check);
    check.found = format!(
        "{} rounds and {} evaluations",
        rounds.len(),
        evaluations.iter().sum::<u64>()
    );
    check
}

/// The lines of the metrics; `None` where one is not a line that a run writes.
fn lines(run: &Run<'_>, check: &mut Check) -> Option<Vec<MetricsLine>> {
    let mut records = Vec::new();
    let mut read = || -> Result<()> {
        let mut lines = Lines::open(&run.folder.join(METRICS_FILE))?;
        while let Some(Line { number, bytes, .. }) = lines.next()? {
            match exactly::<MetricsLine>(&format!("{METRICS_FILE}, line {number}"), bytes) {
                Ok(record) => records.push(record),
                // A hostile file may have a million of them, and the first says what to look at.
                Err(problems) => {
                    check.problems(problems);
                    break;
                }
            }
        }
        Ok(())
    };
    let read = read();
    check.keep(read);
    check.problems.is_empty().then_some(records)
}

/// SHA-256 of each line of the ledger.
fn ledger_digests(run: &Run<'_>) -> Result<Vec<String>> {
    let mut digests = Vec::new();
    let mut lines = Lines::open(&run.folder.join(LEDGER_FILE))?;
    while let Some(Line { bytes, .. }) = lines.next()? {
        digests.push(hex(&Sha256::digest(bytes)));
    }
    Ok(digests)
}

/// The rounds whose record states the running guarantee: those that the run file gives. A service chooses them.
fn stated(run: &Run<'_>, lines: &[MetricsLine]) -> Vec<bool> {
    match &run.subject {
        Subject::Run(config) => {
            let shows = |entry: &LedgerEntry| shows_epsilon(config, &run.plan, entry.round + 1);
            run.entries.iter().map(shows).collect()
        }
        Subject::Task { .. } | Subject::Session(_) => {
            let states = |line: &MetricsLine| match line {
                MetricsLine::Round(record) => Some(record.epsilon.is_some()),
                MetricsLine::Start(_) | MetricsLine::Evaluation(_) => None,
            };
            lines.iter().filter_map(states).collect()
        }
    }
}

/// The running guarantee after each round that states it, computed as the run did, on all cores.
fn epsilons(run: &Run<'_>, stated: &[bool]) -> Result<Vec<Option<f64>>> {
    let mut account = Account::new(run.task(), &run.plan)?;
    let mut asked: Vec<(usize, Spending)> = Vec::new();
    for (index, entry) in run.entries.iter().enumerate() {
        account.add(entry)?;
        if stated.get(index).copied().unwrap_or(false) {
            asked.push((index, account.running()?));
        }
    }
    let mut epsilons = vec![None; run.entries.len()];
    // An error is that of the first round that has one, whatever thread found it.
    let found: Vec<_> = asked
        .par_iter()
        .map(|(index, spending)| (*index, spending.epsilon(&run.plan)))
        .collect();
    for (index, epsilon) in found {
        epsilons[index] = epsilon?;
    }
    Ok(epsilons)
}

/// The sum of counts. Those of a foreign file may add up to more than 64 bits hold.
fn total(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

fn check_start(run: &Run<'_>, words: usize, start: &StartRecord, check: &mut Check) {
    let place = format!("{METRICS_FILE}, start");
    let config = match &run.subject {
        Subject::Run(config) => config,
        Subject::Session(_) => return,
        Subject::Task { file, .. } => {
            let made = task::start_record(file, &run.plan, words);
            if let Some(expected) = check.keep(made) {
                check.agree(&place, &expected, start);
            }
            return;
        }
    };
    let layout = config.task.model.layout(words);
    let warning = layout.map_err(DirectoryError::from).and_then(|layout| {
        let started = config.initial_model.is_some();
        Ok(run.plan.warning(&config.task, &layout, started)?)
    });
    let expected = StartRecord {
        run: config.task.name.clone(),
        model: config.task.model.family().to_owned(),
        parameters: run.counts.trained,
        frozen_parameters: run.counts.frozen,
        train_users: run.plan.population().users as usize,
        rounds: config.task.rounds,
        warning: check.keep(warning).flatten(),
        ..start.clone()
    };
    check.agree(&place, &expected, start);
    let Some(sizes) = &start.user_sizes else {
        check.problem(format!("{place}.user_sizes: missing"));
        return;
    };
    if start.train_tokens.is_none() {
        check.problem(format!("{place}.train_tokens: missing"));
    }
    possible_histogram(&format!("{place}.user_sizes"), sizes, check);
    let users = total(&sizes.counts);
    if users != start.train_users as u64 {
        let expected = format!("{} users", start.train_users);
        check.wrong(format!("{place}.user_sizes.counts"), expected, users);
    }
    for (name, fraction) in [
        ("best_accuracy", start.best_accuracy),
        ("unigram_accuracy", start.unigram_accuracy),
        ("unigram_standard_error", start.unigram_standard_error),
    ] {
        let place = format!("{place}.{name}");
        possible(&place, fraction.unwrap_or(0.0), 0.0..=1.0, check);
    }
}

/// The figures of a round that ledger and configuration determine.
struct Determined<'a> {
    entry: &'a LedgerEntry,
    ledger_sha256: Option<String>,
    epsilon: Option<f64>,
}

fn check_round(run: &Run<'_>, record: &RoundRecord, determined_by: &Determined<'_>, check: &mut Check) {
    let Determined {
        entry,
        ledger_sha256,
        epsilon,
    } = determined_by;
    let place = format!("{METRICS_FILE}, round {}", entry.round);
    let figures = RoundRecord {
        signal_to_noise: signal_to_noise(
            &run.plan,
            entry.noise_std,
            run.counts.trained,
            record.release_norm,
        ),
        epsilon: *epsilon,
        ledger_sha256: record.ledger_sha256.clone(),
        examples: entry.examples,
        ..task::determined(entry)
    };
    let expected = match run.subject {
        // What a service never learns is in no record of it.
        Subject::Task { .. } | Subject::Session(_) => RoundRecord {
            release_norm: record.release_norm,
            seconds: record.seconds,
            estimated_clip_norm: record.estimated_clip_norm,
            ..figures
        },
        Subject::Run(_) => RoundRecord {
            cohort_weight: record.cohort_weight,
            tokens: record.tokens,
            train_loss: record.train_loss,
            discarded: record.discarded,
            clipped_fraction: record.clipped_fraction,
            update_norms: record.update_norms.clone(),
            release_norm: record.release_norm,
            estimated_clip_norm: record.estimated_clip_norm,
            seconds: record.seconds,
            phases: record.phases,
            ..figures
        },
    };
    if record.ledger_sha256.is_none() {
        check.problem(format!(
            "{place}, ledger_sha256: missing; runs of older versions have none"
        ));
    } else if record.ledger_sha256 != *ledger_sha256 {
        let matrix = run
            .plan
            .bounded()
            .map(|bounded| format!(" with its {}", keys_of(bounded.mechanism().strategy())));
        check.problem(format!(
            "{LEDGER_FILE}, line {}: the line that {METRICS_FILE} knows has the SHA-256 {} (ledger_sha256), got {}; if nothing \
             else is wrong, then participants, noise_key, parameters_sha256, or what the first line follows (config.toml, \
             mechanism.json{}, initial_model.json, the vocabulary) is not that of the run",
            entry.round + 1,
            record.ledger_sha256.as_deref().unwrap_or("none"),
            ledger_sha256.as_deref().unwrap_or("none"),
            matrix.unwrap_or_default(),
        ));
    }
    check.agree(&place, &expected, record);
    possible_round(run, record, entry, &place, check);
}

/// Checks that figures which no file determines are possible.
fn possible_round(run: &Run<'_>, record: &RoundRecord, entry: &LedgerEntry, place: &str, check: &mut Check) {
    let at = |name: &str| format!("{place}.{name}");
    for (name, figure) in [("release_norm", record.release_norm), ("seconds", record.seconds)] {
        possible(&at(name), figure, 0.0..=f64::MAX, check);
    }
    let adaptive = AdaptiveClip::new(&run.task().clip).is_some();
    if record.estimated_clip_norm.is_some() != adaptive {
        let place = at("estimated_clip_norm");
        check.problem(format!(
            "{place}: expected a number with adaptive clipping, and nothing without"
        ));
    }
    if run.subject.file().is_some() {
        return;
    }
    let summed = entry.survivors.unwrap_or(entry.cohort_size);
    // Of a round that was abandoned nothing is known.
    let min = if entry.abandoned { 0 } else { summed };
    let (min, parts) = match run.task().user_update.algorithm {
        Algorithm::Els => (entry.examples.unwrap_or(0), entry.examples.unwrap_or(0)),
        _ => (min, summed),
    };
    let weights = match run.task().user_update.weight_cap {
        None => min as f64..=parts as f64,
        Some(_) => 0.0..=parts as f64,
    };
    possible(&at("cohort_weight"), record.cohort_weight, weights, check);
    for (name, figure, max) in [
        (
            "discarded",
            record.discarded.map(|count| count as f64),
            parts as f64,
        ),
        ("clipped_fraction", record.clipped_fraction, 1.0),
        ("train_loss", record.train_loss, f64::MAX),
        ("tokens", record.tokens.map(|tokens| tokens as f64), f64::MAX),
    ] {
        match figure {
            Some(figure) => possible(&at(name), figure, 0.0..=max, check),
            None => check.problem(format!("{}: missing", at(name))),
        }
    }
    let Some(update_norms) = &record.update_norms else {
        check.problem(format!("{}: missing", at("update_norms")));
        return;
    };
    possible_histogram(&at("update_norms"), update_norms, check);
    let norms = total(&update_norms.counts);
    if norms != 0 && !(min..=parts).contains(&norms) {
        check.problem(format!(
            "{}: expected {parts} norms, got {norms}",
            at("update_norms.counts")
        ));
    }
}

fn possible_histogram(place: &str, histogram: &Histogram, check: &mut Check) {
    let Histogram { edges, counts } = histogram;
    let shape = edges.len() == counts.len() + 1 || (edges.is_empty() && counts.is_empty());
    let rising =
        edges.windows(2).all(|pair| pair[0] < pair[1]) && edges.first().is_none_or(|&edge| edge >= 0.0);
    if !shape {
        check.problem(format!(
            "{place}: {} edges of {} counts",
            edges.len(),
            counts.len()
        ));
    } else if !rising {
        check.problem(format!("{place}.edges: expected rising numbers"));
    }
}

/// Checks that the estimated norm comes into force where the trees restart.
fn check_adaptive(run: &Run<'_>, rounds: &[&RoundRecord], check: &mut Check) {
    let Some(bounded) = run.plan.bounded().filter(|bounded| bounded.clients().is_some()) else {
        return;
    };
    for segment in 1..bounded.segments() {
        let start = bounded.segment(segment).start as usize;
        let estimated = rounds
            .get(start - 1)
            .and_then(|record| record.estimated_clip_norm);
        if let Some(entry) = run.entries.get(start)
            && entry.clip_norm != estimated
        {
            check.problem(format!(
                "{LEDGER_FILE}, line {}, clip_norm: expected the estimated_clip_norm of {METRICS_FILE}, round {}, {estimated:?}, \
                 got {:?}",
                start + 1,
                start - 1,
                entry.clip_norm
            ));
        }
    }
}

fn check_evaluation(
    run: &Run<'_>,
    vocabulary: &Vocab,
    record: &EvaluationRecord,
    rounds: &[&RoundRecord],
    line: usize,
    check: &mut Check,
) {
    let place = format!("{METRICS_FILE}, line {line}, evaluation");
    // The operator of a service may have measured its model on text that is nobody's in the task.
    let usual = EvaluationConfig::default();
    let evaluation = match &run.subject {
        Subject::Run(config) => &config.evaluation,
        Subject::Task { .. } => &usual,
        Subject::Session(_) => return check.problem(format!("{place}: a session has none")),
    };
    let expected = EvaluationRecord {
        round: rounds.len() as u64,
        split: evaluation.split.name().to_owned(),
        // Added up in the same order as by the run.
        train_seconds: rounds.iter().fold(0.0, |sum, record| sum + record.seconds),
        ..record.clone()
    };
    check.agree(&place, &expected, record);
    let measured = Measured {
        vocabulary,
        ids: run.task().model.ids(vocabulary.len()),
        eos: evaluation.eos,
    };
    possible_metrics(&format!("{place}.metrics"), &record.metrics, measured, check);
    let between = rounds.len() < run.entries.len() && !rounds.is_empty();
    let equal = evaluation.sample_tokens() == evaluation.final_max_tokens;
    if record.metrics.sample.is_some() && (between || equal) {
        let why = match equal {
            true => "all evaluations have one limit",
            false => "only the first and the last evaluation have one",
        };
        check.problem(format!("{place}.metrics.sample: {why}"));
    }
}

/// Checks that all evaluations of one curve are of the same targets. Older versions drew other users in each process.
fn check_curve(record: &EvaluationRecord, curve: &mut Option<[u64; 2]>, line: usize, check: &mut Check) {
    let point = record.metrics.on_curve();
    let Some(users) = point.users else { return };
    let [expected, targets] = *curve.get_or_insert([users, point.targets]);
    if [expected, targets] != [users, point.targets] {
        check.wrong(
            format!("{METRICS_FILE}, line {line}, evaluation.metrics"),
            format!("the {targets} targets of {expected} users of the evaluation before it"),
            format!("{} of {users}", point.targets),
        );
    }
}

fn possible_metrics(place: &str, metrics: &Metrics, measured: Measured<'_>, check: &mut Check) {
    let at = |name: &str| format!("{place}.{name}");
    let targets = metrics.targets as f64;
    let unknown = metrics.out_of_vocabulary as f64;
    possible(&at("out_of_vocabulary"), unknown, 0.0..=targets, check);
    // A target outside the vocabulary is always a mistake.
    let known = (targets - unknown).max(0.0);
    let best = known / targets.max(1.0);
    possible(&at("top5"), metrics.top5, 0.0..=best, check);
    possible(&at("top3"), metrics.top3, 0.0..=metrics.top5, check);
    possible(&at("top1"), metrics.top1, 0.0..=metrics.top3, check);
    let all_ids = metrics.top1_all_ids;
    possible(&at("top1_all_ids"), all_ids, 0.0..=metrics.top1, check);
    // NaN where a model that diverged was evaluated.
    if metrics.perplexity < 1.0 - 1e-6 {
        check.wrong(at("perplexity"), "at least 1", metrics.perplexity);
    }
    let in_vocab = (known > 0.0).then(|| metrics.top1 * targets.max(1.0) / known);
    check.same(at("in_vocab_top1"), &in_vocab, &metrics.in_vocab_top1);
    for (name, fraction) in [
        ("top1", metrics.top1),
        ("top3", metrics.top3),
        ("top5", metrics.top5),
        ("top1_all_ids", metrics.top1_all_ids),
    ] {
        let right = fraction * targets.max(1.0);
        if (right - right.round()).abs() > 1e-6 * right.max(1.0) {
            check.wrong(at(name), format!("a share of {targets} targets"), fraction);
        }
    }
    if let Some(words) = &metrics.head_words {
        for (name, counts) in [
            ("top10", &words.top10),
            ("top50", &words.top50),
            ("top100", &words.top100),
        ] {
            if total(counts) != metrics.targets {
                let place = at(&format!("head_words.{name}"));
                check.problem(format!("{place}: expected {targets} predictions"));
            }
        }
    }
    possible_over_users(place, metrics, measured, check);
}

/// Checks that the model was evaluated when the configuration says so, and at the end.
fn check_evaluations(run: &Run<'_>, evaluations: &[u64], check: &mut Check) {
    let Subject::Run(config) = &run.subject else {
        return;
    };
    let last = evaluations.len() - 1;
    for (rounds, &count) in evaluations.iter().enumerate() {
        let due = u64::from(match rounds {
            // What a run starts from is evaluated before its first round.
            0 => config.initial_model.is_some(),
            _ => evaluates(config, rounds as u64),
        });
        let holds = match rounds {
            // A run that was resumed after its end was evaluated again.
            _ if rounds == last => count > due,
            _ => count == due,
        };
        if !holds {
            let expected = format!("{} after round {rounds}", due + u64::from(rounds == last));
            check.wrong(format!("{METRICS_FILE}, evaluation"), expected, count);
        }
    }
}

fn possible(place: &str, figure: f64, range: std::ops::RangeInclusive<f64>, check: &mut Check) {
    // Sums of roundings.
    let slack = 1e-9 * range.end().clamp(1.0, 1e6);
    let holds = figure >= range.start() - slack && figure <= range.end() + slack;
    if !holds {
        let expected = format!("from {} to {}", range.start(), range.end());
        check.wrong(place, expected, figure);
    }
}
