//! A command line as a question, where there is no process to start.

use anyhow::anyhow;
use clap::{Parser, Subcommand};

use crate::account::AccountArgs;
use crate::population::PlanArgs;
use crate::shown::Shown;

#[derive(Debug, Parser)]
#[command(name = "undertone", disable_help_flag = true)]
struct Line {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Account for a question about privacy.
    Account(Box<AccountArgs>),
    /// Plan for a population.
    Plan(Box<PlanArgs>),
}

/// The answer to the words of a command line after `undertone`. It is the answer that the program prints, to the last digit.
///
/// # Errors
/// An error names the option, the expected value and the value found.
///
/// # Example
/// ```
/// let words = "account gaussian --noise-multiplier 2 --delta 1e-6".split(' ');
/// let shown = undertone_planner::answer(words)?;
/// assert!(shown.text.contains("epsilon"));
/// # Ok::<(), anyhow::Error>(())
/// ```
pub fn answer<'a>(words: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Shown> {
    let words = std::iter::once("undertone").chain(words);
    let line = Line::try_parse_from(words).map_err(|error| {
        let message = error.to_string();
        // What follows are the usage and hints for a terminal.
        let message = message.split("\n\nUsage:").next().unwrap_or_default();
        anyhow!("{}", message.trim().trim_start_matches("error: "))
    })?;
    match line.question {
        Question::Account(args) => args.answer(),
        Question::Plan(args) => args.answer(&|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> anyhow::Result<Shown> {
        answer(line.split(' '))
    }

    #[test]
    fn both_commands_answer_in_both_forms() {
        let sampled = answered(
            "account sampled --sampling-probability 0.01 --noise-multiplier 1 --rounds 1000 --delta 1e-5",
        )
        .unwrap();
        let document: serde_json::Value = serde_json::from_str(&sampled.json).unwrap();
        let epsilon = document["epsilon"].as_f64().unwrap();
        assert!((1.82..1.84).contains(&epsilon), "{epsilon}");
        assert!(
            sampled.text.starts_with("Poisson-sampled Gaussian rounds"),
            "{}",
            sampled.text
        );
        let plan = answered("plan --population 100000 --rounds 500 --epsilon 8").unwrap();
        assert!(
            plan.text.contains("blt-400") && plan.json.contains("at_report_goal"),
            "{}",
            plan.text
        );
    }

    #[test]
    fn errors_name_the_option_in_one_paragraph() {
        for (line, expected) in [
            ("account gaussian --delta 1e-6", "--noise-multiplier"),
            (
                "account gaussian --noise-multiplier x --delta 1e-6",
                "--noise-multiplier",
            ),
            ("account gaussian --noise-multiplier 2", "--delta"),
            ("plan --population 10 --rounds 5", "--epsilon"),
            (
                "plan --population 10 --epsilon 8",
                "--rounds: expected the number of rounds",
            ),
            ("plan --rounds 10 --epsilon 8", "--population"),
            ("plan --population 10 --rounds 5 --epsilon 8 --rho 1", "--rho"),
            ("train words.toml", "train"),
            ("", ""),
        ] {
            let error = answered(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
            assert!(!error.contains("Usage"), "{line}: {error}");
        }
    }
}
