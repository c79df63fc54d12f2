//! Measured numbers in JSON, which has no name for infinity: a model that diverged has an infinite perplexity, and a run's
//! files must say so and be read again. Such numbers are written as the texts "inf", "-inf" and "nan".

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match value.is_finite() {
        true => serializer.serialize_f64(*value),
        false if value.is_nan() => serializer.serialize_str("nan"),
        false if *value > 0.0 => serializer.serialize_str("inf"),
        false => serializer.serialize_str("-inf"),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(Number)
}

/// These texts for a number that may be missing.
pub(crate) mod optional {
    use serde::{Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde hands in a reference")]
    pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}

struct Number;

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"inf\", \"-inf\" or \"nan\"")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        match text {
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            "nan" => Ok(f64::NAN),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Measured(#[serde(with = "super")] f64);

    #[test]
    fn every_number_is_read_back_as_it_was_written() {
        for (value, text) in [
            (1.5, "1.5"),
            (3.0, "3.0"),
            (f64::INFINITY, "\"inf\""),
            (f64::NEG_INFINITY, "\"-inf\""),
            (f64::NAN, "\"nan\""),
        ] {
            assert_eq!(serde_json::to_string(&Measured(value)).unwrap(), text);
            let read: Measured = serde_json::from_str(text).unwrap();
            assert_eq!(read.0.to_bits(), value.to_bits(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Measured>("3").unwrap().0, 3.0);
        for text in ["null", "\"1\"", "[]", "\"infinity\""] {
            let Err(error) = serde_json::from_str::<Measured>(text) else {
                panic!("{text} was read");
            };
            assert!(
                error.to_string().contains("expected a number, \"inf\""),
                "{error}"
            );
        }
    }
}
