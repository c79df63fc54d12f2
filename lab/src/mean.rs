//! `undertone-lab mean`: distributed mean estimation, by every encoding side by side.

mod npy;
mod picture;
mod protocol;
mod vectors;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use rayon::prelude::*;
use serde::Serialize;
use undertone_accounting::{Delta, Epsilon};
use undertone_present::numbers::{epsilon_delta, number, upper_bound};
use undertone_run_directory::files::write_atomic;

use self::protocol::{Protocol, Scheme, Setting};
use self::vectors::{VectorArgs, Vectors};
use crate::output::Output;
use undertone_present::table::grid;
use undertone_present::terminal::line as value;

/// Arguments of `undertone-lab mean`.
///
/// Every client has one vector, clips it to the clip norm, encodes it and adds its share of the noise; the server sees the sum
/// and estimates the mean. Each scheme has the least noise that it can account for at the target, under replacing one
/// client's vector; nobody drops out.
#[derive(Debug, clap::Args)]
pub(crate) struct MeanArgs {
    #[command(flatten)]
    vectors: VectorArgs,
    /// Compare these schemes (default: all).
    #[arg(
        long = "schemes",
        value_name = "SCHEME,...",
        value_delimiter = ',',
        value_enum
    )]
    schemes: Vec<Scheme>,
    /// Set the numbers of levels of the grid. Each scheme on a grid is measured at each number.
    #[arg(long, value_name = "K,...", value_delimiter = ',', default_values_t = [16, 256])]
    levels: Vec<u64>,
    /// Set the max L2 norm of a vector. Longer vectors are scaled down to it.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    clip_norm: f64,
    /// Set the target epsilon (for example 4).
    #[arg(long, default_value_t = 4.0, allow_negative_numbers = true)]
    epsilon: f64,
    /// Set the delta of the guarantee (for example 1e-6).
    #[arg(long, default_value_t = 1e-9, allow_negative_numbers = true)]
    delta: f64,
    /// Set the number of estimates over which the error is measured.
    #[arg(long, default_value_t = 10)]
    repeats: u64,
    /// Seed the vectors, rotations, roundings and noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the error over the bits into this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// One scheme at one number of levels.
#[derive(Debug, Serialize)]
struct Row {
    scheme: Scheme,
    /// `None` for real numbers.
    levels: Option<u64>,
    /// The other settings of the scheme, in words.
    parameters: String,
    /// Bits of one coordinate in one client's message to a trusted server.
    message_bits: f64,
    /// Bits of one coordinate in a secure sum; `None` where there is none.
    sum_bits: Option<u32>,
    epsilon: Epsilon,
    /// The method that computed epsilon.
    accounting: &'static str,
    /// Expected squared L2 error of the mean, or a bound of it where roundings depend on the data.
    expected_error: f64,
    measured_error: f64,
    /// Standard error of the measured one.
    standard_error: f64,
}

#[derive(Debug, Serialize)]
struct Comparison {
    vectors: String,
    clients: usize,
    dim: usize,
    clip_norm: f64,
    /// Vectors that were shortened.
    clipped: usize,
    target_epsilon: Epsilon,
    delta: Delta,
    repeats: u64,
    rows: Vec<Row>,
    /// Schemes that cannot be had here, and why.
    refused: Vec<(Scheme, Option<u64>, String)>,
}

pub(crate) fn run(args: &MeanArgs, output: &Output) -> anyhow::Result<()> {
    ensure!(
        args.repeats > 1,
        "--repeats: expected at least 2, for a standard error, got {}",
        args.repeats
    );
    ensure!(
        args.clip_norm > 0.0 && args.clip_norm.is_finite(),
        "--clip-norm: expected a finite number > 0, got {}",
        args.clip_norm
    );
    for levels in &args.levels {
        ensure!(
            (2..=1 << 17).contains(levels),
            "--levels: expected 2 to 2^17, got {levels}"
        );
    }
    let (epsilon, delta) = (
        Epsilon::new(args.epsilon).context("--epsilon")?,
        Delta::new(args.delta).context("--delta")?,
    );
    ensure!(epsilon.get() > 0.0, "--epsilon: expected more than 0, got 0");
    let mut vectors = args.vectors.vectors(args.seed)?;
    let clipped = vectors.clip(args.clip_norm);
    let schemes = if args.schemes.is_empty() {
        Scheme::value_variants()
    } else {
        &args.schemes
    };
    let mut comparison = Comparison {
        vectors: vectors.source.clone(),
        clients: vectors.iter().len(),
        dim: vectors.dim,
        clip_norm: args.clip_norm,
        clipped,
        target_epsilon: epsilon,
        delta,
        repeats: args.repeats,
        rows: Vec::new(),
        refused: Vec::new(),
    };
    let mean = vectors.mean();
    for &scheme in schemes {
        let levels: Vec<Option<u64>> = match scheme {
            Scheme::Gaussian => vec![None],
            _ => args.levels.iter().copied().map(Some).collect(),
        };
        for levels in levels {
            let setting = Setting {
                clients: comparison.clients,
                dim: vectors.dim,
                clip_norm: args.clip_norm,
                epsilon,
                delta,
                levels: levels.unwrap_or(2),
                seed: args.seed,
            };
            let spinner = output.spinner(&format!(
                "{} {}",
                scheme.name(),
                levels.map_or_else(String::new, |k| k.to_string())
            ));
            let row = setting
                .protocol(scheme)
                .and_then(|protocol| measure(&protocol, &vectors, &mean, args.repeats));
            spinner.finish_and_clear();
            match row {
                Ok(row) => comparison.rows.push(Row {
                    levels,
                    scheme,
                    ..row
                }),
                // What was not asked for by name may be impossible.
                Err(error) if args.schemes.is_empty() => {
                    comparison.refused.push((scheme, levels, format!("{error:#}")));
                }
                Err(error) => return Err(error.context(scheme.name())),
            }
        }
    }
    if let Some(file) = &args.svg {
        let svg = picture::draw(&comparison)?;
        write_atomic(file, svg.as_bytes()).context("--svg")?;
    }
    if output.json {
        output.print_json(&comparison)
    } else {
        output.print(&comparison.text())
    }
}

fn measure(protocol: &Protocol, vectors: &Vectors, mean: &[f64], repeats: u64) -> anyhow::Result<Row> {
    let error = |repeat| -> anyhow::Result<f64> {
        let estimate = protocol.estimate(vectors, repeat)?;
        let squares = estimate
            .iter()
            .zip(mean)
            .map(|(estimate, mean)| (estimate - mean).powi(2));
        Ok(squares.sum())
    };
    let errors: Vec<f64> = (0..repeats)
        .into_par_iter()
        .map(error)
        .collect::<anyhow::Result<_>>()?;
    let count = errors.len() as f64;
    let measured_error = errors.iter().sum::<f64>() / count;
    let spread: f64 = errors.iter().map(|error| (error - measured_error).powi(2)).sum();
    Ok(Row {
        scheme: protocol.scheme,
        levels: None,
        parameters: protocol.parameters.clone(),
        message_bits: protocol.message_bits,
        sum_bits: protocol.sum_bits,
        epsilon: protocol.epsilon,
        accounting: protocol.accounting,
        expected_error: protocol.expected_error,
        measured_error,
        standard_error: (spread / (count - 1.0) / count).sqrt(),
    })
}

impl Comparison {
    fn text(&self) -> String {
        let header = [
            "scheme",
            "levels",
            "",
            "bits",
            "in a secure sum",
            "epsilon",
            "expected error",
            "measured",
            "+-",
        ];
        let rows = self.rows.iter().map(|row| {
            vec![
                row.scheme.name(),
                row.levels
                    .map_or_else(|| "-".to_owned(), |levels| levels.to_string()),
                row.parameters.clone(),
                format!("{:.2}", row.message_bits),
                row.sum_bits
                    .map_or_else(|| "-".to_owned(), |bits| bits.to_string()),
                upper_bound(row.epsilon.get()),
                number(row.expected_error),
                number(row.measured_error),
                number(row.standard_error),
            ]
        });
        let mut text = format!(
            "{} vectors of {} coordinates ({}), clip norm {}, {} clipped; {} (replace one)\n\n{}\n",
            self.clients,
            self.dim,
            value(&self.vectors),
            number(self.clip_norm),
            self.clipped,
            epsilon_delta(self.target_epsilon.get(), self.delta.get()),
            grid(header, rows, 3),
        );
        for (scheme, levels, why) in &self.refused {
            let levels = levels.map_or_else(String::new, |levels| format!(" at {levels} levels"));
            text += &format!("\nnot here: {}{levels}: {why}", scheme.name());
        }
        let mut ways: Vec<_> = self
            .rows
            .iter()
            .map(|row| format!("{}: {}", row.scheme.name(), row.accounting))
            .collect();
        ways.dedup();
        text += &format!(
            "\nErrors are of the mean, squared L2, over {} estimates. Epsilon by {}.",
            self.repeats,
            ways.join("; ")
        );
        text
    }
}
