//! `Posts.xml` and `Comments.xml` of a site of StackExchange: one element `row` per post.

use std::io::{BufReader, Read};
use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::error::{DataError, Place, Result, bad_value, empty};
use crate::limits::MAX_LINE_BYTES;
use crate::source::coded;
use crate::source::exports::html;
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use undertone_settings::time::parse_date;

const FILES: [&str; 2] = ["posts.xml", "comments.xml"];
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Reads one file, or those of the two names in a folder.
pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    for path in tree.streams(&FILES, "Posts.xml or Comments.xml of StackExchange")? {
        let is_archive = tree.is_archive();
        coded::each(&path, &["xml"], &mut |content| {
            let path = content.path().to_owned();
            let name = path.to_string_lossy().to_lowercase();
            match !is_archive || FILES.iter().any(|file| name.ends_with(file)) {
                true => posts(&path, content, sink),
                false => Ok(()),
            }
        })?;
    }
    Ok(())
}

fn posts(path: &Path, content: impl Read, sink: &mut Sink<'_, '_>) -> Result<()> {
    sink.messages_of(path)?;
    let mut reader = Reader::from_reader(BufReader::with_capacity(BUFFER_BYTES, Bounded::new(content)));
    let mut buffer = Vec::new();
    let mut number = 0;
    loop {
        buffer.clear();
        reader.get_mut().get_mut().begin();
        match reader
            .read_event_into(&mut buffer)
            .map_err(|error| bad_xml(path, number, &error.to_string()))?
        {
            Event::Empty(row) | Event::Start(row) if row.name().as_ref() == b"row" => {
                number += 1;
                let post = Post::of(path, number, &row)?;
                post.take(number, sink)?;
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match number {
        0 => Err(empty(path, "rows of StackExchange (elements \"row\")")),
        _ => Ok(()),
    }
}

fn bad_xml(path: &Path, number: u64, detail: &str) -> DataError {
    bad_value(
        path,
        Place::Row(number + 1),
        "XML",
        "a readable document of StackExchange",
        detail,
    )
}

/// The attributes of a row that are used. Comments have other names for them.
#[derive(Default)]
struct Post {
    kind: Option<String>,
    user: Option<String>,
    title: Option<String>,
    body: Option<String>,
    time: Option<String>,
}

impl Post {
    fn of(path: &Path, number: u64, row: &BytesStart<'_>) -> Result<Post> {
        let bad = |detail: String| bad_xml(path, number - 1, &detail);
        let mut post = Post::default();
        for attribute in row.attributes() {
            let attribute = attribute.map_err(|error| bad(error.to_string()))?;
            let field = match attribute.key.as_ref() {
                b"PostTypeId" => &mut post.kind,
                b"OwnerUserId" | b"UserId" => &mut post.user,
                b"Title" => &mut post.title,
                b"Body" | b"Text" => &mut post.body,
                b"CreationDate" => &mut post.time,
                _ => continue,
            };
            let value = std::str::from_utf8(&attribute.value).map_err(|error| bad(error.to_string()))?;
            // Line ends are references here, so those of the attribute are text.
            let value = quick_xml::escape::unescape(value).map_err(|error| bad(error.to_string()))?;
            *field = Some(value.into_owned());
        }
        Ok(post)
    }

    fn take(self, number: u64, sink: &mut Sink<'_, '_>) -> Result<()> {
        // Questions and answers; comments have no kind.
        if !matches!(self.kind.as_deref(), None | Some("1" | "2")) {
            sink.leave_out("wiki and moderation posts left out");
            return Ok(());
        }
        let Some(user) = self.user.filter(|user| !user.is_empty()) else {
            sink.leave_out("messages without an account left out");
            return Ok(());
        };
        if user == "-1" {
            sink.leave_out("messages of bots left out");
            return Ok(());
        }
        // The body of a post is HTML. That of a comment is not.
        let body = self.body.unwrap_or_default();
        let mut text = match self.kind {
            None => body,
            Some(_) => {
                let plain = html::plain(&body, true);
                sink.note("quotations left out", plain.quotations);
                sink.note("blocks of code left out", plain.code);
                plain.text
            }
        };
        if let Some(title) = self.title.filter(|title| !title.trim().is_empty()) {
            text = format!("{}\n{text}", title.trim()).trim_end().to_owned();
        }
        if text.trim().is_empty() {
            sink.leave_out("posts without text left out");
            return Ok(());
        }
        let time = self.time.unwrap_or_default();
        let Some(seconds) = parse_date(&time) else {
            let expected = "a time such as \"2024-06-05T12:00:00.000\"";
            return Err(sink.bad(number, "CreationDate", expected, time));
        };
        sink.message(number, &user, &text, Some(seconds))
    }
}

/// A stream that ends in an error where one element needs more than [`MAX_LINE_BYTES`].
struct Bounded<R> {
    inner: R,
    left: usize,
}

impl<R: Read> Bounded<R> {
    fn new(inner: R) -> Bounded<R> {
        Bounded {
            inner,
            left: MAX_LINE_BYTES,
        }
    }

    /// A new element begins.
    fn begin(&mut self) {
        self.left = MAX_LINE_BYTES;
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read).ok_or_else(|| {
            std::io::Error::other(format!(
                "an element of more than {MAX_LINE_BYTES} bytes (max_line_bytes)"
            ))
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const POSTS: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<posts>\n\
        <row Id=\"1\" PostTypeId=\"1\" CreationDate=\"2024-06-05T12:00:00.653\" Title=\"Why &amp; how?\" OwnerUserId=\"5\" \
        Body=\"&lt;p&gt;A &amp;amp; b &quot;c&quot;&lt;/p&gt;&#xA;&lt;pre&gt;&lt;code&gt;x = 1&lt;/code&gt;&lt;/pre&gt;\" />\n\
        <row Id=\"2\" PostTypeId=\"2\" CreationDate=\"2024-06-05T12:00:01.000\" OwnerUserId=\"6\" \
        Body=\"&lt;blockquote&gt;A&lt;/blockquote&gt;&lt;p&gt;No.&lt;/p&gt;\" />\n\
        <row Id=\"3\" PostTypeId=\"4\" CreationDate=\"2024-06-05T12:00:02.000\" OwnerUserId=\"6\" Body=\"tag\" />\n\
        <row Id=\"4\" PostTypeId=\"2\" CreationDate=\"2024-06-05T12:00:03.000\" OwnerDisplayName=\"gone\" Body=\"x\" />\n\
        <row Id=\"5\" PostTypeId=\"2\" CreationDate=\"2024-06-05T12:00:04.000\" OwnerUserId=\"-1\" Body=\"x\" />\n</posts>";
    const COMMENTS: &str = "<comments><row Id=\"1\" PostId=\"1\" Text=\"if a &lt; b, yes\" CreationDate=\"2024-06-05T12:00:05.1\" UserId=\"7\" /></comments>";

    #[test]
    fn posts_and_comments_are_texts_of_their_accounts() {
        let export = Export::folder(
            ExportKind::StackExchange,
            &[
                ("Posts.xml", POSTS),
                ("Comments.xml", COMMENTS),
                ("Votes.xml", "<"),
            ],
        );
        assert_eq!(
            export.rows(),
            [
                row("7", "if a < b, yes", 1_717_588_805),
                row("5", "Why & how?\nA & b \"c\"", 1_717_588_800),
                row("6", "No.", 1_717_588_801),
            ]
        );
        assert_eq!(
            export.left_out(),
            counts(&[
                ("blocks of code left out", 1),
                ("messages of bots left out", 1),
                ("messages without an account left out", 1),
                ("quotations left out", 1),
                ("wiki and moderation posts left out", 1)
            ])
        );
        let archive = Export::zip(
            ExportKind::StackExchange,
            &[("site/Posts.xml", POSTS), ("site/Votes.xml", "<")],
        );
        assert_eq!(archive.rows().len(), 2);
    }

    #[test]
    fn hostile_documents_are_errors_with_their_row() {
        let error =
            |text: &str| Export::file(ExportKind::StackExchange, "Posts.xml", text.as_bytes()).error();
        let found = error(&POSTS.replace("Id=\"2\"", "Id=\"2"));
        assert!(found.contains("Posts.xml, row"), "{found}");
        let found = error(&POSTS.replace("2024-06-05T12:00:01.000", "noon"));
        assert!(found.contains("row 2: CreationDate: expected a time"), "{found}");
        let bomb = format!(
            "<!DOCTYPE p [<!ENTITY a \"{}\"><!ENTITY b \"&a;&a;&a;&a;\">]><posts><row PostTypeId=\"1\" OwnerUserId=\"1\" Body=\"&b;\"/></posts>",
            "x".repeat(1000)
        );
        let found = error(&bomb);
        assert!(found.contains("row 1: XML"), "{found}");
        assert!(error("<a></a>").contains("holds no rows of StackExchange"));
        let long = format!(
            "<posts><row Body=\"{}\"/></posts>",
            "x".repeat(MAX_LINE_BYTES + (2 << 20))
        );
        let found = error(&long);
        assert!(found.contains("max_line_bytes"), "{found}");
    }
}
