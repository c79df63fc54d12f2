//! Tokens per second of whole rounds: local training, norms and sum.

use std::time::Instant;

use serde_json::{Value, json};
use undertone_gpu::Trainer;

use crate::Arguments;
use crate::world::{Cohort, Sum, World};

/// The median of a few rounds for each model and number of users at once. The peer in `torch_peer.py` has the same shapes.
///
/// A line `speed {...}` per measurement is printed at once.
pub(crate) fn run<M: Trainer + Clone>(machine: &M, arguments: &Arguments) -> anyhow::Result<Value> {
    let rounds = if arguments.small { 1 } else { arguments.rounds };
    let mut lines = Vec::new();
    for world in World::measured(arguments)? {
        let (counts, examples, tokens) = match arguments.small {
            true => (vec![2, 4], 8, 5),
            false => (vec![32, 128, 512], 32, 20),
        };
        for users in arguments.users.map_or(counts, |users| vec![users]) {
            let cohort = Cohort::even(users, examples, tokens, world.ids);
            let mut engine = world.engine(machine, &cohort, users)?;
            let mut seconds = Vec::new();
            for _ in 0..=rounds {
                let sink = Sum::new(world.bound(), true);
                let started = Instant::now();
                world.train(&mut engine, &cohort, &cohort.places(), &sink)?;
                seconds.push(started.elapsed().as_secs_f64());
            }
            // The first round warms up.
            let mut seconds = if rounds == 0 {
                seconds
            } else {
                seconds.split_off(1)
            };
            seconds.sort_by(f64::total_cmp);
            let all = users as f64 * f64::from(examples * tokens);
            let rate = all / seconds[seconds.len() / 2];
            let parameters = world.model.layout().len();
            let line = json!({
                "model": world.name,
                "parameters": parameters,
                "users_at_once": users,
                "tokens_per_s": rate.round(),
                "memory_gb": (engine.bytes() as f64 / 1e7).round() / 100.0,
            });
            println!("speed {line}");
            lines.push(line);
        }
    }
    Ok(json!({"rounds": lines}))
}
