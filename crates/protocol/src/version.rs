//! The versions of the protocol.

/// The version of the protocol that this program speaks as a device, and the newest one that it speaks as a service.
const VERSION: u32 = 1;

/// The versions that a service speaks: its newest one and the one before, so that devices of both take part while an app is rolled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    newest: u32,
}

impl Versions {
    /// The versions of this program.
    pub const CURRENT: Self = Self { newest: VERSION };

    /// The versions of a service whose newest one is this. Version 1 is the first.
    #[must_use]
    pub fn up_to(newest: u32) -> Self {
        Self {
            newest: newest.max(1),
        }
    }

    /// `true` if the value of [`PROTOCOL_HEADER`](crate::PROTOCOL_HEADER) names one of these versions, as a decimal number without
    /// anything else.
    #[must_use]
    pub fn speak(self, header: &str) -> bool {
        [self.newest, self.newest - 1]
            .iter()
            .any(|version| *version > 0 && header == version.to_string())
    }
}

impl core::fmt::Display for Versions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.newest {
            1 => write!(f, "version 1"),
            newest => write!(f, "versions {} and {newest}", newest - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_speaks_its_newest_version_and_the_one_before_alone() {
        for newest in 1..200_u32 {
            let versions = Versions::up_to(newest);
            for device in 0..205_u32 {
                let expected = device > 0 && (device == newest || device + 1 == newest);
                assert_eq!(
                    versions.speak(&device.to_string()),
                    expected,
                    "{device} of {newest}"
                );
            }
        }
        for bad in [
            "",
            "01",
            " 1",
            "1 ",
            "+1",
            "1.0",
            "0",
            "-1",
            "one",
            "18446744073709551617",
        ] {
            assert!(!Versions::CURRENT.speak(bad), "{bad:?}");
        }
        assert_eq!(Versions::up_to(0), Versions::CURRENT);
    }

    #[test]
    fn the_header_of_this_program_is_one_of_its_versions() {
        assert!(Versions::CURRENT.speak(crate::PROTOCOL_HEADER.1));
        assert_eq!(crate::PROTOCOL_HEADER.1, VERSION.to_string());
    }
}
