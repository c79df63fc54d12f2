//! Sums of residues: who can make an honest change larger, and what is refused before any noise.

use super::*;

pub(super) const ENCODED: [&str; 2] = [
    "privacy = { noise_multiplier = 2.0, delta = 1e-3, mechanism = { kind = \"blt\" } }\nparticipation = { min_sep = 2 }\n\
     aggregation = { encoding = { kind = \"rotated_rounding\", scale = 1e4 }, min_clients = 2 }\n",
    "privacy = { noise_multiplier = 2.0, delta = 1e-3 }\naggregation = { min_clients = 2 }\n",
];

fn rotations() -> undertone_mechanisms::NoiseKey {
    undertone_mechanisms::NoiseKey::from_bytes([6; 32])
}

pub(super) fn of_residues(residues: ModularVec, included: u64) -> RoundSum {
    RoundSum::Modular {
        residues,
        included,
        rotations: rotations(),
    }
}

/// The sum of residues of one honest user, with what the others send beside it.
pub(super) fn modular(head: &RunHead, opened: &Opened, honest: f32, others: u64) -> Gathered {
    let encoding = head.plan().encoding().unwrap();
    let round = encoding.for_round(&rotations(), opened.round()).unwrap();
    let (mut sum, modulus) = (encoding.zeros(), encoding.modulus());
    let key = undertone_mechanisms::NoiseKey::from_bytes([5; 32]);
    let update = vec![honest; encoding.size().dim];
    round.encoder().encode(&update, 1.0, &key, &mut sum).unwrap();
    let others = vec![others % modulus.get(); encoding.padded_dim()];
    sum.add(&ModularVec::from_residues(modulus, &others).unwrap())
        .unwrap();
    let mut gathered = gathered(of_residues(sum, 2));
    gathered.who.survivors = Some(2);
    gathered
}

/// With fixed noise, an honest change moves a release by itself modulo `M`, whatever the others send. A release stays within the range of
/// the residues: noise on a lifted sum would leave it for every second coordinate next to `M / 2`.
#[test]
fn what_the_others_send_cannot_make_an_honest_change_larger() {
    let correlated = "mechanism = { kind = \"blt\" } }\nparticipation = { min_sep = 2 }\n";
    for encoded in [
        ENCODED[1].to_owned(),
        ENCODED[1].replacen("}\n", &format!(", {correlated}"), 1),
    ] {
        let (task, entropy) = (task(&encoded), RoundEntropy::seeded(7));
        let plan = head_of(&task, "genesis", &entropy).plan().clone();
        let domain = plan.noise_domain().unwrap();
        let modulus = plan.encoding().unwrap().modulus().get();
        let release = |honest: f32, others: u64| {
            let mut head = head_of(&task, "genesis", &entropy);
            // The second round, so that the memory of the mechanism is in it.
            for _ in 0..2 {
                let opened = head.open(None).unwrap();
                let sum = modular(&head, &opened, honest, others);
                let next = close(head, opened, sum, &entropy).unwrap();
                assert_eq!(next.entry.noise_domain, Some(crate::record::NoiseLabel::Modular));
                if next.entry.round == 1 {
                    return next.average.unwrap().into_values();
                }
                head = next.head;
            }
            panic!("the second round was not made");
        };
        // In the unit of the average of four users.
        let range = domain.modulus as f64 * domain.step / 4.0;
        let precision = range * 1e-6;
        for others in [0, modulus / 2 - 1, modulus / 2, modulus / 2 + 1] {
            let (without, with) = (release(0.0, others), release(0.01, others));
            for (without, with) in without.iter().zip(&with) {
                let moved = f64::from(with - without) - 0.01 / 4.0;
                let wraps = moved / range;
                assert!(
                    (moved - wraps.round() * range).abs() < precision,
                    "{others}: {moved}"
                );
                assert!(
                    f64::from(with.abs()) <= 0.5 * range + precision,
                    "{others}: {with}"
                );
            }
        }
    }
}

#[test]
fn a_modular_sum_of_other_residues_or_too_many_clients_is_refused_before_any_noise() {
    let (task, entropy) = (task(ENCODED[0]), RoundEntropy::seeded(7));
    let mut head = head_of(&task, "genesis", &entropy);
    let encoding = head.plan().encoding().unwrap().clone();
    let other = Modulus::new(encoding.modulus().get() - 1).unwrap();
    let kinds = [
        (encoding.zeros(), 5, "at most 4 clients"),
        (encoding.zeros(), 0, "clients must be at least 1"),
        (
            ModularVec::zeros(other, encoding.padded_dim()),
            4,
            "residues modulo",
        ),
        (ModularVec::zeros(encoding.modulus(), 3), 4, "got 3"),
    ];
    for (residues, included, expected) in kinds {
        let opened = head.open(None).unwrap();
        let sum = gathered(of_residues(residues, included));
        head = refused(close(head, opened, sum, &entropy), expected);
    }
    // An abandoned round spends its row; the next one goes on.
    let opened = head.open(None).unwrap();
    let next = close(head, opened, gathered(RoundSum::Abandoned), &entropy).unwrap();
    assert!(next.entry.abandoned && next.average.is_none());
    let head = next.head;
    let opened = head.open(None).unwrap();
    let sum = modular(&head, &opened, 0.01, 0);
    assert_eq!(close(head, opened, sum, &entropy).unwrap().entry.round, 1);
}

/// The plan has room for the noise, and what it states is the integer bound of the encoding.
#[test]
fn the_plan_of_residues_has_room_for_the_noise_and_its_bound_in_steps() {
    for encoded in ENCODED {
        let head = head_of(&task(encoded), "genesis", &RoundEntropy::seeded(7));
        let (plan, round) = (head.plan(), head.plan().round(0));
        let (domain, encoding) = (plan.noise_domain().unwrap(), plan.encoding().unwrap());
        let (honest, noise_multiplier) = (encoding.size().max_clients as f64 * 0.5, 2.0);
        assert!(
            domain.modulus as f64 * domain.step > 16.0 * noise_multiplier * 0.5,
            "{encoded}"
        );
        assert!(domain.modulus as f64 * domain.step > 2.0 * honest / (encoding.padded_dim() as f64).sqrt());
        let changes = if plan.bounded().is_some() { 1.0 } else { 2.0 };
        let sensitivity = round.sensitivity.unwrap();
        assert!((sensitivity / (changes * domain.l2 * domain.step / 4.0) - 1.0).abs() < 1e-12);
        let grid = plan.noise_grid().unwrap();
        let steps = grid.noise_std(round.noise_std);
        assert!(
            steps >= noise_multiplier * changes * domain.l2
                && steps < 1.000_001 * noise_multiplier * changes * domain.l2
        );
        assert_eq!(
            (grid.dim(), grid.sensitivity(sensitivity)),
            (domain.dim, domain.l2)
        );
    }
}

#[test]
fn a_sum_of_another_layout_is_refused() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let head = head_of(&task, "genesis", &entropy);
    let opened = head.open(None).unwrap();
    let layout = ParamLayout::with_tensor_groups(vec![("short".into(), vec![3])]).unwrap();
    let bound = Bound::new(
        Arc::new(layout),
        opened.bound().clipping().clone(),
        opened.bound().non_finite(),
    );
    let sum = RoundSum::Users {
        sum: BoundedSum::new(bound),
        bits: None,
    };
    refused(close(head, opened, gathered(sum), &entropy), "a different bound");
}
