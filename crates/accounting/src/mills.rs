//! The Mills ratio of the normal distribution, and differences of it without cancellation.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `sqrt(pi / 2)`.
const SQRT_FRAC_PI_2: f64 = 1.253_314_137_315_500_3;
/// The difference of `1 / sqrt(2)` and [`FRAC_1_SQRT_2`].
const REST_OF_SQRT: f64 = -4.833_646_656_726_457e-17;
/// A continued fraction takes over from the complementary error function here.
const TAIL: f64 = 2.0;
/// Gauss-Legendre with ten nodes: the positive nodes on `[-1, 1]`, with their weights.
const NODES: [(f64, f64); 5] = [
    (0.148_874_338_981_631_2, 0.295_524_224_714_752_87),
    (0.433_395_394_129_247_2, 0.269_266_719_309_996_36),
    (0.679_409_568_299_024_4, 0.219_086_362_515_982_04),
    (0.865_063_366_688_984_5, 0.149_451_349_150_580_6),
    (0.973_906_528_517_171_7, 0.066_671_344_308_688_14),
];

/// `R(x) = (1 - Phi(x)) / phi(x)` for `x >= -1`, with `phi` the density of the standard normal distribution.
pub(crate) fn ratio(x: f64) -> f64 {
    if x >= TAIL {
        return (x + tail(x)).recip();
    }
    // The square and the quotient by sqrt(2) with what rounding took from them.
    let square = x * x;
    let rest_of_square = x.mul_add(x, -square);
    let scaled = x * FRAC_1_SQRT_2;
    let rest = x.mul_add(FRAC_1_SQRT_2, -scaled) + x * REST_OF_SQRT;
    let inverse = (0.5 * square).exp() * (1.0 + 0.5 * rest_of_square);
    SQRT_FRAC_PI_2 * (inverse * libm::erfc(scaled) - FRAC_2_SQRT_PI * rest)
}

/// `1 - x R(x)`, the rate at which the ratio falls, for `x >= -1`.
fn fall(x: f64) -> f64 {
    if x >= TAIL {
        let tail = tail(x);
        return tail / (x + tail);
    }
    1.0 - x * ratio(x)
}

/// `1 / (x + 2 / (x + 3 / (x + ...)))`, in which all terms are positive: `R(x) = 1 / (x + tail(x))`.
fn tail(x: f64) -> f64 {
    // As many terms as leave 1e-17 of it.
    let terms = 12 + (420.0 / (x * x)) as u32;
    let mut inner = 0.0;
    for term in (1..=terms).rev() {
        inner = f64::from(term) / (x + inner);
    }
    inner
}

/// `R(middle - reach) - R(middle + reach)` for `middle - reach >= -1`, as an integral of positive numbers. Exact where `reach` is below
/// a quarter, or below a quarter of `middle`.
pub(crate) fn difference(middle: f64, reach: f64) -> f64 {
    let pair =
        |(node, weight): &(f64, f64)| weight * (fall(middle - reach * node) + fall(middle + reach * node));
    reach * NODES.iter().map(pair).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values by mpmath at 50 digits.
    #[test]
    fn ratios_equal_values_of_mpmath() {
        let check = |got: f64, want: f64| {
            assert!((got / want - 1.0).abs() < 3e-15, "{got} {want}");
        };
        check(ratio(-1.0), 3.477_051_811_703_694_4);
        check(ratio(-0.25), 1.548_372_621_547_658);
        check(ratio(0.0), 1.253_314_137_315_500_3);
        check(ratio(0.3), 1.001_837_400_992_155_8);
        check(ratio(1.0), 0.655_679_542_418_798_4);
        check(ratio(1.9), 0.437_646_928_787_120_86);
        check(ratio(1.99), 0.422_947_203_864_417_4);
        check(ratio(2.0), 0.421_369_229_288_054_5);
        check(ratio(2.5), 0.354_265_111_329_793_66);
        check(ratio(4.0), 0.236_652_382_913_560_67);
        check(ratio(9.0), 0.109_787_282_578_308_29);
        check(ratio(30.0), 0.033_296_419_072_497_21);
        check(fall(-0.25), 1.387_093_155_386_914_6);
        check(fall(0.7), 0.457_574_305_854_426_6);
        check(fall(1.99), 0.158_335_064_309_809_34);
        check(fall(2.0), 0.157_261_541_423_891_04);
        check(fall(3.0), 0.086_229_103_869_690_11);
        check(fall(25.0), 0.001_592_380_761_610_186_8);
        check(difference(0.0, 1e-17), 2e-17);
        check(difference(0.1, 0.2), 0.358_093_000_533_460_8);
        check(difference(1.5, 0.24), 0.109_483_901_010_438_71);
        check(difference(3.0, 0.7), 0.124_804_483_304_202_8);
        check(difference(40.0, 9.9), 0.013_154_001_349_773_722);
        check(difference(10_000.0, 0.002), 3.999_999_880_000_166_4e-11);
    }
}
