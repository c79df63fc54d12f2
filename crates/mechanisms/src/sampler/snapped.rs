//! Gaussian noise on the integers, correct to the last grid step: the answer to attacks on floating-point noise.
//!
//! A sample is `round(steps * G)` with `G` standard normal: the ideal real Gaussian, rounded. Adding it to integers is
//! the same as adding the ideal Gaussian to them and rounding the sum, which is post-processing of the Gaussian mechanism.
//!
//! Rounding needs only as many correct digits as it takes to know which side of a half the sample is on (Ziv's
//! strategy). The uniform radius and angle behind a pair of samples are real numbers of which we draw as many bits as
//! needed; each level has an error bound that covers its arithmetic and all further bits, and a pair that lies within
//! the bound of a half goes on to the next level:
//!
//! | level | bits of radius and angle | arithmetic | error, standard deviations |
//! |---|---|---|---|
//! | `plain` | 64 each | `f64` | `(8 + 10 R) 2^-53`, about `2^-48.6` |
//! | `double_double` | 128 each | two `f64` | `2^-90` |
//! | `fixed` | 320 each | 384-bit fixed point | `2^-156` |
//!
//! What the last level cannot decide it rounds as it stands; that, and radii too close to zero for its bound, is all that
//! separates the distribution from the ideal one: see [`SnappedGaussian::total_variation_per_sample`].

mod double_double;
mod fixed;
mod plain;

use rayon::prelude::*;
use zeroize::Zeroize;

use self::double_double::{Bits, Samples};
use self::plain::Words;
use super::chacha20::{BLOCK_WORDS, Batch, KeyStream, LANES};
use super::distance::added_delta;
use super::fresh::Maker;
use super::uniform::{NoiseKey, Purpose, UniformStream};
use crate::error::{Result, ensure};

/// Pairs of samples in a block.
const PAIRS: usize = 2048;

/// Batches of ChaCha blocks behind one block of samples: four words of 32 bits per pair.
const BATCHES: usize = 4 * PAIRS / (LANES * BLOCK_WORDS);

/// Samples in a block; block `b` holds the samples from `b * BLOCK` on.
pub(crate) const BLOCK: usize = 2 * PAIRS;

/// Gaussian noise rounded to integers, indistinguishable from a rounded real Gaussian.
///
/// # Guarantee
/// Each sample is `round(steps * G)` with `G` standard normal, up to a total variation distance of
/// [`total_variation_per_sample`](Self::total_variation_per_sample), given ideal words from ChaCha20. For integers `x`,
/// `x + round(steps * G) = round(x + steps * G)`: a release is post-processing of the Gaussian mechanism with standard
/// deviation `steps` on the integers, for any `steps`, and its exact guarantee is the Gaussian one with
/// [`added_delta`](Self::added_delta) on top. What this does not cover is time: pairs that need more bits take longer.
///
/// # Source
/// Canonne, Kamath, Steinke 2020 and Mironov 2012 for why; the method is Ziv's, "Fast evaluation of elementary
/// mathematical functions with correctly rounded last bit", ACM TOMS 1991, on Box and Muller's transform.
///
/// # Example
/// ```
/// use undertone_mechanisms::{NoiseKey, SnappedGaussian};
///
/// let gaussian = SnappedGaussian::new(2f64.powi(40))?;
/// let mut noise = vec![0; 1000];
/// gaussian.fill(&NoiseKey::from_bytes([1; 32]), 0, &mut noise)?;
/// let variance = noise.iter().map(|&x| (x as f64 / gaussian.steps()).powi(2)).sum::<f64>() / 1000.0;
/// assert!((variance - 1.0).abs() < 0.3);
/// // A thousand rounds of a billion coordinates at epsilon 10.
/// assert!(gaussian.added_delta(10.0, 1_000_000_000_000) < 1e-16);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SnappedGaussian {
    steps: f64,
}

impl SnappedGaussian {
    /// Fewest steps that a standard deviation may span. Below, most samples are zero and other samplers do better.
    pub(crate) const MIN_STEPS: f64 = 1.0;

    /// Most steps that a standard deviation may span, so that the first level's samples stay below `2^51`.
    pub(crate) const MAX_STEPS: f64 = (1u64 << 48) as f64;

    /// Noise whose standard deviation, before rounding, is `steps` grid steps; any real number, not only whole ones.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) outside 1 to 2^48 steps.
    pub fn new(steps: f64) -> Result<Self> {
        let holds = (Self::MIN_STEPS..=Self::MAX_STEPS).contains(&steps);
        ensure(holds, "steps", "from 1 to 2^48", steps)?;
        Ok(Self { steps })
    }

    /// Standard deviation before rounding, in grid steps.
    #[must_use]
    pub fn steps(&self) -> f64 {
        self.steps
    }

    /// Bound on the total variation distance between one sample and a rounded real Gaussian: `2^-160 + steps 2^-154`.
    ///
    /// A rounding can be wrong only where `steps * G` is within `eta = steps 2^-156` of a half. Intervals of width
    /// `2 eta` around all halves hold at most `2 eta (1 + 0.4 / steps) < 4 eta` of a Gaussian with standard deviation
    /// `steps >= 1`. The `2^-160` are radii whose words start with 160 zeros.
    #[must_use]
    pub fn total_variation_per_sample(&self) -> f64 {
        0.5f64.powi(160) + self.steps * 0.5f64.powi(154)
    }

    /// The part of delta at this epsilon that `samples` samples in all add:
    /// `(1 + e^epsilon) * samples * total variation`.
    #[must_use]
    pub fn added_delta(&self, epsilon: f64, samples: u64) -> f64 {
        added_delta(samples as f64 * self.total_variation_per_sample(), epsilon)
    }

    /// Fills `out` with the samples of `round` from the first one on; always the same ones under one key.
    ///
    /// PRIVACY: a round's noise protects one release only.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round of `2^48` or more.
    pub fn fill(&self, key: &NoiseKey, round: u64, out: &mut [i64]) -> Result<()> {
        // An empty vector, too, is of a round that the key has to have.
        self.stream(key, round)?;
        out.par_chunks_mut(BLOCK).enumerate().try_for_each_init(
            || Maker::new(key),
            |maker, (block, out)| maker.fill(round, block, self.steps, out),
        )
    }

    /// The samples of one round, block by block in any order.
    pub(crate) fn stream<'a>(&self, key: &'a NoiseKey, round: u64) -> Result<SnappedStream<'a>> {
        Ok(SnappedStream {
            steps: self.steps,
            words: key.stream(Purpose::Snapped, round)?,
            refinement: key.stream(Purpose::SnappedRefinement, round)?,
        })
    }
}

/// The samples of one round.
#[derive(Clone, Copy)]
pub(crate) struct SnappedStream<'a> {
    steps: f64,
    words: UniformStream<'a>,
    refinement: UniformStream<'a>,
}

/// Scratch space for one block; reuse it across blocks.
pub(crate) struct Scratch {
    words: Box<[Batch; BATCHES]>,
    open: Box<[u64; PAIRS]>,
    pairs: Vec<usize>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            words: Box::new([[[0; LANES]; BLOCK_WORDS]; BATCHES]),
            open: Box::new([0; PAIRS]),
            pairs: Vec::with_capacity(PAIRS),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.words.as_flattened_mut().as_flattened_mut().zeroize();
    }
}

impl SnappedStream<'_> {
    /// Makes the samples of block `block`.
    pub(crate) fn fill_block(&self, block: u64, scratch: &mut Scratch, samples: &mut [i64; BLOCK]) {
        self.words
            .fill_batches(block * (BATCHES * LANES) as u64, &mut scratch.words[..]);
        let words = scratch.words.as_flattened().as_flattened();
        let (radius, angle) = words.split_at(2 * PAIRS);
        let words = Words {
            radius_high: &radius[..PAIRS],
            radius_low: &radius[PAIRS..],
            angle_high: &angle[..PAIRS],
            angle_low: &angle[PAIRS..],
        };
        let (cosines, sines) = samples.split_at_mut(PAIRS);
        if !plain::round_pairs(&words, self.steps, cosines, sines, &mut scratch.open[..]) {
            return;
        }
        scratch.pairs.clear();
        scratch
            .pairs
            .extend((0..PAIRS).filter(|&pair| scratch.open[pair] != 0));
        let refinement = self.refinement.key_stream();
        for pairs in scratch.pairs.chunks(LANES) {
            self.refine(&refinement, &words, block * PAIRS as u64, pairs, cosines, sines);
        }
    }

    /// Decides up to sixteen open pairs. The further bits of pair `p` of a round are those of ChaCha block `p` of the
    /// refinement stream: four words for the radius, four for the angle.
    fn refine(
        &self,
        refinement: &KeyStream,
        words: &Words<'_>,
        first_pair: u64,
        pairs: &[usize],
        cosines: &mut [i64],
        sines: &mut [i64],
    ) {
        let lane_pair = |lane: usize| pairs[lane.min(pairs.len() - 1)];
        let mut further: Batch = [[0; LANES]; BLOCK_WORDS];
        refinement.gather(
            &std::array::from_fn(|lane| first_pair + lane_pair(lane) as u64),
            &mut further,
        );
        let word = |index: usize, lane: usize| {
            u64::from(further[2 * index + 1][lane]) << 32 | u64::from(further[2 * index][lane])
        };
        let bits = Bits {
            radius: [
                std::array::from_fn(|lane| words.radius(lane_pair(lane))),
                std::array::from_fn(|lane| word(0, lane)),
            ],
            angle: [
                std::array::from_fn(|lane| words.angle(lane_pair(lane))),
                std::array::from_fn(|lane| word(4, lane)),
            ],
        };
        let mut samples = Samples {
            cosine: [[0.0; LANES]; 2],
            sine: [[0.0; LANES]; 2],
        };
        double_double::sixteen_pairs(&bits, self.steps, &mut samples);
        let margin = self.steps * double_double::ERROR;
        for (lane, &pair) in pairs.iter().enumerate() {
            let [cosine, sine] =
                [samples.cosine, samples.sine].map(|[high, low]| decide(high[lane], low[lane], margin));
            (cosines[pair], sines[pair]) = match (cosine, sine) {
                (Some(cosine), Some(sine)) if double_double::in_range(bits.radius[0][lane]) => (cosine, sine),
                _ => {
                    let all = |first: u64, from: usize| {
                        std::array::from_fn(|i| if i == 0 { first } else { word(from + i - 1, lane) })
                    };
                    let (radius, angle) = (all(bits.radius[0][lane], 0), all(bits.angle[0][lane], 4));
                    let [cosine, sine] =
                        fixed::pair(&radius, &angle).map(|sample| fixed::rounded(sample, self.steps));
                    (cosine, sine)
                }
            };
        }
        further.as_flattened_mut().zeroize();
    }
}

/// `high + low` rounded to an integer, unless it is within `margin` of a half.
fn decide(high: f64, low: f64, margin: f64) -> Option<i64> {
    let near = high.round_ties_even();
    let off = high - near;
    // Where it matters, close to a half, these differences are exact.
    let (above, below) = ((off - 0.5) + low, (off + 0.5) + low);
    if above.abs() <= margin || below.abs() <= margin || !(above + below).is_finite() {
        return None;
    }
    Some(near as i64 + i64::from(above > 0.0) - i64::from(below < 0.0))
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{
        check_counts, check_halves, check_independence, check_standard_normal, drawn, normal_cdf, scaled,
    };
    use super::*;
    use crate::testing::with_threads;

    fn samples(steps: f64, key: u8, round: u64, count: usize) -> Vec<i64> {
        let gaussian = SnappedGaussian::new(steps).unwrap();
        drawn(
            |key, round, out| gaussian.fill(key, round, out),
            (key, round),
            count,
        )
    }

    /// All bits of a pair, from the generator and by the document rather than by the code under test.
    fn bits(key: &NoiseKey, round: u64, pair: u64) -> ([u64; 5], [u64; 5]) {
        let words = key.stream(Purpose::Snapped, round).unwrap();
        let further = key.stream(Purpose::SnappedRefinement, round).unwrap();
        let (block, offset) = (pair / PAIRS as u64, (pair % PAIRS as u64) as usize);
        let mut batches = vec![[[0; LANES]; BLOCK_WORDS]; BATCHES];
        words.fill_batches(block * (BATCHES * LANES) as u64, &mut batches);
        let flat = batches.as_flattened().as_flattened();
        let word = |quarter: usize| u64::from(flat[quarter * PAIRS + offset]);
        let first = [word(0) << 32 | word(1), word(2) << 32 | word(3)];
        let all = |half: u64| {
            std::array::from_fn(|i| match i as u64 {
                0 => first[half as usize],
                i => further.word(8 * pair + 4 * half + i - 1),
            })
        };
        (all(0), all(1))
    }

    fn truth(key: &NoiseKey, round: u64, pair: u64, steps: f64) -> [i64; 2] {
        let (radius, angle) = bits(key, round, pair);
        fixed::pair(&radius, &angle).map(|sample| fixed::rounded(sample, steps))
    }

    #[test]
    fn every_sample_is_the_correct_rounding() {
        // From almost no pair refined to all of them.
        for (steps, pairs) in [
            (1.0, 40),
            (1024.5, 40),
            (2f64.powi(40) + 0.1, 300),
            (2f64.powi(48), 300),
        ] {
            let key = NoiseKey::from_bytes([11; 32]);
            let x = samples(steps, 11, 3, 2 * BLOCK);
            for pair in 0..pairs {
                // Pairs from all over both blocks.
                let pair = (pair * 997) % (2 * PAIRS as u64);
                let (block, offset) = (pair as usize / PAIRS, pair as usize % PAIRS);
                let made = [0, PAIRS].map(|half| x[block * BLOCK + half + offset]);
                assert_eq!(made, truth(&key, 3, pair, steps), "steps {steps}, pair {pair}");
            }
        }
    }

    #[test]
    fn refined_pairs_are_the_correct_rounding() {
        // The pairs that the first level leaves open at 2^40 steps, about 1 in 100, all against the third level.
        let steps = 2f64.powi(40);
        let key = NoiseKey::from_bytes([12; 32]);
        let x = samples(steps, 12, 0, 4 * BLOCK);
        let mut refined = 0;
        for pair in 0..4 * PAIRS as u64 {
            let (radius, angle) = bits(&key, 0, pair);
            let plain = plain::pair(radius[0], angle[0], steps);
            let distance = |value: f64| 0.5 - (value - value.round_ties_even()).abs();
            if plain.in_range && distance(plain.cosine).min(distance(plain.sine)) > plain.margin {
                continue;
            }
            refined += 1;
            let (block, offset) = (pair as usize / PAIRS, pair as usize % PAIRS);
            let made = [0, PAIRS].map(|half| x[block * BLOCK + half + offset]);
            assert_eq!(made, truth(&key, 0, pair, steps), "pair {pair}");
        }
        assert!((40..200).contains(&refined), "{refined} refined");
    }

    /// Errors of the first two levels against the third, relative to their bounds.
    fn errors(radius: [u64; 5], angle: [u64; 5]) -> (f64, f64) {
        let plain = plain::pair(radius[0], angle[0], 1.0);
        let bits = Bits {
            radius: [[radius[0]; LANES], [radius[1]; LANES]],
            angle: [[angle[0]; LANES], [angle[1]; LANES]],
        };
        let mut double = Samples {
            cosine: [[0.0; LANES]; 2],
            sine: [[0.0; LANES]; 2],
        };
        double_double::sixteen_pairs(&bits, 1.0, &mut double);
        let [cosine, sine] = fixed::pair(&radius, &angle);
        let first = cosine.0.distance(cosine.1, plain.cosine, 0.0).abs();
        let first = first.max(sine.0.distance(sine.1, plain.sine, 0.0).abs()) / plain.margin;
        let second = cosine
            .0
            .distance(cosine.1, double.cosine[0][0], double.cosine[1][0])
            .abs();
        let second = second.max(
            sine.0
                .distance(sine.1, double.sine[0][0], double.sine[1][0])
                .abs(),
        );
        (
            if plain.in_range { first } else { 0.0 },
            if double_double::in_range(radius[0]) {
                second / double_double::ERROR
            } else {
                0.0
            },
        )
    }

    #[test]
    fn errors_stay_within_their_bounds() {
        let key = NoiseKey::from_bytes([13; 32]);
        let uniform = key.stream(Purpose::Snapped, 0).unwrap();
        let mut worst = (0.0f64, 0.0f64);
        let mut check = |radius: [u64; 5], angle: [u64; 5]| {
            let (first, second) = errors(radius, angle);
            worst = (worst.0.max(first), worst.1.max(second));
            // The bounds hold with the margins that the derivations leave.
            assert!(
                first < 0.9 && second < 1.0 / 64.0,
                "{radius:x?} {angle:x?}: {first} {second}"
            );
        };
        let words = |from: u64| -> [u64; 5] { std::array::from_fn(|i| uniform.word(from + i as u64)) };
        for i in 0..1500 {
            let (mut radius, mut angle) = (words(10 * i), words(10 * i + 5));
            check(radius, angle);
            // Near zero, near one, near the seam and near the quarters' ends, with all further bits zero or one.
            let shift = i % 28;
            radius[0] = match i % 4 {
                0 => radius[0] >> shift,
                1 => !(radius[0] >> (2 * shift).min(49)),
                2 => plain::SEAM.wrapping_add((radius[0] >> 40).wrapping_sub(1 << 23)),
                _ => radius[0],
            };
            let fill = if i % 3 == 0 { 0 } else { u64::MAX };
            radius[1..].fill(fill);
            angle[1..].fill(!fill);
            angle[0] = (angle[0] & 7 << 61).wrapping_add((angle[0] as i64 >> (8 + 2 * shift)) as u64);
            check(radius, angle);
        }
        for radius in [
            1 << 52,
            1 << 36,
            !(1 << 40),
            !(1 << 14),
            plain::SEAM - 1,
            plain::SEAM,
            1 << 63,
        ] {
            for angle in [0, 1, 1 << 61, (1 << 61) - 1, 1 << 62, u64::MAX, 3 << 62, 5 << 61] {
                check([radius; 5], [angle; 5]);
                check(
                    [radius, 0, 0, 0, 0],
                    [angle, u64::MAX, u64::MAX, u64::MAX, u64::MAX],
                );
            }
        }
        // They are no looser than they have to be, either: the first decides how many pairs are refined.
        assert!(worst.0 > 0.1 && worst.1 > 1e-6, "{worst:?}");
    }

    #[test]
    fn halves_are_left_to_the_next_level() {
        let margin = 1e-20;
        assert_eq!(decide(2.5, 1e-19, margin), Some(3));
        assert_eq!(decide(2.5, -1e-19, margin), Some(2));
        assert_eq!(decide(3.5, -1e-19, margin), Some(3));
        assert_eq!(decide(-2.5, -1e-19, margin), Some(-3));
        assert_eq!(decide(-3.5, 1e-19, margin), Some(-3));
        assert_eq!(decide(2.5, 1e-21, margin), None);
        assert_eq!(decide(-2.5, -1e-21, margin), None);
        assert_eq!(decide(3.5, 0.0, margin), None);
        assert_eq!(decide(3.25, 0.0, margin), Some(3));
        assert_eq!(decide(f64::NAN, 0.0, margin), None);
    }

    #[test]
    fn bytes_do_not_depend_on_threads_or_length() {
        let steps = 2f64.powi(44);
        let run = |threads: usize, count: usize| with_threads(threads, || samples(steps, 2, 7, count));
        let one = run(1, 20_001);
        assert_eq!(one, run(2, 20_001));
        assert_eq!(one, run(3, 20_001));
        assert_eq!(one[..777], run(2, 777));
    }

    #[test]
    fn samples_follow_the_normal_on_any_grid() {
        let steps = 2f64.powi(36);
        check_standard_normal(&scaled(&samples(steps, 1, 0, 1 << 20), 0, steps));
        // Single integers, where the grid is coarse.
        for (steps, reach) in [(1.0, 6i64), (3.7, 25), (40.0, 250)] {
            let x = samples(steps, 2, 1, 1 << 18);
            let mut counts = vec![0; 2 * reach as usize + 1];
            for x in x {
                counts[(x.clamp(-reach, reach) + reach) as usize] += 1;
            }
            let below = |k: i64| normal_cdf((k as f64 + 0.5) / steps);
            let mass: Vec<f64> = (-reach..=reach).map(|k| below(k) - below(k - 1)).collect();
            check_counts(&counts, &mass);
        }
    }

    #[test]
    fn coordinates_rounds_and_keys_are_independent() {
        check_independence(|key, round| scaled(&samples(1e6, key, round, 1 << 18), 0, 1.0));
        check_halves(&scaled(&samples(1e6, 5, 0, BLOCK), 0, 1.0), BLOCK);
    }

    #[test]
    fn steps_are_checked_and_the_cost_is_stated() {
        for steps in [0.0, 0.5, 2f64.powi(49), f64::NAN, f64::INFINITY, -1.0] {
            assert!(SnappedGaussian::new(steps).is_err(), "{steps}");
        }
        let gaussian = SnappedGaussian::new(2f64.powi(40)).unwrap();
        assert!(gaussian.total_variation_per_sample() < 2f64.powi(-113));
        assert_eq!(
            gaussian.added_delta(0.0, 3),
            6.0 * gaussian.total_variation_per_sample()
        );
        assert_eq!(gaussian.added_delta(1e6, 0), 0.0);
        assert_eq!(gaussian.added_delta(1e6, 1), f64::INFINITY);
    }
}
