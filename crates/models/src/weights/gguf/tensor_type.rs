//! The types of tensors in GGUF files, and the rounding of values to them.

use crate::error::{ModelError, Result};
use half::{bf16, f16};

/// A type of the matrices in a GGUF file. Tensors of one dimension, which are gains and biases, are F32 in every file, as llama.cpp's own
/// converter has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TensorType {
    /// 4 bytes per value: the values of the model.
    #[default]
    F32,
    /// 2 bytes per value, rounded to 11 significant bits; values up to 65,504.
    F16,
    /// 2 bytes per value, rounded to 8 significant bits; the range of F32.
    Bf16,
    /// Blocks of 32 values of a row in 34 bytes: a scale in F16, which is the largest magnitude over 127, and whole multiples of it. A
    /// matrix whose rows have no multiple of 32 values is F16 instead, as in llama.cpp's converter.
    Q8_0,
}

/// Values of a block of [`TensorType::Q8_0`].
const BLOCK: usize = 32;

/// The largest multiple of a scale.
const LEVELS: f32 = 127.0;

impl TensorType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// Name of the type in the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8_0 => "Q8_0",
        }
    }

    /// Number of the type in the description of a tensor.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Bf16 => 30,
        }
    }

    /// The number of a file whose matrices have it, for `general.file_type`.
    pub(super) fn file_number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Bf16 => 32,
        }
    }

    /// The type that a tensor of this shape gets in a file of this type.
    pub(super) fn of(self, shape: &[usize]) -> Self {
        match (self, shape) {
            (_, [] | [_]) => Self::F32,
            (Self::Q8_0, [.., row]) if !row.is_multiple_of(BLOCK) => Self::F16,
            _ => self,
        }
    }

    /// The largest magnitude that it holds.
    fn largest(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            Self::F16 => f16::MAX.to_f32(),
            Self::Bf16 => bf16::MAX.to_f32(),
            Self::Q8_0 => LEVELS * f16::MAX.to_f32(),
        }
    }

    /// The bytes of the values of a tensor, whose name is for errors. Values are rounded to the nearest of the type.
    pub(super) fn encode(self, name: &str, values: &[f32]) -> Result<Vec<u8>> {
        let refused = |index: usize| match values[index] {
            value if value.is_finite() => ModelError::TensorRange {
                name: name.to_owned(),
                index,
                value,
                to: self.name(),
                largest: self.largest(),
            },
            value => ModelError::NonFiniteTensor {
                name: name.to_owned(),
                index,
                value,
            },
        };
        let halves = |round: fn(f32) -> (u16, bool)| {
            let mut bytes = Vec::with_capacity(2 * values.len());
            for (index, &value) in values.iter().enumerate() {
                let (bits, finite) = round(value);
                if !finite {
                    return Err(refused(index));
                }
                bytes.extend(bits.to_le_bytes());
            }
            Ok(bytes)
        };
        match self {
            Self::F32 => match values.iter().position(|value| !value.is_finite()) {
                Some(index) => Err(refused(index)),
                None => Ok(crate::tensors::bytes_of(values)),
            },
            Self::F16 => halves(|value| {
                let half = f16::from_f32(value);
                (half.to_bits(), half.is_finite())
            }),
            Self::Bf16 => halves(|value| {
                let half = bf16::from_f32(value);
                (half.to_bits(), half.is_finite())
            }),
            Self::Q8_0 => {
                let mut bytes = Vec::with_capacity(values.len() / BLOCK * (BLOCK + 2));
                for (number, block) in values.chunks(BLOCK).enumerate() {
                    let place = block_of_eights(block, &mut bytes);
                    place.map_err(|place| refused(number * BLOCK + place))?;
                }
                Ok(bytes)
            }
        }
    }
}

/// Appends a block of [`TensorType::Q8_0`], or says at which place a value is that no scale holds. Operations and rounding are those of
/// `quantize_row_q8_0_ref` of `ggml`: multiples of the scale before it is rounded, halves away from zero.
fn block_of_eights(block: &[f32], bytes: &mut Vec<u8>) -> std::result::Result<(), usize> {
    if let Some(place) = block.iter().position(|value| !value.is_finite()) {
        return Err(place);
    }
    let largest = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let scale = largest / LEVELS;
    let rounded = f16::from_f32(scale);
    if !rounded.is_finite() {
        let place = block.iter().position(|value| value.abs() == largest);
        return Err(place.unwrap_or(0));
    }
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    bytes.extend(rounded.to_bits().to_le_bytes());
    // A conversion to i8 saturates. Where the inverse overflows, the scale rounds to 0, and so do all values.
    bytes.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A half-width number with this many fraction bits and this smallest exponent, nearest to a value by search among all of them;
    /// ties go to the even pattern.
    fn nearest(value: f32, widen: fn(u16) -> f32) -> u16 {
        let magnitude = f64::from(value.abs());
        let finite = (0..0x7fffu16).filter(|&bits| widen(bits).is_finite());
        let distance = |bits: u16| (f64::from(widen(bits)) - magnitude).abs();
        let best = finite.min_by(|&a, &b| {
            let by_distance = distance(a).total_cmp(&distance(b));
            by_distance.then((a & 1).cmp(&(b & 1)))
        });
        best.unwrap() | u16::from(value.is_sign_negative()) << 15
    }

    const VALUES: [f32; 18] = [
        0.0,
        -0.0,
        1.0,
        -2.5,
        0.1,
        1.0 / 3.0,
        1e-3,
        3e-5,
        6e-8,
        2.9e-8,
        -1e-9,
        1.000_488_3,
        1.001_464_8,
        1.003_906_2,
        1.011_718_8,
        2049.0,
        65504.0,
        -65519.9,
    ];

    #[test]
    fn halves_are_the_nearest_of_all_patterns_and_ties_are_even() {
        for value in VALUES {
            let [f16_bits, bf16_bits] = [TensorType::F16, TensorType::Bf16].map(|to| {
                let bytes = to.encode("x", &[value]).unwrap();
                u16::from_le_bytes(bytes.try_into().unwrap())
            });
            assert_eq!(
                f16_bits,
                nearest(value, |bits| f16::from_bits(bits).to_f32()),
                "{value}"
            );
            let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
            assert_eq!(bf16_bits, nearest(value, wide), "{value}");
        }
    }

    #[test]
    fn blocks_hold_multiples_of_a_scale_within_half_a_step() {
        // The scale is exact in F16, so the multiples are those of the closed form: 127 is 1.0, and a half goes away from zero.
        let mut block = [0.0f32; BLOCK];
        block[0] = -127.0 * 0.25;
        block[1] = 0.25 * 3.5;
        block[2] = -0.25 * 2.5;
        block[3] = 0.25 * 64.4;
        let bytes = TensorType::Q8_0.encode("x", &block).unwrap();
        assert_eq!(bytes.len(), 34);
        assert_eq!(
            f16::from_bits(u16::from_le_bytes([bytes[0], bytes[1]])).to_f32(),
            0.25
        );
        let multiples: Vec<i8> = bytes[2..7].iter().map(|&byte| byte as i8).collect();
        assert_eq!(multiples, [-127, 4, -3, 64, 0]);
        // Any block: half a step, and what the scale lost by its own rounding, 2^-11 of every value.
        let values: Vec<f32> = (0..320).map(|i| ((i * 37 % 101) as f32 - 50.3) / 7.0).collect();
        let bytes = TensorType::Q8_0.encode("x", &values).unwrap();
        for (block, packed) in values.chunks(BLOCK).zip(bytes.chunks(BLOCK + 2)) {
            let scale = f16::from_bits(u16::from_le_bytes([packed[0], packed[1]])).to_f32();
            for (value, &byte) in block.iter().zip(&packed[2..]) {
                let error = (f32::from(byte as i8) * scale - value).abs();
                assert!(error <= 0.5001 * scale + value.abs() / 2048.0, "{value}: {error}");
            }
        }
        // Blocks of zeros, and of values that no scale in F16 reaches.
        for tiny in [0.0, 1e-12, 1e-40, f32::from_bits(1)] {
            let bytes = TensorType::Q8_0.encode("x", &[tiny; BLOCK]).unwrap();
            assert_eq!(bytes[..2], [0, 0], "{tiny}");
        }
    }

    #[test]
    fn values_out_of_range_name_the_tensor() {
        let refused = |to: TensorType, value: f32| {
            let mut values = [0.5; 64];
            values[40] = value;
            to.encode("blk.0.ffn_up.weight", &values).unwrap_err().to_string()
        };
        assert_eq!(
            refused(TensorType::F16, -65520.0),
            "tensor `blk.0.ffn_up.weight`: value -65520 at index 40 is out of the range of F16, up to 65504"
        );
        assert_eq!(
            refused(TensorType::Q8_0, 8.4e6),
            "tensor `blk.0.ffn_up.weight`: value 8400000 at index 40 is out of the range of Q8_0, up to 8319008"
        );
        assert!(refused(TensorType::Bf16, f32::MAX).contains("out of the range of BF16"));
        for to in TensorType::ALL {
            assert!(refused(to, f32::NAN).ends_with("value NaN at index 40 is not finite"));
            assert!(to.encode("x", &[1.0; BLOCK]).is_ok());
        }
    }

    #[test]
    fn one_dimension_stays_wide_and_odd_rows_become_halves() {
        for to in TensorType::ALL {
            assert_eq!(to.of(&[64]), TensorType::F32);
        }
        assert_eq!(TensorType::Q8_0.of(&[3, 64]), TensorType::Q8_0);
        assert_eq!(TensorType::Q8_0.of(&[64, 48]), TensorType::F16);
        assert_eq!(TensorType::Bf16.of(&[64, 48]), TensorType::Bf16);
    }
}
