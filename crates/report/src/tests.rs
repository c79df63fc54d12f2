use super::*;
use undertone_coordinator::record::{GuaranteePoint, GuaranteeRecord, PrivacyReport, SchemaRecord};
use undertone_run_directory::metrics::{
    CommonestPrediction, EvaluationRecord, HeadWords, Histogram, Metrics, MetricsLine, RoundRecord,
    StartRecord,
};

fn guarantee(epsilon: f64) -> GuaranteeRecord {
    GuaranteeRecord {
        epsilon,
        delta: 1e-6,
        adjacency: "add or remove one user".into(),
        sampling: "Poisson sampling".into(),
        recipe: "RDP".into(),
        rounds: 120,
        population: 10_000,
        users_per_round: 100.0,
        group_size: None,
        noise_multiplier: 1.1,
        schema: None,
        sampler_delta: Some(3.4e-21),
        points: Vec::new(),
    }
}

pub(crate) fn metrics(top1: f64) -> Metrics {
    let head = |shift: u64| (0..11).map(|i| (i + shift) * 7 % 40).collect();
    Metrics {
        top1,
        top3: top1 * 1.5,
        top5: top1 * 1.8,
        top1_all_ids: top1 * 0.9,
        in_vocab_top1: Some(top1 * 1.1),
        perplexity: 300.0 - 900.0 * top1,
        targets: 12_345,
        out_of_vocabulary: 321,
        users: Some(57),
        top1_standard_error: Some(0.0031),
        top3_standard_error: Some(0.0042),
        top5_standard_error: Some(0.0044),
        top1_all_ids_standard_error: Some(0.0029),
        in_vocab_top1_standard_error: Some(0.0034),
        loss_standard_error: Some(0.02),
        commonest_prediction: Some(CommonestPrediction { id: 3, share: 0.2 }),
        sample: None,
        head_words: Some(HeadWords {
            top10: head(1),
            top50: head(5),
            top100: head(9),
        }),
    }
}

/// A run of `rounds` rounds with curves like those of a real one.
pub(crate) fn run(rounds: u64, private: bool) -> RunData {
    let wave = |i: u64, k: f64| ((i as f64) * k).sin();
    let round = |i: u64| RoundRecord {
        round: i,
        cohort_size: (100.0 + 9.0 * wave(i, 1.7)) as usize,
        cohort_weight: 80.0,
        tokens: Some(150_000),
        train_loss: Some(4.5 + 3.0 * (-(i as f64) / 30.0).exp() + 0.1 * wave(i, 2.3)),
        clip_norm: private.then_some(0.8),
        discarded: Some(0),
        clipped_fraction: Some(0.4 + 0.1 * wave(i, 0.9)),
        update_norms: Some(Histogram {
            edges: (0..=24)
                .map(|edge| f64::from(edge) * (1.6 + 0.05 * wave(i, 1.1)) / 24.0)
                .collect(),
            counts: (0..24u64)
                .map(|bin| (14.0 * (-((bin as f64 - 10.0) / 4.0).powi(2)).exp()) as u64)
                .collect(),
        }),
        release_norm: 0.9,
        noise_std: if private { 1e-4 } else { 0.0 },
        signal_to_noise: private.then_some(0.8 * (-(i as f64) / 60.0).exp() + 0.05 * wave(i, 3.1).abs()),
        epsilon: private.then_some(0.3 * ((i + 1) as f64).sqrt()),
        seconds: 2.5,
        ..RoundRecord::default()
    };
    let evaluation = |i: u64| EvaluationRecord {
        round: i,
        split: "validation".into(),
        train_seconds: i as f64 * 2.5,
        metrics: metrics(0.16 * (1.0 - (-(i as f64) / 40.0).exp())),
    };
    RunData {
        directory: "runs/example".into(),
        config: Some(
            "name = \"<example> & more\"\nrounds = 120\n\n[clip]\nkind = \"flat\"\nnorm = 0.8\n".into(),
        ),
        start: StartRecord {
            run: "exa<m>ple".into(),
            model: "dplm".into(),
            parameters: 1_352_033,
            frozen_parameters: 0,
            train_users: 10_000,
            train_tokens: Some(16_000_000),
            rounds: 120,
            user_sizes: Some(Histogram {
                edges: (0..=12).map(|edge| f64::exp2(f64::from(edge))).collect(),
                counts: vec![1, 4, 30, 120, 400, 900, 1700, 2600, 2400, 1200, 500, 145],
            }),
            best_accuracy: Some(0.21),
            unigram_accuracy: Some(0.051),
            unigram_standard_error: Some(0.0012),
            warning: None,
        },
        rounds: (0..rounds).map(round).collect(),
        evaluations: (0..=rounds / 10)
            .filter(|_| rounds > 0)
            .map(|i| evaluation(i * 10))
            .collect(),
        privacy: Some(PrivacyReport {
            private,
            statements: vec!["Unit of privacy: a user, with all text they contributed.".into()],
            warnings: vec!["The run is seeded & the guarantee is for study only.".into()],
            planned: private.then(|| guarantee(3.286)),
            observed: private.then(|| guarantee(3.214)),
            estimate: private.then(|| guarantee(1.152)),
            ..PrivacyReport::default()
        }),
    }
}

pub(crate) fn store(run: &RunData, folder: &Path) {
    let mut lines = vec![MetricsLine::Start(run.start.clone())];
    lines.extend(run.rounds.iter().cloned().map(MetricsLine::Round));
    lines.extend(run.evaluations.iter().cloned().map(MetricsLine::Evaluation));
    let text: String = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    std::fs::write(folder.join("metrics.jsonl"), text).unwrap();
    if let Some(config) = &run.config {
        std::fs::write(folder.join("config.toml"), config).unwrap();
    }
    if let Some(privacy) = &run.privacy {
        std::fs::write(
            folder.join("privacy.json"),
            serde_json::to_string(privacy).unwrap(),
        )
        .unwrap();
    }
}

/// Checks that every element is closed in order, that attribute values are quoted, and that no number is broken.
fn check_markup(text: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "stray > before {:.40}", &rest[at..]);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/'])
            .next()
            .unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closing {name}");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
        if name == "style" && !tag.starts_with('/') {
            rest = &rest[rest.find("</style>").expect("the style sheet ends")..];
        }
    }
    assert!(open.is_empty(), "unclosed {open:?}");
    for broken in ["NaN", "=\"inf", "-inf", "undefined"] {
        assert!(!text.contains(broken), "{broken}");
    }
}

fn check_run(run: &RunData, pictures: &[&str], phrases: &[&str]) {
    let drawn = plots(run).unwrap();
    assert_eq!(
        drawn.iter().map(|picture| picture.name).collect::<Vec<_>>(),
        pictures
    );
    for picture in &drawn {
        assert!(picture.svg.starts_with("<svg ") && picture.svg.trim_end().ends_with("</svg>"));
        check_markup(&picture.svg);
    }
    let html = html(run).unwrap();
    check_markup(&html);
    for phrase in phrases {
        assert!(html.contains(phrase), "{phrase:?} is missing");
    }
    for external in ["http-equiv", "<script", "<link", "@import", "url("] {
        assert!(!html.contains(external), "{external}");
    }
}

const ALL: [&str; 8] = [
    "accuracy",
    "epsilon",
    "train-loss",
    "update-norms",
    "clipped-fraction",
    "signal-to-noise",
    "cohort-sizes",
    "user-sizes",
];

#[test]
fn a_private_run_shows_its_guarantee_and_every_picture() {
    let phrases = [
        "exa&lt;m&gt;ple",
        "</span> 3.214 <span>",
        "</span> 3.286 <span>",
        "</span> 1.152 <span>",
        "&delta; = 1e-6",
        "seeded &amp; the guarantee",
        "not the guarantee of this run",
        "&lt;example&gt; &amp; more",
        "Head words",
        "1,352,033",
        "clip norm 0.8",
        "most frequent word 5.10 %",
        "% ± 0.31",
        "best reachable 21.00 %",
    ];
    check_run(&run(120, true), &ALL, &phrases);
}

/// The first and the last evaluation are of more targets than the others, and their samples make one curve with them.
#[test]
fn the_curve_of_a_report_is_of_equal_targets_to_its_last_round() {
    let mut curve = run(40, true);
    let points: Vec<f64> = curve.evaluations.iter().map(|point| point.metrics.top1).collect();
    for place in [0, points.len() - 1] {
        let metrics = &mut curve.evaluations[place].metrics;
        let sample = Box::new(metrics.clone());
        (metrics.top1, metrics.targets, metrics.users) = (0.9, 99_000, Some(400));
        metrics.sample = Some(sample);
    }
    let drawn = |run: &RunData| plots(run).unwrap()[0].clone();
    let picture = drawn(&curve);
    assert_eq!(picture.svg, drawn(&run(40, true)).svg);
    let equal = "Every point is of equal targets, 12,345 of 57 users; the standard error of the last one is 0.31 percentage points.";
    assert!(picture.caption.ends_with(equal), "{}", picture.caption);
    // The table is of all targets.
    let rows = summary(&curve);
    let row = |name: &str| &rows.iter().find(|row| row.0 == name).expect("a row").1;
    assert_eq!(row("keyboard top-1"), "90.00 % ± 0.31");
    assert!(row("evaluated on").contains("99,000 targets of 400 users"));
    // A run of an older version has points of other targets.
    curve.evaluations[1].metrics.users = None;
    assert!(!drawn(&curve).caption.contains("equal targets"));
}

#[test]
fn partial_and_non_private_runs_have_reports() {
    check_run(&run(0, true), &["user-sizes"], &["0 of 120 rounds", "3.286"]);
    check_run(&run(1, true), &ALL, &["1 of 120 rounds"]);
    let without = [
        "accuracy",
        "train-loss",
        "update-norms",
        "cohort-sizes",
        "user-sizes",
    ];
    check_run(&run(40, false), &without, &["Warning"]);
    let mut early = run(7, true);
    (early.privacy, early.config) = (None, None);
    early.evaluations.clear();
    check_run(
        &early,
        &ALL[1..],
        &["has not written its guarantee yet", "Epsilon after 7 rounds"],
    );
}

#[test]
fn odd_numbers_do_not_break_pictures() {
    let mut odd = run(3, true);
    odd.rounds[0].train_loss = Some(f64::NAN);
    odd.rounds[1].train_loss = Some(f64::INFINITY);
    odd.rounds.iter_mut().for_each(|round| round.cohort_size = 0);
    odd.rounds
        .iter_mut()
        .for_each(|round| round.update_norms = Some(Histogram::default()));
    odd.start.user_sizes = Some(Histogram {
        edges: vec![0.0, 1.0],
        counts: vec![3],
    });
    let expected = [
        "accuracy",
        "epsilon",
        "train-loss",
        "clipped-fraction",
        "signal-to-noise",
        "cohort-sizes",
    ];
    check_run(&odd, &expected, &[]);
    let mut long = run(120, true);
    long.rounds = (0..5000)
        .map(|i| RoundRecord {
            round: i,
            ..long.rounds[i as usize % 120].clone()
        })
        .collect();
    assert!(
        plots(&long)
            .unwrap()
            .iter()
            .all(|picture| picture.svg.len() < 60_000)
    );
}

/// A service learns neither losses nor norms of its devices: their pictures are left out, and the others are drawn.
#[test]
fn a_task_of_a_service_is_drawn_without_what_it_never_learns() {
    let mut task = run(30, true);
    task.start.train_tokens = None;
    task.start.user_sizes = None;
    task.evaluations.clear();
    for round in &mut task.rounds {
        (round.tokens, round.train_loss, round.discarded) = (None, None, None);
        (round.clipped_fraction, round.update_norms) = (None, None);
    }
    let names: Vec<_> = plots(&task).unwrap().iter().map(|picture| picture.name).collect();
    assert_eq!(names, ["epsilon", "signal-to-noise", "cohort-sizes"]);
    let page = html(&task).unwrap();
    assert!(
        page.contains("devices of a population of at most 10,000 users"),
        "{page}"
    );
    assert!(!page.contains("tokens per second"));
    let rows = summary(&task);
    assert!(rows.contains(&("declared population", "at most 10,000 users".to_owned())));
    assert!(rows.iter().all(|(name, _)| !name.contains("tokens")));
}

#[test]
fn a_written_report_reads_back_with_all_its_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let stored = RunData {
        directory: folder.path().to_owned(),
        ..run(120, true)
    };
    store(&stored, folder.path());
    assert_eq!(read(folder.path()).unwrap(), stored);
    write(folder.path()).unwrap();
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert_eq!(page, html(&stored).unwrap());
    for name in ALL {
        assert!(
            folder.path().join(format!("plots/{name}.svg")).is_file(),
            "{name}"
        );
    }
    // Again, over the old files.
    write(folder.path()).unwrap();
}

fn check_error(metrics: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("metrics.jsonl"), metrics).unwrap();
    let message = read(folder.path())
        .err()
        .map_or_else(|| "ok".to_owned(), |error| error.to_string());
    assert!(
        message.contains(expected),
        "{message:?} does not contain {expected:?}"
    );
}

#[test]
fn damaged_files_are_named_with_their_line() {
    let run = run(2, true);
    let start = serde_json::to_string(&MetricsLine::Start(run.start.clone())).unwrap();
    let round = serde_json::to_string(&MetricsLine::Round(run.rounds[0].clone())).unwrap();
    check_error(&format!("{start}\n{round}\n"), "ok");
    check_error(&format!("{start}\n{}", &round[..40]), "ok");
    check_error(
        &format!("{start}\n{}\n{round}\n", &round[..40]),
        "metrics.jsonl, line 2: expected one record",
    );
    check_error(&format!("{round}\n"), "has no start line");
    check_error("", "has no start line");
    check_error(&format!("{start}\n{{\"kind\":\"other\"}}\n"), "line 2");
    let empty = tempfile::tempdir().unwrap();
    let message = read(empty.path()).unwrap_err().to_string();
    assert!(message.contains("metrics.jsonl: no such file"), "{message}");
    std::fs::write(empty.path().join("metrics.jsonl"), format!("{start}\n")).unwrap();
    std::fs::write(empty.path().join("privacy.json"), "{\n\"private\": 3}").unwrap();
    let message = read(empty.path()).unwrap_err().to_string();
    assert!(
        message.contains("privacy.json, line 2: expected a privacy report"),
        "{message}"
    );
}

#[test]
fn the_privacy_report_is_the_checklist() {
    let mut data = run(30, true);
    let privacy = data.privacy.as_mut().unwrap();
    let observed = privacy.observed.as_mut().unwrap();
    observed.schema = Some(SchemaRecord {
        mechanism: "BLT(4)".into(),
        min_sep: 301,
        exact_sep: false,
        max_part: 6,
        sensitivity: 4.5,
        rho: 0.2489,
    });
    observed.points = vec![GuaranteePoint {
        delta: 1e-10,
        epsilon: 4.4871,
    }];
    let text = undertone_run_directory::privacy_page::document("r", data.privacy.as_ref().unwrap());
    for words in [
        "> **Warning.** The run is seeded",
        "- **Unit of privacy.** a user",
        "### Observed: (3.214, 1e-6)-DP",
        "| Participation | at most 6 times (MaxP), at least 301 rounds apart (MinS 300) |",
        "| zCDP | rho = 0.2489 |",
        "| 1e-10 | 4.488 |",
        "| Sampler | adds 3.4e-21 to delta, counted |",
        "### Planned",
        "### Estimate",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    let page = html(&data).unwrap();
    assert!(page.contains("MinS 300"), "{page}");
    let not_private = run(3, false).privacy.unwrap();
    assert!(
        undertone_run_directory::privacy_page::document("r", &not_private).contains("gives no guarantee")
    );
}
