use super::*;

/// A task of 6,500 reports per round with a model of 2.4 million parameters.
fn shape() -> TaskShape {
    TaskShape {
        rounds: 2_000,
        goal: 6_500,
        sessions: 8_450,
        min_sep: 300,
        max_part: 7,
        parameters: 2_400_000,
        coordinates: 2_400_000,
        model_bytes: 9_600_000,
        plan_bytes: 4_096,
        upload_bytes: 9_600_000,
        noise_buffers: 4,
        groups: None,
        select_s: 600.0,
        report_s: 1_200.0,
        attempt_s: 3_600.0,
        timer_s: 3_600.0,
        min_interval_s: 900.0,
        checkins_per_needed: 3.0,
        epochs: 1,
        min_examples: 8,
        max_examples: 256,
        cpu_limit_s: 120.0,
        upload_kbps_min: 128.0,
    }
}

fn conditions() -> PopulationAssumptions {
    PopulationAssumptions {
        population: 10e6,
        eligible: 0.5,
        ..PopulationAssumptions::default()
    }
}

fn of(shape: &TaskShape, conditions: &PopulationAssumptions) -> Estimate {
    estimate(shape, conditions, &Rates::default()).unwrap()
}

#[test]
fn a_task_that_fits_has_no_obstacle_and_the_figures_of_its_formulas() {
    let found = of(&shape(), &conditions());
    assert_eq!(found.obstacles, Vec::<String>::new());
    let sessions = 6_500.0 / 0.9;
    assert!((found.sessions_per_round - sessions).abs() < 1e-6);
    assert!((found.needed.by_separation - 300.0 * sessions).abs() < 1e-3);
    assert!((found.needed.by_participations - 2_000.0 * sessions / 7.0).abs() < 1e-3);
    let by_pace = 299.0 * sessions + sessions / (0.1 * (600.0 / 900.0));
    assert!((found.needed.by_pace - by_pace).abs() < 1e-3);
    let arrivals = 0.1 * (5e6 - 299.0 * sessions) / 900.0;
    assert!((found.selection_seconds - sessions / arrivals).abs() < 1e-6);
    let device = &found.device;
    assert!((device.cpu_seconds - 800.0 * 1e-4 / 0.25 - 0.01 / 0.25).abs() < 1e-9);
    let transfer = device.down_bytes * 8.0 / 20e6 + device.up_bytes * 8.0 / 5e6;
    assert!((device.session_seconds - transfer - device.cpu_seconds).abs() < 1e-9);
    let round = found.selection_seconds
        + device.session_seconds
        + 2_400_000.0 * Rates::default().release_s_per_parameter;
    assert!((found.round_seconds - round).abs() < 1e-6);
    assert!((found.days * 86_400.0 - 2_000.0 * round).abs() < 1e-3);
    assert!((found.rounds_per_day * found.round_seconds - 86_400.0).abs() < 1e-6);
}

#[test]
fn each_bound_that_a_population_does_not_meet_is_an_obstacle_with_both_figures() {
    let base = conditions();
    let cases: [(&str, TaskShape, PopulationAssumptions); 8] = [
        (
            "participation.min_sep = 300",
            shape(),
            PopulationAssumptions {
                population: 2e6,
                ..base
            },
        ),
        (
            "participation.max_part = 1",
            TaskShape {
                max_part: 1,
                ..shape()
            },
            base,
        ),
        (
            "service.deadlines.select = 1 s",
            TaskShape {
                select_s: 1.0,
                ..shape()
            },
            base,
        ),
        (
            "service.budget.cpu",
            shape(),
            PopulationAssumptions {
                device_speed: 1e-4,
                ..base
            },
        ),
        (
            "service.deadlines.report",
            TaskShape {
                report_s: 10.0,
                ..shape()
            },
            base,
        ),
        (
            "service.budget.upload_kbps_min",
            shape(),
            PopulationAssumptions {
                upload_mbps: 0.1,
                ..base
            },
        ),
        (
            "service.eligibility.min_examples",
            shape(),
            PopulationAssumptions {
                examples: 2.0,
                ..base
            },
        ),
        (
            "service.deadlines.attempt",
            TaskShape {
                attempt_s: 30.0,
                groups: Some(Groups {
                    size: 500,
                    neighbours: 48,
                    phases_s: 120.0,
                }),
                ..shape()
            },
            base,
        ),
    ];
    for (named, shape, conditions) in cases {
        let found = of(&shape, &conditions).obstacles;
        let hits: Vec<&String> = found.iter().filter(|line| line.contains(named)).collect();
        assert_eq!(hits.len(), 1, "{named}: {found:?}");
        assert!(
            hits[0].matches(|c: char| c.is_ascii_digit()).count() >= 2,
            "{hits:?}"
        );
    }
}

#[test]
fn the_needed_population_is_the_smallest_without_an_obstacle() {
    for shape in [
        shape(),
        TaskShape {
            max_part: 2,
            ..shape()
        },
        TaskShape {
            select_s: 20.0,
            ..shape()
        },
    ] {
        let needed = of(&shape, &conditions()).needed.max() / conditions().eligible;
        let at = |population: f64| {
            let conditions = PopulationAssumptions {
                population,
                ..conditions()
            };
            of(&shape, &conditions).obstacles.len()
        };
        assert_eq!(at(needed * 1.000_001), 0);
        assert!(at(needed * 0.999_999) > 0);
    }
}

#[test]
fn a_timer_bounds_the_rounds_per_day() {
    // Each device comes once per day, so a day has at most as many sessions as there are devices.
    let shape = TaskShape {
        timer_s: 86_400.0 * 30.0,
        ..shape()
    };
    let found = of(&shape, &conditions());
    let sessions_per_day = found.rounds_per_day * found.sessions_per_round;
    assert!(
        (sessions_per_day * 30.0 / 5e6 - 1.0).abs() < 1e-9,
        "{sessions_per_day}"
    );
}

#[test]
fn a_secure_sum_costs_masks_messages_and_waits() {
    let plain = of(&shape(), &conditions());
    let groups = Groups {
        size: 500,
        neighbours: 48,
        phases_s: 120.0,
    };
    let secure = of(
        &TaskShape {
            groups: Some(groups),
            ..shape()
        },
        &conditions(),
    );
    assert!(secure.device.cpu_seconds > plain.device.cpu_seconds + 0.3);
    assert!(secure.device.session_seconds > plain.device.session_seconds + 120.0);
    assert!(secure.server.core_seconds > plain.server.core_seconds + 10.0);
    // Section "Wire protocol" of the design counts 23 kB of roster at n = 1,000 and k = 48.
    let (down, _) = Groups {
        size: 1_000,
        ..groups
    }
    .message_bytes();
    assert!((23_000.0..29_000.0).contains(&down), "{down}");
}

#[test]
fn conditions_and_rates_out_of_range_are_refused_by_name() {
    let refused = |conditions: PopulationAssumptions, name: &str| {
        let error = estimate(&shape(), &conditions, &Rates::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(name), "{error}");
    };
    let base = conditions();
    refused(
        PopulationAssumptions {
            population: 0.0,
            ..base
        },
        "--population",
    );
    refused(
        PopulationAssumptions {
            eligible: 1.5,
            ..base
        },
        "--eligible",
    );
    refused(
        PopulationAssumptions {
            availability: f64::NAN,
            ..base
        },
        "--availability",
    );
    refused(
        PopulationAssumptions {
            drop_out: 1.0,
            ..base
        },
        "--drop-out",
    );
    refused(
        PopulationAssumptions {
            drop_out: -0.1,
            ..base
        },
        "--drop-out",
    );
    refused(
        PopulationAssumptions {
            upload_mbps: f64::INFINITY,
            ..base
        },
        "--upload-mbps",
    );
    let rates = Rates {
        boards_per_core_s: 0.0,
        ..Rates::default()
    };
    let error = estimate(&shape(), &base, &rates).unwrap_err().to_string();
    assert!(error.contains("boards_per_core_s"), "{error}");
}
