//! Imports of exports as a whole, and exports of strangers.

use std::io::Write;
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::testing::Export;
use super::{ExportKind, ExportSource};
use crate::columns::{Columns, Keys};
use crate::import::{ImportOptions, ImportSummary, import, import_export};
use crate::progress::NoProgress;
use crate::source::parquet;
use undertone_settings::{SourceSpec, SplitSpec};
use undertone_vocabulary::not_private;

const DAY: &str = r#"[
    {"type": "message", "user": "U2", "text": "second", "ts": "1717588801.0"},
    {"type": "message", "user": "U1", "text": "first", "ts": "1717588800.0"},
    {"type": "message", "subtype": "channel_join", "user": "U1", "text": "has joined", "ts": "1717588799.0"}
]"#;

fn options(keep_user_ids: bool, split: Option<SplitSpec>) -> ImportOptions<'static> {
    ImportOptions {
        salt: b"salt",
        keep_user_ids,
        join_users: false,
        drop_users: &[],
        split,
        public: false,
        overwrite: true,
    }
}

fn source(kind: ExportKind, path: &Path) -> ExportSource {
    ExportSource {
        kind,
        path: path.to_owned(),
        date_order: None,
        user_column: "user_id".to_owned(),
    }
}

fn jsonl(path: &Path) -> SourceSpec {
    serde_json::from_value(serde_json::json!({"kind": "jsonl", "path": path})).expect("a source")
}

/// Imports the export in `folder` and reads back users, texts and times.
fn imported(export: &Export, keep_user_ids: bool) -> (ImportSummary, Vec<(String, String, i64)>) {
    let output = export.path().join("people.parquet");
    let source = source(ExportKind::Slack, &export.path().join("export"));
    let summary =
        import_export(&source, &output, &options(keep_user_ids, None), &NoProgress).expect("an import");
    let columns = Columns {
        user: Some("user_id"),
        text: "text",
        time: Some("timestamp"),
        split: None,
        time_unit: None,
        keys: Keys::SOURCE,
    };
    let mut found = Vec::new();
    parquet::read(&output, columns, &mut |rows, _| {
        for row in 0..rows.len() {
            found.push((
                rows.users.get(row).to_owned(),
                rows.texts.get(row).to_owned(),
                rows.times[row],
            ));
        }
        Ok(())
    })
    .expect("the table");
    (summary, found)
}

#[test]
fn an_import_replaces_accounts_by_hashes_counts_what_it_left_out_and_leaves_a_record() {
    let export = Export::folder(ExportKind::Slack, &[("general/2024-06-05.json", DAY)]);
    let (summary, kept) = imported(&export, true);
    let expected = [("U1", "first", 1_717_588_800), ("U2", "second", 1_717_588_801)];
    assert_eq!(
        kept,
        expected.map(|(user, text, time)| (user.to_owned(), text.to_owned(), time))
    );
    assert_eq!((summary.rows, summary.users, summary.has_time), (2, 2, true));
    assert_eq!(
        summary.noted.iter().collect::<Vec<_>>(),
        [("lines of the program left out", 1)]
    );
    let (summary, hashed) = imported(&export, false);
    assert!(summary.users_hashed);
    assert!(hashed.iter().all(|row| row.0.len() == 16), "{hashed:?}");
    let output = export.path().join("people.parquet");
    let record = not_private(&output).expect("a record");
    assert!(record.is_some(), "people's text has a record");
}

#[test]
fn an_export_without_times_cannot_be_split_by_time() {
    let chats = br#"{"messages": [{"role": "user", "content": "a b"}]}"#;
    let export = Export::file(ExportKind::LlmChats, "chats.jsonl", chats);
    let split = SplitSpec::Time {
        test_after: undertone_settings::TimePoint::Seconds(0),
        validation_users: 0.1,
        seed: 0,
    };
    let source = source(ExportKind::LlmChats, &export.path().join("chats.jsonl"));
    let output = export.path().join("people.parquet");
    assert!(import_export(&source, &output, &options(true, Some(split)), &NoProgress).is_err());
    assert!(!output.exists());
    import_export(&source, &output, &options(true, None), &NoProgress).expect("an import without times");
}

#[test]
fn a_table_that_looks_like_an_export_names_the_command() {
    for (name, content, format) in [
        ("slack.jsonl", DAY, "slack"),
        (
            "result.jsonl",
            r#"{"messages": [{"from_id": "user1", "date_unixtime": "1", "text": "a"}]}"#,
            "telegram",
        ),
        ("chat.jsonl", "5/6/24, 12:00 - Ada: Hello", "whatsapp"),
        (
            "openai.jsonl",
            r#"{"messages": [{"role": "user", "content": "a"}]}"#,
            "llm-chats",
        ),
    ] {
        let export = Export::file(ExportKind::Slack, name, content.as_bytes());
        let path = export.path().join(name);
        let table = jsonl(&path);
        let output = export.path().join("out.parquet");
        let error =
            import(&table, Path::new(""), &output, &options(true, None), &NoProgress).expect_err("no table");
        let error = error.to_string();
        assert!(
            error.contains(&format!("`undertone data import --as {format} ")),
            "{error}"
        );
    }
    let export = Export::file(ExportKind::Slack, "a.jsonl", b"{\"text\": \"no user\"}");
    let path = export.path().join("a.jsonl");
    let table = jsonl(&path);
    let output = export.path().join("out.parquet");
    let error =
        import(&table, Path::new(""), &output, &options(true, None), &NoProgress).expect_err("no user");
    assert!(!error.to_string().contains("--as"), "{error}");
}

#[cfg(unix)]
#[test]
fn links_below_a_folder_lead_nowhere() {
    for (kind, name) in [
        (ExportKind::Slack, "general/2024-06-06.json"),
        (ExportKind::Maildir, "cur/2"),
    ] {
        let export = Export::folder(
            kind,
            &[
                ("general/2024-06-05.json", DAY),
                ("cur/1", "From: a@b.example\n\nHi\n"),
            ],
        );
        let secret = export.path().join("secret");
        std::fs::write(&secret, DAY).expect("a file");
        std::os::unix::fs::symlink(&secret, export.path().join("export").join(name)).expect("a link");
        let error = export.error();
        assert!(
            error.contains("an export has no links") && error.contains("got a link"),
            "{error}"
        );
    }
}

#[test]
fn an_archive_that_unpacks_to_much_more_is_refused() {
    let packed = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut archive = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive
        .start_file("general/2024-06-05.json", packed)
        .expect("a member");
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..80 {
        archive.write_all(&spaces).expect("its content");
    }
    let bytes = archive.finish().expect("an archive").into_inner();
    assert!(bytes.len() < 1 << 20);
    let error = Export::file(ExportKind::Slack, "export.zip", &bytes).error();
    assert!(
        error.contains("2024-06-05.json") && error.contains("expected an archive that holds at most"),
        "{error}"
    );
    let cut = &bytes[..bytes.len() / 2];
    let error = Export::file(ExportKind::Slack, "export.zip", cut).error();
    assert!(
        error.contains("export.zip") && error.contains("zip archive"),
        "{error}"
    );
}

#[test]
fn any_bytes_end_in_rows_or_in_an_error() {
    let kinds = [
        (ExportKind::Slack, "a.json"),
        (ExportKind::Telegram, "result.json"),
        (ExportKind::WhatsApp, "chat.txt"),
        (ExportKind::Discord, "a.json"),
        (ExportKind::Discord, "a.csv"),
        (ExportKind::Mbox, "a.mbox"),
        (ExportKind::Twitter, "tweets.js"),
        (ExportKind::StackExchange, "Posts.xml"),
        (ExportKind::Reddit, "a.jsonl"),
        (ExportKind::LlmChats, "a.jsonl"),
    ];
    let starts: [&[u8]; 12] = [
        b"",
        b"\0\0\0\0",
        b"\xff\xfe[\0",
        b"[",
        b"{\"messages\": [",
        b"{\"messages\": {\"a\": 1}}",
        b"[[[[[[[[",
        b"From x 12:00\n\xff\xfe: \xff",
        b"<row Body=\"&#xFFFFFFFF;\" OwnerUserId=\"1\" PostTypeId=\"1\"/>",
        b"PK\x03\x04",
        b"window.YTD.tweets.part0 = ",
        b"[99/99/99, 12:00:00] a: b",
    ];
    for (kind, name) in kinds {
        for start in starts {
            let export = Export::file(kind, name, start);
            let message = export.outcome();
            assert!(message.len() < 2000, "{kind:?}: {message}");
        }
    }
}

/// Small honest exports with two people, `a1` and `b2`, and a text of each.
const HONEST: [(ExportKind, &str, &str); 10] = [
    (
        ExportKind::Slack,
        "day.json",
        r#"[{"type": "message", "user": "a1", "text": "first one", "ts": "1717588800.1"},
            {"type": "message", "user": "b2", "text": "second one", "ts": "1717588801.1"}]"#,
    ),
    (
        ExportKind::Telegram,
        "result.json",
        r#"{"name": "x", "type": "private_group", "messages": [
            {"type": "message", "date": "2024-06-05T12:00:00", "from_id": "usera1", "text": ["first", {"type": "bold", "text": " one"}]},
            {"type": "message", "date": "2024-06-05T12:00:01", "from_id": "userb2", "text": "second one"}]}"#,
    ),
    (
        ExportKind::WhatsApp,
        "chat.txt",
        "13/06/2024, 12:00 - a1: first one\n13/06/2024, 12:01 - b2: second one\n",
    ),
    (
        ExportKind::Discord,
        "channel.json",
        r#"{"messages": [{"type": "Default", "timestamp": "2024-06-05T12:00:00Z", "content": "first one", "author": {"id": "a1"}},
            {"type": "Reply", "timestamp": "2024-06-05T12:00:01Z", "content": "second one", "author": {"id": "b2"}}]}"#,
    ),
    (
        ExportKind::Discord,
        "channel.csv",
        "AuthorID,Author,Date,Content,Attachments,Reactions\n\"a1\",\"x\",\"2024-06-05T12:00:00Z\",\"first one\",\"\",\"\"\n\
         \"b2\",\"y\",\"2024-06-05T12:00:01Z\",\"second one\",\"\",\"\"\n",
    ),
    (
        ExportKind::Mbox,
        "Inbox",
        "From a Wed Jun  5 12:00:00 2024\nFrom: a1@x.example\n\nfirst one\n\nFrom b Wed Jun  5 12:00:01 2024\nFrom: b2@x.example\n\n\
         second one\n",
    ),
    (
        ExportKind::StackExchange,
        "Comments.xml",
        "<comments>\n<row Text=\"first one\" CreationDate=\"2024-06-05T12:00:00\" UserId=\"a1\" />\n\
         <row Text=\"second one\" CreationDate=\"2024-06-05T12:00:01\" UserId=\"b2\" />\n</comments>",
    ),
    (
        ExportKind::Reddit,
        "dump.jsonl",
        "{\"author\": \"a1\", \"body\": \"first one\", \"created_utc\": 1}\n{\"author\": \"b2\", \"body\": \"second one\", \"created_utc\": 2}\n",
    ),
    (
        ExportKind::LlmChats,
        "chats.jsonl",
        "{\"user_id\": \"a1\", \"messages\": [{\"role\": \"user\", \"content\": \"first one\"}]}\n\
         {\"user_id\": \"b2\", \"messages\": [{\"role\": \"user\", \"content\": \"second one\"}]}\n",
    ),
    (
        ExportKind::LlmChats,
        "chats.json",
        "[{\"user_id\": \"a1\", \"conversations\": [{\"from\": \"human\", \"value\": \"first one\"}]},\n\
         {\"user_id\": \"b2\", \"conversations\": [{\"from\": \"human\", \"value\": \"second one\"}]}]",
    ),
];

/// Changes some bytes: flips, cuts, doubled pieces, and bytes that formats live by.
fn mutant(honest: &[u8], random: &mut rand_chacha::ChaCha8Rng) -> Vec<u8> {
    use rand_core::Rng;
    const MARKS: &[u8] = b"\"\\\n\r,:{}[]<>&' \0\xff\xe2";
    let mut bytes = honest.to_vec();
    for _ in 0..=random.next_u32() % 3 {
        let at = random.next_u32() as usize % bytes.len().max(1);
        let mark = MARKS[random.next_u32() as usize % MARKS.len()];
        match random.next_u32() % 6 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), mark),
            2 if at < bytes.len() => bytes[at] = mark,
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 if at < bytes.len() => bytes[at] ^= 1 << (random.next_u32() % 8),
            _ => {
                let end = (at + 1 + random.next_u32() as usize % 40).min(bytes.len());
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at.min(bytes.len())..at.min(bytes.len()), piece);
            }
        }
    }
    bytes
}

#[test]
#[ignore = "slow"]
fn a_changed_export_ends_in_an_error_or_in_texts_of_their_own_people() {
    use rand_core::SeedableRng;
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    for (kind, name, honest) in HONEST {
        let export = Export::file(kind, name, honest.as_bytes());
        assert_eq!(export.rows().len(), 2, "{kind:?}");
        let mut accepted = 0;
        for _ in 0..1000 {
            let bytes = mutant(honest.as_bytes(), &mut random);
            std::fs::write(export.path().join(name), &bytes).expect("a file");
            let Ok(rows) = export.try_rows() else {
                continue;
            };
            accepted += 1;
            for (user, text, _) in rows {
                let swapped = (user.starts_with("a1") && text == "second one")
                    || (user.starts_with("b2") && text == "first one");
                assert!(
                    !swapped,
                    "{kind:?}: {user} has {text:?} of {:?}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
        assert!(accepted > 50, "{kind:?}: only {accepted} mutants are read");
    }
}
