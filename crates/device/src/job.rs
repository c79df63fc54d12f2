//! Local training, clipping and encoding: one update, ready to be sent.

use std::sync::Arc;

use undertone_aggregation::{ModularVec, NonFinite, UserSeeds, Wiped};
use undertone_local::{LocalError, LocalTask, LocalWorker};
use undertone_mechanisms::NoiseKey;
use undertone_models::{ModelError, ModelSpec, SequenceModel, weights};
use undertone_protocol::Digest32;
use undertone_text::{ExampleCutter, Scratch, SpecialIds};
use zeroize::{Zeroize, Zeroizing};

use crate::error::Refusal;
use crate::plan::{Prepared, Purpose, RoundTerms, SumPolicy, TaskPlan};
use crate::rates::{BATCH, rates};
use crate::shared::{Ready, Shared};
use crate::watch::{Braked, Watch};

/// The seeds of one session. They are wiped when the session has encoded its update.
pub(crate) struct SessionSeeds(pub(crate) UserSeeds);

impl SessionSeeds {
    pub(crate) fn new(order: [u8; 32], encoding: [u8; 32]) -> Self {
        Self(UserSeeds {
            order,
            encoding: NoiseKey::from_bytes(encoding),
        })
    }
}

impl Drop for SessionSeeds {
    fn drop(&mut self) {
        // The other seed wipes itself.
        self.0.order.zeroize();
    }
}

/// The local work of one session: a plan, a model and seeds that serve once.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the order of examples and the noise of a user follow from it"
)]
pub struct Job {
    pub(crate) plan: Arc<TaskPlan>,
    pub(crate) terms: RoundTerms,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) model: Arc<[u8]>,
    pub(crate) model_digest: Digest32,
    pub(crate) frozen: Option<Arc<[u8]>>,
    pub(crate) seeds: SessionSeeds,
    /// The work of other devices of this process.
    pub(crate) shared: Option<Arc<Shared>>,
}

/// The reason why a job gave no update. Nothing is reported then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The training was stopped.
    #[error("local training was stopped")]
    Stopped,
    /// The training used up its processor time.
    #[error("local training used up its processor time")]
    OutOfTime,
    /// The text of the device gives too few examples.
    #[error("the plan needs {expected} examples, and the text of the device gives {got}")]
    TooFew {
        /// The plan's minimum.
        expected: u32,
        /// The number found.
        got: usize,
    },
    /// The model is not the plan's.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The training failed.
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// A clipped update as it travels. It is wiped when it is dropped.
#[expect(missing_debug_implementations, reason = "PRIVACY: an update of one person")]
pub struct Trained {
    pub(crate) payload: Payload,
    /// `true` if the update was no longer than the estimate; `None` without adaptive clipping.
    pub(crate) below: Option<bool>,
    /// Number of examples that the update was computed from.
    pub examples: usize,
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
}

/// The bytes or residues of an update.
pub(crate) enum Payload {
    /// The values themselves.
    Plain(Wiped<f32>),
    /// Residues for the masks of a secure sum.
    Residues(Residues),
}

/// Residues of one update, cleared when they are dropped.
pub(crate) struct Residues(pub(crate) ModularVec);

impl Drop for Residues {
    fn drop(&mut self) {
        self.0.clear();
        // Keeps the compiler from leaving out a write that nothing reads.
        std::hint::black_box(&self.0);
    }
}

/// Reads the model of a plan from its blobs: the trained parameters, and the frozen ones beside them.
pub(crate) fn load_model(
    spec: &ModelSpec,
    ids: usize,
    model: &[u8],
    frozen: Option<&[u8]>,
) -> Result<(Box<dyn SequenceModel>, Vec<f32>), Refusal> {
    let refused = |error: ModelError| Refusal::value("the model", "that of the plan", error);
    if let Some(frozen) = frozen {
        let base = spec.load(ids, frozen).map_err(refused)?.model;
        let theta = weights::from_safetensors(base.layout(), model).map_err(refused)?;
        return Ok((base, theta));
    }
    let loaded = spec.load(ids, model).map_err(refused)?;
    let theta = loaded
        .parameters
        .ok_or_else(|| Refusal::value("the model", "a file with the trained parameters", "none"))?;
    Ok((loaded.model, theta))
}

/// Partial work is never reported.
fn stopped(watch: &Watch) -> Result<(), JobError> {
    match (watch.is_out_of_time(), watch.is_stopped()) {
        (true, _) => Err(JobError::OutOfTime),
        (_, true) => Err(JobError::Stopped),
        _ => Ok(()),
    }
}

impl Job {
    /// The purpose of the task: it decides which of the device's examples the job may read.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.plan.purpose
    }

    /// Max processor time, in milliseconds.
    #[must_use]
    pub fn cpu_ms(&self) -> u64 {
        self.plan.cpu_ms
    }

    /// Max number of texts that the job can use: each gives one example or more, or none.
    #[must_use]
    pub fn max_examples(&self) -> usize {
        self.plan.max_examples as usize
    }

    /// Trains on texts, the newest first, and clips and encodes the update.
    ///
    /// # Errors
    /// [`JobError`]; no part of an update is left then.
    pub fn run(self, texts: &[Zeroizing<String>], watch: &Arc<Watch>) -> Result<Trained, JobError> {
        let cutter = ExampleCutter::new(
            &self.prepared.vocab,
            self.plan.text.examples,
            self.plan.text.longest(),
        );
        let (mut scratch, mut spool) = (Scratch::default(), Zeroizing::new(Vec::new()));
        for text in texts {
            cutter
                .cut(text, &mut scratch, &mut spool)
                .map_err(|error| Refusal::value("the vocabulary", "one that encodes any text", error))?;
        }
        self.run_tokens(&split(&spool), watch)
    }

    /// Trains on examples that were cut before, the newest first.
    ///
    /// # Errors
    /// [`JobError`]; no part of an update is left then.
    pub fn run_tokens(self, examples: &[&[u32]], watch: &Arc<Watch>) -> Result<Trained, JobError> {
        let needed = self.plan.min_examples;
        if examples.len() < needed as usize {
            return Err(JobError::TooFew {
                expected: needed,
                got: examples.len(),
            });
        }
        let examples = &examples[..examples.len().min(self.max_examples())];
        let ready = self.ready()?;
        let braked = Braked {
            model: &*ready,
            watch: Arc::clone(watch),
        };
        let (update, below) = match self.plan.purpose {
            Purpose::Train => self.train(&braked, &ready.theta, examples, watch)?,
            Purpose::Evaluate { loss_cap } => {
                self.measure(&braked, &ready.theta, examples, loss_cap, watch)?
            }
        };
        let payload = self.encode(update)?;
        stopped(watch)?;
        Ok(Trained {
            payload,
            below,
            examples: examples.len(),
            cpu_ms: watch.used_ms(),
        })
    }

    /// The model with its parameters, read once where devices share their work.
    fn ready(&self) -> Result<Arc<Ready>, Refusal> {
        match &self.shared {
            Some(shared) => shared.model(self.plan.digest, self.model_digest, || self.load()),
            None => {
                let (model, theta) = self.load()?;
                let pool = None;
                Ok(Arc::new(Ready { model, theta, pool }))
            }
        }
    }

    fn load(&self) -> Result<(Box<dyn SequenceModel>, Vec<f32>), Refusal> {
        let ids = self.prepared.vocab.len();
        load_model(&self.plan.model, ids, &self.model, self.frozen.as_deref())
    }

    fn train(
        &self,
        model: &Braked<'_>,
        theta: &[f32],
        examples: &[&[u32]],
        watch: &Watch,
    ) -> Result<(Wiped<f32>, Option<bool>), JobError> {
        let settings = &self.plan.settings;
        let task = LocalTask {
            round: self.terms.round,
            theta,
            layout: &self.prepared.layout,
            clipping: &self.terms.clipping,
            estimate: self.terms.estimate,
            special: self.special(),
            settings,
            non_finite: NonFinite::Zero,
        };
        let longest = examples.iter().map(|example| example.len()).max().unwrap_or(0);
        let mut worker = LocalWorker::new(model, settings, longest.max(1), examples.len());
        let trained = worker.train(examples, self.seeds.0.order, &task);
        let mut update = Wiped::from(worker.into_update());
        stopped(watch)?;
        let outcome = trained?;
        let added = self
            .bound()
            .enforce(&mut update)
            .map_err(|error| JobError::Local(error.into()))?;
        Ok((update, outcome.added(added, self.terms.estimate).below))
    }

    fn measure(
        &self,
        model: &Braked<'_>,
        theta: &[f32],
        examples: &[&[u32]],
        loss_cap: f64,
        watch: &Watch,
    ) -> Result<(Wiped<f32>, Option<bool>), JobError> {
        let longest = examples.iter().map(|example| example.len()).max().unwrap_or(0);
        let mut worker = model.worker(BATCH, BATCH * longest.max(1));
        let measured = rates(
            worker.as_mut(),
            theta,
            examples.to_vec(),
            self.special(),
            loss_cap,
        );
        stopped(watch)?;
        let measured = measured.map_err(|error| JobError::Local(error.into()))?;
        let mut update = Wiped::from(measured.to_vec());
        self.bound()
            .enforce(&mut update)
            .map_err(|error| JobError::Local(error.into()))?;
        Ok((update, None))
    }

    pub(crate) fn bound(&self) -> undertone_aggregation::Bound {
        TaskPlan::bound(&self.prepared.layout, &self.terms)
    }

    fn special(&self) -> SpecialIds {
        self.prepared.vocab.special()
    }

    /// The update as it travels. The seeds encode this one update and are wiped with the job.
    pub(crate) fn encode(&self, mut update: Wiped<f32>) -> Result<Payload, JobError> {
        let SumPolicy::SecAgg(secagg) = &self.plan.sum else {
            return Ok(Payload::Plain(update));
        };
        let failed = |error: undertone_aggregation::AggregationError| JobError::Local(error.into());
        let encoding = self
            .prepared
            .encoding
            .as_ref()
            .ok_or_else(|| Refusal::value("aggregation.encoding", "an encoding", "none"))?;
        let rotations = NoiseKey::from_bytes(secagg.rotations);
        let round = encoding.for_round(&rotations, self.terms.round).map_err(failed)?;
        let mut residues = Residues(encoding.zeros());
        let seed = &self.seeds.0.encoding;
        let mut encoder = round.encoder();
        if encoder.encode(&update, 1.0, seed, &mut residues.0).is_err() {
            // PRIVACY: an update that no rounding brings under the bound counts as zero, since nobody drops out because of a value.
            update.fill(0.0);
            encoder
                .encode(&update, 1.0, seed, &mut residues.0)
                .map_err(failed)?;
        }
        Ok(Payload::Residues(residues))
    }
}

/// The examples in a spool of lengths and ids.
pub(crate) fn split(spool: &[u32]) -> Vec<&[u32]> {
    let (mut examples, mut rest) = (Vec::new(), spool);
    while let Some((&length, after)) = rest.split_first() {
        let Some((example, after)) = after.split_at_checked(length as usize) else {
            break;
        };
        examples.push(example);
        rest = after;
    }
    examples
}
