//! The beginning of a message of WhatsApp, and what its text shows.

/// One of the two shapes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `[05.06.24, 12:00:00] Ada: Hello`, as iOS writes.
    Brackets,
    /// `5/6/24, 12:00 - Ada: Hello`, as Android writes.
    Dash,
    /// `2024. 6. 5. 오후 12:00, Ada : Hello`, as Android writes in Korean.
    Comma,
}

impl Shape {
    pub(super) const ALL: [Shape; 3] = [Shape::Brackets, Shape::Dash, Shape::Comma];
}

/// A number of a date, and how many digits it is written with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: i64,
    pub(super) digits: u32,
}

/// The beginning of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) date: [Number; 3],
    /// The letter between the numbers of the date.
    pub(super) separator: char,
    /// Seconds since midnight.
    pub(super) seconds: i64,
    /// The date as it stands there, for errors.
    pub(super) whole_date: &'a str,
    /// The name of the person, unless the line is one of the program.
    pub(super) name: Option<&'a str>,
    /// The first line of the text.
    pub(super) text: &'a str,
}

/// Letters that only steer the direction of writing.
fn is_mark(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The white space of dates: spaces, also those that forbid a break.
fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\u{a0}' | '\u{202f}' | '\u{2009}')
}

/// The head that a line begins with, if it begins with one of this shape.
pub(super) fn head(line: &str, shape: Shape) -> Option<Head<'_>> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let mut at = Cursor(line.trim_start_matches(is_mark));
    if shape == Shape::Brackets {
        at.letter('[')?;
    }
    let start = at.0;
    let one = at.number(4)?;
    let separator = at.one_of(&['/', '.', '-', '年', '년'])?;
    at.spaces();
    let two = at.number(2)?;
    at.letter(match separator {
        '年' => '月',
        '년' => '월',
        other => other,
    })?;
    at.spaces();
    let three = at.number(4)?;
    if matches!(separator, '年' | '년') {
        at.one_of(&['日', '일'])?;
    }
    let whole_date = &start[..start.len() - at.0.len()];
    // Some languages end the date with a word, a point or a comma, or put a word for "at the hour" behind it.
    at.0 = at.0.strip_prefix(" г.").unwrap_or(at.0);
    at.0 = at.0.strip_prefix('.').unwrap_or(at.0);
    at.0 = at.0.strip_prefix([',', '،', '、']).unwrap_or(at.0);
    at.spaces();
    for word in ["klo ", "kl. ", "um ", "à ", "alle ", "às ", "o "] {
        at.0 = at.0.strip_prefix(word).unwrap_or(at.0);
    }
    let before = at.half();
    at.spaces();
    let hour = at.number(2)?.value;
    let between = match at.0.strip_prefix(" h ") {
        Some(rest) => {
            at.0 = rest;
            'h'
        }
        None => at.one_of(&[':', '.'])?,
    };
    let minute = at.number(2)?.value;
    let mut second = 0;
    if let Some(rest) = at.0.strip_prefix(between) {
        at.0 = rest;
        second = at.number(2)?.value;
    }
    let rest = at.0;
    at.spaces();
    let after = at.half();
    if after.is_none() {
        at.0 = rest.strip_prefix(" ч.").unwrap_or(rest);
    }
    match shape {
        Shape::Brackets => {
            at.letter(']')?;
            at.letter(' ')?;
        }
        Shape::Dash => {
            at.0 = at.0.trim_start_matches(is_mark);
            at.0 = at.0.strip_prefix(" - ").or_else(|| at.0.strip_prefix(" – "))?;
        }
        Shape::Comma => at.0 = at.0.strip_prefix(", ")?,
    }
    let hour = match before.or(after) {
        None if hour < 24 => hour,
        // 12 is the first hour of its half.
        Some(afternoon) if (1..=12).contains(&hour) => hour % 12 + if afternoon { 12 } else { 0 },
        // Some phones write a mark of the half beside an hour of 24.
        Some(_) if hour < 24 => hour,
        _ => return None,
    };
    if minute > 59 || second > 59 {
        return None;
    }
    let (name, text) = name_and_text(at.0, shape);
    Some(Head {
        date: [one, two, three],
        separator,
        seconds: hour * 3600 + minute * 60 + second,
        whole_date,
        name,
        text,
    })
}

/// The name in front of the first colon. A line without one, or one that the program marks as its own, has no name.
fn name_and_text(rest: &str, shape: Shape) -> (Option<&str>, &str) {
    let colon = if shape == Shape::Comma { " : " } else { ": " };
    // A message without text ends with its colon.
    let split = rest
        .split_once(colon)
        .or_else(|| Some((rest.strip_suffix(colon.trim_end())?, "")));
    let Some((name, text)) = split else {
        return (None, rest);
    };
    // iOS puts a mark in front of its own lines, and gives them the name of the chat.
    let is_own = shape == Shape::Brackets
        && text.starts_with('\u{200e}')
        && !is_placeholder(text.trim_matches(is_mark));
    // Android gives them no name: a name with one quotation mark is the start of a title with a colon in it.
    let is_title = name.matches(['"', '“', '”', '„', '«', '»']).count() % 2 == 1;
    let name = name.trim_matches(|letter| is_mark(letter) || is_space(letter) || letter == '~');
    match is_own || is_title || name.is_empty() {
        true => (None, text),
        false => (Some(name), text),
    }
}

struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn letter(&mut self, letter: char) -> Option<()> {
        self.0 = self.0.trim_start_matches(is_mark).strip_prefix(letter)?;
        Some(())
    }

    fn one_of(&mut self, letters: &[char]) -> Option<char> {
        let found = self
            .0
            .trim_start_matches(is_mark)
            .chars()
            .next()
            .filter(|letter| letters.contains(letter))?;
        self.letter(found)?;
        Some(found)
    }

    fn spaces(&mut self) {
        self.0 = self
            .0
            .trim_start_matches(|letter| is_space(letter) || is_mark(letter));
    }

    /// A number of at most `most` digits, in the digits of any of the languages that have their own in WhatsApp.
    fn number(&mut self, most: u32) -> Option<Number> {
        self.0 = self.0.trim_start_matches(is_mark);
        let mut number = Number::default();
        while let Some(digit) = self.0.chars().next().and_then(digit) {
            number.value = number.value * 10 + digit;
            number.digits += 1;
            if number.digits > most {
                return None;
            }
            let mut letters = self.0.chars();
            letters.next();
            self.0 = letters.as_str();
        }
        (number.digits > 0).then_some(number)
    }

    /// A mark of the half of the day: `true` in the afternoon.
    fn half(&mut self) -> Option<bool> {
        const HALVES: [(&str, bool); 23] = [
            ("am", false),
            ("pm", true),
            ("a.m.", false),
            ("p.m.", true),
            ("a. m.", false),
            ("p. m.", true),
            ("上午", false),
            ("下午", true),
            ("午前", false),
            ("午後", true),
            ("오전", false),
            ("오후", true),
            ("ص", false),
            ("م", true),
            ("凌晨", false),
            ("清晨", false),
            ("早上", false),
            ("中午", true),
            ("晚上", true),
            ("π.μ.", false),
            ("μ.μ.", true),
            ("e paradites", false),
            ("e pasdites", true),
        ];
        // A few letters are enough, and these are few.
        let start: String = self
            .0
            .chars()
            .take(11)
            .map(|letter| {
                if is_space(letter) {
                    ' '
                } else {
                    letter.to_ascii_lowercase()
                }
            })
            .collect();
        let (mark, afternoon) = HALVES.into_iter().find(|(mark, _)| start.starts_with(mark))?;
        let length: usize = self
            .0
            .chars()
            .take(mark.chars().count())
            .map(char::len_utf8)
            .sum();
        self.0 = &self.0[length..];
        Some(afternoon)
    }
}

fn digit(letter: char) -> Option<i64> {
    const ZEROS: [char; 4] = ['0', '٠', '۰', '०'];
    ZEROS.into_iter().find_map(|zero| {
        let value = i64::from(u32::from(letter)) - i64::from(u32::from(zero));
        (0..10).contains(&value).then_some(value)
    })
}

/// Texts that the program writes in place of a deleted message.
const DELETED: [&str; 14] = [
    "This message was deleted",
    "You deleted this message",
    "This message was deleted by admin",
    "Diese Nachricht wurde gelöscht",
    "Du hast diese Nachricht gelöscht",
    "Se eliminó este mensaje",
    "Eliminaste este mensaje",
    "Ce message a été supprimé",
    "Vous avez supprimé ce message",
    "Mensagem apagada",
    "Você apagou esta mensagem",
    "Questo messaggio è stato eliminato",
    "Hai eliminato questo messaggio",
    "Данное сообщение удалено",
];

/// Texts that the program writes in place of a picture, a sound or a call.
const PLACEHOLDERS: [&str; 14] = [
    "null",
    "image omitted",
    "video omitted",
    "audio omitted",
    "sticker omitted",
    "GIF omitted",
    "document omitted",
    "Contact card omitted",
    "Bild weggelassen",
    "Video weggelassen",
    "Audio weggelassen",
    "Sticker weggelassen",
    "Missed voice call",
    "Missed video call",
];

fn is_deleted(text: &str) -> bool {
    DELETED.contains(&text.trim_end_matches('.'))
}

fn is_placeholder(text: &str) -> bool {
    // `<Media omitted>` in any language.
    let in_brackets = |text: &str| text.len() > 2 && !text[1..].contains('<') && !text.contains('\n');
    is_deleted(text)
        || is_attachment(text)
        || PLACEHOLDERS.contains(&text)
        || (text.starts_with('<') && text.ends_with('>') && in_brackets(text))
}

/// The part of a message that a person wrote, or the reason why nothing of it is left.
pub(super) fn written(body: &str) -> Result<String, &'static str> {
    let mut body = body.trim_end();
    // The program marks what it adds at the end, such as `<This message was edited>`.
    if let Some((before, added)) = body.rsplit_once("\u{200e}<")
        && added.ends_with('>')
        && !added.contains('\n')
        && !before.is_empty()
    {
        body = before.trim_end();
    }
    let text: String = body.chars().filter(|&letter| !is_mark(letter)).collect();
    let mut text = text.trim_end();
    // A caption stands below the name of its file.
    if let Some((first, rest)) = text.split_once('\n')
        && is_attachment(first)
    {
        text = rest;
    }
    if is_deleted(text) {
        return Err("deleted messages left out");
    }
    if text.is_empty() || is_placeholder(text) {
        return Err("media without text left out");
    }
    Ok(without_numbers(text))
}

/// `true` for `IMG-20240605-WA0001.jpg (file attached)` and `<attached: 0001-photo.jpg>`, in any language.
fn is_attachment(line: &str) -> bool {
    let names_a_file = |text: &str| {
        text.rsplit_once('.').is_some_and(|(stem, ending)| {
            !stem.is_empty()
                && (2..=4).contains(&ending.len())
                && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    let in_parentheses = line
        .strip_suffix(')')
        .and_then(|line| line.rsplit_once(" ("))
        .is_some_and(|(file, _)| names_a_file(file) && !file.contains(' '));
    let in_brackets = line
        .strip_prefix('<')
        .and_then(|line| line.strip_suffix('>'))
        .and_then(|line| line.split_once(": "))
        .is_some_and(|(_, file)| names_a_file(file));
    in_parentheses || in_brackets
}

/// Replaces the numbers of mentioned people, such as `@4915100000000`, by `@user`.
fn without_numbers(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let after = &rest[at + 1..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        plain.push_str(&rest[..at]);
        plain.push('@');
        rest = after;
        if digits >= 7 {
            plain.push_str("user");
            rest = &after[digits..];
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_only_looks_like_a_head_is_text() {
        for line in [
            "",
            "hello",
            "12:00 - Ada: a",
            "1/2 12:00 - Ada: a",
            "1/2/24 at noon - Ada: a",
            "1/2/24, 25:00 - Ada: a",
            "1/2/24, 12:60 - Ada: a",
            "12345/2/24, 12:00 - Ada: a",
            "[1/2/24, 12:00:00 Ada: a",
            "1/2/24, 12:00 Ada: a",
            "1/2-24, 12:00 - Ada: a",
        ] {
            for shape in Shape::ALL {
                assert_eq!(head(line, shape), None, "{line}");
            }
        }
    }

    #[test]
    fn dates_of_many_languages_are_read() {
        let read = |line: &str, shape| {
            let head = head(line, shape).unwrap_or_else(|| panic!("{line}"));
            let [one, two, three] = head.date.map(|number| number.value);
            (one, two, three, head.seconds / 60)
        };
        for (line, expected) in [
            ("2024년 1월 15일 오후 9:05 - Ada: a", (2024, 1, 15, 21 * 60 + 5)),
            ("2024年1月15日 上午9:05 - Ada: a", (2024, 1, 15, 9 * 60 + 5)),
            ("2024/1/15 晚上9:05 - Ada: a", (2024, 1, 15, 21 * 60 + 5)),
            ("2024/1/15 凌晨12:05 - Ada: a", (2024, 1, 15, 5)),
            ("2024/1/15 中午12:05 - Ada: a", (2024, 1, 15, 12 * 60 + 5)),
            ("15.01.24 г., 21:05 ч. - Ada: a", (15, 1, 24, 21 * 60 + 5)),
            ("15/1/24, 9:05 μ.μ. - Ada: a", (15, 1, 24, 21 * 60 + 5)),
            ("15/1/24, 9:05 π.μ. - Ada: a", (15, 1, 24, 9 * 60 + 5)),
            ("15.1.24, 9:05 e pasdites - Ada: a", (15, 1, 24, 21 * 60 + 5)),
            ("2024-01-15 21 h 05 - Ada: a", (2024, 1, 15, 21 * 60 + 5)),
        ] {
            assert_eq!(read(line, Shape::Dash), expected, "{line}");
        }
        assert_eq!(head("2024年1月15 9:05 - Ada: a", Shape::Dash), None);
        assert_eq!(head("2024年1日15月 9:05 - Ada: a", Shape::Dash), None);
    }

    #[test]
    fn what_no_person_wrote_is_told_from_text() {
        fn check(body: &str, expected: Result<&str, &'static str>) {
            assert_eq!(written(body), expected.map(str::to_owned), "{body}");
        }
        let media = Err("media without text left out");
        check("\u{200e}image omitted", media);
        check("<Medien ausgeschlossen>", media);
        check("<attached: 00000012-PHOTO-2024-06-05.jpg>", media);
        check("\u{200e}IMG-20240605-WA0001.jpg (Datei angehängt)", media);
        check("", media);
        check("null", media);
        check(
            "Diese Nachricht wurde gelöscht.",
            Err("deleted messages left out"),
        );
        check("<3 you", Ok("<3 you"));
        check("<a> and <b>", Ok("<a> and <b>"));
        check(
            "see report.pdf (the second page)",
            Ok("see report.pdf (the second page)"),
        );
        check("I omitted it", Ok("I omitted it"));
        check("mail me @ 5 or @491510000000!", Ok("mail me @ 5 or @user!"));
    }
}
