//! Numbers for people: four significant digits, and bounds that are never below what was computed.

/// Four significant digits, in plain notation where that is short.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..7.0).contains(&magnitude) {
        return scientific(value);
    }
    let text = format!("{value:.*}", (3.0 - magnitude).max(0.0) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// The value like [`number`], but never rounded down.
#[must_use]
pub fn upper_bound(value: f64) -> String {
    let text = number(value);
    match text.parse::<f64>() {
        // PRIVACY: a bound that is rounded down is a claim that does not hold.
        Ok(shown) if shown < value => number(shown + 10f64.powf(value.abs().log10().floor() - 3.0)),
        _ => text,
    }
}

/// `1e-6`, `2.5e-7`.
#[must_use]
pub fn scientific(value: f64) -> String {
    let text = format!("{value:.3e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => {
            format!(
                "{}e{exponent}",
                mantissa.trim_end_matches('0').trim_end_matches('.')
            )
        }
        _ => text,
    }
}

/// Epsilon and delta as they are shown everywhere: both rounded up, so the shown pair is implied by the computed one.
#[must_use]
pub fn epsilon_delta(epsilon: f64, delta: f64) -> String {
    format!("(eps = {}, delta = {})", upper_bound(epsilon), upper_bound(delta))
}

/// A fraction in per cent, with its standard error where there is one: `12.56 % ± 0.31`.
#[must_use]
pub fn share(fraction: f64, standard_error: Option<f64>) -> String {
    let percent = format!("{:.2} %", 100.0 * fraction);
    match standard_error {
        Some(error) => format!("{percent} ± {:.2}", 100.0 * error),
        None => percent,
    }
}

/// `12345` as `12,345`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_of_three() {
        let check = |number, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(1000, "1,000");
        check(1_234_567, "1,234,567");
    }

    #[test]
    fn hex_has_two_digits_a_byte() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }

    #[test]
    fn figures_read_well() {
        let check = |got: String, expected: &str| assert_eq!(got, expected);
        check(number(1.5), "1.5");
        check(number(12_345.6), "12346");
        check(number(0.001_234_56), "0.001235");
        check(number(1.0e-9), "1e-9");
        check(number(4.0e12), "4e12");
        check(number(f64::INFINITY), "inf");
        check(scientific(2.5e-7), "2.5e-7");
        check(upper_bound(4.0374), "4.038");
        check(upper_bound(4.0376), "4.038");
        check(upper_bound(4.037), "4.037");
        check(upper_bound(9.999_91), "10");
        check(upper_bound(1234.2), "1235");
        check(upper_bound(0.012_341), "0.01235");
        check(upper_bound(0.0), "0");
        check(upper_bound(f64::INFINITY), "inf");
    }

    #[test]
    fn bounds_are_never_rounded_down() {
        for value in [
            1.23451,
            4.0,
            3.999_96,
            12.3456,
            1e-6,
            2.511_886e-7,
            0.000_123_456,
            31_415_926.5,
            9.9999e-9,
        ] {
            let shown: f64 = upper_bound(value).parse().unwrap();
            assert!(
                shown >= value && shown <= value * 1.002,
                "{value} is shown as {shown}"
            );
        }
        assert_eq!(epsilon_delta(4.0, 1e-5), "(eps = 4, delta = 1e-5)");
    }
}
