//! Attacks that a device's floors stop before it shares a secret, by their number in docs/design/secure-aggregation.md.

use rand_core::Rng;
use undertone_secagg::assurance::Assumptions;
use undertone_secagg::message::{GivenShare, Message, Roster};
use undertone_secagg::{
    Client, ClientPhase, Context, Floors, Members, Params, SecAggError, ServerPhase, SigningIdentity, Terms,
    ThreatModel, Topology, Trust,
};

use crate::harness::{self, ACTIVE, Lab, PLAIN, context, everybody, forge, listed, refused};

/// A context with this floor of survivors.
fn with_survivors(threat_model: ThreatModel, min_survivors: u32) -> Context {
    let mut context = context(4, 1000, threat_model);
    context.terms = context.terms.with_clients(min_survivors, 1 << 20).unwrap();
    context
}

/// The compiled floors with other bounds on clients and survivors, and on neighbours.
fn floors((clients, survivors): (u32, u32), (min, max): (u32, u32)) -> Floors {
    let floors = Floors::COMPILED.with_clients(clients, survivors).unwrap();
    floors.with_neighbours(min, max).unwrap()
}

/// The error with which a device with `floors` answers an honest roster of this graph.
fn answer(floors: &Floors, context: Context, topology: Topology) -> Option<SecAggError> {
    let mut lab = Lab::on_devices(context, topology, floors, 3);
    let error = lab.share(0).err();
    assert!(error.is_none() || lab.clients[0].phase() == ClientPhase::Aborted);
    error
}

/// The attack of a lying server on an honest-but-curious session, with no corrupt client: half of a client's neighbours
/// hear that it survived, the other half that it is lost. Counts the shares of both its secrets.
fn shares_of_both_kinds(mut lab: Lab, about: u32) -> (u32, u32) {
    let (mut seeds, mut keys) = (0, 0);
    for index in (0..lab.n()).filter(|index| *index != about) {
        let mut request = lab.request(index);
        if index < about {
            request.survivors = Members::of(request.survivors.clients(), |other| other != about);
        }
        let Ok(answer) = lab.clients[index as usize].receive_unmask(&request) else {
            continue;
        };
        match answer.shares.iter().find(|(other, _)| *other == about) {
            Some((_, GivenShare::Seed(_))) => seeds += 1,
            Some((_, GivenShare::MaskingKey(_))) => keys += 1,
            None => {}
        }
    }
    (seeds, keys)
}

#[test]
#[ignore = "slow"]
fn attack_01_a_device_refuses_the_sessions_in_which_a_lying_server_reads_a_vector() {
    // n = 100, k = 22, t = 11: the parameters of the table for an honest-but-curious server.
    let topology = Topology::new(100, 22, 11).unwrap();
    let context = with_survivors(PLAIN, 30);
    let lab = Lab::joined(context, topology, 1)
        .shared(everybody)
        .uploaded(everybody);
    let (seeds, keys) = shares_of_both_kinds(lab, 37);
    assert!(
        seeds >= 11 && keys >= 11,
        "in a simulation the attack works: {seeds} and {keys}"
    );
    // No device takes part, nor in the active session with the same graph, nor where 2 t > k alone holds.
    let compiled = Floors::COMPILED;
    let error = answer(&compiled, context, topology);
    assert!(matches!(error, Some(SecAggError::Demand { .. })), "{error:?}");
    let sparse = floors((20, 10), (12, 1000));
    let active = with_survivors(ACTIVE, 30);
    for (k, t) in [(22, 12), (22, 14), (99, 50), (99, 62)] {
        let topology = Topology::new(100, k, t).unwrap();
        for floors in [&compiled, &sparse] {
            let error = answer(floors, active, topology);
            assert!(
                matches!(error, Some(SecAggError::Floor { .. })),
                "{k} {t}: {error:?}"
            );
        }
    }
    assert!(
        Params::new(active.terms, topology).is_err(),
        "2 t > k in every active session"
    );
}

#[test]
fn attack_04_small_cohorts_are_refused_by_devices_and_server() {
    let floors = floors((9, 5), (9, 12));
    let is_refused = |threat_model, survivors, n, k, t| {
        let topology = Topology::new(n, k, t).unwrap();
        let error = answer(&floors, with_survivors(threat_model, survivors), topology);
        assert!(
            matches!(
                error,
                None | Some(SecAggError::Floor { .. } | SecAggError::Demand { .. })
            ),
            "{error:?}"
        );
        error.is_some()
    };
    assert!(!is_refused(ACTIVE, 5, 10, 9, 7));
    assert!(is_refused(ACTIVE, 5, 8, 7, 6), "too few clients");
    assert!(is_refused(ACTIVE, 4, 10, 9, 7), "too low a floor of survivors");
    assert!(is_refused(ACTIVE, 5, 11, 8, 7), "too few neighbours");
    assert!(
        is_refused(ACTIVE, 5, 14, 13, 9),
        "too many neighbours: each costs a mask"
    );
    assert!(is_refused(ACTIVE, 5, 10, 9, 6), "too low a threshold");
    assert!(is_refused(PLAIN, 5, 10, 9, 7), "no signatures");
    // The server: below its own floor nothing is released, at any point, and the sum is gone.
    let mut lab = Lab::joined(with_survivors(PLAIN, 5), Topology::full(6, 3).unwrap(), 1).shared(everybody);
    for index in 0..4 {
        let (input, _) = lab.mask(index).unwrap();
        lab.server.receive_input(&input).unwrap();
    }
    refused(
        lab.server.close_inputs(),
        "survivors: expected at least 5 clients, got 4",
    );
    assert_eq!(lab.server.phase(), ServerPhase::Aborted);
    assert!(lab.server.unmask(0).is_err() && lab.server.finish().is_err());
}

#[test]
fn attack_04_a_client_refuses_to_unmask_a_sum_over_few() {
    let few = |lab: &mut Lab, holds: &dyn Fn(u32) -> bool| {
        let mut request = lab.request(0);
        request.survivors = Members::of(request.survivors.clients(), holds);
        match lab.clients[0].receive_unmask(&request).err() {
            Some(SecAggError::TooFew { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    // Three of eight would do for the threshold without this one.
    let mut lab = Lab::joined(with_survivors(PLAIN, 2), Topology::new(8, 7, 3).unwrap(), 2)
        .shared(everybody)
        .uploaded(everybody);
    assert_eq!(
        few(&mut lab, &|index| index < 3),
        "survivors among the neighbours"
    );
    // A device counts the survivors that it checked itself: itself and its neighbours on a sparse graph, whatever the server
    // says of the others.
    let floors = floors((7, 7), (6, 12))
        .with_assumptions(Assumptions::new(0.0, 0.0, ACTIVE).unwrap())
        .unwrap();
    let topology = Topology::new(16, 6, 4).unwrap();
    let mut lab = Lab::on_devices(with_survivors(ACTIVE, 7), topology, &floors, 2)
        .shared(everybody)
        .uploaded(everybody);
    let mut survivors = lab.server.survivors().unwrap();
    survivors.survivors = Members::of(16, |index| index != 1);
    refused(
        lab.clients[0].receive_survivors(&survivors),
        "survivors whom this client checked: expected at least 7 clients, got 6",
    );
}

/// A cohort that a lying server invents around few real identities. The first `victims` places are honest clients side by
/// side; around them stand corrupt identities; all the other leaves are zeros.
struct Invented {
    victims: Vec<Client>,
    forged: forge::Forged,
    params: Params,
    context: Context,
}

fn invented(floors: &Floors, claimed: Topology, victims: u32, others: u32) -> Invented {
    let context = with_survivors(ACTIVE, 300);
    let mut rng = harness::rng(6);
    let mut seeds = vec![[0; 32]; (victims + others) as usize];
    seeds.iter_mut().for_each(|seed| rng.fill_bytes(seed));
    let identities: Vec<SigningIdentity> = seeds.iter().map(SigningIdentity::from_seed).collect();
    let floors = floors.clone().with_trust(listed(&identities)).unwrap();
    let n = claimed.clients();
    let mut entries = vec![None; n as usize];
    let mut clients = Vec::new();
    for (place, identity) in (0..victims).zip(&identities) {
        let (client, keys) = Client::join(identity.clone(), context, floors.clone(), &mut rng);
        entries[place as usize] = Some(keys.entry);
        clients.push(client);
    }
    // The others, one half behind the victims and one half before them.
    for (other, seed) in (0..others).zip(&seeds[victims as usize..]) {
        let place = if other % 2 == 0 {
            victims + other / 2
        } else {
            n - 1 - other / 2
        };
        let (sealing, masking) = (forge::agreement_key(&mut rng), forge::agreement_key(&mut rng));
        entries[place as usize] = Some(forge::entry(seed, &context, sealing, masking));
    }
    Invented {
        victims: clients,
        forged: forge::Forged::new(entries),
        params: Params::new(context.terms, claimed).unwrap(),
        context,
    }
}

#[test]
fn attack_04_a_claimed_cohort_of_a_thousand_with_88_identities_is_refused() {
    // 40 victims, 24 other clients on either side of them, 912 leaves of zeros; n = 1000, k = 48, t = 31 are claimed.
    let claimed = Topology::new(1000, 48, 31).unwrap();
    let floors = Floors::COMPILED.with_clients(500, 300).unwrap();
    let sparse = floors.clone().with_neighbours(48, 1000).unwrap();
    // Even under assumptions that the graph satisfies, and that the server breaks.
    let trusting = Assumptions::new(0.05, 0.01, ACTIVE).unwrap();
    let trusting = sparse.clone().with_assumptions(trusting).unwrap();
    for floors in [&floors, &sparse, &trusting] {
        let mut cohort = invented(floors, claimed, 40, 48);
        for (index, victim) in (0..).zip(&mut cohort.victims) {
            let roster = cohort.forged.roster(cohort.params, index);
            assert!(Roster::decode(&roster.encode()).is_ok());
            refused(
                victim.receive_roster(&roster, &mut harness::rng(1)),
                "is 49, but this client demands at least 500",
            );
        }
    }
    // The forged rosters are perfect but for that: a client whose floors count no more than it sees takes part. That the
    // others are real is then the server's word, as the page says.
    let seen = trusting.with_clients(49, 32).unwrap();
    let mut cohort = invented(&seen, claimed, 40, 48);
    assert_eq!(cohort.context.terms.min_survivors(), 300);
    for (index, victim) in (0..).zip(&mut cohort.victims) {
        let roster = cohort.forged.roster(cohort.params, index);
        assert!(victim.receive_roster(&roster, &mut harness::rng(1)).is_ok());
    }
}

#[test]
fn attack_05_invented_clients_are_refused_where_identities_are_known() {
    // The server is the liar, so it lets everybody in.
    let context = with_survivors(ACTIVE, 4);
    let floors = Floors::COMPILED.with_clients(5, 4).unwrap();
    let mut stranger = [0; 32];
    let demands = |all: &mut [SigningIdentity]| {
        stranger = all[0].public();
        (Trust::Anyone, Some(floors.with_trust(listed(&all[1..])).unwrap()))
    };
    let mut lab = Lab::with(context, Topology::full(5, 3).unwrap(), demands, 5);
    let stranger = lab.server.index_of(&stranger).unwrap();
    for index in (0..5).filter(|index| *index != stranger) {
        let name = format!("client {stranger} has an identity that is not on the list of known devices");
        refused(lab.share(index), &name);
    }
}

#[test]
fn attack_05_no_device_accepts_signatures_of_just_anyone() {
    // Floors cannot hold trust in anyone, and without a list they accept nobody.
    let error = Floors::COMPILED.with_trust(Trust::Anyone).unwrap_err();
    assert!(matches!(error, SecAggError::Demand { .. }), "{error}");
    let context = with_survivors(ACTIVE, 30);
    let topology = Topology::full(50, 40).unwrap();
    let mut lab = Lab::with(context, topology, |_| (Trust::Anyone, Some(Floors::COMPILED)), 5);
    for index in 0..50 {
        refused(lab.share(index), "not on the list of known devices");
    }
}

#[test]
fn attack_09_a_roster_that_costs_too_much_is_refused() {
    let narrow = floors((5, 3), (3, 3));
    let error = answer(
        &narrow,
        with_survivors(ACTIVE, 3),
        Topology::new(9, 4, 3).unwrap(),
    );
    assert!(matches!(
        error,
        Some(SecAggError::Floor {
            expected: "at most",
            demanded: 3,
            got: 4,
            ..
        })
    ));
}

/// Clients with `t` or more corrupt neighbours, in one random placement on the ring.
fn exposed(n: usize, corrupt: usize, k: usize, t: usize, rng: &mut rand_chacha::ChaCha20Rng) -> usize {
    let mut ring: Vec<bool> = (0..n).map(|place| place < corrupt).collect();
    for last in (1..n).rev() {
        ring.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
    let near = |at: usize| (1..=k / 2).flat_map(move |step| [(at + step) % n, (at + n - step) % n]);
    (0..n)
        .filter(|at| !ring[*at] && near(*at).filter(|place| ring[*place]).count() >= t)
        .count()
}

#[test]
fn attack_18_graphs_on_which_corrupt_clients_meet_by_chance_are_refused() {
    // A graph that was once accepted: with a tenth of a thousand clients corrupt, about 22 honest ones are exposed.
    let mut rng = harness::rng(18);
    let sessions: Vec<usize> = (0..50).map(|_| exposed(1000, 100, 12, 4, &mut rng)).collect();
    let mean = sessions.iter().sum::<usize>() as f64 / 50.0;
    assert!((15.0..30.0).contains(&mean), "{mean}");
    // Every graph of the table, as an honest-but-curious session and with the smallest threshold of an active one.
    for (n, corrupt, k, t) in [
        (100u32, 0.10, 12u32, 4u32),
        (100, 0.10, 22, 7),
        (1000, 0.05, 12, 4),
        (1000, 0.05, 22, 7),
        (1000, 0.05, 48, 13),
        (1000, 0.10, 12, 4),
        (1000, 0.10, 22, 7),
        (1000, 0.10, 48, 13),
        (10_000, 0.10, 12, 4),
        (10_000, 0.10, 22, 7),
        (10_000, 0.10, 48, 13),
    ] {
        let assumptions = Assumptions::new(0.1, corrupt, ACTIVE).unwrap();
        let sparse = floors((12, 3), (12, 1000)).with_assumptions(assumptions).unwrap();
        let params = |threat_model, threshold| {
            let terms = Terms::new(4, 1000, threat_model)
                .unwrap()
                .with_clients(30, 1 << 20)
                .unwrap();
            Params::new(terms, Topology::new(n, k, threshold).unwrap()).unwrap()
        };
        // The smallest threshold with 2 t > k + corrupt: it holds for the mean and not for the tail.
        let above = (f64::from(k) * (1.0 + corrupt) / 2.0).ceil() as u32 + 1;
        refused(
            sparse.admit(&params(PLAIN, t)),
            "the threat model of the session is honest but curious",
        );
        let error = sparse.admit(&params(ACTIVE, above));
        assert!(
            matches!(error, Err(SecAggError::Assurance { .. })),
            "{n} {k} {above}: {error:?}"
        );
        assert!(Floors::COMPILED.admit(&params(ACTIVE, above)).is_err());
        // What the module finds for the same assumptions is admitted.
        let found = assumptions.topology(n).unwrap();
        let terms = *params(ACTIVE, above).terms();
        assert_eq!(sparse.admit(&Params::new(terms, found).unwrap()), Ok(()));
    }
}

/// The compiled floors admit a session that works: 60 devices, an eighth of them lost at each of two points.
#[test]
#[ignore = "slow"]
fn devices_with_compiled_floors_complete_a_session() {
    let topology = Topology::full(60, 38).unwrap();
    let lab = Lab::on_devices(with_survivors(ACTIVE, 30), topology, &Floors::COMPILED, 9);
    let mut lab = lab
        .shared(everybody)
        .uploaded(|index| index % 8 != 1)
        .signed(|index| index % 8 > 1);
    lab.answered((0..60).filter(|index| index % 8 > 1));
    assert!(lab.server.missing().is_empty());
    assert!(lab.server.finish().unwrap().sum.iter().eq(lab.expected()));
}
