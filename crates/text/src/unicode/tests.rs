use std::fmt::Write as _;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::rule::WordRule;
use crate::vocab::{Vocab, VocabProvenance};

fn cut_by(rule: WordRule, text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    rule.sentences(text, |sentence| {
        let mut found = Vec::new();
        rule.words(sentence, &mut String::new(), |word| found.push(word.to_owned()));
        all.push(found);
    });
    all
}

fn cut(text: &str) -> Vec<Vec<String>> {
    cut_by(WordRule::Unicode, text)
}

/// `expected` has a bar between sentences and a space between words.
#[track_caller]
fn check(text: &str, expected: &str) {
    let sentences: Vec<String> = cut(text).iter().map(|words| words.join(" ")).collect();
    assert_eq!(sentences.join(" | "), expected, "{text}");
}

#[test]
fn english_with_typographic_signs_gives_the_words_of_plain_english() {
    check(
        "“Hello,” she said… It’s fine. ‘Yes,’ he said — “what’s up?” Well‑known facts—mostly.",
        "hello she said | it's fine | yes he said what's up | well known facts mostly",
    );
    check(
        "It’s the “best”. It's the \"best\".",
        "it's the best | it's the best",
    );
    check("Pages 12–15, §5, 3 % and ½.", "pages 12–15 §5 3 % and ½");
    check(
        "He left (early). “Why?” Nobody knows.",
        "he left early | why | nobody knows",
    );
    check(
        "A naïve café — e.g. this one. See you!",
        "a naïve café e.g this one | see you",
    );
}

#[test]
fn german_sentences_open_with_umlauts_and_low_quotes() {
    check(
        "„Guten Tag“, sagte sie. Über-Ärger gibt´s nicht… »Doch!« Er lachte. – Und dann? Die Straße ist lang.",
        "guten tag sagte sie | über ärger gibt's nicht | doch | er lachte | und dann | die straße ist lang",
    );
    check(
        "Ich war z. B. dort. Österreich ist schön.",
        "ich war z | b dort | österreich ist schön",
    );
    check(
        "„Komm!“, rief er. „Nein.“ Dann ging er.",
        "komm rief er | nein | dann ging er",
    );
}

#[test]
fn russian_sentences_open_with_cyrillic_capitals() {
    check(
        "«Привет!» — сказал он. Это мой дом… Ты идёшь? Да, конечно: по-русски.",
        "привет сказал он | это мой дом | ты идёшь | да конечно по русски",
    );
    check("Я живу в г. Москве. А ты?", "я живу в г | москве | а ты");
    check("— Кто там? — Это я.", "кто там | это я");
}

#[test]
fn arabic_sentences_end_at_their_own_marks() {
    check(
        "كيف حالك؟ أنا بخير، شكراً. هذا موسم جميل۔ نعم!",
        "كيف حالك | أنا بخير شكراً | هذا موسم جميل | نعم",
    );
    check("سعره ٣٫١٤ دينار؛ و٪ ٥٠", "سعره ٣٫١٤ دينار و٪ ٥٠");
    check("\u{200f}«السلام\u{200f} عليكم»، قال.", "السلام عليكم قال");
    check("می\u{200c}خواهم بروم؟ بله", "می\u{200c}خواهم بروم | بله");
}

#[test]
fn hindi_sentences_end_at_a_danda() {
    check(
        "यह मेरा घर है। तुम कहाँ हो? मैं स्कूल जाता हूँ॥ ठीक है",
        "यह मेरा घर है | तुम कहाँ हो | मैं स्कूल जाता हूँ | ठीक है",
    );
    check("है।“वह”-घर", "है | वह घर");
}

#[test]
fn chinese_words_come_from_a_dictionary() {
    check(
        "今天天气很好。我们去公园散步！“你吃饭了吗？”他问。我用Python写代码，价格是3.5元。",
        "今天 天气 很好 | 我们 去 公园 散步 | 你 吃饭 了 吗 | 他 问 | 我 用 python 写 代码 价格 是 3.5 元",
    );
    check("他说：“你好。”然后走了……", "他 说 你好 | 然后 走了");
    // A linguist takes the last two words for one.
    check(
        "第３章，共１，０００页．下一页",
        "第 ３ 章 共 １，０００ 页 | 下 一 页",
    );
}

#[test]
fn japanese_words_come_from_a_dictionary() {
    check(
        "私は学生です。コンピュータを使う！「おはよう。」猫が好き",
        "私 は 学生 です | コンピュータ を 使う | おはよう | 猫 が 好き",
    );
    // A linguist cuts the verb as 言い まし た.
    check("と言いました", "と 言 いま した");
}

#[test]
fn thai_words_come_from_a_dictionary() {
    check(
        "ฉันกินข้าวที่บ้าน เขาไปโรงเรียนทุกวัน",
        "ฉัน กิน ข้าว ที่ บ้าน เขา ไป โรงเรียน ทุก วัน",
    );
}

#[test]
fn other_scripts_have_their_words_too() {
    check(
        "ខ្ញុំស្រលាញ់ភាសាខ្មែរ។ ພາສາລາວ မြန်မာစကား",
        "ខ្ញុំ ស្រលាញ់ ភាសាខ្មែរ | ພາສາ ລາວ မြန်မာ စကား",
    );
    check("გამარჯობა მსოფლიო. ეს სახლია.", "გამარჯობა მსოფლიო | ეს სახლია");
    check("Τι κάνεις; ΚΑΛΑ Ο ΟΔΟΣ. Ωραία", "τι κάνεις καλα ο οδος | ωραία");
    check("ሰላም፡ለዓለም። እሺ", "ሰላም ለዓለም | እሺ");
    check("צה״ל ובית־ספר. שלום", "צה״ל ובית ספר | שלום");
    check(
        "L’home col·labora. ¿Qué tal? ¡Bien!",
        "l'home col·labora | qué tal | bien",
    );
}

#[test]
fn spellings_of_one_word_are_one_word() {
    for (one, other) in [
        ("it’s", "it's"),
        ("e\u{301}te\u{301}", "été"),
        ("well\u{2010}known", "well-known"),
        ("so\u{ad}ft", "soft"),
        ("\u{feff}pep", "pep"),
        ("Ǆungla", "ǆungla"),
        ("ΟΔΟΣ", "οδος"),
        ("H\u{331}e", "ẖe"),
        ("м’ята", "м'ята"),
        ("Å", "\u{212b}"),
    ] {
        assert_eq!(cut(one), cut(other), "{one} {other}");
    }
}

#[test]
fn the_context_of_a_prediction_is_the_open_sentence() {
    for (text, expected) in [
        ("", ""),
        ("今天很好。", ""),
        ("今天很好。我们", "我们"),
        ("今天很好", "今天很好"),
        ("“你好。”", ""),
        ("Grüße. ", ""),
        ("Grüße.", "Grüße."),
        ("Grüße.“ ", ""),
        ("Grüße.\n", ""),
        ("Es ist schön. Über uns", "Über uns"),
        ("schön\u{2028}neu", "neu"),
        ("तुम कहाँ हो।", ""),
    ] {
        assert_eq!(WordRule::Unicode.open_sentence(text), expected, "{text:?}");
    }
}

#[test]
fn words_without_spaces_are_joined_without_them() {
    let words = ["今天", "天气", "python", "好"].map(Box::from).to_vec();
    let vocab = Vocab::new(words, VocabProvenance::File).with_rule(WordRule::Unicode);
    let mut ids = Vec::new();
    vocab
        .encode("今天天气，Python好", &mut String::new(), &mut ids)
        .unwrap();
    assert_eq!(ids, [3, 4, 5, 6]);
    assert_eq!(vocab.decode(&ids).unwrap(), "今天天气 python 好");
    assert_eq!(
        vocab.with_rule(WordRule::English).decode(&ids).unwrap(),
        "今天 天气 python 好"
    );
}

#[test]
fn pieces_between_white_space_count_the_words_of_scripts_without_spaces() {
    for (text, english, unicode) in [
        ("a -- b", 3, 3),
        ("今天天气很好。", 1, 3),
        ("— x\u{a0}y", 3, 3),
        ("", 0, 0),
    ] {
        assert_eq!(WordRule::English.pieces(text), english, "{text}");
        assert_eq!(WordRule::Unicode.pieces(text), unicode, "{text}");
    }
}

/// Plans and run files that name no rule were made when there was one rule, and their text is cut as it was then.
#[test]
fn the_rule_of_english_is_what_it_was() {
    let text =
        "“Hello,” she said… It’s fine. Über uns. 今天天气很好。我们去。\nموسم؟ है। It's (OK)! \"Yes\" w-x é-x";
    let found: Vec<String> = cut_by(WordRule::English, text)
        .iter()
        .map(|words| words.join(" "))
        .collect();
    assert_eq!(
        found.join(" | "),
        "“hello,” she said… it’s fine über uns 今天天气很好。我们去。 | موسم؟ है। it's ok | yes w x é-x"
    );
    assert_eq!(crate::TextRules::default().words, WordRule::English);
}

/// The cut of a text belongs to the models that were trained on it. New tables of Unicode may not change it.
#[test]
#[ignore = "slow"]
fn the_cut_of_every_character_is_what_it_was() {
    let mut text = String::new();
    for c in ('\u{0}'..='\u{3ffff}').chain('\u{e0000}'..='\u{e0fff}') {
        if !kind::is_assigned(c) {
            continue;
        }
        let _ = write!(text, "{:x}", u32::from(c));
        for around in [format!("a{c}b {c}d"), format!("x. {c}y"), format!("x{c} Y 1{c}2")] {
            for words in cut(&around) {
                text.push('|');
                text.push_str(&words.join(" "));
            }
        }
        text.push('\n');
    }
    let digest: String = Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        digest,
        "fdc715a35d76616ebd4c587bda9ec258582881395de28a6697d59821f2d04ff0"
    );
}

proptest! {
    #[test]
    fn text_in_ascii_is_cut_as_by_the_rule_of_english(text in "[ -~\n\r\t]{0,200}") {
        let english = cut_by(WordRule::English, &text);
        prop_assert_eq!(&cut(&text), &english);
        // Other characters elsewhere in the text change nothing.
        let mut longer = cut(&format!("é\n{text}\nü"));
        longer.remove(0);
        longer.pop();
        prop_assert_eq!(longer, cut_by(WordRule::English, &format!("{text}\n")));
        for word in english.concat() {
            prop_assert_eq!(WordRule::Unicode.spelled(&word).to_string(), word);
        }
        prop_assert_eq!(WordRule::Unicode.open_sentence(&text), WordRule::English.open_sentence(&text));
    }

    #[test]
    fn sentences_lose_nothing_but_white_space(text in "(?s).{0,200}") {
        let mut kept = String::new();
        sentences(&text, |sentence| kept.push_str(sentence));
        let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        prop_assert_eq!(dense(&kept), dense(&text));
    }

    #[test]
    fn words_can_stand_in_a_vocabulary(text in "(?s).{0,120}") {
        for word in cut(&text).concat() {
            prop_assert!(!word.is_empty() && !word.contains(kind::is_space));
            let listed = Vocab::from_words(word.as_bytes());
            prop_assert!(listed.is_ok() || word.contains(char::is_control), "{:?} {:?}", word, listed);
            prop_assert_eq!(&*spelled(&word), &word);
        }
    }

    #[test]
    fn tokenising_again_changes_nothing(text in "[ -~\u{a0}-\u{5ff}\u{2010}-\u{2027}\u{900}-\u{97f}]{0,120}") {
        let once = cut(&text).concat();
        let again = cut(&once.join(" ")).concat();
        prop_assert_eq!(once, again);
    }

    #[test]
    fn the_ending_of_a_text_is_one_of_its_sentences(text in "[a-cÄ。！.?“” \n今天]{0,60}") {
        let open = WordRule::Unicode.open_sentence(&text);
        let mut last = "";
        sentences(&text, |sentence| last = sentence);
        prop_assert!(open.is_empty() || open == last, "{:?} {:?}", open, last);
    }
}
