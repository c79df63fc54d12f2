//! The settings of a device as text: the service, the keys that it trusts, and its minimum requirements.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_protocol::{Digest32, TrustedKeys};

use crate::device::DeviceConfig;
use crate::error::{DeviceError, Result};
use crate::floors::{Neighbours, PolicyFloors};
#[cfg(feature = "http")]
use crate::http::HttpTransport;
use crate::keystore::KeyStore;

/// The settings of a device, as an app ships them: in JSON, compiled into the app or signed with it.
///
/// PRIVACY: the keys and the minimum requirements decide which tasks the device follows. They must come with the app, never from a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSettings {
    /// The address of the service, such as `https://fl.example.org`.
    pub server: String,
    /// The population.
    pub population: String,
    /// The public keys of the service.
    pub keys: ServiceKeys,
    /// The minimum requirements. Without them the compiled ones hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floors: Option<FloorSettings>,
    /// A root of certificates of TLS, in PEM. Without it the public roots hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// `true` to allow plain HTTP to another machine: for tests in closed networks.
    #[serde(default)]
    pub insecure: bool,
    /// Evidence of the platform, in hexadecimal digits, for tasks that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// The version of the app, which tasks can ask for.
    pub client_version: u32,
}

/// The public keys of a service, each in 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceKeys {
    /// The key that signs boards.
    pub board: KeyList,
    /// The key that signs plans.
    pub plans: KeyList,
    /// The key that signs certificates.
    pub issuer: KeyList,
}

/// One public key, or the old and the new one while a service changes its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyList {
    /// One key.
    One(String),
    /// Each of these keys counts.
    Several(Vec<String>),
}

impl KeyList {
    fn trusted(&self, name: &'static str) -> Result<TrustedKeys> {
        let digits = match self {
            Self::One(digits) => std::slice::from_ref(digits),
            Self::Several(all) => &all[..],
        };
        if digits.is_empty() {
            return Err(DeviceError::value(name, "at least one key", "none"));
        }
        let keys: Result<Vec<Digest32>> = digits.iter().map(|digits| key(name, digits)).collect();
        Ok(TrustedKeys::new(keys?))
    }
}

/// The minimum requirements of a device. A value that is left out has its compiled value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FloorSettings {
    /// Min number of reports that end a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_goal: Option<u64>,
    /// Min number of devices in a sum that the server sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_group: Option<u32>,
    /// Min noise multiplier of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_noise_multiplier: Option<f64>,
    /// Max planned epsilon of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// Max delta at which that epsilon may be stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delta: Option<f64>,
    /// `true` if the server must not see single updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_secagg: Option<bool>,
    /// Max planned zCDP cost (rho) of all tasks together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population_rho: Option<f64>,
    /// Min numbers of clients and of survivors of a secure sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secagg: Option<SecAggFloors>,
    /// The devices whose keys this one accepts in a secure sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<NeighbourKind>,
}

/// Min numbers of a secure sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecAggFloors {
    /// Min number of clients.
    pub min_clients: u32,
    /// Min number of clients whose input is in the sum.
    pub min_survivors: u32,
}

/// The devices whose keys this one accepts in a secure sum; see [`Neighbours`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourKind {
    /// Devices with a certificate.
    Certified,
    /// All devices.
    Anyone,
}

impl FloorSettings {
    /// The floors, with the compiled value of each that is left out.
    ///
    /// # Errors
    /// Numbers of a secure sum that no secure sum can have.
    pub(crate) fn policy(&self) -> Result<PolicyFloors> {
        let compiled = PolicyFloors::COMPILED;
        let secagg = match self.secagg {
            None => compiled.secagg,
            Some(floors) => compiled
                .secagg
                .with_clients(floors.min_clients, floors.min_survivors)
                .map_err(|error| DeviceError::value("floors.secagg", "numbers of a secure sum", error))?,
        };
        Ok(PolicyFloors {
            min_goal: self.min_goal.unwrap_or(compiled.min_goal),
            min_group: self.min_group.unwrap_or(compiled.min_group),
            min_noise_multiplier: self.min_noise_multiplier.unwrap_or(compiled.min_noise_multiplier),
            max_epsilon: self.max_epsilon.unwrap_or(compiled.max_epsilon),
            max_delta: self.max_delta.unwrap_or(compiled.max_delta),
            require_secagg: self.require_secagg.unwrap_or(compiled.require_secagg),
            population_rho: self.population_rho.unwrap_or(compiled.population_rho),
            secagg,
            neighbours: match self.neighbours {
                None | Some(NeighbourKind::Certified) => Neighbours::Certified,
                Some(NeighbourKind::Anyone) => Neighbours::Anyone,
            },
        })
    }
}

impl DeviceSettings {
    /// Reads settings from JSON.
    ///
    /// # Errors
    /// [`DeviceError::Value`] with the place of the first mistake.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| DeviceError::value("the settings", "the JSON of a device's settings", error))
    }

    /// The configuration of a device in this folder.
    ///
    /// # Errors
    /// A key that has not 64 hexadecimal digits, and floors that no secure sum can have.
    pub fn config(&self, folder: &Path, keystore: Box<dyn KeyStore>) -> Result<DeviceConfig> {
        let mut config = DeviceConfig::new(folder, self.population.as_str(), keystore);
        config.board_keys = self.keys.board.trusted("the key `board`")?;
        config.trusted_task_keys = self.keys.plans.trusted("the key `plans`")?;
        config.issuers = self.keys.issuer.trusted("the key `issuer`")?;
        config.client_version = self.client_version;
        if let Some(evidence) = &self.evidence {
            let got = || DeviceError::value("evidence", "hexadecimal digits", "others");
            config.evidence = bytes(evidence).ok_or_else(got)?;
        }
        if let Some(floors) = &self.floors {
            config.floors = floors.policy()?;
        }
        Ok(config)
    }

    /// The way to the service, or to the one at another address.
    ///
    /// # Errors
    /// An address or a root that is not usable.
    #[cfg(feature = "http")]
    pub fn transport(&self, server: Option<&str>) -> Result<HttpTransport> {
        let server = server.unwrap_or(&self.server);
        match (&self.root, self.insecure && server.starts_with("http://")) {
            (_, true) => HttpTransport::insecure(server),
            (Some(root), false) => HttpTransport::with_roots(server, &[root.as_bytes()]),
            (None, false) => HttpTransport::new(server),
        }
    }
}

/// Bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| Some((16 * digit(pair[0])? + digit(pair[1])?) as u8);
    pairs
        .iter()
        .map(byte)
        .collect::<Option<_>>()
        .filter(|_| rest.is_empty())
}

/// A public key in 64 hexadecimal digits. `name` is its name in errors.
///
/// # Errors
/// [`DeviceError::Value`] for other text.
pub fn key(name: &'static str, digits: &str) -> Result<Digest32> {
    let mut key = [0; 32];
    let plain = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = digits.as_bytes().chunks_exact(2);
    for (byte, pair) in key.iter_mut().zip(pairs).filter(|_| plain) {
        let digit = |place: usize| (pair[place] as char).to_digit(16).unwrap_or_default();
        *byte = (16 * digit(0) + digit(1)) as u8;
    }
    match plain {
        true => Ok(key),
        false => {
            let got = format!("{} characters", digits.chars().count());
            Err(DeviceError::value(name, "64 hexadecimal digits", got))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keystore::MemoryKeyStore;

    fn text(keys: &str, more: &str) -> String {
        format!(
            r#"{{"server": "http://localhost:1", "population": "p", "client_version": 1, "keys": {keys}{more}}}"#
        )
    }

    fn config(text: &str) -> Result<DeviceConfig> {
        DeviceSettings::from_json(text)?.config(Path::new("x"), Box::new(MemoryKeyStore::default()))
    }

    #[test]
    fn keys_are_one_or_several_and_have_64_digits() {
        let (one, two) = ("0f".repeat(32), "A1".repeat(32));
        let single = format!(r#"{{"board": "{one}", "plans": "{two}", "issuer": ["{one}", "{two}"]}}"#);
        let made = config(&text(&single, "")).unwrap();
        assert_eq!(made.board_keys.keys(), [[15; 32]]);
        assert_eq!(made.trusted_task_keys.keys(), [[0xa1; 32]]);
        assert_eq!(made.issuers.keys(), [[15; 32], [0xa1; 32]]);
        for bad in [
            &one[1..],
            &format!("{one}0"),
            &one.replace('f', "g"),
            "",
            &"ä".repeat(32),
        ] {
            let keys = single.replacen(&one, bad, 1);
            let error = config(&text(&keys, "")).err().unwrap().to_string();
            assert!(
                error.contains("the key `board` must be 64 hexadecimal digits"),
                "{error}"
            );
        }
        let none = single.replace(&format!(r#"["{one}", "{two}"]"#), "[]");
        assert!(
            config(&text(&none, ""))
                .err()
                .unwrap()
                .to_string()
                .contains("at least one key")
        );
    }

    #[test]
    fn floors_that_are_left_out_have_their_compiled_values_and_evidence_is_bytes() {
        let key = "00".repeat(32);
        let keys = format!(r#"{{"board": "{key}", "plans": "{key}", "issuer": "{key}"}}"#);
        let compiled = PolicyFloors::COMPILED;
        let made = config(&text(&keys, "")).unwrap().floors;
        assert_eq!(
            (made.min_goal, made.min_group),
            (compiled.min_goal, compiled.min_group)
        );
        let made = config(&text(&keys, r#", "floors": {"min_goal": 7}"#))
            .unwrap()
            .floors;
        assert_eq!((made.min_goal, made.min_group), (7, compiled.min_group));
        assert!(made.require_secagg && matches!(made.neighbours, Neighbours::Certified));
        let made = config(&text(&keys, r#", "evidence": "0aFF""#)).unwrap();
        assert_eq!(made.evidence, [10, 255]);
        for bad in [
            r#", "evidence": "0g""#,
            r#", "evidence": "0a0""#,
            r#", "floors": {"min_goals": 7}"#,
            r#", "floor": {}"#,
            r#", "floors": 3"#,
        ] {
            assert!(config(&text(&keys, bad)).is_err(), "{bad}");
        }
    }
}
