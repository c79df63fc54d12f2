#![doc = include_str!("../README.md")]
//!
//! [`SecureSum`] is the trait of one process that runs a whole session. A deployment exchanges the messages of [`message`] between
//! [`Client`] and [`Server`] instead, in this order:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rand_core::SeedableRng;
//! use undertone_aggregation::{ModularVec, Modulus};
//! use undertone_secagg::{Client, Context, Floors, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust};
//!
//! let terms = Terms::new(2, 1000, ThreatModel::Active)?;
//! let (run, digest) = ([0; 32], [0; 32]);
//! let context = Context { run, round: 1, attempt: 0, shard: 0, plan_digest: digest, model_digest: digest, terms };
//! let mut rng = rand_chacha::ChaCha20Rng::from_seed([7; 32]); // a deployment's is the operating system's
//!
//! // A deployment keeps the compiled numbers of clients; this session is a small one.
//! let identities = [(); 3].map(|()| SigningIdentity::generate(&mut rng));
//! let known = Trust::Listed(Arc::new(identities.iter().map(SigningIdentity::public).collect()));
//! let floors = Floors::COMPILED.with_clients(3, 2)?.with_trust(known.clone())?;
//!
//! let mut server = Server::new(context, known)?;
//! let mut clients = Vec::new();
//! for (identity, value) in identities.into_iter().zip([1u32, 2, 999]) {
//!     let public = identity.public();
//!     let (client, keys) = Client::join(identity, context, floors.clone(), &mut rng);
//!     server.receive_keys(&keys)?;
//!     clients.push((client, public, value));
//! }
//! server.close_keys(|clients| Topology::full(clients, 2), &mut rng)?;
//! for (client, public, _) in &mut clients {
//!     let index = server.index_of(public).expect("it joined");
//!     let roster = server.roster(index)?;
//!     server.receive_shares(&client.receive_roster(&roster, &mut rng)?)?;
//! }
//! server.close_shares()?;
//! for (client, public, value) in &mut clients {
//!     let mut vector = ModularVec::from_residues(Modulus::new(1000)?, &[*value, 5])?;
//!     let index = server.index_of(public).expect("it joined");
//!     let shares = server.relayed_shares(index)?;
//!     server.receive_input(&client.receive_shares(&shares, &mut vector)?)?;
//! }
//! server.close_inputs()?;
//! for (client, _, _) in &mut clients {
//!     server.receive_consistency(&client.receive_survivors(&server.survivors()?)?)?;
//! }
//! server.close_signatures()?;
//! for (client, public, _) in &mut clients {
//!     let index = server.index_of(public).expect("it joined");
//!     let request = server.unmask(index)?;
//!     server.receive_unmask(&client.receive_unmask(&request)?)?;
//! }
//! assert!(server.finish()?.sum.iter().eq([2, 15])); // 1 + 2 + 999 modulo 1000
//! # Ok::<(), undertone_secagg::SecAggError>(())
//! ```
//!
//! The crate draws from the generator that it is given. The wire format, and the attacks with their tests, are in `docs/design/secure-aggregation.md`.
//!
//! Papers: Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
//! CCS 2020 (\[SecAgg+\]); with every client every other's neighbour it is Bonawitz et al., "Practical Secure Aggregation for
//! Privacy-Preserving Machine Learning", CCS 2017 (\[SecAgg\]).

#![forbid(unsafe_code)]

pub mod assurance;
mod bytes;
mod certificate;
mod client;
mod context;
mod error;
mod field;
mod floors;
mod graph;
mod keys;
mod mask;
#[doc(hidden)]
pub mod measure;
mod members;
pub mod message;
mod phase;
mod roster;
mod seal;
mod secure_sum;
mod server;
mod shamir;
mod terms;

pub use certificate::{Certificate, MAX_CERTIFICATE_BYTES, Vouch};
pub use client::Client;
pub use context::{Context, Digest32, PROTOCOL_VERSION, SessionId};
pub use error::{Result, SecAggError};
pub use floors::Floors;
pub use keys::{SigningIdentity, Trust};
pub use members::Members;
pub use phase::{ClientPhase, ServerPhase};
pub use roster::Entry;
pub use secure_sum::{
    DropOut, GraphChoice, Phase, Plain, SecAggPlus, SecureSum, SumOutcome, SumRequest, Traffic,
};
pub use server::{AddedInput, Culprit, Outcome, Server, Ticket, UploadId};
pub use terms::{MAX_CLIENTS, MAX_LENGTH, MAX_MODULUS, Params, Suite, Terms, ThreatModel, Topology};
