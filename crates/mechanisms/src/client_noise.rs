//! Noise that each client adds before a secure sum, and the release of such a sum.

use undertone_accounting::Event;

use crate::error::{MechanismError, Result, ensure, positive};
use crate::release::NoisedAverage;

/// A decoded sum to which every client has already added its part of the noise.
///
/// PRIVACY: with too few clients there is too little noise in it, and only [`ClientNoise::release`] knows how many are
/// enough. So it has no `Debug` of its contents, no serialisation and no reader, and it is another type than
/// [`RawSum`](crate::RawSum), which has no noise in it at all and cannot come this way:
/// ```compile_fail,E0308
/// use undertone_mechanisms::{ClientNoise, RawSum};
/// fn release(noise: &ClientNoise) {
///     let _ = noise.release(RawSum::new(vec![1 << 40], 0), 1.0);
/// }
/// ```
/// ```compile_fail,E0277
/// println!("{:?}", undertone_mechanisms::ClientNoisedSum::new(vec![1.0], 3));
/// ```
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum that may have too little noise must not be printable"
)]
pub struct ClientNoisedSum {
    values: Vec<f32>,
    clients: u64,
}

impl ClientNoisedSum {
    /// The sum of the contributions of `clients`, each of which added its part of the noise. For decoders.
    #[must_use]
    pub fn new(values: Vec<f32>, clients: u64) -> Self {
        Self { values, clients }
    }
}

/// The noise that the clients add together: its event for the accountant, and the number of clients that it takes.
///
/// # Guarantee
/// A release is refused unless at least `min_clients` are in the sum, which the event counts on: the noise of clients
/// that dropped out is missing. Clients that add less noise than they claim are not noticed; choose the minimum so that
/// the honest clients reach it.
///
/// # Example
/// ```
/// use undertone_accounting::Event;
/// use undertone_mechanisms::{ClientNoise, ClientNoisedSum};
/// let event = Event::Skellam {
///     clip_norm: 1.0, granularity: 1e-3, dimension: 2, conditional_beta: 0.5, central_stddev: 1.0,
/// };
/// let noise = ClientNoise::new(event, 4, 10, 0.5)?;
/// assert!(noise.release(ClientNoisedSum::new(vec![1.0, 2.0], 3), 4.0).is_err());
/// let release = noise.release(ClientNoisedSum::new(vec![1.0, 2.0], 4), 4.0)?;
/// assert_eq!((release.values(), release.noise_std()), (&[0.25, 0.5][..], 0.25));
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ClientNoise {
    event: Event,
    min_clients: u64,
    max_clients: u64,
    share_std: f64,
}

impl ClientNoise {
    /// Noise of standard deviation `share_std` per client in every coordinate, in the unit of the updates. `event` is
    /// the event of one release when the noise of `min_clients` is in the sum.
    ///
    /// # Errors
    /// No clients, a minimum above the maximum, and a standard deviation that is not positive and finite.
    pub fn new(event: Event, min_clients: u64, max_clients: u64, share_std: f64) -> Result<Self> {
        let expected = "at least 1 and at most max_clients";
        let holds = (1..=max_clients).contains(&min_clients);
        ensure(holds, "min_clients", expected, min_clients as f64)?;
        let share_std = positive("share_std", share_std)?;
        Ok(Self {
            event,
            min_clients,
            max_clients,
            share_std,
        })
    }

    /// The event of one release.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Minimum number of clients, whose noise together is that of the event.
    #[must_use]
    pub fn min_clients(&self) -> u64 {
        self.min_clients
    }

    /// Standard deviation of one client's noise.
    #[must_use]
    pub fn share_std(&self) -> f64 {
        self.share_std
    }

    /// Divides by a constant and releases.
    ///
    /// # Errors
    /// [`MechanismError::WrongClients`] for a sum of fewer clients than the guarantee counts on, or of more than a sum
    /// may have; a denominator that is not positive and finite.
    pub fn release(&self, sum: ClientNoisedSum, denominator: f64) -> Result<NoisedAverage> {
        // PRIVACY: the one place where such a sum becomes readable.
        if !(self.min_clients..=self.max_clients).contains(&sum.clients) {
            return Err(MechanismError::WrongClients {
                min: self.min_clients,
                max: self.max_clients,
                got: sum.clients,
            });
        }
        let scale = positive("denominator", denominator)?.recip();
        let mut values = sum.values;
        values
            .iter_mut()
            .for_each(|value| *value = (f64::from(*value) * scale) as f32);
        let noise_std = self.share_std * (sum.clients as f64).sqrt() * scale;
        Ok(NoisedAverage::of_noised(values, noise_std))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::Gaussian {
            noise_multiplier: undertone_accounting::NoiseMultiplier::new(1.0).unwrap(),
        }
    }

    #[test]
    fn only_enough_clients_release() {
        let noise = ClientNoise::new(event(), 3, 5, 2.0).unwrap();
        for clients in 0..8 {
            let released = noise.release(ClientNoisedSum::new(vec![8.0], clients), 4.0);
            assert_eq!(released.is_ok(), (3..=5).contains(&clients), "{clients}");
            if let Ok(released) = released {
                assert_eq!(released.values(), [2.0]);
                assert!((released.noise_std() - (clients as f64).sqrt() / 2.0).abs() < 1e-15);
            } else {
                let message = released.unwrap_err().to_string();
                assert!(message.contains(&format!("of {clients} clients")), "{message}");
            }
        }
        assert!(noise.release(ClientNoisedSum::new(vec![8.0], 3), 0.0).is_err());
    }

    #[test]
    fn bad_settings_are_refused() {
        assert!(ClientNoise::new(event(), 0, 5, 1.0).is_err());
        assert!(ClientNoise::new(event(), 6, 5, 1.0).is_err());
        for std in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(ClientNoise::new(event(), 1, 5, std).is_err());
        }
    }
}
