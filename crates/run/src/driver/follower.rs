//! A process that trains for rank 0.

use crate::run_file::training_users;
use std::path::Path;
use std::sync::Arc;
use undertone_run_directory::files::names::CORPORA_FOLDER;

use undertone_data::{Corpus, NoProgress};

use super::RunOptions;
use super::orders::{Order, Start};
use crate::engine;
use crate::error::{Result, RunError};
use crate::ranks::Ranks;
use crate::source::RoundText;
use crate::source::local::Part;
use undertone_aggregation::Bound;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::source::Unwatched;
use undertone_local::LocalTask;
use undertone_run_directory::config::{RunConfig, parse_as};
use undertone_run_directory::initial_model;

/// Trains the work that rank 0 orders until it orders the end of the run. Only the folder of the corpus cache and the cores
/// of `options` matter; no other file is written.
///
/// # Guarantee
/// No noise is drawn here. Only the process's part of sums leaves it, and goes to the processes of the run alone.
///
/// # Errors
/// [`RunError::Rank`] for a corpus or initial model that differs from those of rank 0; from corpus, model and local training.
pub fn train_as_follower(options: &RunOptions, ranks: &dyn Ranks) -> Result<()> {
    let mut theta = Vec::new();
    let start = match Order::receive(&mut theta, ranks)? {
        Order::Start(start) => start,
        Order::Over => return Ok(()),
        Order::Round(_) => return Err(unexpected(ranks, "the start of a run", "a round")),
    };
    let Start {
        config,
        base,
        data_sha256,
        frozen_sha256,
    } = start;
    let config: RunConfig = parse_as(&config, Path::new("the configuration of rank 0"), &[])?;
    let corpus = Corpus::open(
        &config.data,
        &base,
        &options.out.join(CORPORA_FOLDER),
        &NoProgress,
    )?;
    if corpus.digest() != data_sha256 {
        let expected = format!("the corpus of rank 0, SHA-256 {data_sha256}");
        return Err(unexpected(ranks, &expected, corpus.digest()));
    }
    let initial = config.initial_model.as_deref();
    let model = initial_model::model(&config.task.model, initial, &base, corpus.vocab())?;
    let identity = ModelIdentity::new(model.as_ref());
    if identity.frozen_sha256() != frozen_sha256.as_deref() {
        let shown =
            |digest: Option<&str>| digest.map_or("none".to_owned(), |digest| format!("SHA-256 {digest}"));
        let expected = format!(
            "the frozen parameters of rank 0, {}",
            shown(frozen_sha256.as_deref())
        );
        return Err(unexpected(ranks, &expected, &shown(identity.frozen_sha256())));
    }
    let users = training_users(&config, &corpus)?;
    let mut engine = engine::open(
        config.engine,
        &config.task,
        model.as_ref(),
        &users,
        options.threads,
    )?;
    loop {
        let order = match Order::receive(&mut theta, ranks)? {
            Order::Round(order) => order,
            Order::Over => return Ok(()),
            Order::Start(_) => return Err(unexpected(ranks, "a round", "a second start")),
        };
        let task = LocalTask {
            round: order.round,
            theta: &theta,
            layout: model.layout(),
            clipping: &order.clipping(),
            estimate: order.estimate,
            settings: &config.task.user_update,
            non_finite: order.non_finite(),
            special: users.special(),
        };
        let bound = Bound::new(
            Arc::new(model.layout().clone()),
            order.clipping(),
            order.non_finite(),
        );
        let part = Part {
            text: RoundText {
                partition: &users,
                users: &order.users,
                orders: &order.order_seeds,
            },
            microbatches: order.microbatches.as_deref(),
            bound: &bound,
            ranks,
        };
        part.gather(engine.as_mut(), &task, &Unwatched)?;
    }
}

fn unexpected(ranks: &dyn Ranks, expected: &str, got: &str) -> RunError {
    RunError::Rank {
        rank: ranks.rank(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    }
}
