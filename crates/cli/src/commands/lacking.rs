//! Commands that this build leaves out.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands of a service.
const SERVICE: [&str; 6] = ["serve", "task", "backup", "identity", "device", "fleet"];
/// The commands below `data` that need tables, and the one that needs sub-words.
const TABLES: [&str; 3] = ["import", "group", "dedup"];
const SUBWORDS: [&str; 1] = ["tokenizer"];

/// The error of the command line. One about a command that the complete build has says so.
pub(crate) fn explained(error: clap::Error) -> clap::Error {
    let asked = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(asked))) => asked.as_str(),
        _ => return error,
    };
    let lacks = (cfg!(not(feature = "service")) && SERVICE.contains(&asked))
        || (cfg!(not(feature = "tables")) && TABLES.contains(&asked))
        || (cfg!(not(feature = "subwords")) && SUBWORDS.contains(&asked));
    if !lacks {
        return error;
    }
    let text = format!(
        "this build leaves out `{asked}`; the complete one has it: `cargo install --path crates/cli`, or `pip install undertone-dp`\n"
    );
    clap::Error::raw(ErrorKind::InvalidSubcommand, text)
}
