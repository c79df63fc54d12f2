//! `undertone init --example`: a run file of the repository that needs no text of anybody.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::output::{Output, facts};

/// Names and texts.
const EXAMPLES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// The document of `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    file: &'a Path,
    /// The commands to give next, in order.
    next: Vec<String>,
}

/// Writes the run file of this name, to `file` or beside the reader under its name.
pub(super) fn write(name: &str, file: Option<PathBuf>, force: bool, output: &Output) -> anyhow::Result<()> {
    let (name, text) = found(name)?;
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    ensure!(
        force || !file.exists(),
        "{} already exists; give --force to replace it",
        file.display()
    );
    // The comments of the file name its place in the repository.
    let here = text
        .replace("cargo run --release -- ", "undertone ")
        .replace("examples/", "");
    super::write(&file, &here)?;
    let shown = file.display();
    let next = match pretrains(text) {
        true => vec![format!("undertone pretrain {shown}")],
        false => vec![
            format!("undertone train {shown}"),
            format!("undertone verify runs/{name}"),
            format!("undertone predict runs/{name}"),
        ],
    };
    let document = Document { file: &file, next };
    output.show(&document, || {
        let mut rows = vec![("run file", shown.to_string())];
        rows.extend(document.next.iter().map(|command| ("next", command.clone())));
        facts(rows)
    })
}

/// The example of this name.
fn found(asked: &str) -> anyhow::Result<(&'static str, &'static str)> {
    ensure!(
        !EXAMPLES.is_empty(),
        "this build has no examples, which the wheel and the archives have; they are in the folder `examples` of the sources"
    );
    let example = EXAMPLES.iter().find(|(name, _)| *name == asked);
    example.copied().with_context(|| {
        let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        format!("--example: expected one of {}, got {asked}", names.join(", "))
    })
}

/// `true` for a file of `undertone pretrain`.
fn pretrains(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("steps = "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_run::pretrain::PretrainConfig;
    use undertone_run_directory::config::RunConfig;

    #[test]
    fn each_example_is_a_file_of_the_command_that_is_named_for_it() {
        assert!(EXAMPLES.len() >= 7, "{}", EXAMPLES.len());
        assert!(found("quickstart").is_ok());
        for (name, text) in EXAMPLES {
            let file = Path::new(name);
            let read = match pretrains(text) {
                true => toml::from_str::<PretrainConfig>(text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                false => RunConfig::parse(text, file, &[])
                    .map(drop)
                    .map_err(|error| error.to_string()),
            };
            assert_eq!(read, Ok(()), "{name}");
            assert!(text.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }

    #[test]
    fn an_unknown_example_is_refused_with_those_there_are() {
        let error = found("quick").expect_err("no such example").to_string();
        assert!(
            error.contains("quickstart, quickstart-els") && error.ends_with("got quick"),
            "{error}"
        );
    }
}
