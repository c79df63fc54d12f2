//! A query's rows, grouped by user.

use std::path::Path;
use std::time::Instant;

use datafusion::execution::context::SQLOptions;
use datafusion::prelude::SessionContext;
use futures_util::TryStreamExt;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone_data::{GroupedManifest, Grouper, GrouperOptions, Progress, Stage};

use crate::columns::Columns;
use crate::engine;
use crate::error::{QueryError, Result};
use crate::tables::{Table, register};

/// The settings of a query and of the grouping of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryOptions {
    /// Bytes to hold in memory, at least [`QueryOptions::MIN_MEMORY`]: half for the query, a quarter for the rows it gives; when it is
    /// done, all of it for grouping. The program itself and batches on their way come on top.
    pub memory: usize,
    /// Threads, and parts in which tables are read.
    pub threads: usize,
    /// Replaces an existing folder.
    pub overwrite: bool,
}

impl QueryOptions {
    /// Least [`QueryOptions::memory`].
    pub const MIN_MEMORY: usize = 64 << 20;
}

impl Default for QueryOptions {
    /// 1 GiB, every core.
    fn default() -> QueryOptions {
        QueryOptions {
            memory: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            overwrite: false,
        }
    }
}

/// The result of a finished query: the manifest of the folder, and what the query took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuerySummary {
    /// The folder's manifest.
    #[serde(flatten)]
    pub manifest: GroupedManifest,
    /// Columns of the query that nothing was done with.
    pub ignored_columns: Vec<String>,
    /// Bytes that the query wrote to disk because they did not fit in memory.
    pub spilled_bytes: u64,
    /// Seconds until the query had given all its rows.
    pub query_seconds: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// Runs `sql` over `tables` and groups the rows it gives by user in the new folder `output`, which
/// [`Grouped`](undertone_data::Grouped) and the source `grouped` of a run file read.
///
/// The query gives a column `user_id` (text or integers): **whose** the text is, so that the guarantee holds for that person with all their
/// rows; `text`; and, if it likes, `timestamp` (unix seconds, a timestamp or a date) and `split` (`train`, `validation`, `test`). Others are
/// ignored. Rows of a user are ordered by time, those of the same time by their text: a query's rows have no order of their own, and so
/// the folder's bytes depend on neither threads nor memory's share for the query. The query only reads: statements that write or
/// change anything are refused.
///
/// It blocks, with a runtime of its own: not for calling from within an asynchronous one, which would panic.
///
/// # Errors
/// [`QueryError`], by what is wrong. Nothing is left behind.
pub fn group_query(
    sql: &str,
    tables: &[Table],
    output: &Path,
    options: &QueryOptions,
    progress: &dyn Progress,
) -> Result<QuerySummary> {
    let out_of_range = |key, expected: String, got: usize| QueryError::InvalidSetting {
        key,
        expected,
        got: got.to_string(),
    };
    if options.memory < QueryOptions::MIN_MEMORY {
        let expected = format!("at least {} bytes", QueryOptions::MIN_MEMORY);
        return Err(out_of_range("memory", expected, options.memory));
    }
    if options.threads == 0 {
        return Err(out_of_range("threads", "at least 1".to_owned(), 0));
    }
    let started = Instant::now();
    let mut grouper = None;
    let (columns, spilled_bytes) = {
        // Beside the output, where the rows themselves go: that disk is known to be large enough to be tried.
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let io = |action| {
            move |source| QueryError::Io {
                action,
                path: parent.to_owned(),
                source,
            }
        };
        let spills = tempfile::Builder::new()
            .prefix(".partial-")
            .tempdir_in(parent)
            .map_err(io("create a folder in"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads)
            .enable_all()
            .build()
            .map_err(io("start threads for"))?;
        let session = engine::session(options.memory / 2, options.threads, spills.path())?;
        runtime.block_on(async {
            register(&session, tables).await?;
            run(sql, &session, output, options, progress, &mut grouper).await
        })?
    };
    let query_seconds = started.elapsed().as_secs_f64();
    let grouper: Grouper = match grouper {
        Some(grouper) if grouper.rows() > 0 => grouper,
        _ => return Err(QueryError::NoRows),
    };
    // The digests of the shards identify the data, and the digest of its text identifies the query.
    let digest: String = Sha256::digest(sql)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let source = format!("query sha256 {digest}");
    let manifest = grouper.finish(source, progress)?;
    Ok(QuerySummary {
        manifest,
        ignored_columns: columns.ignored,
        spilled_bytes,
        query_seconds,
        seconds: started.elapsed().as_secs_f64(),
    })
}

async fn run(
    sql: &str,
    session: &SessionContext,
    output: &Path,
    options: &QueryOptions,
    progress: &dyn Progress,
    into: &mut Option<Grouper>,
) -> Result<(Columns, u64)> {
    let engine = options.memory / 2;
    let reads = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let frame = session
        .sql_with_options(sql, reads)
        .await
        .map_err(|error| QueryError::planning(&error))?;
    let columns = Columns::of(frame.schema().as_arrow())?;
    let grouper = into.insert(Grouper::create(
        output,
        &GrouperOptions {
            has_time: columns.time.is_some(),
            has_split: columns.split.is_some(),
            ordered: false,
            // What a query gives is known when it has given it.
            expected_bytes: None,
            memory: options.memory,
            public: false,
            overwrite: options.overwrite,
        },
    )?);
    let failed = |error| QueryError::running(&error, engine);
    let plan = frame.create_physical_plan().await.map_err(failed)?;
    let mut batches =
        datafusion::physical_plan::execute_stream(plan.clone(), session.task_ctx()).map_err(failed)?;
    while let Some(batch) = batches.try_next().await.map_err(failed)? {
        columns.rows(&batch, &mut |row| Ok(grouper.push(row)?))?;
        progress.update(Stage::Partitioning, grouper.rows(), None);
    }
    Ok((columns, spilled(&plan)))
}

/// Bytes that a plan and its inputs wrote to disk.
fn spilled(plan: &std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>) -> u64 {
    let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes());
    own.unwrap_or(0) as u64 + plan.children().into_iter().map(spilled).sum::<u64>()
}
