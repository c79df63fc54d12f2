mod residues;

use undertone_aggregation::{BoundedSum, Clipping, ModularVec, Modulus, ParamLayout};
use undertone_models::ModelSpec;

use super::*;
use crate::participation::ParticipantId;
use crate::plan::{Begun, LaneSize, LaneSum, Population};
use crate::record::{AbandonedAttempt, EndReason};
use crate::source::{Diagnostics, RoundSum};
use residues::{ENCODED, modular, of_residues};

const TASK: &str = r#"
    name = "head"
    rounds = 8
    model = { family = "dplm", embed = 4, hidden = 6 }
    cohort = { sampling = "fixed_size", users_per_round = 4 }
    user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
    clip = { kind = "flat", norm = 0.5 }
"#;

fn task(more: &str) -> TaskConfig {
    toml::from_str(&format!("{TASK}{more}")).unwrap()
}

fn head_of(task: &TaskConfig, genesis: &str, entropy: &RoundEntropy) -> RunHead {
    head_with_lane(task, genesis, entropy, LaneSize::default())
}

fn head_with_lane(task: &TaskConfig, genesis: &str, entropy: &RoundEntropy, lane: LaneSize) -> RunHead {
    let spec: ModelSpec = task.model.clone();
    let model: Arc<dyn SequenceModel> = Arc::from(spec.build(10).unwrap());
    let layout = model.layout().clone();
    let population = Population {
        users: 40,
        total_weight: 40.0,
    };
    let plan = PrivacyPlan::new(task, None, &layout, population).unwrap();
    let plan = plan.with_lane(lane).unwrap();
    let trained = Trained {
        parameters: model.initial_params(3),
        optimizer: ServerOptimizer::new(task.server, &layout, task.rounds),
        identity: ModelIdentity::new(model.as_ref()),
        model,
    };
    RunHead::new(task, plan, Some(trained), genesis, entropy).unwrap()
}

fn sum_of(opened: &Opened, value: f32) -> BoundedSum {
    let sum = BoundedSum::new(opened.bound().clone());
    sum.add(&vec![value; opened.bound().layout().len()], 1.0).unwrap();
    sum
}

fn gathered(sum: RoundSum) -> Gathered {
    Gathered {
        sum,
        who: Participants {
            names: (0..4).map(ParticipantId::new).collect(),
            ..Participants::default()
        },
        lane: None,
        diagnostics: Diagnostics::default(),
    }
}

fn users(opened: &Opened, value: f32) -> Gathered {
    let mut gathered = gathered(RoundSum::Users {
        sum: sum_of(opened, value),
        bits: None,
    });
    // Others in every round, so that no schema is broken.
    let first = 4 * opened.round();
    gathered.who.names = (first..first + 4).map(ParticipantId::new).collect();
    gathered
}

fn close(
    head: RunHead,
    opened: Opened,
    gathered: Gathered,
    entropy: &RoundEntropy,
) -> Result<Next, CloseError> {
    head.close(opened, gathered, entropy, &mut |_| ())
}

/// Opens the next round and closes it with a small update of four users.
fn next_round(head: RunHead, entropy: &RoundEntropy) -> Next {
    let opened = head.open(None).unwrap();
    let sum = users(&opened, 0.01);
    close(head, opened, sum, entropy).unwrap()
}

fn refused(result: Result<Next, CloseError>, expected: &str) -> RunHead {
    match result {
        Err(CloseError::Refused { head, why }) => {
            assert!(why.to_string().contains(expected), "{why} instead of {expected}");
            *head
        }
        Err(CloseError::Lost { why }) => panic!("lost: {why}"),
        Ok(_) => panic!("closed, although {expected}"),
    }
}

const PRIVATE: &str = "privacy = { noise_multiplier = 1.0, delta = 1e-3 }\n";
const CORRELATED: &str = "privacy = { noise_multiplier = 2.0, delta = 1e-3, mechanism = { kind = \"tree\" } }\n\
                          participation = { min_sep = 2 }\n";

#[test]
fn rounds_follow_one_another_and_their_lines_are_chained() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let mut head = head_of(&task, "genesis", &entropy);
    let mut before = "genesis".to_owned();
    for round in 0..3 {
        let opened = head.open(None).unwrap();
        assert_eq!(opened.round(), round);
        let sum = users(&opened, 0.01);
        let next = close(head, opened, sum, &entropy).unwrap();
        assert_eq!((next.entry.round, &next.entry.previous_sha256), (round, &before));
        assert_eq!(next.entry.cohort_size, 4);
        let line: LedgerEntry = serde_json::from_slice(&next.line).unwrap();
        assert_eq!(line, next.entry);
        assert!(next.average.unwrap().noise_std() > 0.0 && !next.quarantined);
        before = next.head.chain().head().to_owned();
        head = next.head;
    }
    assert_eq!(head.round(), 3);
    assert!(head.epsilon().unwrap().unwrap() > 0.0);
}

#[test]
fn a_stale_round_and_one_of_another_run_are_refused_and_give_the_head_back() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let head = head_of(&task, "genesis", &entropy);
    let (opened, stale) = (head.open(None).unwrap(), head.open(None).unwrap());
    let (first, again) = (users(&opened, 0.01), users(&stale, 0.02));
    let head = close(head, opened, first, &entropy).unwrap().head;
    let head = refused(close(head, stale, again, &entropy), "not the next one");
    let foreign = head_of(&task, "another genesis", &entropy).open(None).unwrap();
    let sum = users(&foreign, 0.01);
    let head = refused(close(head, foreign, sum, &entropy), "another genesis");
    assert_eq!(head.round(), 1);
    // The head is as it was: the round can be opened again.
    assert_eq!(next_round(head, &entropy).head.round(), 2);
}

#[test]
fn a_sum_of_another_bound_or_kind_is_refused_before_any_noise() {
    let entropy = RoundEntropy::seeded(7);
    let mut head = head_of(&task(CORRELATED), "genesis", &entropy);
    let louder = |opened: &Opened, clip_norm: f64| {
        let layout = Arc::new(opened.bound().layout().clone());
        let clipping = Clipping::Flat { clip_norm };
        let sum = BoundedSum::new(Bound::new(layout, clipping, opened.bound().non_finite()));
        gathered(RoundSum::Users { sum, bits: None })
    };
    type Make<'a> = &'a dyn Fn(&Opened) -> Gathered;
    let kinds: [(Make<'_>, &str); 5] = [
        (
            &|opened| gathered(RoundSum::Examples(sum_of(opened, 0.01))),
            "got a sum of gradients of examples",
        ),
        (&|opened| louder(opened, 0.6), "a different bound"),
        (
            &|opened| {
                let (sum, bits) = (sum_of(opened, 0.01), Some(sum_of(opened, 0.01)));
                gathered(RoundSum::Users { sum, bits })
            },
            "users without a sum of bits",
        ),
        (
            &|opened| {
                let (modulus, dim) = (Modulus::new(64).unwrap(), opened.bound().layout().len());
                let residues = ModularVec::zeros(modulus, dim);
                gathered(of_residues(residues, 4))
            },
            "got a sum of encoded updates",
        ),
        (&|_| gathered(RoundSum::Abandoned), "got a sum of encoded updates"),
    ];
    for (make, expected) in kinds {
        let opened = head.open(None).unwrap();
        let sum = make(&opened);
        head = refused(close(head, opened, sum, &entropy), expected);
    }
    // No row of the tree was drawn: round 0 is still to come.
    assert_eq!(next_round(head, &entropy).entry.round, 0);
}

#[test]
fn a_lane_is_released_beside_the_model_and_moves_nothing_of_it() {
    let entropy = RoundEntropy::seeded(7);
    let foreign = |opened: &Opened| LaneSum {
        updates: BoundedSum::new(opened.bound().clone()),
        bits: None,
    };
    let size = LaneSize {
        canaries: 3,
        probes: 2,
    };
    for more in [PRIVATE, CORRELATED] {
        let task = task(more);
        let mut plain = head_of(&task, "genesis", &entropy);
        let mut audited = head_with_lane(&task, "genesis", &entropy, size);
        for round in 0..3 {
            let next = next_round(plain, &entropy);
            assert!(next.lane.is_none());
            // Without its lane, and with one of another bound, the round is refused.
            let opened = audited.open(None).unwrap();
            let sum = users(&opened, 0.01);
            audited = refused(close(audited, opened, sum, &entropy), "a lane with the bounds");
            let opened = audited.open(None).unwrap();
            let mut sum = users(&opened, 0.01);
            sum.lane = Some(foreign(&opened));
            audited = refused(close(audited, opened, sum, &entropy), "a lane with the bounds");
            let opened = audited.open(None).unwrap();
            let lane = LaneSum::new(opened.lane().unwrap());
            // Far longer than the clip norm of 0.5, of which a fourth is left in the average of 4.
            lane.updates.add(&[0.0, 1e6, 0.0, 0.0, 0.0], 1.0).unwrap();
            let mut sum = users(&opened, 0.01);
            sum.lane = Some(lane);
            let beside = close(audited, opened, sum, &entropy).unwrap();
            assert_eq!(next.average, beside.average);
            assert_eq!(next.line, beside.line, "round {round}");
            assert_eq!(next.head.parameters(), beside.head.parameters());
            let released = beside.lane.unwrap();
            assert!(released.len() == 5 && released.iter().all(|value| value.abs() < 20.0));
            (plain, audited) = (next.head, beside.head);
        }
        // A head without a lane takes none.
        let opened = plain.open(None).unwrap();
        let mut sum = users(&opened, 0.01);
        sum.lane = Some(foreign(&opened));
        refused(close(plain, opened, sum, &entropy), "a lane with the bounds");
    }
}

/// The plan of an older ledger has its noise in the unit of averages, and residues need steps.
#[test]
fn a_plan_that_prices_old_ledgers_makes_no_round() {
    let (task, entropy) = (task(ENCODED[1]), RoundEntropy::seeded(7));
    let of_today = head_of(&task, "genesis", &entropy);
    let layout = of_today.plan().layout();
    let population = of_today.plan().population();
    let plan = PrivacyPlan::of_lifted_sums(&task, &Begun::default(), &layout, population).unwrap();
    let head = RunHead::new(&task, plan, None, "genesis", &entropy).unwrap();
    let opened = head.open(None).unwrap();
    let sum = modular(&head, &opened, 0.01, 0);
    refused(close(head, opened, sum, &entropy), "got a sum of encoded updates");
}

#[test]
fn parameters_that_would_not_be_finite_leave_the_round_spent_and_quarantined() {
    for kind in [
        "kind = \"sgd\"",
        "kind = \"sgd\", momentum = 0.9",
        "kind = \"adam\"",
        "kind = \"adafactor\"",
    ] {
        let more = format!("{PRIVATE}server = {{ learning_rate = 1e40, optimizer = {{ {kind} }} }}\n");
        let (task, entropy) = (task(&more), RoundEntropy::seeded(7));
        let head = head_of(&task, "genesis", &entropy);
        let before = head.parameters().to_vec();
        let opened = head.open(None).unwrap();
        let sum = users(&opened, 0.5);
        let next = close(head, opened, sum, &entropy).unwrap();
        assert!(next.quarantined && next.entry.quarantined, "{more}");
        assert!(next.line.windows(18).any(|text| text == b"\"quarantined\":true"));
        assert_eq!(next.head.parameters(), before);
        assert!(next.head.epsilon().unwrap().unwrap() > 0.0);
        assert_eq!(next.head.open(None).unwrap().round(), 1);
    }
}

/// Each close brings its own key, and a loaded head goes on with the noise that was kept.
#[test]
fn every_round_has_its_own_key_and_a_loaded_head_goes_on() {
    let task = task(CORRELATED);
    let fresh = |byte| RoundEntropy::fresh([byte; 32]);
    let mut head = head_of(&task, "genesis", &fresh(0));
    let (mut entries, mut keys) = (Vec::new(), std::collections::BTreeSet::new());
    for round in 0..3 {
        let next = next_round(head, &fresh(10 + round));
        assert!(keys.insert(next.entry.noise_key.clone().unwrap()));
        entries.push(next.entry);
        head = next.head;
    }
    let mut secret = Vec::new();
    assert!(head.has_secret());
    head.save_secret(&mut secret).unwrap();
    let load = |byte| {
        head_of(&task, "genesis", &fresh(byte))
            .load(
                &entries,
                head.chain().clone(),
                None,
                Some(&mut &secret[..]),
                &fresh(byte),
            )
            .unwrap()
    };
    let release = |head: RunHead, byte| {
        let next = next_round(head, &fresh(byte));
        (next.entry.round, next.average.unwrap().into_values())
    };
    let (one, two, other) = (
        release(load(20), 30),
        release(load(21), 30),
        release(load(22), 31),
    );
    assert_eq!(one, two);
    assert_eq!(one.0, 3);
    assert_ne!(one.1, other.1);
    // Under the same key, the head that was never stored goes on with the same noise.
    assert_eq!(release(head, 30), one);
}

/// An estimate whose noise the grid cannot hold does not come into force: the round that brings it is closed all the same.
#[test]
fn a_clip_norm_beyond_the_grid_never_fails_a_round_whose_noise_was_drawn() {
    let adaptive = "privacy = { noise_multiplier = 4.0, delta = 1e-3, mechanism = { kind = \"tree\", restarts = { first = 2, \
                    every = 2 } } }\nparticipation = { min_sep = 2 }\n";
    let text = format!("{TASK}{adaptive}").replace(
        "clip = { kind = \"flat\", norm = 0.5 }",
        "clip = { kind = \"adaptive\", initial_norm = 0.5, learning_rate = 200.0, quantile = 0.99, bit_noise_std = 3.0 }",
    );
    let (task, entropy): (TaskConfig, _) = (toml::from_str(&text).unwrap(), RoundEntropy::seeded(7));
    let mut head = head_of(&task, "genesis", &entropy);
    for round in 0..4 {
        let opened = head.open(None).unwrap();
        let bit = ParamLayout::with_tensor_groups(vec![("bit".into(), vec![1])]).unwrap();
        let half = Clipping::Flat { clip_norm: 0.5 };
        let bits = BoundedSum::new(Bound::new(Arc::new(bit), half, NonFinite::Refuse));
        for _ in 0..4 {
            // Everybody is above the norm, so that the estimate runs away.
            bits.add(&[-0.5], 1.0).unwrap();
        }
        let mut gathered = users(&opened, 0.01);
        if let RoundSum::Users { bits: place, .. } = &mut gathered.sum {
            *place = Some(bits);
        }
        let next = close(head, opened, gathered, &entropy).unwrap();
        assert_eq!(next.entry.round, round);
        head = next.head;
    }
    let clip = head.clip().unwrap();
    assert_eq!((clip.active(), clip.estimate()), (0.5, 0.5));
}

fn attempt(number: u32, users: &[u64]) -> AbandonedAttempt {
    AbandonedAttempt {
        attempt: number,
        reason: crate::record::AbandonReason::Deadline,
        participants: users.iter().map(|&user| ParticipantId::new(user)).collect(),
        row_spent: false,
    }
}

/// The keys of a service are written where they say something, so the lines of simulations keep their bytes.
#[test]
fn a_line_names_lost_users_attempts_and_mode_only_where_there_are_any() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let head = head_of(&task, "genesis", &entropy);
    let next = next_round(head, &entropy);
    let line = String::from_utf8(next.line).unwrap();
    for key in ["lost", "attempts", "mode", "row_spent", "end"] {
        assert!(!line.contains(&format!("\"{key}\"")), "{key} in {line}");
    }
    let opened = next.head.open(None).unwrap();
    let mut sum = users(&opened, 0.01);
    sum.who.mode = Some(crate::record::LedgerMode::Service);
    sum.who.lost = vec![ParticipantId::new(91), ParticipantId::new(90)];
    sum.who.attempts = vec![attempt(0, &[33, 32]), attempt(1, &[])];
    let next = close(next.head, opened, sum, &entropy).unwrap();
    let line = String::from_utf8(next.line.clone()).unwrap();
    assert!(
        line.contains(
            r#""lost":["000000000000005a","000000000000005b"],"attempts":[{"attempt":0,"reason":"deadline","participants":["0000000000000020","0000000000000021"],"row_spent":false},{"attempt":1,"#
        ),
        "{line}"
    );
    assert!(line.contains(r#""mode":"service""#), "{line}");
    let read: LedgerEntry = serde_json::from_slice(&next.line).unwrap();
    assert_eq!(read, next.entry);
    assert_eq!(read.everyone().len(), 8);
}

#[test]
fn a_user_who_stands_twice_in_a_round_is_refused_before_any_noise() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let mut head = head_of(&task, "genesis", &entropy);
    for change in [
        &(|who: &mut Participants| who.lost = vec![ParticipantId::new(2)]) as &dyn Fn(&mut Participants),
        &|who| who.attempts = vec![attempt(0, &[2])],
        &|who| who.names.push(ParticipantId::new(2)),
        &|who| who.attempts = vec![attempt(0, &[9]), attempt(1, &[9])],
    ] {
        let opened = head.open(None).unwrap();
        let mut sum = users(&opened, 0.01);
        change(&mut sum.who);
        head = refused(close(head, opened, sum, &entropy), "at most once per round");
        assert_eq!(head.round(), 0);
    }
}

#[test]
fn the_end_of_a_task_follows_its_last_line_and_names_the_attempts_since() {
    use crate::record::LedgerLine;

    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let head = head_of(&task, "genesis", &entropy);
    let head = next_round(head, &entropy).head;
    let before = head.chain().head().to_owned();
    let (line, end, chain) = head
        .end(EndReason::Stopped, vec![attempt(0, &[7, 5])], None)
        .unwrap();
    assert_eq!((end.rounds, &end.previous_sha256), (1, &before));
    assert_eq!(
        String::from_utf8(line.clone()).unwrap(),
        format!(
            r#"{{"end":"stopped","rounds":1,"attempts":[{{"attempt":0,"reason":"deadline","participants":["0000000000000005","0000000000000007"],"row_spent":false}}],"previous_sha256":"{before}"}}"#
        )
    );
    assert_ne!(chain.head(), before);
    assert_eq!(LedgerLine::read(&line).unwrap(), LedgerLine::End(end));
    assert!(LedgerLine::read(b"7").is_err() && LedgerLine::read(b"{}").is_err());
    for (reason, attempts, words) in [
        (
            EndReason::Completed,
            Vec::new(),
            "expected `completed` exactly after all 8 rounds",
        ),
        (
            EndReason::Starved,
            vec![attempt(0, &[3]), attempt(1, &[3])],
            "at most once per round",
        ),
    ] {
        let error = head_of(&task, "genesis", &entropy)
            .end(reason, attempts, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn no_round_is_opened_after_the_last_one() {
    let (task, entropy) = (task(PRIVATE), RoundEntropy::seeded(7));
    let mut head = head_of(&task, "genesis", &entropy);
    for _ in 0..task.rounds {
        head = next_round(head, &entropy).head;
    }
    let error = head.open(None).unwrap_err().to_string();
    assert!(
        error.contains("more than the 8 rounds that are closed, got 8"),
        "{error}"
    );
    let (_, end, _) = head.end(EndReason::Completed, Vec::new(), None).unwrap();
    assert_eq!((end.rounds, end.attempts.len()), (8, 0));
}
