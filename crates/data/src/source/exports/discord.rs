//! Files of DiscordChatExporter, in JSON or CSV.

use serde::Deserialize;

use crate::columns::{Columns, Keys};
use crate::error::Result;
use crate::source::coded::{self, Coded};
use crate::source::exports::json::{Scalar, elements, whole};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use crate::source::{csv, files};
use undertone_settings::time::{NO_TIME, parse_date};

/// Kinds of messages that people write, in this and in older versions of the exporter. All others are lines of the program.
const WRITTEN: [&str; 5] = ["Default", "Reply", "0", "19", ""];

/// Lines of the program in a CSV file, which has no kinds of messages. Those that end in `*` go on with a name or a number.
const LINES: [&str; 9] = [
    "Joined the server.",
    "Pinned a message.",
    "Started a thread.",
    "Left the group.",
    "Changed the channel icon.",
    "Added * to the group.",
    "Removed * from the group.",
    "Started a call that lasted * minutes.",
    "Changed the channel name: *",
];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    r#type: Scalar,
    timestamp: Scalar,
    content: Scalar,
    author: Author,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Author {
    id: Scalar,
    is_bot: Scalar,
}

pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    for path in tree.streams(&[".json", ".csv"], "files of DiscordChatExporter in JSON or CSV")? {
        coded::each(&path, &["json", "csv"], &mut |content| {
            let path = content.path().to_owned();
            if files::extension(&path) == "csv" {
                sink.lines_of(&path)?;
                return read_table(content, sink);
            }
            sink.messages_of(&path)?;
            let bytes = whole(&path, content, sink)?;
            let mut number = 0;
            elements(&path, &bytes, Some("messages"), &mut |message: Message| {
                number += 1;
                take(number, &message, sink)
            })
        })?;
    }
    Ok(())
}

fn take(number: u64, message: &Message, sink: &mut Sink<'_, '_>) -> Result<()> {
    if !WRITTEN.contains(&message.r#type.0.as_str()) {
        sink.leave_out("lines of the program left out");
    } else if message.author.is_bot.is_true() {
        sink.leave_out("messages of bots left out");
    } else if message.content.0.is_empty() {
        sink.leave_out("media without text left out");
    } else {
        let Some(user) = message.author.id.text() else {
            sink.leave_out("messages without an account left out");
            return Ok(());
        };
        let Some(time) = parse_date(&message.timestamp.0) else {
            let got = message.timestamp.0.clone();
            return Err(sink.bad(
                number,
                "timestamp",
                "a time such as \"2024-06-05T12:00:00.000+00:00\"",
                got,
            ));
        };
        sink.message(number, user, &message.content.0, Some(time))?;
    }
    Ok(())
}

fn read_table(content: Coded<'_>, sink: &mut Sink<'_, '_>) -> Result<()> {
    let columns = Columns {
        user: Some("AuthorID"),
        text: "Content",
        time: Some("Date"),
        split: None,
        time_unit: None,
        keys: Keys::SOURCE,
    };
    csv::read(content, columns, csv::Format::default(), &mut |rows, _| {
        for row in 0..rows.len() {
            let (text, place) = (rows.texts.get(row), rows.places[row]);
            if text.is_empty() {
                sink.leave_out("media without text left out");
            } else if LINES.iter().any(|line| is_line(text, line)) {
                sink.leave_out("lines of the program left out");
            } else {
                let time = Some(rows.times[row]).filter(|&time| time != NO_TIME);
                sink.message(place, rows.users.get(row), text, time)?;
            }
        }
        Ok(())
    })
}

fn is_line(text: &str, line: &str) -> bool {
    match line.split_once('*') {
        None => text == line,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const CHANNEL: &str = r#"{
        "guild": {"id": "1", "name": "Rowers"}, "channel": {"id": "2", "type": "GuildTextChat", "name": "boats"},
        "dateRange": {"after": null, "before": null},
        "messages": [
            {"id": "10", "type": "Default", "timestamp": "2024-06-05T12:00:00.5+00:00", "timestampEdited": null, "isPinned": false,
             "content": "The \"river\" is high\ntoday", "author": {"id": "501", "name": "ada", "discriminator": "0000", "isBot": false},
             "attachments": [], "embeds": [], "reactions": [], "mentions": []},
            {"id": "11", "type": "GuildMemberJoin", "timestamp": "2024-06-05T12:00:01+00:00", "content": "Joined the server.",
             "author": {"id": "502", "isBot": false}},
            {"id": "12", "type": "Reply", "timestamp": "2024-06-05T14:00:02+02:00", "content": "yes 😀", "author": {"id": "502", "isBot": false}},
            {"id": "13", "type": "Default", "timestamp": "2024-06-05T12:00:03+00:00", "content": "beep", "author": {"id": "9", "isBot": true}},
            {"id": "14", "type": "Default", "timestamp": "2024-06-05T12:00:04+00:00", "content": "", "author": {"id": "501", "isBot": false},
             "attachments": [{"id": "1", "url": "x.png"}]}
        ],
        "messageCount": 5
    }"#;

    const TABLE: &str = "\u{feff}AuthorID,Author,Date,Content,Attachments,Reactions\r\n\
        \"501\",\"ada\",\"2024-06-05T12:00:00.5000000+00:00\",\"The \"\"river\"\" is high\ntoday\",\"\",\"\"\r\n\
        \"502\",\"ben\",\"2024-06-05T12:00:01.0000000+00:00\",\"Joined the server.\",\"\",\"\"\r\n\
        \"502\",\"ben\",\"2024-06-05T14:00:02.0000000+02:00\",\"yes 😀\",\"\",\"\"\r\n\
        \"501\",\"ada\",\"2024-06-05T12:00:04.0000000+00:00\",\"\",\"x.png\",\"\"\r\n";

    fn expected() -> Vec<(String, String, Option<i64>)> {
        vec![
            row("501", "The \"river\" is high\ntoday", 1_717_588_800),
            row("502", "yes 😀", 1_717_588_802),
        ]
    }

    #[test]
    fn a_channel_gives_the_messages_of_people_in_json_and_in_csv() {
        let json = Export::file(ExportKind::Discord, "boats.json", CHANNEL.as_bytes());
        assert_eq!(json.rows(), expected());
        assert_eq!(
            json.left_out(),
            counts(&[
                ("lines of the program left out", 1),
                ("media without text left out", 1),
                ("messages of bots left out", 1)
            ])
        );
        let csv = Export::file(ExportKind::Discord, "boats.csv", TABLE.as_bytes());
        assert_eq!(csv.rows(), expected());
        assert_eq!(
            csv.left_out(),
            counts(&[
                ("lines of the program left out", 1),
                ("media without text left out", 1)
            ])
        );
        assert_eq!(
            Export::zip(ExportKind::Discord, &[("boats.csv", TABLE)]).rows(),
            expected()
        );
        let both = Export::folder(ExportKind::Discord, &[("a.json", CHANNEL), ("b.csv", TABLE)]);
        assert_eq!(both.rows().len(), 4);
    }

    #[test]
    fn a_file_of_another_program_is_an_error() {
        let error = Export::file(ExportKind::Discord, "a.json", b"{\"chat\": []}").error();
        assert!(error.contains("expected the key \"messages\""), "{error}");
        let error = Export::file(ExportKind::Discord, "a.csv", b"Author,Content\nada,hi\n").error();
        assert!(error.contains("AuthorID"), "{error}");
        let broken = CHANNEL.replace("2024-06-05T12:00:00.5+00:00", "noon");
        let error = Export::file(ExportKind::Discord, "a.json", broken.as_bytes()).error();
        assert!(error.contains("row 1: timestamp: expected a time"), "{error}");
    }
}
