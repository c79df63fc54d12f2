//! The format of an export that somebody gave as a table.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::DataError;
use crate::source::exports::whatsapp;

/// Bytes at the start of a file that are looked at.
const HEAD_BYTES: u64 = 64 << 10;

/// Adds to the error of a table that the file looks like an export, if it does.
pub(crate) fn explained(path: &Path, error: DataError) -> DataError {
    let is_of_the_table = matches!(
        error,
        DataError::BadValue { .. } | DataError::MissingColumn { .. } | DataError::Foreign { .. }
    );
    if !is_of_the_table {
        return error;
    }
    let mut head = Vec::new();
    // What cannot be read has its error already.
    let read = File::open(path).map(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    match (read, format(&String::from_utf8_lossy(&head))) {
        (Ok(_), Some(format)) => DataError::LooksLikeExport {
            path: path.to_owned(),
            format,
            error: Box::new(error),
        },
        _ => error,
    }
}

/// The name of the format that a file with this start has.
fn format(head: &str) -> Option<&'static str> {
    let head = head.trim_start_matches('\u{feff}').trim_start();
    let has = |keys: &[&str]| keys.iter().all(|key| head.contains(&format!("\"{key}\"")));
    if head.starts_with("window.YTD.") {
        return Some("twitter");
    }
    if head.starts_with("From ") && head.contains("\nFrom: ") {
        return Some("mbox");
    }
    if head.starts_with('<')
        && head.contains("<row ")
        && (head.contains("<posts>") || head.contains("<comments>"))
    {
        return Some("stackexchange");
    }
    if head.starts_with("AuthorID,Author,Date,Content") {
        return Some("discord");
    }
    if !head.starts_with(['{', '[']) {
        return whatsapp::is_chat(head).then_some("whatsapp");
    }
    let formats: [(&str, &[&[&str]]); 5] = [
        (
            "telegram",
            &[&["from_id", "date_unixtime"], &["from_id", "messages", "text"]],
        ),
        (
            "discord",
            &[
                &["messages", "author", "isBot"],
                &["guild", "channel", "messages"],
            ],
        ),
        (
            "slack",
            &[&["ts", "type", "user", "text"], &["ts", "type", "bot_id", "text"]],
        ),
        (
            "reddit",
            &[
                &["author", "created_utc", "body"],
                &["author", "created_utc", "selftext"],
            ],
        ),
        (
            "llm-chats",
            &[
                &["messages", "role", "content"],
                &["conversations", "from", "value"],
            ],
        ),
    ];
    let found = formats
        .iter()
        .find(|(_, forms)| forms.iter().any(|keys| has(keys)));
    found
        .map(|(name, _)| *name)
        .or_else(|| whatsapp::is_chat(head).then_some("whatsapp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_start_and_tables_are_none() {
        fn check(head: &str, expected: Option<&str>) {
            assert_eq!(format(head), expected, "{head}");
        }
        check("window.YTD.tweets.part0 = [", Some("twitter"));
        check("From ada Wed Jun  5 12:00:00 2024\nFrom: ada", Some("mbox"));
        check(
            "\u{feff}<?xml version=\"1.0\"?>\n<posts>\n <row Id=\"1\"",
            Some("stackexchange"),
        );
        check(
            "AuthorID,Author,Date,Content,Attachments,Reactions\n",
            Some("discord"),
        );
        check("[05.06.24, 12:00:00] Ada: Hello", Some("whatsapp"));
        check("05/06/2024, 12:00 - Ada: Hello", Some("whatsapp"));
        check(
            "{\"messages\": [{\"from_id\": \"user1\", \"text\": \"\"}]}",
            Some("telegram"),
        );
        check(
            "{\"guild\": {}, \"channel\": {}, \"messages\": []}",
            Some("discord"),
        );
        check(
            "[{\"type\": \"message\", \"user\": \"U1\", \"text\": \"a\", \"ts\": \"1.2\"}]",
            Some("slack"),
        );
        check(
            "{\"author\": \"a\", \"body\": \"b\", \"created_utc\": 1}",
            Some("reddit"),
        );
        check(
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
            Some("llm-chats"),
        );
        check(
            "[{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}]",
            Some("llm-chats"),
        );
        check("{\"user_id\": \"a\", \"text\": \"b\"}", None);
        check("user_id,text\nada,hello", None);
        check("From here on it is high.", None);
        check("", None);
    }
}
