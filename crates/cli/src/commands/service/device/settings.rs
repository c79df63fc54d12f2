//! The settings of a device in its folder: the service, the keys that it trusts, and its minimum requirements.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use undertone_device::{Device, DeviceSettings, FileKeyStore, HttpTransport};
use undertone_run_directory::files;

/// The name of the file in the folder of the device.
const FILE: &str = "settings.json";

/// The name of the folder of keys in the folder of the device.
const KEYS: &str = "keys";

/// The settings of a device, as `enrol` keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Settings(pub(super) DeviceSettings);

impl Deref for Settings {
    type Target = DeviceSettings;

    fn deref(&self) -> &DeviceSettings {
        &self.0
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
        for name in [super::state::FILE, FILE] {
            let path = folder.join(name);
            if files::exists(&path) {
                std::fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
            }
        }
        for empty in [folder.join(KEYS), PathBuf::from(folder)] {
            // A folder with files of somebody else stays.
            let _ = std::fs::remove_dir(empty);
        }
        Ok(())
    }

    /// Opens the device of the folder.
    pub(super) fn open(&self, folder: &Path) -> anyhow::Result<Device> {
        let keystore = FileKeyStore::open(folder.join(KEYS))?;
        Ok(Device::open(self.config(folder, Box::new(keystore))?)?)
    }

    /// The way to the service, or to the one at another address.
    pub(super) fn transport(&self, server: Option<&str>) -> anyhow::Result<HttpTransport> {
        Ok(self.0.transport(server)?)
    }
}
