//! Trivial, extreme and bad input.

use super::*;

#[test]
fn trivial_targets_cost_no_epsilon() {
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
#[ignore = "slow"]
fn extreme_inputs_give_positive_epsilons_below_rdp() {
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
        (
            Recipe::Rdp,
            Event::Binomial {
                trials: 1000,
                success_probability: 0.5,
                shift: 1,
            },
            "use the recipe 'pld'",
        ),
    ] {
        let message = refused(recipe, AddOrRemoveOne, &event);
        assert!(message.contains(part), "{message}");
    }
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
