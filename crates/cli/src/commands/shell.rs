//! `undertone completions` and `undertone manual`: files that shells and `man` read, made from the definitions of the commands.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Command;
use clap_complete::Shell;
use serde::Serialize;

use crate::output::{Output, facts};

/// Arguments of `undertone completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Write the completions of this shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `undertone manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManualArgs {
    /// Write the pages to this folder, one file per command.
    folder: PathBuf,
    /// Replace pages that are there.
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

#[derive(Serialize)]
struct Manual {
    folder: PathBuf,
    pages: Vec<String>,
}

/// Prints the completions of a shell.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
    output: &Output,
) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "undertone", &mut script);
    let script = String::from_utf8(script).context("the completions are not UTF-8")?;
    let completions = Completions {
        shell: args.shell.to_string(),
        script,
    };
    output.show(&completions, || completions.script.clone())
}

/// Writes the manual pages of the program and of each of its commands.
///
/// # Errors
/// A page that is there already, without `--force`; a folder that cannot be written.
pub(crate) fn manual(args: &ManualArgs, command: Command, output: &Output) -> anyhow::Result<()> {
    let mut pages = Vec::new();
    collect(command, "undertone", &mut pages)?;
    let there = pages.iter().find(|(name, _)| args.folder.join(name).exists());
    if let Some((name, _)) = there.filter(|_| !args.force) {
        bail!(
            "{} already exists; give --force to replace it",
            args.folder.join(name).display()
        );
    }
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot create {}", args.folder.display()))?;
    for (name, text) in &pages {
        let path = args.folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let manual = Manual {
        folder: args.folder.clone(),
        pages: pages.into_iter().map(|(name, _)| name).collect(),
    };
    output.show(&manual, || {
        facts([
            ("folder", manual.folder.display().to_string()),
            ("pages", manual.pages.len().to_string()),
        ])
    })
}

/// Adds the page of a command and of all commands below it, by file name.
fn collect(command: Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    // Without the command `help`, which would have a page for each page.
    let command = command
        .disable_help_subcommand(true)
        .display_name(name.to_owned());
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut text)
        .with_context(|| format!("cannot render the page of {name}"))?;
    pages.push((format!("{name}.1"), text));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below.clone(), &format!("{name}-{}", below.get_name()), pages)?;
    }
    Ok(())
}
