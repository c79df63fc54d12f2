//! Grouping by user and random access, at a size that does not fit in memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use clap::Subcommand;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use undertone_data::{GroupOptions, Grouped, NoProgress, StreamOptions, group};
use undertone_settings::{SourceSpec, TableSource};

use crate::bench::usage::{cpu_time, peak_rss_mb};

#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// Writes an unsorted Parquet file of about 250 bytes per row
    Generate {
        file: PathBuf,
        #[arg(long, default_value_t = 20_000_000)]
        rows: u64,
        #[arg(long, default_value_t = 500_000)]
        users: u64,
    },
    /// Groups such a file
    Group {
        file: String,
        folder: PathBuf,
        /// Bytes for rows and buffers
        #[arg(long, default_value_t = 512_000_000)]
        memory: usize,
    },
    /// Reads users of a grouped folder in random order, then as Poisson samples
    Stream {
        folder: PathBuf,
        #[arg(long, default_value_t = 50_000)]
        users: usize,
    },
}

pub(crate) fn run(step: &Step) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut result = match step {
        Step::Generate { file, rows, users } => generate(file, *rows, *users)?,
        Step::Group { file, folder, memory } => grouping(file, folder, *memory)?,
        Step::Stream { folder, users } => stream(folder, *users)?,
    };
    result["wall_s"] = json!(started.elapsed().as_secs_f64());
    result["cpu_s"] = json!(cpu_seconds());
    result["peak_rss_mb"] = json!(peak_rss_mb());
    println!("RESULT {result}");
    Ok(())
}

/// CPU seconds of all threads so far; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    cpu_time().unwrap_or_default().as_secs_f64()
}

/// Rows of random users in no order: every user has one, the others go to users by a heavy-tailed draw.
fn generate(path: &Path, rows: u64, users: u64) -> anyhow::Result<Value> {
    ensure!(
        users > 0 && rows >= users,
        "expected at least one row per user, and a user"
    );
    let schema = Arc::new(Schema::new(vec![
        Field::new("user_id", DataType::UInt32, false),
        Field::new("text", DataType::Utf8, false),
        Field::new("timestamp", DataType::Int64, false),
    ]));
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(100_000))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, schema.clone(), Some(properties))?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let words: Vec<String> = (0..4096)
        .map(|_| {
            let letters = 2 + random.next_u64() % 8;
            (0..letters)
                .map(|_| char::from(b'a' + (random.next_u64() % 26) as u8))
                .collect()
        })
        .collect();
    // Which rows are the first of their users: evenly spread, under a multiplicative shuffle of the users.
    let (every, step) = (rows / users, 0x9e37_79b1_u64 | 1);
    let mut done = 0;
    while done < rows {
        let count = (rows - done).min(10_000);
        let mut text = StringBuilder::new();
        let (mut ids, mut times) = (Vec::new(), Vec::new());
        for row in done..done + count {
            let number = row / every;
            let user = if row % every == 0 && number < users {
                let mut user = number;
                // An odd factor permutes the next power of two, and walking on until inside permutes the users.
                loop {
                    user = user.wrapping_mul(step) % users.next_power_of_two();
                    if user < users {
                        break user;
                    }
                }
            } else {
                // Uniform in the logarithm: user 0 has most.
                let u = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                ((users as f64).powf(u) as u64).clamp(1, users) - 1
            };
            ids.push(user as u32);
            times.push((random.next_u64() % 100_000_000) as i64);
            let mut line = String::with_capacity(280);
            while line.len() < 240 {
                line.push_str(&words[(random.next_u64() % 4096) as usize]);
                line.push(' ');
            }
            text.append_value(&line);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(ids)),
            Arc::new(text.finish()),
            Arc::new(Int64Array::from(times)),
        ];
        writer.write(&RecordBatch::try_new(schema.clone(), columns)?)?;
        done += count;
    }
    writer.close()?;
    Ok(json!({ "bytes": std::fs::metadata(path)?.len(), "rows": rows, "users": users }))
}

fn grouping(file: &str, folder: &Path, memory: usize) -> anyhow::Result<Value> {
    let source = SourceSpec::Parquet(TableSource {
        path: file.to_owned(),
        time: Some("timestamp".to_owned()),
        ..TableSource::default()
    });
    let options = GroupOptions {
        memory,
        split: None,
        public: false,
        overwrite: true,
    };
    let manifest = group(&source, Path::new("."), folder, &options, &NoProgress)?;
    let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
    Ok(json!({
        "rows": manifest.rows,
        "users": manifest.users,
        "largest_user": manifest.largest_user,
        "shards": manifest.shards.len(),
        "bytes": bytes,
        "memory": memory,
    }))
}

fn stream(folder: &Path, users: usize) -> anyhow::Result<Value> {
    let opening = Instant::now();
    let grouped = Grouped::open(folder)?;
    let opening = opening.elapsed().as_secs_f64();
    let (started, before) = (Instant::now(), cpu_seconds());
    let (mut rows, mut seen) = (0_u64, 0);
    for user in grouped.stream(1, &StreamOptions::default()).take(users) {
        rows += user?.len() as u64;
        seen += 1;
    }
    let (wall, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - before);

    // Poisson samples of about 1024 users each, by exact random access.
    let (started, before) = (Instant::now(), cpu_seconds());
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let fraction = 1024.0 / grouped.num_users() as f64;
    let (mut sampled_rows, mut sampled) = (0_u64, 0);
    for _ in 0..8 {
        let chosen: Vec<usize> = (0..grouped.num_users())
            .filter(|_| ((random.next_u64() >> 11) as f64) < fraction * (1_u64 << 53) as f64)
            .collect();
        sampled += chosen.len();
        for user in grouped.read_users(&chosen)? {
            sampled_rows += user.len() as u64;
        }
    }
    let (poisson_wall, poisson_cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - before);
    Ok(json!({
        "opening_s": opening,
        "stream_users": seen,
        "stream_rows": rows,
        "stream_rows_per_s": rows as f64 / wall,
        "stream_rows_per_cpu_s": rows as f64 / cpu,
        "poisson_users": sampled,
        "poisson_rows": sampled_rows,
        "poisson_rows_per_s": sampled_rows as f64 / poisson_wall,
        "poisson_rows_per_cpu_s": sampled_rows as f64 / poisson_cpu,
    }))
}
