//! The end of a certificate: the second time of its validity, in DER.

use undertone_store::Millis;

/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// The tags of DER that stand before the end of a certificate.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of a certificate in milliseconds since 1970; `None` for bytes of another form.
pub(super) fn of(certificate: &[u8]) -> Option<Millis> {
    let (_, certificate, _) = element(certificate)?;
    let (SEQUENCE, mut signed, _) = element(certificate)? else {
        return None;
    };
    if let (VERSION, _, rest) = element(signed)? {
        signed = rest;
    }
    // The serial number, the algorithm of the signature, and the issuer.
    for _ in 0..3 {
        (_, _, signed) = element(signed)?;
    }
    let (SEQUENCE, validity, _) = element(signed)? else {
        return None;
    };
    let (_, _, end) = element(validity)?;
    let (tag, text, _) = element(end)?;
    time(tag, text)
}

/// The tag and the content of the first element, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Four bytes of a length are more than any certificate needs.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0_usize, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A time of a certificate, which is always in UTC and has seconds.
fn time(tag: u8, text: &[u8]) -> Option<Millis> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 || year < 1970 {
        return None;
    }
    let part = |at: usize, range: std::ops::RangeInclusive<u64>| {
        let value: u64 = rest.get(2 * at..2 * at + 2)?.parse().ok()?;
        range.contains(&value).then_some(value)
    };
    let (month, day) = (part(0, 1..=12)?, part(1, 1..=31)?);
    let (hour, minute, second) = (part(2, 0..=23)?, part(3, 0..=59)?, part(4, 0..=60)?);
    let seconds = (hour * 60 + minute) * 60 + second;
    Some(days(year, month, day) * DAY + seconds * 1000)
}

/// Days from 1970 to a date of the Gregorian calendar. Years begin in March here, so that a leap day is the last of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    // 719,468 days lie between 1 March of the year 0 and 1970.
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_the_one_that_it_was_made_with() {
        for (year, month, day, seconds) in [
            (2027, 3, 1, 1_803_859_200),
            (2049, 12, 31, 2_524_521_600),
            (2052, 2, 29, 2_592_777_600_u64),
        ] {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let key = rcgen::KeyPair::generate().unwrap();
            let made = params.self_signed(&key).unwrap();
            assert_eq!(of(made.der()), Some(seconds * 1000), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn bytes_of_another_form_have_no_end() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let whole = made.cert.der().to_vec();
        assert!(of(&whole).is_some());
        for length in 0..whole.len() {
            // A part may hold the end, and never panics.
            let _ = of(&whole[..length]);
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        for (tag, text) in [
            (UTC_TIME, "991301000000Z"),
            (UTC_TIME, "99010100000Z"),
            (0x0c, "270301000000Z"),
            (GENERALIZED_TIME, "19690301000000Z"),
        ] {
            assert_eq!(time(tag, text.as_bytes()), None, "{text}");
        }
    }
}
