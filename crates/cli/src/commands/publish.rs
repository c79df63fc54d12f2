//! `undertone publish RUN DIR`.

use std::path::PathBuf;

use undertone_verify::publish;

use super::verify::rows;
use crate::output::{Output, facts};

/// Arguments of `undertone publish`.
#[derive(Debug, clap::Args)]
pub(crate) struct PublishArgs {
    /// Read the finished run or session, or the exported task, from this directory.
    run: PathBuf,
    /// Write the release to this new folder.
    folder: PathBuf,
}

/// Publishes, and shows the files and what a stranger can check in them.
pub(crate) fn run(args: &PublishArgs, output: &Output) -> anyhow::Result<()> {
    let bar = output.spinner("publishing");
    let published = publish(&args.run, &args.folder);
    bar.finish_and_clear();
    let published = published?;
    output.show(&published, || {
        let mut shown = vec![
            ("published", published.folder.display().to_string()),
            ("files", published.files.join(", ")),
        ];
        shown.extend(rows(&published.verification));
        facts(shown)
    })
}
