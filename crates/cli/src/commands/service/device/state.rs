//! The state of a device that runs, in a file beside it: the database itself is open in one process at a time.

use std::path::Path;

use undertone_device::{Device, DeviceError};
use undertone_run_directory::files;

use super::settings::Settings;
use super::show::StatusView;

/// The name of the file in the folder of the device. It holds what `device status` shows, but for the person, and no text.
pub(super) const FILE: &str = "status.json";

/// Writes the state of an open device, which its owner alone can read.
pub(super) fn write(folder: &Path, device: &Device) -> anyhow::Result<()> {
    // PRIVACY: the subject stands in no file of the device in plain form.
    let view = StatusView::of(device)?.without_subject();
    Ok(files::write_secret_json(&folder.join(FILE), &view)?)
}

/// The state of the device in a folder. While another process runs it, this is the state before its present session.
pub(super) fn read(folder: &Path) -> anyhow::Result<StatusView> {
    let path = folder.join(FILE);
    match Settings::read(folder)?.open(folder) {
        Ok(device) => StatusView::of(&device),
        Err(error) if is_busy(&error) && files::exists(&path) => {
            let view: StatusView = files::read_json(&path)?;
            Ok(view.while_running())
        }
        Err(error) => Err(error),
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(DeviceError::Busy(_)))
}
