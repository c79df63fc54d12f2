//! Events of different kinds together: closed forms, direct sums over outcomes, and basic composition.

use super::*;
use undertone_accounting::AccountingError::NoFiniteGuarantee;

const SEVERAL: [f64; 6] = [1e-2, 1e-4, 1e-6, 1e-8, 1e-30, 1e-300];

fn discrete_laplace(parameter: f64, sensitivity: u64) -> Event {
    Event::DiscreteLaplace {
        parameter,
        sensitivity,
    }
}

fn randomized_response(num_buckets: u64, noise_parameter: f64) -> Event {
    Event::RandomizedResponse {
        num_buckets,
        noise_parameter,
    }
}

fn laplace(scale: f64) -> Event {
    Event::Laplace { scale }
}

fn half(event: Event) -> Event {
    Event::PoissonSampled {
        sampling_probability: q(0.5),
        event: Box::new(event),
    }
}

/// The losses of discrete Laplace noise on a query that a neighbour moves by 2, with their probabilities.
fn three_losses(parameter: f64) -> Vec<(f64, f64)> {
    let r = (-parameter).exp();
    let (lump, peak) = (1.0 / (1.0 + r), (1.0 - r) / (1.0 + r));
    let loss = 2.0 * parameter;
    vec![(loss, lump), (0.0, peak * r), (-loss, lump * r * r)]
}

fn two_losses(loss: f64) -> Vec<(f64, f64)> {
    let high = 1.0 / (1.0 + (-loss).exp());
    vec![(loss, high), (-loss, 1.0 - high)]
}

/// All sums of `rounds` losses, with their probabilities.
fn sums(single: &[(f64, f64)], rounds: u64) -> Vec<(f64, f64)> {
    let mut all = vec![(0.0, 1.0)];
    for _ in 0..rounds {
        let mut next = cross(&all, single);
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Equal sums in other orders.
        all = Vec::new();
        for (loss, mass) in next {
            match all.last_mut() {
                Some((held, sum)) if *held - loss < 1e-12 => *sum += mass,
                _ => all.push((loss, mass)),
            }
        }
    }
    all
}

/// All sums of `rounds` losses of two values whose probability is not next to nothing.
fn binomial(loss: f64, rounds: u64) -> Vec<(f64, f64)> {
    let log_high = -(-loss).exp().ln_1p();
    let mut log_mass = rounds as f64 * log_high;
    let mut all = Vec::new();
    for lost in 0..=rounds {
        if log_mass > -70.0 {
            all.push(((rounds as f64 - 2.0 * lost as f64) * loss, log_mass.exp()));
        }
        log_mass += ((rounds - lost) as f64 / (lost + 1) as f64).ln() - loss;
    }
    all
}

fn cross(a: &[(f64, f64)], b: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let pairs = a
        .iter()
        .flat_map(|a| b.iter().map(move |b| (a.0 + b.0, a.1 * b.1)));
    pairs.collect()
}

/// The smallest epsilon at which a divergence that falls in epsilon is at most `delta`.
fn inverse(divergence: impl Fn(f64) -> f64, delta: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while divergence(high) > delta {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if divergence(middle) > delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The hockey-stick divergence at `epsilon` of losses, beside a further loss of the divergence `beside`.
fn divergence(losses: &[(f64, f64)], epsilon: f64, beside: impl Fn(f64) -> f64) -> f64 {
    losses
        .iter()
        .map(|(loss, mass)| mass * beside(epsilon - loss))
        .sum()
}

fn of_nothing(epsilon: f64) -> f64 {
    -epsilon.exp_m1().min(0.0)
}

/// The lower bound, and the upper one.
fn bounds(adjacency: Adjacency, events: &[(Event, u64)], delta: f64) -> (f64, f64) {
    let accountant = composed(Recipe::Pld, adjacency, events).unwrap();
    let (low, high) = accountant.bounds(Delta::new(delta).unwrap()).unwrap();
    (low.get(), high.get())
}

fn enclosed((low, high): (f64, f64), truth: f64, slack: f64, what: &str) {
    assert!(
        low <= truth * (1.0 + 1e-9) && truth <= high * (1.0 + 1e-9),
        "{what}: {low} {truth} {high}"
    );
    assert!(
        high <= truth * (1.0 + slack) && low >= truth * (1.0 - slack),
        "{what}: {low} {truth} {high}"
    );
}

/// One release of Laplace noise of scale `b` has the divergence `1 - e^{(eps - 1/b) / 2}` between `-1/b` and `1/b`.
#[test]
fn discrete_laplace_beside_laplace_is_the_closed_form() {
    let of_laplace = |epsilon: f64| {
        let end: f64 = 1.0 / 20.0;
        if epsilon < -end {
            -epsilon.exp_m1()
        } else {
            -(0.5 * (epsilon - end)).exp_m1().min(0.0)
        }
    };
    let losses = sums(&three_losses(0.64), 6);
    let events = [(discrete_laplace(0.64, 2), 6), (laplace(20.0), 1)];
    for delta in SEVERAL {
        let want = inverse(|epsilon| divergence(&losses, epsilon, of_laplace), delta);
        let (low, high) = bounds(AddOrRemoveOne, &events, delta);
        enclosed((low, high), want, 2e-5, &format!("{delta:e}"));
        assert!(high <= 6.0 * 1.28 + 0.05 + 1e-12, "{delta:e}: {high}");
        // And back.
        let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
        let back = accountant.delta_for(Epsilon::new(0.999 * want).unwrap()).unwrap();
        let want = divergence(&losses, 0.999 * want, of_laplace);
        close(back.delta.get(), want, 2e-3, "delta");
        at_most(want, back.delta.get(), "delta");
    }
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
    let pure = accountant
        .delta_for(Epsilon::new(7.730_000_001).unwrap())
        .unwrap();
    assert_eq!(pure.delta.get(), f64::MIN_POSITIVE);
}

/// By symmetry a Gaussian's divergence at `-eps` is `1 - e^-eps + e^-eps` times that at `eps`.
#[test]
fn discrete_laplace_beside_a_gaussian_is_the_closed_form() {
    let alone = composed(Recipe::ExactGaussian, AddOrRemoveOne, &[(gaussian(1.5), 1)]).unwrap();
    let of_gaussian = |epsilon: f64| {
        let at = |epsilon: f64| {
            let guarantee = alone.delta_for(Epsilon::new(epsilon).unwrap()).unwrap();
            guarantee.delta.get()
        };
        if epsilon >= 0.0 {
            at(epsilon)
        } else {
            -epsilon.exp_m1() + epsilon.exp() * at(-epsilon)
        }
    };
    for (parameter, rounds) in [(0.64, 6), (0.05, 3), (2.0, 2)] {
        let losses = sums(&three_losses(parameter), rounds);
        let events = [(discrete_laplace(parameter, 2), rounds), (gaussian(1.5), 1)];
        for delta in [1e-2, 1e-6, 1e-12, 1e-30] {
            let want = inverse(|epsilon| divergence(&losses, epsilon, of_gaussian), delta);
            let found = bounds(AddOrRemoveOne, &events, delta);
            enclosed(found, want, 2e-5, &format!("{parameter} {delta:e}"));
        }
    }
}

/// Losses on lattices that do not fit each other, each outcome listed.
#[test]
fn discrete_losses_of_different_gaps_are_as_listed() {
    let response = two_losses(3f64.ln());
    // Replacing a user moves an integer by 2 that adding one moves by 1.
    let few = [
        (discrete_laplace(0.32, 1), 4),
        (randomized_response(2, 0.5), 5),
        (discrete_laplace(1.1, 1), 2),
    ];
    let more = [
        (randomized_response(2, 0.5), 300),
        (discrete_laplace(0.01, 1), 280),
    ];
    let many = [(randomized_response(2, 0.5), 6000), (black_box(0.7, None), 6000)];
    let of = |parameter: f64, rounds| sums(&three_losses(parameter), rounds);
    let few_losses = cross(&cross(&of(0.32, 4), &sums(&response, 5)), &of(1.1, 2));
    let more_losses = cross(&sums(&response, 300), &of(0.01, 280));
    let many_losses = cross(&binomial(3f64.ln(), 6000), &binomial(0.7, 6000));
    for (events, losses, slack) in [
        (&few[..], few_losses, 1e-9),
        (&more[..], more_losses, 1e-8),
        // Too many values: on a common lattice.
        (&many[..], many_losses, 5e-5),
    ] {
        for delta in [1e-3, 1e-6, 1e-12] {
            let want = inverse(|epsilon| divergence(&losses, epsilon, of_nothing), delta);
            let found = bounds(ReplaceOne, events, delta);
            enclosed(found, want, slack, &format!("{} values, {delta:e}", losses.len()));
        }
    }
}

/// Sampled discrete noise has losses that lie on no lattice.
#[test]
fn sampled_discrete_losses_are_exact() {
    let sampled: Vec<(f64, f64)> = three_losses(0.9)
        .into_iter()
        .map(|(loss, mass): (f64, f64)| (0.5 * (1.0 + loss.exp()), mass * (-loss).exp()))
        .map(|(ratio, other)| (ratio.ln(), other * ratio))
        .collect();
    let reversed: Vec<(f64, f64)> = sampled
        .iter()
        .map(|(loss, mass)| (-loss, mass * (-loss).exp()))
        .collect();
    for rounds in [1, 3, 20] {
        let directions = [sums(&sampled, rounds), sums(&reversed, rounds)];
        for delta in [1e-2, 1e-5, 1e-20] {
            let want = directions
                .iter()
                .map(|losses| inverse(|epsilon| divergence(losses, epsilon, of_nothing), delta))
                .fold(0.0, f64::max);
            let found = bounds(AddOrRemoveOne, &[(half(discrete_laplace(0.9, 2)), rounds)], delta);
            enclosed(found, want, 1e-9, &format!("{rounds} {delta:e}"));
        }
    }
}

/// Constants by composing the two mixtures on a grid of 3e-5.
#[test]
fn few_releases_of_several_kinds_are_finer() {
    let events = [
        (mixture(1.5, &[0.0, 1.0], &[0.5, 0.5]), 4),
        (mixture(2.0, &[0.0, 1.0, 2.0], &[0.25, 0.5, 0.25]), 3),
    ];
    let high = by(Recipe::Pld, AddOrRemoveOne, &events, 1e-6);
    close(high, 6.934_114_338, 1e-7, "epsilon");
    assert!(high >= 6.934_114_33, "{high}");
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
    let delta = accountant.delta_for(Epsilon::new(8.0).unwrap()).unwrap().delta;
    close(delta.get(), 3.994_481_64e-8, 2e-6, "delta");
}

#[test]
fn infinite_losses_still_spend_delta() {
    let events = [(discrete_laplace(0.64, 2), 6), (black_box(0.1, Some(1e-6)), 3)];
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
    let refused = accountant.guarantee(Delta::new(2e-6).unwrap());
    assert!(matches!(refused, Err(NoFiniteGuarantee { .. })), "{refused:?}");
    let high = by(Recipe::Pld, AddOrRemoveOne, &events, 1e-5);
    assert!(high > 7.0 && high < 6.0 * 1.28 + 0.3, "{high}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn basic_composition_is_never_exceeded(
        counts in prop::collection::vec(0u64..12, 7),
        parameter in log_uniform(0.01, 3.0),
        scale in log_uniform(0.3, 50.0),
        log10_delta in -300.0f64..-1.0,
        exponent in 0.1f64..1.0,
    ) {
        prop_assume!(counts.iter().any(|count| *count > 0));
        // Half of the cases at deltas that people use.
        let delta = 10f64.powf(if exponent < 0.5 { log10_delta } else { log10_delta / 30.0 });
        let sampled = |epsilon: f64| (0.5 * epsilon.exp_m1()).ln_1p();
        let pure = [
            (discrete_laplace(parameter, 2), 2.0 * parameter),
            (discrete_laplace(0.7 * parameter, 1), 0.7 * parameter),
            (laplace(scale), 1.0 / scale),
            (half(laplace(scale)), sampled(1.0 / scale)),
            (half(discrete_laplace(parameter, 3)), sampled(3.0 * parameter)),
            (black_box(exponent, None), exponent),
            (Event::BoundedRange { epsilon: Epsilon::new(0.3 * exponent).unwrap() }, 0.3 * exponent),
        ];
        // The lower bound knows little of losses in a narrow range.
        let narrow = pure[6].1 * counts[6] as f64;
        let basic: f64 = pure.iter().zip(&counts).map(|((_, epsilon), count)| epsilon * *count as f64).sum();
        let events: Vec<(Event, u64)> =
            pure.into_iter().zip(&counts).map(|((event, _), count)| (event, *count)).collect();
        let (low, high) = bounds(AddOrRemoveOne, &events, delta);
        prop_assert!(low <= high, "{} {}", low, high);
        prop_assert!(high <= basic * (1.0 + 1e-12), "{} {}", high, basic);
        prop_assert!(high - low <= 2e-3 * basic + narrow, "{} {} {}", low, high, basic);
        // At a delta next to nothing, the sum is the truth.
        let (low, high) = bounds(AddOrRemoveOne, &events, 1e-300);
        prop_assert!(high <= basic * (1.0 + 1e-12), "{} {}", high, basic);
        prop_assert!(low >= 0.99 * basic - narrow && low <= high, "{} {} {}", low, high, basic);
        // More rounds cost no less.
        let mut more = events;
        more[0].1 += 1;
        at_most(high, bounds(AddOrRemoveOne, &more, 1e-300).1, "rounds");
    }
}
