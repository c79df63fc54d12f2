//! Every byte that is sent, against an independent reference (lab/peers/secagg/secagg_reference.py, which made the file).

use std::convert::Infallible;

use rand_core::{TryCryptoRng, TryRng};
use serde_json::Value;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::message::{Message, Roster};
use undertone_secagg::{
    Certificate, Client, Context, Server, SigningIdentity, Terms, ThreatModel, Topology, Trust,
};

fn hex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn bytes32(text: &Value) -> [u8; 32] {
    hex(text).try_into().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn small(value: &Value) -> u32 {
    number(value).try_into().unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// A generator that says what the file prescribes, and must be used up.
struct Scripted(std::collections::VecDeque<u8>);

impl Scripted {
    fn new(bytes: impl IntoIterator<Item = u8>) -> Self {
        Self(bytes.into_iter().collect())
    }
}

impl TryRng for Scripted {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("nothing in the protocol draws 32 bits")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut word = [0; 8];
        self.try_fill_bytes(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill_with(|| self.0.pop_front().expect("the script goes on"));
        Ok(())
    }
}

impl TryCryptoRng for Scripted {}

/// The random bytes of a client: two secret keys when it joins, then its seed and the coefficients of both polynomials.
fn script(secrets: &Value) -> Scripted {
    let mut bytes = [
        hex(&secrets["sealing"]),
        hex(&secrets["masking"]),
        hex(&secrets["seed"]),
    ]
    .concat();
    for rows in ["seed_coefficients", "key_coefficients"] {
        for row in secrets[rows].as_array().unwrap() {
            // An element is the upper 61 bits of a word.
            bytes.extend(
                numbers(row)
                    .into_iter()
                    .flat_map(|element| (element << 3).to_le_bytes()),
            );
        }
    }
    Scripted::new(bytes)
}

fn check(case: &Value) {
    let (name, sent, given) = (&case["name"], &case["sent"], &case["context"]);
    let (modulus, length) = (number(&case["modulus"]), number(&case["length"]));
    let active = case["active"].as_bool().unwrap();
    let threat_model = if active {
        ThreatModel::Active
    } else {
        ThreatModel::HonestButCurious
    };
    let n = small(&case["clients"]);
    let terms = Terms::new(length, modulus, threat_model)
        .unwrap()
        .with_clients(small(&case["min_survivors"]), small(&case["max_clients"]))
        .unwrap();
    let context = Context {
        run: bytes32(&given["run"]),
        round: number(&given["round"]),
        attempt: small(&given["attempt"]),
        shard: small(&given["shard"]),
        plan_digest: bytes32(&given["plan_digest"]),
        model_digest: bytes32(&given["model_digest"]),
        terms,
    };
    let topology = Topology::new(n, small(&case["neighbours"]), small(&case["threshold"])).unwrap();
    let mut server = Server::new(context, Trust::Anyone).unwrap();
    let mut devices = Vec::new();
    for (index, secrets) in case["secrets"].as_array().unwrap().iter().enumerate() {
        let (identity, mut rng) = (
            SigningIdentity::from_seed(&bytes32(&secrets["identity"])),
            script(secrets),
        );
        let identity = match &case["certificates"][index] {
            Value::String(bytes) if !bytes.is_empty() => {
                identity.with_certificate(Certificate::new(&hex(&case["certificates"][index])).unwrap())
            }
            _ => identity,
        };
        let (client, keys) = Client::join_simulation(identity, context, &mut rng);
        assert_eq!(
            keys.encode(),
            hex(&sent["keys"][index]),
            "{name}: keys of {index}"
        );
        server.receive_keys(&keys).unwrap();
        devices.push((client, rng));
    }
    // A shuffle whose every draw leaves the last one in its place.
    let mut order = Scripted::new((1..u64::from(n)).rev().flat_map(u64::to_le_bytes));
    server.close_keys(|_| Ok(topology), &mut order).unwrap();
    assert_eq!(
        server.session().unwrap().as_bytes()[..],
        hex(&sent["session"]),
        "{name}: session"
    );
    for (index, (client, rng)) in (0u32..).zip(&mut devices) {
        let roster = server.roster(index).unwrap();
        assert_eq!(roster.root[..], hex(&sent["root"]), "{name}: root");
        if let Some(rosters) = sent["rosters"].as_array() {
            let bytes = hex(&rosters[index as usize]);
            assert_eq!(roster.encode(), bytes, "{name}: roster of {index}");
            assert_eq!(Roster::decode(&bytes).unwrap(), roster);
        }
        let shares = client.receive_roster(&roster, rng).unwrap();
        assert!(rng.0.is_empty(), "{name}: {index} draws what the script holds");
        assert_eq!(
            shares.encode(),
            hex(&sent["shares"][index as usize]),
            "{name}: shares of {index}"
        );
        server.receive_shares(&shares).unwrap();
    }
    server.close_shares().unwrap();
    let lost = numbers(&case["lost"]);
    let survivors: Vec<u32> = (0..n)
        .filter(|index| !lost.contains(&u64::from(*index)))
        .collect();
    for (place, index) in survivors.iter().enumerate() {
        let plain = numbers(&case["inputs_plain"][*index as usize]);
        let mut vector = ModularVec::from_residues(Modulus::new(modulus).unwrap(), &plain).unwrap();
        let relayed = server.relayed_shares(*index).unwrap();
        let input = devices[*index as usize]
            .0
            .receive_shares(&relayed, &mut vector)
            .unwrap();
        assert_eq!(
            input.encode(),
            hex(&sent["inputs"][place]),
            "{name}: masked input of {index}"
        );
        server.receive_input(&input).unwrap();
    }
    server.close_inputs().unwrap();
    if active {
        for (place, index) in survivors.iter().enumerate() {
            let set = server.survivors().unwrap();
            let signature = devices[*index as usize].0.receive_survivors(&set).unwrap();
            assert_eq!(
                signature.encode(),
                hex(&sent["consistency"][place]),
                "{name}: signature of {index}"
            );
            server.receive_consistency(&signature).unwrap();
        }
        server.close_signatures().unwrap();
    }
    for (place, index) in survivors.iter().enumerate() {
        let request = server.unmask(*index).unwrap();
        let answer = devices[*index as usize].0.receive_unmask(&request).unwrap();
        assert_eq!(
            answer.encode(),
            hex(&sent["unmask_shares"][place]),
            "{name}: answer of {index}"
        );
        server.receive_unmask(&answer).unwrap();
    }
    let outcome = server.finish().unwrap();
    assert!(outcome.sum.iter().eq(numbers(&sent["sum"])), "{name}: sum");
    assert!(outcome.included.iter().eq(survivors), "{name}: included");
}

#[test]
fn sessions_of_the_reference_are_replayed_byte_for_byte() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/secagg.json")).unwrap();
    assert_eq!(
        number(&file["protocol_version"]),
        u64::from(undertone_secagg::PROTOCOL_VERSION)
    );
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 5);
    assert!(cases[4]["certificates"].is_array());
    cases.iter().for_each(check);
}
