//! The wanted fields of one JSON object. All other fields are passed over without being stored, however deep they are.

use std::borrow::Cow;

use super::scan::{Fault, Scanner};
use crate::columns::Columns;
use undertone_settings::Pointer;

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// An object, whose wanted fields are now known.
    Object,
    /// Another kind of value.
    Other(&'static str),
}

/// The value of a wanted field.
pub(super) enum Field<'t> {
    Null,
    Bool,
    Number(&'t str),
    Text(Cow<'t, str>),
    Array,
    Object,
}

impl Field<'_> {
    /// The kind of a value, in words.
    pub(super) fn kind(field: Option<&Field<'_>>) -> &'static str {
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

/// Number of fields that are wanted: user, text, time, split.
const WANTED: usize = 4;

/// The wanted fields, as places below the top of a record.
pub(super) struct Wanted {
    pointers: [Option<Pointer>; WANTED],
}

/// The wanted fields of one record.
#[derive(Default)]
pub(super) struct Found<'t> {
    fields: [Option<Field<'t>>; WANTED],
    /// Half surrogates that were replaced.
    pub(super) replaced: u64,
}

impl<'t> Found<'t> {
    pub(super) fn user(&self) -> Option<&Field<'t>> {
        self.fields[0].as_ref()
    }

    pub(super) fn text(&self) -> Option<&Field<'t>> {
        self.fields[1].as_ref()
    }

    pub(super) fn time(&self) -> Option<&Field<'t>> {
        self.fields[2].as_ref()
    }

    pub(super) fn split(&self) -> Option<&Field<'t>> {
        self.fields[3].as_ref()
    }
}

/// The fields of a set of wanted ones, by their bits.
type Set = u8;

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..WANTED).filter(move |field| set >> field & 1 == 1)
}

impl Wanted {
    pub(super) fn of(columns: Columns<'_>) -> Self {
        let names = [columns.user, Some(columns.text), columns.time, columns.split];
        Self {
            pointers: names.map(|name| name.map(Pointer::of_name)),
        }
    }

    /// Reads a record. A field that occurs twice has its last value.
    pub(super) fn parse<'t>(&self, text: &'t [u8], found: &mut Found<'t>) -> Result<Record, Fault> {
        *found = Found::default();
        let mut scanner = Scanner::of(text);
        let all = (0..WANTED).filter(|&field| self.pointers[field].is_some());
        let all = all.fold(0, |set, field| set | 1 << field);
        let record = match scanner.peek() {
            Some(b'{') => {
                self.object(&mut scanner, 0, all, found)?;
                Record::Object
            }
            other => {
                scanner.skip()?;
                Record::Other(match other {
                    Some(b'[') => "an array",
                    Some(b'"') => "a string",
                    Some(b'n') => "null",
                    Some(b't' | b'f') => "a boolean",
                    _ => "a number",
                })
            }
        };
        scanner.end()?;
        Ok(record)
    }

    /// Reads the members of an object, whose brace is next. `set` holds the fields that may lie below it.
    fn object<'t>(
        &self,
        scanner: &mut Scanner<'t>,
        depth: usize,
        set: Set,
        found: &mut Found<'t>,
    ) -> Result<(), Fault> {
        scanner.at += 1;
        if scanner.peek() == Some(b'}') {
            scanner.at += 1;
            return Ok(());
        }
        loop {
            let key = scanner.key()?;
            let below = self.below(set, depth, |part| key.is(part));
            self.value(scanner, depth + 1, below, found)?;
            match scanner.peek() {
                Some(b',') => scanner.at += 1,
                Some(b'}') => break,
                _ => return scanner.fault("expected a comma or }"),
            }
        }
        scanner.at += 1;
        Ok(())
    }

    /// Reads the elements of an array, whose bracket is next.
    fn array<'t>(
        &self,
        scanner: &mut Scanner<'t>,
        depth: usize,
        set: Set,
        found: &mut Found<'t>,
    ) -> Result<(), Fault> {
        scanner.at += 1;
        if scanner.peek() == Some(b']') {
            scanner.at += 1;
            return Ok(());
        }
        for index in 0_usize.. {
            let below = self.below(set, depth, |part| part.parse() == Ok(index));
            self.value(scanner, depth + 1, below, found)?;
            match scanner.peek() {
                Some(b',') => scanner.at += 1,
                Some(b']') => break,
                _ => return scanner.fault("expected a comma or ]"),
            }
        }
        scanner.at += 1;
        Ok(())
    }

    /// The fields of a set whose next part is this one.
    fn below(&self, set: Set, depth: usize, is: impl Fn(&str) -> bool) -> Set {
        let matches = |field: usize| {
            let part = self.pointers[field]
                .as_ref()
                .and_then(|pointer| pointer.part(depth));
            part.is_some_and(&is)
        };
        members(set)
            .filter(|&field| matches(field))
            .fold(0, |set, field| set | 1 << field)
    }

    /// Reads a value. `set` holds the fields that are this value or lie below it.
    fn value<'t>(
        &self,
        scanner: &mut Scanner<'t>,
        depth: usize,
        set: Set,
        found: &mut Found<'t>,
    ) -> Result<(), Fault> {
        if set == 0 {
            return scanner.skip();
        }
        let mut deeper = 0;
        let mut here = 0;
        for field in members(set) {
            found.fields[field] = None;
            let ends = self.pointers[field]
                .as_ref()
                .is_none_or(|pointer| pointer.len() == depth);
            *(if ends { &mut here } else { &mut deeper }) |= 1 << field;
        }
        let store = |found: &mut Found<'t>, value: &dyn Fn() -> Field<'t>| {
            members(here).for_each(|field| found.fields[field] = Some(value()));
        };
        match scanner.peek() {
            Some(b'{') => {
                store(found, &|| Field::Object);
                match deeper {
                    0 => scanner.skip(),
                    _ => self.object(scanner, depth, deeper, found),
                }
            }
            Some(b'[') => {
                store(found, &|| Field::Array);
                match deeper {
                    0 => scanner.skip(),
                    _ => self.array(scanner, depth, deeper, found),
                }
            }
            Some(b'"') => {
                let string = scanner.string()?;
                if here != 0 {
                    let text = string.text(&mut found.replaced)?;
                    store(found, &|| Field::Text(text.clone()));
                }
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => {
                let number = scanner.number()?;
                store(found, &|| Field::Number(number));
                Ok(())
            }
            first => {
                scanner.literal()?;
                let of_literal = || match first {
                    // Python writes `NaN` for a value that is missing.
                    Some(b'n' | b'N') => Field::Null,
                    Some(b'I') => Field::Number("Infinity"),
                    _ => Field::Bool,
                };
                store(found, &of_literal);
                Ok(())
            }
        }
    }
}

/// The names of the fields at the top of a record, in their order, at most so many.
pub(super) fn names(text: &[u8], most: usize) -> Vec<String> {
    let mut found = Vec::new();
    // What a fault cuts off is not named.
    let _ = each_name(text, &mut |name| {
        found.push(name);
        found.len() < most
    });
    found
}

fn each_name(text: &[u8], take: &mut dyn FnMut(String) -> bool) -> Result<(), Fault> {
    let mut scanner = Scanner::of(text);
    scanner.expect(b'{', "expected an object")?;
    while let Some(b'"') = scanner.peek() {
        let more = take(scanner.key()?.text(&mut 0)?.into_owned());
        scanner.skip()?;
        if !more || scanner.peek() != Some(b',') {
            break;
        }
        scanner.at += 1;
    }
    Ok(())
}
