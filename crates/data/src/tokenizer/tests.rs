use std::fs;

use tempfile::TempDir;

use super::*;
use crate::progress::NoProgress;
use crate::rows::Rows;
use crate::testing::contains;
use undertone_settings::time::NO_TIME;
use undertone_text::Vocab;

const TEXT: &str =
    "The cats sat on the mats.\nThe cat's hat sat there, and the rat sat that out.\nNaïve café: ça va?\n";

fn train_on(
    folder: &TempDir,
    kind: TokenizerKind,
    size: usize,
    text: &str,
) -> Result<(TokenizerSummary, Vocab)> {
    let source = folder.path().join("text.txt");
    fs::write(&source, text).unwrap();
    let output = folder.path().join("tokenizer.json");
    let sources = [source.display().to_string()];
    let summary = train_tokenizer(
        (kind, size),
        (&sources, true),
        "text",
        (&output, true),
        &NoProgress,
    )?;
    Ok((summary, read(&output, None, None)?))
}

/// Reads a tokenizer, and compares its ids with those that are read without the library.
fn read(path: &Path, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    let full = crate::vocabulary::read_tokenizer(path, bos, eos);
    let alone = undertone_vocabulary::parse_tokens(path, fs::read(path).unwrap(), bos, eos);
    match (&full, alone) {
        (Ok(full), Ok(alone)) => {
            let ids = || 0..full.len() as u32;
            assert_eq!((full.len(), full.special()), (alone.len(), alone.special()));
            assert!(ids().all(|id| full.word(id) == alone.word(id)));
            assert!(ids().all(|id| full.id(full.word(id)) == alone.id(full.word(id))));
            assert_eq!(
                (full.file_name(), full.digest()),
                (alone.file_name(), alone.digest())
            );
        }
        (Err(full), Err(alone)) => assert_eq!(full.to_string(), alone.to_string()),
        (full, alone) => panic!("{full:?} with the library, {alone:?} alone"),
    }
    full
}

fn encode(vocab: &Vocab, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    vocab.encode(text, &mut String::new(), &mut ids).unwrap();
    ids
}

#[test]
fn specials_come_first_and_sizes_are_kept() {
    let folder = TempDir::new().unwrap();
    for kind in [TokenizerKind::Bpe, TokenizerKind::WordPiece] {
        let (summary, vocab) = train_on(&folder, kind, 280, &TEXT.repeat(20)).unwrap();
        assert_eq!(summary.size, vocab.len());
        assert!(vocab.len() <= 280, "{kind}: {}", vocab.len());
        let special = vocab.special();
        assert_eq!((special.unk, special.bos, special.eos), (Some(0), 1, 2));
        assert_eq!([0, 1, 2].map(|id| vocab.word(id)), ["<unk>", "<bos>", "<eos>"]);
        assert_eq!(vocab.digest(), summary.sha256);
        // The frequent word is one token by now, and text that spells a special token is text.
        assert_eq!(encode(&vocab, " the").len(), 1, "{kind}");
        assert!(
            encode(&vocab, "the<eos> <bos>")
                .iter()
                .all(|&id| id > 2 || kind == TokenizerKind::WordPiece)
        );
        assert!(!encode(&vocab, "<eos>").contains(&2), "{kind}");
    }
    // 3 specials, 256 bytes, 21 merges.
    let (summary, _) = train_on(&folder, TokenizerKind::Bpe, 280, &TEXT.repeat(20)).unwrap();
    assert_eq!(summary.size, 280);
}

#[test]
fn bytes_write_any_text_and_pieces_do_not() {
    let folder = TempDir::new().unwrap();
    let (_, bytes) = train_on(&folder, TokenizerKind::Bpe, 300, TEXT).unwrap();
    let text = "Ünseen \u{1f600}\ttext\r\n";
    let written: String = encode(&bytes, text).iter().map(|&id| bytes.word(id)).collect();
    // Every byte has its own character, printable bytes themselves.
    assert_eq!(written.chars().count(), text.len());
    assert!(!encode(&bytes, text).contains(&0));
    let (_, pieces) = train_on(&folder, TokenizerKind::WordPiece, 300, TEXT).unwrap();
    assert_eq!(encode(&pieces, "\u{1f600}"), [0]);
    let written: Vec<&str> = encode(&pieces, "Thereat")
        .iter()
        .map(|&id| pieces.word(id))
        .collect();
    let joined: String = written
        .iter()
        .map(|piece| piece.trim_start_matches("##"))
        .collect();
    assert_eq!(joined, "thereat", "{written:?}");
}

#[test]
fn merges_are_those_of_the_definition() {
    // Pair counts by hand: "ab" 5+3 = 8, then "abc" 5, then "xy" 4 (the pair of " x" and others is rarer).
    let folder = TempDir::new().unwrap();
    let text = "abc\n".repeat(5) + &"ab\n".repeat(3) + &"xy\n".repeat(4);
    let (_, vocab) = train_on(&folder, TokenizerKind::Bpe, 259 + 3, &text).unwrap();
    let merged: Vec<&str> = (259..vocab.len() as u32).map(|id| vocab.word(id)).collect();
    assert_eq!(merged, ["ab", "abc", "xy"]);
}

#[test]
fn a_tokenizer_does_not_depend_on_threads_or_chance() {
    let folder = TempDir::new().unwrap();
    let text: String = (0..2000)
        .map(|i| format!("{TEXT} w{} v{}\n", i % 97, i % 31))
        .collect();
    for kind in [TokenizerKind::Bpe, TokenizerKind::WordPiece] {
        let digests: Vec<String> = [1, 2, 2]
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                pool.install(|| train_on(&folder, kind, 400, &text).unwrap().0.sha256)
            })
            .to_vec();
        assert_eq!(digests[0], digests[1], "{kind}");
        assert_eq!(digests[1], digests[2], "{kind}");
    }
}

#[test]
fn counting_forgets_rare_words_to_stay_small() {
    let tokenizer = unskilled(TokenizerKind::Bpe).unwrap();
    let mut counts = PieceCounts::within(&tokenizer, 50);
    for batch in 0..10_u8 {
        let mut rows = Rows::default();
        for word in 0..20_u8 {
            let letters = [b'a' + batch, b'a' + word].map(char::from);
            rows.texts.push(&format!("often {}{}", letters[0], letters[1]));
            rows.times.push(NO_TIME);
        }
        counts.add(&rows).unwrap();
    }
    assert!(counts.forgotten() > 100);
    let counts = counts.finish();
    assert!(counts.len() <= 50);
    let often = counts.iter().find(|(word, _)| &**word == "often");
    assert_eq!(often.map(|(_, count)| *count), Some(200));
}

#[test]
fn bad_tokenizers_are_refused_with_their_reason() {
    let folder = TempDir::new().unwrap();
    for (kind, size, text, part) in [
        (
            TokenizerKind::Bpe,
            258,
            TEXT,
            "size: expected between 259 (3 special ids and 256 characters) and 1000000, got 258",
        ),
        (TokenizerKind::Bpe, 300, "", "holds no text"),
        (
            TokenizerKind::WordPiece,
            300,
            "\n \n\t\n",
            "expected text, got none in",
        ),
    ] {
        let error = train_on(&folder, kind, size, text).unwrap_err();
        contains(&error.to_string(), part);
    }
    let path = folder.path().join("other.json");
    let check = |contents: &str, (bos, eos), part: &str| {
        fs::write(&path, contents).unwrap();
        let error = read(&path, bos, eos).unwrap_err();
        contains(&error.to_string(), part);
    };
    let plain = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":null,
        "post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"[UNK]"}}"#;
    let foreign = "other.json is not a usable tokenizer: expected a Hugging Face tokenizer.json, got";
    check("the\nto\n", (None, None), foreign);
    check("{}", (None, None), foreign);
    check(plain, (None, None), "none of its added tokens is <bos>, <s>");
    let absent = "it has no token \"<start>\", which data.vocabulary.bos names";
    check(plain, (Some("<start>"), None), absent);
    let other = "name the one to use by --eos, or in data.vocabulary.eos";
    check(plain, (Some("a"), None), other);
    check(plain, (Some("a"), Some("b")), "it has no token for unknown text");
}

#[test]
fn one_token_may_be_both_ends() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shared.json");
    let contents = r#"{"version":"1.0","truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},"padding":null,
        "added_tokens":[{"id":3,"content":"<|endoftext|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
        "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
        "post_processor":null,"decoder":null,
        "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
        "fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}}"#;
    fs::write(&path, contents).unwrap();
    let vocab = read(&path, None, None).unwrap();
    let special = vocab.special();
    assert_eq!(
        (special.unk, special.bos, special.eos, vocab.len()),
        (None, 3, 3, 4)
    );
    // The file's truncation to two tokens is not ours.
    assert_eq!(encode(&vocab, "abbaab"), [2, 1, 0, 2]);
    assert_eq!(vocab.to_file_contents(), contents);
}
