//! Attack 16 of docs/design/secure-aggregation.md: what stays in memory of a machine that has finished.
//!
//! It reads this process's own memory, as a debugger or a core dump would. Stacks are left out: functions leave copies there
//! that no program without unsafe code can wipe, and the page says so. Linux only; in a process of its own, so that nothing runs beside it.

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::Command;

use hkdf::Hkdf;
use rand_core::{CryptoRng, TryCryptoRng, TryRng};
use sha2::{Digest, Sha256};
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::{Client, Server, SigningIdentity, ThreatModel, Topology, Trust};
use x25519_dalek::{PublicKey, StaticSecret};

use crate::harness::{self, context};

const CLIENTS: u32 = 12;
const HIDE: u8 = 0xa5;

/// 32 bytes that this test may hold without finding them in itself.
struct Hidden(&'static str, [u8; 32]);

impl Hidden {
    fn new(name: &'static str, bytes: &[u8; 32]) -> Self {
        Self(name, bytes.map(|byte| byte ^ HIDE))
    }

    fn shown(&self) -> [u8; 32] {
        self.1.map(|byte| byte ^ HIDE)
    }
}

/// A generator whose draws the test knows and does not hold: byte `i` of draw `n` is a hash of both, hidden.
struct Known(u64);

fn draw(number: u64) -> [u8; 32] {
    let hidden: [u8; 32] = Sha256::digest(number.to_le_bytes()).into();
    hidden.map(|byte| byte ^ HIDE)
}

impl TryRng for Known {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.try_next_u64()? as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut word = [0; 8];
        self.try_fill_bytes(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for bytes in bytes.chunks_mut(32) {
            bytes.copy_from_slice(&draw(self.0)[..bytes.len()]);
            self.0 += 1;
        }
        Ok(())
    }
}

impl TryCryptoRng for Known {}

/// Writable memory of this process that is no stack: each thread's stack lies on a small page that nobody may touch.
fn heaps() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let (mut found, mut guard_end) = (Vec::new(), 0);
    for line in maps.lines() {
        let mut parts = line.split_whitespace();
        let (start, end) = parts.next().unwrap().split_once('-').unwrap();
        let (start, end) = (
            u64::from_str_radix(start, 16).unwrap(),
            u64::from_str_radix(end, 16).unwrap(),
        );
        let rights = parts.next().unwrap();
        let special = line.contains("[stack") || line.contains("[v");
        if rights.starts_with("rw") && !special && start != guard_end {
            found.push((start, end));
        }
        if rights.starts_with("---") && end - start <= 0x10000 {
            guard_end = end;
        }
    }
    found
}

/// The names of the needles whose last 16 bytes lie anywhere: freed memory keeps its last bytes longest.
fn found(needles: &[Hidden]) -> Vec<&'static str> {
    let mut memory = File::open("/proc/self/mem").unwrap();
    let mut first = [false; 256];
    for needle in needles {
        first[usize::from(needle.1[16] ^ HIDE)] = true;
    }
    let mut names = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    for (start, end) in heaps() {
        for at in (start..end).step_by(buffer.len() - 16) {
            let part = &mut buffer[..((end - at) as usize).min(1 << 20)];
            if memory.seek(SeekFrom::Start(at)).is_err() || memory.read_exact(part).is_err() {
                continue;
            }
            for window in part.windows(16).filter(|window| first[usize::from(window[0])]) {
                let matches = |needle: &&Hidden| {
                    let hidden = needle.1[16..].iter();
                    window
                        .iter()
                        .zip(hidden)
                        .all(|(byte, hidden)| byte ^ HIDE == *hidden)
                };
                names.extend(needles.iter().filter(matches).map(|needle| needle.0));
            }
            part.fill(0);
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

fn derived(secret: &[u8], session: &[u8], purpose: &str, a: u32, b: u32) -> [u8; 32] {
    let mut key = [0; 32];
    let info = [
        b"undertone/secagg/1/".as_slice(),
        purpose.as_bytes(),
        &[0],
        &a.to_le_bytes(),
        &b.to_le_bytes(),
    ];
    Hkdf::<Sha256>::new(Some(session), secret)
        .expand_multi_info(&info, &mut key)
        .unwrap();
    key
}

/// A whole session; the needles are the secrets of the client that joined first. Every machine is gone afterwards, but the
/// memory that they used has not been used for anything else.
fn session() -> Vec<Hidden> {
    let context = context(5000, (1 << 32) - 5, ThreatModel::Active);
    let mut rng = harness::rng(16);
    let mut server = Server::new(context, Trust::Anyone).unwrap();
    let mut machines: Vec<(Client, [u8; 32], Box<dyn CryptoRng>)> = Vec::new();
    let mut masking_keys = Vec::new();
    for number in 0..CLIENTS {
        let mut own: Box<dyn CryptoRng> = match number {
            0 => Box::new(Known(1)),
            _ => Box::new(harness::rng(u64::from(number))),
        };
        // The identity is draw 0 of the first client.
        let identity = match number {
            0 => SigningIdentity::from_seed(&draw(0)),
            _ => SigningIdentity::generate(&mut *own),
        };
        let public = identity.public();
        let (client, keys) = Client::join_simulation(identity, context, &mut *own);
        masking_keys.push((public, keys.entry.masking_key));
        server.receive_keys(&keys).unwrap();
        machines.push((client, public, own));
    }
    server.close_keys(|n| Topology::full(n, 7), &mut rng).unwrap();
    for (client, public, own) in &mut machines {
        let roster = server.roster(server.index_of(public).unwrap()).unwrap();
        server
            .receive_shares(&client.receive_roster(&roster, &mut **own).unwrap())
            .unwrap();
    }
    server.close_shares().unwrap();
    let mut vector = ModularVec::zeros(Modulus::new(context.terms.modulus()).unwrap(), 5000);
    // The last one is lost, so that the server recovers its masking key.
    for (client, public, _) in &mut machines[..CLIENTS as usize - 1] {
        let shares = server.relayed_shares(server.index_of(public).unwrap()).unwrap();
        server
            .receive_input(&client.receive_shares(&shares, &mut vector).unwrap())
            .unwrap();
    }
    server.close_inputs().unwrap();
    machines.truncate(CLIENTS as usize - 1);
    for (client, _, _) in &mut machines {
        let survivors = server.survivors().unwrap();
        server
            .receive_consistency(&client.receive_survivors(&survivors).unwrap())
            .unwrap();
    }
    server.close_signatures().unwrap();
    for (client, public, _) in &mut machines {
        let request = server.unmask(server.index_of(public).unwrap()).unwrap();
        server
            .receive_unmask(&client.receive_unmask(&request).unwrap())
            .unwrap();
    }
    let session = server.session().unwrap();
    let own = server.index_of(&machines[0].1).unwrap();
    let mut needles = vec![
        Hidden::new("the identity", &draw(0)),
        Hidden::new("the sealing key", &draw(1)),
        Hidden::new("the masking key", &draw(2)),
        Hidden::new("the seed", &draw(3)),
        Hidden::new(
            "the key of the own mask",
            &derived(&draw(3), session.as_bytes(), "self mask", own, own),
        ),
    ];
    for (public, masking_key) in &masking_keys[1..] {
        let other = server.index_of(public).unwrap();
        let agreed = StaticSecret::from(draw(2)).diffie_hellman(&PublicKey::from(*masking_key));
        let (low, high) = (own.min(other), own.max(other));
        let key = derived(agreed.as_bytes(), session.as_bytes(), "pairwise mask", low, high);
        needles.push(Hidden::new("the key of a pairwise mask", &key));
        needles.push(Hidden::new("an agreed secret", agreed.as_bytes()));
    }
    assert!(server.finish().unwrap().included.contains(own));
    needles
}

/// The other tests of this program hold secrets of their own, so the search is made in a process that runs nothing else.
#[test]
fn attack_16_a_finished_session_leaves_no_secret_on_the_heap() {
    let test = "memory::children::a_process_that_ends_a_session_searches_its_own_memory";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child
        .args([test, "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

mod children {
    use super::*;

    #[test]
    #[ignore = "started by a test of this file"]
    fn a_process_that_ends_a_session_searches_its_own_memory() {
        let needles = session();
        // The secrets are those that the client used: its public keys follow from them.
        assert_eq!(needles.len(), 5 + 2 * (CLIENTS as usize - 1));
        let names = found(&needles);
        assert!(names.is_empty(), "found in memory: {names:?}");
        // The search finds what is there, in memory that is in use and in memory that was given back.
        let planted = needles[3].shown().to_vec();
        assert_eq!(found(&needles), ["the seed"]);
        drop(planted);
        let freed = found(&needles);
        assert!(freed.is_empty() || freed == ["the seed"]);
    }
}
