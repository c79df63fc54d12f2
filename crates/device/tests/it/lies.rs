//! A server that lies, and plans that are too weak: no vector leaves, and no participation is written.

use undertone_device::{Ended, PolicyFloors, Refusal, Row};
use undertone_protocol::{
    AdaptiveNorm, AggregationRule, Assignment, Blob, ClipRule, Guarantee, Label, LayerNorms, Plan,
    ProtocolError, RoundSettings, Signed, Signer, SumMode, TaskKind, clip_rule, digest_of, write,
};

use crate::harness::{self, Driven, ROUND, Service, TASK, floors, memory, plan, run_one, setup, task_key};

/// The refusal that ends the session of a device with these floors.
fn refusal(service: &mut Service, floors: PolicyFloors) -> Refusal {
    let mut device = Driven::new(0, floors);
    let ended = run_one(service, &mut device);
    let Ended::Refused(refusal) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(service.upload_bytes(), 0, "{refusal}");
    assert!(service.messages.is_empty(), "{refusal}");
    assert!(!device.has_taken_part(), "{refusal}");
    // A device that has accepted an assignment says that it leaves.
    let accepted = device.rows.iter().any(|row| matches!(row, Row::Head { .. }));
    let (_, last, _) = service.log.last().unwrap();
    assert!(!accepted || last.ends_with("/abort"), "{last}");
    refusal
}

fn names(refusal: &Refusal, name: &str) {
    assert!(
        refusal.to_string().contains(name),
        "{refusal} does not name {name}"
    );
}

#[test]
fn settings_that_differ_from_the_plan_are_refused_by_name() {
    type Change = fn(&mut RoundSettings);
    let changes: [(Change, &str); 14] = [
        (|settings| settings.clip_norm = 0.6, "settings.clip_norm"),
        (
            |settings| settings.clip_norm = f64::INFINITY,
            "settings.clip_norm",
        ),
        (|settings| settings.clip_norm = f64::NAN, "settings.clip_norm"),
        (|settings| settings.clip_norm = 0.0, "settings.clip_norm"),
        (|settings| settings.clip_norm = -0.5, "settings.clip_norm"),
        (
            |settings| settings.layer_norms = vec![0.1],
            "settings.layer_norms",
        ),
        (|settings| settings.estimate = Some(0.5), "settings.estimate"),
        (|settings| settings.set_mode(SumMode::Secagg), "settings.mode"),
        (|settings| settings.mode = -1, "settings.mode"),
        (|settings| settings.min_clients = 3, "settings.min_clients"),
        (|settings| settings.max_clients = 9, "settings.max_clients"),
        (|settings| settings.modulus = 1 << 20, "settings.modulus"),
        (|settings| settings.run = vec![3; 31], "settings.run"),
        (|settings| settings.run = Vec::new(), "settings.run"),
    ];
    for (change, name) in changes {
        let mut service = Service::new(plan(SumMode::Plain));
        service.lies.assignment = Some(Box::new(move |assignment| {
            change(assignment.settings.as_mut().unwrap());
        }));
        names(&refusal(&mut service, floors()), name);
    }
}

#[test]
fn norms_of_layers_and_adaptive_norms_stay_within_the_plan() {
    let layers = |norms: Vec<f64>| {
        let mut plan = plan(SumMode::Plain);
        plan.clip = Some(ClipRule {
            kind: Some(clip_rule::Kind::Layers(LayerNorms { norms })),
        });
        plan
    };
    let with_settings = |plan: Plan, clip_norm: f64, layer_norms: Vec<f64>, estimate: Option<f64>| {
        let mut service = Service::new(plan);
        service.estimate = estimate;
        service.lies.assignment = Some(Box::new(move |assignment| {
            let settings = assignment.settings.as_mut().unwrap();
            settings.clip_norm = clip_norm;
            settings.layer_norms = layer_norms.clone();
        }));
        service
    };
    let spec: undertone_models::ModelSpec = serde_json::from_str(harness::MODEL).unwrap();
    let groups = spec.layout(9).unwrap().groups().len();
    let norms = vec![0.1; groups];
    let mut honest = with_settings(layers(norms.clone()), 0.1, norms.clone(), None);
    let ended = run_one(&mut honest, &mut Driven::new(0, floors()));
    assert!(matches!(ended, Ended::Reported(_)), "{ended:?}");
    let mut longer = norms.clone();
    longer[0] = 0.11;
    for (plan, offered) in [
        (layers(norms.clone()), longer),
        (layers(norms.clone()), norms[1..].to_vec()),
        (layers(norms[1..].to_vec()), norms[1..].to_vec()),
    ] {
        let refusal = refusal(&mut with_settings(plan, 0.1, offered, None), floors());
        assert!(refusal.to_string().contains("layer"), "{refusal}");
    }
    let adaptive = || {
        let mut plan = plan(SumMode::Plain);
        plan.clip = Some(ClipRule {
            kind: Some(clip_rule::Kind::Adaptive(AdaptiveNorm {
                initial: 0.5,
                max: 2.0,
            })),
        });
        plan
    };
    for (norm, estimate, name) in [
        (2.1, Some(0.5), "settings.clip_norm"),
        (1.0, None, "settings.estimate"),
        (1.0, Some(f64::NAN), "settings.estimate"),
        (1.0, Some(0.0), "settings.estimate"),
    ] {
        let mut service = with_settings(adaptive(), norm, Vec::new(), estimate);
        names(&refusal(&mut service, floors()), name);
    }
}

#[test]
fn an_older_round_and_another_head_of_the_same_round_are_refused() {
    for (round, chain, name) in [(ROUND - 1, [2; 32], "round 4"), (ROUND, [9; 32], "another head")] {
        let mut service = Service::new(plan(SumMode::Plain));
        // The board shows an honest round, and the assignment another one.
        service.lies.assignment = Some(Box::new(move |assignment| {
            assignment.round = round;
            assignment.chain = chain.to_vec();
        }));
        let mut memory = memory(0);
        memory.heads.insert(TASK, (ROUND, [2; 32]));
        let mut device = Driven::with_memory(0, setup(floors()), memory);
        let ended = run_one(&mut service, &mut device);
        let Ended::Refused(refusal) = ended else {
            panic!("{ended:?}");
        };
        names(&refusal, name);
        assert!(service.upload_bytes() == 0 && !device.has_taken_part());
    }
}

#[test]
fn an_assignment_for_a_round_too_near_is_refused_whatever_the_board_says() {
    let mut memory = memory(0);
    memory.participations.push(undertone_device::Participation {
        task: TASK,
        round: ROUND,
        attempt: 0,
        at_ms: harness::START - 2 * harness::TIMER_S * 1000,
        progress: undertone_device::Progress::Begun,
    });
    let mut service = Service::new(plan(SumMode::Plain));
    service.round = ROUND + 3;
    service.lies.assignment = Some(Box::new(|assignment| assignment.round = ROUND + 2));
    let mut device = Driven::with_memory(0, setup(floors()), memory.clone());
    let ended = run_one(&mut service, &mut device);
    assert!(matches!(ended, Ended::Refused(_)), "{ended:?}");
    // A board that understates the distance does not help: the signed plan is read too.
    let mut service = Service::new(plan(SumMode::Plain));
    service.round = ROUND + 2;
    service.lies.board = Some(Box::new(|board| board.tasks[0].min_sep = 1));
    let mut device = Driven::with_memory(0, setup(floors()), memory);
    let ended = run_one(&mut service, &mut device);
    let Ended::Refused(refusal) = ended else {
        panic!("{ended:?}");
    };
    names(&refusal, "assignment.round");
    assert_eq!(service.upload_bytes(), 0);
}

#[test]
fn plans_and_boards_of_unknown_keys_are_refused() {
    let stranger = Signer::from_seed(&[99; 32]);
    let honest = plan(SumMode::Plain);
    let body = write(&honest);
    let forged = |signed: Signed| Service::with_plan_bytes(honest.clone(), write(&signed));
    let unsigned = Signed {
        signature: Vec::new(),
        ..task_key().sign(Label::Plan, body.clone())
    };
    let changed = Signed {
        body: write(&Plan {
            rounds: 101,
            ..honest.clone()
        }),
        ..task_key().sign(Label::Plan, body.clone())
    };
    for signed in [
        stranger.sign(Label::Plan, body.clone()),
        // A signature of another kind of value.
        task_key().sign(Label::Head, body.clone()),
        harness::board_key().sign(Label::Plan, body.clone()),
        unsigned,
        changed,
        Signed::default(),
    ] {
        let refusal = refusal(&mut forged(signed), floors());
        assert!(matches!(refusal, Refusal::Protocol(_)), "{refusal}");
    }
    // A board by the key of the task is no board of the service.
    let mut service = Service::new(plan(SumMode::Plain));
    let mut of_others = setup(floors());
    of_others.board_keys = undertone_protocol::TrustedKeys::new([stranger.public()]);
    let mut device = Driven::with_memory(0, of_others, memory(0));
    let ended = run_one(&mut service, &mut device);
    assert!(
        matches!(
            ended,
            Ended::Refused(Refusal::Protocol(ProtocolError::UnknownKey { .. }))
        ),
        "{ended:?}"
    );
}

#[test]
fn blobs_with_other_bytes_than_their_digest_says_are_refused() {
    let plan = || plan(SumMode::Plain);
    let names = [
        digest_of(&Service::new(plan()).plan_bytes),
        digest_of(harness::WORDS),
        digest_of(&harness::model_bytes()),
    ];
    for name in names {
        for longer in [false, true] {
            let mut service = Service::new(plan());
            let bytes = service.blobs.get_mut(&name).unwrap();
            match longer {
                true => bytes.push(0),
                false => bytes[20] ^= 1,
            }
            if longer {
                // The device asks for as many bytes as the name says, so more than those never arrive.
                let ended = run_one(&mut service, &mut Driven::new(0, floors()));
                assert!(matches!(ended, Ended::Reported(_)), "{ended:?}");
            } else {
                let refusal = refusal(&mut service, floors());
                assert!(
                    matches!(refusal, Refusal::Protocol(ProtocolError::Digest { .. })),
                    "{refusal}"
                );
            }
        }
    }
    // A model with another digest than the assignment names is another model: its name is in the context of the sum.
    let mut service = Service::new(plan());
    service.lies.assignment = Some(Box::new(|assignment| {
        assignment.model = Some(Blob::of(b"another model"));
    }));
    service
        .blobs
        .insert(digest_of(b"another model"), b"another model".to_vec());
    let refusal = refusal(&mut service, floors());
    assert!(refusal.to_string().contains("the model"), "{refusal}");
}

#[test]
fn assignments_that_cannot_be_read_are_refused() {
    type Change = fn(&mut Assignment);
    let changes: [(Change, &str); 12] = [
        (|it| it.session = vec![1; 15], "assignment.session"),
        (|it| it.task = vec![8; 32], "assignment.task"),
        (|it| it.chain = Vec::new(), "assignment.chain"),
        (|it| it.token = Vec::new(), "assignment.token"),
        (|it| it.token = vec![0; 5000], "assignment.token"),
        (
            |it| it.aggregator = "http://elsewhere/x".to_owned(),
            "assignment.aggregator",
        ),
        (
            |it| it.aggregator = "/v1/agg/0\r\nx: y".to_owned(),
            "assignment.aggregator",
        ),
        (|it| it.plan = None, "assignment.plan"),
        (|it| it.plan = Some(Blob::of(b"another")), "the plan"),
        (|it| it.model = None, "assignment.model"),
        (|it| it.model.as_mut().unwrap().length = u64::MAX, "the model"),
        (|it| it.settings = None, "assignment.settings"),
    ];
    for (change, name) in changes {
        let mut service = Service::new(plan(SumMode::Plain));
        service.lies.assignment = Some(Box::new(change));
        names(&refusal(&mut service, floors()), name);
    }
}

#[test]
fn plans_below_the_floors_are_refused_by_name() {
    let guarantee = |epsilon, delta, rho, noise_multiplier| {
        Some(Guarantee {
            epsilon,
            delta,
            rho,
            noise_multiplier,
        })
    };
    type Change = Box<dyn Fn(&mut Plan)>;
    let rule = |plan: &mut Plan, change: fn(&mut AggregationRule)| change(plan.aggregation.as_mut().unwrap());
    let changes: Vec<(Change, &str)> = vec![
        (Box::new(|plan| plan.report_goal = 3), "report_goal"),
        (
            Box::new(move |plan| rule(plan, |rule| rule.min_clients = 3)),
            "devices in a sum",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(10.1, 1e-8, 0.4, 3.0)),
            "guarantee.epsilon",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-4, 0.4, 3.0)),
            "guarantee.delta",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-8, 1.1, 3.0)),
            "guarantee.rho",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-8, f64::NAN, 3.0)),
            "guarantee.rho",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-8, -0.4, 3.0)),
            "guarantee.rho",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-8, 0.4, 0.4)),
            "guarantee.noise_multiplier",
        ),
        // Better than any noise of this multiplier, and than any Gaussian of this rho.
        (
            Box::new(move |plan| plan.guarantee = guarantee(6.0, 1e-8, 0.05, 3.0)),
            "guarantee.rho must be at least 0.05555555555555555",
        ),
        (
            Box::new(move |plan| plan.guarantee = guarantee(4.0, 1e-8, 0.4, 3.0)),
            "guarantee.epsilon must be at least 5.1",
        ),
        (Box::new(|plan| plan.guarantee = None), "guarantee"),
        (
            Box::new(|plan| plan.budget.as_mut().unwrap().cpu_ms = u64::MAX),
            "budget.cpu",
        ),
        (
            Box::new(|plan| plan.budget.as_mut().unwrap().battery_percent = 50),
            "budget.battery_percent",
        ),
        (Box::new(|plan| plan.clip = None), "clip"),
        (
            Box::new(|plan| {
                plan.clip = Some(ClipRule {
                    kind: Some(clip_rule::Kind::Flat(1e30)),
                });
            }),
            "clip.flat",
        ),
        (
            Box::new(|plan| plan.population = "another".to_owned()),
            "population",
        ),
        (Box::new(|plan| plan.task = vec![8; 32]), "task"),
        (Box::new(|plan| plan.model = "{}".to_owned()), "model"),
        (
            Box::new(|plan| {
                plan.model = r#"{"family": "dplm", "embed": 60000, "hidden": 60000}"#.to_owned();
            }),
            "model",
        ),
        (
            Box::new(|plan| {
                plan.user_update = r#"{"batch_size": 2, "learning_rate": 0.5, "weight_cap": 3.0}"#.to_owned();
            }),
            "user_update",
        ),
        (
            Box::new(|plan| {
                plan.user_update = r#"{"algorithm": "els", "group_size": 4}"#.to_owned();
            }),
            "user_update",
        ),
        (
            Box::new(|plan| plan.user_update = r#"{"batch_size": 2}"#.to_owned()),
            "user_update",
        ),
        (
            Box::new(|plan| plan.text = r#"{"max_sentence_tokens": 0}"#.to_owned()),
            "text",
        ),
        (
            // A rule of words that this device does not know, and a key of a later version.
            Box::new(|plan| plan.text = r#"{"words": "klingon"}"#.to_owned()),
            "unknown variant `klingon`",
        ),
        (
            Box::new(|plan| plan.text = r#"{"letters": "klingon"}"#.to_owned()),
            "unknown field `letters`",
        ),
        (Box::new(|plan| plan.vocabulary = None), "vocabulary"),
        (Box::new(|plan| plan.rounds = ROUND), "round"),
        (Box::new(|plan| plan.min_sep = 0), "min_sep"),
        (Box::new(|plan| plan.max_examples = u32::MAX), "max_examples"),
        (
            Box::new(move |plan| rule(plan, |rule| rule.length += 1)),
            "aggregation.length",
        ),
        (
            Box::new(move |plan| rule(plan, |rule| rule.mode = 0)),
            "aggregation.mode",
        ),
        (
            Box::new(move |plan| rule(plan, |rule| rule.modulus = 8)),
            "aggregation.encoding",
        ),
        (
            Box::new(|plan| {
                plan.set_kind(TaskKind::Evaluate);
                plan.of = vec![9; 32];
            }),
            "loss_cap",
        ),
    ];
    for (change, name) in changes {
        let mut plan = plan(SumMode::Plain);
        change(&mut plan);
        names(&refusal(&mut Service::new(plan), floors()), name);
    }
    let strict = PolicyFloors {
        require_secagg: true,
        ..floors()
    };
    names(
        &refusal(&mut Service::new(plan(SumMode::Plain)), strict),
        "aggregation.mode",
    );
}

#[test]
fn the_costs_of_all_tasks_together_stay_below_the_lifetime_budget() {
    for (spent, admitted) in [(0.6, true), (0.61, false)] {
        let mut memory = memory(0);
        memory.spent.insert([7; 32], spent);
        let mut service = Service::new(plan(SumMode::Plain));
        let mut device = Driven::with_memory(0, setup(floors()), memory);
        let ended = run_one(&mut service, &mut device);
        match (admitted, ended) {
            (true, Ended::Reported(_)) => {}
            (false, Ended::Refused(refusal)) => {
                names(&refusal, "rho");
                assert_eq!(service.upload_bytes(), 0);
            }
            (_, ended) => panic!("{spent}: {ended:?}"),
        }
    }
    // The task itself is counted once, however often the device takes part.
    let mut memory = memory(0);
    memory.spent.insert(TASK, 0.4);
    memory.spent.insert([7; 32], 0.6);
    let mut device = Driven::with_memory(0, setup(floors()), memory);
    let ended = run_one(&mut Service::new(plan(SumMode::Plain)), &mut device);
    assert!(matches!(ended, Ended::Reported(_)), "{ended:?}");
}

#[test]
fn an_upload_grant_for_another_length_is_refused() {
    let mut service = Service::new(plan(SumMode::Plain));
    let mut device = Driven::new(0, floors());
    // The plan on the service changes after the device has read its own: the grant has another length.
    for _ in 0..10_000 {
        if device.outcome.is_some() {
            break;
        }
        if device.has_taken_part() {
            service.plan.aggregation.as_mut().unwrap().length = 5;
        }
        service.now += 100;
        device.turn(&mut service);
    }
    let ended = device.outcome.unwrap().ended;
    let Ended::Refused(refusal) = ended else {
        panic!("{ended:?}");
    };
    names(&refusal, "upload grant");
    assert_eq!(service.upload_bytes(), 0);
}
