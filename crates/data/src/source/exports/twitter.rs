//! The archive of an account of Twitter or X: `data/tweets.js` and `data/account.js`. All its texts belong to one person.

use serde::Deserialize;

use crate::error::{Place, Result, bad_value, empty};
use crate::source::exports::html::unescape;
use crate::source::exports::json::{Scalar, document, elements};
use crate::source::exports::sink::Sink;
use crate::source::exports::tree::Tree;
use undertone_settings::time::days_of_date;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    /// Newer archives have a tweet in here. In older ones the entry is the tweet.
    tweet: Option<Tweet>,
    full_text: Scalar,
    text: Scalar,
    created_at: Scalar,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Tweet {
    full_text: Scalar,
    text: Scalar,
    created_at: Scalar,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AccountEntry {
    account: Account,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    account_id: Scalar,
}

/// Reads one archive, as a zip, a folder or a file `tweets.js` beside `account.js`; or a folder of zip archives.
pub(super) fn read(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    if tree.is_file() {
        // The file that names the person stands beside the tweets.
        let account = tree.root().with_file_name("account.js");
        let person = match account.exists() {
            true => person(&mut Tree::open(&account)?, "account.js", sink)?,
            false => None,
        };
        let tweets = tree.names().to_vec();
        return archive(tree, person, &tweets, sink);
    }
    let archives = tree.with_endings(&[".zip"]);
    if !tree.is_archive() && tree.with_endings(&[".js"]).is_empty() && !archives.is_empty() {
        for name in archives {
            whole_archive(&mut Tree::open(&tree.path(&name))?, sink)?;
        }
        return Ok(());
    }
    whole_archive(tree, sink)
}

fn whole_archive(tree: &mut Tree, sink: &mut Sink<'_, '_>) -> Result<()> {
    let scripts = tree.with_endings(&[".js"]);
    let person = match scripts.iter().find(|name| file_name(name) == "account.js") {
        Some(name) => person(tree, name, sink)?,
        None => None,
    };
    let tweets: Vec<String> = scripts
        .into_iter()
        .filter(|name| is_tweets(file_name(name)))
        .collect();
    archive(tree, person, &tweets, sink)
}

fn archive(
    tree: &mut Tree,
    person: Option<String>,
    tweets: &[String],
    sink: &mut Sink<'_, '_>,
) -> Result<()> {
    if tweets.is_empty() {
        return Err(empty(tree.root(), "tweets.js of an archive of Twitter"));
    }
    let Some(user) = person else {
        let expected = "account.js beside tweets.js, since it names the person";
        return Err(bad_value(
            tree.root(),
            Place::Row(1),
            "account",
            expected,
            "no such file or no accountId in it",
        ));
    };
    for name in tweets {
        let path = tree.path(name);
        sink.messages_of(&path)?;
        let bytes = document(tree, name, sink)?;
        let mut number = 0;
        elements(&path, array(&bytes), None, &mut |entry: Entry| {
            number += 1;
            let tweet = entry.tweet.unwrap_or(Tweet {
                full_text: entry.full_text,
                text: entry.text,
                created_at: entry.created_at,
            });
            take(number, &user, &tweet, sink)
        })?;
    }
    Ok(())
}

fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// `true` for `tweets.js`, `tweets-part1.js` and the `tweet.js` of older archives.
fn is_tweets(name: &str) -> bool {
    let rest = name
        .strip_suffix(".js")
        .and_then(|stem| stem.strip_prefix("tweet"));
    let rest = rest.map(|rest| rest.strip_prefix('s').unwrap_or(rest));
    rest.is_some_and(|rest| {
        rest.is_empty()
            || rest
                .strip_prefix("-part")
                .is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// The array behind `window.YTD.tweets.part0 = `. The lines of the document stay what they are.
fn array(bytes: &[u8]) -> &[u8] {
    let start = bytes.get(..200).unwrap_or(bytes);
    let assigns = start.starts_with(b"window.");
    match start.iter().position(|&byte| byte == b'=').filter(|_| assigns) {
        Some(at) => bytes.get(at + 1..).unwrap_or_default(),
        None => bytes,
    }
}

fn person(tree: &mut Tree, name: &str, sink: &mut Sink<'_, '_>) -> Result<Option<String>> {
    let path = tree.path(name);
    let bytes = document(tree, name, sink)?;
    let mut found = None;
    elements(&path, array(&bytes), None, &mut |entry: AccountEntry| {
        found = entry.account.account_id.text().map(str::to_owned);
        Ok(())
    })?;
    Ok(found)
}

fn take(number: u64, user: &str, tweet: &Tweet, sink: &mut Sink<'_, '_>) -> Result<()> {
    let text = tweet.full_text.text().unwrap_or(&tweet.text.0);
    if text.starts_with("RT @") {
        sink.leave_out("retweets left out");
        return Ok(());
    }
    let text = unescape(&without_links(text));
    if text.trim().is_empty() {
        sink.leave_out("media without text left out");
        return Ok(());
    }
    let Some(time) = seconds(&tweet.created_at.0) else {
        let expected = "a time such as \"Wed Jun 05 12:00:00 +0000 2024\"";
        return Err(sink.bad(number, "created_at", expected, tweet.created_at.0.clone()));
    };
    sink.message(number, user, text.trim(), Some(time))
}

/// Removes `https://t.co/...`, which stands in place of a picture or a link.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("https://t.co/") {
        plain.push_str(&rest[..at]);
        rest = rest[at + "https://t.co/".len()..]
            .trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        if plain.ends_with(' ') && rest.starts_with(' ') {
            plain.pop();
        }
    }
    plain.push_str(rest);
    plain
}

/// Unix seconds of `Wed Jun 05 12:00:00 +0000 2024`.
fn seconds(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, month, day, clock, "+0000", year] = parts.as_slice() else {
        return None;
    };
    let month = MONTHS.iter().position(|name| name == month)? as i64 + 1;
    let clock: Vec<i64> = clock
        .split(':')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let [hour @ 0..24, minute @ 0..60, second @ 0..61] = *clock.as_slice() else {
        return None;
    };
    let days = days_of_date(year.parse().ok()?, month, day.parse().ok()?)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use crate::source::exports::ExportKind;
    use crate::source::exports::testing::{Export, counts, row};

    const ACCOUNT: &str =
        "window.YTD.account.part0 = [\n{\"account\": {\"accountId\": \"77\", \"username\": \"ada\"}}]";
    const TWEETS: &str = r#"window.YTD.tweets.part0 = [
        {"tweet": {"id_str": "1", "full_text": "Boats &amp; rivers https://t.co/abc1 today", "created_at": "Wed Jun 05 12:00:00 +0000 2024"}},
        {"tweet": {"id_str": "2", "full_text": "RT @ben: not mine", "created_at": "Wed Jun 05 12:00:01 +0000 2024"}},
        {"tweet": {"id_str": "3", "full_text": "https://t.co/pic", "created_at": "Wed Jun 05 12:00:02 +0000 2024"}}
    ]"#;
    const OLDER: &str = r#"window.YTD.tweet.part0 = [{"full_text": "1 &lt; 2\n@ben", "created_at": "Wed Jun 05 12:00:03 +0000 2024"}]"#;

    #[test]
    fn an_archive_gives_what_its_person_wrote() {
        let files = [
            ("data/account.js", ACCOUNT),
            ("data/tweets.js", TWEETS),
            ("data/tweets-part1.js", OLDER),
            ("data/like.js", "window.YTD.like.part0 = ["),
        ];
        let expected = [
            row("77", "1 < 2\n@ben", 1_717_588_803),
            row("77", "Boats & rivers today", 1_717_588_800),
        ];
        let folder = Export::folder(ExportKind::Twitter, &files);
        assert_eq!(folder.rows(), expected);
        assert_eq!(
            folder.left_out(),
            counts(&[("media without text left out", 1), ("retweets left out", 1)])
        );
        let archive = Export::zip(ExportKind::Twitter, &files);
        assert_eq!(archive.rows(), expected);
        let file = Export::file(ExportKind::Twitter, "tweets.js", TWEETS.as_bytes());
        assert!(file.error().contains("expected account.js beside tweets.js"));
        std::fs::write(file.path().join("account.js"), ACCOUNT).expect("a file");
        assert_eq!(file.rows(), expected[1..]);
    }

    #[test]
    fn archives_of_several_people_lie_in_one_folder() {
        let archive = Export::zip(
            ExportKind::Twitter,
            &[("data/account.js", ACCOUNT), ("data/tweets.js", TWEETS)],
        );
        let other = ACCOUNT.replace("77", "78");
        let second = Export::zip(
            ExportKind::Twitter,
            &[("data/account.js", &other), ("data/tweets.js", TWEETS)],
        );
        let folder = Export::folder(ExportKind::Twitter, &[("readme.txt", "")]);
        for (export, name) in [(&archive, "a.zip"), (&second, "b.zip")] {
            std::fs::copy(
                export.path().join("export.zip"),
                folder.path().join("export").join(name),
            )
            .expect("a copy");
        }
        let users: Vec<String> = folder.rows().into_iter().map(|row| row.0).collect();
        assert_eq!(users, ["77", "78"]);
    }

    #[test]
    fn a_wrong_time_or_document_is_an_error() {
        let wrong = TWEETS.replace("Wed Jun 05 12:00:00", "Wed Jun 31 12:00:00");
        let export = Export::folder(
            ExportKind::Twitter,
            &[("account.js", ACCOUNT), ("tweets.js", &wrong)],
        );
        assert!(
            export.error().contains("row 1: created_at: expected a time"),
            "{}",
            export.error()
        );
        let cut = &TWEETS[..200];
        let export = Export::folder(
            ExportKind::Twitter,
            &[("account.js", ACCOUNT), ("tweets.js", cut)],
        );
        assert!(
            export.error().contains("tweets.js, line 3: JSON"),
            "{}",
            export.error()
        );
    }
}
