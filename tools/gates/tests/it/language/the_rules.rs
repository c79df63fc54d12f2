//! Sentences that the rules must flag, and sentences that they must let pass.

use super::*;

fn judged(kind: Kind, text: &str) -> Vec<String> {
    rules::findings(&Passage {
        kind,
        line: 1,
        prose: true,
        text: text.to_owned(),
    })
}

fn flagged(kind: Kind, text: &str) {
    assert!(!judged(kind, text).is_empty(), "not flagged: {text}");
}

fn fine(kind: Kind, text: &str) {
    assert_eq!(judged(kind, text), Vec::<String>::new(), "{text}");
}

#[test]
fn sentences_without_a_subject_are_flagged() {
    flagged(Kind::Doc, "That of the first round.");
    flagged(Kind::Doc, "The same in the L2 norm.");
    flagged(Kind::Doc, "As many of them as fit.");
    flagged(Kind::Doc, "Of a user's examples, the first.");
    flagged(Kind::Doc, "Whether the run is private.");
    flagged(Kind::Doc, "What a user contributes.");
    flagged(Kind::Help, "How the noise is correlated.");
    flagged(Kind::Page, "What a run writes is listed below.");
    fine(Kind::Page, "**How often does one user join?** Set the option.");
    flagged(Kind::Page, "How often one user joins. Is it often?");
    fine(Kind::Page, "That clients agree is checked by the server.");
    fine(Kind::Doc, "Offers a second chance.");
    fine(Kind::Doc, "Assigns users to shards.");
    fine(Kind::Doc, "Returns whether the run is private.");
    fine(Kind::Doc, "However many users join, the sum is exact.");
    flagged(Kind::Doc, "Its state.");
    flagged(Kind::Doc, "From the store.");
    flagged(Kind::Doc, "With no more users than fit.");
    fine(Kind::Doc, "With noise on it, a sum is private.");
    fine(Kind::Page, "In a round, each user counts once.");
    fine(Kind::Doc, "State of the task.");
}

#[test]
fn rates_with_an_article_are_flagged() {
    flagged(Kind::Doc, "Runs one thread a worker.");
    flagged(Kind::Doc, "The sum needs 8 bytes a parameter.");
    flagged(Kind::Doc, "The cohort has 6500 clients a round.");
    flagged(Kind::Doc, "Draws twice a round.");
    flagged(Kind::Page, "The file has one word a line.");
    flagged(Kind::Help, "Set the number of users a round.");
    flagged(Kind::Text, "title: \"accuracy over bits a coordinate\",");
    fine(Kind::Text, "let half = \"at most half a step\";");
    fine(Kind::Doc, "Runs one thread per worker.");
    fine(Kind::Doc, "The server gives a client the sum.");
    fine(
        Kind::Doc,
        "Noise hides the words that a user wrote, a round later.",
    );
    fine(Kind::Doc, "With 40 bits, a user is safe.");
    fine(Kind::Page, "Within a round the order does not matter.");
}

#[test]
fn words_of_the_stop_list_are_flagged() {
    flagged(Kind::Doc, "Takes every so-manieth item.");
    flagged(Kind::Doc, "Whoever starts the processes ends them.");
    flagged(Kind::Error, "the others wait in vain");
    flagged(Kind::Text, "// Whoever is late is refused.");
    flagged(Kind::Doc, "Nobody can foresee the size.");
    flagged(Kind::Page, "A corpus of a thousand million words is streamed.");
    flagged(Kind::Error, "expected a number, what came is a word");
    fine(Kind::Doc, "The caller ends the processes.");
    fine(Kind::Doc, "The model trains in vanilla SGD.");
}

#[test]
fn code_and_links_are_not_judged_as_words() {
    fine(Kind::Doc, "The field `whoever` is kept.");
    fine(Kind::Page, "The page [data](whoever/data.md) describes it.");
}

#[test]
fn errors_may_not_expect_nothing() {
    flagged(Kind::Error, "{key}: expected no value, got {got}");
    fine(Kind::Error, "{key}: expected a number, got {got}");
    fine(Kind::Doc, "The caller expected no value here.");
}

#[test]
fn help_fits_one_line() {
    let long = format!("Set the delta of the guarantee{}.", " and more".repeat(15));
    flagged(Kind::Help, &long);
    fine(Kind::Doc, &long);
    fine(Kind::Help, "Set the delta of the guarantee (for example 1e-6).");
}

#[test]
fn long_sentences_of_pages_are_flagged() {
    let thirty = ["word"; 30].join(" ");
    fine(Kind::Page, &format!("{thirty}."));
    fine(Kind::Page, &format!("{thirty}. One more."));
    flagged(Kind::Page, &format!("{thirty} more."));
    fine(Kind::Doc, &format!("{thirty} more."));
    fine(Kind::Page, &format!("{thirty} `code`.").replacen("word ", "", 1));
    flagged(Kind::Page, "It reads; it sums; it adds noise.");
    fine(Kind::Page, "It reads; it sums.");
}

#[test]
fn sentences_end_at_full_stops_and_not_at_abbreviations() {
    let check = |text: &str, count: usize| assert_eq!(rules::sentences(text).len(), count, "{text}");
    check("One. Two! Three? Four", 4);
    check("Bell et al. wrote it.", 1);
    check("The value 1.5 is read from a.b and kept.", 1);
    check("(It ends.) Another one.", 2);
}
