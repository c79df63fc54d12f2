//! Several processes of one service over one Postgres server: killed, stopped, restarted, and with a server that crashes.
//!
//! Three processes of the service are children of the test, and the fleet goes to all of them. The invariants are those of the crash
//! tests: what devices were served, what they remember and what the store holds must agree. Long parts stand in modules `by_hand`.

#[path = "../crash/agreement.rs"]
#[allow(dead_code, reason = "the crash tests use the rest")]
mod agreement;
mod child;
mod crashes;
mod proxy;
mod restarts;
mod roles;
#[path = "../crash/seen.rs"]
mod seen;
mod service;
#[path = "../crash/task.rs"]
#[allow(dead_code, reason = "the crash tests use the rest")]
mod task;
