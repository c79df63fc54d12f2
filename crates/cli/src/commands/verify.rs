//! `undertone verify RUN`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use undertone_present::numbers::epsilon_delta;
use undertone_verify::{Verification, verify};

use crate::output::{Output, facts};

/// Arguments of `undertone verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Read the finished run from this directory.
    run: PathBuf,
}

/// Maximum number of problems that are listed per check.
const LISTED: usize = 10;

/// Verifies and shows every check.
pub(crate) fn run(args: &VerifyArgs, output: &Output) -> anyhow::Result<()> {
    let bar = output.spinner("verifying");
    let verification = verify(&args.run);
    bar.finish_and_clear();
    let verification =
        verification.with_context(|| format!("{} is not a run directory", args.run.display()))?;
    if output.json {
        output.print_json(&verification)?;
    } else {
        output.print(&text(&verification))?;
    }
    if !verification.holds() {
        let problems: usize = verification.checks.iter().map(|check| check.problems.len()).sum();
        bail!(
            "{}: {problems} problems found; the claims of the run do not hold",
            args.run.display()
        );
    }
    Ok(())
}

fn text(verification: &Verification) -> String {
    facts(rows(verification))
}

/// The checks as rows of a table, and what was not checked.
pub(super) fn rows(verification: &Verification) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    for check in &verification.checks {
        if check.problems.is_empty() {
            rows.push((check.name, format!("holds: {}", check.found)));
            continue;
        }
        let listed = check.problems.iter().take(LISTED);
        rows.extend(listed.map(|problem| (check.name, format!("DOES NOT HOLD: {problem}"))));
        if check.problems.len() > LISTED {
            rows.push((
                check.name,
                format!("and {} more problems", check.problems.len() - LISTED),
            ));
        }
    }
    rows.extend(
        verification
            .warnings
            .iter()
            .map(|warning| ("warning", warning.clone())),
    );
    if let Some(recomputed) = &verification.recomputed {
        let figures = epsilon_delta(recomputed.epsilon, recomputed.delta);
        rows.push(("recomputed", format!("{figures}, {}", recomputed.adjacency)));
    }
    rows.extend(
        verification
            .notes
            .iter()
            .map(|note| ("not checked", (*note).to_owned())),
    );
    rows
}
