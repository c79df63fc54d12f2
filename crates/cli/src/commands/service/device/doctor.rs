//! `undertone device doctor`: the reasons for which a device takes part or not.

use std::path::Path;

use anyhow::bail;
use serde::Serialize;
use undertone_device::{Diagnosis, Finding, Ineligible, Subject};
use undertone_present::numbers::hex;

use super::settings::Settings;
use super::show::ineligible;
use crate::output::{Output, facts};

/// One finding as it is shown.
#[derive(Debug, Serialize)]
struct View {
    /// `server`, `version`, `keys`, `clock`, `certificate`, `memory`, `pace` or `task`.
    subject: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// `good`, `later` or `bad`.
    condition: &'static str,
    message: String,
    /// The thing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Examines the device of a folder.
pub(super) fn run(folder: &Path, server: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let settings = Settings::read(folder)?;
    let mut transport = settings.transport(server)?;
    let device = settings.open(folder)?;
    let found = device.examine(&mut transport)?;
    let views: Vec<View> = found.iter().map(View::new).collect();
    output.show(&views, || facts(views.iter().map(View::row)))?;
    let bad = views.iter().filter(|view| view.condition == "bad").count();
    match bad {
        0 => Ok(()),
        1 => bail!("one thing must be done before this device takes part"),
        more => bail!("{more} things must be done before this device takes part"),
    }
}

impl View {
    fn new(finding: &Finding) -> Self {
        let (subject, task) = match &finding.subject {
            Subject::Server => ("server", None),
            Subject::Version => ("version", None),
            Subject::Keys => ("keys", None),
            Subject::Clock => ("clock", None),
            Subject::Certificate => ("certificate", None),
            Subject::Memory => ("memory", None),
            Subject::Pace => ("pace", None),
            Subject::Task(task) => ("task", Some(hex(task).chars().take(8).collect())),
            _ => ("other", None),
        };
        let (condition, message, remedy) = match &finding.condition {
            Diagnosis::Good(what) => ("good", what.clone(), None),
            Diagnosis::Later(what) => ("later", what.clone(), None),
            Diagnosis::Bad { fault, remedy } => ("bad", fault.clone(), Some(remedy.clone())),
            Diagnosis::Ineligible(reason) => {
                let remedy = remedy(*reason);
                let condition = if remedy.is_some() { "bad" } else { "later" };
                (condition, ineligible(*reason), remedy.map(str::to_owned))
            }
        };
        Self {
            subject,
            task,
            condition,
            message,
            remedy,
        }
    }

    fn row(&self) -> (&'static str, String) {
        let task = self
            .task
            .as_ref()
            .map_or_else(String::new, |task| format!("{task}: "));
        let remedy = self
            .remedy
            .as_ref()
            .map_or_else(String::new, |remedy| format!("; to do: {remedy}"));
        (
            self.subject,
            format!("{}, {task}{}{remedy}", self.condition, self.message),
        )
    }
}

/// The thing that the person of the device can do about a reason; `None` where time alone helps, or nothing does.
fn remedy(reason: Ineligible) -> Option<&'static str> {
    match reason {
        Ineligible::Version => Some("install a newer version of the app"),
        Ineligible::TooFewExamples => Some("add texts with `undertone device add`"),
        Ineligible::TooLarge => Some("the app decides how many bytes a session may move; ask its maker"),
        Ineligible::OldRound => Some("the service was put back to an earlier state; tell its operator"),
        _ => None,
    }
}
