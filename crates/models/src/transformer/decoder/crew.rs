//! The threads of a decoder: the caller's own, and helpers that wait for passes.

use super::board::{Board, Seat};
use super::shard::Shard;
use super::{Pass, Shared};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A pass, and room for the logits of one helper.
type Job = (Arc<Pass>, Vec<f32>);

/// Threads that share each pass. They end with the decoder.
pub(super) struct Crew {
    shared: Arc<Shared>,
    shard: Shard,
    seat: Seat,
    helpers: Vec<Helper>,
}

struct Helper {
    jobs: Option<Sender<Job>>,
    done: Receiver<Vec<f32>>,
    /// Logits that the helper computed in the last pass.
    logits: Vec<f32>,
    vocabulary: usize,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    /// One thread per shard, of which the first is the caller's.
    pub(super) fn new(shared: Shared, first: Shard, others: Vec<Shard>) -> Self {
        let (shared, board) = (Arc::new(shared), Arc::new(Board::new(1 + others.len())));
        let helper = |(number, mut shard): (usize, Shard)| {
            let (jobs, waiting) = channel::<Job>();
            let (finished, done) = channel();
            let (shared, mut seat) = (Arc::clone(&shared), Seat::new(&board, number + 1));
            let vocabulary = shard.vocabulary;
            let thread = std::thread::spawn(move || {
                for (pass, logits) in waiting {
                    shard.logits = logits;
                    shard.pass(&shared, &mut seat, &pass);
                    // Nobody waits for it where the decoder ends.
                    let _ = finished.send(std::mem::take(&mut shard.logits));
                }
            });
            Helper {
                jobs: Some(jobs),
                done,
                logits: Vec::new(),
                vocabulary,
                thread: Some(thread),
            }
        };
        let helpers = others.into_iter().enumerate().map(helper).collect();
        Self {
            seat: Seat::new(&board, 0),
            shared,
            shard: first,
            helpers,
        }
    }

    /// Passes rows through the model, and writes the logits of those that are wanted.
    ///
    /// # Panics
    /// If a helper panics.
    pub(super) fn pass(&mut self, pass: Pass, vocab: usize, logits: &mut [f32]) {
        let pass = Arc::new(pass);
        for helper in &mut self.helpers {
            let room = std::mem::take(&mut helper.logits);
            let sent = helper
                .jobs
                .as_ref()
                .is_some_and(|jobs| jobs.send((Arc::clone(&pass), room)).is_ok());
            assert!(sent, "a thread of the decoder has ended");
        }
        self.shard.pass(&self.shared, &mut self.seat, &pass);
        for helper in &mut self.helpers {
            let logits = helper.done.recv();
            assert!(logits.is_ok(), "a thread of the decoder has panicked");
            helper.logits = logits.unwrap_or_default();
        }
        for (row, mut line) in logits.chunks_exact_mut(vocab).enumerate() {
            let own = (&self.shard.logits, self.shard.vocabulary);
            let others = self
                .helpers
                .iter()
                .map(|helper| (&helper.logits, helper.vocabulary));
            for (own, width) in std::iter::once(own).chain(others) {
                let (target, rest) = line.split_at_mut(width);
                target.copy_from_slice(&own[row * width..][..width]);
                line = rest;
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for helper in &mut self.helpers {
            helper.jobs = None;
            if let Some(thread) = helper.thread.take() {
                // A panic of a helper was the caller's own panic before.
                let _ = thread.join();
            }
        }
    }
}
