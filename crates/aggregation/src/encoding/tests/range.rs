//! The ends of the range.

use super::{PLAIN_LEVELS, decoded_sum, size, update};
use crate::ModularVec;
use crate::encoding::*;

/// The most clients, all at the end of the range: sums reach the last residue and no further.
#[test]
fn sums_never_wrap_around() {
    let clients = 37;
    for kind in [
        EncodingKind::Identity,
        EncodingKind::RotatedRounding { scale: 1000.0 },
    ] {
        for exact in [false, true] {
            let mut encoding = Encoding::new(kind, size(1, 1.0, clients)).unwrap();
            if exact {
                encoding = encoding.with_min_modulus();
            }
            for value in [1.0f32, -1.0] {
                let sum = decoded_sum(&encoding, &vec![vec![value]; clients as usize], 0);
                assert!(
                    (sum[0] / f64::from(value) - clients as f64).abs() < 0.05,
                    "{kind:?}: {sum:?}"
                );
            }
        }
    }
    // Residues at the very end, as a client could send them.
    let kind = EncodingKind::RotatedRounding { scale: 1000.0 };
    let encoding = Encoding::new(kind, size(64, 1.0, clients))
        .unwrap()
        .with_min_modulus();
    let top = (encoding.min_modulus().get() - 1) / clients;
    let mut sum = encoding.zeros();
    for _ in 0..clients {
        let one = ModularVec::from_residues(encoding.modulus(), &[top; 64]).unwrap();
        sum.add(&one).unwrap();
    }
    assert!(
        lift::lift(&sum, clients, encoding.centre)
            .iter()
            .all(|&x| x as u64 == clients * top / 2)
    );
    assert_eq!(sum.iter().next(), Some(encoding.modulus().get() - 1));
    // Quantised: all levels and all trials.
    let levels = Encoding::new(EncodingKind::Binomial(PLAIN_LEVELS), size(64, 1.0, clients)).unwrap();
    let levels = levels.with_min_modulus();
    for residue in [0, 32 + 2000] {
        let mut sum = levels.zeros();
        for _ in 0..clients {
            sum.add(&ModularVec::from_residues(levels.modulus(), &[residue as u64; 64]).unwrap())
                .unwrap();
        }
        let lifted = lift::lift(&sum, clients, levels.centre);
        assert!(
            lifted
                .iter()
                .all(|&x| x + (clients * levels.centre) as i64 == clients as i64 * residue)
        );
    }
}

#[test]
fn exact_and_rounded_moduli_decode_alike() {
    let kinds = [
        EncodingKind::RotatedRounding { scale: 77.0 },
        EncodingKind::Skellam {
            scale: 77.0,
            noise_multiplier: 1.0,
        },
        EncodingKind::DiscreteGaussian {
            scale: 77.0,
            noise_multiplier: 1.0,
        },
        EncodingKind::Binomial(PLAIN_LEVELS),
    ];
    for kind in kinds {
        let encoding = Encoding::new(kind, size(3000, 1.0, 3)).unwrap();
        let exact = encoding.clone().with_min_modulus();
        assert_eq!(exact.bits_per_coordinate(), encoding.bits_per_coordinate());
        assert!(encoding.modulus().is_power_of_two() && !exact.modulus().is_power_of_two());
        let updates: Vec<Vec<f32>> = (0..3).map(|client| update(client, 3000, 0.9)).collect();
        assert_eq!(
            decoded_sum(&encoding, &updates, 4),
            decoded_sum(&exact, &updates, 4)
        );
    }
}
