//! The roles of a process.

use std::fmt;
use std::str::FromStr;

use crate::error::ServiceError;

/// The roles that a process takes work for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// `true` if the process listens to devices.
    pub front: bool,
    /// `true` if the process holds shards of the sums of plain attempts.
    pub aggregator: bool,
    /// `true` if the process leads tasks.
    pub leader: bool,
}

impl Roles {
    /// Every role.
    pub const ALL: Self = Self {
        front: true,
        aggregator: true,
        leader: true,
    };

    /// No role: the process ends, and takes no new work.
    pub const NONE: Self = Self {
        front: false,
        aggregator: false,
        leader: false,
    };

    /// The roles of a row of the store. A role of a later program is no role here.
    pub(super) fn of_row(text: &str) -> Self {
        let has = |name: &str| text.split(',').any(|part| part == name);
        Self {
            front: has("front"),
            aggregator: has("aggregator"),
            leader: has("leader"),
        }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (self.front, "front"),
            (self.aggregator, "aggregator"),
            (self.leader, "leader"),
        ];
        let names: Vec<&str> = named
            .into_iter()
            .filter_map(|(has, name)| has.then_some(name))
            .collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Roles {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let mut roles = Self::NONE;
        for part in text.split(',') {
            match part.trim() {
                "front" => roles.front = true,
                "aggregator" => roles.aggregator = true,
                "leader" => roles.leader = true,
                other => {
                    return Err(ServiceError::Value {
                        key: "the roles of a process".to_owned(),
                        expected: "front, aggregator and leader, with commas in between".to_owned(),
                        got: format!("{:?}", other.chars().take(40).collect::<String>()),
                    });
                }
            }
        }
        Ok(roles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written_and_others_are_refused() {
        for text in ["front,aggregator,leader", "front", "aggregator,leader"] {
            let roles: Roles = text.parse().unwrap();
            assert_eq!(roles.to_string(), text);
            assert_eq!(Roles::of_row(text), roles);
        }
        assert_eq!(
            " leader , front".parse::<Roles>().unwrap().to_string(),
            "front,leader"
        );
        for text in ["", "front,", "leaders", "front leader"] {
            let error = text.parse::<Roles>().unwrap_err().to_string();
            assert!(error.contains("front, aggregator and leader"), "{error}");
        }
        assert_eq!(Roles::of_row("auditor,front").to_string(), "front");
        assert_eq!(Roles::of_row(""), Roles::NONE);
    }
}
