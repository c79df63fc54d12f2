use super::*;

#[test]
fn only_real_dates_are_read() {
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(parse_date(text), expected, "{text}");
    }
    check("1970-01-01", Some(0));
    check("1970-01-02T00:00:01Z", Some(86_401));
    check("2000-02-29", Some(951_782_400));
    check("2024-06-05", Some(1_717_545_600));
    check("2024-06-05Z", Some(1_717_545_600));
    check("2024-06-05 12:30:00", Some(1_717_590_600));
    check("1969-12-31", Some(-86_400));
    check("2023-02-29", None);
    check("2024-13-01", None);
    check("2024-6-5", None);
    check("2024-06-05T25:00:00", None);
    check("yesterday", None);
}

#[test]
fn dates_with_fractions_and_offsets_are_floored_to_seconds_in_utc() {
    let noon = 1_717_588_800;
    for text in [
        "2024-06-05T12:00:00Z",
        "2024-06-05T12:00:00.123Z",
        "2024-06-05T12:00:00.999999999",
        "2024-06-05T12:00:00,5",
        "2024-06-05T14:00:00+02:00",
        "2024-06-05T12:00:00+00:00",
        "2024-06-05 12:00:00.123456+00",
        "2024-06-05T12:00:00.0000000+00:00",
        "2024-06-05t12:00:00z",
        "2024-06-05T12:00",
        "2024-06-05 12:00Z",
        "2024-06-05 07:00 -05:00",
        "2024-06-05 17:30:00.5+0530",
        "2024-06-05 12:00:00 UTC",
        "2024-06-06T01:45:00+13:45",
        " 1717588800 ",
        "1717588800.000200",
        "1717588800.0",
        "+1717588800",
    ] {
        assert_eq!(of_text(text, None), Ok(Some(noon)), "{text}");
    }
    assert_eq!(of_text("1969-12-31T23:59:59.75Z", None), Ok(Some(-1)));
    for text in [
        "2024-06-05T",
        "2024-06-05T12",
        "2024-06-05T12:00:00.",
        "2024-06-05T12:00.5",
        "2024-06-05T12:00:00+2",
        "2024-06-05T12:00:00+24:00",
        "2024-06-05T12:00:00+02:60",
        "2024-06-05T12:00:00+",
        "2024-06-05T12:00:00 CEST",
        "2024-06-05T12:00:00+02:00:",
        "2024-06-05T1:00",
        "2024-06-05T12:60",
        "24:00",
        "2024-06-05T24:00:00",
        "12.5.2024",
        "Wed, 05 Jun 2024 12:00:00 +0000",
        "NaN",
        "\\N",
        "1.5e9",
        "1717588800.",
        ".5",
        "--5",
        "0x10",
        "2024-06-05T12:00:00é",
        "20é4-06-05",
    ] {
        let error = of_text(text, None).expect_err(text);
        assert!(
            error.starts_with("unix seconds or an ISO date"),
            "{text}: {error}"
        );
    }
    assert_eq!(of_text(" ", None), Ok(None));
}

#[test]
fn numbers_are_floored_by_one_rule() {
    assert_eq!(of_text("-1.5", None), Ok(Some(-2)));
    assert_eq!(of_text("-1.0", None), Ok(Some(-1)));
    assert_eq!(of_float(-1.5, None), Ok(Some(-2)));
    assert_eq!(of_float(1.9, None), Ok(Some(1)));
    assert_eq!(of_float(f64::NAN, None), Ok(None));
    assert!(of_float(f64::INFINITY, None).is_err() && of_float(1e17, None).is_err());
    assert_eq!(floored(-1500, 1000), Some(-2));
    assert_eq!(floored(1999, 1000), Some(1));
    assert_eq!(of_integer(-1500, Some(TimeUnit::Milliseconds)), Ok(-2));
    assert_eq!(of_text("-1500", Some(TimeUnit::Milliseconds)), Ok(Some(-2)));
    assert_eq!(of_text("-1500.5", Some(TimeUnit::Milliseconds)), Ok(Some(-2)));
    assert!(of_integer(i128::from(NO_TIME), Some(TimeUnit::Seconds)).is_err());
    assert!(of_text("99999999999999999999999999999999999999999999", None).is_err());
}

#[test]
fn milliseconds_and_calendar_numbers_are_refused_with_the_option_that_reads_them() {
    let noon = 1_717_588_800;
    for (value, unit, expected) in [
        (1_717_588_800_000_i128, "ms", noon),
        (1_717_588_800_000_000, "us", noon),
        (1_717_588_800_000_000_000, "ns", noon),
        (-99_999_999_999_999, "ms", -100_000_000_000),
        (20_240_605, "calendar", 1_717_545_600),
        (202_406_051_200, "calendar", noon),
        (20_240_605_120_000, "calendar", noon),
        (19_700_101, "calendar", 0),
    ] {
        let error = of_integer(value, None).expect_err(unit);
        let option = format!("--time-unit {unit} (time_unit = \"{unit}\") reads it");
        assert!(error.ends_with(&option), "{value}: {error}");
        assert_eq!(
            of_text(&value.to_string(), None),
            Err(error),
            "the rule is one for numbers and text"
        );
        let unit: TimeUnit = unit.parse().expect("a unit");
        assert_eq!(of_integer(value, Some(unit)), Ok(expected), "{value}");
        // A unit that is given holds.
        assert_eq!(
            of_integer(value, Some(TimeUnit::Seconds)).ok(),
            i64::try_from(value).ok()
        );
    }
    // Neither seconds of today nor digits that are no date.
    for value in [
        0,
        5,
        noon,
        -noon,
        20_241_305,
        20_240_632,
        20_240_600,
        18_991_231,
        253_402_300_799,
    ] {
        assert_eq!(of_integer(i128::from(value), None), Ok(value), "{value}");
    }
    let error = of_integer(20_241_305, Some(TimeUnit::Calendar)).expect_err("no date");
    assert_eq!(error, "a date such as 20240605 or 20240605123000");
    assert_eq!("minutes".parse::<TimeUnit>(), Err(NotATimeUnit));
    assert_eq!(TimeUnit::Calendar.to_string(), "calendar");
}

#[test]
fn a_point_that_looks_like_milliseconds_or_a_date_is_refused() {
    assert_eq!(
        TimePoint::parse("1717588800"),
        Ok(TimePoint::Seconds(1_717_588_800))
    );
    assert_eq!(
        TimePoint::parse("2024-06-05"),
        Ok(TimePoint::Date("2024-06-05".to_owned()))
    );
    assert!(
        TimePoint::parse("20240605")
            .expect_err("a date")
            .contains("a date written as one number")
    );
    assert!(
        TimePoint::parse("1717588800000")
            .expect_err("too late")
            .contains("milliseconds")
    );
}
