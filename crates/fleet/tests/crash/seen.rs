//! Everything that a service was seen to do.

use std::collections::{BTreeMap, BTreeSet};

use undertone_device::{Reply, Request};
use undertone_protocol::{CheckInReply, Digest32, check_in_reply, digest_of, limits, read};

/// The digests of a model and of the end of the ledger.
type Served = (Vec<u8>, Vec<u8>);

/// Everything that the service was seen to do.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// Model and end of the ledger in each assignment, by round.
    pub(crate) assigned: BTreeMap<u64, BTreeSet<Served>>,
    /// The rounds of assignments, in their order.
    pub(crate) rounds: Vec<u64>,
    /// Digests of all blobs that were handed out.
    pub(crate) blobs: BTreeSet<Digest32>,
    /// The rounds at which the service said that the task stands, in their order.
    pub(crate) heads: Vec<u64>,
}

impl Seen {
    pub(crate) fn note(&mut self, request: &Request, reply: &Reply) {
        if reply.status != 200 {
            return;
        }
        if request.target.ends_with("/check-in") {
            let answer: CheckInReply = read("the reply", &reply.body, limits::MAX_MESSAGE).unwrap();
            if let Some(check_in_reply::Reply::Assignment(assignment)) = answer.reply {
                let model = assignment.model.unwrap().sha256;
                let served = self.assigned.entry(assignment.round).or_default();
                served.insert((model, assignment.chain));
                self.rounds.push(assignment.round);
            }
        }
        if request.target.contains("/blobs/") {
            self.blobs.insert(digest_of(&reply.body));
        }
    }
}
