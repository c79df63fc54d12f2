//! A fenced block of a page, and what its first line asks for.

/// A fenced block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) page: String,
    /// The line of the opening fence.
    pub(crate) line: usize,
    pub(crate) language: String,
    /// The words after the language.
    pub(crate) words: Vec<String>,
    pub(crate) text: String,
}

/// The duty of the tests towards a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Duty<'a> {
    /// The block is only shown: it is text that is neither code nor a command.
    Show,
    /// The block is left out, for this reason.
    Leave(&'a str),
    /// The block is run here.
    Run,
    /// The block is run in a test of another language.
    RunElsewhere,
}

/// Words that a block of a language may have. A word that ends in `=` takes a value.
const WORDS: [(&str, &[&str]); 4] = [
    ("sh", &["no-run=", "beside", "train=", "pretrain=", "swap="]),
    ("toml", &["file=", "in="]),
    ("json", &["file=", "lines"]),
    ("text", &["printed"]),
];

impl Block {
    /// The place of the block, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// The values of a word such as `set=`.
    pub(crate) fn values<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.words
            .iter()
            .filter_map(move |found| found.strip_prefix(word))
    }

    pub(crate) fn value<'a>(&'a self, word: &'a str) -> Option<&'a str> {
        self.values(word).next()
    }

    /// The duty towards the block, or the fault of its first line.
    pub(crate) fn duty(&self) -> Result<Duty<'_>, String> {
        let language = self.language.as_str();
        let allowed = WORDS
            .iter()
            .find(|(name, _)| *name == language)
            .map_or(&[][..], |entry| entry.1);
        for word in &self.words {
            let known = allowed.iter().any(|known| {
                if known.ends_with('=') {
                    word.starts_with(known)
                } else {
                    word == known
                }
            });
            if !known {
                return Err(format!("a block in `{language}` cannot have the word `{word}`"));
            }
        }
        match language {
            "sh" => Ok(self.value("no-run=").map_or(Duty::Run, Duty::Leave)),
            "toml" if self.words.len() != 1 => Err("a block of settings needs `file=` or `in=`".to_owned()),
            "toml" | "json" => Ok(Duty::Run),
            "text" if self.has("printed") => Ok(Duty::Run),
            "text" => Ok(Duty::Show),
            "python" | "c" | "kotlin" => Ok(Duty::RunElsewhere),
            "" => Err("the block names no language".to_owned()),
            _ => Err(format!("no test knows the language `{language}`")),
        }
    }
}

/// The blocks of a page in their order. A block in a list item loses the indent of its fence.
pub(crate) fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (line, text) in (1..).zip(text.lines()) {
        let trimmed = text.trim_start();
        let indent = text.len() - trimmed.len();
        match (&mut open, trimmed.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let block = Block {
                    page: page.to_owned(),
                    line,
                    language: words.next().unwrap_or_default(),
                    words: words.collect(),
                    text: String::new(),
                };
                open = Some((indent, block));
            }
            (Some(_), Some(rest)) if rest.trim().is_empty() => {
                blocks.extend(open.take().map(|(_, block)| block));
            }
            (Some((indent, block)), _) => {
                let spaces = (text.len() - trimmed.len()).min(*indent);
                block.text.push_str(&text[spaces..]);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    if let Some((_, block)) = open {
        panic!("{}: the block has no end", block.place());
    }
    blocks
}

#[test]
fn a_block_in_a_list_loses_its_indent_and_keeps_its_words() {
    let page =
        "1. One:\n\n   ```sh train=rounds=2 no-run=checks\n   a\n     b\n   ```\n\n```toml\n[c]\n```\n";
    let found = blocks("p.md", page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, found[0].text.as_str()), (3, "a\n  b\n"));
    assert_eq!(found[0].duty(), Ok(Duty::Leave("checks")));
    assert_eq!(found[0].values("train=").collect::<Vec<_>>(), ["rounds=2"]);
    assert!(found[1].duty().is_err());
}

#[test]
fn a_block_without_a_language_or_with_an_unknown_word_is_a_fault() {
    for page in [
        "```\na\n```\n",
        "```ruby\na\n```\n",
        "```sh no_run\na\n```\n",
        "```text printed=2\na\n```\n",
    ] {
        assert!(blocks("p.md", page)[0].duty().is_err(), "{page}");
    }
}
