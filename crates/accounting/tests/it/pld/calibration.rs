//! Calibration by loss distributions.

use super::*;

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

/// Renyi divergences say nothing about so small an epsilon: the search must not begin where they end.
#[test]
#[ignore = "slow"]
fn a_tiny_epsilon_is_met_by_sampling() {
    let target = (Epsilon::new(1e-3).unwrap(), Delta::new(1e-6).unwrap());
    let probability = calibrate::sampling_probability(target, z(1.0), 1000, Recipe::Pld).unwrap();
    let at = |factor: f64| upper(&poisson(factor * probability.get(), 1.0), 1000, 1e-6);
    assert!(at(1.0) <= 1e-3 && at(1.0) >= 1e-3 * (1.0 - 2e-6), "{}", at(1.0));
    assert!(at(1.001) > 1e-3, "{}", at(1.001));
}

#[test]
fn any_parameter_is_calibrated() {
    let target = (Epsilon::new(1.5).unwrap(), Delta::new(1e-6).unwrap());
    let range = |safe, risky, whole| calibrate::Range { safe, risky, whole };
    for recipe in [Recipe::Pld, Recipe::Rdp] {
        let by_noise = calibrate::noise_multiplier(target, q(0.02), 300, recipe)
            .unwrap()
            .get();
        let events = |noise: f64| {
            let noise_multiplier = NoiseMultiplier::new(noise)?;
            let event = Event::PoissonGaussian {
                sampling_probability: q(0.02),
                noise_multiplier,
            };
            Ok::<_, AccountingError>(vec![(event.clone(), 100), (event, 200)])
        };
        let found = calibrate::parameter(target, range(100.0, 0.01, false), recipe, None, events).unwrap();
        close(found, by_noise, 1e-5, "the noise multiplier");
        let rounds = |rounds: f64| Ok::<_, AccountingError>(vec![(poisson(0.02, 2.0), rounds as u64)]);
        let most = calibrate::rounds(target, q(0.02), z(2.0), recipe).unwrap();
        let found = calibrate::parameter(
            target,
            range(1.0, 1e6, true),
            recipe,
            Some(AddOrRemoveOne),
            rounds,
        )
        .unwrap();
        assert_eq!(found as u64, most);
    }
    let never = |_: f64| Ok::<_, AccountingError>(vec![(gaussian(0.1), 1)]);
    let missed = calibrate::parameter(target, range(2.0, 1.0, false), Recipe::ExactGaussian, None, never);
    assert!(matches!(missed, Err(AccountingError::Unreachable { .. })));
    let bad = calibrate::parameter(target, range(0.0, 1.0, false), Recipe::ExactGaussian, None, never);
    assert!(matches!(bad, Err(AccountingError::OutOfRange { .. })));
    // An error of the caller ends the search.
    #[derive(Debug, PartialEq)]
    enum Mine {
        Stop,
        Accounting,
    }
    impl From<AccountingError> for Mine {
        fn from(_: AccountingError) -> Self {
            Self::Accounting
        }
    }
    let stopped = calibrate::parameter(target, range(2.0, 1.0, false), Recipe::Pld, None, |_| {
        Err::<Vec<(Event, u64)>, _>(Mine::Stop)
    });
    assert_eq!(stopped, Err(Mine::Stop));
}
