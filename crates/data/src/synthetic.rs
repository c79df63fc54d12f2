//! A population of users drawn from a documented process; see `docs/guide/data.md` for the model.

mod best;
mod process;

pub use best::BestAccuracy;
pub(crate) use best::{BestPredictor, Tally};
pub(crate) use process::{Process, UserTraits};

use crate::error::Result;
use crate::random::Stream;
use crate::rows::{OnRows, Rows};
use undertone_settings::SyntheticSource;
use undertone_settings::time::NO_TIME;

/// The process and the users drawn from it.
#[derive(Debug)]
pub(crate) struct Population {
    spec: SyntheticSource,
    process: Process,
}

impl Population {
    pub(crate) fn new(spec: &SyntheticSource) -> Population {
        Population {
            spec: spec.clone(),
            process: Process::new(spec),
        }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn num_users(&self) -> u64 {
        self.spec.users
    }

    /// Traits and size of user `index`, and the stream that their sentences continue from.
    fn user(&self, index: u64) -> (UserTraits, u64, Stream) {
        let mut stream = Stream::new("population", self.spec.seed, index);
        let traits = self.process.draw_traits(&mut stream);
        let log_size = libm::log(self.spec.median_sentences) + self.spec.sentence_spread * stream.normal();
        let sentences = (libm::exp(log_size).round() as u64).clamp(1, self.spec.max_sentences);
        (traits, sentences, stream)
    }

    pub(crate) fn traits(&self, index: u64) -> UserTraits {
        self.user(index).0
    }

    /// Name of user `index`, in the order of indices.
    pub(crate) fn name(index: u64) -> String {
        format!("user{index:07}")
    }

    /// Inverse of [`Population::name`].
    pub(crate) fn index(name: &str) -> Option<u64> {
        name.strip_prefix("user")?.parse().ok()
    }

    /// Reads one row per user, with one sentence per line.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        let mut rows = Rows::default();
        let (mut text, mut words) = (String::new(), Vec::new());
        for index in 0..self.spec.users {
            let (traits, sentences, mut stream) = self.user(index);
            text.clear();
            for _ in 0..sentences {
                self.process.draw_sentence(&traits, &mut stream, &mut words);
                for &word in &words {
                    text.push_str(self.process.word(word));
                    text.push(' ');
                }
                text.pop();
                text.push('\n');
            }
            rows.users.push(&Population::name(index));
            rows.texts.push(&text);
            rows.times.push(NO_TIME);
            rows.places.push(index + 1);
            rows.hand_over(on_rows, Some(self.spec.users))?;
        }
        on_rows(&rows, Some(self.spec.users))
    }
}
