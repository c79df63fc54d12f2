//! The commands of the pages exist: each one in a block or in inline code is given to the program.
//!
//! The program reads the words of a command in their order, and prints its help where it meets `--help`. So the words with `--help` behind
//! them are refused exactly if a sub-command or an option is unknown, or a value is wrong. A value may be a placeholder, as `FOLDER`.

use std::collections::BTreeMap;
use std::process::Command;

use crate::block::blocks;

/// Inline code that begins with the name of the program and is no command.
const NO_COMMANDS: [&str; 1] = ["undertone evaluation 1"];

/// Words before a command that are not part of it.
const BEFORE: [&str; 10] = [
    "!", "$", "do", "else", "exec", "if", "nohup", "sudo", "then", "time",
];

/// Options of features that the program of the tests may lack, each with its presence.
const OF_FEATURES: [(&str, bool); 2] = [
    ("'--mpi'", cfg!(feature = "mpi")),
    ("'--otlp'", cfg!(feature = "otlp")),
];

/// The commands of a shell text, each as the words after the name of the program.
fn of_shell(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let text = text.replace("\\\n", " ").replace("cargo try ", "undertone ");
    for line in text.lines() {
        for command in words(line).split(|word| *word == Word::End) {
            let mut words = command.iter().filter_map(|word| match word {
                Word::Text(text) => Some(text.as_str()),
                Word::End => None,
            });
            let is_before = |word: &str| {
                BEFORE.contains(&word) || word.split_once('=').is_some_and(|(name, _)| !name.contains('-'))
            };
            let name = words.find(|word| !is_before(word));
            if name.is_some_and(|name| name == "undertone" || name.ends_with("/undertone")) {
                found.push(words.filter(|word| *word != "...").map(str::to_owned).collect());
            }
        }
    }
    found
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Text(String),
    /// The end of a command: an operator, a redirection or a comment.
    End,
}

/// The words of a line, without their quotes. A redirection ends a command.
fn words(line: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | '&' | ';' | '(' | ')' | '>' | '<') => {
                // The number of a stream belongs to its redirection.
                let number =
                    "><".contains(letter) && word.as_deref().is_some_and(|word| word.parse::<u8>().is_ok());
                words.extend(word.take().filter(|_| !number).map(Word::Text));
                words.push(Word::End);
                // The file of a redirection is no command.
                if "><".contains(letter) {
                    while letters.next_if(|next| " >&<".contains(*next)).is_some() {}
                    while letters.next_if(|next| !" |;&)".contains(*next)).is_some() {}
                }
            }
            (None, ' ' | '\t') => words.extend(word.take().map(Word::Text)),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word.map(Word::Text));
    words
}

/// The inline code of a page that begins with the name of the program.
fn inline(text: &str) -> Vec<String> {
    let (mut prose, mut fenced) = (String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose += line;
            prose.push('\n');
        }
    }
    let mut found = Vec::new();
    for paragraph in prose.split("\n\n") {
        let code = paragraph.split('`').skip(1).step_by(2);
        let code = code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "));
        found.extend(
            code.filter(|code| code.starts_with("undertone ") && !NO_COMMANDS.contains(&code.as_str())),
        );
    }
    found
}

/// The words with each alternative of `{one,other}` in turn.
fn alternatives(words: Vec<String>) -> Vec<Vec<String>> {
    let of = |word: &String| {
        let inside = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        inside.map(|inside| inside.split(',').map(str::to_owned).collect::<Vec<_>>())
    };
    let Some((place, found)) = words
        .iter()
        .enumerate()
        .find_map(|(place, word)| Some((place, of(word)?)))
    else {
        return vec![words];
    };
    let with = |alternative| {
        let mut words = words.clone();
        words[place] = alternative;
        words
    };
    found.into_iter().map(with).collect()
}

/// The sentence of the program about a sub-command or an option that it does not know.
fn unknown(words: &[String]) -> Option<String> {
    // Behind two dashes, `--help` is a word as any other.
    let options = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let output = Command::new(env!("CARGO_BIN_EXE_undertone"))
        .args(&words[..options])
        .arg("--help")
        .output()
        .expect("the program");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_unknown = ["unrecognized subcommand", "unexpected argument", "leaves out"]
        .iter()
        .any(|sentence| error.contains(sentence));
    let is_left_out = OF_FEATURES
        .iter()
        .any(|(option, has)| !has && error.contains(option));
    let line = || error.lines().next().unwrap_or_default().to_owned();
    (!output.status.success() && is_unknown && !is_left_out).then(line)
}

#[test]
#[ignore = "slow"]
fn every_command_of_a_page_has_sub_commands_and_options_that_the_program_knows() {
    let mut pages = crate::pages();
    for folder in std::fs::read_dir(crate::root().join("crates")).expect("the crates") {
        let name = folder.expect("a crate").file_name().into_string().expect("UTF-8");
        pages.push(format!("crates/{name}/README.md"));
    }
    let mut places: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for page in pages {
        let text = crate::read(&page);
        let shells = blocks(&page, &text).into_iter();
        let shells = shells.filter(|block| ["sh", "text"].contains(&block.language.as_str()));
        let of_blocks = shells.flat_map(|block| of_shell(&block.text));
        let of_prose = inline(&text);
        for words in of_blocks.chain(of_prose.iter().flat_map(|code| of_shell(code))) {
            for words in alternatives(words) {
                places.entry(words).or_insert_with(|| page.clone());
            }
        }
    }
    assert!(places.len() > 200, "{} commands were found", places.len());
    let faults: Vec<String> = places
        .iter()
        .filter_map(|(words, page)| {
            Some(format!(
                "{page}: undertone {}: {}",
                words.join(" "),
                unknown(words)?
            ))
        })
        .collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn words_of_a_shell_are_found_with_their_quotes_and_without_redirections() {
    let text = "undertone predict runs/a \"how are\"   # a comment\nKEY=1 time undertone serve \\\n  --data x 2>log | undertone report -\n\
                (cd y && ./target/release/undertone eval) > undertone\ncat undertone train\ncargo try train a.toml\n";
    let found: Vec<String> = of_shell(text).iter().map(|words| words.join("/")).collect();
    assert_eq!(
        found,
        [
            "predict/runs/a/how are",
            "serve/--data/x",
            "report/-",
            "eval",
            "train/a.toml"
        ]
    );
    assert_eq!(
        inline("A `undertone\ntrain x` and `b`.\n\n```sh\n`undertone no`\n```\n\n`undertone evaluation 1`"),
        ["undertone train x"]
    );
    let split = alternatives(["data", "{import,stats}", "x"].map(str::to_owned).to_vec());
    assert_eq!(
        split.iter().map(|words| words.join(" ")).collect::<Vec<_>>(),
        ["data import x", "data stats x"]
    );
}

#[test]
fn unknown_sub_commands_and_options_are_refused_and_placeholders_are_not() {
    let is_unknown = |line: &str| unknown(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).is_some();
    for line in [
        "account poisson --delta 1e-6",
        "account sampled --examples-per-user 3",
        "trian",
        "data imports x",
    ] {
        assert!(is_unknown(line), "{line}");
    }
    for line in [
        "account sampled --delta DELTA",
        "account sampled --group-size",
        "train FILE --set a=b",
        "account",
    ] {
        assert!(!is_unknown(line), "{line}");
    }
}
