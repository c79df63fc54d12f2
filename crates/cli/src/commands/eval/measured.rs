//! The evaluation of several runs on equal targets, and their paired differences.

use std::path::{Path, PathBuf};

use anyhow::bail;
use serde::Serialize;
use undertone_report::story::{Figures, Measured, Setting, Start, Story};
use undertone_run::evaluate::{Difference, Measure, UserCounts};
use undertone_run::{Evaluation, RunError};
use undertone_run_directory::metrics::Metrics;

use super::EvalArgs;
use crate::commands::stopped::{self, AtOnce, Stopped};
use crate::commands::train::threads;
use crate::output::Output;

/// A run with its measures and its rows.
#[derive(Serialize)]
pub(super) struct Evaluated {
    pub(super) run: PathBuf,
    #[serde(flatten)]
    pub(super) metrics: Metrics,
    pub(super) story: Story,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<Against>,
}

/// The differences of a run to another one, paired over equal users.
#[derive(Serialize)]
pub(super) struct Against {
    pub(super) run: PathBuf,
    /// The difference of the top-1 accuracy of a keyboard.
    pub(super) top1: Difference,
    /// The difference of the mean loss in nats per target; below zero the run is better.
    pub(super) loss: Difference,
}

/// Evaluates each run of the arguments.
pub(super) fn evaluate(args: &EvalArgs, output: &Output) -> anyhow::Result<Vec<Evaluated>> {
    let measuring = Measuring { args, output };
    measuring.all().map_err(
        |error| match error.downcast_ref::<RunError>().is_some_and(stopped::was_ended) {
            true => {
                let line = stopped::same_again(None);
                Stopped(format!("stopped; nothing is kept. Start again with: {line}")).into()
            }
            false => error,
        },
    )
}

struct Measuring<'a> {
    args: &'a EvalArgs,
    output: &'a Output,
}

impl Measuring<'_> {
    fn all(&self) -> anyhow::Result<Vec<Evaluated>> {
        let EvalArgs { runs, against, .. } = self.args;
        let open: Vec<Evaluation> = runs.iter().map(|run| self.open(run)).collect::<Result<_, _>>()?;
        let other = against
            .as_deref()
            .map(|run| Ok::<_, anyhow::Error>((run, self.open(run)?)));
        let other = other.transpose()?;
        if let Some((run, other)) = &other {
            for (one, path) in open.iter().zip(runs) {
                same_corpus((path, one), (run, other))?;
            }
        }
        let other = other.map(|(run, other)| Ok::<_, RunError>((run, self.measure(&other)?.1)));
        let other = other.transpose()?;
        let other = other.as_ref().map(|(run, users)| (*run, users));
        let pairs = runs.iter().zip(&open);
        pairs.map(|(run, open)| self.one(run, open, other)).collect()
    }

    fn open(&self, run: &Path) -> Result<Evaluation, RunError> {
        let EvalArgs { base, split, eos, .. } = self.args;
        Evaluation::open(run, base.as_deref(), (*split).into(), (*eos).into(), &AtOnce)
    }

    fn measure(&self, run: &Evaluation) -> Result<(Metrics, UserCounts), RunError> {
        run.measure(threads(self.args.threads), &AtOnce)
    }

    fn one(
        &self,
        run: &Path,
        open: &Evaluation,
        other: Option<(&Path, &UserCounts)>,
    ) -> anyhow::Result<Evaluated> {
        let setting = Setting::open(run)?;
        let (metrics, users) = self.measure(open)?;
        let start = self.tried(
            "the start",
            open.measure_start(threads(self.args.threads), &AtOnce),
        )?;
        let twin = match setting.twin() {
            Some(twin) => self
                .tried("the run without privacy", self.twin(&twin, open))?
                .flatten(),
            None => None,
        };
        let story = Story::measured(
            &setting,
            &Measured {
                partition: undertone_run_directory::config::EvaluationSplit::from(self.args.split).name(),
                commonest_word: open
                    .unigram()
                    .map(|(top1, error)| Figures::of_one_word(top1, error)),
                start: start
                    .map(|start| start.map_or(Start::Random, |metrics| Start::Model((&metrics).into()))),
                metrics: &metrics,
                without_privacy: twin.as_ref(),
            },
        );
        let against = other.and_then(|(run, other)| Against::of(run, &users, other));
        let run = run.to_owned();
        Ok(Evaluated {
            run,
            metrics,
            story,
            against,
        })
    }

    /// The measures of the same run without privacy; `None` if its text has changed.
    fn twin(&self, twin: &Path, own: &Evaluation) -> Result<Option<Metrics>, RunError> {
        let twin = self.open(twin)?;
        match twin.corpus_sha256() == own.corpus_sha256() {
            true => Ok(Some(self.measure(&twin)?.0)),
            false => Ok(None),
        }
    }

    /// A row that can be left out: the files that it needs may be gone.
    fn tried<T>(&self, row: &str, measured: Result<T, RunError>) -> Result<Option<T>, RunError> {
        match measured {
            Ok(measured) => Ok(Some(measured)),
            Err(error) if stopped::was_ended(&error) => Err(error),
            Err(error) => {
                self.output.warn(&format!("{row} is not measured: {error}"));
                Ok(None)
            }
        }
    }
}

impl Against {
    fn of(run: &Path, users: &UserCounts, other: &UserCounts) -> Option<Self> {
        Some(Self {
            run: run.to_owned(),
            top1: users.difference(other, Measure::Top1)?,
            loss: users.difference(other, Measure::Loss)?,
        })
    }
}

/// Refuses runs whose users cannot be paired.
fn same_corpus(
    (path, run): (&Path, &Evaluation),
    (other_path, other): (&Path, &Evaluation),
) -> anyhow::Result<()> {
    let (own, others) = (run.corpus_sha256(), other.corpus_sha256());
    if own != others {
        let (path, other_path) = (path.display(), other_path.display());
        bail!(
            "--against: expected a run on the corpus of {path}, SHA-256 {own}; got {other_path} on another one, SHA-256 {others}. Users \
             are paired where text, words and settings of [data] are equal"
        );
    }
    Ok(())
}
