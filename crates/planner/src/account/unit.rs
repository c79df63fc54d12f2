//! The unit of a guarantee: one user, or one example.

use clap::ValueEnum;
use undertone_accounting::Adjacency;

/// The record that two neighbouring data sets differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Unit {
    /// Protect one user, with all data of that user.
    User,
    /// Protect one example. A user with several examples has a weaker guarantee.
    Example,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Example => "example",
        }
    }
}

/// The relation between neighbours, in words. Without a unit, the words ask for one.
pub(super) fn relation(adjacency: Adjacency, unit: Option<Unit>) -> String {
    let unit = unit.map_or("record that the sampling draws (--unit)", Unit::name);
    let relation = match adjacency {
        Adjacency::AddOrRemoveOne => "add-or-remove",
        Adjacency::ReplaceOne => "replace",
        Adjacency::ZeroOut => "zero out",
    };
    format!("{relation} one {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relation_of_users_is_that_of_the_accountant() {
        for adjacency in [
            Adjacency::AddOrRemoveOne,
            Adjacency::ReplaceOne,
            Adjacency::ZeroOut,
        ] {
            assert_eq!(relation(adjacency, Some(Unit::User)), adjacency.to_string());
        }
    }
}
