//! The generative process: Zipf words, sentence topics, word successors, user habits.

use crate::random::Stream;
use undertone_settings::SyntheticSource;

/// Successors a word has, and how often each is taken.
const SUCCESSORS: usize = 4;
const SUCCESSOR_WEIGHTS: [f64; SUCCESSORS] = [0.6, 0.2, 0.1, 0.1];
/// Fraction of a user's sentences about the first topic, the second topic, and any topic.
const TOPIC_FRACTIONS: [f64; 3] = [0.6, 0.25, 0.15];
/// Every fifth word tends to close a sentence.
const CLOSING_EVERY: usize = 5;
const CLOSING: f64 = 0.30;
const NOT_CLOSING: f64 = 0.06;

/// The traits that distinguish users.
#[derive(Debug, Clone)]
pub(crate) struct UserTraits {
    pub(crate) topics: Vec<f64>,
    pub(crate) habit: usize,
}

/// The process. Words are numbered by their frequency in it; `start` (the number of words) stands for the beginning of a
/// sentence wherever a preceding word is asked for.
#[derive(Debug)]
pub(crate) struct Process {
    names: Vec<String>,
    pub(crate) zipf: Vec<f64>,
    /// Topic of a word; `None` for the most frequent words, which belong to all.
    pub(crate) topic_of: Vec<Option<usize>>,
    /// Total Zipf weight of each topic's words.
    pub(crate) topic_weight: Vec<f64>,
    cumulative_zipf: Vec<f64>,
    /// Per topic: its words and their cumulative weight.
    topic_words: Vec<(Vec<usize>, Vec<f64>)>,
    /// `successors[previous]`: distinct words.
    pub(crate) successors: Vec<[usize; SUCCESSORS]>,
    /// `habits[habit][previous]`: the favourite next word, if there is one.
    pub(crate) habits: Vec<Vec<Option<usize>>>,
    closing: Vec<f64>,
    pub(crate) habit_strength: f64,
    pub(crate) successor_strength: f64,
    pub(crate) topic_strength: f64,
    pub(crate) longest_sentence: usize,
}

impl Process {
    pub(crate) fn new(spec: &SyntheticSource) -> Process {
        let mut process = Process::unsorted(spec);
        let order = process.frequency_order(spec.seed);
        process.renumber(&order);
        process
    }

    fn unsorted(spec: &SyntheticSource) -> Process {
        let words = spec.words;
        let weights: Vec<f64> = (0..words)
            .map(|rank| libm::pow((rank + 2) as f64, -spec.zipf_exponent))
            .collect();
        let total: f64 = weights.iter().sum();
        let zipf: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        let cumulative_zipf = cumulative(&zipf);
        let mut stream = Stream::new("process", spec.seed, 0);

        // The most frequent words belong to no topic, as function words do.
        let common = (words / 20).min(words - spec.topics);
        let mut topics: Vec<usize> = (common..words).map(|word| word % spec.topics).collect();
        stream.shuffle(&mut topics);
        let topic_of: Vec<Option<usize>> = (0..words)
            .map(|word| word.checked_sub(common).map(|index| topics[index]))
            .collect();

        let successors = (0..=words)
            .map(|_| draw_distinct(&mut stream, &cumulative_zipf))
            .collect();
        let habits = (0..spec.habits)
            .map(|_| {
                let mut habit = vec![None; words + 1];
                // Phrases start at frequent words (or the sentence's start), or they would hardly ever be said.
                let range = (words / 4).max(8);
                for _ in 0..range / 2 {
                    let previous = stream.pick(&cumulative_zipf[..range]);
                    habit[previous] = Some(stream.below(words));
                }
                habit[words] = Some(stream.below(words));
                habit
            })
            .collect();
        let closing = (0..words)
            .map(|word| {
                if word % CLOSING_EVERY == CLOSING_EVERY - 1 {
                    CLOSING
                } else {
                    NOT_CLOSING
                }
            })
            .chain([0.0])
            .collect();
        let mut process = Process {
            names: (0..words).map(name).collect(),
            zipf,
            topic_of,
            topic_weight: Vec::new(),
            cumulative_zipf,
            topic_words: Vec::new(),
            successors,
            habits,
            closing,
            habit_strength: spec.habit_strength,
            successor_strength: spec.successor_strength,
            topic_strength: spec.topic_strength,
            longest_sentence: spec.longest_sentence,
        };
        process.index_topics(spec.topics);
        process
    }

    fn index_topics(&mut self, topics: usize) {
        self.topic_words = (0..topics)
            .map(|topic| {
                let words: Vec<usize> = (0..self.zipf.len())
                    .filter(|&word| self.topic_of[word] == Some(topic))
                    .collect();
                let weights: Vec<f64> = words.iter().map(|&word| self.zipf[word]).collect();
                (words, cumulative(&weights))
            })
            .collect();
        self.topic_weight = self
            .topic_words
            .iter()
            .map(|(_, edges)| edges.last().copied().unwrap_or(0.0))
            .collect();
    }

    /// Words by decreasing frequency in a sample: what follows what shifts frequencies away from the Zipf ranks.
    fn frequency_order(&self, seed: u64) -> Vec<usize> {
        let mut counts = vec![0_u64; self.zipf.len()];
        let mut sentence = Vec::new();
        for index in 0..2000 {
            let mut stream = Stream::new("frequencies", seed, index);
            let traits = self.draw_traits(&mut stream);
            for _ in 0..10 {
                self.draw_sentence(&traits, &mut stream, &mut sentence);
                sentence.iter().for_each(|&word| counts[word] += 1);
            }
        }
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|&word| (std::cmp::Reverse(counts[word]), word));
        order
    }

    /// Renames word `order[i]` to `i`.
    fn renumber(&mut self, order: &[usize]) {
        let words = order.len();
        let mut new_of = vec![words; words + 1];
        order.iter().enumerate().for_each(|(new, &old)| new_of[old] = new);
        let with_start: Vec<usize> = order.iter().copied().chain([words]).collect();
        self.zipf = order.iter().map(|&old| self.zipf[old]).collect();
        self.cumulative_zipf = cumulative(&self.zipf);
        self.topic_of = order.iter().map(|&old| self.topic_of[old]).collect();
        self.successors = with_start
            .iter()
            .map(|&old| self.successors[old].map(|word| new_of[word]))
            .collect();
        self.closing = with_start.iter().map(|&old| self.closing[old]).collect();
        for habit in &mut self.habits {
            *habit = with_start
                .iter()
                .map(|&old| habit[old].map(|word| new_of[word]))
                .collect();
        }
        self.index_topics(self.topic_words.len());
    }

    pub(crate) fn word(&self, word: usize) -> &str {
        &self.names[word]
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Stands for the beginning of a sentence as preceding word.
    pub(crate) fn start(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn topics(&self) -> usize {
        self.topic_words.len()
    }

    pub(crate) fn draw_traits(&self, stream: &mut Stream) -> UserTraits {
        let topics = self.topics();
        let (first, second) = (stream.below(topics), stream.below(topics));
        let mut mixture = vec![TOPIC_FRACTIONS[2] / topics as f64; topics];
        mixture[first] += TOPIC_FRACTIONS[0];
        mixture[second] += TOPIC_FRACTIONS[1];
        UserTraits {
            topics: mixture,
            habit: stream.below(self.habits.len()),
        }
    }

    /// Probability that the sentence ends after `previous`, its `length`-th word.
    pub(crate) fn end_probability(&self, previous: usize, length: usize) -> f64 {
        if length < 2 {
            0.0
        } else if length >= self.longest_sentence {
            1.0
        } else {
            self.closing[previous]
        }
    }

    /// Probability of `word` in a sentence about `topic`, where neither habit nor successor is followed.
    pub(crate) fn topic_probability(&self, word: usize, topic: usize) -> f64 {
        let own = self.topic_of[word] == Some(topic);
        let topical = if own {
            self.zipf[word] / self.topic_weight[topic]
        } else {
            0.0
        };
        (1.0 - self.topic_strength) * self.zipf[word] + self.topic_strength * topical
    }

    /// Probability of `word` as one of the usual successors of `previous`.
    pub(crate) fn successor_probability(&self, previous: usize, word: usize) -> f64 {
        let position = self.successors[previous]
            .iter()
            .position(|&successor| successor == word);
        position.map_or(0.0, |position| SUCCESSOR_WEIGHTS[position])
    }

    pub(crate) fn draw_sentence(&self, traits: &UserTraits, stream: &mut Stream, sentence: &mut Vec<usize>) {
        sentence.clear();
        let topic = stream.pick(&cumulative(&traits.topics));
        let (topic_words, topic_edges) = &self.topic_words[topic];
        let mut previous = self.start();
        loop {
            if stream.uniform() < self.end_probability(previous, sentence.len()) {
                return;
            }
            let favourite = self.habits[traits.habit][previous];
            let word = match favourite {
                Some(word) if stream.uniform() < self.habit_strength => word,
                _ if stream.uniform() < self.successor_strength => {
                    self.successors[previous][stream.pick(&cumulative(&SUCCESSOR_WEIGHTS))]
                }
                _ if stream.uniform() < self.topic_strength => topic_words[stream.pick(topic_edges)],
                _ => stream.pick(&self.cumulative_zipf),
            };
            sentence.push(word);
            previous = word;
        }
    }
}

fn cumulative(weights: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

fn draw_distinct(stream: &mut Stream, cumulative: &[f64]) -> [usize; SUCCESSORS] {
    let mut drawn = [usize::MAX; SUCCESSORS];
    for position in 0..SUCCESSORS {
        drawn[position] = loop {
            let word = stream.pick(cumulative);
            if !drawn.contains(&word) {
                break word;
            }
        };
    }
    drawn
}

/// A pronounceable word for a number: syllables in base 80, short words first.
fn name(mut number: usize) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 5] = b"aeiou";
    let mut syllables = Vec::new();
    loop {
        let syllable = number % 80;
        syllables.push([CONSONANTS[syllable / 5], VOWELS[syllable % 5]]);
        match (number / 80).checked_sub(1) {
            Some(rest) => number = rest,
            None => break,
        }
    }
    syllables
        .iter()
        .rev()
        .flatten()
        .map(|&byte| char::from(byte))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn process() -> Process {
        Process::new(&SyntheticSource {
            words: 300,
            ..SyntheticSource::default()
        })
    }

    #[test]
    fn names_are_distinct() {
        let names: HashSet<String> = (0..20_000).map(name).collect();
        assert_eq!(names.len(), 20_000);
        assert_eq!(
            (name(0), name(79), name(80)),
            ("ba".to_owned(), "zu".to_owned(), "baba".to_owned())
        );
    }

    #[test]
    fn distributions_sum_to_one() {
        let process = process();
        for topic in 0..process.topics() {
            let total: f64 = (0..300).map(|word| process.topic_probability(word, topic)).sum();
            assert!((total - 1.0).abs() < 1e-9, "topic {topic}: {total}");
        }
        for previous in 0..=300 {
            let total: f64 = (0..300)
                .map(|word| process.successor_probability(previous, word))
                .sum();
            assert!((total - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn drawn_words_follow_the_stated_probabilities() {
        // First words of sentences by one user, against their exact distribution, by chi-square over the 8 most likely
        // words and the rest. The 1 - 1e-6 quantile of chi-square with 8 degrees of freedom is 42.7.
        let process = process();
        let mut stream = Stream::new("test", 4, 0);
        let traits = process.draw_traits(&mut stream);
        let start = process.start();
        let probability = |word: usize| {
            let topical: f64 = traits
                .topics
                .iter()
                .enumerate()
                .map(|(topic, fraction)| fraction * process.topic_probability(word, topic))
                .sum();
            let usual = process.successor_strength * process.successor_probability(start, word)
                + (1.0 - process.successor_strength) * topical;
            let favourite = f64::from(u8::from(process.habits[traits.habit][start] == Some(word)));
            process.habit_strength * favourite + (1.0 - process.habit_strength) * usual
        };
        let draws = 50_000;
        let mut counts = vec![0_u32; 300];
        let mut sentence = Vec::new();
        for _ in 0..draws {
            process.draw_sentence(&traits, &mut stream, &mut sentence);
            counts[sentence[0]] += 1;
        }
        let mut order: Vec<usize> = (0..300).collect();
        order.sort_by(|&a, &b| probability(b).total_cmp(&probability(a)));
        let cell = |words: &[usize]| {
            let expected: f64 = words.iter().map(|&word| probability(word)).sum::<f64>() * f64::from(draws);
            let got: u32 = words.iter().map(|&word| counts[word]).sum();
            (f64::from(got) - expected).powi(2) / expected
        };
        let statistic: f64 = order[..8].chunks(1).map(cell).sum::<f64>() + cell(&order[8..]);
        assert!(statistic < 42.7, "{statistic}");
    }
}
