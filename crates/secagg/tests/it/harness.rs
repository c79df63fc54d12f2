//! A session whose messages a test can see, change and hold back.

pub(crate) mod forge;
pub(crate) mod issuer;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{
    AdvertiseKeys, Consistency, MaskedInput, RelayedShares, Roster, ShareKeys, Unmask, UnmaskShares,
};
use undertone_secagg::{
    Client, Context, Floors, Result, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust,
};

pub(crate) const PLAIN: ThreatModel = ThreatModel::HonestButCurious;
pub(crate) const ACTIVE: ThreatModel = ThreatModel::Active;

pub(crate) fn everybody(_: u32) -> bool {
    true
}

/// `n` clients that have joined, with `k` neighbours each and a threshold of `t`.
pub(crate) fn lab(threat_model: ThreatModel, n: u32, k: u32, t: u32) -> Lab {
    Lab::joined(
        context(20, 1000, threat_model),
        Topology::new(n, k, t).unwrap(),
        11,
    )
}

/// The machine refuses, and says so in these words.
#[track_caller]
pub(crate) fn refused<T>(answer: Result<T>, words: &str) {
    match answer {
        Ok(_) => panic!("not refused: {words}"),
        Err(error) => assert!(error.to_string().contains(words), "{error}, and not: {words}"),
    }
}

pub(crate) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(crate) fn below(rng: &mut ChaCha20Rng, range: u32) -> u32 {
    rng.next_u32() % range
}

pub(crate) fn context(length: u64, modulus: u64, threat_model: ThreatModel) -> Context {
    Context {
        run: [1; 32],
        round: 2,
        attempt: 3,
        shard: 4,
        plan_digest: [5; 32],
        model_digest: [6; 32],
        terms: Terms::new(length, modulus, threat_model).unwrap(),
    }
}

pub(crate) fn vector(context: &Context, rng: &mut ChaCha20Rng) -> ModularVec {
    let modulus = Modulus::new(context.terms.modulus()).unwrap();
    let residues: Vec<u64> = (0..context.terms.length())
        .map(|_| rng.next_u64() % modulus.get())
        .collect();
    ModularVec::from_residues(modulus, &residues).unwrap()
}

/// Trust in exactly these identities.
pub(crate) fn listed(identities: &[SigningIdentity]) -> Trust {
    Trust::Listed(Arc::new(identities.iter().map(SigningIdentity::public).collect()))
}

/// A server and clients by place in the roster, at the end of some round.
pub(crate) struct Lab {
    pub(crate) context: Context,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// The seeds of the clients' identities, for a server that works with some of them.
    pub(crate) seeds: Vec<[u8; 32]>,
    pub(crate) keys: Vec<AdvertiseKeys>,
    pub(crate) inputs: Vec<Vec<u64>>,
    pub(crate) rng: ChaCha20Rng,
}

impl Lab {
    /// Clients of a simulation that have joined a closed roster.
    pub(crate) fn joined(context: Context, topology: Topology, seed: u64) -> Self {
        Self::with(context, topology, |all| (listed(all), None), seed)
    }

    /// Devices with these floors, each of which knows all the others.
    pub(crate) fn on_devices(context: Context, topology: Topology, floors: &Floors, seed: u64) -> Self {
        let trusting = |all: &mut [SigningIdentity]| {
            let floors = floors.clone().with_trust(listed(all)).unwrap();
            (listed(all), Some(floors))
        };
        Self::with(context, topology, trusting, seed)
    }

    /// Clients that have joined a closed roster. `demands` gets their identities, to which it may attach
    /// certificates, and returns whom the server trusts, and the
    /// floors of the clients, if they have any.
    pub(crate) fn with(
        context: Context,
        topology: Topology,
        demands: impl FnOnce(&mut [SigningIdentity]) -> (Trust, Option<Floors>),
        seed: u64,
    ) -> Self {
        let mut rng = rng(seed);
        let mut seeds = vec![[0; 32]; topology.clients() as usize];
        seeds.iter_mut().for_each(|seed| rng.fill_bytes(seed));
        let mut identities: Vec<SigningIdentity> = seeds.iter().map(SigningIdentity::from_seed).collect();
        let (trust, floors) = demands(&mut identities);
        let mut server = Server::new(context, trust).unwrap();
        let mut found = BTreeMap::new();
        for (identity, seed) in identities.into_iter().zip(seeds) {
            let (client, keys) = match &floors {
                Some(floors) => Client::join(identity.clone(), context, floors.clone(), &mut rng),
                None => Client::join_simulation(identity.clone(), context, &mut rng),
            };
            server.receive_keys(&keys).unwrap();
            found.insert(identity.public(), (client, seed, keys));
        }
        server.close_keys(|_| Ok(topology), &mut rng).unwrap();
        let mut placed: Vec<_> = found
            .into_iter()
            .map(|(id, parts)| (server.index_of(&id).unwrap(), parts))
            .collect();
        placed.sort_by_key(|(index, _)| *index);
        let (mut clients, mut seeds, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for (_, (client, seed, key)) in placed {
            clients.push(client);
            seeds.push(seed);
            keys.push(key);
        }
        Self {
            context,
            server,
            clients,
            seeds,
            keys,
            inputs: Vec::new(),
            rng,
        }
    }

    pub(crate) fn n(&self) -> u32 {
        self.clients.len() as u32
    }

    pub(crate) fn roster(&self, index: u32) -> Roster {
        self.server.roster(index).unwrap()
    }

    /// The client's answer to the roster, not yet at the server.
    pub(crate) fn share(&mut self, index: u32) -> Result<ShareKeys> {
        let roster = self.roster(index);
        self.clients[index as usize].receive_roster(&roster, &mut self.rng)
    }

    /// Round 1 by those whom `there` names.
    pub(crate) fn shared(mut self, there: impl Fn(u32) -> bool) -> Self {
        for index in (0..self.n()).filter(|index| there(*index)) {
            let message = self.share(index).unwrap();
            self.server.receive_shares(&message).unwrap();
        }
        self.server.close_shares().unwrap();
        self
    }

    /// Round 1 by everybody, with the message of one client changed.
    pub(crate) fn shared_by(mut self, liar: u32, change: impl Fn(&mut ShareKeys)) -> Self {
        for index in 0..self.n() {
            let mut message = self.share(index).unwrap();
            if index == liar {
                change(&mut message);
            }
            self.server.receive_shares(&message).unwrap();
        }
        self.server.close_shares().unwrap();
        self
    }

    pub(crate) fn relayed(&self, index: u32) -> RelayedShares {
        self.server.relayed_shares(index).unwrap()
    }

    /// Masks `vector` for a client, whose message is not yet at the server.
    pub(crate) fn mask_vector(&mut self, index: u32, vector: &mut ModularVec) -> Result<MaskedInput> {
        let relayed = self.relayed(index);
        self.clients[index as usize].receive_shares(&relayed, vector)
    }

    /// A client's masked input, not yet at the server, and the vector behind it.
    pub(crate) fn mask(&mut self, index: u32) -> Result<(MaskedInput, Vec<u64>)> {
        let mut input = vector(&self.context, &mut self.rng);
        let plain = input.iter().collect();
        Ok((self.mask_vector(index, &mut input)?, plain))
    }

    /// Round 2 by those whom `there` names.
    pub(crate) fn uploaded(mut self, there: impl Fn(u32) -> bool) -> Self {
        self.inputs = vec![Vec::new(); self.clients.len()];
        for index in (0..self.n()).filter(|index| there(*index)) {
            let (message, plain) = self.mask(index).unwrap();
            self.server.receive_input(&message).unwrap();
            self.inputs[index as usize] = plain;
        }
        self.server.close_inputs().unwrap();
        self
    }

    pub(crate) fn sign(&mut self, index: u32) -> Result<Consistency> {
        let survivors = self.server.survivors().unwrap();
        self.clients[index as usize].receive_survivors(&survivors)
    }

    /// Round 2.5 by those whom `there` names.
    pub(crate) fn signed(mut self, there: impl Fn(u32) -> bool) -> Self {
        for index in (0..self.n()).filter(|index| there(*index)) {
            let message = self.sign(index).unwrap();
            self.server.receive_consistency(&message).unwrap();
        }
        self.server.close_signatures().unwrap();
        self
    }

    pub(crate) fn request(&self, index: u32) -> Unmask {
        self.server.unmask(index).unwrap()
    }

    pub(crate) fn answer(&mut self, index: u32) -> Result<UnmaskShares> {
        let request = self.request(index);
        self.clients[index as usize].receive_unmask(&request)
    }

    /// Masks `vector` for a client and brings it to the server.
    pub(crate) fn upload(&mut self, index: u32, vector: &mut ModularVec) -> MaskedInput {
        let input = self.mask_vector(index, vector).unwrap();
        self.server.receive_input(&input).unwrap();
        input
    }

    /// Round 3 by these clients, whose answers `change` may replace.
    pub(crate) fn answers(
        &mut self,
        clients: impl IntoIterator<Item = u32>,
        change: impl Fn(u32, UnmaskShares) -> UnmaskShares,
    ) {
        for index in clients {
            let answer = change(index, self.answer(index).unwrap());
            self.server.receive_unmask(&answer).unwrap();
        }
    }

    /// Round 3 by these clients.
    pub(crate) fn answered(&mut self, clients: impl IntoIterator<Item = u32>) {
        self.answers(clients, |_, answer| answer);
    }

    /// The sum of the vectors that were uploaded.
    pub(crate) fn expected(&self) -> Vec<u64> {
        let modulus = self.context.terms.modulus();
        let mut sum = vec![0; self.context.terms.length() as usize];
        for input in &self.inputs {
            for (sum, x) in sum.iter_mut().zip(input) {
                *sum = (*sum + x) % modulus;
            }
        }
        sum
    }
}
