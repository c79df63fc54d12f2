//! Commands that this build leaves out.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands of each feature.
const COMMANDS: [(&str, bool, &[&str]); 3] = [
    (
        "service",
        cfg!(feature = "service"),
        &["serve", "task", "backup", "identity", "device", "fleet"],
    ),
    ("tables", cfg!(feature = "tables"), &["import", "group", "dedup"]),
    ("subwords", cfg!(feature = "subwords"), &["tokenizer"]),
];

/// The error of the command line. One about a command that the complete build has says so.
pub(crate) fn explained(error: clap::Error) -> clap::Error {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(asked))) => match lacks(asked, |_, has| has)
        {
            Some(text) => clap::Error::raw(ErrorKind::InvalidSubcommand, text),
            None => error,
        },
        _ => error,
    }
}

/// The sentence about a command of a feature that this build does not have.
fn lacks(asked: &str, has: impl Fn(&str, bool) -> bool) -> Option<String> {
    let mut of = COMMANDS
        .iter()
        .filter(|(_, _, commands)| commands.contains(&asked));
    of.any(|(feature, on, _)| !has(feature, *on)).then(|| {
        format!(
            "this build leaves out `{asked}`; the complete one has it: `cargo install --path crates/cli`\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_feature_that_is_off_is_explained_and_others_are_not() {
        let light = |_: &str, _| false;
        for (_, _, commands) in COMMANDS {
            for command in commands {
                let text = lacks(command, light).expect("a sentence");
                assert!(
                    text.starts_with(&format!("this build leaves out `{command}`; ")),
                    "{text}"
                );
                assert_eq!(lacks(command, |_, _| true), None);
            }
        }
        assert_eq!(lacks("quote", light), None);
    }

    #[test]
    fn each_command_of_a_feature_is_a_command() {
        use clap::CommandFactory as _;
        let all = crate::Arguments::command();
        let known = |name: &str| {
            let data = all.find_subcommand("data").expect("a command");
            all.find_subcommand(name)
                .or_else(|| data.find_subcommand(name))
                .is_some()
        };
        for (feature, on, commands) in COMMANDS {
            for command in commands {
                assert_eq!(known(command), on, "{feature}: {command}");
            }
        }
    }
}
