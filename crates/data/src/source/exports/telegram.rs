//! `result.json` of Telegram Desktop: one chat, or the chats of an account.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{DataError, Result, empty};
use crate::source::exports::json::{Each, Pieces, Scalar, document, finish};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use undertone_settings::time::parse_date;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    r#type: Scalar,
    from_id: Scalar,
    date: Scalar,
    date_unixtime: Scalar,
    text: Pieces,
    forwarded_from: Option<Scalar>,
    forwarded_from_id: Option<Scalar>,
    via_bot: Option<Scalar>,
}

pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    let files: Vec<String> = match tree.with_endings(&[".json"]) {
        single if single.len() == 1 => single,
        several => several
            .into_iter()
            .filter(|name| name.ends_with("result.json"))
            .collect(),
    };
    if files.is_empty() {
        return Err(empty(tree.root(), "result.json of Telegram Desktop"));
    }
    for name in files {
        let path = tree.path(&name);
        sink.messages_of(&path)?;
        let bytes = document(tree, &name, sink)?;
        chats(&path, &bytes, sink)?;
    }
    Ok(())
}

fn chats(path: &Path, bytes: &[u8], sink: &mut Sink<'_, '_>) -> Result<()> {
    let (mut failure, mut number, mut found) = (None, 0, false);
    let mut on = |message: Message, is_bot_chat: bool| {
        number += 1;
        take(number, &message, is_bot_chat, sink)
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walk = Chat {
        on: &mut on,
        failure: &mut failure,
        found: &mut found,
    };
    let result = walk
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    finish(path, result, failure)?;
    match found {
        true => Ok(()),
        false => Err(empty(
            path,
            "messages of Telegram (no key \"messages\" and no list of chats)",
        )),
    }
}

fn take(number: u64, message: &Message, is_bot_chat: bool, sink: &mut Sink<'_, '_>) -> Result<()> {
    let says = |scalar: &Option<Scalar>| scalar.as_ref().is_some_and(|scalar| scalar.text().is_some());
    if message.r#type.0 == "service" {
        sink.leave_out("lines of the program left out");
    } else if is_bot_chat || says(&message.via_bot) {
        sink.leave_out("messages of bots left out");
    } else if says(&message.forwarded_from) || says(&message.forwarded_from_id) {
        sink.leave_out("forwarded messages left out");
    } else if message.text.0.is_empty() {
        sink.leave_out("media without text left out");
    } else {
        let Some(user) = message.from_id.text() else {
            sink.leave_out("messages without an account left out");
            return Ok(());
        };
        if user.starts_with("channel") {
            sink.leave_out("messages of channels left out");
            return Ok(());
        }
        let time = message
            .date_unixtime
            .seconds()
            .or_else(|| parse_date(&message.date.0));
        if time.is_none() {
            let got = format!("{} and {}", message.date_unixtime.0, message.date.0);
            return Err(sink.bad(number, "date_unixtime and date", "a time", got));
        }
        // Older exports give the number alone.
        let user = user.strip_prefix("user").unwrap_or(user);
        sink.message(number, user, &message.text.0, time)?;
    }
    Ok(())
}

/// One chat, or an object that holds chats: `{"chats": {"list": [...]}}`.
struct Chat<'w> {
    on: &'w mut dyn FnMut(Message, bool) -> Result<()>,
    failure: &'w mut Option<DataError>,
    found: &'w mut bool,
}

impl Chat<'_> {
    fn again(&mut self) -> Chat<'_> {
        Chat {
            on: &mut *self.on,
            failure: &mut *self.failure,
            found: &mut *self.found,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Chat<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Chat<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a chat of Telegram")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        let mut is_bot_chat = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "type" => is_bot_chat = map.next_value::<Scalar>()?.0 == "bot_chat",
                "chats" | "left_chats" => map.next_value_seed(self.again())?,
                "list" => map.next_value_seed(List(self.again()))?,
                "messages" => {
                    *self.found = true;
                    let Chat { on, failure, .. } = &mut self;
                    map.next_value_seed(Each {
                        on: &mut |message| on(message, is_bot_chat),
                        failure,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct List<'w>(Chat<'w>);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of chats of Telegram")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        while items.next_element_seed(self.0.again())?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const CHAT: &str = r#"{
        "name": "Rowers", "type": "private_supergroup", "id": 7,
        "messages": [
            {"id": 1, "type": "service", "date": "2024-06-05T12:00:00", "actor": "Ada", "action": "create_group", "text": ""},
            {"id": 2, "type": "message", "date": "2024-06-05T12:00:00", "date_unixtime": "1717588800", "from": "Ada",
             "from_id": "user11", "text": "Hello there"},
            {"id": 3, "type": "message", "date": "2024-06-05T12:00:01", "from": null, "from_id": "user12",
             "text": ["See ", {"type": "link", "text": "https://a.example"}, " and ", {"type": "bold", "text": "row"}, "!\nNow."],
             "text_entities": [{"type": "plain", "text": "See "}], "unused": [1e999, {"deep": [[]]}]},
            {"id": 4, "type": "message", "date": "2024-06-05T12:00:02", "from_id": "user11", "text": "not mine", "forwarded_from": "Ben"},
            {"id": 5, "type": "message", "date": "2024-06-05T12:00:03", "from_id": "user11", "text": "gif", "via_bot": "@gif"},
            {"id": 6, "type": "message", "date": "2024-06-05T12:00:04", "from_id": "user11", "photo": "p.jpg", "text": ""},
            {"id": 7, "type": "message", "date": "2024-06-05T12:00:05", "from_id": "channel9", "text": "news"},
            {"id": 8, "type": "message", "date": "2024-06-05T12:00:06", "text": "by nobody"},
            {"id": 9, "type": "message", "date": "2024-06-05T12:00:07", "from_id": 4711, "text": "from an older version"}
        ]
    }"#;

    fn expected() -> Vec<(String, String, Option<i64>)> {
        vec![
            row("11", "Hello there", 1_717_588_800),
            row("12", "See https://a.example and row!\nNow.", 1_717_588_801),
            row("4711", "from an older version", 1_717_588_807),
        ]
    }

    #[test]
    fn one_chat_gives_the_messages_of_people() {
        let export = Export::file(ExportKind::Telegram, "result.json", CHAT.as_bytes());
        assert_eq!(export.rows(), expected());
        assert_eq!(
            export.left_out(),
            counts(&[
                ("forwarded messages left out", 1),
                ("lines of the program left out", 1),
                ("media without text left out", 1),
                ("messages of bots left out", 1),
                ("messages of channels left out", 1),
                ("messages without an account left out", 1)
            ])
        );
    }

    #[test]
    fn all_chats_of_an_account_are_read_but_those_with_bots() {
        let bot = CHAT.replace("private_supergroup", "bot_chat");
        let all = format!(
            r#"{{"about": "x", "contacts": {{"list": [{{"first_name": "Ada"}}]}},
                "chats": {{"about": "y", "list": [{CHAT}, {bot}]}}, "left_chats": {{"list": [{CHAT}]}}}}"#
        );
        let export = Export::folder(
            ExportKind::Telegram,
            &[("export/result.json", &all), ("other.json", "{")],
        );
        let twice: Vec<_> = expected().into_iter().chain(expected()).collect();
        assert_eq!(export.rows(), twice);
    }

    #[test]
    fn a_document_that_is_no_export_is_an_error() {
        let error = Export::file(ExportKind::Telegram, "result.json", b"{\"a\": 1}").error();
        assert!(error.contains("holds no messages of Telegram"), "{error}");
        let error = Export::file(ExportKind::Telegram, "result.json", &CHAT.as_bytes()[..900]).error();
        assert!(error.contains("result.json, line"), "{error}");
        let timeless = CHAT.replace("\"2024-06-05T12:00:01\"", "\"then\"");
        let error = Export::file(ExportKind::Telegram, "result.json", timeless.as_bytes()).error();
        assert!(
            error.contains("row 3: date_unixtime and date: expected a time"),
            "{error}"
        );
    }
}
