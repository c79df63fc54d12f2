//! A workspace of Slack: a folder per channel with a file per day (`general/2024-06-05.json`), and `users.json`.

use std::collections::HashSet;

use serde::Deserialize;

use crate::error::{Result, empty};
use crate::source::exports::html::unescape;
use crate::source::exports::json::{Scalar, document, elements};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;

/// Kinds of messages that people write. All others are lines of the program, such as `channel_join`.
const WRITTEN: [&str; 5] = ["", "me_message", "thread_broadcast", "file_share", "file_comment"];

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    r#type: Scalar,
    subtype: Scalar,
    user: Scalar,
    bot_id: Scalar,
    text: Scalar,
    ts: Scalar,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    id: Scalar,
    is_bot: Scalar,
}

pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    let files = tree.with_endings(&[".json"]);
    let mut bots: HashSet<String> = HashSet::from(["USLACKBOT".to_owned()]);
    for name in files.iter().filter(|name| is_list_of_users(name)) {
        let path = tree.path(name);
        sink.messages_of(&path)?;
        let bytes = document(tree, name, sink)?;
        elements(&path, &bytes, None, &mut |user: User| {
            if user.is_bot.is_true() {
                bots.insert(user.id.0);
            }
            Ok(())
        })?;
    }
    // The folder of a channel holds files of days and nothing else. A file that was named itself may have any name.
    let days: Vec<String> = match tree.is_file() {
        true => files,
        false => files.into_iter().filter(|name| is_day(name)).collect(),
    };
    if days.is_empty() {
        return Err(empty(
            tree.root(),
            "days of a Slack export, such as general/2024-06-05.json",
        ));
    }
    for name in days {
        let path = tree.path(&name);
        sink.messages_of(&path)?;
        let bytes = document(tree, &name, sink)?;
        let mut number = 0;
        elements(&path, &bytes, None, &mut |message: Message| {
            number += 1;
            take(number, &message, &bots, sink)
        })?;
    }
    Ok(())
}

fn take(number: u64, message: &Message, bots: &HashSet<String>, sink: &mut Sink<'_, '_>) -> Result<()> {
    let subtype = message.subtype.0.as_str();
    let user = message.user.text();
    if subtype == "bot_message"
        || message.bot_id.text().is_some()
        || user.is_some_and(|user| bots.contains(user))
    {
        sink.leave_out("messages of bots left out");
        return Ok(());
    }
    let is_upload = subtype == "file_share"
        && message.text.0.starts_with("<@")
        && message.text.0.contains("> uploaded a file: ");
    let Some(user) = user else {
        sink.leave_out("lines of the program left out");
        return Ok(());
    };
    if message.r#type.0 != "message" || !WRITTEN.contains(&subtype) || is_upload {
        sink.leave_out("lines of the program left out");
        return Ok(());
    }
    if message.text.0.is_empty() {
        sink.leave_out("media without text left out");
        return Ok(());
    }
    let time = message.ts.seconds();
    if time.is_none() {
        return Err(sink.bad(
            number,
            "ts",
            "unix seconds, such as \"1717588800.000200\"",
            message.ts.0.clone(),
        ));
    }
    sink.message(number, user, &plain(&message.text.0), time)
}

fn is_list_of_users(name: &str) -> bool {
    matches!(name.rsplit('/').next(), Some("users.json" | "org_users.json"))
}

/// `true` for `general/2024-06-05.json`.
fn is_day(name: &str) -> bool {
    let mut parts = name.rsplit('/');
    let stem = parts.next().and_then(|file| file.strip_suffix(".json"));
    let is_date = |stem: &str| {
        stem.len() == 10
            && stem.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    };
    stem.is_some_and(is_date) && parts.next().is_some()
}

/// A text without Slack's marks: `<@U1>` becomes `@user`, `<#C1|random>` becomes `#random`, and a link its label or its address.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        plain.push_str(&rest[..at]);
        let inner = &rest[at + 1..];
        let Some(end) = inner.find('>') else {
            rest = &rest[at..];
            break;
        };
        let (mark, label) = match inner[..end].split_once('|') {
            Some((mark, label)) => (mark, Some(label).filter(|label| !label.is_empty())),
            None => (&inner[..end], None),
        };
        match mark.chars().next() {
            Some('@') => plain.push_str("@user"),
            Some('#') => {
                plain.push('#');
                plain.push_str(label.unwrap_or("channel"));
            }
            Some('!') if mark.starts_with("!date^") || mark.starts_with("!subteam^") => {
                plain.push_str(label.unwrap_or("@group"));
            }
            Some('!') => {
                plain.push('@');
                plain.push_str(&mark[1..]);
            }
            _ => plain.push_str(label.unwrap_or(mark)),
        }
        rest = &inner[end + 1..];
    }
    plain.push_str(rest);
    unescape(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const USERS: &str = r#"[{"id": "U1", "is_bot": false}, {"id": "U2"}, {"id": "UB", "is_bot": true}]"#;
    const DAY: &str = r#"[
        {"type": "message", "user": "U1", "text": "Hi <@U2>, see <https:\/\/a.example\/x|the page> &amp; <#C1|random> <!here>", "ts": "1717588800.000200"},
        {"type": "message", "subtype": "channel_join", "user": "U2", "text": "<@U2> has joined the channel", "ts": "1717588801.0"},
        {"type": "message", "user": "UB", "text": "build passed", "ts": "1717588802.0"},
        {"type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "deploy", "ts": "1717588803.0"},
        {"type": "message", "user": "U2", "text": "1 &lt; 2 \ud83d", "ts": "1717588804.999", "blocks": [{"x": [1, 2, {"y": null}]}]},
        {"type": "message", "user": "U2", "text": "", "files": [{}], "ts": "1717588805.0"},
        {"type": "message", "user": "USLACKBOT", "text": "reminder", "ts": "1717588806.0"},
        {"type": "message", "subtype": "me_message", "user": "U1", "text": "waves\nand <https:\/\/b.example>", "ts": "1717588807.0"}
    ]"#;

    fn expected() -> Vec<(String, String, Option<i64>)> {
        vec![
            row("U1", "Hi @user, see the page & #random @here", 1_717_588_800),
            row("U2", "1 < 2 \u{fffd}", 1_717_588_804),
            row("U1", "waves\nand https://b.example", 1_717_588_807),
        ]
    }

    #[test]
    fn a_folder_and_an_archive_of_a_workspace_give_the_messages_of_people() {
        let files = [
            ("users.json", USERS),
            ("channels.json", "[{\"name\": \"general\"}]"),
            ("general/2024-06-05.json", DAY),
            ("general/canvas.json", "{\"not\": \"a day\"}"),
        ];
        let folder = Export::folder(ExportKind::Slack, &files);
        assert_eq!(folder.rows(), expected());
        assert_eq!(
            folder.left_out(),
            counts(&[
                ("lone surrogates replaced", 1),
                ("lines of the program left out", 1),
                ("media without text left out", 1),
                ("messages of bots left out", 3)
            ])
        );
        assert_eq!(Export::zip(ExportKind::Slack, &files).rows(), expected());
    }

    #[test]
    fn marks_of_slack_become_what_people_saw() {
        fn check(text: &str, expected: &str) {
            assert_eq!(plain(text), expected, "{text}");
        }
        check("a < b", "a < b");
        check("<mailto:a@b.example|a@b.example>", "a@b.example");
        check("<!subteam^S1|@team> <!channel>", "@team @channel");
        check("<!date^1392734382^{date}|18 February>", "18 February");
        check("<#C1> <#C1|>", "#channel #channel");
        check("&amp;lt;", "&lt;");
        check("<", "<");
    }

    #[test]
    fn a_broken_day_names_its_file_and_line() {
        let files = [
            ("users.json", USERS),
            ("general/2024-06-05.json", "[\n{\"user\": \"U1\",}\n]"),
        ];
        let error = Export::folder(ExportKind::Slack, &files).error();
        assert!(error.contains("general/2024-06-05.json, line 2: JSON"), "{error}");
        let files = [(
            "general/2024-06-05.json",
            r#"[{"type": "message", "user": "U1", "text": "a", "ts": "noon"}]"#,
        )];
        let error = Export::folder(ExportKind::Slack, &files).error();
        assert!(error.contains("row 1: ts: expected unix seconds"), "{error}");
        let error = Export::folder(ExportKind::Slack, &[("channels.json", "[]")]).error();
        assert!(error.contains("holds no days of a Slack export"), "{error}");
    }
}
