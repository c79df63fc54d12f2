//! `undertone-query`: groups by user what a SQL query gives.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use undertone_data::{ByteSize, NoProgress, Progress, Stage};
use undertone_present::terminal;
use undertone_query::{QueryOptions, QuerySummary, Table, group_query};

/// Group by user what a SQL query gives, as `undertone data group` does with one table.
///
/// The query names a column user_id (whose the text is: the unit of privacy) and a column text, and may name timestamp and split.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example: both accounts of a person count as one.\n\n  undertone-query --table posts=s3://forum/posts/ --table people=people.parquet \\\n    \
        --sql 'SELECT person AS user_id, body AS text, created AS timestamp FROM posts JOIN people USING (account)' \\\n    \
        --out grouped"
)]
struct Arguments {
    /// Add a table: a file, a folder of files of one kind, a pattern, s3://bucket/prefix/ or https://host/file. The option may be repeated.
    #[arg(long = "table", value_name = "NAME=LOCATION", required = true)]
    tables: Vec<Table>,
    /// Run this SQL query.
    #[arg(long, value_name = "QUERY", required_unless_present = "sql_file")]
    sql: Option<String>,
    /// Read the query from this file, or from standard input for `-`.
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    sql_file: Option<PathBuf>,
    /// Write this folder.
    #[arg(long, short, alias = "out", value_name = "FOLDER")]
    output: PathBuf,
    /// Limit the memory of the query and its rows, for example 1GB. Data above the limit goes to disk, beside the folder.
    #[arg(long, default_value = "1GB", value_name = "SIZE")]
    memory: ByteSize,
    /// Set the number of threads (default: one per core).
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Replace the output folder if it exists.
    #[arg(long)]
    force: bool,
    /// Print one JSON document instead of lines and progress.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if arguments.json => {
            let message = format!("{error:#}");
            let message = terminal::shortened(&message).unwrap_or(message);
            let document = serde_json::json!({ "error": message }).to_string();
            eprintln!("{}", terminal::json(&document));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {}", terminal::line(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let sql = arguments.query()?;
    let defaults = QueryOptions::default();
    let options = QueryOptions {
        memory: arguments.memory.0,
        threads: arguments.threads.unwrap_or(defaults.threads),
        overwrite: arguments.force,
    };
    let bar = Bar(Mutex::new(None));
    let progress: &dyn Progress = match !arguments.json && std::io::stderr().is_terminal() {
        true => &bar,
        false => &NoProgress,
    };
    let result = group_query(&sql, &arguments.tables, &arguments.output, &options, progress);
    bar.clear();
    let summary = result?;
    if arguments.json {
        println!("{}", terminal::json(&serde_json::to_string_pretty(&summary)?));
    } else {
        print!("{}", terminal::lines(&lines(&summary, arguments)));
    }
    Ok(())
}

impl Arguments {
    fn query(&self) -> anyhow::Result<String> {
        match (&self.sql, &self.sql_file) {
            (Some(sql), _) => Ok(sql.clone()),
            (None, Some(path)) if path.as_os_str() == "-" => {
                let mut sql = String::new();
                std::io::stdin()
                    .read_to_string(&mut sql)
                    .context("cannot read the query from standard input")?;
                Ok(sql)
            }
            (None, Some(path)) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the query in {}", path.display())),
            (None, None) => anyhow::bail!("expected the query: --sql or --sql-file"),
        }
    }
}

fn lines(summary: &QuerySummary, arguments: &Arguments) -> String {
    let manifest = &summary.manifest;
    let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
    let yes = |has| if has { "yes" } else { "no" }.to_owned();
    let mut facts = vec![
        ("folder", arguments.output.display().to_string()),
        ("rows", manifest.rows.to_string()),
        ("users", manifest.users.to_string()),
        ("largest user", format!("{} rows", manifest.largest_user)),
        (
            "shards",
            format!("{}, {}", manifest.shards.len(), ByteSize(bytes as usize)),
        ),
        ("times", yes(manifest.has_time)),
        ("splits", yes(manifest.has_split)),
        (
            "spilled by the query",
            ByteSize(summary.spilled_bytes as usize).to_string(),
        ),
        (
            "time",
            format!(
                "{:.1} s, {:.1} of them the query",
                summary.seconds, summary.query_seconds
            ),
        ),
    ];
    if !summary.ignored_columns.is_empty() {
        facts.push(("columns not used", summary.ignored_columns.join(", ")));
    }
    facts
        .into_iter()
        .map(|(name, value)| format!("{name:<22}{}\n", terminal::line(&value)))
        .collect()
}

/// One line that says what is being done.
struct Bar(Mutex<Option<(Stage, ProgressBar)>>);

impl Bar {
    fn clear(&self) {
        if let Some((_, bar)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bar {
    fn update(&self, stage: Stage, done: u64, total: Option<u64>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*current, Some((shown, _)) if *shown == stage) {
            if let Some((_, bar)) = current.take() {
                bar.finish_and_clear();
            }
            let template = match total {
                Some(_) => "{msg} {bar:40} {human_pos}/{human_len}  {per_sec}, {elapsed} elapsed, {eta} left",
                None => "{spinner} {msg} {human_pos} rows  {per_sec}, {elapsed} elapsed",
            };
            let bar = ProgressBar::new(total.unwrap_or(0));
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(stage.to_string());
            bar.enable_steady_tick(Duration::from_millis(250));
            *current = Some((stage, bar));
        }
        if let Some((_, bar)) = &*current {
            bar.set_position(done);
        }
    }
}
