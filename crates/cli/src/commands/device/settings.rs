//! The settings of a device in its folder: the service, the keys that it trusts, and its minimum requirements.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use undertone_device::{Device, DeviceConfig, FileKeyStore, HttpTransport, Neighbours, PolicyFloors};
use undertone_protocol::{Digest32, TrustedKeys};
use undertone_run::files;
use undertone_service::admin::PublicKeys;

/// The name of the file in the folder of the device.
const FILE: &str = "settings.json";

/// The name of the folder of keys in the folder of the device.
const KEYS: &str = "keys";

/// The settings of a device, as `enrol` keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) server: String,
    pub(super) population: String,
    pub(super) keys: PublicKeys,
    /// Without them the compiled requirements hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) floors: Option<Floors>,
    /// A root of certificates of TLS, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<String>,
    #[serde(default)]
    pub(super) insecure: bool,
    pub(super) client_version: u32,
}

/// The minimum requirements of a device, in a file. A key that is left out has its compiled value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Floors {
    /// Min number of reports that end a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_goal: Option<u64>,
    /// Min number of devices in a sum that the server sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_group: Option<u32>,
    /// Min noise multiplier of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_noise_multiplier: Option<f64>,
    /// Max planned epsilon of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_epsilon: Option<f64>,
    /// Max delta at which that epsilon may be stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delta: Option<f64>,
    /// `true` if the server must not see single updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    require_secagg: Option<bool>,
    /// Max planned zCDP cost (rho) of all tasks together.
    #[serde(skip_serializing_if = "Option::is_none")]
    population_rho: Option<f64>,
    /// Min numbers of clients and of survivors of a secure sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    secagg: Option<SecAggFloors>,
    /// The devices whose keys this one accepts in a secure sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours: Option<NeighboursName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecAggFloors {
    min_clients: u32,
    min_survivors: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NeighboursName {
    Certified,
    Anyone,
}

impl Floors {
    fn policy(&self) -> anyhow::Result<PolicyFloors> {
        let compiled = PolicyFloors::COMPILED;
        let secagg = match self.secagg {
            None => compiled.secagg,
            Some(floors) => compiled
                .secagg
                .with_clients(floors.min_clients, floors.min_survivors)?,
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
                None | Some(NeighboursName::Certified) => Neighbours::Certified,
                Some(NeighboursName::Anyone) => Neighbours::Anyone,
            },
        })
    }
}

impl Settings {
    /// The settings in the folder of a device.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        if !files::exists(&path) {
            bail!(
                "{} holds no device; make one with `undertone device enrol`",
                folder.display()
            );
        }
        Ok(files::read_json(&path)?)
    }

    /// Writes the settings into the folder of the device.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        Ok(files::write_json(&folder.join(FILE), self)?)
    }

    /// Deletes what this command wrote into the folder of a device, and the folder where nothing else is in it.
    pub(super) fn delete(folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(FILE);
        std::fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
        for empty in [folder.join(KEYS), PathBuf::from(folder)] {
            // A folder with files of somebody else stays.
            let _ = std::fs::remove_dir(empty);
        }
        Ok(())
    }

    /// Opens the device of the folder.
    pub(super) fn open(&self, folder: &Path) -> anyhow::Result<Device> {
        let keystore = FileKeyStore::open(folder.join(KEYS))?;
        let trusted =
            |name: &str, digits: &str| Ok::<_, anyhow::Error>(TrustedKeys::new([key(name, digits)?]));
        let mut config = DeviceConfig::new(folder, self.population.as_str(), Box::new(keystore));
        config.board_keys = trusted("board", &self.keys.board)?;
        config.trusted_task_keys = trusted("plans", &self.keys.plans)?;
        config.issuers = trusted("issuer", &self.keys.issuer)?;
        config.client_version = self.client_version;
        if let Some(floors) = &self.floors {
            config.floors = floors.policy()?;
        }
        Ok(Device::open(config)?)
    }

    /// The way to the service, or to the one at another address.
    pub(super) fn transport(&self, server: Option<&str>) -> anyhow::Result<HttpTransport> {
        let server = server.unwrap_or(&self.server);
        Ok(
            match (&self.root, self.insecure && server.starts_with("http://")) {
                (_, true) => HttpTransport::insecure(server)?,
                (Some(root), false) => HttpTransport::with_roots(server, &[root.as_bytes()])?,
                (None, false) => HttpTransport::new(server)?,
            },
        )
    }
}

/// A public key in hexadecimal digits.
pub(in crate::commands) fn key(name: &str, digits: &str) -> anyhow::Result<Digest32> {
    let byte = |place: usize| {
        let pair = digits.get(2 * place..2 * place + 2)?;
        let plain = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
    match bytes.and_then(|bytes| Digest32::try_from(bytes).ok()) {
        Some(key) if digits.len() == 64 => Ok(key),
        _ => bail!("the key `{name}` of the keys file: expected 64 hexadecimal digits"),
    }
}
