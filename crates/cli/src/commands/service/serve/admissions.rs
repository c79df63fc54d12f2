//! The options of `undertone serve` that say who may enrol.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use undertone_service::identity::attest::{Admissions, Attestor, NoAttestor, Webhook};
use undertone_service::identity::person::PersonLimits;

/// The rules of enrolment.
#[derive(Debug, clap::Args)]
pub(super) struct AdmissionsArgs {
    /// Ask the verifier at this address about evidence of platforms: it gets a POST in JSON.
    #[arg(long, value_name = "URL")]
    attest_url: Option<String>,
    /// Trust the certificate of the verifier if it comes from this root, in PEM.
    #[arg(long, value_name = "FILE", requires = "attest_url")]
    attest_root: Option<PathBuf>,
    /// Enrol at most this number of new devices per day.
    #[arg(long, value_name = "N", default_value_t = Admissions::PER_DAY)]
    enrolments_per_day: u32,
    /// Let at most this number of people take part with one piece of hardware in 30 days.
    #[arg(long, value_name = "N", default_value_t = Admissions::SUBJECTS_PER_HARDWARE)]
    people_per_hardware: u32,
    #[command(flatten)]
    person: PersonArgs,
}

/// The limits of one person.
#[derive(Debug, clap::Args)]
struct PersonArgs {
    /// Let a person have at most this number of devices that are not revoked.
    #[arg(long, value_name = "N", default_value_t = PersonLimits::default().devices)]
    devices_per_person: u32,
    /// Let an invitation enrol at most this number of devices, revoked ones included.
    #[arg(long, value_name = "N", default_value_t = PersonLimits::default().enrolments)]
    enrolments_per_invitation: u32,
    /// Let a person open at most this number of sessions in one attempt; all but the last were lost before they sent anything.
    #[arg(long, value_name = "N", default_value_t = PersonLimits::default().sessions, value_parser = clap::value_parser!(u32).range(1..))]
    sessions_per_attempt: u32,
    /// Refuse a check-in that comes earlier than this many milliseconds after the last one of the same person; 0 for no limit.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = PersonLimits::default().interval)]
    check_in_interval: u64,
}

impl PersonArgs {
    fn limits(&self) -> PersonLimits {
        PersonLimits {
            devices: self.devices_per_person,
            enrolments: self.enrolments_per_invitation,
            sessions: self.sessions_per_attempt,
            interval: self.check_in_interval,
        }
    }
}

impl AdmissionsArgs {
    /// The rules, with a verifier where the identity level needs one.
    pub(super) fn rules(&self, attested: bool) -> anyhow::Result<Admissions> {
        let attestor: Arc<dyn Attestor> = match (&self.attest_url, attested) {
            (None, true) => bail!("--identity attested needs a verifier of evidence; give --attest-url URL"),
            (Some(_), false) => bail!("--attest-url is asked with --identity attested alone"),
            (None, false) => Arc::new(NoAttestor),
            (Some(url), true) => {
                let root = self.attest_root.as_ref().map(|path| {
                    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
                });
                Arc::new(Webhook::new(url, root.transpose()?.as_deref())?)
            }
        };
        let rules = Admissions::new(attestor).with_limits(self.enrolments_per_day, self.people_per_hardware);
        Ok(rules.with_person_limits(self.person.limits()))
    }
}
