//! `undertone export RUN`.

use std::path::PathBuf;

use clap::ValueEnum;
use undertone_present::numbers::grouped;
use undertone_run::export::{ExportOptions, Layout, TensorType, export};

use crate::output::{Output, facts};

/// Arguments of `undertone export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Read the run from this directory.
    run: PathBuf,
    /// Choose the names and shapes of the tensors.
    #[arg(long, value_enum)]
    layout: LayoutName,
    /// Write this folder.
    #[arg(long, short, alias = "output", value_name = "FOLDER")]
    out: PathBuf,
    /// Replace the folder of an earlier export.
    #[arg(long)]
    force: bool,
    /// Start a new file after this many bytes of tensors, with `--layout huggingface` (5 GB by default).
    #[arg(long, value_name = "BYTES")]
    shard_bytes: Option<u64>,
    /// Round the matrices to this type, with `--layout gguf` (F32 by default).
    #[arg(long, value_enum, value_name = "TYPE")]
    tensor_type: Option<TypeName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TypeName {
    /// Write the values of the model, 4 bytes each.
    F32,
    /// Write numbers of 2 bytes with 11 significant bits, up to 65,504.
    F16,
    /// Write numbers of 2 bytes with 8 significant bits and the range of F32.
    Bf16,
    /// Write blocks of 32 values in 34 bytes. Matrices whose rows have no multiple of 32 values are F16.
    #[value(name = "q8_0")]
    Q8_0,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutName {
    /// Use GPT-2's names, for Hugging Face's GPT2LMHeadModel. The model must be a transformer with learned positions.
    Gpt2,
    /// Use the names and the config.json of Llama, Mistral, Qwen2, Qwen3 or Gemma 1 to 3. The family of the model must be `llama`.
    Huggingface,
    /// Write the adapters alone, for the library PEFT. The run must have trained adapters.
    Peft,
    /// Write one GGUF file, for llama.cpp and its relatives. The family of the model must be `llama`.
    Gguf,
    /// Write one ONNX file, for onnxruntime on servers, phones and in browsers. The model must be an LSTM: dplm, stackoverflow or cifg.
    Onnx,
    /// Use the names of Undertone's own model files.
    Undertone,
}

/// Exports and shows what was written.
pub(crate) fn run(args: &ExportArgs, output: &Output) -> anyhow::Result<()> {
    let layout = match args.layout {
        LayoutName::Gpt2 => Layout::Gpt2,
        LayoutName::Huggingface => Layout::HuggingFace,
        LayoutName::Peft => Layout::Peft,
        LayoutName::Gguf => Layout::Gguf,
        LayoutName::Onnx => Layout::Onnx,
        LayoutName::Undertone => Layout::Undertone,
    };
    let options = ExportOptions {
        layout,
        overwrite: args.force,
        shard_bytes: args.shard_bytes,
        tensor_type: args.tensor_type.map(|name| match name {
            TypeName::F32 => TensorType::F32,
            TypeName::F16 => TensorType::F16,
            TypeName::Bf16 => TensorType::Bf16,
            TypeName::Q8_0 => TensorType::Q8_0,
        }),
    };
    let exported = export(&args.run, &args.out, options)?;
    output.warn_of(&exported.obstacles);
    if output.json {
        return output.print_json(&exported);
    }
    let mut rows = vec![
        ("folder", exported.folder.display().to_string()),
        ("files", exported.files.join(", ")),
        ("parameters", grouped(exported.parameters as u64)),
    ];
    if let Some(tensors) = &exported.tensors {
        let counts = tensors
            .iter()
            .map(|(kind, count)| format!("{count} of type {kind}"));
        rows.push(("tensors", counts.collect::<Vec<_>>().join(", ")));
    }
    if let Some(rank) = exported.merged_lora_rank {
        rows.push(("adapters", format!("merged, of rank {rank}")));
    }
    output.print(&facts(rows))
}
