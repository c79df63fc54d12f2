//! `undertone eval` of several runs: their rows, and their differences over equal users.

use crate::support::{Folder, TINY, close, contains, number};

#[test]
fn runs_are_compared_user_by_user_and_another_corpus_is_refused() {
    let folder = Folder::trained(TINY);
    folder.succeed("train run.toml --without-privacy");
    let both = folder.json("eval runs/tiny runs/tiny-without-privacy --against runs/tiny");
    let (own, ceiling) = (&both[0], &both[1]);
    for measure in ["top1", "loss"] {
        let same = &own["against"][measure];
        assert_eq!(
            (number(&same["difference"]), number(&same["standard_error"])),
            (0.0, 0.0)
        );
    }
    let against = &ceiling["against"];
    let top1 = number(&ceiling["top1"]) - number(&own["top1"]);
    assert!(
        (number(&against["top1"]["difference"]) - top1).abs() < 1e-12,
        "{against}"
    );
    let loss = number(&ceiling["perplexity"]).ln() - number(&own["perplexity"]).ln();
    assert!(
        (number(&against["loss"]["difference"]) - loss).abs() < 1e-9,
        "{against}"
    );
    assert!(number(&against["top1"]["standard_error"]) > 0.0, "{against}");
    // The rows of the private run have all three models on the same targets.
    let story = &own["story"];
    assert_eq!(story["private"]["top1"], own["top1"]);
    assert_eq!(story["without_privacy"]["top1"], ceiling["top1"]);
    close(&story["private"]["delta"], 1e-4, 1e-9);
    assert!(
        number(&story["commonest_word"]["top1_standard_error"]) > 0.0,
        "{story}"
    );
    folder.show(
        "eval runs/tiny-without-privacy --against runs/tiny",
        "against ... runs/tiny ... points, paired over users ... commonest word ... random ... no guarantee",
    );
    folder.succeed("train run.toml --set name=other --set data.source.users=310");
    let said = folder.fail("eval runs/other --against runs/tiny");
    contains(
        &said,
        "--against: expected a run on the corpus of runs/other, SHA-256 ... got runs/tiny on another one",
    );
    let digests = said.split("SHA-256 ").skip(1).map(|rest| &rest[..64]);
    let digests: Vec<&str> = digests.collect();
    assert!(digests.len() == 2 && digests[0] != digests[1], "{said}");
}

/// A model whose parameters are all zero says the first word everywhere.
#[test]
fn a_planted_model_of_one_word_gets_its_sentence() {
    let folder = Folder::trained(TINY);
    let mut model = folder.read("runs/tiny/model.safetensors");
    let header = u64::from_le_bytes(model[..8].try_into().expect("a length"));
    model[8 + header as usize..].fill(0);
    folder.write("runs/tiny/model.safetensors", model);
    let words = folder.text("runs/tiny/vocab.txt");
    let first = words.lines().next().expect("a word");
    let sentence = format!("The model says `{first}` in 100 % of the places: it learnt one word only");
    folder.show("eval runs/tiny", &sentence);
}
