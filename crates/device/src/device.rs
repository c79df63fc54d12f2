//! The device as an app embeds it.

use std::path::PathBuf;
use std::sync::Arc;

use undertone_protocol::{Digest32, RetryWindow, Signed, Signer, TrustedKeys};

use crate::certificates::{check_certificate, ends_ms, enrolled, enrolment, renewal};
use crate::conditions::{Conditions, Stop};
use crate::database::Database;
use crate::doctor::{Finding, Patient, subject_of};
use crate::driver::{Clock, Host, SystemClock, Transport};
use crate::error::{DeviceError, Refusal, Result, shown};
use crate::examples::{ExampleCaps, ExampleStore};
use crate::floors::{Limits, PolicyFloors};
use crate::keystore::{KeyStore, fresh};
use crate::machine::{Ended, LONGEST_ABSENCE, Machine, Outcome, Setup};
use crate::memory::{Memory, Participation};
use crate::wire::{Request, is_path_segment};

/// A session renews the certificate of its device when less than this is left of it, in milliseconds.
const RENEW_MS: u64 = 10 * 24 * 3_600_000;

/// The configuration of a device.
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds the key store")]
pub struct DeviceConfig {
    /// The folder of the device, which must not be part of a backup. One device object has it open at a time.
    pub folder: PathBuf,
    /// The population: up to 100 letters, digits, dots, hyphens and underscores.
    pub population: String,
    /// The keys of the service, which sign boards.
    pub board_keys: TrustedKeys,
    /// The keys whose plans the device follows.
    pub trusted_task_keys: TrustedKeys,
    /// The issuers whose certificates the device accepts, for itself and for its neighbours.
    pub issuers: TrustedKeys,
    /// The floors.
    pub floors: PolicyFloors,
    /// The limits of a session.
    pub limits: Limits,
    /// The caps on the example store.
    pub caps: ExampleCaps,
    /// Max bytes of the cache of blobs.
    pub cache_bytes: u64,
    /// The version of the app.
    pub client_version: u32,
    /// Evidence of the platform for check-ins; empty without attestation.
    pub evidence: Vec<u8>,
    /// The keys of the device.
    pub keystore: Box<dyn KeyStore>,
    /// The clock.
    pub clock: Box<dyn Clock>,
}

impl DeviceConfig {
    /// A configuration with compiled floors, the usual limits and the system's clock. It trusts no key yet.
    #[must_use]
    pub fn new(
        folder: impl Into<PathBuf>,
        population: impl Into<String>,
        keystore: Box<dyn KeyStore>,
    ) -> Self {
        Self {
            folder: folder.into(),
            population: population.into(),
            board_keys: TrustedKeys::default(),
            trusted_task_keys: TrustedKeys::default(),
            issuers: TrustedKeys::default(),
            floors: PolicyFloors::default(),
            limits: Limits::default(),
            caps: ExampleCaps::default(),
            cache_bytes: 256 << 20,
            client_version: 1,
            evidence: Vec::new(),
            keystore,
            clock: Box::new(SystemClock),
        }
    }
}

/// The state of a device, for its person and its host.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// `true` if the device has a certificate that is valid now.
    pub enrolled: bool,
    /// Number of session keys that are certified and not used.
    pub session_keys: usize,
    /// Number of examples for training.
    pub training_examples: u64,
    /// Number of examples that are withheld from training.
    pub withheld_examples: u64,
    /// Number of participations, those that a restored store lost included.
    pub participations: u64,
    /// The planned zCDP cost of all tasks that the device took part in.
    pub spent_rho: f64,
    /// Processor time of the last training, in milliseconds.
    pub last_cpu_ms: u64,
    /// The time for the next session, in milliseconds since 1970; 0 where none is known.
    pub wake_ms: u64,
}

/// A device of one population: its texts, its memory and its sessions.
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds secret keys")]
pub struct Device {
    pub(crate) database: Database,
    keystore: Box<dyn KeyStore>,
    clock: Box<dyn Clock>,
    pub(crate) setup: Arc<Setup>,
    caps: ExampleCaps,
    cache_bytes: u64,
    signer: Signer,
}

impl Device {
    /// Opens the folder of a device, or makes it.
    ///
    /// # Errors
    /// A folder that is open elsewhere, of another population or of another key; a key store or a file that fails.
    pub fn open(config: DeviceConfig) -> Result<Self> {
        let DeviceConfig {
            folder,
            population,
            mut keystore,
            clock,
            ..
        } = config;
        if !is_path_segment(&population) {
            let expected = "up to 100 letters, digits, dots, hyphens and underscores";
            return Err(DeviceError::value("the population", expected, population));
        }
        let database = Database::open(&folder, &population, keystore.as_mut(), clock.now_ms())?;
        let signer = Signer::from_seed(&*keystore.key("device")?);
        Ok(Self {
            database,
            keystore,
            clock,
            setup: Arc::new(Setup {
                population,
                board_keys: config.board_keys,
                task_keys: config.trusted_task_keys,
                issuers: config.issuers,
                floors: config.floors,
                limits: config.limits,
                client_version: config.client_version,
                evidence: config.evidence,
            }),
            caps: config.caps,
            cache_bytes: config.cache_bytes,
            signer,
        })
    }

    /// The texts of the device.
    #[must_use]
    pub fn examples(&self) -> ExampleStore<'_> {
        ExampleStore {
            database: &self.database,
            caps: self.caps,
            now_ms: self.clock.now_ms(),
        }
    }

    /// The public key of the device.
    #[must_use]
    pub fn public_key(&self) -> Digest32 {
        self.signer.public()
    }

    /// Asks the issuer for a certificate. The same device gets the same subject again, so this also renews a certificate.
    ///
    /// `subject` is the device's own claim and counts at the identity level `dev` alone.
    ///
    /// # Errors
    /// A service that cannot be reached or refuses, and a certificate that does not fit this device.
    pub fn enrol(
        &mut self,
        transport: &mut dyn Transport,
        invitation: &str,
        subject: Option<Digest32>,
    ) -> Result<()> {
        let request = enrolment(&self.setup.population, &self.signer, invitation, subject);
        self.ask_for_certificate(transport, &request)
    }

    /// Renews the certificate of this device by a signature of its key, without an invitation. A session does so by itself in the last
    /// ten days of a certificate.
    ///
    /// # Errors
    /// A device without a certificate, a service that cannot be reached or refuses, and a certificate that does not fit this device.
    pub fn renew(&mut self, transport: &mut dyn Transport) -> Result<()> {
        let certificate = self.memory()?.certificate.ok_or_else(|| {
            DeviceError::value(
                "the certificate",
                "there, to be renewed; enrol with an invitation",
                "none",
            )
        })?;
        let request = renewal(&self.setup.population, &self.signer, certificate);
        self.ask_for_certificate(transport, &request)
    }

    /// Renews a certificate that ends soon. A failure is no end of a session: the certificate is still valid.
    fn renew_in_time(&mut self, transport: &mut dyn Transport, certificate: Option<&Signed>) {
        let now = self.clock.now_ms();
        let ends = certificate.and_then(ends_ms);
        let soon = ends.is_some_and(|ends| (now..now.saturating_add(RENEW_MS)).contains(&ends));
        if soon && let Err(error) = self.renew(transport) {
            tracing::warn!(%error, "the certificate of this device was not renewed");
        }
    }

    fn ask_for_certificate(&mut self, transport: &mut dyn Transport, request: &Request) -> Result<()> {
        let reply = transport
            .send(request)
            .map_err(|error| DeviceError::Network(error.to_string()))?;
        if !reply.is_success() {
            let problem = reply.problem().unwrap_or_default();
            return Err(DeviceError::Enrolment {
                code: problem.code().as_str_name(),
                message: shown(&problem.message),
            });
        }
        let refused = |refusal: Refusal| match refusal {
            Refusal::Protocol(error) => DeviceError::Protocol(error),
            refusal => DeviceError::value("the certificate", "one for this device", refusal),
        };
        let certificate = enrolled(&reply.body).map_err(refused)?;
        check_certificate(
            &certificate,
            &self.setup.issuers,
            &self.setup.population,
            &self.signer.public(),
            self.clock.now_ms(),
        )
        .map_err(refused)?;
        self.database.put_certificate(&certificate)
    }

    /// Runs one session, from the board to the verdict. It blocks until the session ends.
    ///
    /// # Errors
    /// A failure of the device's own files or keys. A service that refuses or cannot be reached is an [`Outcome`].
    pub fn run(
        &mut self,
        transport: &mut dyn Transport,
        conditions: &dyn Conditions,
        stop: &Stop,
    ) -> Result<Outcome> {
        let now = self.clock.now_ms();
        if let Some(unmet) = conditions.unmet() {
            let next_window = RetryWindow::between(15 * 60_000, 60 * 60_000);
            return Ok(Outcome {
                ended: Ended::HostNotReady(unmet),
                wake_ms: now.saturating_add(next_window.min_ms),
                next_window,
                down_bytes: 0,
                up_bytes: 0,
            });
        }
        let certificate = self.memory()?.certificate;
        self.renew_in_time(transport, certificate.as_ref());
        let examples = ExampleStore {
            database: &self.database,
            caps: self.caps,
            now_ms: now,
        };
        let memory = self.database.memory(&examples)?;
        let seed = fresh()?;
        let mut machine = Machine::new(Arc::clone(&self.setup), memory, self.signer.clone(), &seed);
        let mut host = Host {
            database: &self.database,
            keystore: self.keystore.as_mut(),
            examples,
            cache_bytes: self.cache_bytes,
            limits: self.setup.limits,
            clock: self.clock.as_ref(),
            conditions,
            stop,
        };
        let outcome = host.drive(&mut machine, transport)?;
        if let Err(error) = host.follow(machine.named(), transport) {
            // The device predicts with the model that it has, and looks again after the next board.
            tracing::warn!(%error, "the release that the board names was not loaded");
        }
        self.database.set_number("wake_ms", outcome.wake_ms)?;
        if outcome.ended != Ended::Unreachable {
            self.database.put_window(&outcome.next_window)?;
        }
        Ok(outcome)
    }

    /// All participations of this device, in the order in which they began.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn participations(&self) -> Result<Vec<Participation>> {
        self.database.participations()
    }

    /// The state of the device.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn status(&self) -> Result<Status> {
        let memory = self.memory()?;
        let enrolled = memory.certificate.as_ref().is_some_and(|certificate| {
            let now = self.clock.now_ms();
            let Setup {
                issuers, population, ..
            } = &*self.setup;
            check_certificate(certificate, issuers, population, &self.public_key(), now).is_ok()
        });
        Ok(Status {
            enrolled,
            session_keys: memory.stock.len(),
            training_examples: memory.training_examples,
            withheld_examples: memory.withheld_examples,
            participations: memory.participations.len() as u64 + memory.lost,
            spent_rho: memory.lost_rho + memory.spent.values().sum::<f64>(),
            last_cpu_ms: self.database.number("cpu_ms")?,
            wake_ms: self.wake_ms()?,
        })
    }

    /// The time for the next session. One beyond the longest absence was drawn under a clock that was wrong, and does not count.
    fn wake_ms(&self) -> Result<u64> {
        let latest = self.clock.now_ms().saturating_add(LONGEST_ABSENCE);
        Ok(Some(self.database.number("wake_ms")?)
            .filter(|wake| *wake <= latest)
            .unwrap_or(0))
    }

    /// Finds the reasons for which the device takes part or not: certificate, clock, memory, pace, service, and each task of the board.
    /// Nothing is trained, sent or counted.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn examine(&self, transport: &mut dyn Transport) -> Result<Vec<Finding>> {
        let memory = self.memory()?;
        let patient = Patient {
            setup: &self.setup,
            memory: &memory,
            device: self.public_key(),
            wake_ms: self.wake_ms()?,
            now_ms: self.clock.now_ms(),
        };
        Ok(patient.examine(transport))
    }

    /// The subject of the device's certificate, by which an operator can bar its person; `None` before the enrolment.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn subject(&self) -> Result<Option<Digest32>> {
        Ok(self.memory()?.certificate.as_ref().and_then(subject_of))
    }

    /// Everything that a session of this device would decide by.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn memory(&self) -> Result<Memory> {
        self.database.memory(&self.examples())
    }

    /// Deletes the folder's files and all keys. Releases that the device contributed to stay, with the guarantee of their ledgers.
    ///
    /// # Errors
    /// A file or a key that cannot be deleted.
    pub fn forget(mut self) -> Result<()> {
        // PRIVACY: without the keys the texts are unreadable, whatever happens to the files.
        let keys = self.keystore.forget();
        self.database.forget().and(keys)
    }
}
