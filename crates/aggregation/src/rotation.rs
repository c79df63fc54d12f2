//! The random rotation `H diag(xi) / sqrt(n)` that clients and server share.

use undertone_mechanisms::{NoiseKey, UniformWords};
use undertone_simd::vectorised;

use crate::error::{Result, check_len, ensure};
use crate::hadamard::{Signed, signed_walsh_hadamard, walsh_hadamard};

/// Maximum number of coordinates after padding: whole numbers of a few tens of bits then transform without overflow.
const MAX_PADDED: usize = 1 << 31;

/// Random signs, then a Walsh-Hadamard transform, over vectors padded with zeros to a power of two.
///
/// # Guarantee
/// In exact arithmetic it is orthonormal. After it, whatever the vector, every coordinate is sub-Gaussian with variance
/// `norm^2 / padded`: large coordinates become rare, which is all it is for. Its seed need not be secret, but must not be
/// known when the vectors are chosen.
///
/// # Source
/// \[Gboard\] Algorithm 2; \[cpSGD\] section 4.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    dim: usize,
    /// Bit `i` set: coordinate `i` changes its sign. As many words as `dim` needs.
    signs: Vec<u32>,
}

impl Rotation {
    /// The rotation of `round` for vectors of `dim` coordinates.
    ///
    /// # Errors
    /// No coordinates or more than `2^31`; a round of `2^48` or more.
    pub fn new(dim: usize, seed: &NoiseKey, round: u64) -> Result<Self> {
        check_dim(dim)?;
        let mut signs = vec![0; dim.div_ceil(32)];
        UniformWords::signs(seed, round)?.fill(0, &mut signs);
        Ok(Self { dim, signs })
    }

    /// Coordinates of the vectors.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Coordinates after padding: the next power of two.
    #[must_use]
    pub fn padded_dim(&self) -> usize {
        self.dim.next_power_of_two()
    }

    /// `out = H diag(xi) (factor update)`, without the factor `1 / sqrt(n)` of the matrix: put it into `factor`.
    ///
    /// # Errors
    /// Wrong lengths.
    pub fn forward(&self, update: &[f32], factor: f32, out: &mut [f32]) -> Result<()> {
        check_len("update", self.dim, update.len())?;
        check_len("rotated update", self.padded_dim(), out.len())?;
        signed_walsh_hadamard(self.signed(Some(update), factor), out)
    }

    /// [`forward`](Self::forward) in place: `values = H diag(xi) (factor values)`. Coordinates past the dimension count as zeros.
    ///
    /// # Errors
    /// Wrong length.
    pub fn forward_in_place(&self, values: &mut [f32], factor: f32) -> Result<()> {
        check_len("padded update", self.padded_dim(), values.len())?;
        signed_walsh_hadamard(self.signed(None, factor), values)
    }

    fn signed<'a>(&'a self, update: Option<&'a [f32]>, factor: f32) -> Signed<'a> {
        Signed {
            update,
            dim: self.dim,
            signs: &self.signs,
            factor,
        }
    }

    /// `values = diag(xi) H values`, without the factor `1 / sqrt(n)`; what padding became is in the rest. Whole numbers whose
    /// magnitudes add up to at most `2^53` come back exactly.
    ///
    /// # Errors
    /// Wrong lengths.
    pub(crate) fn backward(&self, values: &mut [f64]) -> Result<()> {
        check_len("rotated sum", self.padded_dim(), values.len())?;
        walsh_hadamard(values)?;
        change_signs(&mut values[..self.dim], &self.signs);
        Ok(())
    }
}

/// Refuses dimensions that cannot be padded.
pub(crate) fn check_dim(dim: usize) -> Result<()> {
    let holds = (1..=MAX_PADDED).contains(&dim);
    ensure(holds, "dim", "from 1 to 2^31 coordinates", dim as f64).map(drop)
}

vectorised! {
    fn change_signs(values: &mut [f64], signs: &[u32]) {
        for (values, &word) in values.chunks_mut(32).zip(signs) {
            for (bit, value) in values.iter_mut().enumerate() {
                let sign = u64::from(word >> bit & 1) << 63;
                *value = f64::from_bits(value.to_bits() ^ sign);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Rotation {
        fn bits(&self) -> impl Iterator<Item = bool> + '_ {
            self.signs
                .iter()
                .flat_map(|&word| (0..32).map(move |bit| word >> bit & 1 == 1))
        }
    }

    fn rotation(dim: usize, round: u64) -> Rotation {
        Rotation::new(dim, &NoiseKey::from_bytes([9; 32]), round).unwrap()
    }

    /// Unit vectors through the product: the columns are orthonormal, and the way back is the transpose.
    #[test]
    fn is_orthonormal_and_its_transpose_is_its_inverse() {
        for dim in [1, 2, 3, 5, 31, 32, 33, 64, 100] {
            let rotation = rotation(dim, 3);
            let n = rotation.padded_dim();
            let scale = (n as f64).sqrt().recip();
            let columns: Vec<Vec<f32>> = (0..dim)
                .map(|j| {
                    let mut unit = vec![0.0; dim];
                    unit[j] = 1.0;
                    let mut out = vec![f32::NAN; n];
                    rotation.forward(&unit, 1.0, &mut out).unwrap();
                    out
                })
                .collect();
            for (i, a) in columns.iter().enumerate() {
                assert!(a.iter().all(|x| x.abs() == 1.0));
                for (j, b) in columns.iter().enumerate() {
                    let product: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum();
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!(
                        (product * scale * scale - expected).abs() < 1e-12,
                        "{dim} {i} {j}"
                    );
                }
                let mut back: Vec<f64> = a.iter().map(|&x| f64::from(x)).collect();
                rotation.backward(&mut back).unwrap();
                for (j, value) in back[..dim].iter().enumerate() {
                    assert_eq!(*value, if i == j { n as f64 } else { 0.0 });
                }
            }
        }
    }

    /// Beyond one block, and with padding in its midst, in both ways: the signs, then the matrix.
    #[test]
    fn long_vectors_are_the_signs_and_the_transform() {
        for dim in [2047, 2048, 4096, 5000, 40_000] {
            let rotation = rotation(dim, 7);
            let update: Vec<f32> = (0..dim)
                .map(|i| ((i * 7919) % 2003) as f32 * 0.1 - 100.0)
                .collect();
            let mut expected: Vec<f32> = update
                .iter()
                .zip(rotation.bits())
                .map(|(&x, bit)| if bit { -(x * 0.3) } else { x * 0.3 })
                .collect();
            expected.resize(rotation.padded_dim(), 0.0);
            walsh_hadamard(&mut expected).unwrap();
            let mut out = vec![f32::NAN; rotation.padded_dim()];
            rotation.forward(&update, 0.3, &mut out).unwrap();
            assert_eq!(out, expected, "{dim}");
            out.fill(f32::NAN);
            out[..dim].copy_from_slice(&update);
            rotation.forward_in_place(&mut out, 0.3).unwrap();
            assert_eq!(out, expected, "{dim}, in place");
            let whole: Vec<f64> = (0..rotation.padded_dim() as i64)
                .map(|i| (i * i % 2003 - 1001) as f64)
                .collect();
            let mut signed = whole.clone();
            walsh_hadamard(&mut signed).unwrap();
            for (value, bit) in signed[..dim].iter_mut().zip(rotation.bits()) {
                *value = if bit { -*value } else { *value };
            }
            let mut back = whole;
            rotation.backward(&mut back).unwrap();
            assert_eq!(back, signed, "{dim}, back");
        }
    }

    #[test]
    fn signs_are_fair_and_change_with_the_round() {
        let dim = 100_000;
        let count = |rotation: &Rotation| rotation.bits().take(dim).filter(|&bit| bit).count() as f64;
        let (first, second) = (rotation(dim, 0), rotation(dim, 1));
        // Two-sided at 5 standard deviations: a false alarm once in 1.7 million.
        let deviations = |count: f64| (count - 0.5 * dim as f64).abs() / (0.25 * dim as f64).sqrt();
        assert!(deviations(count(&first)) < 5.0 && deviations(count(&second)) < 5.0);
        let differ = first
            .bits()
            .zip(second.bits())
            .take(dim)
            .filter(|(a, b)| a != b)
            .count() as f64;
        assert!(deviations(differ) < 5.0);
    }

    #[test]
    fn bad_lengths_and_rounds_are_refused() {
        let key = NoiseKey::from_bytes([9; 32]);
        assert!(Rotation::new(0, &key, 0).is_err());
        assert!(Rotation::new(1 << 40, &key, 0).is_err());
        assert!(Rotation::new(3, &key, 1 << 48).is_err());
        let rotation = rotation(3, 0);
        assert!(rotation.forward(&[0.0; 4], 1.0, &mut [0.0; 4]).is_err());
        assert!(rotation.forward(&[0.0; 3], 1.0, &mut [0.0; 3]).is_err());
        assert!(rotation.forward_in_place(&mut [0.0; 3], 1.0).is_err());
        assert!(rotation.backward(&mut [0.0; 3]).is_err());
    }
}
