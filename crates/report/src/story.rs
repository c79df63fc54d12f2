//! The result of a run in four rows and one sentence.
//!
//! The rows are the commonest word, the start, the run, and the same run without privacy, measured on equal held-out people.
//!
//! PRIVACY: the accuracies are exact statistics of people. They are for the operator, and no release holds a row.

mod setting;
mod verdict;

use serde::Serialize;
use undertone_coordinator::record::PrivacyReport;
use undertone_present::numbers::{number, share, upper_bound};
use undertone_run_directory::metrics::Metrics;
use undertone_run_directory::metrics::accuracy::KEYBOARD;
use undertone_run_directory::read::RunData;

pub use setting::Setting;
use verdict::{Found, verdict};

/// The accuracy of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Top-1 accuracy of the candidates of a keyboard.
    pub top1: f64,
    /// Standard error of `top1` over users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top1_standard_error: Option<f64>,
    /// Perplexity; a constant prediction has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
}

impl Figures {
    /// The accuracy of one word that is always predicted.
    #[must_use]
    pub fn of_one_word(top1: f64, top1_standard_error: Option<f64>) -> Self {
        Self {
            top1,
            top1_standard_error,
            perplexity: None,
        }
    }
}

impl From<&Metrics> for Figures {
    fn from(metrics: &Metrics) -> Self {
        Self {
            top1: metrics.top1,
            top1_standard_error: metrics.top1_standard_error,
            perplexity: Some(metrics.perplexity),
        }
    }
}

/// The start of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Random parameters.
    Random,
    /// A model that was trained before.
    Model(Figures),
}

/// A private model with its guarantee; without one where none is stated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Private {
    /// Accuracy and perplexity.
    #[serde(flatten)]
    pub figures: Figures,
    /// The epsilon that the run may claim.
    pub epsilon: Option<f64>,
    /// The delta of that guarantee.
    pub delta: Option<f64>,
    /// The relation between populations that it compares.
    pub adjacency: Option<String>,
}

/// The way to the last row, where nobody has trained it yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Command {
    /// The command line.
    pub command: String,
    /// Estimated time in minutes, from the time of the private run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
}

/// The measures of a story, all on equal targets.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// The name of the partition.
    pub partition: &'a str,
    /// Always predicting the commonest word.
    pub commonest_word: Option<Figures>,
    /// The start of the run, where it is known.
    pub start: Option<Start>,
    /// The model of the run.
    pub metrics: &'a Metrics,
    /// The run without privacy and with all else equal.
    pub without_privacy: Option<&'a Metrics>,
}

/// The rows of a run, and what they say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Story {
    /// The partition of the held-out people.
    pub partition: String,
    /// Always predicting the commonest word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commonest_word: Option<Figures>,
    /// The start of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// The model of a private run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<Private>,
    /// The run without privacy and with all else equal, or the model of a run that has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_privacy: Option<Figures>,
    /// The command that makes `without_privacy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_privacy_by: Option<Command>,
    /// A sentence about what holds the model back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The sentence that says for whom the rows are.
    pub note: &'static str,
}

const NOTE: &str =
    "The accuracies are exact statistics of held-out people: for the operator, not covered by epsilon.";
const NOTE_OF_BOTH: &str = "The accuracies are exact statistics of held-out people, and the last row one of a model without privacy: for the \
    operator, not covered by epsilon.";

impl Story {
    /// The story of a run by its files; `None` where nobody has evaluated it.
    #[must_use]
    pub fn of(run: &RunData) -> Option<Self> {
        let last = run.evaluations.last()?;
        let setting = Setting::of(run);
        let error = run.start.unigram_standard_error;
        let commonest_word = (run.start.unigram_accuracy).map(|top1| Figures::of_one_word(top1, error));
        let twin = setting.twin_of(run);
        let start = match setting.starts_at_random() {
            Some(true) => Some(Start::Random),
            _ => run.initial().map(|metrics| Start::Model(metrics.into())),
        };
        let measured = Measured {
            partition: &last.split,
            commonest_word,
            start,
            metrics: &last.metrics,
            without_privacy: twin.as_ref(),
        };
        Some(Self::measured(&setting, &measured))
    }

    /// The story of a run by these measures.
    #[must_use]
    pub fn measured(setting: &Setting, measured: &Measured<'_>) -> Self {
        let own = Figures::from(measured.metrics);
        let private = setting.is_private();
        let twin = measured.without_privacy.filter(|_| private);
        let without_privacy = match private {
            true => twin.map(Figures::from),
            false => Some(own),
        };
        let start = match measured.start {
            Some(Start::Model(figures)) => Some(figures.top1),
            _ => None,
        };
        let found = Found {
            metrics: measured.metrics,
            word: || setting.word(measured.metrics),
            private,
            commonest_word: measured.commonest_word.map(|figures| figures.top1),
            start,
            without_privacy: twin.map(|metrics| metrics.top1),
        };
        Self {
            partition: measured.partition.to_owned(),
            commonest_word: measured.commonest_word,
            start: measured.start,
            private: private.then(|| of_private(own, setting.privacy())),
            without_privacy,
            without_privacy_by: setting.command().filter(|_| without_privacy.is_none()),
            verdict: verdict(&found),
            note: if twin.is_some() { NOTE_OF_BOTH } else { NOTE },
        }
    }

    /// The story with the command line that makes its last row, where that row is missing.
    #[must_use]
    pub fn by(mut self, command: String) -> Self {
        if let Some(by) = &mut self.without_privacy_by {
            by.command = command;
        }
        self
    }

    /// The titles of the columns of [`rows`](Self::rows).
    pub const COLUMNS: [&str; 4] = ["", KEYBOARD, "perplexity", ""];

    /// The rows: name, accuracy, perplexity and a remark.
    #[must_use]
    pub fn rows(&self) -> Vec<[String; 4]> {
        let mut rows = Vec::new();
        rows.extend((self.commonest_word).map(|figures| row("commonest word", figures, String::new())));
        rows.extend(self.start.map(|start| match start {
            Start::Random => words("start", "random", String::new()),
            Start::Model(figures) => row("start", figures, String::new()),
        }));
        rows.extend(
            (self.private.as_ref()).map(|private| row("private", private.figures, guarantee(private))),
        );
        let name = match self.private {
            Some(_) => "the same without privacy",
            None => "without privacy",
        };
        rows.extend(
            self.without_privacy
                .map(|figures| row(name, figures, "no guarantee".to_owned())),
        );
        rows.extend(
            (self.without_privacy_by.as_ref()).map(|by| words(name, "not trained yet", by.in_words())),
        );
        rows
    }

    /// The sentences below the rows.
    #[must_use]
    pub fn sentences(&self) -> Vec<&str> {
        [Some(self.note), self.verdict.as_deref()]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Command {
    fn in_words(&self) -> String {
        match self.minutes.map(|minutes| minutes.ceil().max(1.0)) {
            None => self.command.clone(),
            Some(1.0) => format!("{}, about 1 minute", self.command),
            Some(minutes) => format!("{}, about {minutes:.0} minutes", self.command),
        }
    }
}

fn of_private(figures: Figures, privacy: Option<&PrivacyReport>) -> Private {
    let record = privacy
        .and_then(PrivacyReport::of_release)
        .map(|(_, record)| record);
    Private {
        figures,
        epsilon: record.map(|record| record.epsilon),
        delta: record.map(|record| record.delta),
        adjacency: record.map(|record| record.adjacency.clone()),
    }
}

/// The guarantee in words, rounded up.
fn guarantee(private: &Private) -> String {
    match (private.epsilon, private.delta, &private.adjacency) {
        (Some(epsilon), Some(delta), Some(adjacency)) => {
            let (epsilon, delta) = (upper_bound(epsilon), upper_bound(delta));
            format!("epsilon {epsilon}, delta {delta}, {adjacency}")
        }
        _ => "no guarantee is stated".to_owned(),
    }
}

fn row(name: &str, figures: Figures, remark: String) -> [String; 4] {
    let accuracy = share(figures.top1, figures.top1_standard_error);
    let perplexity = figures.perplexity.map(number).unwrap_or_default();
    [name.to_owned(), accuracy, perplexity, remark]
}

fn words(name: &str, accuracy: &str, remark: String) -> [String; 4] {
    [name.to_owned(), accuracy.to_owned(), String::new(), remark]
}

#[cfg(test)]
mod tests;
