//! The words of a command line that asks a question again.

/// Words of a command line.
#[derive(Debug, Clone, Default)]
pub(super) struct Words(Vec<String>);

impl Words {
    /// The words of a sub-command of `undertone account`.
    pub(super) fn of(command: &str) -> Self {
        Self(vec![
            "undertone".to_owned(),
            "account".to_owned(),
            command.to_owned(),
        ])
    }

    /// Adds a word that is no option.
    pub(super) fn word(mut self, word: &str) -> Self {
        self.0.push(quoted(word));
        self
    }

    /// Adds an option that has a value.
    pub(super) fn option(mut self, name: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.0.push(format!("--{name}"));
            self.0.push(quoted(&value));
        }
        self
    }

    /// The line that a shell reads.
    pub(super) fn line(&self) -> String {
        self.0.join(" ")
    }
}

/// A number with all its digits, as the command line reads it.
pub(super) fn exact(value: f64) -> String {
    if (1e-4..1e15).contains(&value.abs()) || value == 0.0 {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-+=,/:".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_come_back_from_a_command_line() {
        for (value, text) in [
            (1e-6, "1e-6"),
            (0.8, "0.8"),
            (500.0, "500"),
            (0.0, "0"),
            (1e300, "1e300"),
        ] {
            assert_eq!(exact(value), text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
        assert_eq!(quoted("runs/a-1.toml"), "runs/a-1.toml");
        assert_eq!(quoted("my run's.toml"), "'my run'\\''s.toml'");
        assert_eq!(quoted(""), "''");
    }
}
