//! Properties that hold for every input, and the divergence against brute force.

use proptest::prelude::*;
use undertone_accounting::{
    Accountant, AccountingError, Adjacency, Delta, Epsilon, Event, Guarantee, NoiseMultiplier, Recipe,
    Sampling, SamplingProbability, calibrate, rdp,
};

fn poisson(q: f64, z: f64) -> Event {
    Event::PoissonGaussian {
        sampling_probability: SamplingProbability::new(q).unwrap(),
        noise_multiplier: NoiseMultiplier::new(z).unwrap(),
    }
}

fn fixed(population: u64, cohort_size: u64, z: f64) -> Event {
    Event::FixedSizeGaussian {
        population,
        cohort_size,
        noise_multiplier: NoiseMultiplier::new(z).unwrap(),
    }
}

fn account(recipe: Recipe, events: &[(Event, u64)], delta: f64) -> Result<Guarantee, AccountingError> {
    let mut accountant = Accountant::new(recipe);
    for (event, rounds) in events {
        accountant.compose(event, *rounds)?;
    }
    accountant.guarantee(Delta::new(delta).unwrap())
}

fn epsilon(recipe: Recipe, q: f64, z: f64, rounds: u64, delta: f64) -> f64 {
    account(recipe, &[(poisson(q, z), rounds)], delta)
        .unwrap()
        .epsilon
        .get()
}

fn recipes() -> impl Strategy<Value = Recipe> {
    prop_oneof![Just(Recipe::Moments2016), Just(Recipe::Rdp)]
}

fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..high.ln()).prop_map(f64::exp)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn epsilon_is_monotone(
        recipe in recipes(),
        q in log_uniform(1e-6, 0.5),
        z in log_uniform(0.4, 20.0),
        rounds in 1u64..100_000,
        log10_delta in -20.0f64..-2.0,
        more in 1.0f64..1.9,
    ) {
        let delta = 10f64.powf(log10_delta);
        let base = epsilon(recipe, q, z, rounds, delta);
        let slack = base * 1e-9 + 1e-12;
        prop_assert!(epsilon(recipe, q * more, z, rounds, delta) >= base - slack, "q");
        prop_assert!(epsilon(recipe, q, z / more, rounds, delta) >= base - slack, "1/z");
        prop_assert!(epsilon(recipe, q, z, (rounds as f64 * more) as u64, delta) >= base - slack, "rounds");
        prop_assert!(epsilon(recipe, q, z, rounds, delta / more) >= base - slack, "1/delta");
    }

    #[test]
    fn order_and_grouping_of_rounds_do_not_matter(
        schedule in prop::collection::vec((1usize..4, 1usize..4, 1u64..50), 1..12),
        rotate in 0usize..12,
    ) {
        let events: Vec<_> =
            schedule.iter().map(|&(q, z, n)| (poisson(0.01 * q as f64, z as f64), n)).collect();
        let mut turned = events.clone();
        turned.rotate_left(rotate % events.len());
        let one_by_one: Vec<_> =
            events.iter().rev().flat_map(|(e, n)| vec![(e.clone(), 1); *n as usize]).collect();
        let want = account(Recipe::Rdp, &events, 1e-6).unwrap();
        prop_assert_eq!(account(Recipe::Rdp, &turned, 1e-6).unwrap(), want);
        prop_assert_eq!(account(Recipe::Rdp, &one_by_one, 1e-6).unwrap(), want);
    }

    #[test]
    fn delta_and_epsilon_are_inverse(
        q in log_uniform(1e-5, 1.0),
        z in log_uniform(0.5, 10.0),
        rounds in 1u64..10_000,
    ) {
        for recipe in [Recipe::Moments2016, Recipe::Rdp] {
            let mut accountant = Accountant::new(recipe);
            accountant.compose(&poisson(q, z), rounds).unwrap();
            let there = accountant.guarantee(Delta::new(1e-8).unwrap()).unwrap();
            if there.epsilon.get() > 0.0 {
                let back = accountant.delta_for(there.epsilon).unwrap();
                prop_assert!(back.delta.get() <= 1e-8 * (1.0 + 1e-6), "{back:?}");
            }
        }
    }

    #[test]
    fn extremes_are_finite_or_a_typed_error(
        q in prop_oneof![Just(1e-300), Just(1e-9), Just(0.5), Just(1.0 - f64::EPSILON), Just(1.0)],
        z in prop_oneof![Just(1e-300), Just(1e-9), Just(0.01), Just(0.3), Just(1e4), Just(1e9), Just(1e300)],
        rounds in prop_oneof![Just(1u64), Just(1_000_000_000), Just(1 << 53)],
        delta in prop_oneof![Just(1e-300), Just(1e-9), Just(0.999)],
        recipe in recipes(),
    ) {
        match account(recipe, &[(poisson(q, z), rounds)], delta) {
            Ok(guarantee) => prop_assert!(guarantee.epsilon.get().is_finite()),
            Err(AccountingError::NoFiniteGuarantee { .. }) => prop_assert!(z < 1e-3),
            Err(other) => prop_assert!(false, "{other}"),
        }
        match account(Recipe::Rdp, &[(fixed(1_000_000_000, 7, z), rounds)], delta) {
            Ok(guarantee) => prop_assert!(guarantee.epsilon.get().is_finite()),
            Err(AccountingError::NoFiniteGuarantee { .. }) => prop_assert!(z < 1e-3),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

/// Simpson's rule on the definition, in the linear domain: nothing shared with the crate.
fn brute_force(q: f64, z: f64, order: f64) -> f64 {
    let (low, high, pieces) = (-14.0 * z, order + 14.0 * z, 200_000);
    let width = (high - low) / f64::from(pieces);
    let integrand = |x: f64| {
        let density = (-0.5 * (x / z).powi(2)).exp() / (z * (2.0 * std::f64::consts::PI).sqrt());
        density * (1.0 - q + q * ((2.0 * x - 1.0) / (2.0 * z * z)).exp()).powf(order)
    };
    let total: f64 = (0..=pieces)
        .map(|k| {
            let weight = if k == 0 || k == pieces {
                1.0
            } else if k % 2 == 1 {
                4.0
            } else {
                2.0
            };
            weight * integrand(low + f64::from(k) * width)
        })
        .sum();
    (total * width / 3.0).ln() / (order - 1.0)
}

#[test]
fn divergences_are_tight_against_brute_force() {
    // (q, z, order, relative excess allowed): integer orders are exact, fractional ones bounds from above.
    let cases = [
        (0.01, 1.0, 2.0, 1e-9),
        (0.01, 1.0, 8.0, 1e-9),
        (0.3, 0.7, 3.0, 1e-9),
        (0.3, 2.0, 16.0, 1e-9),
        (0.9, 4.0, 5.0, 1e-9),
        (0.01, 1.1, 4.7, 1e-5),
        (0.05, 0.6, 2.2, 4e-3),
        (0.1, 0.7, 1.5, 0.15),
        (0.5, 2.0, 1.1, 1.0),
        (0.5, 2.0, 1.5, 0.4),
        (0.2, 0.2, 1.1, 1e-3),
        (0.999, 1.0, 1.3, 1e-2),
        // Here ln A is below 1e-9 and the positive integral is used: the excess is brute force's own
        // rounding.
        (1e-4, 10.0, 3.7, 2e-3),
        (1e-5, 1.0, 1.5, 1e-2),
    ];
    for (q, z, order, excess) in cases {
        let (got, want) = (
            rdp::curve(&poisson(q, z), &[order]).unwrap()[0],
            brute_force(q, z, order),
        );
        let noise = 1e-13 / (order - 1.0);
        assert!(
            got >= want * (1.0 - 1e-9) - noise,
            "q {q} z {z} order {order}: {got} < {want}"
        );
        assert!(
            got <= want * (1.0 + excess) + noise,
            "q {q} z {z} order {order}: {got} > {want}"
        );
    }
}

#[test]
fn tiny_divergences_keep_their_digits() {
    // To leading order in q the divergence of order a is a q^2 (e^{1/z^2} - 1) / 2.
    for order in [1.1, 1.5, 2.0, 2.5, 8.0, 10.9] {
        let got = rdp::curve(&poisson(1e-12, 2.0), &[order]).unwrap()[0];
        let want = 0.5 * order * 1e-24 * 0.25f64.exp_m1();
        assert!((got / want - 1.0).abs() < 1e-6, "order {order}: {got} {want}");
    }
}

/// The fixed-size bound at order 2 has a closed form.
#[test]
fn fixed_size_closed_form_at_order_two() {
    for (population, cohort, z) in [(1000, 50, 2.0), (10, 1, 0.5), (1_000_000, 3, 100.0)] {
        let q = cohort as f64 / population as f64;
        let growth = (1.0f64 / (z * z)).exp();
        let want = (q * q * (4.0 * (1.0f64 / (z * z)).exp_m1()).min(2.0 * growth)).ln_1p();
        let got = rdp::curve(&fixed(population, cohort, z), &[2.0]).unwrap()[0];
        assert!(
            (got / want - 1.0).abs() < 1e-11,
            "{population} {cohort} {z}: {got} {want}"
        );
    }
}

/// The whole population as the cohort is a plain Gaussian, and the bound never falls with the order.
#[test]
fn fixed_size_divergence_never_falls_with_the_order() {
    let full = rdp::curve(&fixed(10, 10, 2.0), &[2.0, 8.0]).unwrap();
    assert_eq!(full, [0.25, 1.0]);
    for z in [0.3, 1.0, 5.0, 100.0] {
        let curve = rdp::curve(&fixed(10_000, 20, z), &rdp::default_orders()).unwrap();
        assert!(
            curve.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-9)),
            "z {z}: {curve:?}"
        );
    }
}

#[test]
fn full_participation_is_the_plain_gaussian() {
    let z = NoiseMultiplier::new(7.0).unwrap();
    for recipe in [Recipe::Moments2016, Recipe::Rdp, Recipe::ExactGaussian] {
        let plain = account(recipe, &[(Event::Gaussian { noise_multiplier: z }, 20)], 1e-10).unwrap();
        let sampled = account(recipe, &[(poisson(1.0, 7.0), 20)], 1e-10).unwrap();
        assert_eq!(plain, sampled);
        assert_eq!(plain.sampling, Sampling::FullParticipation);
    }
    let exact = account(Recipe::ExactGaussian, &[(poisson(1.0, 7.0), 20)], 1e-20).unwrap();
    assert!(
        (exact.epsilon.get() - 5.932_309_086_335_458).abs() < 1e-9,
        "{exact:?}"
    ); // mpmath, 60 digits
}

#[test]
fn schemes_do_not_mix() {
    let check = |events: &[(Event, u64)], recipe, message: &str| {
        assert_eq!(account(recipe, events, 1e-6).unwrap_err().to_string(), message);
    };
    let (sampled, cohort) = ((poisson(0.01, 1.0), 1), (fixed(100, 10, 1.0), 1));
    check(
        &[sampled.clone(), cohort.clone()],
        Recipe::Rdp,
        "adjacency: the events so far are for 'add-or-remove one user', got an event for 'replace one user'; events \
         of two relations cannot be composed, so account for them separately",
    );
    check(
        std::slice::from_ref(&cohort),
        Recipe::Moments2016,
        "recipe: 'moments accountant of 2016' covers Poisson-sampled and plain Gaussians under \
         add-or-remove, got a fixed-size-cohort Gaussian event",
    );
    check(
        std::slice::from_ref(&sampled),
        Recipe::ExactGaussian,
        "recipe: 'exact Gaussian' covers Gaussians that every user takes part in, got a \
         Poisson-sampled Gaussian event",
    );
    check(
        &[sampled, (Event::NonPrivate, 1)],
        Recipe::Rdp,
        "guarantee: no finite guarantee exists, because a release without noise was composed; give it noise or leave it out",
    );
    check(
        &[(fixed(10, 11, 1.0), 1)],
        Recipe::Rdp,
        "cohort_size: expected a number of users in [1, population], got 11 of a population of 10",
    );
    check(
        &[(poisson(0.1, 1.0), u64::MAX)],
        Recipe::Rdp,
        "rounds: expected at most 2^53 in total, got 0 + 18446744073709551615",
    );
    let replace = account(Recipe::Rdp, &[cohort], 1e-6).unwrap();
    assert_eq!(
        (replace.adjacency, replace.sampling),
        (Adjacency::ReplaceOne, Sampling::FixedSize)
    );
}

#[test]
fn nothing_composed_costs_nothing_and_a_refused_event_changes_nothing() {
    let mut accountant = Accountant::new(Recipe::Rdp);
    let delta = Delta::new(1e-6).unwrap();
    assert_eq!(accountant.guarantee(delta).unwrap().epsilon.get(), 0.0);
    accountant.compose(&poisson(0.01, 1.0), 10).unwrap();
    let before = accountant.guarantee(delta).unwrap();
    assert!(accountant.compose(&fixed(10, 1, 1.0), 1).is_err());
    accountant.compose(&poisson(0.5, 1.0), 0).unwrap();
    assert_eq!(accountant.guarantee(delta).unwrap(), before);
    assert_eq!(accountant.rounds(), 10);
}

#[test]
fn edge_of_the_grid_is_reported() {
    let wide = account(Recipe::Rdp, &[(poisson(1e-6, 50.0), 10)], 1e-9).unwrap();
    assert!(wide.optimal_order.unwrap().at_edge, "{wide:?}");
    let usual = account(Recipe::Rdp, &[(poisson(0.01, 1.0), 1000)], 1e-6).unwrap();
    assert!(!usual.optimal_order.unwrap().at_edge, "{usual:?}");
    assert!(Accountant::with_orders(vec![]).is_err());
    assert!(Accountant::with_orders(vec![2.0, 1.0]).is_err());
    let mut custom = Accountant::with_orders(vec![4096.0, 2.0]).unwrap();
    custom.compose(&poisson(1e-6, 50.0), 10).unwrap();
    let tighter = custom.guarantee(Delta::new(1e-9).unwrap()).unwrap();
    assert!(tighter.epsilon < wide.epsilon);
}

#[test]
fn calibration_is_on_the_safe_side_and_next_to_the_target() {
    let target = |epsilon, delta| (Epsilon::new(epsilon).unwrap(), Delta::new(delta).unwrap());
    let cases = [
        (Recipe::Rdp, 0.01, 1000, 2.0, 1e-6),
        (Recipe::Rdp, 1.0, 1, 0.1, 1e-9),
        (Recipe::Rdp, 1e-5, 1_000_000, 0.5, 1e-12),
        (Recipe::Rdp, 0.3, 100, 50.0, 1e-3),
        (Recipe::Moments2016, 0.01, 3000, 4.0, 1e-9),
        (Recipe::ExactGaussian, 1.0, 2000, 8.0, 1e-10),
    ];
    for (recipe, q, steps, eps, delta) in cases {
        let q = SamplingProbability::new(q).unwrap();
        let z = calibrate::noise_multiplier(target(eps, delta), q, steps, recipe).unwrap();
        let at = |z: f64| epsilon(recipe, q.get(), z, steps, delta);
        assert!(at(z.get()) <= eps, "{recipe} {z}");
        assert!(at(z.get() * (1.0 - 1e-6)) > eps, "{recipe} {z}");

        let rounds = calibrate::rounds(target(eps, delta), q, z, recipe).unwrap();
        assert!(rounds >= steps && epsilon(recipe, q.get(), z.get(), rounds, delta) <= eps);
        assert!(epsilon(recipe, q.get(), z.get(), rounds + 1, delta) > eps);

        if recipe != Recipe::ExactGaussian && q.get() < 1.0 {
            let back = calibrate::sampling_probability(target(eps, delta), z, steps, recipe).unwrap();
            assert!((back.get() / q.get() - 1.0).abs() < 1e-5, "{recipe}: {back} {q}");
            assert!(epsilon(recipe, back.get(), z.get(), steps, delta) <= eps);
        }
    }
}

#[test]
fn unreachable_targets_say_what_is_reachable() {
    let target = (Epsilon::new(0.1).unwrap(), Delta::new(1e-9).unwrap());
    let q = SamplingProbability::new(0.01).unwrap();
    let error = calibrate::noise_multiplier(target, q, 100, Recipe::Moments2016)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!(
            "noise_multiplier: the target (epsilon = 0.1, delta = 1e-9) is out of reach; the smallest \
             reachable epsilon is {} at noise_multiplier = 1000000000000",
            1e9f64.ln() / 32.0
        )
    );
    let error = calibrate::noise_multiplier(target, q, 0, Recipe::Rdp)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "rounds: expected at least 1, got 0");
    let z = NoiseMultiplier::new(0.5).unwrap();
    let error = calibrate::rounds(target, q, z, Recipe::Rdp).unwrap_err();
    assert!(
        matches!(
            error,
            AccountingError::Unreachable {
                quantity: "rounds",
                at: 1.0,
                ..
            }
        ),
        "{error}"
    );
    let error = calibrate::sampling_probability(target, z, 100, Recipe::Moments2016).unwrap_err();
    assert!(
        matches!(
            error,
            AccountingError::Unreachable {
                quantity: "sampling_probability",
                ..
            }
        ),
        "{error}"
    );
    // A recipe that cannot account for the event says so, rather than "unreachable".
    let error = calibrate::noise_multiplier(target, q, 100, Recipe::ExactGaussian).unwrap_err();
    assert!(
        matches!(error, AccountingError::UnsupportedEvent { .. }),
        "{error}"
    );
}
