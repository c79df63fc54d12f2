//! Text of HTML, without tags.

/// Elements whose content is never text of the writer.
const SKIPPED: [&str; 6] = ["script", "style", "head", "title", "template", "noscript"];
/// Elements that stand on lines of their own.
const BLOCKS: [&str; 19] = [
    "p",
    "div",
    "br",
    "li",
    "ul",
    "ol",
    "tr",
    "table",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "section",
    "article",
    "pre",
    "blockquote",
];
/// Maximum length of an entity's name.
const MAX_ENTITY: usize = 32;

/// The text of a piece of HTML, and what was left out of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) text: String,
    /// Quotations, which are the text of others.
    pub(super) quotations: u64,
    /// Blocks of code.
    pub(super) code: u64,
}

/// Removes tags, quotations and, where it is asked for, blocks of code, and reads entities. Broken HTML never fails: a `<` that begins no
/// tag is a letter.
pub(super) fn plain(html: &str, without_code: bool) -> Plain {
    let mut plain = Plain::default();
    // The element that is being left out, and how many elements of its name are open.
    let mut hidden: Option<(String, usize)> = None;
    let mut marks_count = true;
    // Behind the last `>` no tag ends.
    let last = html.rfind('>').unwrap_or(0);
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        let (before, from) = rest.split_at(at);
        plain.push(before, hidden.is_some());
        if let Some(after) = from.strip_prefix('&') {
            let (letters, length) = entity(after);
            plain.push(&letters, hidden.is_some());
            rest = &after[length..];
            continue;
        }
        let may_end = html.len() - from.len() < last;
        let Some(tag) = may_end.then(|| Tag::of(from, &mut marks_count)).flatten() else {
            plain.push("<", hidden.is_some());
            rest = &from[1..];
            continue;
        };
        rest = &from[tag.length..];
        match &mut hidden {
            Some((name, depth)) if *name == tag.name => {
                if tag.closes {
                    *depth -= 1;
                } else if !tag.is_empty {
                    *depth += 1;
                }
                if *depth == 0 {
                    hidden = None;
                    plain.line();
                }
            }
            Some(_) => {}
            None => {
                if BLOCKS.contains(&tag.name.as_str()) {
                    plain.line();
                }
                if !tag.closes && !tag.is_empty && plain.hides(&tag, without_code) {
                    hidden = Some((tag.name, 1));
                }
            }
        }
    }
    plain.push(rest, hidden.is_some());
    plain.text.truncate(plain.text.trim_end().len());
    plain
}

impl Plain {
    fn hides(&mut self, tag: &Tag, without_code: bool) -> bool {
        let name = tag.name.as_str();
        if name == "blockquote" || tag.is_quote {
            self.quotations += 1;
            return true;
        }
        if without_code && name == "pre" {
            self.code += 1;
            return true;
        }
        SKIPPED.contains(&name)
    }

    fn push(&mut self, text: &str, hidden: bool) {
        if hidden {
            return;
        }
        for letter in text.chars() {
            // White space of HTML is one space, and none at the start of a line.
            match letter {
                ' ' | '\t' | '\n' | '\r' => {
                    if !self.text.is_empty() && !self.text.ends_with([' ', '\n']) {
                        self.text.push(' ');
                    }
                }
                letter => self.text.push(letter),
            }
        }
    }

    fn line(&mut self) {
        while self.text.ends_with(' ') {
            self.text.pop();
        }
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

struct Tag {
    name: String,
    closes: bool,
    /// `true` if the tag ends itself, as `<br/>` does.
    is_empty: bool,
    /// `true` if a mail program marks a quotation by it.
    is_quote: bool,
    length: usize,
}

impl Tag {
    /// The tag or comment that `text` begins with.
    fn of(text: &str, marks_count: &mut bool) -> Option<Tag> {
        let tag = |name: &str, length| Tag {
            name: name.to_owned(),
            closes: false,
            is_empty: true,
            is_quote: false,
            length,
        };
        if text.starts_with("<!--") {
            let length = text.find("-->").map_or(text.len(), |end| end + 3);
            return Some(tag("!", length));
        }
        let inner = text.get(1..)?;
        let closes = inner.starts_with('/');
        let named = inner.trim_start_matches('/');
        if !named.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '!' || letter == '?') {
            return None;
        }
        let length = end_of_tag(text, marks_count)?;
        let name: String = named
            .chars()
            .take_while(|letter| !letter.is_whitespace() && !matches!(letter, '>' | '/'))
            .flat_map(char::to_lowercase)
            .collect();
        let whole = &text[..length];
        let is_quote = !closes && (whole.contains("gmail_quote") || whole.contains("yahoo_quoted"));
        let is_empty =
            whole.ends_with("/>") || matches!(name.as_str(), "br" | "hr" | "img" | "meta" | "link");
        Some(Tag {
            closes,
            is_empty,
            is_quote,
            ..tag(&name, length)
        })
    }
}

/// The length of a tag: a `>` inside of quotation marks does not end it.
///
/// An open quotation mark does not take the rest of the text with it. Once one was found, marks no longer count, so that the work stays
/// proportional to the text.
fn end_of_tag(text: &str, marks_count: &mut bool) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().filter(|_| *marks_count) {
        match (quote, byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    *marks_count = false;
    text.find('>').map(|at| at + 1)
}

/// The letters of an entity, without its `&`, and its length. What is no entity is the letter `&`.
fn entity(text: &str) -> (String, usize) {
    let letter = ("&".to_owned(), 0);
    let bytes = text.as_bytes();
    let end = bytes.iter().take(MAX_ENTITY).position(|&byte| byte == b';');
    let Some(end) = end else {
        return letter;
    };
    let name = &text[..end];
    let found = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => number.parse().ok(),
            };
            code.and_then(char::from_u32).filter(|&letter| letter != '\0')
        }
        None => NAMED
            .iter()
            .find(|(known, _)| *known == name)
            .map(|entry| entry.1),
    };
    found.map_or(letter, |found| (found.to_string(), end + 1))
}

/// Reads the entities of a text that has no tags.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (letters, length) = entity(after);
        plain.push_str(&letters);
        rest = &after[length..];
    }
    plain.push_str(rest);
    plain
}

/// The names of entities that exports use.
const NAMED: [(&str, char); 32] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", '\u{a0}'),
    ("hellip", '…'),
    ("mdash", '—'),
    ("ndash", '–'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("laquo", '«'),
    ("raquo", '»'),
    ("copy", '©'),
    ("reg", '®'),
    ("trade", '™'),
    ("euro", '€'),
    ("auml", 'ä'),
    ("ouml", 'ö'),
    ("uuml", 'ü'),
    ("Auml", 'Ä'),
    ("Ouml", 'Ö'),
    ("Uuml", 'Ü'),
    ("szlig", 'ß'),
    ("eacute", 'é'),
    ("egrave", 'è'),
    ("agrave", 'à'),
    ("ccedil", 'ç'),
    ("times", '×'),
    ("bull", '•'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_and_entities_become_letters() {
        fn check(html: &str, expected: &str) {
            assert_eq!(plain(html, true).text, expected, "{html}");
        }
        check(
            "<p>Hello &amp; <b>good</b>\n bye</p><p>Two</p>",
            "Hello & good bye\nTwo",
        );
        check("a<br>b<br/>c", "a\nb\nc");
        check("1 < 2 &lt; 3 & 4 &bogus; 5", "1 < 2 < 3 & 4 &bogus; 5");
        check("<a title=\"a > b\" href='x'>link</a>", "link");
        check("<style>p { }</style><!-- no -->yes<script>x<y</script>", "yes");
        check("&#8220;q&#x201D;", "“q”");
        check(
            "<p>mine</p><blockquote><p>theirs</p><blockquote>x</blockquote></blockquote>after",
            "mine\nafter",
        );
        check("a <b", "a <b");
        check("<pre><code>let a = 1;</code></pre>text", "text");
        check(
            "<div>me</div><div class=\"gmail_quote\"><div>On Monday</div>you</div>",
            "me",
        );
        check("", "");
    }

    #[test]
    fn left_out_quotations_and_code_are_counted() {
        let found = plain(
            "<blockquote>a</blockquote>b<pre>c</pre><blockquote>d</blockquote>",
            true,
        );
        assert_eq!((found.quotations, found.code, found.text.as_str()), (2, 1, "b"));
        assert_eq!(plain("<pre>c</pre>", false).text, "c");
    }
}
