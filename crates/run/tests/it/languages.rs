//! A small word model trains on each of eight languages, by the rule of words of Unicode.

use std::fmt::Write;

use undertone_run::language::{LanguageModel, Predictor};
use undertone_run::{RunFile, Silent};

use crate::support::{config, holds, options};

/// A language, three texts, the start of one of them, and the words that follow it there.
const LANGUAGES: [(&str, [&str; 3], &str, &str); 8] = [
    (
        "English",
        [
            "“It’s late,” the man said… The cat sleeps.",
            "The cat sees the small man.",
            "We walk to the old house.",
        ],
        "We walk to the old",
        "house",
    ),
    (
        "German",
        [
            "Der Mann schläft. Über dem Haus steht „der Mond“.",
            "Österreich ist schön… »Ist er groß?«",
            "Wir gehen nach Hause.",
        ],
        "„Österreich ist",
        "schön",
    ),
    (
        "Russian",
        [
            "«Кот спит», — сказал он. Это мой дом…",
            "Где твой дом? Кот спит.",
            "Мы идём домой!",
        ],
        "— Это мой",
        "дом",
    ),
    (
        "Arabic",
        [
            "كيف حالك؟ أنا بخير، شكراً.",
            "هذا البيت كبير؛ أنا بخير۔",
            "نحن نذهب إلى البيت.",
        ],
        "نعم؟ نحن نذهب",
        "إلى",
    ),
    (
        "Hindi",
        ["यह मेरा घर है। तुम कहाँ हो?", "मैं घर जाता हूँ॥", "सूरज आज चमकता है।"],
        "नहीं। सूरज आज",
        "चमकता",
    ),
    (
        "Chinese",
        [
            "今天天气很好。我们去公园散步！",
            "他明天去北京。",
            "“你吃饭了吗？”他问。",
        ],
        "好。我们去公园",
        "散步",
    ),
    (
        "Japanese",
        ["私は学生です。", "猫が好きです！", "「日本語を使う。」"],
        "はい。日本語を",
        "使う",
    ),
    (
        "Thai",
        ["ฉันกินข้าวที่บ้าน", "เขาไปโรงเรียนทุกวัน", "ครูสอนภาษาอังกฤษ"],
        "เขาไปโรงเรียนทุก",
        "วัน",
    ),
];

#[test]
#[ignore = "slow"]
fn a_small_model_learns_the_next_word_of_each_of_eight_languages() {
    for (name, texts, begun, next) in LANGUAGES {
        let out = tempfile::tempdir().expect("a folder");
        let mut rows = String::new();
        for number in 0..240 {
            let row = serde_json::json!({ "user_id": number % 40, "text": texts[number % 3] });
            writeln!(rows, "{row}").expect("a string");
        }
        std::fs::write(out.path().join("texts.jsonl"), rows).expect("a file");
        let run = config(&[
            "rounds=12",
            "data={source={kind=\"jsonl\",path=\"texts.jsonl\"},vocabulary={kind=\"training_data\",size=100},words=\"unicode\"}",
            "user_update={algorithm=\"fedavg\",batch_size=2,learning_rate=2.0,epochs=4}",
            "clip={kind=\"flat\",norm=8.0}",
            "privacy={noise_multiplier=0.01,delta=1e-5}",
            "evaluation={every=0}",
        ]);
        let summary = undertone_run::train(&RunFile::new(run, out.path()), &options(out.path()), &Silent);
        let summary = summary.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(summary.metrics.out_of_vocabulary, 0, "{name}");
        holds(&summary.run_dir);
        let model = LanguageModel::open(&summary.run_dir).expect("a model");
        let best = Predictor::new(&model)
            .and_then(|mut predictor| predictor.next_words(begun, "", 1))
            .expect("a prediction");
        println!(
            "{name}: top-1 {:.3} of {} targets, {best:?}",
            summary.metrics.top1, summary.metrics.targets
        );
        assert_eq!(best[0].word, next, "{name}: {best:?}, {:?}", summary.metrics);
    }
}
