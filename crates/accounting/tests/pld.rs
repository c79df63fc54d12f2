//! Privacy loss distributions through the public interface: what must hold for every input, closed forms, brute
//! force, and extreme input.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use undertone_accounting::{
    Accountant, AccountingError, Adjacency, Delta, Epsilon, Event, NoiseMultiplier, Recipe,
    SamplingProbability, calibrate,
};

use Adjacency::{AddOrRemoveOne, ReplaceOne};

/// Relative slack of comparisons between two upper bounds: each is within 5e-7 of the truth (plus quadrature).
const SLACK: f64 = 2e-5;

fn z(value: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(value).unwrap()
}

fn q(value: f64) -> SamplingProbability {
    SamplingProbability::new(value).unwrap()
}

fn poisson(probability: f64, noise: f64) -> Event {
    Event::PoissonGaussian {
        sampling_probability: q(probability),
        noise_multiplier: z(noise),
    }
}

fn gaussian(noise: f64) -> Event {
    Event::Gaussian {
        noise_multiplier: z(noise),
    }
}

fn examples(group_size: u32, probability: f64, noise: f64) -> Event {
    Event::ExampleLevelSampling {
        group_size,
        sampling_probability: q(probability),
        noise_multiplier: z(noise),
    }
}

fn mixture(noise: f64, sensitivities: &[f64], probabilities: &[f64]) -> Event {
    Event::MixtureOfGaussians {
        noise_multiplier: z(noise),
        sensitivities: sensitivities.to_vec(),
        probabilities: probabilities.to_vec(),
    }
}

fn truncated(population: u64, probability: f64, max_cohort_size: u64, noise: f64) -> Event {
    Event::TruncatedPoissonGaussian {
        population,
        sampling_probability: q(probability),
        max_cohort_size,
        noise_multiplier: z(noise),
    }
}

fn black_box(epsilon: f64, delta: Option<f64>) -> Event {
    Event::ApproximateDp {
        epsilon: Epsilon::new(epsilon).unwrap(),
        delta: delta.map(|delta| Delta::new(delta).unwrap()),
    }
}

fn composed(
    recipe: Recipe,
    adjacency: Adjacency,
    events: &[(Event, u64)],
) -> Result<Accountant, AccountingError> {
    let mut accountant = Accountant::under(recipe, adjacency);
    for (event, rounds) in events {
        accountant.compose(event, *rounds)?;
    }
    Ok(accountant)
}

fn by(recipe: Recipe, adjacency: Adjacency, events: &[(Event, u64)], delta: f64) -> f64 {
    let accountant = composed(recipe, adjacency, events).unwrap();
    let guarantee = accountant.guarantee(Delta::new(delta).unwrap()).unwrap();
    guarantee.epsilon.get()
}

/// The upper bound under add-or-remove.
fn upper(event: &Event, rounds: u64, delta: f64) -> f64 {
    by(Recipe::Pld, AddOrRemoveOne, &[(event.clone(), rounds)], delta)
}

fn lower(adjacency: Adjacency, event: &Event, rounds: u64, delta: f64) -> f64 {
    let accountant = composed(Recipe::Pld, adjacency, &[(event.clone(), rounds)]).unwrap();
    accountant.lower_bound(Delta::new(delta).unwrap()).unwrap().get()
}

fn close(got: f64, want: f64, relative: f64, what: &str) {
    assert!(
        (got - want).abs() <= relative * want.abs() + 1e-12,
        "{what}: {got}, not {want}"
    );
}

fn at_most(small: f64, large: f64, what: &str) {
    assert!(
        small <= large * (1.0 + SLACK) + 1e-12,
        "{what}: {small} > {large}"
    );
}

fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..high.ln()).prop_map(f64::exp)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn sampled_gaussians_are_monotone(
        probability in log_uniform(2e-3, 0.5),
        noise in log_uniform(0.5, 20.0),
        rounds in log_uniform(1.0, 2e4),
        log10_delta in -15.0f64..-2.0,
        more in 1.1f64..1.9,
    ) {
        let (rounds, delta) = (rounds as u64, 10f64.powf(log10_delta));
        let base = upper(&poisson(probability, noise), rounds, delta);
        at_most(base, upper(&poisson(probability * more, noise), rounds, delta), "q");
        at_most(base, upper(&poisson(probability, noise / more), rounds, delta), "1/z");
        at_most(base, upper(&poisson(probability, noise), (rounds as f64 * more).ceil() as u64, delta), "rounds");
        at_most(base, upper(&poisson(probability, noise), rounds, delta / more), "1/delta");
        at_most(base, by(Recipe::Rdp, AddOrRemoveOne, &[(poisson(probability, noise), rounds)], delta), "RDP");
        at_most(base, by(Recipe::Pld, ReplaceOne, &[(poisson(probability, noise), rounds)], delta), "replace-one");
        at_most(base, by(Recipe::ExactGaussian, AddOrRemoveOne, &[(gaussian(noise), rounds)], delta), "Gaussian");
    }

    #[test]
    fn splitting_and_ordering_change_nothing(
        first in 1u64..300,
        second in 1u64..300,
        noise in 0.7f64..4.0,
        probability in 0.01f64..0.3,
    ) {
        let (a, b) = (poisson(probability, noise), poisson(0.5 * probability, noise));
        let bits = |events: &[(Event, u64)]| by(Recipe::Pld, AddOrRemoveOne, events, 1e-7).to_bits();
        let whole = bits(&[(a.clone(), first + second), (b.clone(), 10)]);
        let parts = bits(&[(a.clone(), first), (b.clone(), 4), (a.clone(), second), (b.clone(), 6)]);
        prop_assert_eq!(whole, parts);
        // The same release under two names is two entries, and costs the same.
        let twice = [(a.clone(), first), (examples(1, probability, noise), second)];
        close(
            by(Recipe::Pld, AddOrRemoveOne, &twice, 1e-7),
            upper(&a, first + second, 1e-7),
            SLACK,
            "two entries",
        );
    }
}

/// Rounds around the powers of the radix of composition, against the exact Gaussian (`q` next to 1).
#[test]
fn gaussians_of_any_number_of_rounds() {
    for rounds in [1u64, 2, 15, 16, 17, 255, 256, 257, 4097] {
        for delta in [1e-6, 1e-30] {
            let noise = 3.0 * (rounds as f64).sqrt();
            let want = by(
                Recipe::ExactGaussian,
                AddOrRemoveOne,
                &[(gaussian(noise), rounds)],
                delta,
            );
            // Everything from one part, and from a mixture of one component, which is not merged beforehand.
            close(upper(&gaussian(noise), rounds, delta), want, 1e-9, "Gaussian");
            let got = upper(&mixture(noise, &[1.0], &[1.0]), rounds, delta);
            assert!(
                got >= want * (1.0 - 1e-9),
                "{rounds} {delta}: {got} is below {want}"
            );
            close(got, want, SLACK, "mixture of one");
        }
    }
}

/// Constants by inverting the characteristic function: `delta(eps) = 1/(2 pi i)` times the integral of
/// `e^{T K(s) - s eps} / (s (s + 1))` over a vertical line, `K(s) = ln E e^{s L}`.
#[test]
fn sampled_gaussians_at_small_deltas() {
    for (delta, want) in [
        (1e-6, 2.124_515_172),
        (1e-30, 9.341_895_639),
        (1e-100, 29.598_711_59),
    ] {
        let got = upper(&poisson(0.01, 1.0), 1000, delta);
        assert!(
            got >= want * (1.0 - 1e-9) && got <= want * (1.0 + 5e-6),
            "{delta:e}: {got}, not {want}"
        );
    }
}

#[test]
fn lower_bounds_are_close() {
    for (event, rounds, delta, gap) in [
        (poisson(0.01, 1.0), 1000, 1e-6, 1e-4),
        (poisson(0.01, 1.0), 1000, 1e-30, 1e-4),
        (poisson(0.3, 0.8), 16, 1e-9, 1e-4),
        (examples(8, 0.05, 3.0), 100, 1e-8, 1e-4),
        (truncated(1000, 0.02, 25, 1.5), 100, 1e-6, 1e-3),
        (Event::Laplace { scale: 2.0 }, 40, 1e-6, 1e-3),
        (
            Event::DiscreteGaussian {
                sigma: 5.0,
                sensitivity: 1,
            },
            40,
            1e-6,
            2e-3,
        ),
    ] {
        let (low, high) = (
            lower(AddOrRemoveOne, &event, rounds, delta),
            upper(&event, rounds, delta),
        );
        assert!(
            low <= high && high - low <= gap * high.max(1.0),
            "{event:?}: {low} {high}"
        );
    }
}

#[test]
fn special_cases_agree() {
    let delta = 1e-7;
    let same = |one: &Event, other: &Event, rounds: u64, what: &str| {
        for adjacency in [AddOrRemoveOne, ReplaceOne, Adjacency::ZeroOut] {
            let of = |event: &Event| by(Recipe::Pld, adjacency, &[(event.clone(), rounds)], delta);
            close(of(one), of(other), 1e-6, what);
        }
    };
    let sampled = poisson(0.1, 1.3);
    same(&examples(1, 0.1, 1.3), &sampled, 30, "group of one");
    same(
        &mixture(1.3, &[0.0, 1.0], &[0.9, 0.1]),
        &sampled,
        30,
        "mixture of two",
    );
    same(
        &mixture(13.0, &[10.0, 0.0], &[0.1, 0.9]),
        &sampled,
        30,
        "in other units",
    );
    let binomial = mixture(4.0, &[0.0, 1.0, 2.0, 3.0], &[0.512, 0.384, 0.096, 0.008]);
    same(&examples(3, 0.2, 4.0), &binomial, 20, "group of three");
    same(
        &poisson(1.0 - 1e-12, 3.0),
        &gaussian(3.0),
        20,
        "sampling next to everyone",
    );
}

#[test]
fn more_examples_of_a_user_cost_more() {
    let of = |group_size| upper(&examples(group_size, 0.02, 6.0), 200, 1e-6);
    let epsilons = [1, 2, 5, 20, 64].map(of);
    for pair in epsilons.windows(2) {
        assert!(pair[0] < pair[1], "{epsilons:?}");
    }
}

#[test]
fn truncation_vanishes_as_the_maximum_grows() {
    let of = |most| upper(&truncated(500, 0.02, most, 1.5), 100, 1e-6);
    let plain = upper(&poisson(0.02, 1.5), 100, 1e-6);
    let epsilons = [5, 10, 15, 25, 500].map(of);
    for pair in epsilons.windows(2) {
        at_most(pair[1], pair[0], "a larger maximum");
    }
    close(epsilons[4], plain, 1e-6, "no truncation");
    // Where every cohort is cut the user moves the sum by up to 2.
    at_most(epsilons[0], upper(&poisson(0.02, 0.75), 100, 1e-6), "always cut");
    assert!(epsilons[0] > 1.5 * plain, "{epsilons:?} {plain}");
}

/// The loss of `rounds` answers is `(2k - rounds) l` with `k` binomial: exact sums.
fn two_losses(loss: f64, rounds: u64, kept: f64, delta: f64) -> f64 {
    let most = 1.0 / (1.0 + (-loss).exp());
    let mut masses = vec![1.0];
    for _ in 0..rounds {
        let mut next = vec![0.0; masses.len() + 1];
        for (index, mass) in masses.iter().enumerate() {
            next[index] += mass * (1.0 - most);
            next[index + 1] += mass * most;
        }
        masses = next;
    }
    let divergence = |epsilon: f64| -> f64 {
        let finite: f64 = masses
            .iter()
            .enumerate()
            .map(|(wins, mass)| {
                mass * -(epsilon - (2.0 * wins as f64 - rounds as f64) * loss)
                    .exp_m1()
                    .min(0.0)
            })
            .sum();
        1.0 - kept + kept * finite
    };
    let (mut low, mut high) = (0.0, loss * rounds as f64);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if divergence(middle) > delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Kairouz, Oh, Viswanath (2017), Theorem 3.3, and randomised response, whose losses are two numbers.
#[test]
fn two_losses_compose_as_the_closed_form() {
    for (epsilon, delta, rounds, target) in [
        (0.5, 1e-6, 5, 1e-4),
        (0.1, 1e-8, 30, 1e-5),
        (2.0, 1e-5, 3, 1e-4),
        (1.0, 1e-6, 20, 1e-4),
        (0.3, 0.0, 12, 1e-3),
    ] {
        let want = two_losses(epsilon, rounds, (1.0f64 - delta).powi(rounds as i32), target);
        let event = black_box(epsilon, (delta > 0.0).then_some(delta));
        let got = upper(&event, rounds, target);
        at_most(want, got * (1.0 + 1e-9), "closed form");
        close(got, want, 5e-5, "closed form");
    }
    for rounds in [1, 2, 7, 100] {
        let event = Event::RandomizedResponse {
            num_buckets: 2,
            noise_parameter: 0.5,
        };
        let want = two_losses(3f64.ln(), rounds, 1.0, 1e-3);
        let got = by(Recipe::Pld, ReplaceOne, &[(event.clone(), rounds)], 1e-3);
        close(got, want, 5e-5, "randomised response");
        at_most(lower(ReplaceOne, &event, rounds, 1e-3), want, "lower bound");
    }
}

/// Constants by convolving the loss on a lattice of distance 1e-5.
#[test]
fn laplace_against_direct_convolution() {
    for (rounds, delta, want) in [
        (2, 1e-2, 1.959_997_36),
        (3, 1e-2, 2.921_500_62),
        (5, 1e-3, 4.968_731_98),
    ] {
        close(
            upper(&Event::Laplace { scale: 1.0 }, rounds, delta),
            want,
            1e-4,
            "Laplace",
        );
    }
    // One release: `1 - e^{(eps - 1/b) / 2}`.
    for delta in [1e-1f64, 1e-3, 1e-9] {
        let want = 0.5 + 2.0 * (-delta).ln_1p();
        close(
            upper(&Event::Laplace { scale: 2.0 }, 1, delta),
            want,
            1e-5,
            "one Laplace",
        );
    }
    let of = |scale| upper(&Event::Laplace { scale }, 30, 1e-6);
    let epsilons = [20.0, 5.0, 2.0, 1.0, 0.5].map(of);
    assert!(epsilons.windows(2).all(|pair| pair[0] < pair[1]), "{epsilons:?}");
    // Sampling everyone is no sampling.
    let sampled = Event::PoissonSampled {
        sampling_probability: q(1.0),
        event: Box::new(Event::Laplace { scale: 2.0 }),
    };
    close(upper(&sampled, 30, 1e-6), of(2.0), 1e-5, "sampling everyone");
}

/// The discrete Laplace of sensitivity 1 has two losses and nothing between.
#[test]
fn discrete_laplace_is_two_losses() {
    for rounds in [1, 4, 33] {
        let event = Event::DiscreteLaplace {
            parameter: 0.4,
            sensitivity: 1,
        };
        close(
            upper(&event, rounds, 1e-4),
            two_losses(0.4, rounds, 1.0, 1e-4),
            5e-5,
            "sensitivity 1",
        );
    }
}

#[test]
fn wide_discrete_gaussians_are_gaussians() {
    for (sigma, sensitivity, tolerance) in [(20.0, 2, 2e-3), (200.0, 20, 1e-4)] {
        let event = Event::DiscreteGaussian { sigma, sensitivity };
        let (got, want) = (upper(&event, 50, 1e-6), upper(&gaussian(10.0), 50, 1e-6));
        close(got, want, tolerance, "discrete Gaussian");
        let loose = by(Recipe::Zcdp, AddOrRemoveOne, &[(event, 50)], 1e-6);
        assert!(got < loose, "{got} {loose}");
    }
}

#[test]
fn recipes_are_ordered() {
    let events = [(gaussian(3.0), 7), (gaussian(5.0), 3)];
    let of = |recipe| by(recipe, AddOrRemoveOne, &events, 1e-8);
    let (exact, pld, zcdp, rdp) = (
        of(Recipe::ExactGaussian),
        of(Recipe::Pld),
        of(Recipe::Zcdp),
        of(Recipe::Rdp),
    );
    close(pld, exact, 1e-9, "Gaussians");
    assert!(exact < zcdp && zcdp <= rdp * (1.0 + 1e-9), "{exact} {zcdp} {rdp}");
}

#[test]
fn epsilon_and_delta_round_trip() {
    for (event, rounds, delta) in [
        (poisson(0.01, 1.0), 1000, 1e-6),
        (poisson(0.01, 1.0), 1, 1e-9),
        (poisson(1e-4, 0.8), 10_000, 1e-8),
        (gaussian(2.0), 9, 1e-40),
        (Event::Laplace { scale: 3.0 }, 25, 1e-5),
        (black_box(0.2, Some(1e-9)), 15, 1e-6),
    ] {
        let accountant = composed(Recipe::Pld, AddOrRemoveOne, &[(event.clone(), rounds)]).unwrap();
        let epsilon = accountant.guarantee(Delta::new(delta).unwrap()).unwrap().epsilon;
        let back = accountant.delta_for(epsilon).unwrap().delta;
        // Both are upper bounds: an error of 5e-7 in epsilon is one of 5e-7 epsilon tilt in delta.
        close(back.get(), delta, 2e-3, "delta");
    }
}

#[test]
fn trivial_targets() {
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &[(poisson(0.01, 2.0), 100)]).unwrap();
    let loose = Delta::new(1.0 - 1e-9).unwrap();
    assert_eq!(accountant.guarantee(loose).unwrap().epsilon.get(), 0.0);
    assert_eq!(accountant.lower_bound(loose).unwrap().get(), 0.0);
    let total_variation = accountant.delta_for(Epsilon::new(0.0).unwrap()).unwrap().delta;
    assert!(
        (0.005..0.05).contains(&total_variation.get()),
        "{total_variation}"
    );
    // Answers without information.
    let deaf = Event::RandomizedResponse {
        num_buckets: 4,
        noise_parameter: 1.0,
    };
    assert_eq!(by(Recipe::Pld, ReplaceOne, &[(deaf, 1000)], 1e-9), 0.0);
    assert_eq!(upper(&mixture(1.0, &[0.0], &[1.0]), 10, 1e-9), 0.0);
    let nothing = Accountant::new(Recipe::Pld);
    assert_eq!(nothing.guarantee(loose).unwrap().epsilon.get(), 0.0);
}

/// Each within a second or so, positive, and below the loosest bound there is.
#[test]
fn extreme_inputs() {
    for (event, rounds, delta) in [
        (poisson(0.01, 1.0), 1000, 1e-300),
        (poisson(1e-6, 1.0), 1_000_000, 1e-9),
        (poisson(1e-9, 1.0), 1_000_000, 1e-12),
        (poisson(0.01, 1e6), 1_000_000, 1e-6),
        (poisson(0.5, 0.1), 4097, 1e-6),
        (poisson(0.01, 0.1), 1000, 1e-6),
        (poisson(0.5, 1.0), 1 << 40, 1e-6),
        (Event::Laplace { scale: 1e3 }, 100, 1e-6),
    ] {
        let (tight, loose) = (
            upper(&event, rounds, delta),
            by(Recipe::Rdp, AddOrRemoveOne, &[(event.clone(), rounds)], delta),
        );
        assert!(tight > 0.0, "{event:?}");
        at_most(tight, loose, "RDP");
    }
    assert!(upper(&poisson(0.5, 0.1), 4097, 1e-6) > 709.0);
}

#[test]
fn bad_input_is_named() {
    let refused = |recipe, adjacency, event: &Event| {
        composed(recipe, adjacency, &[(event.clone(), 1)])
            .unwrap_err()
            .to_string()
    };
    let check = |event: &Event, message: &str| {
        assert_eq!(refused(Recipe::Pld, AddOrRemoveOne, event), message);
    };
    for (value, shown) in [(0.0, "0"), (1.5, "1.5"), (f64::NAN, "NaN"), (-0.1, "-0.1")] {
        assert_eq!(
            SamplingProbability::new(value).unwrap_err().to_string(),
            format!("sampling_probability: expected a number in (0, 1], got {shown}")
        );
    }
    assert_eq!(
        Delta::new(1.0).unwrap_err().to_string(),
        "delta: expected a number in (0, 1), got 1"
    );
    check(
        &mixture(1.0, &[0.0, 1.0], &[0.5, 0.4]),
        "probabilities: expected a sum of 1, got 0.9",
    );
    check(
        &mixture(1.0, &[0.0, 1.0], &[1.0]),
        "probabilities: expected one for each of the 2 sensitivities, and at least one, got 1",
    );
    check(
        &mixture(1.0, &[f64::NAN], &[1.0]),
        "sensitivities: expected finite numbers >= 0, got NaN",
    );
    check(
        &Event::Laplace { scale: f64::INFINITY },
        "scale: expected a finite number > 0, got inf",
    );
    check(
        &examples(0, 0.1, 1.0),
        "group_size: expected a finite number > 0, got 0",
    );
    check(
        &truncated(10, 0.1, 11, 1.0),
        "cohort_size: expected a number of users in [1, population], got 11 of a population of 10",
    );
    check(
        &Event::FixedSizeGaussian {
            population: 10,
            cohort_size: 2,
            noise_multiplier: z(1.0),
        },
        "adjacency: a fixed-size-cohort Gaussian event cannot be accounted for under 'add-or-remove one user'",
    );
    check(
        &Event::PoissonSampled {
            sampling_probability: q(0.5),
            event: Box::new(gaussian(1.0)),
        },
        "event: Poisson-sampled covers Laplace, discrete Laplace, discrete Gaussian and binomial events (sampled \
         Gaussians have an event of their own), got a Gaussian event inside",
    );
    for (recipe, event, part) in [
        (
            Recipe::ExactGaussian,
            poisson(0.1, 1.0),
            "'exact Gaussian' covers",
        ),
        (Recipe::Zcdp, poisson(0.1, 1.0), "'zCDP upper bound' covers"),
        (
            Recipe::Moments2016,
            Event::Laplace { scale: 1.0 },
            "'moments accountant of 2016' covers",
        ),
        (Recipe::Rdp, black_box(1.0, Some(1e-9)), "account for it by 'pld'"),
    ] {
        let message = refused(recipe, AddOrRemoveOne, &event);
        assert!(message.contains(part), "{message}");
    }
    let message = refused(Recipe::Pld, ReplaceOne, &truncated(10, 0.1, 5, 1.0));
    assert!(
        message.contains("truncated-Poisson Gaussian") && message.contains("'replace one user'"),
        "{message}"
    );
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &[(Event::NonPrivate, 1)]).unwrap();
    assert!(accountant.guarantee(Delta::new(0.1).unwrap()).is_err());
    let target = (Epsilon::new(1.0).unwrap(), Delta::new(1e-6).unwrap());
    assert_eq!(
        calibrate::noise_multiplier(target, q(0.1), 0, Recipe::Pld)
            .unwrap_err()
            .to_string(),
        "rounds: expected at least 1, got 0"
    );
}

#[test]
fn calibration_is_on_the_safe_side() {
    let delta = 1e-6;
    let target = |epsilon| (Epsilon::new(epsilon).unwrap(), Delta::new(delta).unwrap());
    let noise = |epsilon| {
        calibrate::noise_multiplier(target(epsilon), q(0.05), 50, Recipe::Pld)
            .unwrap()
            .get()
    };
    let (strict, lax) = (noise(0.5), noise(4.0));
    assert!(strict > lax, "{strict} {lax}");
    for (epsilon, value) in [(0.5, strict), (4.0, lax)] {
        assert!(upper(&poisson(0.05, value), 50, delta) <= epsilon);
        assert!(
            upper(&poisson(0.05, value * 0.999), 50, delta) > epsilon,
            "{value} is too much noise"
        );
    }
    let rounds = calibrate::rounds(target(1.0), q(0.05), z(2.0), Recipe::Pld).unwrap();
    assert!(
        upper(&poisson(0.05, 2.0), rounds, delta) <= 1.0
            && upper(&poisson(0.05, 2.0), rounds + 1, delta) > 1.0 - SLACK,
        "{rounds}"
    );
    let probability = calibrate::sampling_probability(target(1.0), z(1.0), 20, Recipe::Pld)
        .unwrap()
        .get();
    assert!(
        upper(&poisson(probability, 1.0), 20, delta) <= 1.0
            && upper(&poisson(probability * 1.001, 1.0), 20, delta) > 1.0,
        "{probability}"
    );
}

#[test]
fn groups_beyond_the_limit_are_refused() {
    let event = Event::ExampleLevelSampling {
        group_size: 65_537,
        sampling_probability: SamplingProbability::new(0.01).unwrap(),
        noise_multiplier: NoiseMultiplier::new(4.0).unwrap(),
    };
    let error = Accountant::new(Recipe::Pld).compose(&event, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "group_size: expected at most 65536 examples, got 65537"
    );
}
