//! A device in a folder of its own, and the service that it talks to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undertone_device::{
    AlwaysMet, Clock, Device, DeviceConfig, Ended, Example, FileKeyStore, NetworkLost, Reply, Request, Stop,
    Transport,
};
use undertone_protocol::{Code, Enrol, Enrolled, limits, read, verify_proof, write};

use crate::harness;
use crate::harness::{POPULATION, START, Service, TIMER_S, floors};

/// A clock that a test turns, and that sleeping turns too.
#[derive(Clone)]
pub(crate) struct TestClock(pub(crate) Arc<AtomicU64>);

impl Clock for TestClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// A device in a folder of its own.
pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: TestClock,
}

/// A text that must be in no file in clear. Its words are not in the vocabulary.
pub(crate) const CANARY: &str = "zyzzyva quagga. The cat sat. A dog ran. The dog sat. A cat ran.";

impl Lab {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: TestClock(Arc::new(AtomicU64::new(START - 2 * TIMER_S * 1000))),
        }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    pub(crate) fn config_of(&self, store: &Path, keys: &Path) -> DeviceConfig {
        let keystore = Box::new(FileKeyStore::open(keys).unwrap());
        let setup = harness::setup(floors());
        let mut config = DeviceConfig::new(store, POPULATION, keystore);
        config.board_keys = setup.board_keys;
        config.trusted_task_keys = setup.task_keys;
        config.issuers = setup.issuers;
        config.floors = setup.floors;
        config.clock = Box::new(self.clock.clone());
        config
    }

    pub(crate) fn open(&self) -> Device {
        Device::open(self.config_of(&self.store(), &self.keys())).unwrap()
    }

    /// An enrolled device with texts, at the time at which it may take part.
    pub(crate) fn ready(&self) -> Device {
        let mut device = self.open();
        self.clock.0.store(START, Ordering::SeqCst);
        add_texts(&device);
        device.enrol(&mut Enroller, "an invitation", None).unwrap();
        device
    }
}

pub(crate) fn add_texts(device: &Device) {
    // Enough texts, so that neither side of the split is empty.
    for number in 0..12 {
        let text = format!("{CANARY} Number {number}.");
        let example = Example {
            text: &text,
            collected_ms: START - 1000,
            expires_ms: START + 1_000_000_000,
        };
        device.examples().add(example).unwrap();
    }
}

/// A service that only enrols.
pub(crate) struct Enroller;

impl Transport for Enroller {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        assert_eq!(request.target, format!("/v1/p/{POPULATION}/enrol"));
        let enrol: Enrol = read("it", &request.body, limits::MAX_MESSAGE).unwrap();
        let key = enrol.device_key.clone().try_into().unwrap();
        let body = undertone_device::enrolment_body(&enrol);
        verify_proof(undertone_protocol::Label::Enrolment, &key, &body, &enrol.proof).unwrap();
        if enrol.invitation != "an invitation" {
            return Ok(harness::refuse(403, Code::BadCertificate));
        }
        Ok(Reply {
            status: 200,
            offset: None,
            body: write(&Enrolled {
                certificate: Some(harness::certificate(&key)),
            }),
        })
    }
}

/// A hook before a request, which may lose it.
pub(crate) type Hook<'a> = Box<dyn FnMut(&Request) -> Result<(), NetworkLost> + 'a>;

/// The service in memory, with a hook before every request.
pub(crate) struct Wire<'a> {
    pub(crate) service: &'a mut Service,
    pub(crate) clock: TestClock,
    pub(crate) before: Hook<'a>,
}

impl Transport for Wire<'_> {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        (self.before)(request)?;
        self.service.now = self.clock.now_ms();
        Ok(self.service.handle(request))
    }
}

pub(crate) fn run_with<'a>(
    lab: &Lab,
    device: &mut Device,
    service: &'a mut Service,
    before: impl FnMut(&Request) -> Result<(), NetworkLost> + 'a,
) -> Ended {
    let mut wire = Wire {
        service,
        clock: lab.clock.clone(),
        before: Box::new(before),
    };
    device.run(&mut wire, &AlwaysMet, &Stop::default()).unwrap().ended
}

pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&file, target).unwrap();
    }
}
