//! The text that the sender of a mail wrote, without quoted mail and without signature.

use std::collections::HashSet;

use mail_parser::{Message, MessageParser, PartType};
use undertone_text::guard::caught;

use crate::error::Result;
use crate::hash::{hash_bytes, head};
use crate::source::exports::html;
use crate::source::exports::sink::Sink;

/// Senders that are programs, by the part of the address in front of `@`.
const PROGRAMS: [&str; 10] = [
    "noreply",
    "no-reply",
    "no_reply",
    "donotreply",
    "do-not-reply",
    "mailer-daemon",
    "postmaster",
    "notifications",
    "notification",
    "bounce",
];

/// Takes the mail `bytes`. `seen` holds the ids of the mails before it, since a mail may lie in several folders.
pub(super) fn take(place: u64, bytes: &[u8], seen: &mut HashSet<u64>, sink: &mut Sink<'_, '_>) -> Result<()> {
    // The parser is a library for hostile input. What it does not survive all the same is counted.
    let Ok(Some(mail)) = caught(|| MessageParser::default().parse(bytes)) else {
        sink.leave_out("unreadable mails left out");
        return Ok(());
    };
    let Some(sender) = sender(&mail) else {
        sink.leave_out("mails without one sender left out");
        return Ok(());
    };
    if is_automatic(&mail, &sender) {
        sink.leave_out("automatic mails left out");
        return Ok(());
    }
    let labels = mail.header_raw("X-Gmail-Labels").unwrap_or_default();
    if labels
        .split(',')
        .any(|label| matches!(label.trim(), "Spam" | "Trash" | "Drafts"))
    {
        sink.leave_out("drafts and deleted mails left out");
        return Ok(());
    }
    if let Some(id) = mail.message_id()
        && !seen.insert(u64::from_le_bytes(head(&hash_bytes(id.as_bytes()))))
    {
        sink.leave_out("repeated mails left out");
        return Ok(());
    }
    let Ok(written) = caught(|| Written::of(&mail)) else {
        sink.leave_out("unreadable mails left out");
        return Ok(());
    };
    sink.note("quoted parts of mails left out", written.quoted);
    sink.note("signatures left out", written.signatures);
    sink.note(
        "mails with bytes outside of their charset",
        u64::from(written.is_damaged),
    );
    if written.text.is_empty() {
        sink.leave_out("mails without text of their own left out");
        return Ok(());
    }
    let time = mail
        .date()
        .filter(|date| date.is_valid())
        .map(mail_parser::DateTime::to_timestamp);
    sink.message(place, &sender, &written.text, time)
}

/// The one address of the sender, in lower case.
fn sender(mail: &Message<'_>) -> Option<String> {
    let mut addresses = mail.from()?.iter().filter_map(|address| address.address());
    let first = addresses.next()?.trim().to_lowercase();
    let is_one = addresses.all(|other| other.trim().to_lowercase() == first);
    let (name, host) = first.rsplit_once('@')?;
    (is_one && !name.is_empty() && !host.is_empty()).then_some(first)
}

fn is_automatic(mail: &Message<'_>, sender: &str) -> bool {
    let says = |header: &str| mail.header_raw(header).map(|value| value.trim().to_lowercase());
    let name = sender.split('@').next().unwrap_or_default();
    says("Auto-Submitted").is_some_and(|value| !value.is_empty() && value != "no")
        || says("Precedence").is_some_and(|value| matches!(value.as_str(), "bulk" | "junk" | "auto_reply"))
        || says("X-Autoreply").is_some_and(|value| value == "yes")
        || says("Return-Path").is_some_and(|value| value == "<>")
        || PROGRAMS
            .iter()
            .any(|program| name == *program || name.starts_with(&format!("{program}+")))
}

/// The text of a mail, and what was left out of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    text: String,
    quoted: u64,
    signatures: u64,
    is_damaged: bool,
}

impl Written {
    fn of(mail: &Message<'_>) -> Written {
        let mut written = Written::default();
        for part in mail.text_bodies() {
            match &part.body {
                PartType::Text(text) => written.add(text),
                PartType::Html(page) => written.add_html(page),
                _ => continue,
            }
            written.is_damaged |= part.is_encoding_problem;
        }
        if written.text.is_empty() && written.quoted == 0 {
            for part in mail.html_bodies() {
                if let PartType::Html(page) = &part.body {
                    written.add_html(page);
                }
            }
        }
        written
    }

    fn add_html(&mut self, page: &str) {
        let plain = html::plain(page, false);
        self.quoted += plain.quotations;
        self.add(&plain.text);
    }

    /// Adds one part of a mail.
    fn add(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let mut kept: Vec<&str> = Vec::new();
        let (mut in_quote, mut after_quote) = (false, false);
        for (at, &line) in lines.iter().enumerate() {
            let trimmed = line.trim();
            if is_quoted(line) {
                if !in_quote {
                    self.quoted += 1;
                    drop_introduction(&mut kept);
                }
                (in_quote, after_quote) = (true, true);
                continue;
            }
            in_quote &= trimmed.is_empty();
            if matches!(line, "-- " | "--") || trimmed == "-----BEGIN PGP SIGNATURE-----" {
                self.signatures += 1;
                break;
            }
            if is_rule(trimmed) || is_other_mail(trimmed) || is_head_of_mail(trimmed, &lines[at + 1..]) {
                self.quoted += 1;
                break;
            }
            let is_armour = trimmed == "-----BEGIN PGP SIGNED MESSAGE-----"
                || (trimmed.starts_with("Hash: ") && kept.iter().all(|line| line.trim().is_empty()));
            // The empty lines on both sides of a quotation become one.
            let is_gap = trimmed.is_empty() && after_quote && kept.last().is_none_or(|last| last.is_empty());
            after_quote &= trimmed.is_empty();
            if !is_armour && !is_gap {
                kept.push(line.trim_end());
            }
        }
        let part = kept.join("\n");
        let part = part.trim();
        if !part.is_empty() {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(part);
        }
    }
}

fn is_quoted(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with('>')
}

/// Removes the lines that introduce a quotation, such as `On Tue, 4 Jun 2024, Ben wrote:`.
///
/// They end in a colon, and hold a number or a verb of a few languages. A longer introduction goes back over lines with numbers.
fn drop_introduction(kept: &mut Vec<&str>) {
    const VERBS: [&str; 12] = [
        "wrote",
        "writes",
        "schrieb",
        "écrit",
        "escribió",
        "escreveu",
        "ha scritto",
        "schreef",
        "skrev",
        "napisał",
        "написал",
        "写道",
    ];
    let has_number = |line: &str| line.bytes().any(|byte| byte.is_ascii_digit());
    let mut end = kept.len();
    while end > 0 && kept[end - 1].trim().is_empty() {
        end -= 1;
    }
    let Some(last) = kept[..end].last().map(|line| line.trim()) else {
        return;
    };
    if !last.ends_with([':', '：']) {
        return;
    }
    let paragraph = kept[..end]
        .iter()
        .rev()
        .take(4)
        .take_while(|line| !line.trim().is_empty());
    let lines: Vec<&str> = paragraph.copied().collect();
    let first_with_number = lines.iter().position(|line| has_number(line));
    let removed = match first_with_number {
        Some(at) => at + lines[at..].iter().take_while(|line| has_number(line)).count(),
        None if VERBS.iter().any(|verb| last.contains(verb)) => 1,
        None => return,
    };
    kept.truncate(end - removed);
}

/// A long rule: mailing lists and Outlook write what is not the sender's below it.
fn is_rule(line: &str) -> bool {
    line.len() >= 20 && line.bytes().all(|byte| byte == b'_')
}

/// `-----Original Message-----` and `---------- Forwarded message ---------`.
fn is_other_mail(line: &str) -> bool {
    const WORDS: [&str; 14] = [
        "original",
        "forwarded",
        "message",
        "nachricht",
        "mensaje",
        "mensagem",
        "messaggio",
        "bericht",
        "wiadomość",
        "meddelande",
        "сообщение",
        "邮件",
        "メール",
        "pgp message",
    ];
    let lower = || line.to_lowercase();
    if line == "Begin forwarded message:" {
        return true;
    }
    line.len() < 200
        && line.starts_with("-----")
        && line.ends_with("-----")
        && line != "-----BEGIN PGP SIGNED MESSAGE-----"
        && WORDS.iter().any(|word| lower().contains(word))
}

/// The head of a mail that stands inside of another: `From:`, with `Sent:`, `To:` or `Subject:` below it.
fn is_head_of_mail(line: &str, below: &[&str]) -> bool {
    const FROM: [&str; 9] = [
        "From:",
        "Von:",
        "De:",
        "Da:",
        "Van:",
        "Från:",
        "Od:",
        "От:",
        "发件人:",
    ];
    const OTHERS: [&str; 19] = [
        "Sent:",
        "Date:",
        "To:",
        "Subject:",
        "Gesendet:",
        "Datum:",
        "An:",
        "Betreff:",
        "Envoyé:",
        "À:",
        "Objet:",
        "Enviado",
        "Para:",
        "Asunto:",
        "Assunto:",
        "Inviato:",
        "Oggetto:",
        "Verzonden:",
        "Отправлено:",
    ];
    let bare = |line: &str| -> String {
        let line = line.trim_start_matches(['*', ' ']).chars();
        line.filter(|letter| !matches!(letter, ' ' | '\u{a0}')).collect()
    };
    let line = bare(line);
    FROM.iter().any(|from| line.starts_with(from))
        && below.iter().take(3).any(|other| {
            let other = bare(other);
            OTHERS.iter().any(|name| other.starts_with(name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (String, u64, u64) {
        let mut written = Written::default();
        written.add(text);
        (written.text, written.quoted, written.signatures)
    }

    #[test]
    fn quoted_mail_and_signatures_go_and_what_was_written_stays() {
        fn check(text: &str, expected: &str, quoted: u64, signatures: u64) {
            assert_eq!(written(text), (expected.to_owned(), quoted, signatures), "{text}");
        }
        check("Hello\n\nBye", "Hello\n\nBye", 0, 0);
        check("Am 4.6.24 schrieb Ben:\n> x\nJa", "Ja", 1, 0);
        check(
            "Ben wrote:\n> x\n> y\n\nYes\n\nand\n> z\nno",
            "Yes\n\nand\nno",
            2,
            0,
        );
        check("I list:\n> not by me\nend", "I list:\nend", 1, 0);
        check("A\n-- \nAda\n> x", "A", 0, 1);
        check("A\n-- not a signature", "A\n-- not a signature", 0, 0);
        check("A\n\n-----Ursprüngliche Nachricht-----\nB", "A", 1, 0);
        check("A\n---------- Forwarded message ---------\nFrom: x\nB", "A", 1, 0);
        check("A\n\nFrom: Ben\nSent: Tuesday\nTo: Ada\n\nB", "A", 1, 0);
        check(
            "From: here it is far\nand on",
            "From: here it is far\nand on",
            0,
            0,
        );
        check(
            "A\n_______________________________________________\nlist mailing list",
            "A",
            1,
            0,
        );
        check(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nA\n-----BEGIN PGP SIGNATURE-----\nx",
            "A",
            0,
            1,
        );
        check("----- dashes -----\nstay", "----- dashes -----\nstay", 0, 0);
        check("> all\n> quoted", "", 1, 0);
        check("", "", 0, 0);
    }

    #[test]
    fn mails_of_programs_are_told_from_mails_of_people() {
        let mail = |head: &str| format!("{head}\n\ntext").into_bytes();
        let automatic = |head: &str| {
            let bytes = mail(head);
            let parsed = MessageParser::default().parse(&bytes).expect("a mail");
            sender(&parsed).map(|sender| is_automatic(&parsed, &sender))
        };
        assert_eq!(automatic("From: Ada <ada@example.org>"), Some(false));
        assert_eq!(automatic("From: ada@example.org\nPrecedence: list"), Some(false));
        assert_eq!(
            automatic("From: ada@example.org\nAuto-Submitted: no"),
            Some(false)
        );
        assert_eq!(
            automatic("From: ada@example.org\nAuto-Submitted: auto-generated"),
            Some(true)
        );
        assert_eq!(automatic("From: ada@example.org\nPrecedence: bulk"), Some(true));
        assert_eq!(automatic("From: No-Reply@Example.org"), Some(true));
        assert_eq!(automatic("From: notifications+abc@example.org"), Some(true));
        assert_eq!(automatic("From: a@example.org, b@example.org"), None);
        assert_eq!(automatic("From: nobody"), None);
        assert_eq!(automatic("Subject: x"), None);
    }
}
