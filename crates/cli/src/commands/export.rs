//! `undertone export RUN`.

use std::path::PathBuf;

use clap::ValueEnum;
use undertone_present::numbers::grouped;
use undertone_training::export::{Layout, export};

use crate::output::{Output, facts};

/// Arguments of `undertone export`.
///
/// Writes a folder with `model.safetensors`, the run's `vocab.txt` or `tokenizer.json`, and for GPT-2's layout a `config.json`.
/// Low-rank adapters are added to what they adapt. The run's guarantee holds for what is written: it is made from the released
/// model alone. Another run starts from it with `initial_model = "FOLDER/model.safetensors"`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The run directory.
    run: PathBuf,
    /// Names and shapes of the tensors.
    #[arg(long, value_enum)]
    layout: LayoutName,
    /// The folder to write.
    #[arg(long, short, alias = "output", value_name = "FOLDER")]
    out: PathBuf,
    /// Replace the folder of an earlier export.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutName {
    /// GPT-2's, for Hugging Face's GPT2LMHeadModel; transformers with learned positions only.
    Gpt2,
    /// Our own, adapters merged.
    Undertone,
}

/// Exports and shows what was written.
pub(crate) fn run(args: &ExportArgs, output: &Output) -> anyhow::Result<()> {
    let layout = match args.layout {
        LayoutName::Gpt2 => Layout::Gpt2,
        LayoutName::Undertone => Layout::Undertone,
    };
    let exported = export(&args.run, layout, &args.out, args.force)?;
    if output.json {
        return output.print_json(&exported);
    }
    let mut rows = vec![
        ("folder", exported.folder.display().to_string()),
        ("files", exported.files.join(", ")),
        ("parameters", grouped(exported.parameters as u64)),
    ];
    if let Some(rank) = exported.merged_lora_rank {
        rows.push(("adapters", format!("of rank {rank}, merged")));
    }
    output.print(&facts(rows))
}
