//! The lane of a run: it leaves the model as it is, tests the noise of the run itself, and can be read by a stranger.

use serde_json::{Value, json};
use undertone_run::{RunFile, Silent, train as train_file};
use undertone_verify::{publish, read_lane};

use crate::support::{
    bytes, changed, check_refusals, config, cut_and_resumed, holds, options, parsed, problems, train,
};

const LANE: &str = "audit={lane=40,noise_probe=24}";
const PROBES: &str = "audit={noise_probe=24}";

/// The kinds of run that may have a lane, or probes alone.
const KINDS: [(&[&str], &str); 14] = [
    (&[], LANE),
    (&["user_update={algorithm=\"uls\",group_size=3}"], LANE),
    (
        &[
            "user_update={algorithm=\"els\",group_size=3,batch_size=1}",
            "cohort={sampling=\"poisson\",examples_per_round=20}",
        ],
        LANE,
    ),
    (&["clip={kind=\"per_layer\",norm=0.3}"], LANE),
    (&["schedule=[{from_round=4,noise_multiplier=3.0}]"], PROBES),
    (&["cohort={sampling=\"fixed_size\",users_per_round=12}"], PROBES),
    (
        &[
            "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
            "privacy.mechanism={kind=\"blt\"}",
        ],
        LANE,
    ),
    (
        &[
            "cohort={sampling=\"fixed_size\",users_per_round=5}",
            "participation={min_sep=3}",
            "privacy.mechanism={kind=\"fhu\"}",
        ],
        LANE,
    ),
    (
        &[
            "cohort={sampling=\"fixed_size\",users_per_round=5}",
            "participation={min_sep=3}",
            "privacy.mechanism={kind=\"banded-toeplitz\"}",
        ],
        LANE,
    ),
    (&["clip={kind=\"per_layer\",norm=0.3}"], PROBES),
    (
        &[
            "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
            "privacy.mechanism={kind=\"tree\"}",
        ],
        LANE,
    ),
    (
        &[
            "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
            "privacy.mechanism={kind=\"tree-full\"}",
            "clip={kind=\"per_layer\",norm=0.3}",
        ],
        LANE,
    ),
    (&ADAPTIVE, LANE),
    (&ADAPTIVE, PROBES),
];

const ADAPTIVE: [&str; 4] = [
    "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
    "privacy.mechanism={kind=\"tree\",restarts={first=4,every=4}}",
    "clip={kind=\"adaptive\",initial_norm=0.3,bit_noise_std=3.0}",
    "user_update.clip_every_step=false",
];

#[test]
#[ignore = "slow"]
fn the_model_has_the_same_bytes_with_and_without_a_lane() {
    for (changes, table) in KINDS {
        let with: Vec<&str> = changes.iter().copied().chain([table]).collect();
        let (_without, plain) = train(&config(changes), 1);
        let (_one, audited) = train(&config(&with), 1);
        let (_two, again) = train(&config(&with), 2);
        let model = bytes(&plain.run_dir, "model.safetensors");
        assert!(model == bytes(&audited.run_dir, "model.safetensors"), "{with:?}");
        assert!(model == bytes(&again.run_dir, "model.safetensors"), "{with:?}");
        for name in ["lane.f32", "lane.json"] {
            let values = bytes(&audited.run_dir, name);
            assert!(values == bytes(&again.run_dir, name), "{with:?}: {name}");
            assert!(!plain.run_dir.join(name).exists());
        }
        assert_eq!(plain.privacy, audited.privacy, "{with:?}");
        holds(&audited.run_dir);
        let noise = read_lane(&audited.run_dir).unwrap().noise().unwrap();
        // With adaptive clipping each probe has a bit as well.
        let per_probe = if changes == ADAPTIVE { 2 } else { 1 };
        assert_eq!(noise.values, 240 * per_probe, "{with:?}");
        // The seed is fixed, so this either always holds or never does; a fresh one would fail once in a million.
        assert!(noise.smallest_p_holm > 1e-6, "{with:?}: {:?}", noise.tests);
    }
}

#[test]
#[ignore = "slow"]
fn a_run_that_goes_on_after_its_checkpoint_has_the_lane_of_a_whole_one() {
    for seed in [Some(1), None] {
        for (changes, table) in [KINDS[0], KINDS[2], KINDS[6], KINDS[12]] {
            let changes: Vec<&str> = changes
                .iter()
                .copied()
                .chain([table, "checkpoint.every=2"])
                .collect();
            let mut settings = config(&changes);
            settings.seed = seed;
            let cut = settings.clone();
            let (whole, _) = train(&settings, 1);
            let (_folder, summary) = cut_and_resumed(&RunFile::new(cut, "."), 5);
            holds(&summary.run_dir);
            if seed.is_some() {
                for name in ["lane.f32", "lane.json", "coins.json", "model.safetensors"] {
                    let expected = bytes(&whole.path().join("test"), name);
                    assert!(expected == bytes(&summary.run_dir, name), "{changes:?}: {name}");
                }
            }
            let audit = read_lane(&summary.run_dir).unwrap().audit(true).unwrap();
            assert!(!audit.judged().is_alarm(), "{audit:?}");
        }
    }
}

/// A canary that is in adds one contribution to the values of its rounds, or as many as its coins say, and one that is out adds nothing.
/// The seed is fixed, so a test that holds once always holds; a fresh one would fail a kind once in two million, at five sigmas.
#[test]
#[ignore = "slow"]
fn a_canary_has_the_values_of_its_contributions() {
    let quiet = "privacy.noise_multiplier=0.5";
    for (changes, table) in KINDS.into_iter().filter(|(_, table)| *table == LANE) {
        let changes: Vec<&str> = changes.iter().copied().chain([table, quiet]).collect();
        let (_runs, summary) = train(&config(&changes), 2);
        let claim = summary.privacy.planned.clone().unwrap();
        let lane = read_lane(&summary.run_dir)
            .unwrap()
            .values(&claim)
            .unwrap()
            .unwrap();
        let z = lane.noise_multiplier;
        assert!(
            (z / claim.noise_multiplier - 1.0).abs() < 1e-6,
            "{changes:?}: {z}"
        );
        let near = |sum: f64, variance: f64, what: &str| {
            assert!(
                sum.abs() < 5.0 * variance.sqrt(),
                "{changes:?}: {what} {sum} {variance}"
            );
        };
        for inside in [true, false] {
            let (mut sum, mut variance) = (0.0, 0.0);
            for (place, _) in lane.coins.iter().enumerate().filter(|(_, coin)| **coin == inside) {
                match lane.secret {
                    Some(coins) => {
                        let values = lane.canaries.iter().skip(place).step_by(lane.coins.len());
                        let (mean, spread) = match inside {
                            true => (coins.mean(), coins.variance()),
                            false => (0.0, 0.0),
                        };
                        sum += values.map(|value| value - mean).sum::<f64>();
                        variance += lane.rounds as f64 * (spread + z * z);
                    }
                    None => {
                        let square = lane.signals[place].powi(2);
                        sum += lane.matched[place] - if inside { square } else { 0.0 };
                        variance += z * z * square;
                    }
                }
            }
            assert!(variance > 0.0);
            near(sum, variance, "values");
        }
        // The final model has the same noise, in its own units.
        let last = lane.final_model.as_ref().unwrap();
        if let Some((signals, matched)) = last.matched() {
            let parts = lane.coins.iter().zip(signals.iter().zip(&matched));
            let (mut sum, mut variance) = (0.0, 0.0);
            for (coin, (signal, matched)) in parts {
                sum += matched - if *coin { signal * signal } else { 0.0 };
                variance += (z * signal).powi(2);
            }
            near(sum, variance, "final model");
        }
    }
}

#[test]
#[ignore = "slow"]
fn canaries_are_found_where_the_noise_is_small() {
    let quiet = "privacy.noise_multiplier=0.5";
    for (changes, table) in KINDS.into_iter().filter(|(_, table)| *table == LANE) {
        let changes: Vec<&str> = changes.iter().copied().chain([table, quiet]).collect();
        let (_runs, summary) = train(&config(&changes), 2);
        let recorded = read_lane(&summary.run_dir).unwrap();
        let audit = recorded.audit(true).unwrap();
        let headline = audit.canaries.iter().find(|bound| bound.headline).unwrap();
        assert_eq!((headline.level.as_str(), headline.canaries), ("lane", 40));
        let (guesses, correct) = (headline.guesses.unwrap(), headline.correct.unwrap());
        // A canary of a user who was in no round can only be guessed.
        assert!(10 * correct >= 7 * guesses, "{changes:?}: {correct} of {guesses}");
        assert!(!audit.judged().is_alarm());
        undertone_audit::record(&summary.run_dir, audit).unwrap();
        holds(&summary.run_dir);
    }
}

#[test]
#[ignore = "slow"]
fn a_changed_lane_and_a_changed_bound_are_named() {
    let (_runs, summary) = train(&config(&[LANE]), 1);
    let folder = &summary.run_dir;
    let audit = read_lane(folder).unwrap().audit(true).unwrap();
    undertone_audit::record(folder, audit).unwrap();
    holds(folder);
    let problems = || problems(folder);
    let coins = String::from_utf8(bytes(folder, "coins.json")).unwrap();
    let (from, to) = if coins.contains("01") {
        ("01", "10")
    } else {
        ("10", "01")
    };
    let statistic = "noise.tests[0].statistic";
    for (name, from, to, expected) in [
        ("audit.json", "\"statistic\": ", "\"statistic\": 1", statistic),
        ("audit.json", "\"correct\": ", "\"correct\": 1", "correct"),
        (
            "lane.json",
            "\"canaries\": 40",
            "\"canaries\": 41",
            "lane.json: changed since",
        ),
        ("coins.json", from, to, "names by their digest"),
    ] {
        changed(folder, name, from, to, expected);
    }
    let path = folder.join("lane.f32");
    let before = std::fs::read(&path).unwrap();
    std::fs::write(&path, &before[4..]).unwrap();
    assert!(
        problems().contains("lane.f32 is damaged: expected 2560 bytes"),
        "{}",
        problems()
    );
    std::fs::write(&path, [&before[..], &[0; 4]].concat()).unwrap();
    assert!(problems().contains("lane.f32"), "{}", problems());
}

/// Values of 1.2 MB, and as much of the names of the users whose rounds the canaries have: more than other small files may have.
#[test]
#[ignore = "slow"]
fn a_large_lane_is_trained_verified_and_published() {
    let mut settings = config(&[
        "rounds=6",
        "cohort={sampling=\"shuffled_epochs\",users_per_round=2}",
        "privacy.mechanism={kind=\"tree\"}",
        "audit={lane=50000,noise_probe=2}",
    ]);
    settings.seed = None;
    let (runs, summary) = train(&settings, 1);
    for name in ["lane.f32", "lane.json"] {
        assert!(bytes(&summary.run_dir, name).len() > 1 << 20, "{name}");
    }
    holds(&summary.run_dir);
    let folder = runs.path().join("published");
    publish(&summary.run_dir, &folder).unwrap();
    holds(&folder);
    assert_eq!(read_lane(&folder).unwrap().noise().unwrap().values, 12);
}

/// A run that ended early has its own smaller guarantee, and one whose users may have taken part beyond the schema a larger one than planned.
#[test]
#[ignore = "slow"]
fn a_lane_tests_the_guarantee_of_the_rounds_that_were_made() {
    let (_runs, whole) = train(&config(&[LANE]), 1);
    let planned = whole.privacy.planned.clone().unwrap();
    let audit = read_lane(&whole.run_dir).unwrap().audit(true).unwrap();
    assert_eq!(audit.claim, Some(planned.clone()));
    let budget = format!("privacy.max_epsilon={}", 0.8 * planned.epsilon);
    let kinds: [&[&str]; 2] = [
        &[LANE, &budget],
        &[
            LANE,
            "cohort={sampling=\"fixed_size\",users_per_round=5}",
            "participation={min_sep=3,on_violation=\"account\"}",
            "privacy.mechanism={kind=\"fhu\"}",
        ],
    ];
    for changes in kinds {
        let (_runs, summary) = train(&config(changes), 1);
        let by_budget = changes.len() == 2;
        assert_eq!(summary.rounds < 10, by_budget, "{changes:?}");
        let audit = read_lane(&summary.run_dir).unwrap().audit(true).unwrap();
        assert_eq!(audit.claim, summary.privacy.observed, "{changes:?}");
        if by_budget {
            assert!(audit.claim.as_ref().unwrap().epsilon < planned.epsilon);
        }
        undertone_audit::record(&summary.run_dir, audit).unwrap();
        holds(&summary.run_dir);
    }
}

/// The number of examples of a canary is that of the configuration: one of four billion in the report would take all memory.
#[test]
#[ignore = "slow"]
fn a_hostile_number_of_examples_is_named() {
    let (_runs, summary) = train(
        &config(&[
            LANE,
            "user_update={algorithm=\"els\",group_size=3,batch_size=1}",
            "cohort={sampling=\"poisson\",examples_per_round=20}",
        ]),
        1,
    );
    let folder = &summary.run_dir;
    let audit = read_lane(folder).unwrap().audit(true).unwrap();
    undertone_audit::record(folder, audit.clone()).unwrap();
    holds(folder);
    for (name, expected) in [
        ("privacy.json", "planned.group_size"),
        ("audit.json", "claim.group_size"),
    ] {
        let before = bytes(folder, name);
        let text = String::from_utf8(before.clone()).unwrap();
        let forged = text.replace("\"group_size\": 3", "\"group_size\": 4294967295");
        assert_ne!(forged, text, "{name}");
        std::fs::write(folder.join(name), forged).unwrap();
        assert!(
            problems(folder).contains(expected),
            "{name}: {}",
            problems(folder)
        );
        let again = read_lane(folder).unwrap().audit(true).unwrap();
        assert_eq!(again.canaries, audit.canaries, "{name}");
        std::fs::write(folder.join(name), before).unwrap();
    }
}

/// Nobody can make the guesses again without the coins. All but their counts and the limits of scores still follows from the configuration.
#[test]
#[ignore = "slow"]
fn bounds_whose_coins_are_gone_follow_from_their_counts() {
    let (_runs, summary) = train(&config(&[LANE]), 1);
    let folder = &summary.run_dir;
    let audit = read_lane(folder).unwrap().audit(true).unwrap();
    undertone_audit::record(folder, audit).unwrap();
    let finding = || {
        let verified = undertone_verify::verify(folder).unwrap();
        let checks = verified.checks.into_iter();
        checks
            .filter(|check| check.name == "audit")
            .map(|check| check.found)
            .collect::<String>()
    };
    assert!(!finding().contains("coins missing"), "{}", finding());
    std::fs::remove_file(folder.join("coins.json")).unwrap();
    holds(folder);
    assert!(finding().starts_with("coins missing: "), "{}", finding());
    let path = folder.join("audit.json");
    let honest: Value = serde_json::from_slice(&bytes(folder, "audit.json")).unwrap();
    let forge = |expected: &str, change: &dyn Fn(&mut Value)| {
        let mut forged = honest.clone();
        change(&mut forged);
        std::fs::write(&path, forged.to_string()).unwrap();
        let problems = problems(folder);
        assert!(problems.contains(expected), "{expected}: {problems}");
    };
    for (key, value) in [
        ("guesses", json!(12)),
        ("guesses_fdp", json!(12)),
        ("probes", json!(12)),
        ("canaries", json!(12)),
        ("significance", json!(0.4)),
        ("headline", json!("gaussian.shift")),
    ] {
        forge(&format!("plan.{key}"), &|audit| {
            audit["plan"][key] = value.clone();
        });
    }
    for (place, key, value) in [
        (0, "confidence", json!(0.6)),
        (1, "assumption", json!("none")),
        (0, "unknown_to_attacker", json!(["coins"])),
        (1, "in", json!(40)),
        (0, "level", json!("model")),
    ] {
        forge(&format!("canaries[{place}].{key}"), &|audit| {
            audit["canaries"][place][key] = value.clone();
        });
    }
    forge("canaries[0].in`: expected at most 40 canaries", &|audit| {
        audit["canaries"][0]["in"] = 41.into();
    });
    forge("canaries: expected 5 bounds, got 6", &|audit| {
        let copy = audit["canaries"][2].clone();
        audit["canaries"].as_array_mut().unwrap().push(copy);
    });
    forge("canaries: expected 5 bounds, got 4", &|audit| {
        audit["canaries"].as_array_mut().unwrap().pop();
    });
    forge("canaries`: expected at most 8 bounds, got 1000", &|audit| {
        let copy = audit["canaries"][2].clone();
        audit["canaries"] = vec![copy; 1000].into();
    });
}

#[test]
#[ignore = "slow"]
fn a_stranger_tests_the_noise_of_a_published_lane() {
    let mut settings = config(&[LANE]);
    settings.seed = None;
    let (runs, summary) = train(&settings, 1);
    let folder = runs.path().join("published");
    let published = publish(&summary.run_dir, &folder).unwrap();
    assert!(published.files.iter().any(|name| name == "lane.f32"));
    assert!(!folder.join("coins.json").exists());
    let recorded = read_lane(&folder).unwrap();
    let names = |tests: &[undertone_audit::noise::NoiseTest]| -> Vec<(String, f64)> {
        tests.iter().map(|test| (test.name.clone(), test.p)).collect()
    };
    let own = read_lane(&summary.run_dir).unwrap().noise().unwrap();
    let theirs = names(&recorded.noise().unwrap().tests);
    // The sizes of cohorts are withheld, and with them N7.
    let mut expected = names(&own.tests);
    expected.retain(|(name, _)| name != "N7");
    assert_eq!(theirs, expected);
    let error = recorded.audit(true).unwrap_err().to_string();
    assert!(error.contains("coins.json"), "{error}");
}

#[test]
fn runs_that_may_not_have_a_lane_refuse_it_by_name() {
    let error = |changes: &[&str]| {
        let refused = parsed(changes).map(|config| {
            let folder = tempfile::tempdir().unwrap();
            train_file(&RunFile::new(config, "."), &options(folder.path()), &Silent)
        });
        match refused {
            Ok(Err(error)) | Err(error) => error.to_string(),
            Ok(Ok(_)) => panic!("{changes:?}: trained"),
        }
    };
    check_refusals(
        &[],
        "
        audit={lane=5}
        audit.lane ... at least 10
        audit={noise_probe=1}
        audit.noise_probe ... at least 2
        audit={lane=100000000}
        audit.lane ... at most 1048576 canaries
        audit={lane=1000000} rounds=300
        audit.lane ... values over all rounds
        audit={noise_probe=100000000}
        audit.noise_probe ... values over all rounds
        audit={lane=10} user_update={algorithm='els',group_size=100000,batch_size=1} cohort={sampling='poisson',examples_per_round=20}
        user_update.group_size ... at most 65536
        audit={lanes=10}
        lanes
        audit={holdback=1.0}
        audit.holdback ... [0, 1)
        audit={holdback=nan}
        audit.holdback
        audit={lane=10} schedule=[{from_round=4,noise_multiplier=3.0}]
        schedule
        audit={lane=10} cohort={sampling=\"fixed_size\",users_per_round=12}
        cohort.sampling
        audit={noise_probe=10} estimator={kind=\"clipped_denominator\",min_weight=30.0}
        audit ... weight
        audit={noise_probe=10} cohort={sampling=\"fixed_size\",users_per_round=12} aggregation={sum=\"plain\",encoding={kind=\"identity\"},min_clients=2,max_clients=60}
        audit ... aggregation
        rounds=2100 audit={noise_probe=10} cohort={sampling=\"shuffled_epochs\",users_per_round=12} privacy.mechanism={kind=\"tree-full\"}
        privacy.mechanism.kind ... 2,048
        ",
        error,
    );
}
