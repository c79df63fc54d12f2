//! Mail in files: all mails in one file (mbox), or a file per mail (Maildir).

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::error::{Place, Result, bad_value, empty, io, quoted};
use crate::source::coded;
use crate::source::exports::mail;
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use crate::source::lines::Lines;

/// Maximum size of a mail. A larger one, which is nearly all attachments, is left out and counted.
const MAX_MAIL_BYTES: usize = 64 << 20;
const TOO_LARGE: &str = "mails of more than 64 MiB left out";

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads an mbox file, or all files of a folder that end in `.mbox`.
pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    let mut seen = HashSet::new();
    for path in tree.streams(
        &[".mbox", ".mbx"],
        "file that ends in .mbox; a single file may have any name",
    )? {
        coded::each(&path, &["mbox", "mbx"], &mut |content| {
            let path = content.path().to_owned();
            read_file(&path, Lines::of(content), &mut seen, sink)
        })?;
    }
    Ok(())
}

fn read_file<R: std::io::Read>(
    path: &Path,
    mut lines: Lines<R>,
    seen: &mut HashSet<u64>,
    sink: &mut Sink<'_, '_>,
) -> Result<()> {
    sink.lines_of(path)?;
    let mut mail = Vec::new();
    // The line that the mail begins at; 0 before the first one.
    let mut begin = 0;
    let (mut after_empty, mut too_large) = (true, false);
    while let Some((number, line)) = lines.next()? {
        if is_separator(line, begin == 0, after_empty) {
            if begin > 0 {
                end_of_mail(begin, &mail, too_large, seen, sink)?;
            }
            (begin, too_large) = (number, false);
            mail.clear();
        } else if begin == 0 {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let got = quoted(&String::from_utf8_lossy(line.trim_ascii()));
            let expected = "a line that begins with \"From \", as the first one of every mail";
            return Err(bad_value(path, Place::Line(number), "mbox", expected, got));
        } else if mail.len() + line.len() > MAX_MAIL_BYTES {
            too_large = true;
        } else {
            mail.extend_from_slice(unescaped(line));
        }
        after_empty = line.trim_ascii_end().is_empty();
    }
    match begin {
        0 => Err(empty(path, "mails")),
        _ => end_of_mail(begin, &mail, too_large, seen, sink),
    }
}

fn end_of_mail(
    place: u64,
    mail: &[u8],
    too_large: bool,
    seen: &mut HashSet<u64>,
    sink: &mut Sink<'_, '_>,
) -> Result<()> {
    match too_large {
        true => {
            sink.leave_out(TOO_LARGE);
            Ok(())
        }
        false => mail::take(place, mail, seen, sink),
    }
}

/// `true` for `From ada@example.org Wed Jun  5 12:00:00 2024`.
///
/// A sentence can begin with `From `, too. So only the first line may lack the time, and a line behind text needs the whole date. A mail
/// would otherwise take the next one for its own text.
fn is_separator(line: &[u8], is_first: bool, after_empty: bool) -> bool {
    if !line.starts_with(b"From ") {
        return false;
    }
    let line = String::from_utf8_lossy(line);
    let words = || line.split_whitespace();
    let has_time = words().any(|word| {
        word.split_once(':').is_some_and(|(hour, rest)| {
            [hour, rest]
                .iter()
                .all(|part| part.starts_with(|letter: char| letter.is_ascii_digit()))
        })
    });
    let names = |names: &[&str]| words().any(|word| names.contains(&word.trim_end_matches(',')));
    let has_date = || names(&DAYS) && names(&MONTHS);
    is_first || (has_time && (after_empty || has_date()))
}

/// A line `>From ` was written as `From `.
fn unescaped(line: &[u8]) -> &[u8] {
    let marks = line.iter().take_while(|&&byte| byte == b'>').count();
    let is_escaped = marks > 0 && line.get(marks..).is_some_and(|rest| rest.starts_with(b"From "));
    line.get(usize::from(is_escaped)..).unwrap_or(line)
}

/// Reads the folders `cur` and `new` of a Maildir, and of those below it.
pub(super) fn read_maildir(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    let is_mail = |name: &&String| matches!(name.rsplit('/').nth(1), Some("cur" | "new"));
    let mails: Vec<String> = tree.names().iter().filter(is_mail).cloned().collect();
    if mails.is_empty() {
        return Err(empty(tree.root(), "mails in a folder \"cur\" or \"new\""));
    }
    let mut seen = HashSet::new();
    for name in mails {
        let path = tree.path(&name);
        sink.messages_of(&path)?;
        // Flags stand behind the name: D is a draft, and T is in the bin.
        if name
            .rsplit_once(":2,")
            .is_some_and(|(_, flags)| flags.contains(['D', 'T']))
        {
            sink.leave_out("drafts and deleted mails left out");
            continue;
        }
        if !tree.is_archive() {
            let size = fs::metadata(&path).map_err(io("read", &path))?.len();
            if size > MAX_MAIL_BYTES as u64 {
                sink.leave_out(TOO_LARGE);
                continue;
            }
        }
        let bytes = tree.bytes(&name, MAX_MAIL_BYTES as u64, "leave out what is no mail")?;
        mail::take(1, &bytes, &mut seen, sink)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const MBOX: &str = "From MAILER-DAEMON Wed Jun  5 12:00:00 2024\n\
        From: =?utf-8?q?Ada_L=C3=B6we?= <Ada@Example.org>\nTo: ben@example.org\nSubject: boats\nMessage-ID: <1@example.org>\n\
        Date: Wed, 05 Jun 2024 14:00:00 +0200\nContent-Type: text/plain; charset=iso-8859-1\n\
        Content-Transfer-Encoding: quoted-printable\n\n\
        Gr=FC=DFe from the =\nriver.\n>From here on it is high.\n\nFrom the sea it looks small.\n\n\
        On Tue, 4 Jun 2024 at 10:00, Ben\n<ben@example.org> wrote:\n> Is it high?\n>\n> Ben\n\nYes.\n\n-- \nAda\nBoat club\n\n\
        From ben@example.org Wed Jun  5 12:00:01 2024\n\
        From: ben@example.org\nDate: Wed, 05 Jun 2024 12:00:01 +0000\nMIME-Version: 1.0\n\
        Content-Type: multipart/alternative; boundary=\"b\"\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nPlain 😀\n\
        --b\nContent-Type: text/html\n\n<p>Html</p>\n--b--\n\n\
        From x Wed Jun  5 12:00:02 2024\nFrom: noreply@shop.example\nDate: Wed, 05 Jun 2024 12:00:02 +0000\n\nYour order.\n\n\
        From x Wed Jun  5 12:00:03 2024\nFrom: cleo@example.org\nAuto-Submitted: auto-replied\n\nI am away.\n\n\
        From x Wed Jun  5 12:00:04 2024\nFrom: cleo@example.org\nMessage-ID: <1@example.org>\n\nthe first one again\n\n\
        From x Wed Jun  5 12:00:05 2024\nFrom: cleo@example.org\nContent-Type: text/html; charset=utf-8\n\n\
        <html><head><title>t</title></head><body><p>So &amp; so</p><blockquote>old</blockquote></body></html>\n\n\
        From x Wed Jun  5 12:00:06 2024\nSubject: nobody\n\ntext\n";

    #[test]
    fn mails_of_one_file_give_what_their_senders_wrote() {
        let export = Export::file(ExportKind::Mbox, "Inbox", MBOX.as_bytes());
        let rows = export.rows();
        assert_eq!(
            rows,
            [
                row(
                    "ada@example.org",
                    "Grüße from the river.\nFrom here on it is high.\n\nFrom the sea it looks small.\n\nYes.",
                    1_717_588_800
                ),
                row("ben@example.org", "Plain 😀", 1_717_588_801),
                ("cleo@example.org".to_owned(), "So & so".to_owned(), None),
            ]
        );
        assert_eq!(
            export.left_out(),
            counts(&[
                ("automatic mails left out", 2),
                ("repeated mails left out", 1),
                ("mails without one sender left out", 1),
                ("quoted parts of mails left out", 2),
                ("signatures left out", 1)
            ])
        );
        let windows = Export::file(ExportKind::Mbox, "Inbox", MBOX.replace('\n', "\r\n").as_bytes());
        assert_eq!(windows.rows(), rows);
        let archive = Export::zip(
            ExportKind::Mbox,
            &[("mail/a.mbox", MBOX), ("mail/b.txt", "no mail")],
        );
        assert_eq!(archive.rows(), rows);
    }

    #[test]
    fn a_mail_never_takes_the_next_one_for_its_own_text() {
        let mail = |user: &str, text: &str| {
            format!("From {user} Wed Jun  5 12:00:00 2024\nFrom: {user}@example.org\n\n{text}\n")
        };
        // No empty line stands between the two.
        let export = Export::file(
            ExportKind::Mbox,
            "a",
            (mail("ada", "mine") + &mail("ben", "yours")).as_bytes(),
        );
        let rows: Vec<(String, String)> = export.rows().into_iter().map(|row| (row.0, row.1)).collect();
        let expected = [("ada@example.org", "mine"), ("ben@example.org", "yours")];
        assert_eq!(
            rows,
            expected.map(|(user, text)| (user.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn a_folder_with_a_file_per_mail_is_read_without_drafts() {
        let mail = "From: Ada <ada@example.org>\nDate: Wed, 05 Jun 2024 12:00:00 GMT\n\nHello\n";
        let other = mail.replace("Hello", "Again").replace("12:00:00", "12:00:01");
        let export = Export::folder(
            ExportKind::Maildir,
            &[
                ("cur/1.a:2,S", mail),
                ("cur/2.a:2,DS", mail),
                ("tmp/3.a", mail),
                (".Sent/new/4.a", &other),
                ("dovecot-uidlist", "3 V1"),
            ],
        );
        assert_eq!(
            export.rows(),
            [
                row("ada@example.org", "Again", 1_717_588_801),
                row("ada@example.org", "Hello", 1_717_588_800)
            ]
        );
        assert_eq!(
            export.left_out(),
            counts(&[("drafts and deleted mails left out", 1)])
        );
    }

    #[test]
    fn a_mail_of_many_nested_parts_ends_in_time() {
        use std::fmt::Write as _;
        let mut mail = "From x Wed Jun  5 12:00:00 2024\nFrom: ada@example.org\n".to_owned();
        for depth in 0..5000 {
            let _ = write!(
                mail,
                "Content-Type: multipart/mixed; boundary=\"b{depth}\"\n\n--b{depth}\n"
            );
        }
        mail.push_str("Content-Type: message/rfc822\n\nFrom: ben@example.org\n\nnot mine\n");
        let start = std::time::Instant::now();
        let outcome = Export::file(ExportKind::Mbox, "a", mail.as_bytes()).outcome();
        assert_eq!(
            outcome, "0 rows",
            "the text of a mail inside of a mail is not its sender's"
        );
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    #[test]
    fn a_file_that_is_no_mbox_names_its_line() {
        let error = Export::file(ExportKind::Mbox, "a.mbox", b"\nDear Ada\n").error();
        assert!(
            error.contains("a.mbox, line 2: mbox: expected a line that begins with \"From \""),
            "{error}"
        );
        let error = Export::folder(ExportKind::Maildir, &[("a.txt", "x")]).error();
        assert!(error.contains("holds no mails in a folder"), "{error}");
    }
}
