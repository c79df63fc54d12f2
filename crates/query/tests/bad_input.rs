//! Errors say what is wrong, in the words of the query, and nothing is left behind.

#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "../../data/src/testing.rs"]
mod testing;

use std::fs;

use tempfile::TempDir;
use undertone_data::NoProgress;
use undertone_query::{QueryOptions, Table, group_query};

use testing::{cases, contains};

struct Case {
    folder: TempDir,
}

impl Case {
    fn new() -> Case {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "posts.csv",
            "who,body,at,part\nann,one,2024-06-05,train\nbob,two,soon,holdout\n",
        );
        write(
            "bare.jsonl",
            "{\"who\": null, \"body\": \"a\"}\n{\"who\": \"ann\", \"body\": \"b\"}\n",
        );
        write("broken.parquet", "PAR1 but not for long");
        write("notes.txt", "a");
        fs::create_dir(folder.path().join("mixed")).unwrap();
        write("mixed/a.csv", "who\nann\n");
        write("mixed/b.jsonl", "{}\n");
        fs::create_dir(folder.path().join("empty")).unwrap();
        write("empty/_SUCCESS", "");
        fs::create_dir_all(folder.path().join("unfinished/_temporary")).unwrap();
        write("unfinished/a.csv", "who\nann\n");
        write("unfinished/_temporary/b.csv", "who\nbob\n");
        Case { folder }
    }

    fn error_with(&self, sql: &str, tables: &[&str], options: &QueryOptions) -> String {
        let before = self.files();
        let tables: Vec<Table> = tables
            .iter()
            .map(|table| {
                let (name, file) = table.split_once('=').unwrap();
                let path = match file.contains("://") {
                    true => file.to_owned(),
                    false => self.folder.path().join(file).display().to_string(),
                };
                Table::new(name, path)
            })
            .collect();
        let output = self.folder.path().join("grouped");
        let result = group_query(sql, &tables, &output, options, &NoProgress);
        assert_eq!(self.files(), before, "left behind by {sql}");
        result.unwrap_err().to_string()
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[track_caller]
    fn check(&self, sql: &str, tables: &[&str], parts: &str) {
        contains(&self.error_with(sql, tables, &QueryOptions::default()), parts);
    }
}

#[test]
fn bad_queries_are_refused_with_their_reason() {
    let case = Case::new();
    let posts = &["posts=posts.csv"];
    for (sql, parts) in cases(
        r#"
        $ SELEC 1
        the query cannot be run ... SELEC
        $ SELECT * FROM post
        the query cannot be run ... post ... not found
        $ SELECT writer FROM posts
        the query cannot be run ... writer
        $ SELECT who, body FROM posts
        lacks the column "user_id" ... "who", "body" ... SELECT author AS user_id
        $ SELECT who AS user_id FROM posts
        lacks the column "text"
        $ WITH a AS (SELECT who AS user_id, body AS text FROM posts), b AS (SELECT 'x' AS user_id) SELECT * FROM a JOIN b ON true
        two columns "user_id"
        $ SELECT 1.5 AS user_id, body AS text FROM posts
        column "user_id" ... expected text or integers, got Float64
        $ SELECT who AS user_id, body AS text, at AS timestamp FROM posts
        column "timestamp" ... expected an integer (unix seconds), a timestamp or a date ... CAST
        $ SELECT who AS user_id, body AS text, CAST(at AS TIMESTAMP) AS timestamp FROM posts
        the query failed ... soon
        $ SELECT who AS user_id, body AS text, part AS split FROM posts
        column "split" ... expected "train", "validation" or "test" ... got "holdout"
        $ SELECT who AS user_id, body AS text FROM posts WHERE who = 'eve'
        no rows
        "#,
    ) {
        case.check(sql, posts, parts);
    }
    // It reads, and does nothing else.
    for sql in [
        "CREATE TABLE a AS SELECT 1",
        "DROP TABLE posts",
        "INSERT INTO posts VALUES ('eve', 'x', 'y', 'z')",
        "COPY posts TO 'copy.csv'",
        "SET datafusion.execution.batch_size = 1",
    ] {
        case.check(sql, posts, "the query cannot be run ... not supported");
    }
    case.check(
        "SELECT who AS user_id, body AS text FROM bare",
        &["bare=bare.jsonl"],
        "column \"user_id\" ... whose the text is, got null ... WHERE user_id IS NOT NULL",
    );
}

#[test]
fn bad_tables_are_refused_with_their_reason() {
    let case = Case::new();
    for (tables, parts) in cases(
        r#"
        $ a=none.csv
        table "a" ... none.csv ... no such file or folder
        $ a=broken.parquet
        table "a" ... broken.parquet ... Parquet
        $ a=notes.txt
        "notes.txt" is of no kind that is known: expected .parquet
        $ a=mixed
        files of several kinds, such as "a.csv" and "b.jsonl"
        $ a=empty
        it holds no file
        $ a=unfinished
        _temporary/b.csv" seems to be unfinished or hidden
        $ a=none-*.csv
        it holds no file
        $ a=ftp://host/a.csv
        expected a path, s3:// or https://, got ftp://
        $ posts=posts.csv Posts=bare.jsonl
        the table "Posts" is given twice ... posts.csv ... bare.jsonl
        "#,
    ) {
        case.check("SELECT 1", &tables.split(' ').collect::<Vec<_>>(), parts);
    }
}

#[test]
fn bad_settings_and_existing_folders_are_refused() {
    let case = Case::new();
    let sql = "SELECT who AS user_id, body AS text FROM posts";
    let with = |change: fn(&mut QueryOptions)| {
        let mut options = QueryOptions::default();
        change(&mut options);
        case.error_with(sql, &["posts=posts.csv"], &options)
    };
    let error = with(|options| options.memory = 1 << 20);
    assert_eq!(error, "memory: expected at least 67108864 bytes, got 1048576");
    let error = with(|options| options.threads = 0);
    assert_eq!(error, "threads: expected at least 1, got 0");

    let output = case.folder.path().join("grouped");
    fs::create_dir(&output).unwrap();
    fs::write(output.join("precious"), "data").unwrap();
    contains(&with(|_| ()), "exists");
    contains(
        &with(|options| options.overwrite = true),
        "no manifest.json, so it is not replaced",
    );
}

/// Memory that a query cannot do with even by spilling is an error that says which setting it is about.
#[test]
fn too_little_memory_names_its_setting() {
    let case = Case::new();
    let sql = "SELECT 'a' AS user_id, string_agg(repeat('word ', 100), '' ) AS text FROM generate_series(1, 200000)";
    let options = QueryOptions {
        memory: QueryOptions::MIN_MEMORY,
        threads: 1,
        overwrite: false,
    };
    let error = case.error_with(sql, &[], &options);
    contains(
        &error,
        "the query needs more memory than the 33 MB that --memory leaves for it",
    );
}
