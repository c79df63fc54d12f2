//! Third level: numbers with 384 fractional bits, for the pairs that 106 bits leave open.
//!
//! Non-negative fixed-point numbers and schoolbook arithmetic whose every step is off by at most one unit in the last
//! place, `2^-384`. It takes some 100 microseconds a pair and runs about once in `2^28` pairs, so it is written to be
//! checked by eye. It also serves the tests as the truth that the faster levels are measured against.

/// Limbs of 64 bits, least significant first; the last one is the integer part.
const LIMBS: usize = 7;

/// A number in `[0, 2^64)` with 384 fractional bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed([u64; LIMBS]);

const ZERO: Fixed = Fixed([0; LIMBS]);
const ONE: Fixed = Fixed([0, 0, 0, 0, 0, 0, 1]);
const LN_2: Fixed = Fixed([
    0x5595_52fb_4afa_1b10,
    0xe7b8_7620_6deb_ac98,
    0x8a0d_175b_8baa_fa2b,
    0x40f3_4326_7298_b62d,
    0xc9e3_b398_03f2_f6af,
    0xb172_17f7_d1cf_79ab,
    0,
]);
const HALF_PI: Fixed = Fixed([
    0xdf2a_3367_9a74_8636,
    0xa294_10f3_1c68_09bb,
    0x0417_7d4c_7627_3644,
    0x5204_9c11_14cf_98e8,
    0x898c_c517_01b8_39a2,
    0x921f_b544_42d1_8469,
    1,
]);

/// The pair of Gaussian samples behind 320 bits of radius and 320 bits of angle, most significant words first.
///
/// Magnitudes and signs of the cosine and of the sine sample. The value belongs to the middle of the cell that the bits
/// describe. An angle's top two bits are its quarter, the others its place in `[-pi/4, pi/4)`.
///
/// # Guarantee
/// Every point of the cell is within `2^-156` of this value, but for a set of radii of probability `2^-160`: rounding of the
/// logarithm moves `2 L = R^2` by less than `2^-370`, so `R` by less than `2^-185`; a cell of width `2^-320` moves `R` by
/// at most `2^-159` where it is nearly zero and by `2^-320 / (u R) < 2^-163` where `u >= 2^-160`; a cell of width
/// `2^-318` quarter turns moves the angle by less than `2^-317`, and `R < 22`.
pub(super) fn pair(radius: &[u64; 5], angle: &[u64; 5]) -> [(Fixed, bool); 2] {
    let u = Fixed([1 << 63, radius[4], radius[3], radius[2], radius[1], radius[0], 0]);
    let length = minus_log(u).double().sqrt();
    let mut place = Fixed([1 << 63, angle[4], angle[3], angle[2], angle[1], angle[0], 0]);
    let quarter = angle[0] >> 62;
    // The quarter's two bits go, the 318 others and the half step become the fraction.
    place = place.shifted_left(2);
    place.0[LIMBS - 1] = 0;
    let turned_back = place.0[LIMBS - 2] >> 63 == 1;
    if turned_back {
        place = ONE.minus(place);
    }
    let (sine, cosine) = sine_cosine(place.times(HALF_PI));
    let (c, s) = if quarter & 1 == 0 {
        ((cosine, quarter == 2), (sine, turned_back != (quarter == 2)))
    } else {
        ((sine, turned_back != (quarter == 1)), (cosine, quarter == 3))
    };
    [(length.times(c.0), c.1), (length.times(s.0), s.1)]
}

/// `round(steps * value)` for `1 <= steps <= 2^48` and `value < 2^8`.
pub(super) fn rounded((value, negative): (Fixed, bool), steps: f64) -> i64 {
    let exponent = (steps.to_bits() >> 52) as i64 - 1023 - 52;
    let mantissa = steps.to_bits() & ((1 << 52) - 1) | 1 << 52;
    // 2^8 * 2^53 fits into the integer limb; the exponent is negative, so the shift is to the right.
    let product = value
        .times_small(mantissa)
        .shifted_right(exponent.unsigned_abs() as u32);
    let half = Fixed([0, 0, 0, 0, 0, 1 << 63, 0]);
    let magnitude = product.plus(half).0[LIMBS - 1] as i64;
    if negative { -magnitude } else { magnitude }
}

/// `-ln u` for `0 < u < 1`, from `-ln u = z ln 2 + 2 atanh((1 - m) / (1 + m))` with `u = 2^-z m`, `m` in `[1/2, 1)`.
fn minus_log(u: Fixed) -> Fixed {
    let zeros = u.leading_fraction_zeros();
    let m = u.shifted_left(zeros);
    let ratio = ONE.minus(m).divided_by(ONE.plus(m));
    let square = ratio.times(ratio);
    let (mut power, mut sum, mut n) = (ratio, ZERO, 1);
    while power != ZERO {
        sum = sum.plus(power.divided_by_small(n));
        power = power.times(square);
        n += 2;
    }
    LN_2.times_small(u64::from(zeros)).plus(sum.double())
}

/// Sine and cosine of an angle in `[0, pi/4]` by their series.
fn sine_cosine(angle: Fixed) -> (Fixed, Fixed) {
    let square = angle.times(angle);
    let series = |first: Fixed, start: u64| {
        let (mut term, mut sum, mut n, mut add) = (first, first, start, false);
        while term != ZERO {
            term = term.times(square).divided_by_small(n * (n + 1));
            sum = if add { sum.plus(term) } else { sum.minus(term) };
            (n, add) = (n + 2, !add);
        }
        sum
    };
    (series(angle, 2), series(ONE, 1))
}

impl Fixed {
    fn plus(self, other: Self) -> Self {
        let (mut result, mut carry) = ([0; LIMBS], false);
        for (i, limb) in result.iter_mut().enumerate() {
            (*limb, carry) = self.0[i].carrying_add(other.0[i], carry);
        }
        Self(result)
    }

    /// `self - other` for `other <= self`.
    fn minus(self, other: Self) -> Self {
        let (mut result, mut borrow) = ([0; LIMBS], false);
        for (i, limb) in result.iter_mut().enumerate() {
            (*limb, borrow) = self.0[i].borrowing_sub(other.0[i], borrow);
        }
        Self(result)
    }

    fn double(self) -> Self {
        self.plus(self)
    }

    fn at_least(self, other: Self) -> bool {
        self.0.iter().rev().ge(other.0.iter().rev())
    }

    /// All limbs of the product, without rounding.
    fn full_product(self, other: Self) -> [u64; 2 * LIMBS] {
        let mut result = [0; 2 * LIMBS];
        for (i, &a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (j, &b) in other.0.iter().enumerate() {
                let sum = u128::from(a) * u128::from(b) + u128::from(result[i + j]) + u128::from(carry);
                (result[i + j], carry) = (sum as u64, (sum >> 64) as u64);
            }
            result[i + LIMBS] = carry;
        }
        result
    }

    /// The product, rounded down.
    fn times(self, other: Self) -> Self {
        let full = self.full_product(other);
        Self(std::array::from_fn(|i| full[i + LIMBS - 1]))
    }

    fn times_small(self, factor: u64) -> Self {
        let mut carry = 0;
        Self(self.0.map(|limb| {
            let product = u128::from(limb) * u128::from(factor) + u128::from(carry);
            carry = (product >> 64) as u64;
            product as u64
        }))
    }

    /// The quotient, rounded down.
    fn divided_by_small(self, divisor: u64) -> Self {
        let (mut result, mut rest) = ([0; LIMBS], 0);
        for (i, &limb) in self.0.iter().enumerate().rev() {
            let value = u128::from(rest) << 64 | u128::from(limb);
            result[i] = (value / u128::from(divisor)) as u64;
            rest = (value % u128::from(divisor)) as u64;
        }
        Self(result)
    }

    /// The quotient, rounded down, for `self < divisor < 2^62`; bit by bit.
    fn divided_by(self, divisor: Self) -> Self {
        let (mut rest, mut result) = (self, ZERO);
        for bit in (0..64 * (LIMBS - 1)).rev() {
            rest = rest.double();
            if rest.at_least(divisor) {
                rest = rest.minus(divisor);
                result.0[bit / 64] |= 1 << (bit % 64);
            }
        }
        result
    }

    /// The square root, rounded down; bit by bit.
    fn sqrt(self) -> Self {
        let mut radicand = [0; 2 * LIMBS];
        radicand[LIMBS - 1..2 * LIMBS - 1].copy_from_slice(&self.0);
        let mut root = ZERO;
        for bit in (0..64 * (LIMBS - 1) + 32).rev() {
            let mut trial = root;
            trial.0[bit / 64] |= 1 << (bit % 64);
            if trial.full_product(trial).iter().rev().le(radicand.iter().rev()) {
                root = trial;
            }
        }
        root
    }

    fn shifted_left(self, bits: u32) -> Self {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        Self(std::array::from_fn(|i| {
            let limb = |back: usize| i.checked_sub(limbs + back).map_or(0, |i| u128::from(self.0[i]));
            ((limb(0) << 64 | limb(1)) << bits >> 64) as u64
        }))
    }

    fn shifted_right(self, bits: u32) -> Self {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        Self(std::array::from_fn(|i| {
            let limb = |ahead: usize| self.0.get(i + limbs + ahead).map_or(0, |&limb| u128::from(limb));
            ((limb(1) << 64 | limb(0)) >> bits) as u64
        }))
    }

    /// Zeros before the first one among the fractional bits, for a number in `(0, 1)`.
    fn leading_fraction_zeros(self) -> u32 {
        let mut zeros = 0;
        for limb in self.0[..LIMBS - 1].iter().rev() {
            zeros += limb.leading_zeros();
            if *limb != 0 {
                break;
            }
        }
        zeros
    }
}

#[cfg(test)]
impl Fixed {
    /// `self - value`, signed, as a plain number: how far off an approximation in two parts is.
    pub(super) fn distance(self, negative: bool, high: f64, low: f64) -> f64 {
        let parts = self.to_parts();
        let sign = if negative { -1.0 } else { 1.0 };
        // From the top down nothing is lost: three parts reach past the last place of `high`, and `low` cancels what then
        // remains before the others come.
        let mut difference = sign * parts[0] - high;
        difference += sign * parts[1];
        difference += sign * parts[2];
        difference -= low;
        for &part in &parts[3..] {
            difference += sign * part;
        }
        difference
    }

    /// The number as a sum of floating-point numbers of 32 bits each, most significant first.
    fn to_parts(self) -> Vec<f64> {
        let halves = self.0.iter().enumerate().flat_map(|(i, &limb)| {
            let scale = 2f64.powi(64 * (i as i32 - (LIMBS as i32 - 1)));
            [
                (limb & 0xffff_ffff) as f64 * scale,
                (limb >> 32) as f64 * 2f64.powi(32) * scale,
            ]
        });
        let mut parts: Vec<f64> = halves.filter(|part| *part != 0.0).collect();
        parts.reverse();
        parts.resize(parts.len().max(3), 0.0);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_satisfy_their_series() {
        let close = |a: Fixed, b: Fixed| {
            let difference = if a.at_least(b) { a.minus(b) } else { b.minus(a) };
            assert!(
                difference.0[1..] == [0; LIMBS - 1] && difference.0[0] < 1000,
                "{a:?} {b:?}"
            );
        };
        // ln 2 by its own formula, with z = 0: 2 atanh(1 / 3).
        let half = Fixed([0, 0, 0, 0, 0, 1 << 63, 0]);
        close(minus_log(half).minus(ZERO), LN_2);
        // Machin: pi / 4 = 4 atan(1 / 5) - atan(1 / 239).
        let arctan = |n: u64| {
            let (mut power, mut sum, mut k) = (ONE.divided_by_small(n), ZERO, 1);
            while power != ZERO {
                let term = power.divided_by_small(k);
                sum = if k % 4 == 1 {
                    sum.plus(term)
                } else {
                    sum.minus(term)
                };
                power = power.divided_by_small(n * n);
                k += 2;
            }
            sum
        };
        let quarter = arctan(5).times_small(4).minus(arctan(239));
        close(quarter.double(), HALF_PI);
        let (sine, cosine) = sine_cosine(quarter);
        close(sine, cosine);
        close(sine.times(sine), half);
        close(Fixed([0, 0, 0, 0, 0, 0, 2]).sqrt().divided_by_small(2), sine);
    }

    fn check(radius: [u64; 5], angle: [u64; 5], expected: [i64; 2]) {
        // Expected: round((2^48 - 1) R cos theta), round((2^48 - 1) R sin theta) in mpmath at 1200 bits.
        let steps = 2f64.powi(48) - 1.0;
        assert_eq!(
            pair(&radius, &angle).map(|sample| rounded(sample, steps)),
            expected,
            "{radius:x?} {angle:x?}"
        );
    }

    #[test]
    #[rustfmt::skip]
    fn samples_agree_with_arbitrary_precision_elsewhere() {
        let cases = [
([0x4da4_f9fc_3c6d_a5d7, 0xb8a1_abcd_1a69_16c7, 0x7a97_c643_6564_12a9, 0x1710_cf53_27ac_435a, 0x0512_bd13_1107_2231], [0x8ca5_9966_66ce_ab36, 0x4a14_876a_eaff_1a09, 0xfd72_4452_ccea_71ff, 0x0f10_99c6_c3e1_b258, 0x8534_f457_38d0_48ec], [-414014085181174, -132803148851051]),
            ([0x5c39_02b3_8963_dc6e, 0xc79d_6793_46d4_ac7a, 0xd3ad_dccb_2c33_be0a, 0x4300_0de0_1b2e_d40e, 0xf165_c8ce_36e2_f24b], [0x0690_5269_ed6f_0b09, 0xa404_2bb3_d434_1aad, 0x42a0_0403_ce80_c4b0, 0x4591_42de_ccea_2645, 0x2a31_8785_3184_ff27], [397009953048031, 64516946490804]),
            ([0x4a25_e466_4f52_53a0, 0xde08_caa1_a081_7910, 0xf5ff_0c03_bb5d_7385, 0xd939_36e1_daca_3c06, 0x5f55_2773_e14b_0190], [0xd844_1b56_1633_2aca, 0x5660_0224_9b19_1bf4, 0x634f_806f_abf4_a07c, 0x3fb6_2d2c_8186_2fc9, 0x3f50_8249_2d83_a823], [248578564571314, -366816259538994]),
            ([0x47ad_ec26_793d_0e45, 0xf1cf_d992_16df_6486, 0xd160_c5d0_ef41_2ed6, 0xf134_7e0c_dd90_5ecf, 0xd728_8ff6_8c32_0f89], [0x01d8_9a02_4cdc_e7a6, 0x4abc_b06a_e8ab_b93f, 0xb474_c7e8_9286_a175, 0x4fcf_a583_e1df_8af9, 0xc3e4_a892_d919_6ada], [448661334427193, 20342817940968]),
            ([0x0, 0x6c79_a3de_69f8_5e31, 0x49c7_b59b_9952_53fd, 0x738d_243a_6e58_d5ca, 0x3bb4_a570_294c_4ea3], [0x4278_c261_4e1b_cb38, 0xcc21_ce88_d006_0cc5, 0x14c1_5c91_0b11_ad28, 0x7671_863c_0bdb_c23a, 0xff5a_52f1_a058_85ac], [-162290271863048, 2671903609838100]),
            ([0xffff_ffff_ffff_ffff, 0xa5e3_33cb_88dc_f943, 0xb36c_c9aa_78a3_30a1, 0x2522_d538_57c4_9391, 0xac7c_c4a4_ff4d_ab10], [0x1102_1c9e_3211_1ac1, 0xe9dd_38b8_69ac_e913, 0xa290_9cb6_33e2_38b4, 0x70ef_55b1_a1f6_5507, 0x2f07_33c8_46bb_e9e8], [50266, 22294]),
            ([0x6f98_bca3_5b17_b966, 0x96b9_8b5f_bf37_a2be, 0xa26a_25c8_5217_5b7a, 0x32de_cd6b_8efb_c170, 0x52d3_2377_e781_31c1], [0x0, 0xb54a_2302_0fc5_b043, 0x4708_d989_3a97_3000, 0x950b_16ff_c3e1_ac3b, 0xdcb2_85f8_9d8c_f4d4], [362717747560339, 0]),
            ([0x1f44_ebd1_3cc7_5f3e, 0xef40_af2e_54c0_ce68, 0x4a7a_0305_2d73_3dcd, 0x0692_b534_7582_40df, 0x5b69_dc23_0af5_ac87], [0xffff_ffff_ffff_ffff, 0xf6e7_d078_e55b_85dd, 0x4922_b9cc_f469_aef8, 0xacda_c615_bc20_f626, 0x53be_4721_f5b9_e1f5], [0, -577201225552602]),
            ([0x52a3_b181_04a7_f007, 0x5259_5daf_49fb_ac36, 0x2725_15cd_f74c_3816, 0xa6e4_6653_c676_176a, 0xdc82_f252_6911_c9dd], [0x3fff_ffff_ffff_ffff, 0xae17_584a_9ed9_c621, 0x13e7_d611_d163_b764, 0x9e23_87a5_4b1c_ef39, 0xe4e2_aafd_3100_9624], [423278949821439, 0]),
            ([0x4ac0_34cf_71b3_4e47, 0x4003_1ad6_22ed_9387, 0x994b_9717_61b2_ceba, 0x28ad_f9c6_f639_6ae3, 0x92b6_07d5_54d0_8ce6], [0x6000_0000_0000_0000, 0x746c_cfcd_0b77_d43a, 0x5d7d_255f_2b68_beef, 0xcde9_d231_c8a3_8e7b, 0xff47_8895_5cdb_7f4c], [312299937157263, 312299937157263]),
            ([0x8000_0000_0000_0000, 0x7077_b81d_18db_b0c1, 0x350d_775d_fb53_e13d, 0xeaa1_b295_6c88_26ec, 0x1d16_15ad_353a_09cf], [0x2000_0000_0000_0000, 0xbcb3_fd50_0e26_3730, 0x9874_f882_2b2d_f98d, 0xf87a_7976_ad44_8abd, 0x9b44_baf5_264e_d787], [234343289785961, -234343289785961]),
            ([0x0, 0x0, 0x0, 0x0, 0x0], [0x2000_0000_0000_0000, 0x0, 0x0, 0x0, 0x0], [4198605193053280, -4198605193053280]),
            ([0xffff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff, 0xffff_ffff_ffff_ffff], [0x6000_0000_0000_0000, 0x0, 0x0, 0x0, 0x0], [0, 0]),
        ];
        for (radius, angle, expected) in cases {
            check(radius, angle, expected);
        }
    }

    #[test]
    fn values_round_to_the_nearest_step() {
        let number = |tenths: u64| ONE.times_small(tenths).divided_by_small(10);
        let check = |tenths: u64, steps: f64, expected: i64| {
            assert_eq!(rounded((number(tenths), false), steps), expected);
            assert_eq!(rounded((number(tenths), true), steps), -expected);
        };
        check(4, 1.0, 0);
        check(6, 1.0, 1);
        check(12, 1.25, 1);
        check(13, 1.25, 2);
        check(7, 2f64.powi(48), 197_032_483_697_459);
    }
}
