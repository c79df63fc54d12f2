//! Eight languages by the rule of Unicode: sentences, vocabularies and near-duplicates against lists made by hand.

use std::fs;

use undertone_data::{DedupOptions, DedupSource, NoProgress, Split, WordCounts, WordRule, dedup};

use crate::support::{Folder, texts};

/// A language with two sentences of one user, their words, and the words that both users write most.
struct Language {
    name: &'static str,
    /// Texts of the first and of the second user.
    texts: [&'static str; 2],
    /// The sentences of the first user, with a space between words.
    sentences: &'static [&'static str],
    /// The words with the largest counts, in their order.
    most: &'static [(&'static str, u64)],
    /// A word of the texts, and another one that takes its place in a near-duplicate.
    change: (&'static str, &'static str),
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "English",
        texts: [
            "“It’s late,” the man said… “Isn’t it?” The cat — so small — sleeps.",
            "The man sees the cat. It's late!",
        ],
        sentences: &["it's late the man said", "isn't it", "the cat so small sleeps"],
        most: &[("the", 4), ("cat", 2), ("it's", 2), ("late", 2), ("man", 2)],
        change: ("small", "large"),
    },
    Language {
        name: "German",
        texts: [
            "Der Mann schläft. Über dem Haus steht „der Mond“. Österreich ist schön!",
            "Der Mond ist schön… »Ist er groß?« Er schläft.",
        ],
        sentences: &[
            "der mann schläft",
            "über dem haus steht der mond",
            "österreich ist schön",
        ],
        most: &[
            ("der", 3),
            ("ist", 3),
            ("er", 2),
            ("mond", 2),
            ("schläft", 2),
            ("schön", 2),
        ],
        change: ("Haus", "Hof"),
    },
    Language {
        name: "Russian",
        texts: [
            "«Кот спит», — сказал он. Это мой дом… Где твой дом?",
            "Кот спит. Это мой кот!",
        ],
        sentences: &["кот спит сказал он", "это мой дом", "где твой дом"],
        most: &[("кот", 3), ("дом", 2), ("мой", 2), ("спит", 2), ("это", 2)],
        change: ("сказал", "ответил"),
    },
    Language {
        name: "Arabic",
        texts: [
            "كيف حالك؟ أنا بخير، شكراً. هذا البيت جميل!",
            "هذا البيت كبير؛ أنا بخير۔ كيف البيت؟",
        ],
        sentences: &["كيف حالك", "أنا بخير شكراً", "هذا البيت جميل"],
        most: &[("البيت", 3), ("أنا", 2), ("بخير", 2), ("كيف", 2), ("هذا", 2)],
        change: ("جميل", "قديم"),
    },
    Language {
        name: "Hindi",
        texts: [
            "यह मेरा घर है। तुम कहाँ हो? मैं घर जाता हूँ॥",
            "यह घर बड़ा है। तुम कहाँ जाते हो?",
        ],
        sentences: &["यह मेरा घर है", "तुम कहाँ हो", "मैं घर जाता हूँ"],
        most: &[("घर", 3), ("कहाँ", 2), ("तुम", 2), ("यह", 2), ("है", 2), ("हो", 2)],
        change: ("मेरा", "तेरा"),
    },
    Language {
        name: "Chinese",
        texts: [
            "今天天气很好。我们去公园散步！“你吃饭了吗？”他问。",
            "我们今天去公园，天气很好。你去吗？",
        ],
        sentences: &["今天 天气 很好", "我们 去 公园 散步", "你 吃饭 了 吗", "他 问"],
        most: &[
            ("去", 3),
            ("今天", 2),
            ("你", 2),
            ("公园", 2),
            ("吗", 2),
            ("天气", 2),
            ("很好", 2),
            ("我们", 2),
        ],
        change: ("散步", "跑步"),
    },
    Language {
        name: "Japanese",
        texts: [
            "私は学生です。猫が好きです！「日本語を使う。」",
            "私は猫が好きです。学生は日本語を使う。",
        ],
        sentences: &["私 は 学生 です", "猫 が 好き です", "日本語 を 使う"],
        most: &[
            ("です", 3),
            ("は", 3),
            ("が", 2),
            ("を", 2),
            ("使う", 2),
            ("好き", 2),
            ("学生", 2),
            ("日本語", 2),
            ("猫", 2),
            ("私", 2),
        ],
        change: ("学生", "先生"),
    },
    Language {
        name: "Thai",
        texts: ["ฉันกินข้าวที่บ้าน\nเขาไปโรงเรียนทุกวัน", "เขากินข้าวทุกวัน\nฉันไปบ้าน"],
        sentences: &["ฉัน กิน ข้าว ที่ บ้าน", "เขา ไป โรงเรียน ทุก วัน"],
        most: &[
            ("กิน", 2),
            ("ข้าว", 2),
            ("ฉัน", 2),
            ("ทุก", 2),
            ("บ้าน", 2),
            ("วัน", 2),
            ("เขา", 2),
            ("ไป", 2),
        ],
        change: ("โรงเรียน", "ตลาด"),
    },
];

fn line(user: &str, text: &str) -> String {
    serde_json::json!({ "user_id": user, "text": text }).to_string() + "\n"
}

#[test]
fn sentences_and_vocabularies_of_eight_languages_are_those_of_a_hand_made_list() {
    for language in LANGUAGES {
        let folder = Folder::new();
        let [first, second] = language.texts;
        folder.write("texts.jsonl", line("a", first) + &line("b", second));
        let corpus = folder.open(
            "source = { kind = \"jsonl\", path = \"texts.jsonl\" }\nvocabulary = { kind = \"training_data\", size = 100 }\n\
             words = \"unicode\"\nsplit = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }",
        );
        let found = &texts(&corpus, Split::Train)[0];
        let expected: Vec<String> = language
            .sentences
            .iter()
            .map(|text| format!("{text} <eos>"))
            .collect();
        assert_eq!(*found, expected, "{}", language.name);
        let stats = corpus.stats();
        assert_eq!(
            (stats.users_without_text, stats.train.unknown_words),
            (0, 0),
            "{}",
            language.name
        );
        let counts = WordCounts::of_public_corpus(
            "texts.jsonl",
            "text",
            folder.root(),
            WordRule::Unicode,
            &NoProgress,
        );
        let counts = counts.unwrap();
        let most: Vec<(&str, u64)> = counts.iter().take_while(|&(_, count)| count > 1).collect();
        assert_eq!(most, language.most, "{}", language.name);
    }
}

/// A document of 40 sentences, numbered so that they differ, in one of which a word is another one.
fn document(language: &Language, changed: bool) -> String {
    let mut all = String::new();
    for number in 0..40 {
        let text = match changed && number == 20 {
            true => language.texts[0].replacen(language.change.0, language.change.1, 1),
            false => language.texts[0].to_owned(),
        };
        all.push_str(&format!("{number} {text} "));
    }
    all
}

#[test]
fn near_duplicates_of_eight_languages_differ_in_one_word_and_are_found() {
    let folder = Folder::new();
    let (mut public, mut private, mut kept) = (String::new(), String::new(), Vec::new());
    for language in LANGUAGES {
        assert!(language.texts[0].contains(language.change.0), "{}", language.name);
        private.push_str(&line(language.name, &document(language, false)));
        public.push_str(&line(language.name, &document(language, true)));
        // Another text of the language stays.
        let other = line(language.name, language.texts[1]);
        public.push_str(&other);
        kept.push(other);
    }
    folder.write("public.jsonl", &public);
    folder.write("private.jsonl", &private);
    let side = |name: &str| DedupSource {
        path: folder.path(name).display().to_string(),
        text: "text".to_owned(),
        url: None,
    };
    let output = folder.path("kept.jsonl");
    let options = DedupOptions::default();
    let summary = dedup(
        &side("public.jsonl"),
        &side("private.jsonl"),
        &output,
        &options,
        &NoProgress,
    )
    .unwrap();
    assert_eq!(fs::read_to_string(&output).unwrap(), kept.concat());
    assert_eq!((summary.rows, summary.near_duplicates), (16, 8));
}

/// A run file that names no rule was written for the rule of English. Nobody can be served by it in Chinese, and the error says so.
#[test]
fn a_language_that_the_rule_cannot_cut_gets_an_error_that_names_the_way_out() {
    let folder = Folder::with_vocabulary();
    folder.write(
        "input",
        line("a", "今天天气很好。我们去公园散步！") + &line("b", "你好吗？") + &line("c", " "),
    );
    let run = "source = { kind = \"jsonl\", path = \"input\" }\nvocabulary = { kind = \"file\", path = \"vocab.txt\" }\n";
    folder.fails(
        run,
        "input has 3 users in 3 rows ... 2 of the users wrote text without one ... rule of English ... words = \"unicode\" ... \
         undertone data tokenizer PUBLIC --public --out tokenizer.json",
    );
    folder.write("input", line("a", "今天") + &line("b", "…"));
    folder.fails(
        &format!("{run}words = \"unicode\"\n"),
        "2 of the users wrote text without one. If words do not serve ... undertone data tokenizer",
    );
}

#[test]
fn an_empty_training_partition_is_named_rather_than_users_that_nobody_counted() {
    let folder = Folder::new();
    folder.write(
        "input",
        "{\"user_id\": \"a\", \"text\": \"two words\", \"part\": \"test\"}\n",
    );
    folder.fails(
        "source = { kind = \"jsonl\", path = \"input\", split = \"part\" }\nvocabulary = { kind = \"training_data\", size = 9 }\n",
        "the train partition is empty: the split puts none of the 1 rows of input into it",
    );
}
