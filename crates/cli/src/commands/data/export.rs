//! The export of people that `undertone data import --as` reads.

use std::path::PathBuf;

use clap::ValueEnum;
use undertone_data::{DateOrder, ExportKind, ExportSource};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Source")]
pub(super) struct ExportArgs {
    /// Read the export of people at PATH in this format: the account is the user, and what no person wrote is left out.
    #[arg(
        long = "as",
        value_enum,
        value_name = "FORMAT",
        group = "which",
        requires = "path"
    )]
    format: Option<Format>,
    /// Read the export from this file, folder or zip archive.
    #[arg(value_name = "PATH", requires = "format")]
    path: Option<PathBuf>,
    /// Set the order of the numbers in dates of WhatsApp (default: found from all dates of a file).
    #[arg(long, value_enum, value_name = "ORDER", requires = "format")]
    date_order: Option<Order>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Read the folder or zip archive that a workspace of Slack exports.
    Slack,
    /// Read `result.json` of Telegram Desktop.
    Telegram,
    /// Read text files of WhatsApp.
    Whatsapp,
    /// Read files of DiscordChatExporter, in JSON or CSV.
    Discord,
    /// Read mail in one file.
    Mbox,
    /// Read mail in a folder with a file per mail.
    Maildir,
    /// Read the archive of an account of Twitter or X.
    Twitter,
    /// Read `Posts.xml` and `Comments.xml` of a site of StackExchange.
    Stackexchange,
    /// Read dumps of Reddit: a comment or submission per line, in JSON.
    Reddit,
    /// Read conversations with language models: OpenAI's `messages` or ShareGPT's `conversations`. --user-column names the person.
    #[value(aliases = ["openai", "sharegpt"])]
    LlmChats,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Order {
    /// Read day, month, year.
    Dmy,
    /// Read month, day, year.
    Mdy,
    /// Read year, month, day.
    Ymd,
}

impl ExportArgs {
    /// The export that the flags name, if they name one.
    pub(super) fn source(&self, user_column: &str) -> Option<ExportSource> {
        let (Some(format), Some(path)) = (self.format, &self.path) else {
            return None;
        };
        let kind = match format {
            Format::Slack => ExportKind::Slack,
            Format::Telegram => ExportKind::Telegram,
            Format::Whatsapp => ExportKind::WhatsApp,
            Format::Discord => ExportKind::Discord,
            Format::Mbox => ExportKind::Mbox,
            Format::Maildir => ExportKind::Maildir,
            Format::Twitter => ExportKind::Twitter,
            Format::Stackexchange => ExportKind::StackExchange,
            Format::Reddit => ExportKind::Reddit,
            Format::LlmChats => ExportKind::LlmChats,
        };
        let date_order = self.date_order.map(|order| match order {
            Order::Dmy => DateOrder::Dmy,
            Order::Mdy => DateOrder::Mdy,
            Order::Ymd => DateOrder::Ymd,
        });
        Some(ExportSource {
            kind,
            path: path.clone(),
            date_order,
            user_column: user_column.to_owned(),
        })
    }
}
