//! `undertone planner`: the page that answers questions about privacy in a browser.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde::Serialize;
use undertone_run_directory::files::write_atomic;

use crate::browser;
use crate::output::{Output, facts};

/// The page, or nothing where none was made before this build.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/planner.html"));

/// Arguments of `undertone planner`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlannerArgs {
    /// Write the page to this file.
    #[arg(long, value_name = "FILE", default_value = "undertone-planner.html")]
    out: PathBuf,
    /// Open the page in a browser.
    #[arg(long)]
    open: bool,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Written<'a> {
    page: &'a Path,
    bytes: usize,
}

/// Writes the page.
pub(crate) fn run(args: &PlannerArgs, output: &Output) -> anyhow::Result<()> {
    ensure!(
        !PAGE.is_empty(),
        "this build leaves out the planner, which the wheel and the archives have; in the sources, `.ci/planner` makes \
         target/planner/planner.html, and UNDERTONE_PLANNER=target/planner/planner.html before `cargo build` puts it in"
    );
    write_atomic(&args.out, PAGE.as_bytes())?;
    let written = Written {
        page: &args.out,
        bytes: PAGE.len(),
    };
    output.show(&written, || facts([("planner", args.out.display().to_string())]))?;
    if args.open {
        browser::open(&args.out, output);
    }
    Ok(())
}
