//! Secure aggregation: CPU seconds of masking, of sharing a secret, and of whole sessions, client and server apart.

use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, anyhow, ensure};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use rayon::prelude::*;
use serde_json::json;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{MaskedInput, MaskedInputRef, Message};
use undertone_secagg::{
    Client, Context, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust, UploadId, measure,
};

use crate::bench::usage::{clocked, median, peak_rss_mb};

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
    /// Masked vectors at the server, on one thread and on all
    Inputs,
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
    if wants(Item::Inputs) {
        inputs(arguments)?;
    }
    if wants(Item::Session100) {
        session("session-100", Topology::full(100, 67)?, 10, arguments)?;
    }
    if wants(Item::Session1000) {
        session("session-1000", Topology::new(1000, 48, 27)?, 100, arguments)?;
    }
    Ok(())
}

/// CPU seconds of `work` are added to `total`.
fn timed<T>(total: &mut f64, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let (result, seconds) = clocked(work)?;
    *total += seconds;
    Ok(result)
}

fn median_of(arguments: &Arguments, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    work()?;
    let mut seconds = Vec::new();
    for _ in 0..arguments.repeats {
        let (done, took) = clocked(&mut work)?;
        done?;
        seconds.push(took);
    }
    Ok(median(&mut seconds))
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
    let seconds = median_of(arguments, || {
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
    let words = 100.0 * arguments.dim as f64;
    for (item, modulus) in [("masks-100", 1 << 32), ("masks-100-odd-modulus", (1 << 32) - 5)] {
        let mut vector = ModularVec::zeros(Modulus::new(modulus)?, usize::try_from(arguments.dim)?);
        let seconds = median_of(arguments, || Ok(measure::mask(&mut vector, 100)?))?;
        report(
            item,
            json!({ "dim": arguments.dim, "cpu_ms": 1000.0 * seconds, "gwords_per_cpu_s": words / seconds / 1e9 }),
        )?;
    }
    Ok(())
}

/// Clients of a session whose server adds their vectors and does no more.
const UPLOADS: u32 = 8;

/// A session that waits for inputs, and a masked input of each client as it arrives.
fn uploads(dim: u64, modulus: u64) -> anyhow::Result<(Server, Vec<Vec<u8>>)> {
    let context = context(Terms::new(dim, modulus, ThreatModel::HonestButCurious)?);
    let mut rng = ChaCha20Rng::from_seed([3; 32]);
    let mut server = Server::new(context, Trust::Anyone)?;
    let mut clients = Vec::new();
    for _ in 0..UPLOADS {
        let identity = SigningIdentity::generate(&mut rng);
        let public = identity.public();
        let (client, keys) = Client::join_simulation(identity, context, &mut rng);
        server.receive_keys(&keys)?;
        clients.push((client, public));
    }
    server.close_keys(|clients| Topology::full(clients, 4), &mut rng)?;
    for (client, public) in &mut clients {
        let index = server.index_of(public).context("every client joined")?;
        server.receive_shares(&client.receive_roster(&server.roster(index)?, &mut rng)?)?;
    }
    server.close_shares()?;
    let mut vector = ModularVec::zeros(Modulus::new(modulus)?, usize::try_from(dim)?);
    let mut inputs = Vec::new();
    for (client, public) in &mut clients {
        vector.clear();
        let shares = server.relayed_shares(server.index_of(public).context("every client joined")?)?;
        inputs.push(client.receive_shares(&shares, &mut vector)?.encode());
    }
    Ok((server, inputs))
}

/// Takes one input in three steps, as a service does.
fn take_input(server: &Mutex<Server>, bytes: &[u8]) -> anyhow::Result<()> {
    let locked = || server.lock().map_err(|_| anyhow!("a thread panicked"));
    let input = MaskedInputRef::decode(bytes)?;
    let ticket = locked()?.admit_input(&input.session, input.index, UploadId([0; 32]))?;
    let added = ticket.add_packed(input.packed)?;
    Ok(locked()?.commit_input(added)?)
}

/// CPU and wall time of the server per byte of a masked input: decoded, hashed and added on one thread; added in place on one
/// thread; added in place on all threads.
fn inputs(arguments: &Arguments) -> anyhow::Result<()> {
    for (name, modulus) in [
        ("2^22", 1u64 << 22),
        ("2^22 - 3", (1 << 22) - 3),
        ("2^32", 1 << 32),
    ] {
        let (mut hashed, mut alone, mut together, mut wall) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=arguments.repeats {
            let (mut server, inputs) = uploads(arguments.dim, modulus)?;
            let bytes: usize = inputs.iter().map(Vec::len).sum();
            let per_byte = |seconds: f64| 1e9 * seconds / bytes as f64;
            let mut seconds = 0.0;
            timed(&mut seconds, || {
                inputs
                    .iter()
                    .try_for_each(|input| server.receive_input(&MaskedInput::decode(input)?))
            })??;
            hashed.push(per_byte(seconds));
            let (server, inputs) = uploads(arguments.dim, modulus)?;
            let (server, mut seconds) = (Mutex::new(server), 0.0);
            timed(&mut seconds, || {
                inputs.iter().try_for_each(|input| take_input(&server, input))
            })??;
            alone.push(per_byte(seconds));
            let (server, inputs) = uploads(arguments.dim, modulus)?;
            let (server, mut seconds, start) = (Mutex::new(server), 0.0, Instant::now());
            timed(&mut seconds, || {
                inputs.par_iter().try_for_each(|input| take_input(&server, input))
            })??;
            wall.push(per_byte(start.elapsed().as_secs_f64()));
            together.push(per_byte(seconds));
        }
        let middle = |times: &mut Vec<f64>| {
            times.remove(0);
            median(times)
        };
        report(
            "inputs",
            json!({
                "modulus": name, "dim": arguments.dim, "inputs": UPLOADS, "threads": rayon::current_num_threads(),
                "received_cpu_ns_per_byte": middle(&mut hashed), "added_cpu_ns_per_byte": middle(&mut alone),
                "added_together_cpu_ns_per_byte": middle(&mut together), "added_together_wall_ns_per_byte": middle(&mut wall),
            }),
        )?;
    }
    Ok(())
}

fn context(terms: Terms) -> Context {
    Context {
        run: [1; 32],
        round: 1,
        attempt: 0,
        shard: 0,
        plan_digest: [0; 32],
        model_digest: [0; 32],
        terms,
    }
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

impl Spent {
    /// CPU seconds of the server.
    fn server(&self) -> f64 {
        self.server_relay + self.server_add + self.server_finish
    }
}

/// CPU seconds of one session on the full graph.
pub(super) struct OneSession {
    pub(super) server: f64,
    pub(super) clients: f64,
}

/// The CPU seconds of a session in one process, by which the same session over a network is judged.
pub(super) fn in_one_process(clients: u32, lost: u32, dim: u64) -> anyhow::Result<OneSession> {
    let spent = play(Topology::full(clients, clients / 2 + 1)?, lost, dim)?;
    Ok(OneSession {
        server: spent.server(),
        clients: spent.client_share + spent.client_mask + spent.client_unmask,
    })
}

/// A session by both machines, message by message, in one thread: every message is encoded and decoded on the side that does
/// so. `lost` clients are lost after they shared.
fn play(topology: Topology, lost: u32, dim: u64) -> anyhow::Result<Spent> {
    let terms = Terms::new(dim, 1 << 32, ThreatModel::HonestButCurious)?;
    let context = context(terms);
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
    let mut vector = ModularVec::zeros(modulus, usize::try_from(dim)?);
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
    Ok(spent)
}

fn session(item: &str, topology: Topology, lost: u32, arguments: &Arguments) -> anyhow::Result<()> {
    let spent = play(topology, lost, arguments.dim)?;
    let survivors = topology.clients() - lost;
    let n = f64::from(topology.clients());
    let masks = f64::from(topology.clients() - lost) + f64::from(lost * topology.neighbours());
    report(
        item,
        json!({
            "clients": topology.clients(), "neighbours": topology.neighbours(), "threshold": topology.threshold(),
            "lost": lost, "dim": arguments.dim,
            "server_cpu_s": spent.server(),
            "server_relay_cpu_s": spent.server_relay, "server_add_cpu_s": spent.server_add,
            "server_finish_cpu_s": spent.server_finish, "server_masks": masks,
            "client_share_cpu_ms": 1000.0 * spent.client_share / n,
            "client_mask_cpu_ms": 1000.0 * spent.client_mask / f64::from(survivors),
            "client_unmask_cpu_ms": 1000.0 * spent.client_unmask / f64::from(survivors),
            "up_bytes_a_client": spent.up as f64 / n,
            "peak_rss_mb": peak_rss_mb(),
        }),
    )
}
