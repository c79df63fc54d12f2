//! The device and the predictor as objects.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use undertone_device as device;
use undertone_device::{
    Clock, DeviceSettings, Example, FileKeyStore, HttpTransport, KeyStore, Stop, SystemClock,
};
use undertone_protocol::{Digest32, digest_of};

use crate::host::{Host, HostConditions, HostKeys, Keys};
use crate::types::{Condition, Evaluation, Failure, Model, Outcome, Participation, Prediction, State};

/// The name of the folder of keys in the folder of a device, as in `undertone device`.
const KEYS: &str = "keys";

struct Open {
    device: device::Device,
    transport: HttpTransport,
}

/// A device of one population, in a folder that must not be part of a backup.
///
/// Any thread may use it. One call at a time works on it, and another one fails at once with `Busy`. `stop` and `setUnmet` never wait.
#[derive(uniffi::Object)]
pub struct Device {
    open: Mutex<Option<Open>>,
    host: Option<Arc<dyn Host>>,
    stop: Mutex<Option<Stop>>,
    unmet: Mutex<BTreeSet<Condition>>,
}

/// A released model in memory, ready to predict. It stays usable when its device is closed. Several threads may predict with it.
#[derive(uniffi::Object)]
pub struct Predictor(device::Predictor);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // These locks guard single values, which are whole after a panic too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn task(bytes: Option<Vec<u8>>) -> Result<Option<Digest32>, Failure> {
    let read = |bytes: Vec<u8>| {
        let got = bytes.len();
        Digest32::try_from(bytes).map_err(|_| Failure::Value(format!("a task must be 32 bytes, got {got}")))
    };
    bytes.map(read).transpose()
}

/// The end of a session, also by a panic.
struct Running<'a>(&'a Device);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *lock(&self.0.stop) = None;
    }
}

impl Device {
    fn locked(&self) -> Result<MutexGuard<'_, Option<Open>>, Failure> {
        match self.open.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::WouldBlock) => Err(Failure::Busy),
            Err(TryLockError::Poisoned(_)) => {
                let message = "the device failed inside before; close it and open its folder again";
                Err(Failure::Files(message.to_owned()))
            }
        }
    }

    fn on<T>(&self, work: impl FnOnce(&mut Open) -> Result<T, Failure>) -> Result<T, Failure> {
        work(self.locked()?.as_mut().ok_or(Failure::Forgotten)?)
    }
}

#[uniffi::export]
impl Device {
    /// Opens the device in a folder, or makes it. `settings` is JSON: the service, the population, and the keys that the app trusts.
    /// Without `keys` the keys are in files of the folder that only their owner can read.
    #[uniffi::constructor(default(host = None, keys = None))]
    pub fn open(
        folder: String,
        settings: String,
        host: Option<Arc<dyn Host>>,
        keys: Option<Arc<dyn Keys>>,
    ) -> Result<Arc<Self>, Failure> {
        let folder = Path::new(&folder);
        let settings = DeviceSettings::from_json(&settings)?;
        let transport = settings.transport(None)?;
        let keys: Box<dyn KeyStore> = match keys {
            Some(keys) => Box::new(HostKeys(keys)),
            None => Box::new(FileKeyStore::open(folder.join(KEYS))?),
        };
        let device = device::Device::open(settings.config(folder, keys)?)?;
        Ok(Arc::new(Self {
            open: Mutex::new(Some(Open { device, transport })),
            host,
            stop: Mutex::new(None),
            unmet: Mutex::new(BTreeSet::new()),
        }))
    }

    /// Gets a certificate from the service, by an invitation. `subject` counts with the identity level `dev` alone.
    #[uniffi::method(default(subject = None))]
    pub fn enrol(&self, invitation: String, subject: Option<String>) -> Result<(), Failure> {
        let subject = subject.map(|name| digest_of(name.as_bytes()));
        self.on(|open| Ok(open.device.enrol(&mut open.transport, &invitation, subject)?))
    }

    /// Renews the certificate while it is valid. A session does so by itself in the last ten days.
    pub fn renew(&self) -> Result<(), Failure> {
        self.on(|open| Ok(open.device.renew(&mut open.transport)?))
    }

    /// Gives a text of the person to the device, which seals it. `collected_ms` is the time of its writing, in milliseconds since 1970;
    /// 0 is now. `expires_ms` is the time of its deletion; 0 is the latest that the device allows.
    #[uniffi::method(default(collected_ms = 0, expires_ms = 0))]
    pub fn add(&self, text: String, collected_ms: u64, expires_ms: u64) -> Result<(), Failure> {
        let or = |value: u64, other: u64| if value == 0 { other } else { value };
        self.on(|open| {
            Ok(open.device.examples().add(Example {
                text: &text,
                collected_ms: or(collected_ms, SystemClock.now_ms()),
                expires_ms: or(expires_ms, u64::MAX),
            })?)
        })
    }

    /// Deletes all texts.
    pub fn clear(&self) -> Result<(), Failure> {
        self.on(|open| Ok(open.device.examples().clear()?))
    }

    /// Runs one session and waits for its end. Do not start another one before `wakeMs`.
    pub fn run(&self) -> Result<Outcome, Failure> {
        self.on(|open| {
            let stop = Stop::default();
            *lock(&self.stop) = Some(stop.clone());
            let _running = Running(self);
            let conditions = HostConditions {
                host: self.host.clone(),
                unmet: &self.unmet,
            };
            let outcome = open.device.run(&mut open.transport, &conditions, &stop)?;
            Ok((&outcome).into())
        })
    }

    /// Stops the session that runs. It does not wait, and may be called from a callback.
    pub fn stop(&self) {
        if let Some(stop) = &*lock(&self.stop) {
            stop.request();
        }
    }

    /// Sets the conditions that are not met now. It does not wait, and may be called from a callback.
    pub fn set_unmet(&self, conditions: Vec<Condition>) {
        *lock(&self.unmet) = conditions.into_iter().collect();
    }

    /// The state of the device.
    pub fn state(&self) -> Result<State, Failure> {
        self.on(|open| {
            let status = open.device.status()?;
            Ok(State {
                enrolled: status.enrolled,
                public_key: open.device.public_key().to_vec(),
                session_keys: status.session_keys as u64,
                training_examples: status.training_examples,
                withheld_examples: status.withheld_examples,
                participations: status.participations,
                spent_rho: status.spent_rho,
                last_cpu_ms: status.last_cpu_ms,
                wake_ms: status.wake_ms,
            })
        })
    }

    /// Everything that the device ever sent: the rounds for which it may have sent an update, in their order.
    pub fn participations(&self) -> Result<Vec<Participation>, Failure> {
        self.on(|open| Ok(open.device.participations()?.iter().map(Into::into).collect()))
    }

    /// The released models that the device holds, the newest first.
    pub fn models(&self) -> Result<Vec<Model>, Failure> {
        self.on(|open| Ok(open.device.models()?.iter().map(Into::into).collect()))
    }

    /// Measures the model of a task, or the newest one, on the texts that the device withholds. Nothing is sent.
    #[uniffi::method(default(task = None))]
    pub fn evaluate(&self, task: Option<Vec<u8>>) -> Result<Evaluation, Failure> {
        let task = self::task(task)?;
        self.on(|open| {
            let measured = open.device.evaluate(task.as_ref())?;
            Ok(Evaluation {
                examples: measured.examples,
                words: measured.words,
                loss: measured.loss,
                top1: measured.top1,
                in_vocabulary_top1: measured.in_vocabulary_top1,
            })
        })
    }

    /// Loads the model of a task, or the newest one, to predict with it.
    #[uniffi::method(default(task = None))]
    pub fn predictor(&self, task: Option<Vec<u8>>) -> Result<Arc<Predictor>, Failure> {
        let task = self::task(task)?;
        self.on(|open| Ok(Arc::new(Predictor(open.device.predictor(task.as_ref())?))))
    }

    /// Deletes the texts, the memory and the keys of the device. Released models stay as they are.
    pub fn forget(&self) -> Result<(), Failure> {
        let open = self.locked()?.take().ok_or(Failure::Forgotten)?;
        Ok(open.device.forget()?)
    }
}

#[uniffi::export]
impl Predictor {
    /// The task, the round and the time of the model.
    pub fn model(&self) -> Model {
        self.0.model().into()
    }

    /// The next words with the highest probabilities after a text. The last word of the text counts as complete.
    #[uniffi::method(default(count = 5))]
    pub fn predict(&self, text: String, count: u32) -> Result<Vec<Prediction>, Failure> {
        let words = self.0.predict(&text, count as usize)?;
        Ok(words
            .into_iter()
            .map(|each| Prediction {
                word: each.word,
                probability: each.probability,
            })
            .collect())
    }
}
