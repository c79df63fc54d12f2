//! A group and the devices in it, driven by hand.

use super::*;

pub(super) const MODULUS: u64 = 1000;

pub(super) const PLAIN: ThreatModel = ThreatModel::HonestButCurious;

pub(super) const ACTIVE: ThreatModel = ThreatModel::Active;

pub(super) fn context(threat_model: ThreatModel, length: u64, least: u32, shard: u32) -> Context {
    Context {
        run: [1; 32],
        round: 2,
        attempt: 3,
        shard,
        plan_digest: [5; 32],
        model_digest: [6; 32],
        terms: Terms::new(length, MODULUS, threat_model)
            .and_then(|terms| terms.with_clients(least, 300))
            .unwrap(),
    }
}

pub(super) struct Device {
    pub(super) session: SessionId,
    pub(super) user: ParticipantId,
    pub(super) client: Client,
    pub(super) keys: Vec<u8>,
    /// The place at which the vector of the device has a one.
    pub(super) place: usize,
}

/// A group with its devices, whose vectors have a one at a place of their own.
pub(super) struct Lab {
    pub(super) group: Group,
    pub(super) devices: Vec<Device>,
    pub(super) rng: ChaCha20Rng,
    pub(super) lost: Vec<(SessionId, LostAt)>,
    pub(super) last: Option<Change>,
}

pub(super) fn session(place: usize) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(place as u64).to_le_bytes());
    SessionId(id)
}

impl Lab {
    pub(super) fn new(threat_model: ThreatModel, devices: usize, least: u32) -> Self {
        Self::of_shard(threat_model, devices, least, 0)
    }

    pub(super) fn of_shard(threat_model: ThreatModel, devices: usize, least: u32, shard: u32) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(devices as u64 + u64::from(shard));
        let context = context(threat_model, devices as u64, least, shard);
        let graph = GraphChoice::Full {
            threshold_percent: 60,
        };
        let places = least.max(devices as u32);
        let device = |place| {
            let identity = SigningIdentity::generate(&mut rng);
            let (client, keys) = Client::join_simulation(identity, context, &mut rng);
            Device {
                session: session(place),
                user: ParticipantId::new(1000 + place as u64),
                client,
                keys: keys.encode(),
                place,
            }
        };
        Self {
            devices: (0..devices).map(device).collect(),
            group: Group::new(context, Trust::Anyone, graph, places).unwrap(),
            rng,
            lost: Vec::new(),
            last: None,
        }
    }

    /// Takes a change.
    pub(super) fn changed(&mut self, change: Option<Change>) {
        if let Some(change) = change {
            if let Change::Entered { lost, .. } | Change::Failed { lost, .. } = &change {
                self.lost.extend(lost);
            }
            self.last = Some(change);
        }
    }

    pub(super) fn advance(&mut self) {
        let change = self.group.advance(&mut self.rng);
        self.changed(change);
    }

    pub(super) fn close(&mut self, phase: Phase) {
        let change = self.group.close(phase, &mut self.rng);
        self.changed(change);
    }

    pub(super) fn join(&mut self, who: impl IntoIterator<Item = usize>) {
        for place in who {
            let device = &self.devices[place];
            let joined = self.group.join(device.session, device.user, &device.keys);
            assert_eq!(joined, Ok(Accepted::Now));
            self.advance();
        }
    }

    pub(super) fn mail(&mut self, place: usize) -> Vec<u8> {
        match self.group.next(session(place), Phase::Lobby) {
            Ok(Step::Message(message)) => message,
            other => panic!("device {place}: {other:?}"),
        }
    }

    /// The answer of a device to its mail; nothing at the roll-call.
    pub(super) fn answer(&mut self, place: usize) -> Vec<u8> {
        let phase = self.group.phase();
        if phase == Phase::Keys {
            assert_eq!(self.group.next(session(place), Phase::Lobby), Ok(Step::Wait));
            return Vec::new();
        }
        let mail = self.mail(place);
        let length = self.devices.len();
        let device = &mut self.devices[place];
        match phase {
            Phase::Shares => {
                let roster = Roster::decode(&mail).unwrap();
                let shares = device.client.receive_roster(&roster, &mut self.rng);
                shares.unwrap().encode()
            }
            Phase::Inputs => {
                let relayed = RelayedShares::decode(&mail).unwrap();
                let mut vector = vec![0u64; length];
                vector[device.place] = 1;
                let modulus = Modulus::new(MODULUS).unwrap();
                let mut vector = ModularVec::from_residues(modulus, &vector).unwrap();
                device
                    .client
                    .receive_shares(&relayed, &mut vector)
                    .unwrap()
                    .packed
            }
            Phase::Signatures => {
                let survivors = Survivors::decode(&mail).unwrap();
                device.client.receive_survivors(&survivors).unwrap().encode()
            }
            Phase::Unmask => {
                let request = Unmask::decode(&mail).unwrap();
                device.client.receive_unmask(&request).unwrap().encode()
            }
            other => panic!("no mail in {other:?}"),
        }
    }

    pub(super) fn send(&mut self, place: usize, message: &[u8]) -> Result<Accepted, Refusal> {
        let sent = match self.group.phase() {
            Phase::Inputs => self.group.input(session(place), message),
            _ => self.group.receive(session(place), message),
        };
        self.advance();
        sent
    }

    /// The present phase by these devices; the others are silent until it closes.
    pub(super) fn phase(&mut self, who: impl IntoIterator<Item = usize>) {
        let phase = self.group.phase();
        // All read before the first sends: the last answer ends the phase.
        let answers: Vec<_> = who.into_iter().map(|place| (place, self.answer(place))).collect();
        if phase == Phase::Keys {
            self.advance();
            return self.close(phase);
        }
        for (place, answer) in answers {
            assert_eq!(
                self.send(place, &answer),
                Ok(Accepted::Now),
                "device {place} in {phase:?}"
            );
        }
        self.close(phase);
    }

    /// Checks that the sum is that of these devices.
    pub(super) fn assert_sum(&mut self, included: &[usize]) {
        assert_eq!(self.group.phase(), Phase::Summed, "{:?}", self.last);
        let sum = self.group.seal().unwrap_or_else(|refusal| panic!("{refusal}"));
        let places: Vec<u64> = (0..self.devices.len())
            .map(|place| u64::from(included.contains(&place)))
            .collect();
        assert_eq!(sum.sum.iter().collect::<Vec<_>>(), places);
        let mut users: Vec<u64> = sum.included.iter().map(|one| one.user.get() - 1000).collect();
        users.sort_unstable();
        let expected: Vec<u64> = included.iter().map(|place| *place as u64).collect();
        assert_eq!(users, expected);
        for one in &sum.included {
            assert_eq!(one.session, session((one.user.get() - 1000) as usize));
        }
        assert_eq!(self.group.seal().err(), Some(Refusal::Gone));
    }
}
