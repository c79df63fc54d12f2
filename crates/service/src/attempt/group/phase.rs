//! The phases of a group.

/// A phase of a group, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Devices join.
    Lobby,
    /// Devices are seen once more.
    Keys,
    /// Devices send sealed shares.
    Shares,
    /// Devices send masked vectors.
    Inputs,
    /// Devices sign the set of survivors.
    Signatures,
    /// Devices send the shares that open the sum.
    Unmask,
    /// The sum is there.
    Summed,
    /// There is no sum, and there will be none.
    Failed,
}

impl Phase {
    /// The name in metrics.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lobby => "lobby",
            Self::Keys => "keys",
            Self::Shares => "shares",
            Self::Inputs => "inputs",
            Self::Signatures => "signatures",
            Self::Unmask => "unmask",
            Self::Summed => "summed",
            Self::Failed => "failed",
        }
    }

    /// `true` for the phases that are never left.
    #[must_use]
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Summed | Self::Failed)
    }
}
