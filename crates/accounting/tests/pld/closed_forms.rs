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
