//! Devices that are driven by hand, under a virtual clock.

use super::*;

/// The text of one device.
pub(crate) fn texts(number: usize) -> Vec<Zeroizing<String>> {
    let texts = [
        "The cat sat. A dog ran.",
        "A cat ran. The dog sat.",
        "The dog ran. A cat sat. The cat ran.",
    ];
    [texts[number % 3], "The cat ran."]
        .map(|text| Zeroizing::new(text.to_owned()))
        .to_vec()
}

/// One device, driven by hand.
pub(crate) struct Driven {
    pub(crate) machine: Machine,
    pub(crate) event: Option<Event>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) texts: Vec<Zeroizing<String>>,
    pub(crate) rows: Vec<Row>,
    pub(crate) requests: usize,
    /// The reply to the request of this number is lost; `true` if the service never saw the request.
    pub(crate) lose: Option<(usize, bool)>,
    /// The device is lost when it would send to a path with this ending.
    pub(crate) mute: Option<&'static str>,
    /// The device is stopped at its action of this number.
    pub(crate) stop_at: Option<usize>,
    pub(crate) actions: usize,
}

pub(crate) fn device_key(number: usize) -> Signer {
    Signer::from_seed(&[100 + number as u8; 32])
}

/// The seed of a device's first session key.
pub(crate) fn session_seed(number: usize) -> [u8; 32] {
    [150 + number as u8; 32]
}

pub(crate) fn session_public(number: usize) -> Digest32 {
    SigningIdentity::from_seed(&session_seed(number)).public()
}

/// The memory of a device that is enrolled, and has two session keys.
pub(crate) fn memory(number: usize) -> Memory {
    let key = |seed: [u8; 32]| {
        let public = SigningIdentity::from_seed(&seed).public();
        StockedKey {
            seed: Zeroizing::new(seed),
            public,
            certificate: session_certificate(&issuer(), POPULATION, &public),
            not_after_ms: START + 24 * 3_600_000,
        }
    };
    Memory {
        trusted_from_ms: START - 2 * TIMER_S * 1000,
        latest_ms: START - 1,
        certificate: Some(certificate(&device_key(number).public())),
        stock: vec![key(session_seed(number)), key([50 + number as u8; 32])],
        training_examples: 3,
        withheld_examples: 3,
        ..Memory::default()
    }
}

impl Driven {
    pub(crate) fn new(number: usize, floors: PolicyFloors) -> Self {
        Self::with_memory(number, setup(floors), memory(number))
    }

    pub(crate) fn with_memory(number: usize, setup: Setup, memory: Memory) -> Self {
        // Another session of one device has other seeds.
        let seed = Zeroizing::new([200 + number as u8 + 10 * memory.participations.len() as u8; 32]);
        Self {
            machine: Machine::new(Arc::new(setup), memory, device_key(number), &seed),
            event: Some(Event::Wake),
            outcome: None,
            texts: texts(number),
            rows: Vec::new(),
            requests: 0,
            lose: None,
            mute: None,
            stop_at: None,
            actions: 0,
        }
    }

    fn train(&self, job: Job) -> Event {
        let watch = Watch::new(job.cpu_ms());
        Event::Trained(job.run(&self.texts, &watch))
    }

    /// `true` once a participation was written.
    pub(crate) fn has_taken_part(&self) -> bool {
        let is = |row: &Row| matches!(row, Row::Participation { .. });
        self.rows.iter().any(is)
    }

    pub(crate) fn participations(&self) -> Vec<&Participation> {
        let of = |row: &'_ Row| matches!(row, Row::Participation { .. });
        let rows = self.rows.iter().filter(|row| of(row));
        rows.filter_map(|row| match row {
            Row::Participation { row, .. } => Some(row),
            _ => None,
        })
        .collect()
    }

    /// One action, unless the session is over.
    pub(crate) fn turn(&mut self, service: &mut Service) {
        let Some(mut event) = self.event.take() else {
            return;
        };
        if self.stop_at == Some(self.actions) {
            event = Event::Stopped;
        }
        self.actions += 1;
        let action = self.machine.step(service.now, event);
        self.event = Some(match action {
            Action::Done(outcome) => {
                self.outcome = Some(outcome);
                return;
            }
            Action::SleepUntil(until) => {
                assert!(until > service.now);
                Event::Wake
            }
            Action::Persist(row) => {
                self.rows.push(row);
                Event::Persisted
            }
            Action::Train(job) => self.train(*job),
            Action::Http(request) => {
                // PRIVACY: the test of the order. Nothing of an update leaves before the row was written.
                if request.method == Method::Put || request.target.ends_with("/join") {
                    assert!(self.has_taken_part(), "{}", request.target);
                }
                let path = request.target.split('?').next().unwrap();
                if self.mute.is_some_and(|mute| path.ends_with(mute)) {
                    self.outcome = Some(Outcome {
                        ended: Ended::Stopped,
                        next_window: RetryWindow::between(0, 0),
                        wake_ms: 0,
                        down_bytes: 0,
                        up_bytes: 0,
                    });
                    self.event = None;
                    return;
                }
                self.requests += 1;
                match self.lose {
                    Some((number, true)) if number + 1 == self.requests => Event::NetworkLost,
                    Some((number, false)) if number + 1 == self.requests => {
                        service.handle(&request);
                        Event::NetworkLost
                    }
                    _ => Event::Reply(service.handle(&request)),
                }
            }
        });
    }
}

/// Runs devices side by side to their ends.
pub(crate) fn run(service: &mut Service, devices: &mut [Driven]) -> Vec<Ended> {
    for _ in 0..20_000 {
        if devices.iter().all(|device| device.outcome.is_some()) {
            let ended = devices
                .iter()
                .map(|device| device.outcome.as_ref().unwrap().ended.clone());
            return ended.collect();
        }
        service.now += 100;
        for device in devices.iter_mut() {
            device.turn(service);
        }
    }
    panic!("a session does not end");
}

/// Runs one device to its end.
pub(crate) fn run_one(service: &mut Service, device: &mut Driven) -> Ended {
    run(service, std::slice::from_mut(device)).remove(0)
}

/// The update of a plain upload.
pub(crate) fn update(upload: &Uploaded) -> Vec<f32> {
    let values = upload.bytes.as_chunks::<4>().0.iter();
    values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
