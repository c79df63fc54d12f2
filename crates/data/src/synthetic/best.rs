//! The best predictor that knows the process: exact conditional probabilities, word by word.

use serde::{Deserialize, Serialize};

use crate::synthetic::{Process, UserTraits};

/// Top-1 accuracy of the Bayes-optimal predictors on the validation text of a synthetic population.
///
/// The *global* predictor knows the process and sees the sentence so far, which is all that a shared model sees. The
/// *personal* one also knows the user's topics and habit. Both are scored on the very text a model is scored on, so a
/// model can exceed them by chance only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestAccuracy {
    /// Global predictor, EOS targets counted.
    pub with_eos: f64,
    /// Global predictor that never says EOS, EOS targets left out.
    pub without_eos: f64,
    /// Mean probability that the global predictor gave its own first choice, EOS targets counted: what it expected.
    pub expected_with_eos: f64,
    /// Personal predictor, EOS targets counted.
    pub personal_with_eos: f64,
    /// Personal predictor that never says EOS, EOS targets left out.
    pub personal_without_eos: f64,
    /// Targets scored, EOS included.
    pub targets: u64,
}

/// Hits of one predictor.
#[derive(Debug, Clone, Default)]
struct Hits {
    all: u64,
    words: u64,
    expected: f64,
}

/// Hits of both predictors; tallies of different users are added in user order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    global: Hits,
    personal: Hits,
    targets: u64,
    words: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        for (mine, theirs) in [
            (&mut self.global, &other.global),
            (&mut self.personal, &other.personal),
        ] {
            mine.all += theirs.all;
            mine.words += theirs.words;
            mine.expected += theirs.expected;
        }
        self.targets += other.targets;
        self.words += other.words;
    }

    pub(crate) fn finish(&self) -> Option<BestAccuracy> {
        let of = |hits: u64, targets: u64| hits as f64 / targets as f64;
        (self.words > 0).then(|| BestAccuracy {
            with_eos: of(self.global.all, self.targets),
            without_eos: of(self.global.words, self.words),
            expected_with_eos: self.global.expected / self.targets as f64,
            personal_with_eos: of(self.personal.all, self.targets),
            personal_without_eos: of(self.personal.words, self.words),
            targets: self.targets,
        })
    }
}

/// Scores sentences under the process.
#[derive(Debug)]
pub(crate) struct BestPredictor<'a> {
    process: &'a Process,
    /// The word of each topic (last: of no topic) with the greatest Zipf weight: no other word of that topic can be the
    /// most probable one unless a habit or a successor lifts it.
    leaders: Vec<usize>,
}

impl<'a> BestPredictor<'a> {
    pub(crate) fn new(process: &'a Process) -> BestPredictor<'a> {
        let topics = process.topics();
        let leader = |class: Option<usize>| {
            let members = (0..process.zipf.len()).filter(|&word| process.topic_of[word] == class);
            members.reduce(|best, word| {
                if process.zipf[word] > process.zipf[best] {
                    word
                } else {
                    best
                }
            })
        };
        let leaders = (0..topics).map(Some).chain([None]).filter_map(leader).collect();
        BestPredictor { process, leaders }
    }

    /// Scores one user's sentence: its kept words, and whether its end was kept too.
    pub(crate) fn score(&self, words: &[usize], ended: bool, traits: &UserTraits, tally: &mut Tally) {
        let (topics, habits) = (self.process.topics(), self.process.habits.len());
        let everyone = vec![1.0 / (topics * habits) as f64; topics * habits];
        self.follow(words, ended, everyone, &mut tally.global);
        let mut own = vec![0.0; topics * habits];
        own[traits.habit * topics..(traits.habit + 1) * topics].copy_from_slice(&traits.topics);
        self.follow(words, ended, own, &mut tally.personal);
        tally.targets += words.len() as u64 + u64::from(ended);
        tally.words += words.len() as u64;
    }

    /// `belief[habit * topics + topic]`: probability of the pair given what is seen so far.
    ///
    /// Users are exchangeable and their traits do not depend on their size, so that before the first word every pair is
    /// equally likely; given the pair, a sentence is a Markov chain, and Bayes' rule updates the belief word by word.
    fn follow(&self, words: &[usize], ended: bool, mut belief: Vec<f64>, hits: &mut Hits) {
        let mut previous = self.process.start();
        for (length, target) in words
            .iter()
            .map(|&word| Some(word))
            .chain(ended.then_some(None))
            .enumerate()
        {
            let end = self.process.end_probability(previous, length);
            let (best, probability) = self.best_word(previous, &belief);
            let best_or_end = if end > (1.0 - end) * probability {
                None
            } else {
                Some(best)
            };
            hits.all += u64::from(best_or_end == target);
            hits.words += u64::from(target == Some(best));
            hits.expected += end.max((1.0 - end) * probability);
            let Some(word) = target else { return };
            self.update(previous, word, &mut belief);
            previous = word;
        }
    }

    /// Probability of `word` after `previous`, given that the sentence goes on, with the topics' and the habits' beliefs
    /// already summed: `unhabitual[topic]` is the belief in the topic times the probability of following no habit.
    fn probability(&self, previous: usize, word: usize, favoured: f64, unhabitual: &[f64]) -> f64 {
        let process = self.process;
        let rest: f64 = unhabitual.iter().sum();
        let topical: f64 = unhabitual
            .iter()
            .enumerate()
            .map(|(topic, fraction)| fraction * process.topic_probability(word, topic))
            .sum();
        favoured
            + process.successor_strength * rest * process.successor_probability(previous, word)
            + (1.0 - process.successor_strength) * topical
    }

    /// The most probable word after `previous`, and its probability given that the sentence goes on.
    fn best_word(&self, previous: usize, belief: &[f64]) -> (usize, f64) {
        let process = self.process;
        let topics = process.topics();
        let mut unhabitual = vec![0.0; topics];
        let mut favourites: Vec<(usize, f64)> = Vec::new();
        for (habit, belief) in process.habits.iter().zip(belief.chunks_exact(topics)) {
            let fraction = habit[previous].map_or(0.0, |_| process.habit_strength);
            unhabitual
                .iter_mut()
                .zip(belief)
                .for_each(|(sum, belief)| *sum += belief * (1.0 - fraction));
            if let Some(word) = habit[previous] {
                let favoured = fraction * belief.iter().sum::<f64>();
                match favourites.iter_mut().find(|(other, _)| *other == word) {
                    Some((_, sum)) => *sum += favoured,
                    None => favourites.push((word, favoured)),
                }
            }
        }
        let candidates = self.leaders.iter().chain(&process.successors[previous]).copied();
        let candidates = candidates.chain(favourites.iter().map(|(word, _)| *word));
        let mut best = (0, f64::NEG_INFINITY);
        for word in candidates {
            let favoured = favourites
                .iter()
                .find(|(other, _)| *other == word)
                .map_or(0.0, |(_, sum)| *sum);
            let probability = self.probability(previous, word, favoured, &unhabitual);
            if probability > best.1 {
                best = (word, probability);
            }
        }
        best
    }

    fn update(&self, previous: usize, word: usize, belief: &mut [f64]) {
        let process = self.process;
        let topics = process.topics();
        let usual: Vec<f64> = (0..topics)
            .map(|topic| {
                process.successor_strength * process.successor_probability(previous, word)
                    + (1.0 - process.successor_strength) * process.topic_probability(word, topic)
            })
            .collect();
        let mut total = 0.0;
        for (habit, belief) in process.habits.iter().zip(belief.chunks_exact_mut(topics)) {
            for (belief, usual) in belief.iter_mut().zip(&usual) {
                *belief *= match habit[previous] {
                    Some(favourite) => {
                        process.habit_strength * f64::from(u8::from(favourite == word))
                            + (1.0 - process.habit_strength) * usual
                    }
                    None => *usual,
                };
                total += *belief;
            }
        }
        belief.iter_mut().for_each(|belief| *belief /= total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;
    use undertone_settings::SyntheticSource;

    #[test]
    fn candidates_hold_the_most_probable_word_and_probabilities_sum_to_one() {
        let process = Process::new(&SyntheticSource {
            words: 120,
            ..SyntheticSource::default()
        });
        let predictor = BestPredictor::new(&process);
        let (topics, habits) = (process.topics(), process.habits.len());
        let mut stream = Stream::new("test", 1, 0);
        for _ in 0..300 {
            let mut belief: Vec<f64> = (0..topics * habits).map(|_| stream.uniform().powi(6)).collect();
            let total: f64 = belief.iter().sum();
            belief.iter_mut().for_each(|belief| *belief /= total);
            let previous = stream.below(121);
            // The full distribution from the definition, without the shortcut of candidates.
            let all: Vec<f64> = (0..120)
                .map(|word| {
                    let pair = |(index, belief): (usize, &f64)| {
                        let (habit, topic) = (index / topics, index % topics);
                        let usual = process.successor_strength
                            * process.successor_probability(previous, word)
                            + (1.0 - process.successor_strength) * process.topic_probability(word, topic);
                        belief
                            * match process.habits[habit][previous] {
                                Some(favourite) if favourite == word => {
                                    process.habit_strength + (1.0 - process.habit_strength) * usual
                                }
                                Some(_) => (1.0 - process.habit_strength) * usual,
                                None => usual,
                            }
                    };
                    belief.iter().enumerate().map(pair).sum()
                })
                .collect();
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let (_, probability) = predictor.best_word(previous, &belief);
            let greatest = all.iter().copied().fold(0.0, f64::max);
            assert!((probability - greatest).abs() < 1e-12, "{probability} {greatest}");
        }
    }
}
