//! The help of the program itself: its commands in groups, by what a user does with them, and four examples.

use clap::Command;

use crate::output::Output;

/// The groups in the order of the help, each with its commands. A command of a feature that this build does not have is left
/// out, and so is a group without commands.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Start here", &["init", "train", "predict", "report", "verify"]),
    (
        "Before training",
        &[
            "data",
            "account",
            "plan",
            "planner",
            "mechanism",
            "simulate",
            "advise",
            "explain",
        ],
    ),
    (
        "A finished run",
        &["eval", "generate", "personalize", "export", "publish", "audit"],
    ),
    ("Many runs", &["pretrain", "sweep"]),
    (
        "Federated",
        &["serve", "task", "device", "identity", "fleet", "backup"],
    ),
    ("Shell", &["completions", "manual"]),
];

/// Command lines that a reader can copy, each with what it does.
const EXAMPLES: [(&str, &str); 4] = [
    (
        "undertone init --example",
        "write a first run file, which needs no text of yours",
    ),
    (
        "undertone train quickstart.toml",
        "train a first private model, in about ten seconds",
    ),
    (
        "undertone verify runs/quickstart",
        "check the claims of the run from its files",
    ),
    ("undertone init", "write a run file for a text of your own"),
];

/// Columns of the help on a wide terminal and in a pipe, as clap has them.
const WIDTH: usize = 100;

/// The program with the help that shows its commands in groups.
pub(crate) fn grouped(program: Command) -> Command {
    let screen = Output::screen();
    let width = match screen.features().is_attended() {
        true => WIDTH.min(screen.size().1.into()),
        false => WIDTH,
    };
    let template = template(&program, width);
    program.help_template(template)
}

/// The template of clap for the whole help. Names in braces are filled in by clap.
fn template(program: &Command, width: usize) -> String {
    let styles = program.get_styles();
    let (head, word) = (*styles.get_header(), *styles.get_literal());
    let longest = program
        .get_subcommands()
        .map(|command| command.get_name().len())
        .max();
    let names = longest.unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, commands) in GROUPS {
        let mut commands = commands
            .iter()
            .filter_map(|name| program.find_subcommand(name))
            .peekable();
        if commands.peek().is_some() {
            text += &format!("\n{head}{title}:{head:#}\n");
        }
        for command in commands {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string);
            let about = wrapped(&about.unwrap_or_default(), width.saturating_sub(names + 4));
            let about = about.join(&format!("\n{:1$}", "", names + 4));
            text += &format!("  {word}{name}{word:#}{:1$}{about}\n", "", names + 2 - name.len());
        }
    }
    text += &format!("\n{head}Options:{head:#}\n{{options}}\n\n{head}Examples:{head:#}\n");
    let longest = EXAMPLES.iter().map(|(line, _)| line.len()).max();
    for (line, meaning) in EXAMPLES {
        let gap = longest.unwrap_or(0) + 2 - line.len();
        text += &format!("  {word}{line}{word:#}{:gap$}{meaning}\n", "");
    }
    text + "\n`undertone COMMAND --help` explains a command and its options."
}

/// The lines of a text, cut between words.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn each_command_stands_in_exactly_one_group() {
        let program = crate::Arguments::command();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let places = GROUPS.iter().filter(|(_, commands)| commands.contains(&name));
            assert_eq!(places.count(), 1, "{name}");
        }
    }

    #[test]
    fn each_command_of_a_group_is_a_command_of_the_complete_build() {
        let program = crate::Arguments::command();
        for (title, commands) in GROUPS {
            for name in commands {
                let expected = title != "Federated" || cfg!(feature = "service");
                assert_eq!(program.find_subcommand(name).is_some(), expected, "{name}");
            }
        }
    }

    #[test]
    fn the_help_shows_each_group_that_has_commands_and_no_line_is_too_wide() {
        for width in [60, 80, 100] {
            let template = template(&crate::Arguments::command(), width);
            let help = crate::Arguments::command()
                .help_template(template)
                .term_width(width)
                .render_help()
                .to_string();
            for (title, _) in GROUPS {
                let shown = help.contains(&format!("\n{title}:\n"));
                assert_eq!(shown, title != "Federated" || cfg!(feature = "service"), "{help}");
            }
            let commands = help.split("\nOptions:").next().unwrap_or_default();
            let widest = commands.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{help}");
            assert!(!help.contains(['{', '}']), "{help}");
        }
    }

    #[test]
    fn the_examples_of_the_help_are_command_lines() {
        for (line, _) in EXAMPLES {
            let read = crate::Arguments::command().try_get_matches_from(line.split(' '));
            assert!(read.is_ok(), "{line}");
        }
    }

    #[test]
    fn wrapped_lines_keep_every_word() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 3), ["incomprehensible"]);
    }
}
