//! The wanted fields of one JSON object. All other fields are passed over without being stored, however deep they are.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// The content of a line.
pub(super) enum Line {
    /// An object, whose wanted fields are now known.
    Object,
    /// Another kind of value.
    Other(&'static str),
}

/// The value of a wanted field.
pub(super) enum Field {
    Null,
    Bool,
    Number(Number),
    Text(String),
    Array,
    Object,
}

impl Field {
    /// The kind of a value, in words.
    pub(super) fn kind(field: Option<&Field>) -> &'static str {
        match field {
            None => "no such field",
            Some(Field::Null) => "null",
            Some(Field::Bool) => "a boolean",
            Some(Field::Number(_)) => "a number",
            Some(Field::Text(text)) if text.is_empty() => "an empty string",
            Some(Field::Text(_)) => "a string",
            Some(Field::Array) => "an array",
            Some(Field::Object) => "an object",
        }
    }
}

/// Wanted fields by name, parsed anew from each line.
pub(super) struct Object<'a> {
    fields: Vec<(&'a str, Option<Field>)>,
}

impl<'a> Object<'a> {
    pub(super) fn of(names: [Option<&'a str>; 4]) -> Object<'a> {
        let mut fields: Vec<(&str, Option<Field>)> = Vec::new();
        for name in names.into_iter().flatten() {
            if fields.iter().all(|(known, _)| *known != name) {
                fields.push((name, None));
            }
        }
        Object { fields }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Field> {
        let field = self.fields.iter().find(|(known, _)| *known == name)?;
        field.1.as_ref()
    }

    pub(super) fn parse(&mut self, line: &[u8]) -> Result<Line, serde_json::Error> {
        self.fields.iter_mut().for_each(|(_, field)| *field = None);
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let line = Fields(self).deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(line)
    }
}

struct Fields<'o, 'a>(&'o mut Object<'a>);

impl<'de> DeserializeSeed<'de> for Fields<'_, '_> {
    type Value = Line;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Line, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_, '_> {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match self.0.fields.iter_mut().find(|(name, _)| *name == key) {
                Some((_, field)) => *field = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Line::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Line, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Line::Other("an array"))
    }

    fn visit_unit<E>(self) -> Result<Line, E> {
        Ok(Line::Other("null"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Line, E> {
        Ok(Line::Other("a boolean"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Line, E> {
        Ok(Line::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Line, E> {
        Ok(Line::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Line, E> {
        Ok(Line::Other("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Line, E> {
        Ok(Line::Other("a string"))
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_any(AnyField)
    }
}

struct AnyField;

impl<'de> Visitor<'de> for AnyField {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Field, E> {
        Ok(Field::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Field, E> {
        Ok(Field::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Field, E> {
        Ok(Field::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Field, E> {
        Ok(Field::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Field, E> {
        // JSON has no other numbers than finite ones.
        Ok(Number::from_f64(value).map_or(Field::Null, Field::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Field, E> {
        Ok(Field::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Field, E> {
        Ok(Field::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Field, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Field::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Field::Object)
    }
}
