//! The phases of a group.

/// A phase of a group, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
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
    const ALL: [Self; 8] = [
        Self::Lobby,
        Self::Keys,
        Self::Shares,
        Self::Inputs,
        Self::Signatures,
        Self::Unmask,
        Self::Summed,
        Self::Failed,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
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
    pub fn is_end(self) -> bool {
        matches!(self, Self::Summed | Self::Failed)
    }

    /// Its number on the wire, from 0.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The phase with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_number() {
        for (number, phase) in (0..).zip(Phase::ALL) {
            assert_eq!(
                (phase.number(), Phase::from_number(number)),
                (number, Some(phase))
            );
        }
        assert_eq!(Phase::from_number(8), None);
        assert!(Phase::ALL.is_sorted() && Phase::Summed.is_end() && !Phase::Unmask.is_end());
    }
}
