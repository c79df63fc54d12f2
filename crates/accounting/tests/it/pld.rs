//! Privacy loss distributions through the public interface: what must hold for every input; beside it closed forms,
//! brute force, calibration, and extreme input.

mod calibration;
mod closed_forms;
mod input;

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
    #[ignore = "slow"]
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
    #[ignore = "slow"]
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
fn sampled_gaussians_stay_tight_at_small_deltas() {
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
#[ignore = "slow"]
fn lower_bounds_are_close() {
    for (event, rounds, delta, gap) in [
        (poisson(0.01, 1.0), 1000, 1e-6, 1e-4),
        (poisson(0.01, 1.0), 1000, 1e-30, 1e-4),
        (poisson(0.3, 0.8), 16, 1e-9, 1e-4),
        (examples(8, 0.05, 3.0), 100, 1e-8, 1e-4),
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
    let of = |max_count| upper(&truncated(500, 0.02, max_count, 1.5), 100, 1e-6);
    let plain = upper(&poisson(0.02, 1.5), 100, 1e-6);
    let epsilons = [12, 15, 25, 500].map(of);
    for pair in epsilons.windows(2) {
        at_most(pair[1], pair[0], "a larger maximum");
    }
    close(epsilons[3], plain, 1e-6, "no truncation");
    // Where every cohort is cut the user moves the sum by up to 2, and is kept the less often the more are cut.
    let cut = [1, 2, 5, 10].map(of);
    for pair in cut.windows(2) {
        at_most(pair[0], pair[1], "kept less often");
    }
    at_most(cut[3], upper(&poisson(0.02, 0.75), 100, 1e-6), "always cut");
    assert!(cut[3] > 1.5 * plain, "{cut:?} {plain}");
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
#[ignore = "slow"]
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
