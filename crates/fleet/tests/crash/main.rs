//! Exactly once: processes that are killed, stopped or put back, stores that lose answers, and disks that are full.
//!
//! The fleet lives outside of the service, which is a child process or has a store that fails. What devices were served, what they
//! remember and what the store holds afterwards must agree. `UNDERTONE_CRASH_SEEDS` is the number of seeds of each case, 1 without it;
//! tests of a random time or of many cases have a long part in a module `by_hand`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod agreement;
mod child;
mod cut_commit;
mod exported;
mod failover;
mod full_disk;
mod hooks;
mod inside;
mod lost_answer;
mod order;
mod outside;
mod points;
mod random_times;
mod restored;
mod seen;
#[path = "../../../store/tests/common/postgres.rs"]
mod server;
mod split_brain;
mod task;

/// Number of seeds of each case, from the environment.
fn seeds() -> u64 {
    std::env::var("UNDERTONE_CRASH_SEEDS").map_or(1, |number| number.parse().unwrap())
}
