//! The client workloads, two of them the same as the peers': sizes, token ids and the count of operations.

use crate::bench::numpy_random::DefaultRng;
use clap::ValueEnum;
use undertone_models::{SequenceModel, StateMode, WordLstm};

/// Seed of every client's generator, beside the client's number.
const SEED: u32 = 17;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Model {
    /// 64 sentences of 20 tokens, batches of 16, embed 96, LSTM 670, 10,004 words
    Stackoverflow,
    /// 1,600 tokens in 8 streams, unroll 10 with carried state, embed 96, LSTM 256, 10,000 words, tied
    Dplm,
    /// The steps of stackoverflow, CIFG of 670 cells with recurrent projection 96, untied
    Cifg,
}

impl Model {
    /// The name on the command line and in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stackoverflow => "stackoverflow",
            Self::Dplm => "dplm",
            Self::Cifg => "cifg",
        }
    }
}

/// Sizes of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) vocab: usize,
    pub(crate) embed: usize,
    pub(crate) hidden: usize,
    pub(crate) batch: usize,
    pub(crate) steps: usize,
    pub(crate) unroll: usize,
    pub(crate) state: StateMode,
    pub(crate) learning_rate: f32,
    pub(crate) clip_norm: f64,
}

/// One time-major batch without padding.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) inputs: Vec<u32>,
    pub(crate) targets: Vec<u32>,
}

impl Workload {
    pub(crate) fn of(model: Model) -> Self {
        let common = Self {
            vocab: 10_004,
            embed: 96,
            hidden: 670,
            batch: 16,
            steps: 4,
            unroll: 20,
            state: StateMode::Zero,
            learning_rate: 0.5,
            clip_norm: 1.0,
        };
        match model {
            Model::Stackoverflow | Model::Cifg => common,
            Model::Dplm => Self {
                vocab: 10_000,
                hidden: 256,
                batch: 8,
                steps: 20,
                unroll: 10,
                state: StateMode::Carry,
                ..common
            },
        }
    }

    pub(crate) fn build(self, model: Model, unit_norm: bool) -> anyhow::Result<Box<dyn SequenceModel>> {
        Ok(Box::new(match model {
            Model::Stackoverflow => WordLstm::untied(self.vocab, self.embed, self.hidden)?,
            Model::Dplm => WordLstm::tied(self.vocab, self.embed, self.hidden, unit_norm)?,
            Model::Cifg => WordLstm::cifg(self.vocab, self.embed, self.hidden, self.embed, false)?,
        }))
    }

    pub(crate) fn tokens_per_client(self) -> usize {
        self.batch * self.steps * self.unroll
    }

    /// Dense products only, two operations per multiply-add; training counts three forward passes.
    pub(crate) fn flops_per_token(self, model: Model) -> f64 {
        let (embed, hidden, vocab) = (self.embed as f64, self.hidden as f64, self.vocab as f64);
        // Gates, and the width of the state that goes back into them.
        let (gates, fed_back) = match model {
            Model::Stackoverflow | Model::Dplm => (4.0, hidden),
            Model::Cifg => (3.0, embed),
        };
        let forward =
            2.0 * (gates * hidden * (embed + fed_back)) + 2.0 * hidden * embed + 2.0 * embed * vocab;
        3.0 * forward
    }

    /// The steps of one client: ids are Zipf(1) over the vocabulary.
    ///
    /// With zero state every sentence is a sequence of its own; with carried state each of the `batch` streams is
    /// cut into consecutive unrolls.
    pub(crate) fn client(self, cumulative: &[f64], client: u32) -> Vec<Step> {
        let mut rng = DefaultRng::new(&[SEED, client]);
        let (lines, width) = match self.state {
            StateMode::Zero => (self.batch * self.steps, self.unroll + 1),
            StateMode::Carry => (self.batch, self.steps * self.unroll + 1),
        };
        let mut draw = || {
            let uniform = rng.random();
            cumulative
                .partition_point(|&below| below < uniform)
                .min(self.vocab - 1) as u32
        };
        let ids: Vec<u32> = (0..lines * width).map(|_| draw()).collect();
        let id = |step: usize, sequence: usize, time: usize| match self.state {
            StateMode::Zero => ids[(step * self.batch + sequence) * width + time],
            StateMode::Carry => ids[sequence * width + step * self.unroll + time],
        };
        let rows = |step: usize, shift: usize| -> Vec<u32> {
            (0..self.unroll)
                .flat_map(|time| (0..self.batch).map(move |sequence| (time, sequence)))
                .map(|(time, sequence)| id(step, sequence, time + shift))
                .collect()
        };
        (0..self.steps)
            .map(|step| Step {
                inputs: rows(step, 0),
                targets: rows(step, 1),
            })
            .collect()
    }

    /// Cumulative Zipf(1) probabilities of the vocabulary.
    pub(crate) fn cumulative(self) -> Vec<f64> {
        let weights = (1..=self.vocab).map(|rank| 1.0 / rank as f64);
        let total: f64 = weights.clone().sum();
        let mut sum = 0.0;
        weights
            .map(|weight| {
                sum += weight / total;
                sum
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First and last ids and the sums of all inputs and targets, as the peers' numpy code gives them.
    fn check(model: Model, client: u32, first: &[u32], last_target: u32, sums: (u64, u64)) {
        let workload = Workload::of(model);
        let steps = workload.client(&workload.cumulative(), client);
        let sequence: Vec<u32> = (0..workload.unroll)
            .map(|time| steps[0].inputs[time * workload.batch])
            .take(10)
            .collect();
        assert_eq!(sequence, first);
        assert_eq!(steps[workload.steps - 1].targets.last(), Some(&last_target));
        let sum = |ids: fn(&Step) -> &Vec<u32>| -> u64 {
            steps.iter().flat_map(ids).map(|&id| u64::from(id)).sum()
        };
        assert_eq!((sum(|step| &step.inputs), sum(|step| &step.targets)), sums);
    }

    #[test]
    fn ids_equal_those_of_the_peers() {
        use Model::{Dplm, Stackoverflow};
        let zero = [2195, 2, 131, 20, 4, 24, 36, 222, 757, 0];
        check(Stackoverflow, 0, &zero, 6, (1_280_164, 1_273_834));
        let one = [342, 2, 736, 3806, 289, 87, 656, 297, 16, 2];
        check(Stackoverflow, 1, &one, 0, (1_431_619, 1_377_654));
        let far = [7135, 0, 53, 0, 7753, 468, 2068, 5, 13, 0];
        check(Stackoverflow, 1_234_567, &far, 1112, (1_212_445, 1_203_493));
        let zero = [2194, 2, 131, 20, 4, 24, 36, 222, 757, 0];
        check(Dplm, 0, &zero, 20, (1_601_981, 1_595_067));
        let one = [342, 2, 736, 3805, 288, 87, 656, 297, 16, 2];
        check(Dplm, 1, &one, 1, (1_747_030, 1_748_491));
    }

    #[test]
    fn operations_per_client_equal_known_counts() {
        let flops = |model| {
            let workload = Workload::of(model);
            workload.flops_per_token(model) * workload.tokens_per_client() as f64
        };
        assert_eq!(flops(Model::Stackoverflow), 18_465_504.0 * 1280.0);
        assert_eq!(flops(Model::Dplm), 8_070_144.0 * 1600.0);
        assert_eq!(flops(Model::Cifg), 8_463_744.0 * 1280.0);
    }
}
