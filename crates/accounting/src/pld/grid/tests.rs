use super::*;
use crate::{Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability, gaussian};

/// The curve of one Gaussian, at negative epsilons too: `1 - delta(-e) = e^-e (1 - delta(e))` as its losses are symmetric.
fn gaussian_delta(z: f64, epsilon: f64) -> f64 {
    let at = gaussian::delta(
        NoiseMultiplier::new(z).unwrap(),
        Epsilon::new(epsilon.abs()).unwrap(),
    );
    if epsilon >= 0.0 {
        at
    } else {
        1.0 - epsilon.exp() * (1.0 - at)
    }
}

fn gaussian_grid(z: f64, step: f64) -> GridPld {
    let reach = ((0.5 / z + 9.0) / z / step) as i64;
    let epsilons: Vec<i64> = (-reach..=reach).collect();
    let deltas: Vec<f64> = epsilons
        .iter()
        .map(|e| gaussian_delta(z, *e as f64 * step))
        .collect();
    GridPld::connect_the_dots(step, &epsilons, &deltas).unwrap()
}

/// A lower bound for randomised response, and an upper one.
fn response(step: f64, epsilon: f64, pessimistic: bool) -> GridPld {
    let truth = 1.0 / (1.0 + (-epsilon).exp());
    GridPld::rounded(
        step,
        &[epsilon, -epsilon],
        &[truth, 1.0 - truth],
        0.0,
        pessimistic,
    )
    .unwrap()
}

/// Delta of `rounds` randomised responses, summed over the number of true answers.
fn response_delta(epsilon: f64, rounds: u32, at: f64) -> f64 {
    let truth = 1.0 / (1.0 + (-epsilon).exp());
    let mut ways = 1.0;
    (0..=rounds)
        .map(|lies| {
            if lies > 0 {
                ways *= f64::from(rounds - lies + 1) / f64::from(lies);
            }
            let loss = epsilon * (f64::from(rounds) - 2.0 * f64::from(lies));
            let probability = ways * truth.powi((rounds - lies) as i32) * (1.0 - truth).powi(lies as i32);
            probability * -(at - loss).min(0.0).exp_m1()
        })
        .sum()
}

#[test]
fn chords_lie_above_the_curve_and_touch_it_on_the_grid() {
    for z in [0.7, 1.0, 3.0] {
        let grid = gaussian_grid(z, 1e-3);
        let total: f64 = grid.probabilities().iter().sum::<f64>() + grid.infinity();
        assert!((total - 1.0).abs() < 1e-10, "{total}");
        for epsilon in [-1.5, -0.2005, 0.0, 0.3, 1.0004, 2.5] {
            let (got, want) = (grid.delta(epsilon), gaussian_delta(z, epsilon));
            assert!(
                got > want - 1e-12 && got - want < 2e-7,
                "{z} {epsilon}: {got} {want}"
            );
        }
    }
}

#[test]
fn composed_gaussians_are_one_gaussian() {
    // 50 releases of noise 5 sqrt(2) are one of noise 1. Chords add at most `step^2 / 6` of variance to each release, which costs epsilon half
    // the tilt of about 6 for each unit of variance.
    let grid = gaussian_grid(50f64.sqrt(), 1e-3).self_compose(50, 1e-15).unwrap();
    for delta in [1e-2, 1e-6, 1e-9] {
        let want = gaussian::epsilon(NoiseMultiplier::new(1.0).unwrap(), Delta::new(delta).unwrap())
            .unwrap()
            .get();
        let got = grid.epsilon(delta);
        assert!(got > want - 1e-9 && got - want < 4e-5, "{delta}: {got} {want}");
    }
}

/// The engine of the accountants and the grid bound the same quantity from above, each from its own discretisation.
#[test]
fn sampled_gaussians_agree_with_the_engine() {
    let (q, z, rounds) = (0.05, 1.2, 40);
    let step = 1e-3;
    // The curve of the sampled Gaussian by the one without sampling: `q delta(ln(1 + (e^epsilon - 1) / q))`.
    let remove = |epsilon: f64| {
        let inner = 1.0 + epsilon.exp_m1() / q;
        if inner <= 0.0 {
            -epsilon.exp_m1()
        } else {
            q * gaussian_delta(z, inner.ln())
        }
    };
    // Adding a user: `delta(epsilon) = 1 - e^epsilon + e^epsilon` times removal's delta at `-epsilon`.
    let add = |epsilon: f64| (-epsilon.exp_m1() + epsilon.exp() * remove(-epsilon)).max(0.0);
    let epsilons: Vec<i64> = (-4000..=8000).collect();
    let mut largest: f64 = 0.0;
    for curve in [&remove as &dyn Fn(f64) -> f64, &add] {
        let mut deltas: Vec<f64> = epsilons
            .iter()
            .map(|e| curve(*e as f64 * step).clamp(0.0, 1.0))
            .collect();
        for index in 1..deltas.len() {
            deltas[index] = deltas[index].min(deltas[index - 1]);
        }
        let once = GridPld::connect_the_dots(step, &epsilons, &deltas).unwrap();
        largest = largest.max(once.self_compose(rounds, 1e-15).unwrap().epsilon(1e-6));
    }
    let mut accountant = Accountant::new(Recipe::Pld);
    let event = Event::PoissonGaussian {
        sampling_probability: SamplingProbability::new(q).unwrap(),
        noise_multiplier: NoiseMultiplier::new(z).unwrap(),
    };
    accountant.compose(&event, rounds).unwrap();
    let want = accountant
        .guarantee(Delta::new(1e-6).unwrap())
        .unwrap()
        .epsilon
        .get();
    assert!((largest - want).abs() < 2e-4, "{largest} {want}");
}

#[test]
#[ignore = "slow"]
fn rounded_responses_bracket_the_exact_delta() {
    for rounds in [1, 5, 12, 300] {
        let both = [true, false].map(|pessimistic| {
            response(1e-4, 0.3217, pessimistic)
                .self_compose(u64::from(rounds), 1e-14)
                .unwrap()
        });
        for epsilon in [0.0, 0.2, 0.9, 3.0] {
            let [above, below] = [0, 1].map(|index| both[index].delta(epsilon));
            let want = response_delta(0.3217, rounds, epsilon);
            assert!(
                below <= want + 1e-12 && want <= above + 1e-12,
                "{rounds} {epsilon}: {below} {want} {above}"
            );
            assert!(
                above - below < 1.1e-4 * f64::from(rounds),
                "{rounds} {epsilon}: {below} {above}"
            );
        }
    }
}

#[test]
fn compositions_agree_with_sums_over_pairs() {
    let first = GridPld::new(0.1, -3, vec![0.1, 0.0, 0.3, 0.2, 0.25], 0.15, true).unwrap();
    let second = GridPld::new(0.1, 1, vec![0.5, 0.3, 0.1], 0.1, true).unwrap();
    let both = first.compose(&second, 0.0).unwrap();
    for epsilon in [-2.0, -0.15, 0.0, 0.13, 0.2, 5.0] {
        let mut want = 1.0 - 0.85 * 0.9;
        for (i, p) in first.probabilities().iter().enumerate() {
            for (j, q) in second.probabilities().iter().enumerate() {
                let loss = 0.1 * (i as f64 + j as f64 - 2.0);
                want += p * q * -f64::exp_m1((epsilon - loss).min(0.0));
            }
        }
        assert!((both.delta(epsilon) - want).abs() < 1e-15);
        let without = first.delta_of_composition(&second, epsilon).unwrap();
        assert!((without - want).abs() < 1e-15);
        if want > both.infinity() + 1e-9 {
            assert!((both.epsilon(want) - epsilon).abs() < 1e-12, "{epsilon}");
        }
    }
    assert_eq!(both.epsilon(0.2), f64::INFINITY);
    assert_eq!(both.epsilon(1.0), f64::NEG_INFINITY);
}

#[test]
fn fourier_and_direct_convolutions_agree() {
    let values: Vec<f64> = (0..701u32).map(|i| f64::from(i * i % 89) / 31_000.0).collect();
    let mut want = vec![0.0; 2 * values.len() - 1];
    for (i, p) in values.iter().enumerate() {
        for (j, q) in values.iter().enumerate() {
            want[i + j] += p * q;
        }
    }
    let close = |got: &[f64]| {
        got.iter()
            .zip(&want)
            .all(|(got, want)| (got - want).abs() < 1e-16)
    };
    assert!(close(&convolve(&values, &values)));
    assert!(close(&self_convolve(&values, 2, 0, want.len() - 1)));
    // A window wraps what lies outside around and loses nothing.
    let window = self_convolve(&values, 2, 300, 999);
    let (all, kept): (f64, f64) = (want.iter().sum(), window.iter().sum());
    assert!((all - kept).abs() < 1e-12);
    assert!((window[200] - want[500] - want.get(1200).unwrap()).abs() < 1e-15);
}

#[test]
fn bounds_leave_out_no_more_than_the_tail() {
    let values: Vec<f64> = (0..40u32).map(|i| f64::from(1 + i % 7) / 157.0).collect();
    let total: f64 = values.iter().sum();
    let values: Vec<f64> = values.iter().map(|value| value / total).collect();
    let all = (1..30).fold(values.clone(), |sums, _| convolve(&sums, &values));
    for tail in [1e-3, 1e-6, 1e-10] {
        let (low, high) = self_convolution_bounds(&values, 30, tail, None);
        let (low, high) = (low as usize, high as usize);
        assert!(low > 0 && high < all.len() - 1);
        let below: f64 = all[..low].iter().sum();
        let above: f64 = all[high + 1..].iter().sum();
        assert!(below <= 0.5 * tail && above <= 0.5 * tail);
        // Chernoff's bound is no looser than this factor here.
        assert!(below > 1e-3 * tail && above > 1e-3 * tail, "{below} {above}");
    }
    assert_eq!(self_convolution_bounds(&values, 30, 0.0, None), (0, 30 * 39));
}

#[test]
fn cuts_stay_on_the_safe_side() {
    for pessimistic in [true, false] {
        let whole = GridPld::new(0.1, -5, vec![0.05, 0.3, 0.4, 0.15, 0.05], 0.05, pessimistic).unwrap();
        let unit = GridPld::new(0.1, 0, vec![1.0], 0.0, pessimistic).unwrap();
        let cut = whole.compose(&unit, 0.12).unwrap();
        assert_eq!(cut.probabilities().len(), 3);
        for epsilon in [-1.0, -0.5, -0.35, -0.1, 0.0, 1.0] {
            let (before, after) = (whole.delta(epsilon), cut.delta(epsilon));
            assert!(
                if pessimistic {
                    after >= before
                } else {
                    after <= before
                },
                "{epsilon}"
            );
        }
    }
}

#[test]
fn mixtures_weigh_deltas() {
    let first = response(0.01, 1.0, true);
    let second = response(0.01, 2.0, true);
    let mixed = first.mixture(&second, 0.3).unwrap();
    for epsilon in [-1.0, 0.0, 0.7, 1.5] {
        let want = 0.3 * first.delta(epsilon) + 0.7 * second.delta(epsilon);
        assert!((mixed.delta(epsilon) - want).abs() < 1e-14);
    }
    assert_eq!(first.mixture(&second, 1.0).unwrap(), first);
}

#[test]
fn hostile_input_is_refused() {
    let unit = |step: f64, pessimistic| GridPld::new(step, 0, vec![1.0], 0.0, pessimistic);
    assert!(unit(0.0, true).is_err() && unit(f64::NAN, true).is_err());
    assert!(GridPld::new(1.0, 0, vec![f64::NAN], 0.0, true).is_err());
    assert!(GridPld::new(1.0, i64::MAX, vec![1.0, 1.0], 0.0, true).is_err());
    assert!(GridPld::new(1.0, 0, vec![], -1.0, true).is_err());
    let (one, other) = (unit(1.0, true).unwrap(), unit(1.0, false).unwrap());
    assert!(matches!(
        one.compose(&other, 0.0),
        Err(GridError::Estimates { .. })
    ));
    let finer = unit(0.5, true).unwrap();
    assert!(matches!(one.compose(&finer, 0.0), Err(GridError::Steps { .. })));
    assert!(one.self_compose(0, 0.0).is_err() && one.compose(&one, f64::NAN).is_err());
    assert!(one.mixture(&one, 1.5).is_err());
    let far = GridPld::new(1.0, i64::MAX / 2, vec![1.0], 0.0, true).unwrap();
    assert!(far.self_compose(9, 0.0).is_err());
    assert!(matches!(
        one.mixture(&far, 0.5),
        Err(GridError::TooManyPoints { .. })
    ));
    let rounded = |losses: &[f64]| GridPld::rounded(1.0, losses, &[0.5, 0.5], 0.0, true);
    assert!(
        rounded(&[f64::NAN, 0.0]).is_err() && rounded(&[0.0]).is_err() && rounded(&[-1e300, 1e300]).is_err()
    );
    let dots = |epsilons: &[i64], deltas: &[f64]| GridPld::connect_the_dots(1.0, epsilons, deltas);
    assert!(matches!(dots(&[], &[]), Err(GridError::Lengths { .. })));
    assert!(matches!(
        dots(&[1, 1], &[0.5, 0.4]),
        Err(GridError::Unsorted { .. })
    ));
    assert!(matches!(
        dots(&[0, 1], &[0.4, 0.5]),
        Err(GridError::RisingDeltas { .. })
    ));
    assert!(matches!(
        dots(&[0, 1], &[f64::NAN, 0.5]),
        Err(GridError::OutOfRange { .. })
    ));
    // Points of no convex curve give a bound above them, and no negative probability.
    let bent = dots(&[0, 1], &[0.4, 0.1]).unwrap();
    assert!(bent.probabilities().iter().all(|value| *value >= 0.0) && bent.delta(0.0) >= 0.4);
}
