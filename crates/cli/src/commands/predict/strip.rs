//! The keyboard on a terminal.

use std::io::Write;

use anyhow::Context;
use console::{Key as Pressed, Term, style};
use undertone_present::terminal;
use undertone_run::language::{LanguageModel, Predictor};

use crate::output::Output;

use super::keyboard::{Key, Keyboard, SUGGESTIONS};

/// Reads keys until Ctrl-C, Ctrl-D or Escape, and shows the strip below the text.
pub(super) fn type_with(predictor: &mut Predictor<'_>, model: &LanguageModel) -> anyhow::Result<()> {
    let screen = Output::screen();
    let mut suggest = |before: &str, begun: &str| {
        let words = predictor.next_words(before, begun, SUGGESTIONS)?;
        Ok(words.into_iter().map(|word| word.word).collect())
    };
    let mut keyboard = Keyboard::new(&mut suggest)?;
    let write = |line: &str| screen.write_line(line).context("cannot write to the terminal");
    write(&format!(
        "{} with {} words or tokens. Tab takes the first suggestion, 1 to {SUGGESTIONS} take each of them, Escape ends.",
        model.source().name(),
        model.ids()
    ))?;
    write("")?;
    show(&screen, &keyboard, false)?;
    // An error means that the terminal is gone, or that a signal came.
    while let Ok(key) = screen.read_key() {
        let key = match key {
            Pressed::Tab => Key::Accept(0),
            Pressed::Char(digit @ '1'..='3') => Key::Accept(digit as usize - '1' as usize),
            Pressed::Char('\u{4}') | Pressed::Escape | Pressed::CtrlC => break,
            Pressed::Char(letter) if !letter.is_control() => Key::Char(letter),
            Pressed::Backspace => Key::Backspace,
            Pressed::Enter => Key::Enter,
            _ => continue,
        };
        let ended = keyboard.press(key, &mut suggest)?;
        clear(&screen)?;
        if let Some(line) = ended {
            write(&terminal::line(&line))?;
        }
        show(&screen, &keyboard, false)?;
    }
    clear(&screen)?;
    show(&screen, &keyboard, true)
}

/// Lines that the strip takes.
const LINES: usize = 3;

fn clear(screen: &Term) -> anyhow::Result<()> {
    screen
        .clear_last_lines(LINES)
        .context("cannot write to the terminal")
}

/// The text, the suggestions and the share of saved keys.
fn show(screen: &Term, keyboard: &Keyboard, last: bool) -> anyhow::Result<()> {
    let (keys, characters) = keyboard.counts();
    let saved = match keyboard.saved() {
        Some(saved) => {
            let plural = |count: u64| if count == 1 { "" } else { "s" };
            let (of_keys, of_characters) = (plural(keys), plural(characters));
            format!(
                "{keys} key{of_keys} for {characters} character{of_characters}, {:.0} % saved",
                100.0 * saved
            )
        }
        None => "no key was pressed".to_owned(),
    };
    // The end of a long text stays in sight; each line of the strip is one line of the terminal.
    let width = usize::from(screen.size().1).max(20) - 2;
    let fits = |text: &str| -> String {
        let all: Vec<char> = text.chars().collect();
        all[all.len().saturating_sub(width)..].iter().collect()
    };
    let text = fits(&terminal::line(keyboard.text()));
    let words: Vec<String> = keyboard
        .suggestions()
        .iter()
        .map(|word| terminal::line(word).into_owned())
        .collect();
    let words = fits(&words.join("  |  "));
    let mut screen = screen;
    let strip = match last {
        true => format!("{text}\n{saved}\n"),
        false => format!(
            "{text}{}\n{}\n{}\n",
            style("▏").dim(),
            style(words).cyan(),
            style(saved).dim()
        ),
    };
    screen
        .write_all(strip.as_bytes())
        .context("cannot write to the terminal")
}
