//! The encoding of a plan: the same integers as those of the service.

use undertone_aggregation::{Encoding, EncodingConfig, EncodingSize, Modulus};

use crate::error::Refusal;

/// The values of a plan that an encoding depends on, beside its rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EncodingInputs {
    /// Coordinates, clip norm, and numbers of clients.
    pub size: EncodingSize,
    /// The modulus of the plan.
    pub modulus: u64,
    /// Number of coordinates after padding.
    pub length: u64,
    /// The planned noise multiplier.
    pub noise_multiplier: f64,
    /// The planned delta.
    pub delta: f64,
    /// Max number of participations of one subject.
    pub max_part: u32,
}

/// Builds the encoding of a plan with exactly the modulus of the plan.
///
/// The plan's modulus may be wider than the encoding needs, since the service makes room for its noise.
///
/// # Errors
/// [`Refusal::Value`] for a modulus that is too small for the honest sum or that no room for noise gives. It is also the error for another padded
/// length, and for settings outside their ranges.
pub(crate) fn encoding(config: EncodingConfig, inputs: &EncodingInputs) -> Result<Encoding, Refusal> {
    let kind = config.kind(inputs.noise_multiplier, inputs.delta, u64::from(inputs.max_part));
    let refused = |error| Refusal::value("aggregation.encoding", "an encoding that can be made", error);
    let made = Encoding::new(kind, inputs.size).map_err(refused)?;
    let (needed, wanted) = (made.modulus().get(), inputs.modulus);
    let encoding = match wanted == needed {
        true => made,
        // PRIVACY: under a smaller modulus honest sums would wrap around.
        false if wanted < needed => {
            let expected = format!("at least {needed}");
            return Err(Refusal::value("aggregation.modulus", expected, wanted));
        }
        false => widened(made, wanted)?,
    };
    if encoding.padded_dim() as u64 != inputs.length {
        let expected = format!("{} coordinates", encoding.padded_dim());
        return Err(Refusal::value("aggregation.length", expected, inputs.length));
    }
    Ok(encoding)
}

/// The encoding with room for noise up to the modulus `wanted`, which is a power of two above the present one.
fn widened(encoding: Encoding, wanted: u64) -> Result<Encoding, Refusal> {
    let refuse = |expected: String| Refusal::value("aggregation.modulus", expected, wanted);
    let Some(domain) = encoding.noise_domain() else {
        let expected = format!("{}, because devices add the noise", encoding.modulus());
        return Err(refuse(expected));
    };
    let expected = || "a power of two of at most 2^62".to_owned();
    let modulus = Modulus::new(wanted).map_err(|_| refuse(expected()))?;
    if !modulus.is_power_of_two() {
        return Err(refuse(expected()));
    }
    // The unit of one residue, and noise that needs three quarters of the modulus: any noise between a half and the whole gives the same.
    let unit = domain.step * f64::from(domain.fraction_bits).exp2();
    let honest = encoding.min_modulus().get() as f64;
    let noise_std = (0.75 * wanted as f64 - honest) / 16.0 * unit;
    let widened = encoding
        .with_room_for_noise(noise_std)
        .map_err(|error| refuse(format!("one that the encoding can have ({error})")))?;
    match widened.modulus() == modulus {
        true => Ok(widened),
        false => Err(refuse(expected())),
    }
}

#[cfg(test)]
mod tests {
    use undertone_aggregation::EncodingKind;

    use super::*;

    fn inputs(modulus: u64, length: u64) -> EncodingInputs {
        EncodingInputs {
            size: EncodingSize {
                dim: 50,
                clip_norm: 0.5,
                min_clients: 100,
                max_clients: 140,
            },
            modulus,
            length,
            noise_multiplier: 1.0,
            delta: 1e-6,
            max_part: 4,
        }
    }

    const RULES: [&str; 5] = [
        r#"{"kind": "identity"}"#,
        r#"{"kind": "rotated_rounding", "scale": 1000.0}"#,
        r#"{"kind": "binomial", "levels": 64, "trials": 512}"#,
        r#"{"kind": "discrete_gaussian", "scale": 100.0}"#,
        r#"{"kind": "skellam", "scale": 100.0}"#,
    ];

    fn smallest(config: EncodingConfig) -> (u64, u64) {
        // A modulus of zero is below every encoding's, and the refusal names the smallest one.
        let error = encoding(config, &inputs(0, 64)).unwrap_err();
        let Refusal::Value { expected, .. } = &error else {
            panic!("{error}")
        };
        let length = if config == EncodingConfig::Identity {
            50
        } else {
            64
        };
        (expected.trim_start_matches("at least ").parse().unwrap(), length)
    }

    #[test]
    fn a_device_has_the_modulus_that_room_for_noise_gives_and_no_smaller_one() {
        for text in RULES {
            let config: EncodingConfig = serde_json::from_str(text).unwrap();
            let (modulus, length) = smallest(config);
            assert!(encoding(config, &inputs(modulus / 2, length)).is_err(), "{text}");
            assert!(encoding(config, &inputs(modulus + 1, length)).is_err(), "{text}");
            assert!(encoding(config, &inputs(modulus, length + 1)).is_err(), "{text}");
            let made = encoding(config, &inputs(modulus, length)).unwrap();
            assert_eq!(made.modulus().get(), modulus);
            for bits in 1..=4 {
                let wide = encoding(config, &inputs(modulus << bits, length));
                match made.noise_domain() {
                    Some(_) => assert_eq!(wide.unwrap().modulus().get(), modulus << bits, "{text}"),
                    None => assert!(wide.is_err(), "{text}"),
                }
            }
        }
    }

    /// The service makes room for its noise and writes the modulus into the plan.
    #[test]
    fn the_residues_are_those_of_an_encoding_that_the_service_widened() {
        use undertone_mechanisms::NoiseKey;
        let config = EncodingConfig::RotatedRounding { scale: 1000.0 };
        for noise in [0.0, 1.0, 40.0, 3000.0] {
            let service = Encoding::new(
                EncodingKind::RotatedRounding { scale: 1000.0 },
                inputs(0, 64).size,
            )
            .and_then(|encoding| encoding.with_room_for_noise(noise))
            .unwrap();
            let device = encoding(config, &inputs(service.modulus().get(), 64)).unwrap();
            let update: Vec<f32> = (0..50).map(|j| 0.01 * j as f32 / 50.0).collect();
            let residues = |encoding: &Encoding| {
                let round = encoding.for_round(&NoiseKey::from_bytes([3; 32]), 7).unwrap();
                let mut out = encoding.zeros();
                let secret = NoiseKey::from_bytes([4; 32]);
                round.encoder().encode(&update, 1.0, &secret, &mut out).unwrap();
                out.iter().collect::<Vec<u64>>()
            };
            assert_eq!(residues(&service), residues(&device), "{noise}");
        }
    }

    #[test]
    fn unknown_rules_and_settings_outside_their_ranges_are_refused() {
        for text in [
            r#"{"kind": "plain"}"#,
            r#"{"kind": "skellam"}"#,
            r#"{"kind": "skellam", "scale": 1.0, "x": 1}"#,
            "",
        ] {
            assert!(serde_json::from_str::<EncodingConfig>(text).is_err(), "{text}");
        }
        let config = EncodingConfig::RotatedRounding { scale: -1.0 };
        assert!(encoding(config, &inputs(1 << 40, 64)).is_err());
        let config = EncodingConfig::RotatedRounding { scale: 1000.0 };
        let size = EncodingSize {
            clip_norm: f64::NAN,
            ..inputs(0, 0).size
        };
        assert!(
            encoding(
                config,
                &EncodingInputs {
                    size,
                    ..inputs(1 << 40, 64)
                }
            )
            .is_err()
        );
        assert!(encoding(config, &inputs(u64::MAX, 64)).is_err());
    }
}
