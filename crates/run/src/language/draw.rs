//! The draw of one token from logits.

use std::f64::consts::LN_2;

use super::generate::GenerateOptions;
use super::predict::best;

/// Draws a token among those that `of` admits; `None` where it admits none.
///
/// The result is a function of the logits, the options and the key alone. The token is the one with the largest sum of logit over
/// temperature and Gumbel noise, which has the distribution of the softmax (Gumbel, 1954). Each token has noise of its own, which
/// follows from the key and the id. Slightly different logits under one key therefore give the same token nearly always, so that a
/// draft is seldom wrong (Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them", ICML 2019, section 2).
pub(super) fn draw(
    logits: &[f32],
    options: &GenerateOptions,
    key: u64,
    of: impl Fn(u32) -> bool,
) -> Option<u32> {
    let &GenerateOptions {
        temperature,
        top_k,
        top_p,
        ..
    } = options;
    if temperature == 0.0 {
        return best(logits, 1, of).first().map(|&(id, _)| id);
    }
    if top_k.is_none() && top_p >= 1.0 {
        let all = (0..).zip(logits.iter().copied()).filter(|&(id, _)| of(id));
        return noisiest(all, temperature, key);
    }
    let mut likely = match top_k {
        Some(count) => best(logits, count, of),
        None => (0..)
            .zip(logits.iter().copied())
            .filter(|&(id, _)| of(id))
            .collect(),
    };
    if top_p < 1.0 {
        likely = nucleus(&likely, options);
    }
    noisiest(likely.into_iter(), temperature, key)
}

fn weight(logit: f32, largest: f32, temperature: f64) -> f64 {
    ((f64::from(logit) - f64::from(largest)) / temperature).exp()
}

/// The likeliest candidates, up to the first at which their sum reaches `top_p` of the sum of all.
///
/// Where the distribution is flat, the nucleus is most of the vocabulary. So candidates are halved around the place in question and not
/// sorted, which takes a time proportional to their number.
fn nucleus(candidates: &[(u32, f32)], options: &GenerateOptions) -> Vec<(u32, f32)> {
    // Below this number a sort is faster.
    const FEW: usize = 32;
    let largest = candidates
        .iter()
        .fold(f32::NEG_INFINITY, |top, &(_, logit)| top.max(logit));
    let mut weighed: Vec<(f64, f32, u32)> = candidates
        .iter()
        .map(|&(id, logit)| (weight(logit, largest, options.temperature), logit, id))
        .collect();
    let by_likelihood = |a: &(f64, f32, u32), b: &(f64, f32, u32)| b.1.total_cmp(&a.1).then(a.2.cmp(&b.2));
    let sum_of = |part: &[(f64, f32, u32)]| part.iter().map(|&(weight, ..)| weight).sum::<f64>();
    let wanted = options.top_p * sum_of(&weighed);
    // The candidates before `from` are in the nucleus and have this sum. Those from `to` on are not.
    let (mut from, mut to, mut sum) = (0, weighed.len(), 0.0);
    while to - from > FEW {
        let half = (to - from) / 2;
        weighed[from..to].select_nth_unstable_by(half, by_likelihood);
        let likelier = sum_of(&weighed[from..from + half]);
        match sum + likelier < wanted {
            true => (from, sum) = (from + half, sum + likelier),
            false => to = from + half,
        }
    }
    weighed[from..to].sort_unstable_by(by_likelihood);
    let last = weighed[from..to].iter().position(|&(weight, ..)| {
        sum += weight;
        sum >= wanted
    });
    weighed.truncate(last.map_or(to, |last| from + last + 1));
    weighed.into_iter().map(|(_, logit, id)| (id, logit)).collect()
}

/// The candidate with the largest sum of logit over temperature and noise.
fn noisiest(candidates: impl Iterator<Item = (u32, f32)> + Clone, temperature: f64, key: u64) -> Option<u32> {
    let largest = candidates
        .clone()
        .fold(f32::NEG_INFINITY, |top, (_, logit)| top.max(logit));
    let mut top: Option<(u32, f64)> = None;
    for (id, logit) in candidates {
        let bits = noise_bits(key, id);
        let level = (f64::from(logit) - f64::from(largest)) / temperature;
        let bound = level + bound(bits);
        if top.is_none_or(|(_, highest)| bound > highest) {
            let score = level + gumbel(bits);
            if top.is_none_or(|(_, highest)| score > highest) {
                top = Some((id, score));
            }
        }
    }
    top.map(|(id, _)| id)
}

/// Uniform bits of a token: those of SplitMix64, started at the key (Steele, Lea and Flood, OOPSLA 2014).
fn noise_bits(key: u64, id: u32) -> u64 {
    let state = key.wrapping_add((u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// `-ln(-ln(1 - x))` for the uniform number `x` from 0 to 1 that the first 52 bits give, which is neither of them.
fn gumbel(bits: u64) -> f64 {
    let x = ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -(-(-x).ln_1p()).ln()
}

/// A number that [`gumbel`] does not exceed, without a logarithm: `-ln(1 - x)` is at least `x`, and `x` at least the power of two below.
fn bound(bits: u64) -> f64 {
    f64::from(bits.leading_zeros() + 1) * (LN_2 + 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(temperature: f64, top_k: Option<usize>, top_p: f64) -> GenerateOptions {
        GenerateOptions {
            temperature,
            top_k,
            top_p,
            ..GenerateOptions::default()
        }
    }

    fn keys(count: u32) -> impl Iterator<Item = u64> {
        (0..count).map(|number| noise_bits(17, number))
    }

    #[test]
    fn the_bound_holds_for_all_bits() {
        let edges = (0..64).flat_map(|shift| [1_u64 << shift, u64::MAX >> shift, (1 << shift) - 1]);
        for bits in edges.chain(keys(100_000)) {
            let value = gumbel(bits);
            assert!(value.is_finite() && value <= bound(bits), "{bits:#x}: {value}");
        }
    }

    /// The probabilities that the options leave, from their definition.
    fn expected(logits: &[f32], options: &GenerateOptions, of: impl Fn(u32) -> bool) -> Vec<f64> {
        let mut order: Vec<usize> = (0..logits.len()).filter(|&id| of(id as u32)).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        order.truncate(options.top_k.unwrap_or(order.len()));
        let weight = |id: usize| (f64::from(logits[id]) / options.temperature).exp();
        let total: f64 = order.iter().map(|&id| weight(id)).sum();
        let (mut all, mut sum) = (vec![0.0; logits.len()], 0.0);
        for id in order {
            if sum < options.top_p * total {
                all[id] = weight(id);
                sum += weight(id);
            }
        }
        all.iter().map(|weight| weight / sum).collect()
    }

    /// 200,000 draws per case against the definition, by a chi-squared test whose statistic has at most 199 degrees of freedom. Laurent
    /// and Massart (2000, lemma 1) bound it by 199 + 2 sqrt(199 x) + 2 x except with probability exp(-x). With x = 16 a case fails by
    /// chance with probability 1.2e-7, and one of the nine with 1.1e-6; the keys are fixed, so the test never changes its mind.
    #[test]
    #[ignore = "slow"]
    fn tokens_are_drawn_with_the_probabilities_of_the_softmax() {
        const DRAWS: u32 = 200_000;
        let logits: Vec<f32> = (0..200_u32).map(|id| (id * 37 % 200) as f32 / 60.0).collect();
        let of = |id: u32| id % 7 != 3;
        for (temperature, top_k, top_p) in [
            (1.0, None, 1.0),
            (0.4, None, 1.0),
            (2.0, None, 1.0),
            (1.0, Some(5), 1.0),
            (1.0, None, 0.7),
            (1.0, None, 0.999),
            (0.7, Some(40), 0.8),
            (1.0, Some(1), 1.0),
            (1.0, Some(500), 0.01),
        ] {
            let options = options(temperature, top_k, top_p);
            let expected = expected(&logits, &options, of);
            let mut counts = vec![0_u32; logits.len()];
            for key in keys(DRAWS) {
                counts[draw(&logits, &options, key, of).unwrap() as usize] += 1;
            }
            // Tokens that hardly ever come count together: a cell needs some draws for the approximation to hold.
            let (mut statistic, mut rare) = (0.0, (0.0, 0.0));
            let add =
                |statistic: &mut f64, count: f64, mean: f64| *statistic += (count - mean).powi(2) / mean;
            for (&count, &probability) in counts.iter().zip(&expected) {
                let (count, mean) = (f64::from(count), f64::from(DRAWS) * probability);
                assert!(
                    mean > 0.0 || count == 0.0,
                    "{options:?}: a token that cannot come"
                );
                match mean > 20.0 {
                    true => add(&mut statistic, count, mean),
                    false => rare = (rare.0 + count, rare.1 + mean),
                }
            }
            if rare.1 > 20.0 {
                add(&mut statistic, rare.0, rare.1);
            }
            assert!(
                statistic < 199.0 + 2.0 * (199.0_f64 * 16.0).sqrt() + 32.0,
                "{options:?}: {statistic}"
            );
        }
    }

    #[test]
    fn the_nucleus_of_a_large_vocabulary_is_that_of_its_definition() {
        let flat: Vec<f32> = (0..5000).map(|id| noise_bits(1, id) as f32 / 1e20).collect();
        let steep: Vec<f32> = (0..5000)
            .map(|id| (noise_bits(2, id) >> 50) as f32 / 300.0)
            .collect();
        let equal = vec![0.25f32; 5000];
        for logits in [flat, steep, equal] {
            for top_p in [1e-9, 0.1, 0.5, 0.9, 0.99, 0.999_999] {
                let options = options(0.8, None, top_p);
                let all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
                let mut kept: Vec<usize> = nucleus(&all, &options)
                    .iter()
                    .map(|&(id, _)| id as usize)
                    .collect();
                kept.sort_unstable();
                let expected = expected(&logits, &options, |_| true);
                let wanted: Vec<usize> = (0..expected.len()).filter(|&id| expected[id] > 0.0).collect();
                assert!(
                    kept.len().abs_diff(wanted.len()) <= 1,
                    "{top_p}: {} {}",
                    kept.len(),
                    wanted.len()
                );
                let shared = kept.iter().filter(|id| wanted.binary_search(id).is_ok()).count();
                assert_eq!(shared, kept.len().min(wanted.len()), "{top_p}");
            }
        }
    }

    #[test]
    fn slightly_different_logits_give_the_same_token_nearly_always() {
        let logits: Vec<f32> = (0..1000_u32).map(|id| (id * 389 % 1000) as f32 / 500.0).collect();
        let near: Vec<f32> = (0..)
            .zip(&logits)
            .map(|(id, x)| x + (id as f32).sin() / 100.0)
            .collect();
        for (top_k, top_p) in [(None, 1.0), (Some(50), 1.0), (None, 0.9)] {
            let options = options(1.0, top_k, top_p);
            let same = keys(2_000).filter(|&key| {
                draw(&logits, &options, key, |_| true) == draw(&near, &options, key, |_| true)
            });
            let same = same.count();
            assert!((1_900..2_000).contains(&same), "{same}");
        }
    }

    #[test]
    fn without_temperature_the_first_of_the_largest_logits_is_taken() {
        let logits = [0.5, 2.0, 3.0, 3.0, -1.0];
        for key in keys(9) {
            assert_eq!(draw(&logits, &options(0.0, None, 1.0), key, |_| true), Some(2));
            assert_eq!(
                draw(&logits, &options(0.0, Some(2), 0.5), key, |id| id != 2),
                Some(3)
            );
            assert_eq!(draw(&logits, &options(1.0, None, 1.0), key, |_| false), None);
            assert_eq!(draw(&logits, &options(1.0, Some(3), 0.5), key, |_| false), None);
        }
    }

    /// A temperature so small that quotients overflow still takes a largest logit.
    #[test]
    fn extreme_temperatures_draw_what_they_can() {
        for (temperature, top_p) in [(1e-308, 1.0), (1e-308, 0.9), (1e308, 1.0), (1e308, 0.9)] {
            for key in keys(9) {
                let drawn = draw(
                    &[1e30, 3e38, -3e38],
                    &options(temperature, None, top_p),
                    key,
                    |_| true,
                );
                assert!(
                    drawn == Some(1) || temperature > 1.0 && drawn.is_some(),
                    "{drawn:?}"
                );
            }
        }
    }
}
