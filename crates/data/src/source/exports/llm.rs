//! Conversations with language models: OpenAI's `messages` and ShareGPT's `conversations`, as JSON lines or as one array.

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{DataError, Result, io};
use crate::source::coded;
use crate::source::exports::json::{Pieces, Scalar, elements, line, whole};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use crate::source::lines::Lines;

/// Maximum number of fields of a conversation among which the person is looked for.
const MAX_FIELDS: usize = 64;

/// Reads files whose names end in `.jsonl`, `.ndjson` or `.json`. `column` names the field with the person.
pub(super) fn read(tree: &mut Tree, column: &str, sink: &mut Sink<'_, '_>) -> Result<()> {
    let mut people = People {
        column,
        has_column: None,
        conversations: 0,
    };
    let endings = [".jsonl", ".ndjson", ".json", ".gz", ".zst"];
    for path in tree.streams(&endings, "files that end in .jsonl or .json")? {
        coded::each(&path, &["jsonl", "ndjson", "json"], &mut |mut content| {
            let path = content.path().to_owned();
            let mut start = Vec::new();
            (&mut content)
                .take(64)
                .read_to_end(&mut start)
                .map_err(io("read", &path))?;
            let is_array = start.trim_ascii_start().starts_with(b"[");
            let rest = std::io::Cursor::new(start).chain(content);
            match is_array {
                true => array(&path, rest, &mut people, sink),
                false => lines(&path, rest, &mut people, sink),
            }
        })?;
    }
    Ok(())
}

fn array(path: &Path, content: impl Read, people: &mut People<'_>, sink: &mut Sink<'_, '_>) -> Result<()> {
    sink.messages_of(path)?;
    let bytes = whole(path, content, sink)?;
    let mut number = 0;
    elements(path, &bytes, None, &mut |conversation: Conversation| {
        number += 1;
        people.take(number, conversation, sink)
    })
}

fn lines(path: &Path, content: impl Read, people: &mut People<'_>, sink: &mut Sink<'_, '_>) -> Result<()> {
    sink.lines_of(path)?;
    let mut lines = Lines::after(path.to_owned(), content, 0);
    while let Some((number, text)) = lines.next()? {
        if text.trim_ascii().is_empty() {
            continue;
        }
        let conversation = line(path, number, text, "a conversation as a JSON object", sink)?;
        people.take(number, conversation, sink)?;
    }
    Ok(())
}

/// The people of all conversations: named by a field, or each conversation is one.
struct People<'a> {
    column: &'a str,
    /// `true` if the first conversation has the field. All others must be as it is.
    has_column: Option<bool>,
    conversations: u64,
}

impl People<'_> {
    fn take(&mut self, place: u64, conversation: Conversation, sink: &mut Sink<'_, '_>) -> Result<()> {
        let bad = |sink: &Sink<'_, '_>, expected: String, got: &str| -> DataError {
            sink.bad(place, format!("\"{}\"", self.column), expected, got)
        };
        if !conversation.has_messages {
            let expected =
                "a conversation with an array \"messages\" (OpenAI) or \"conversations\" (ShareGPT)";
            return Err(sink.bad(place, "conversation", expected, "an object without one"));
        }
        self.conversations += 1;
        let person = conversation
            .fields
            .into_iter()
            .find(|(name, _)| name == self.column);
        let has_column = *self.has_column.get_or_insert(person.is_some());
        let user = match person {
            Some((_, user)) if has_column => user,
            Some(_) => {
                let expected = "this field absent, since the first conversation lacks it (--user-column names the field of the person)";
                return Err(bad(sink, expected.to_owned(), "one"));
            }
            None if has_column => {
                return Err(bad(
                    sink,
                    "a person, as the first conversation has".to_owned(),
                    "no such field",
                ));
            }
            None => format!("conversation {}", self.conversations),
        };
        if user.is_empty() {
            return Err(bad(
                sink,
                "a non-empty string or an integer".to_owned(),
                "an empty one",
            ));
        }
        sink.leave_out_several("messages of models and systems left out", conversation.others);
        for text in conversation.said {
            match text.trim().is_empty() {
                true => sink.leave_out("media without text left out"),
                false => sink.message(place, &user, &text, None)?,
            }
        }
        Ok(())
    }
}

/// A conversation, of which only the texts of the person are kept.
#[derive(Default)]
struct Conversation {
    /// Fields that are strings, numbers or truth values.
    fields: Vec<(String, String)>,
    has_messages: bool,
    said: Vec<String>,
    /// Messages that are not of the person.
    others: u64,
}

impl<'de> Deserialize<'de> for Conversation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(ConversationVisitor)
    }
}

struct ConversationVisitor;

impl<'de> Visitor<'de> for ConversationVisitor {
    type Value = Conversation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a conversation as an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Conversation, A::Error> {
        let mut conversation = Conversation::default();
        while let Some(key) = map.next_key::<String>()? {
            if matches!(key.as_str(), "messages" | "conversations" | "conversation")
                && !conversation.has_messages
            {
                conversation.has_messages = true;
                let Turns { said, others } = map.next_value()?;
                (conversation.said, conversation.others) = (said, others);
            } else if conversation.fields.len() < MAX_FIELDS {
                let value = map.next_value::<Scalar>()?;
                conversation.fields.push((key, value.0));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(conversation)
    }
}

#[derive(Default)]
struct Turns {
    said: Vec<String>,
    others: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Turn {
    role: Scalar,
    from: Scalar,
    content: Pieces,
    value: Pieces,
}

impl<'de> Deserialize<'de> for Turns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(TurnsVisitor)
    }
}

struct TurnsVisitor;

impl<'de> Visitor<'de> for TurnsVisitor {
    type Value = Turns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Turns, A::Error> {
        let mut turns = Turns::default();
        while let Some(turn) = items.next_element::<Turn>()? {
            let role = turn.role.text().unwrap_or(&turn.from.0).to_lowercase();
            match matches!(role.as_str(), "user" | "human" | "prompter") {
                true if turn.content.0.is_empty() => turns.said.push(turn.value.0),
                true => turns.said.push(turn.content.0),
                false => turns.others += 1,
            }
        }
        Ok(turns)
    }
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts};

    const OPENAI: &str = r#"{"user_id": "ada", "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello\nthere"}, {"role": "assistant", "content": "Hi", "tool_calls": [{"x": 1}]}]}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "this? \ud83d"}]}, {"role": "assistant", "content": null}], "user_id": 7}
"#;
    const SHAREGPT: &str = r#"[
        {"id": "a", "conversations": [{"from": "human", "value": "One"}, {"from": "gpt", "value": "Two"}, {"from": "human", "value": "Three"}]},
        {"id": "b", "conversations": [{"from": "system", "value": "s"}, {"from": "user", "value": "Four"}, {"from": "user", "value": ""}]}
    ]"#;

    fn said(export: &Export) -> Vec<(String, String)> {
        let rows = export.rows();
        rows.into_iter().map(|(user, text, _)| (user, text)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(user, text)| ((*user).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn only_what_people_said_is_read_and_a_field_names_them() {
        let export = Export::file(ExportKind::LlmChats, "chats.jsonl", OPENAI.as_bytes());
        assert_eq!(
            said(&export),
            pairs(&[("ada", "Hello\nthere"), ("7", "What is this? \u{fffd}")])
        );
        assert_eq!(
            export.left_out(),
            counts(&[
                ("lone surrogates replaced", 1),
                ("messages of models and systems left out", 3)
            ])
        );
        let with_id = Export::file(ExportKind::LlmChats, "chats.json", SHAREGPT.as_bytes()).with_users("id");
        assert_eq!(
            said(&with_id),
            pairs(&[("a", "One"), ("a", "Three"), ("b", "Four")])
        );
    }

    #[test]
    fn without_a_field_each_conversation_is_a_person() {
        let export = Export::file(ExportKind::LlmChats, "chats.json", SHAREGPT.as_bytes());
        assert_eq!(
            said(&export),
            pairs(&[
                ("conversation 1", "One"),
                ("conversation 1", "Three"),
                ("conversation 2", "Four")
            ])
        );
        let two = Export::folder(
            ExportKind::LlmChats,
            &[("a.json", SHAREGPT), ("b.json", SHAREGPT)],
        );
        let users: std::collections::BTreeSet<String> = two.rows().into_iter().map(|row| row.0).collect();
        assert_eq!(users.len(), 4, "conversations of two files are four people");
    }

    #[test]
    fn a_field_that_only_some_conversations_have_is_an_error() {
        let some = OPENAI.replace(", \"user_id\": 7", "");
        let error = Export::file(ExportKind::LlmChats, "a.jsonl", some.as_bytes()).error();
        assert!(
            error.contains("a.jsonl, line 2: \"user_id\": expected a person"),
            "{error}"
        );
        let others = OPENAI.replace("\"user_id\": \"ada\", ", "");
        let error = Export::file(ExportKind::LlmChats, "a.jsonl", others.as_bytes()).error();
        assert!(
            error.contains("a.jsonl, line 2: \"user_id\": expected this field absent"),
            "{error}"
        );
        let error = Export::file(ExportKind::LlmChats, "a.jsonl", b"{\"prompt\": \"a\"}").error();
        assert!(
            error.contains("expected a conversation with an array \"messages\""),
            "{error}"
        );
        let error = Export::file(ExportKind::LlmChats, "a.jsonl", b"\n{\"messages\": 3}").error();
        assert!(error.contains("a.jsonl, line 2: line:"), "{error}");
    }
}
