//! Text grouped by user from what a SQL query gives: of tables in many files, of any size, on this machine or in an object store.
//!
//! [`undertone_data::group`] groups one table as it is. Here the people's text may first have to be found: joined from several tables,
//! filtered, accounts of one person put together. DataFusion runs the query in bounded memory, spilling sorts, aggregates and joins to
//! disk; its rows go, in whatever order they come, to a [`undertone_data::Grouper`], and the folder is the same as that of any other
//! source: `source = { kind = "grouped", path = ... }` of a run file reads it.
//!
//! ```
//! use undertone_data::{Grouped, NoProgress};
//! use undertone_query::{QueryOptions, Table, group_query};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("posts.csv"), "account,body\n1,first\n2,hello\n3,second\n")?;
//! std::fs::write(folder.path().join("people.csv"), "account,person\n1,ann\n2,bob\n3,ann\n")?;
//! let table = |name: &str, file: &str| Table::new(name, folder.path().join(file).to_string_lossy());
//!
//! // Ann has two accounts. She is the unit of privacy, not they.
//! let sql = "SELECT person AS user_id, body AS text FROM posts JOIN people USING (account)";
//! let tables = [table("posts", "posts.csv"), table("people", "people.csv")];
//! let options = QueryOptions::default();
//! let output = folder.path().join("grouped");
//! let summary = group_query(sql, &tables, &output, &options, &NoProgress)?;
//! assert_eq!((summary.manifest.users, summary.manifest.rows), (2, 3));
//!
//! let grouped = Grouped::open(&output)?;
//! let ann = grouped.find("ann")?.expect("she is there");
//! assert_eq!(grouped.read_user(ann)?.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod columns;
mod engine;
mod error;
mod query;
mod tables;

pub use error::{QueryError, Result};
pub use query::{QueryOptions, QuerySummary, group_query};
pub use tables::Table;
