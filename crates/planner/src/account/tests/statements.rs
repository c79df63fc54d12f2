//! Five golden statements. The first line of a file of `src/account/tests/texts` is a question, and the rest is its statement.
//!
//! `UNDERTONE_REGENERATE=1 cargo test -p undertone-planner --test it` writes the files anew.

use std::path::Path;

use super::answered;

const STATEMENTS: [&str; 5] = ["composed", "correlated", "examples", "gaussian", "users"];

#[test]
fn the_five_statements_are_as_they_were() {
    for name in STATEMENTS {
        let path = Path::new("src/account/tests/texts").join(format!("{name}.txt"));
        let file = std::fs::read_to_string(&path).expect("a golden text");
        let (question, _) = file.split_once('\n').expect("a question");
        let (answer, text) = answered(&format!("{question} --statement"));
        let statement = answer["statement"].as_str().expect("a statement");
        assert!(text.starts_with(statement), "{text}");
        let found = statement.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        let whole = format!("{question}\n\n{found}\n");
        if std::env::var_os("UNDERTONE_REGENERATE").is_some() {
            std::fs::write(&path, &whole).expect("a golden text");
        } else {
            assert_eq!(file, whole, "{}", path.display());
        }
    }
}

#[test]
fn the_command_of_a_statement_computes_its_figures_again() {
    let found = "sampled --population 10000 --cohort 100 --rounds 100 --calibrate noise-multiplier --epsilon 2 --delta 1e-6";
    let at_epsilon = "gaussian --noise-multiplier 4 --rounds 3 --epsilon 1.5 --adjacency replace-one";
    let other = "sampled --sampling-probability 1e-5 --unit example --group-size 4 --noise-multiplier 0.7 --rounds 50 --delta 1e-7 \
                 --recipe rdp";
    let composed = "compose src/account/tests/texts/fixed-size.toml --delta 1e-6";
    for question in [found, at_epsilon, other, composed] {
        let (answer, _) = answered(&format!("{question} --statement"));
        let statement = answer["statement"].as_str().expect("a statement");
        let (_, command) = statement.split_once("`undertone account ").expect("a command");
        let command = command.trim_end_matches("`.");
        let (again, _) = answered(command);
        for key in ["epsilon", "delta", "unit", "adjacency", "recipe", "whole_user"] {
            assert_eq!(answer[key], again[key], "{command}");
        }
    }
}

#[test]
fn a_sentence_of_a_statement_is_short_and_epsilon_falls_with_a_larger_delta() {
    for name in STATEMENTS {
        let file =
            std::fs::read_to_string(format!("src/account/tests/texts/{name}.txt")).expect("a golden text");
        let (_, statement) = file.split_once("\n\n").expect("a statement");
        let (prose, _) = statement.split_once("This command").expect("a command");
        for sentence in prose.split(". ") {
            let words = sentence.split_whitespace().count();
            assert!(words <= 34, "{name}: {words} words: {sentence}");
        }
        let (answer, _) = answered(&format!(
            "{} --statement",
            file.lines().next().expect("a question")
        ));
        let others = answer["other_deltas"].as_array().expect("a list");
        assert_eq!(others.len(), 3, "{answer}");
        let epsilons: Vec<f64> = others
            .iter()
            .filter_map(|other| other["epsilon"].as_f64())
            .collect();
        assert!(epsilons.is_sorted(), "{epsilons:?}");
    }
}
