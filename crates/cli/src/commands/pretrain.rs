//! `undertone pretrain CONFIG`.

use undertone_run::pretrain::{NOT_PRIVATE, PretrainFile, pretrain};

use super::train::{TrainArgs, show};
use crate::output::Output;
use crate::signals;

/// Pre-trains on public text and shows how it went; says first that nothing here is private.
pub(crate) fn run(args: TrainArgs, output: &Output) -> anyhow::Result<()> {
    let file = PretrainFile::read(&args.config, &args.set)?;
    // On standard error, so that it is seen beside `--json` too.
    output.warn(NOT_PRIVATE);
    signals::end_in_order();
    show(args, (&file.config.name, "step"), output, |options, observer| {
        pretrain(&file, options, observer)
    })
}
