use std::fs;

use super::*;

/// A database that these statements make.
fn database(folder: &Path, statements: &str) -> PathBuf {
    let path = folder.join("rows.db");
    let _ = fs::remove_file(&path);
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch(statements).expect("statements");
    path
}

fn source(path: &Path, query: &str) -> SqliteSource {
    SqliteSource {
        path: path.to_owned(),
        query: query.to_owned(),
        user: "user_id".to_owned(),
        text: "text".to_owned(),
        time: None,
        split: None,
        time_unit: None,
    }
}

fn rows(source: &SqliteSource) -> Result<Vec<(String, String, i64)>> {
    let mut found = Vec::new();
    read(source, &mut |rows, _| {
        found.extend((0..rows.len()).map(|row| {
            let (user, text) = (rows.users.get(row), rows.texts.get(row));
            (user.to_owned(), text.to_owned(), rows.times[row])
        }));
        Ok(())
    })?;
    Ok(found)
}

fn fails(source: &SqliteSource, parts: &str) {
    let message = rows(source).expect_err(parts).to_string();
    crate::testing::contains(&message, parts);
}

const POSTS: &str = "create table posts (author, body, at); create table people (id integer primary key, name text);
    insert into people values (1, 'ada'), (2, 'bob');
    insert into posts values (1, 'The cat sat.', 1717588800), (2, null, 1717588800.75), (1, 'café', '2024-06-05T12:00:01Z'), (2, 'last', null)";

#[test]
fn the_rows_of_a_query_come_in_its_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = database(folder.path(), POSTS);
    let query = "with named as (select * from people) select name as user_id, body as text, at from posts join named on id = author order by \
                 posts.rowid desc";
    let asked = SqliteSource {
        time: Some("at".to_owned()),
        ..source(&path, query)
    };
    let row = |user: &str, text: &str, time| (user.to_owned(), text.to_owned(), time);
    let expected = [
        row("bob", "last", NO_TIME),
        row("ada", "café", 1_717_588_801),
        row("bob", "", 1_717_588_800),
        row("ada", "The cat sat.", 1_717_588_800),
    ];
    assert_eq!(rows(&asked).expect("rows"), expected);
    // Users as numbers, as floats and as bytes are one.
    for user in [
        "author",
        "author * 1.0",
        "cast(author as blob)",
        "cast(author as text)",
    ] {
        let found = rows(&source(
            &path,
            &format!("select {user} as user_id, body as text from posts"),
        ));
        let users: Vec<_> = found.expect("rows").into_iter().map(|row| row.0).collect();
        assert_eq!(users, ["1", "2", "1", "2"], "{user}");
    }
}

#[test]
fn a_query_may_only_read_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = database(
        folder.path(),
        &format!(
            "{POSTS}; create view endless as with recursive n(i) as (select 1 union all select i + 1 from n) select i as user_id, i as text \
             from n"
        ),
    );
    let before = fs::read(&path).expect("a file");
    for (query, parts) in [
        (
            "select user_id, text from endless",
            "--query: expected tables ... got \"endless\", a view of the file",
        ),
        (
            "select user_id, text from (select * from Endless)",
            "a view of the file",
        ),
        ("delete from posts", "one statement that reads tables"),
        (
            "select author as user_id, body as text from posts; delete from posts",
            "one statement that reads tables",
        ),
        (
            "select author as user_id, body as text from posts; select 1",
            "got several statements",
        ),
        ("attach 'other.db' as other", "one statement that reads tables"),
        ("pragma writable_schema = 1", "one statement that reads tables"),
        ("create temp table t (a)", "one statement that reads tables"),
        ("", "--query"),
        (
            "select author, body as text from posts",
            "it lacks the column \"user_id\" ... \"author\", \"text\"",
        ),
        ("select nowhere from posts", "rows.db ... no such column: nowhere"),
        (
            "select author + 0.5 as user_id, body as text from posts",
            "row 1: column \"user_id\": expected a whole number ... got 1.5",
        ),
        (
            "select null as user_id, body as text from posts",
            "row 1: column \"user_id\": expected a value, got null",
        ),
        (
            "select author as user_id, x'ff' as text from posts",
            "row 1: column \"text\": expected UTF-8",
        ),
        (
            "select author as user_id, zeroblob(1 << 27) as text from posts",
            "too big",
        ),
        (
            "select author as user_id, body as text from posts where 0",
            "holds no rows for this query",
        ),
    ] {
        fails(&source(&path, query), parts);
    }
    assert_eq!(fs::read(&path).expect("a file"), before, "the file has changed");
    let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(names.len(), 1, "a file was left");
}

#[test]
fn what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.db");
    for contents in [&b"user_id,text\n"[..], b"", b"SQLite format 3"] {
        fs::write(&path, contents).expect("a file");
        fails(
            &source(&path, "select 1"),
            "a.db ... does not begin as an SQLite database does",
        );
    }
    fs::write(&path, [MAGIC, &[0; 200][..]].concat()).expect("a file");
    fails(&source(&path, "select 1 as user_id, 2 as text from t"), "a.db");
    fails(&source(folder.path(), "select 1"), "it is not a regular file");
}

#[test]
#[ignore = "slow"]
fn mutations_of_a_database_give_errors_or_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let many: String = (0..200)
        .map(|row| {
            format!(
                "insert into posts values ({}, 'text {row} of many words', {row});",
                row % 7
            )
        })
        .collect();
    let path = database(folder.path(), &format!("{POSTS}; begin; {many} commit"));
    let asked = source(&path, "select author as user_id, body as text from posts");
    let honest = fs::read(&path).expect("a file");
    let (mut errors, mut accepted) = (0, 0);
    for at in (0..honest.len()).step_by(7) {
        for value in [0, 0xff, honest[at] ^ 1, honest[at].wrapping_add(1)] {
            let mut bytes = honest.clone();
            bytes[at] = value;
            fs::write(&path, bytes).expect("a file");
            match rows(&asked) {
                Ok(_) => accepted += 1,
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 50 && accepted > 1000, "{errors} {accepted}");
}
