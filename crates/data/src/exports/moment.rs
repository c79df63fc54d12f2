//! Times of exports: ISO dates with a fraction of a second and an offset from UTC.

use crate::time::parse_date;

/// Unix seconds of a time such as `2024-06-05T14:00:00.123+02:00`, floored. Without an offset the time is in UTC.
pub(super) fn moment(text: &str) -> Option<i64> {
    let text = text.trim();
    let (date, rest) = text.split_at_checked(10)?;
    let Some(rest) = rest.strip_prefix(['T', ' ']) else {
        return parse_date(text);
    };
    let end = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at_checked(end)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = parse_date(&format!("{date}T{clock}"))?;
    Some(seconds - offset(zone)?)
}

/// Seconds by which a zone such as `+02:00` is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "" | "Z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let digits = zone.get(1..)?.replace(':', "");
    let (hours, minutes) = match digits.len() {
        2 => (digits.as_str(), "0"),
        4 => digits.split_at_checked(2)?,
        _ => return None,
    };
    let number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse::<i64>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_floored_and_offsets_are_taken_off() {
        fn check(text: &str, expected: Option<i64>) {
            assert_eq!(moment(text), expected, "{text}");
        }
        let noon = Some(1_717_588_800);
        check("2024-06-05T12:00:00", noon);
        check("2024-06-05T12:00:00.653", noon);
        check("2024-06-05T12:00:00.9999999+00:00", noon);
        check("2024-06-05T14:00:00+02:00", noon);
        check("2024-06-05T07:30:00.5-0430", noon);
        check("2024-06-05 12:00:00Z", noon);
        check("1969-12-31T23:59:59.5Z", Some(-1));
        check("2024-06-05", Some(1_717_545_600));
        check("2024-06-05T12:00:00.", None);
        check("2024-06-05T12:00:00+99:00", None);
        check("2024-06-05T12:00:00+x1:00", None);
        check("2024-06-31T12:00:00Z", None);
        check("noon", None);
    }
}
