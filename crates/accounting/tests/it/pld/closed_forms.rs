//! Losses that take few values, closed forms and direct sums.

use super::*;

/// The loss of `rounds` answers is `(2k - rounds) l` with `k` binomial: exact sums.
fn two_losses(loss: f64, rounds: u64, kept: f64, delta: f64) -> f64 {
    let high = 1.0 / (1.0 + (-loss).exp());
    let mut masses = vec![1.0];
    for _ in 0..rounds {
        let mut next = vec![0.0; masses.len() + 1];
        for (index, mass) in masses.iter().enumerate() {
            next[index] += mass * (1.0 - high);
            next[index + 1] += mass * high;
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
#[ignore = "slow"]
fn laplace_matches_direct_convolution() {
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

fn range(epsilon: f64) -> Event {
    Event::BoundedRange {
        epsilon: Epsilon::new(epsilon).unwrap(),
    }
}

/// Dong, Durfee, Rogers (2020): among all `t`, the two-point pair with losses `t` and `t - epsilon` has at most the
/// divergence `(1 - e^{(x - epsilon) / 2})^2 / (1 - e^{-epsilon})` at `x`.
#[test]
#[ignore = "slow"]
fn one_release_of_bounded_range_has_its_curve() {
    for width in [0.1, 0.5, 2.0, 12.0] {
        let accountant = composed(Recipe::Pld, AddOrRemoveOne, &[(range(width), 1)]).unwrap();
        for share in [0.0, 0.3, 0.8] {
            let x = share * width;
            let exact = f64::exp_m1(0.5 * (x - width)).powi(2) / -f64::exp_m1(-width);
            let got = accountant
                .delta_for(Epsilon::new(x).unwrap())
                .unwrap()
                .delta
                .get();
            assert!(
                got >= exact * (1.0 - 1e-9) && got <= exact * (1.0 + 5e-3),
                "{width} {x}: {got} {exact}"
            );
        }
    }
}

#[test]
fn bounded_range_costs_less_than_the_same_epsilon() {
    let delta = 1e-6;
    for (width, rounds) in [(0.5, 10), (0.5, 100), (0.02, 1000)] {
        let of = |recipe, event: Event| by(recipe, AddOrRemoveOne, &[(event, rounds)], delta);
        let (pld, rdp) = (of(Recipe::Pld, range(width)), of(Recipe::Rdp, range(width)));
        let low = lower(AddOrRemoveOne, &range(width), rounds, delta);
        assert!(low <= pld, "{low} {pld}");
        let pure = of(Recipe::Pld, black_box(width, None));
        assert!(pld < pure && rdp < pure, "{pld} {rdp} {pure}");
        assert!(
            pld < of(Recipe::Pld, Event::Laplace { scale: 1.0 / width }),
            "{pld}"
        );
    }
    // A hundred releases cost a hundred times as much divergence; the bound of Cesar and Rogers (2021) is a little larger.
    let hundred = by(Recipe::Rdp, AddOrRemoveOne, &[(range(0.5), 100)], delta);
    let rho = undertone_accounting::Rho::new(100.0 * 0.5 * 0.5 / 8.0).unwrap();
    let concentrated = by(
        Recipe::Zcdp,
        AddOrRemoveOne,
        &[(Event::ZeroConcentrated { rho, xi: 0.0 }, 1)],
        delta,
    );
    close(concentrated, 15.327_529_574_8, 1e-9, "rho");
    assert!(
        hundred < concentrated && hundred > 0.97 * concentrated,
        "{hundred}"
    );
    assert_eq!(by(Recipe::Pld, AddOrRemoveOne, &[(range(0.0), 10)], delta), 0.0);
}

/// The delta of the events is set aside: what is left is that of the pure events.
#[test]
fn statements_with_a_delta_enter_renyi_accounting() {
    let (delta, own, rounds) = (1e-5, 1e-7, 20);
    let of = |recipe, event: Event, delta| {
        by(
            recipe,
            AddOrRemoveOne,
            &[(event, rounds), (poisson(0.1, 2.0), 50)],
            delta,
        )
    };
    let rdp = of(Recipe::Rdp, black_box(0.05, Some(own)), delta);
    let kept = (1.0 - own).powi(rounds as i32);
    close(
        rdp,
        of(Recipe::Rdp, black_box(0.05, None), (delta - (1.0 - kept)) / kept),
        1e-9,
        "the rest of delta",
    );
    at_most(
        of(Recipe::Pld, black_box(0.05, Some(own)), delta),
        rdp,
        "loss distributions",
    );
    let accountant = composed(
        Recipe::Rdp,
        AddOrRemoveOne,
        &[(black_box(0.05, Some(own)), rounds)],
    )
    .unwrap();
    let back = accountant
        .delta_for(Epsilon::new(0.4).unwrap())
        .unwrap()
        .delta
        .get();
    assert!(back > 1.0 - kept && back < 1.0);
    // No delta is left.
    assert!(accountant.guarantee(Delta::new(own).unwrap()).is_err());
    let alone = composed(Recipe::Rdp, AddOrRemoveOne, &[(black_box(0.0, Some(own)), 2)]).unwrap();
    assert!(alone.guarantee(Delta::new(own).unwrap()).is_err());
    assert_eq!(
        alone
            .guarantee(Delta::new(3.0 * own).unwrap())
            .unwrap()
            .epsilon
            .get(),
        0.0
    );
}

#[test]
fn approximate_concentration_adds_xi() {
    let rho = undertone_accounting::Rho::new(0.01).unwrap();
    let event = |xi| Event::ZeroConcentrated { rho, xi };
    for (recipe, slack) in [(Recipe::Zcdp, 1e-9), (Recipe::Rdp, 1e-9)] {
        let of = |xi| by(recipe, AddOrRemoveOne, &[(event(xi), 7)], 1e-6);
        close(of(0.02) - of(0.0), 0.14, slack, "xi");
        let accountant = composed(recipe, AddOrRemoveOne, &[(event(0.02), 7)]).unwrap();
        let there = accountant.guarantee(Delta::new(1e-6).unwrap()).unwrap().epsilon;
        close(
            accountant.delta_for(there).unwrap().delta.get(),
            1e-6,
            1e-6,
            "delta",
        );
    }
    let json = serde_json::to_string(&event(0.0)).unwrap();
    assert_eq!(json, r#"{"kind":"zero-concentrated","rho":0.01}"#);
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event(0.0));
    assert!(composed(Recipe::Zcdp, AddOrRemoveOne, &[(event(-1.0), 1)]).is_err());
}

#[test]
#[ignore = "slow"]
fn both_bounds_are_each_bound() {
    for (event, rounds) in [
        (poisson(0.01, 1.0), 1000),
        (poisson(0.3, 0.8), 1),
        (Event::Laplace { scale: 2.0 }, 40),
        (examples(8, 0.05, 3.0), 100),
        (gaussian(3.0), 10),
    ] {
        for recipe in [Recipe::Pld, Recipe::Rdp] {
            let accountant = composed(recipe, AddOrRemoveOne, &[(event.clone(), rounds)]).unwrap();
            let delta = Delta::new(1e-7).unwrap();
            let apart = (
                accountant.lower_bound(delta).unwrap(),
                accountant.guarantee(delta).unwrap().epsilon,
            );
            assert_eq!(accountant.bounds(delta).unwrap(), apart, "{event:?}");
        }
    }
}

/// Discrete noise beside other noise: no epsilon exceeds the sum of the pure ones, and beyond that sum nothing is left of delta.
#[test]
#[ignore = "slow"]
fn basic_composition_is_never_exceeded() {
    let discrete = Event::DiscreteLaplace {
        parameter: 0.64,
        sensitivity: 2,
    };
    let sampled = Event::PoissonSampled {
        sampling_probability: q(0.5),
        event: Box::new(Event::Laplace { scale: 2.0 }),
    };
    for (events, basic) in [
        (
            vec![(discrete.clone(), 6), (Event::Laplace { scale: 20.0 }, 1)],
            7.73,
        ),
        (
            vec![(discrete, 3), (sampled, 2)],
            3.0 * 1.28 + 2.0 * (0.5 * 0.5f64.exp_m1()).ln_1p(),
        ),
    ] {
        let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
        for delta in [1e-2, 1e-6, 1e-12, 1e-300] {
            let delta = Delta::new(delta).unwrap();
            let (low, high) = accountant.bounds(delta).unwrap();
            assert!(
                low <= high && high.get() <= basic * (1.0 + 1e-12),
                "{low:?} {high:?} {basic}"
            );
            let alone = accountant.guarantee(delta).unwrap().epsilon;
            assert!(alone.get() <= basic * (1.0 + 1e-12), "{alone:?}");
        }
        let beyond = accountant.delta_for(Epsilon::new(basic * (1.0 + 1e-9)).unwrap());
        assert!(beyond.unwrap().delta.get() < 1e-300);
    }
}

/// Truths by listing the outcomes of the discrete releases, with the divergence of Laplace noise for each (mpmath).
#[test]
#[ignore = "slow"]
fn discrete_noise_beside_other_noise_is_composed_closely() {
    let discrete = Event::DiscreteLaplace {
        parameter: 0.64,
        sensitivity: 2,
    };
    let events = [(discrete, 6), (Event::Laplace { scale: 20.0 }, 1)];
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &events).unwrap();
    for (delta, truth) in [
        (0.3, 4.243_901_890_941_45),
        (0.1, 6.031_025_774_639_45),
        (0.01, 7.544_270_865_817_99),
        (1e-6, 7.729_974_615_656_46),
    ] {
        let (low, high) = accountant.bounds(Delta::new(delta).unwrap()).unwrap();
        let (low, high) = (low.get(), high.get());
        assert!(
            low <= truth && truth <= high && high - low <= 1e-3 * truth,
            "{delta}: {low} {truth} {high}"
        );
    }
}

/// The divergence of Laplace noise is `1 - e^((epsilon - 1/b) / 2)`, and that of a Poisson sample `q` times that at `ln((e^epsilon - 1 + q) / q)`.
#[test]
#[ignore = "slow"]
fn one_sampled_laplace_release_has_its_closed_form() {
    for (scale, q, delta) in [
        (2.0, 0.1, 1e-3),
        (1.0, 0.5, 1e-6),
        (0.5, 0.01, 1e-4),
        (1.0, 1.0, 1e-9),
    ] {
        let inner = 1.0 / scale + 2.0 * f64::ln_1p(-delta / q);
        let want = (q * inner.exp_m1()).ln_1p();
        let sampled = Event::PoissonSampled {
            sampling_probability: SamplingProbability::new(q).unwrap(),
            event: Box::new(Event::Laplace { scale }),
        };
        let mut accountant = Accountant::new(Recipe::Pld);
        accountant.compose(&sampled, 1).unwrap();
        let (lower, upper) = accountant.bounds(Delta::new(delta).unwrap()).unwrap();
        let (lower, upper) = (lower.get(), upper.get());
        assert!(
            lower <= want && want <= upper,
            "{scale} {q} {delta}: {lower} {want} {upper}"
        );
        assert!(
            upper - lower <= 1e-4 * want,
            "{scale} {q} {delta}: {lower} {upper}"
        );
    }
}

/// One pair bounds all bounded ranges, but several releases together are better than its compositions: Renyi divergences show it, and
/// no lower bound may exceed them.
#[test]
#[ignore = "slow"]
fn no_lower_bound_of_bounded_ranges_exceeds_an_upper_one() {
    for (epsilon, rounds) in [(0.0148, 289), (0.35, 72), (1.5, 4), (0.04, 2), (3.5, 50)] {
        let event = Event::BoundedRange {
            epsilon: Epsilon::new(epsilon).unwrap(),
        };
        for delta in [1e-3, 1e-8] {
            let delta = Delta::new(delta).unwrap();
            let of = |recipe| composed(recipe, AddOrRemoveOne, &[(event.clone(), rounds)]).unwrap();
            let (low, high) = of(Recipe::Pld).bounds(delta).unwrap();
            let renyi = of(Recipe::Rdp).guarantee(delta).unwrap().epsilon;
            let best = high.get().min(renyi.get());
            assert!(
                low.get() <= best && low.get() >= 0.75 * best,
                "{epsilon} {rounds}: {low:?} {high:?} {renyi:?}"
            );
        }
    }
    // One release attains its pair.
    let event = Event::BoundedRange {
        epsilon: Epsilon::new(0.5).unwrap(),
    };
    let (low, high) = composed(Recipe::Pld, AddOrRemoveOne, &[(event, 1)])
        .unwrap()
        .bounds(Delta::new(1e-6).unwrap())
        .unwrap();
    assert!(low <= high && high.get() - low.get() < 1e-5, "{low:?} {high:?}");
}

#[test]
fn cohorts_that_are_cut_have_no_lower_bound() {
    let event = Event::TruncatedPoissonGaussian {
        population: 1000,
        sampling_probability: q(0.1),
        max_cohort_size: 120,
        noise_multiplier: NoiseMultiplier::new(1.0).unwrap(),
    };
    let accountant = composed(Recipe::Pld, AddOrRemoveOne, &[(event, 10)]).unwrap();
    let delta = Delta::new(1e-6).unwrap();
    assert!(accountant.guarantee(delta).is_ok());
    assert_eq!(
        accountant.lower_bound(delta).unwrap_err().to_string(),
        "lower bound: the loss distribution of a truncated-Poisson Gaussian event is itself an upper bound, so none is known from below"
    );
}
