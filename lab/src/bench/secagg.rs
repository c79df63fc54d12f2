//! Secure aggregation: CPU seconds of masking, of sharing a secret, and of whole sessions, client and server apart.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::json;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::Message;
use undertone_secagg::{
    Client, Context, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust, measure,
};

use crate::bench::usage::{cpu_time, peak_rss_mb};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Elements of a vector, modulo 2^32
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    dim: u64,
    /// Repeats of the small items, after one that is discarded; the median is printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One item only
    #[arg(long, value_enum)]
    only: Option<Item>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Item {
    /// One client of 100 on the full graph masks its vector, from its neighbours' shares to packed bytes
    Mask,
    /// A 32-byte secret, 67 of 100
    Shamir,
    /// 100 clients on the full graph, 10 lost before their upload
    Session100,
    /// 1000 clients with 48 neighbours, 100 lost before their upload
    Session1000,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let wants = |item| arguments.only.is_none_or(|only| only == item);
    if wants(Item::Shamir) {
        shamir(arguments)?;
    }
    if wants(Item::Mask) {
        masks(arguments)?;
    }
    if wants(Item::Session100) {
        session("session-100", Topology::full(100, 67)?, 10, arguments)?;
    }
    if wants(Item::Session1000) {
        session("session-1000", Topology::new(1000, 48, 27)?, 100, arguments)?;
    }
    Ok(())
}

fn now() -> anyhow::Result<Duration> {
    cpu_time().context("this system does not tell CPU time")
}

/// CPU seconds of `work` are added to `total`.
fn timed<T>(total: &mut f64, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let start = now()?;
    let result = work();
    *total += now()?.saturating_sub(start).as_secs_f64();
    Ok(result)
}

fn median(arguments: &Arguments, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    work()?;
    let mut seconds = Vec::new();
    for _ in 0..arguments.repeats {
        let mut total = 0.0;
        timed(&mut total, &mut work)??;
        seconds.push(total);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

fn report(item: &str, fields: serde_json::Value) -> anyhow::Result<()> {
    let mut result = json!({ "name": "undertone", "version": env!("CARGO_PKG_VERSION"), "item": item });
    let result_fields = result.as_object_mut().context("a result is an object")?;
    if let serde_json::Value::Object(fields) = fields {
        result_fields.extend(fields);
    }
    println!("RESULT {result}");
    Ok(())
}

fn shamir(arguments: &Arguments) -> anyhow::Result<()> {
    const TIMES: u32 = 100;
    let holders: Vec<u32> = (0..100).collect();
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let seconds = median(arguments, || {
        for _ in 0..TIMES {
            measure::share_and_recover(&[7; 32], 67, &holders, &mut rng)?;
        }
        Ok(())
    })?;
    report(
        "shamir-67-of-100",
        json!({ "cpu_ms": 1000.0 * seconds / f64::from(TIMES) }),
    )
}

fn masks(arguments: &Arguments) -> anyhow::Result<()> {
    let modulus = Modulus::new(1 << 32)?;
    let mut vector = ModularVec::zeros(modulus, usize::try_from(arguments.dim)?);
    let seconds = median(arguments, || Ok(measure::mask(&mut vector, 100)?))?;
    let words = 100.0 * arguments.dim as f64;
    report(
        "masks-100",
        json!({ "dim": arguments.dim, "cpu_ms": 1000.0 * seconds, "gwords_per_cpu_s": words / seconds / 1e9 }),
    )?;
    let odd = Modulus::new((1 << 32) - 5)?;
    let mut vector = ModularVec::zeros(odd, usize::try_from(arguments.dim)?);
    let seconds = median(arguments, || Ok(measure::mask(&mut vector, 100)?))?;
    report(
        "masks-100-odd-modulus",
        json!({ "dim": arguments.dim, "cpu_ms": 1000.0 * seconds, "gwords_per_cpu_s": words / seconds / 1e9 }),
    )
}

/// CPU seconds by side and step.
#[derive(Default)]
struct Spent {
    client_share: f64,
    client_mask: f64,
    client_unmask: f64,
    server_relay: f64,
    server_add: f64,
    server_finish: f64,
    up: usize,
}

/// A session by both machines, message by message, in one thread: every message is encoded and decoded on the side that does
/// so. `lost` clients are lost after they shared.
fn session(item: &str, topology: Topology, lost: u32, arguments: &Arguments) -> anyhow::Result<()> {
    let terms = Terms::new(arguments.dim, 1 << 32, ThreatModel::HonestButCurious)?;
    let context = Context {
        run: [1; 32],
        round: 1,
        attempt: 0,
        shard: 0,
        plan_digest: [0; 32],
        model_digest: [0; 32],
        terms,
    };
    let mut rng = ChaCha20Rng::from_seed([2; 32]);
    let mut spent = Spent::default();
    let mut server = Server::new(context, Trust::Anyone)?;
    let mut clients = Vec::new();
    for _ in 0..topology.clients() {
        let identity = SigningIdentity::generate(&mut rng);
        let public = identity.public();
        let joined = timed(&mut spent.client_share, || {
            Client::join_simulation(identity, context, &mut rng)
        })?;
        timed(&mut spent.server_relay, || server.receive_keys(&joined.1))??;
        clients.push((joined.0, public));
    }
    timed(&mut spent.server_relay, || {
        server.close_keys(|_| Ok(topology), &mut rng)
    })??;
    let mut placed = Vec::new();
    for (client, public) in clients {
        placed.push((server.index_of(&public).context("every client joined")?, client));
    }
    for (index, client) in &mut placed {
        let roster = timed(&mut spent.server_relay, || server.roster(*index))??;
        let shares = timed(&mut spent.client_share, || {
            client.receive_roster(&roster, &mut rng)
        })??;
        spent.up += shares.encode().len();
        timed(&mut spent.server_relay, || server.receive_shares(&shares))??;
    }
    timed(&mut spent.server_relay, || server.close_shares())??;
    let survivors = (topology.clients() - lost) as usize;
    let modulus = Modulus::new(terms.modulus())?;
    let mut vector = ModularVec::zeros(modulus, usize::try_from(arguments.dim)?);
    let (one, mut ones) = (vec![1u32; vector.len()], 0u64);
    for (index, client) in placed.iter_mut().take(survivors) {
        vector.clear();
        vector.add_at(0, &one)?;
        ones += 1;
        let shares = timed(&mut spent.server_relay, || server.relayed_shares(*index))??;
        let input = timed(&mut spent.client_mask, || {
            client.receive_shares(&shares, &mut vector)
        })??;
        spent.up += input.encode().len();
        timed(&mut spent.server_add, || server.receive_input(&input))??;
    }
    timed(&mut spent.server_relay, || server.close_inputs())??;
    for (index, client) in placed.iter_mut().take(survivors) {
        let request = timed(&mut spent.server_relay, || server.unmask(*index))??;
        let shares = timed(&mut spent.client_unmask, || client.receive_unmask(&request))??;
        spent.up += shares.encode().len();
        timed(&mut spent.server_relay, || server.receive_unmask(&shares))??;
    }
    let outcome = timed(&mut spent.server_finish, || server.finish())??;
    ensure!(
        outcome.sum.iter().all(|x| x == ones),
        "the sum is not the number of survivors"
    );
    let n = f64::from(topology.clients());
    let masks = f64::from(topology.clients() - lost) + f64::from(lost * topology.neighbours());
    report(
        item,
        json!({
            "clients": topology.clients(), "neighbours": topology.neighbours(), "threshold": topology.threshold(),
            "lost": lost, "dim": arguments.dim,
            "server_cpu_s": spent.server_relay + spent.server_add + spent.server_finish,
            "server_relay_cpu_s": spent.server_relay, "server_add_cpu_s": spent.server_add,
            "server_finish_cpu_s": spent.server_finish, "server_masks": masks,
            "client_share_cpu_ms": 1000.0 * spent.client_share / n,
            "client_mask_cpu_ms": 1000.0 * spent.client_mask / survivors as f64,
            "client_unmask_cpu_ms": 1000.0 * spent.client_unmask / survivors as f64,
            "up_bytes_a_client": spent.up as f64 / n,
            "peak_rss_mb": peak_rss_mb(),
        }),
    )
}
