//! The kinds of requests, the points at which a device leaves, and the manners in which a network treats a message.

use undertone_device::{Method, Request};

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Board,
    SessionKeys,
    CheckIn,
    Blob,
    Join,
    Next,
    Shares,
    Consistency,
    Upload,
    Probe,
    Commit,
    Unmask,
    Abort,
}

impl Kind {
    /// The kinds of messages that a session of a plain sum sends.
    pub(crate) const PLAIN: [Self; 7] = [
        Self::Board,
        Self::CheckIn,
        Self::Blob,
        Self::Join,
        Self::Next,
        Self::Upload,
        Self::Commit,
    ];

    /// The kinds of messages that a session of a secure sum sends beside those.
    pub(crate) const SECURE: [Self; 4] = [Self::SessionKeys, Self::Shares, Self::Consistency, Self::Unmask];

    pub(crate) fn of(request: &Request) -> Self {
        let path = request.target.split('?').next().unwrap_or_default();
        match (request.method, path.rsplit('/').next().unwrap_or_default()) {
            (_, "board") => Self::Board,
            (_, "session-keys") => Self::SessionKeys,
            (_, "check-in") => Self::CheckIn,
            (_, "join") => Self::Join,
            (_, "next") => Self::Next,
            (_, "shares") => Self::Shares,
            (_, "consistency") => Self::Consistency,
            (Method::Head, "upload") => Self::Probe,
            (_, "upload") => Self::Upload,
            (_, "commit") => Self::Commit,
            (_, "unmask") => Self::Unmask,
            (_, "abort") => Self::Abort,
            _ => Self::Blob,
        }
    }
}

/// The six points at which a device drops out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The update of the device is ready, and nothing was sent.
    BeforeReady,
    /// The device has joined: in the lobby of its group, or before the upload of a plain sum.
    Lobby,
    /// The device has the roster, and has dealt no shares.
    BeforeShares,
    /// Half of a chunk was sent.
    MidUpload,
    /// The whole update was accepted.
    AfterCommit,
    /// The device is asked for the shares that open the sum.
    BeforeUnmask,
}

impl Point {
    pub(crate) const ALL: [Self; 6] = [
        Self::BeforeReady,
        Self::Lobby,
        Self::BeforeShares,
        Self::MidUpload,
        Self::AfterCommit,
        Self::BeforeUnmask,
    ];

    /// `true` if the device leaves instead of sending a request of this kind.
    pub(crate) fn is_before(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::BeforeReady, Kind::Join)
                | (Self::BeforeShares, Kind::Shares)
                | (Self::MidUpload, Kind::Upload)
                | (Self::BeforeUnmask, Kind::Unmask)
        )
    }

    /// `true` if the device leaves after the reply to a request of this kind.
    pub(crate) fn is_after(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Lobby, Kind::Join) | (Self::AfterCommit, Kind::Commit)
        )
    }

    /// `true` if a plain session passes the point.
    pub(crate) fn is_plain(self) -> bool {
        !matches!(self, Self::BeforeShares | Self::BeforeUnmask)
    }
}

/// The treatment of a message by the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The message arrives twice, and the device sees the second reply.
    Duplicated,
    /// The message arrives after five other messages.
    Reordered,
    /// The message arrives this number of milliseconds later.
    Delayed(u64),
    /// The message arrives after copies of it that are cut at every class of bytes.
    Truncated,
    /// The message arrives after a copy of it under the path of another session.
    Replayed,
}

/// The lengths at which a body is cut: all of a short one; the first, the last and 64 others of a long one.
pub(crate) fn cuts(length: usize) -> Vec<usize> {
    if length <= 96 {
        return (0..length).collect();
    }
    let mut cuts: Vec<usize> = (0..16).chain((0..64).map(|part| part * length / 64)).collect();
    cuts.extend(length - 16..length);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
