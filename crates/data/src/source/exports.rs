//! Exports of people: what chat programs, mail programs and forums hand to their users. Only an import reads them.
//!
//! A reader makes rows of an account, a text and a time. What no person wrote is left out and counted: bots, lines of the program, marks of
//! pictures, quoted text and signatures. `docs/guide/import-an-export.md` states the rule of each format.

mod discord;
pub(crate) mod hint;
mod html;
mod json;
mod llm;
mod mail;
mod mbox;
mod reddit;
mod sink;
mod slack;
mod stackexchange;
mod telegram;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod twitter;
mod whatsapp;

use std::path::PathBuf;

use crate::error::Result;
use crate::rows::OnRows;
use sink::Sink;
use tree::Tree;

pub use whatsapp::DateOrder;

/// A format of exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportKind {
    /// A workspace of Slack: folders of channels with a file per day, as a folder or a zip archive.
    Slack,
    /// `result.json` of Telegram Desktop: one chat, or all chats of an account.
    Telegram,
    /// Text files of WhatsApp, from Android or iOS.
    WhatsApp,
    /// Files of DiscordChatExporter, in JSON or CSV.
    Discord,
    /// Mail in one file.
    Mbox,
    /// Mail in a folder with a file per mail.
    Maildir,
    /// The archive of an account of Twitter or X.
    Twitter,
    /// `Posts.xml` and `Comments.xml` of a site of StackExchange.
    StackExchange,
    /// Dumps of Reddit: one comment or submission per line, in JSON.
    Reddit,
    /// Conversations with language models, as OpenAI's `messages` or ShareGPT's `conversations`.
    LlmChats,
}

impl ExportKind {
    /// `true` if the messages have times.
    pub(crate) const fn has_time(self) -> bool {
        !matches!(self, ExportKind::LlmChats)
    }
}

/// An export of people. It can be imported, and is no source of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSource {
    /// The format.
    pub kind: ExportKind,
    /// The file, the folder or the zip archive.
    pub path: PathBuf,
    /// The order of day, month and year in files of WhatsApp. Without it, the dates of each file decide.
    pub date_order: Option<DateOrder>,
    /// The field that names the person in conversations with language models. Where no conversation has it, each one is a person.
    pub user_column: String,
}

impl ExportSource {
    /// Reads all messages of people.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        let mut sink = Sink::new(on_rows);
        let path = &self.path;
        match self.kind {
            ExportKind::Slack => slack::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::Telegram => telegram::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::WhatsApp => whatsapp::read(&mut Tree::open(path)?, self.date_order, &mut sink)?,
            ExportKind::Discord => discord::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::Mbox => mbox::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::Maildir => mbox::read_maildir(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::Twitter => twitter::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::StackExchange => stackexchange::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::Reddit => reddit::read(&mut Tree::open(path)?, &mut sink)?,
            ExportKind::LlmChats => llm::read(&mut Tree::open(path)?, &self.user_column, &mut sink)?,
        }
        sink.end(path)
    }
}
