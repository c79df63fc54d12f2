//! The state of a keyboard with a suggestion strip, without a terminal.

use undertone_run::RunError;

/// Number of suggestions.
pub(super) const SUGGESTIONS: usize = 3;

/// Words for the text before a word and its first letters, likeliest first.
pub(super) type Suggest<'a> = dyn FnMut(&str, &str) -> Result<Vec<String>, RunError> + 'a;

/// A key that the keyboard knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A character of the text.
    Char(char),
    /// Takes the suggestion at a place, from 0.
    Accept(usize),
    /// Deletes the last character.
    Backspace,
    /// Ends the line and begins a new one.
    Enter,
}

/// The text of one line, its suggestions, and how many keys it took.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    text: String,
    suggestions: Vec<String>,
    /// Keys that were pressed, and characters that stand there, in all lines.
    keys: u64,
    earlier: u64,
}

impl Keyboard {
    /// A keyboard with suggestions for the first word.
    pub(super) fn new(suggest: &mut Suggest<'_>) -> Result<Self, RunError> {
        let mut keyboard = Self::default();
        keyboard.suggest(suggest)?;
        Ok(keyboard)
    }

    /// Presses a key. Returns the line that it ended.
    pub(super) fn press(&mut self, key: Key, suggest: &mut Suggest<'_>) -> Result<Option<String>, RunError> {
        let mut ended = None;
        match key {
            Key::Char(letter) => {
                // A space after an accepted word is there already, and punctuation goes before it.
                let closes = matches!(letter, '.' | ',' | '!' | '?' | ';' | ':');
                if closes && self.text.ends_with(' ') {
                    self.text.pop();
                    self.text.push(letter);
                    self.text.push(' ');
                } else {
                    self.text.push(letter);
                }
                self.keys += 1;
            }
            Key::Accept(place) => {
                let Some(word) = self.suggestions.get(place) else {
                    return Ok(None);
                };
                let begun = self.begun().len();
                self.text.truncate(self.text.len() - begun);
                self.text.push_str(word);
                self.text.push(' ');
                self.keys += 1;
            }
            Key::Backspace => {
                if self.text.pop().is_some() {
                    self.keys += 1;
                }
            }
            Key::Enter => {
                self.earlier += self.length();
                ended = Some(std::mem::take(&mut self.text));
            }
        }
        self.suggest(suggest)?;
        Ok(ended)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn suggestions(&self) -> &[String] {
        &self.suggestions
    }

    /// Keys that were pressed, and characters that they wrote. The end of a line counts as neither.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.keys, self.earlier + self.length())
    }

    /// The part of keystrokes that suggestions saved; `None` without a character.
    pub(super) fn saved(&self) -> Option<f64> {
        let (keys, characters) = self.counts();
        (characters > 0).then(|| 1.0 - keys as f64 / characters as f64)
    }

    fn length(&self) -> u64 {
        self.text.chars().count() as u64
    }

    /// The letters of the word that is being typed.
    fn begun(&self) -> &str {
        let start = self.text.rfind(char::is_whitespace).map_or(0, |place| place + 1);
        &self.text[start..]
    }

    fn suggest(&mut self, suggest: &mut Suggest<'_>) -> Result<(), RunError> {
        let begun = self.begun();
        let before = &self.text[..self.text.len() - begun.len()];
        self.suggestions = suggest(before, begun)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Suggests the words of a list that begin as the letters do.
    fn list(_: &str, begun: &str) -> Result<Vec<String>, RunError> {
        let words = ["the", "cat", "there", "sat"].iter();
        let fit = words.filter(|word| word.starts_with(begun)).take(SUGGESTIONS);
        Ok(fit.map(|word| (*word).to_owned()).collect())
    }

    fn typed(keys: &[Key]) -> (Keyboard, Vec<String>) {
        let mut keyboard = Keyboard::new(&mut list).unwrap();
        let mut lines = Vec::new();
        for &key in keys {
            lines.extend(keyboard.press(key, &mut list).unwrap());
        }
        (keyboard, lines)
    }

    #[test]
    fn accepting_a_suggestion_ends_the_word_and_counts_as_one_key() {
        let (keyboard, _) = typed(&[Key::Char('t'), Key::Char('h'), Key::Accept(1), Key::Accept(1)]);
        assert_eq!(keyboard.text(), "there cat ");
        assert_eq!(keyboard.suggestions(), ["the", "cat", "there"]);
        assert_eq!(keyboard.counts(), (4, 10));
        assert_eq!(keyboard.saved(), Some(0.6));
    }

    #[test]
    fn typing_every_letter_saves_nothing() {
        let keys: Vec<Key> = "the end".chars().map(Key::Char).collect();
        let (keyboard, _) = typed(&keys);
        assert_eq!((keyboard.text(), keyboard.saved()), ("the end", Some(0.0)));
        assert!(keyboard.suggestions().is_empty());
        // There is nothing to accept.
        let (same, _) = typed(&[&keys[..], &[Key::Accept(0)]].concat());
        assert_eq!(same.counts(), (7, 7));
    }

    #[test]
    fn punctuation_takes_the_place_of_the_space_after_an_accepted_word() {
        let (keyboard, _) = typed(&[Key::Accept(0), Key::Char('.')]);
        assert_eq!(keyboard.text(), "the. ");
        assert_eq!(keyboard.counts(), (2, 5));
    }

    #[test]
    fn backspace_costs_a_key_and_takes_a_character_away() {
        let (keyboard, _) = typed(&[Key::Char('x'), Key::Backspace, Key::Backspace]);
        assert_eq!(
            (keyboard.text(), keyboard.counts(), keyboard.saved()),
            ("", (2, 0), None)
        );
    }

    #[test]
    fn lines_add_up() {
        let (keyboard, lines) = typed(&[Key::Accept(0), Key::Enter, Key::Accept(1), Key::Enter]);
        assert_eq!(lines, ["the ", "cat "]);
        assert_eq!((keyboard.text(), keyboard.counts()), ("", (2, 8)));
    }
}
