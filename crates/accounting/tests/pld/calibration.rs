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
fn sampling_for_a_tiny_epsilon() {
    let target = (Epsilon::new(1e-3).unwrap(), Delta::new(1e-6).unwrap());
    let probability = calibrate::sampling_probability(target, z(1.0), 1000, Recipe::Pld).unwrap();
    let at = |factor: f64| upper(&poisson(factor * probability.get(), 1.0), 1000, 1e-6);
    assert!(at(1.0) <= 1e-3 && at(1.0) >= 1e-3 * (1.0 - 2e-6), "{}", at(1.0));
    assert!(at(1.001) > 1e-3, "{}", at(1.001));
}
