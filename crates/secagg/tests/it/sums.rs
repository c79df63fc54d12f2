//! The sum is exact or there is none, for every set of lost clients and every time at which they are lost.

use rand_core::Rng;
use undertone_aggregation::{ModularVec, Modulus};
use undertone_secagg::{
    DropOut, GraphChoice, Plain, SecAggError, SecAggPlus, SecureSum, SumOutcome, SumRequest, ThreatModel,
};

use crate::harness;

const POINTS: [DropOut; 4] = [
    DropOut::BeforeKeys,
    DropOut::BeforeShares,
    DropOut::BeforeInput,
    DropOut::BeforeUnmask,
];

struct Case {
    clients: u32,
    graph: GraphChoice,
    threat_model: ThreatModel,
    modulus: u64,
    length: u64,
    drop_outs: Vec<Option<DropOut>>,
    seed: u64,
}

/// A vector in which a client that is counted twice, or not at all, shows: random residues, then one element that only
/// this client sets, to 1.
fn input(case: &Case, client: u32, vector: &mut ModularVec) -> undertone_aggregation::Result<()> {
    let mut rng = harness::rng(case.seed ^ u64::from(client) << 32);
    let own = case.length - u64::from(case.clients) + u64::from(client);
    let random = case.length - u64::from(case.clients);
    let residues: Vec<u64> = (0..case.length)
        .map(|place| {
            if place < random {
                rng.next_u64() % case.modulus
            } else {
                u64::from(place == own)
            }
        })
        .collect();
    vector.add_at(0, &residues)
}

fn run(case: &Case, backend: &dyn SecureSum) -> Result<SumOutcome, SecAggError> {
    let context = harness::context(case.length, case.modulus, case.threat_model);
    backend.sum(
        &SumRequest {
            context,
            clients: case.clients,
            input: &|client, vector| input(case, client, vector),
            drop_out: &|client| case.drop_outs[client as usize],
            finished: &|_| (),
        },
        &mut harness::rng(case.seed),
    )
}

/// The sum of exactly the clients that the outcome names.
fn check(case: &Case, outcome: &SumOutcome) {
    let modulus = Modulus::new(case.modulus).unwrap();
    let mut expected = ModularVec::zeros(modulus, case.length as usize);
    for client in &outcome.included {
        input(case, *client, &mut expected).unwrap();
    }
    assert!(
        outcome.sum.iter().eq(expected.iter()),
        "another sum: seed {}",
        case.seed
    );
    let ones = case.length as usize - case.clients as usize;
    let counted: Vec<u32> = (0..)
        .zip(outcome.sum.iter().skip(ones))
        .filter(|(_, x)| *x == 1)
        .map(|(client, _)| client)
        .collect();
    assert_eq!(counted, outcome.included);
}

fn secure(case: &Case) -> Result<SumOutcome, SecAggError> {
    run(case, &SecAggPlus::simulation(case.graph))
}

/// Session number `seed` of the random ones: up to `max` clients, any valid graph and threshold, moduli of 8 to 62 bits,
/// odd ones among them.
fn random_case(seed: u64, max: u32) -> Case {
    let mut rng = harness::rng(seed);
    // Uniform in the logarithm, so that small cohorts with their corner cases come often.
    let scale = f64::from(max / 2).ln();
    let uniform = |rng: &mut rand_chacha::ChaCha20Rng| f64::from(rng.next_u32()) / 2f64.powi(32);
    let clients = (2.0 * (scale * uniform(&mut rng)).exp())
        .round()
        .min(f64::from(max)) as u32;
    let mut neighbours = ((f64::from(clients)).powf(uniform(&mut rng)) as u32).clamp(1, clients - 1);
    if harness::below(&mut rng, 10) == 0 {
        neighbours = clients - 1;
    }
    if neighbours % 2 == 1 && clients % 2 == 1 {
        neighbours += 1;
    }
    let threat_model =
        [ThreatModel::HonestButCurious, ThreatModel::Active][harness::below(&mut rng, 2) as usize];
    let min_threshold = if threat_model == ThreatModel::Active {
        neighbours / 2 + 1
    } else {
        1
    };
    let threshold = min_threshold + harness::below(&mut rng, neighbours - min_threshold + 1);
    let bits = 8 + harness::below(&mut rng, 55);
    let modulus = match harness::below(&mut rng, 3) {
        0 => 1u64 << bits,
        1 => (1u64 << bits) - 1 - 2 * u64::from(harness::below(&mut rng, 50)),
        _ => (1u64 << (bits - 1)) + 1 + rng.next_u64() % (1u64 << (bits - 1)),
    };
    // Losses that the threshold bears most of the time; where it does not, there must be an error.
    let rate = [0, 5, 10, 30][harness::below(&mut rng, 4) as usize];
    let lost =
        |rng: &mut _| (harness::below(rng, 100) < rate).then(|| POINTS[harness::below(rng, 4) as usize]);
    let drop_outs = (0..clients).map(|_| lost(&mut rng)).collect();
    let length = u64::from(clients) + 1 + u64::from(harness::below(&mut rng, 40));
    let graph = GraphChoice::Regular {
        neighbours,
        threshold,
    };
    Case {
        clients,
        graph,
        threat_model,
        modulus,
        length,
        drop_outs,
        seed,
    }
}

/// Sessions that gave a sum, of those from `first` on.
fn random_sessions(first: u64, count: u64, max: u32) -> u64 {
    let mut summed = 0;
    for seed in first..first + count {
        let case = random_case(seed, max);
        match secure(&case) {
            Ok(outcome) => {
                check(&case, &outcome);
                summed += 1;
            }
            Err(
                SecAggError::TooFew { .. }
                | SecAggError::Unrecoverable { .. }
                | SecAggError::Setting {
                    name: "the threshold of an active session",
                    ..
                },
            ) => {
                assert!(
                    case.drop_outs.iter().any(Option::is_some),
                    "nobody was lost: seed {seed}"
                );
            }
            Err(other) => panic!("{other}: seed {seed}"),
        }
    }
    summed
}

#[test]
#[ignore = "slow"]
fn random_sessions_are_exact() {
    let summed = random_sessions(0, 120, 50);
    assert!(summed > 60, "{summed} of 120 gave a sum");
}

/// Every subset of clients lost at one point, for every number of clients up to `max`, full and sparse graphs.
fn every_subset(max: u32) -> (u32, u32) {
    let (mut summed, mut refused) = (0, 0);
    for clients in 2..=max {
        let sparse = GraphChoice::Regular {
            neighbours: 4,
            threshold: 3,
        };
        let full = GraphChoice::Full {
            threshold_percent: 60,
        };
        for (graph, threat_model) in [
            (full, ThreatModel::HonestButCurious),
            (full, ThreatModel::Active),
            (sparse, ThreatModel::Active),
        ] {
            for point in POINTS {
                for lost in 0u32..1 << clients {
                    let drop_outs = (0..clients)
                        .map(|i| (lost >> i & 1 == 1).then_some(point))
                        .collect();
                    let (length, seed) = (u64::from(clients) + 3, u64::from(lost));
                    let case = Case {
                        clients,
                        graph,
                        threat_model,
                        modulus: 257,
                        length,
                        drop_outs,
                        seed,
                    };
                    match secure(&case) {
                        Ok(outcome) => {
                            check(&case, &outcome);
                            let plain = run(&case, &Plain).unwrap();
                            assert_eq!(plain.included, outcome.included);
                            assert!(plain.sum.iter().eq(outcome.sum.iter()));
                            summed += 1;
                        }
                        Err(error) => {
                            assert!(
                                matches!(
                                    error,
                                    SecAggError::TooFew { .. } | SecAggError::Unrecoverable { .. }
                                ),
                                "{error}"
                            );
                            assert_ne!(lost, 0, "{clients} clients, nobody lost: {error}");
                            assert!(
                                !bearable(clients, graph, point, lost),
                                "{clients} clients, {lost:b} lost at {point:?}: {error}"
                            );
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    (summed, refused)
}

/// Returns `true` if a full graph must bear this loss: enough survivors for every threshold, and two to sum.
fn bearable(clients: u32, graph: GraphChoice, point: DropOut, lost: u32) -> bool {
    let left = clients - lost.count_ones();
    let cohort = if point == DropOut::BeforeKeys {
        left
    } else {
        clients
    };
    graph.topology(cohort).is_ok_and(|topology| {
        topology.neighbours() == topology.clients() - 1 && left > topology.threshold() && left >= 2
    })
}

#[test]
#[ignore = "slow"]
fn every_subset_lost_at_every_point() {
    let (summed, refused) = every_subset(5);
    assert!(
        summed > 200 && refused > 100,
        "{summed} summed, {refused} refused"
    );
}

fn thousand(percent: u32, clients: u32) {
    for point in POINTS {
        let mut rng = harness::rng(u64::from(percent));
        let drop_outs = (0..clients)
            .map(|_| (harness::below(&mut rng, 100) < percent).then_some(point))
            .collect();
        // (k, t) for 10 % corrupt and 30 % lost clients of a thousand, and the like for fewer.
        let graph = if clients < 1000 {
            GraphChoice::Regular {
                neighbours: 24,
                threshold: 8,
            }
        } else {
            GraphChoice::Regular {
                neighbours: 88,
                threshold: 36,
            }
        };
        let length = u64::from(clients) + 20;
        let threat_model = ThreatModel::HonestButCurious;
        let case = Case {
            clients,
            graph,
            threat_model,
            modulus: (1 << 20) - 3,
            length,
            drop_outs,
            seed: 1,
        };
        let outcome = secure(&case).unwrap();
        check(&case, &outcome);
        let in_the_sum = |lost: &&Option<DropOut>| lost.is_none_or(|lost| lost == DropOut::BeforeUnmask);
        assert_eq!(
            outcome.included.len(),
            case.drop_outs.iter().filter(in_the_sum).count()
        );
    }
}

#[test]
#[ignore = "slow"]
fn seventy_clients_of_whom_a_third_are_lost() {
    thousand(30, 70);
}

mod by_hand {
    use super::*;

    /// About half an hour on one core.
    #[test]
    #[ignore = "ten thousand sessions of up to 300 clients take half an hour"]
    fn ten_thousand_random_sessions_are_exact() {
        let mut summed = 0;
        for thousand in 0..10 {
            summed += random_sessions(1_000_000 + 1000 * thousand, 1000, 300);
            println!(
                "{summed} of {} sessions gave a sum, all exact",
                1000 * (thousand + 1)
            );
        }
        assert!(summed > 5000);
    }

    #[test]
    #[ignore = "every subset of up to 8 clients takes minutes"]
    fn every_subset_of_eight_lost_at_every_point() {
        let (summed, refused) = every_subset(8);
        println!("{summed} sums, all exact; {refused} refusals");
    }

    #[test]
    #[ignore = "sixteen sessions of a thousand clients take minutes"]
    fn a_thousand_clients_give_the_exact_sum() {
        for percent in [0, 5, 10, 30] {
            thousand(percent, 1000);
            println!("n 1000, {percent} % lost at each of four points: exact");
        }
    }
}

#[test]
fn phases_are_told_and_bytes_counted() {
    let phases = std::sync::Mutex::new(Vec::new());
    let context = harness::context(100, 1 << 20, ThreatModel::Active);
    let request = SumRequest {
        context,
        clients: 5,
        input: &|client, vector| vector.add_at(0, &[client; 100]),
        drop_out: &|_| None,
        finished: &|phase| phases.lock().unwrap().push(phase),
    };
    let backend = SecAggPlus::simulation(GraphChoice::Full {
        threshold_percent: 67,
    });
    let outcome = backend.sum(&request, &mut harness::rng(3)).unwrap();
    let told = phases.into_inner().unwrap();
    assert_eq!(told.len(), 6);
    assert!(told.is_sorted());
    assert!(outcome.traffic.iter().map(|(phase, _)| phase).eq(&told[..5]));
    // 100 residues of 20 bits behind a header of 46 bytes, five times.
    assert_eq!(outcome.traffic[2].1.up, 5 * (250 + 46));
}

#[test]
fn what_the_input_refuses_is_the_error() {
    let context = harness::context(3, 10, ThreatModel::HonestButCurious);
    let request = SumRequest {
        context,
        clients: 4,
        input: &|client, vector| vector.add_at(0, &[client + 7; 3]),
        drop_out: &|_| None,
        finished: &|_| (),
    };
    for backend in [
        &Plain as &dyn SecureSum,
        &SecAggPlus::simulation(GraphChoice::Full {
            threshold_percent: 50,
        }),
    ] {
        let error = backend.sum(&request, &mut harness::rng(3)).unwrap_err();
        assert!(matches!(error, SecAggError::Aggregation(_)), "{error}");
    }
}
