//! Mutations of honest files: of bytes whatever they mean, and of documents leaf by leaf.

mod bytes;
mod document;

use crate::random::Random;

/// The syntax of a file, for mutations that keep it readable as far as the part that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// Nothing that is known here.
    Bytes,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    JsonLines,
    /// A TOML document.
    Toml,
    /// A safetensors file: the length of its header, a header in JSON, data.
    Safetensors,
}

/// The mutation of this number: the same seed and index give the same bytes.
#[must_use]
pub fn mutant(syntax: Syntax, honest: &[u8], seed: u64, index: u64) -> Vec<u8> {
    let mut random = Random::new(seed, index);
    let mut mutant = honest.to_vec();
    let edits = 1 + random.below(3).saturating_sub(random.below(3));
    for _ in 0..edits {
        // Most readers of documents refuse changed bytes at once; changed leaves go deeper.
        let structured = syntax != Syntax::Bytes && !random.one_in(4);
        let changed = match structured {
            true => document::edit(syntax, &mutant, &mut random),
            false => None,
        };
        match changed {
            Some(changed) => mutant = changed,
            None => bytes::edit(&mut mutant, honest, &mut random),
        }
    }
    mutant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_index_gives_the_same_mutant_and_another_gives_another() {
        let honest = br#"{"a": [1, 2.5, "three"], "b": {"c": null}}"#;
        let mutants: Vec<_> = (0..200)
            .map(|index| mutant(Syntax::Json, honest, 7, index))
            .collect();
        let again: Vec<_> = (0..200)
            .map(|index| mutant(Syntax::Json, honest, 7, index))
            .collect();
        assert_eq!(mutants, again);
        let distinct: std::collections::HashSet<_> = mutants.iter().collect();
        assert!(distinct.len() > 150, "{}", distinct.len());
        let readable = mutants
            .iter()
            .filter(|mutant| serde_json::from_slice::<serde_json::Value>(mutant).is_ok());
        assert!(readable.count() > 80, "leaf edits keep a document readable");
    }
}
