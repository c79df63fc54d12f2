use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_protocol::Digest32;
use undertone_store::{ManualClock, Memory, Store};

use super::text::{TaskFigures, shown};
use super::*;

/// All figures as text.
fn text(metrics: &Metrics, scrape: &BTreeMap<TaskId, TaskFigures>) -> String {
    super::text(&shown(metrics, scrape))
}

const TASK: TaskId = TaskId([7; 32]);

fn scrape(sessions: u64) -> BTreeMap<TaskId, TaskFigures> {
    let task = TaskFigures {
        name: "words".to_owned(),
        population: "people".to_owned(),
        head_round: 3,
        epsilon: Some(1.25),
        sessions: BTreeMap::from([("ready", sessions), ("assigned", 9)]),
    };
    BTreeMap::from([(TASK, task)])
}

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|number| number.parse().unwrap())
}

#[test]
fn figures_of_devices_are_hidden_below_ten_and_move_in_steps_of_ten() {
    let metrics = Metrics::default();
    let series = "undertone_checkins_total{population=\"people\",task=\"words\",result=\"ASSIGNED\"}";
    for number in 1..=35_u64 {
        metrics.check_in(Some(TASK), None);
        metrics.added(1000 + number, Duration::from_millis(number));
        let shown = (number - number % 10) as f64;
        let text = text(&metrics, &scrape(number));
        assert_eq!(value(&text, series).unwrap_or(0.0), shown);
        assert_eq!(value(&text, "undertone_add_seconds_count").unwrap_or(0.0), shown);
        let ready = "undertone_sessions{population=\"people\",task=\"words\",state=\"ready\"}";
        assert_eq!(value(&text, ready).unwrap_or(0.0), shown);
        // The sums are those of the updates that are counted, and of no other.
        let bytes = 1000.0 * shown + shown * (shown + 1.0) / 2.0;
        assert_eq!(value(&text, "undertone_upload_bytes_total").unwrap_or(0.0), bytes);
        assert!(!text.contains("assigned\"}"), "nine sessions are shown: {text}");
    }
}

#[test]
fn figures_of_the_service_and_of_releases_are_exact() {
    let metrics = Metrics::default();
    metrics.opened(TASK, 1000);
    metrics.ended(TASK, "few", 3500);
    // The store was asked twice.
    metrics.ended(TASK, "few", 9999);
    metrics.lease_lost();
    let text = text(&metrics, &scrape(0));
    for (series, expected) in [
        (
            "undertone_attempts_total{population=\"people\",task=\"words\",reason=\"few\"}",
            1.0,
        ),
        (
            "undertone_attempt_seconds_sum{population=\"people\",task=\"words\"}",
            2.5,
        ),
        ("undertone_lease_lost_total", 1.0),
        ("undertone_head_round{population=\"people\",task=\"words\"}", 3.0),
        (
            "undertone_epsilon_spent{population=\"people\",task=\"words\"}",
            1.25,
        ),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}: {text}");
    }
}

#[test]
fn phases_are_timed_over_ten_groups_and_name_none() {
    let metrics = Metrics::default();
    for group in 0..10 {
        metrics.phase(TASK, group, Phase::Keys);
        metrics.phase(TASK, group, Phase::Shares);
        // A group of the next attempt begins anew.
        metrics.phase(TASK, group, Phase::Keys);
    }
    let text = text(&metrics, &scrape(0));
    let keys = "undertone_secagg_phase_seconds_count{phase=\"keys\"}";
    assert_eq!(value(&text, keys), Some(10.0), "{text}");
    let series = |line: &str| !line.starts_with('#');
    assert!(
        !text.lines().any(|line| series(line) && line.contains("group")),
        "{text}"
    );
    assert!(!text.contains("phase=\"shares\""), "{text}");
}

#[test]
fn a_name_in_a_label_cannot_end_it() {
    let mut scrape = scrape(0);
    scrape.get_mut(&TASK).unwrap().name = "a\"} 1\nfake_total 7\\".to_owned();
    let text = text(&Metrics::default(), &scrape);
    assert!(text.contains("task=\"a\\\"} 1\\nfake_total 7\\\\\""), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("fake_total")), "{text}");
}

#[test]
fn an_observed_store_counts_its_transactions_by_name() {
    let metrics = Arc::new(Metrics::default());
    let store = Arc::new(Memory::new(Arc::new(ManualClock::at(5))));
    let store = ObservedStore::new(store, metrics.clone(), Arc::default());
    assert_eq!(store.now(), 5);
    assert!(store.tasks().unwrap().is_empty());
    for number in 0..12 {
        let key: Digest32 = [number; 32];
        store.enrol(&crate::test_world::enrolment(&key)).unwrap();
    }
    let text = text(&metrics, &BTreeMap::new());
    assert_eq!(
        value(&text, "undertone_tx_seconds_count{name=\"tasks\"}"),
        Some(1.0),
        "{text}"
    );
    assert_eq!(
        value(&text, "undertone_tx_seconds_count{name=\"enrol\"}"),
        Some(10.0),
        "{text}"
    );
}

#[test]
fn the_funnel_is_shown_by_version_from_ten_devices_on() {
    let metrics = Metrics::default();
    let series = |step: &str, version: &str| {
        format!(
            "undertone_funnel_total{{population=\"people\",task=\"words\",step=\"{step}\",app_version=\"{version}\"}}"
        )
    };
    for number in 0..25_u8 {
        let device: Digest32 = [number; 32];
        metrics.funnels().answered(TASK, 3, &device, Err(Code::Full));
        if number < 9 {
            metrics.funnels().answered(TASK, 4, &device, Err(Code::Upgrade));
        }
        let shown = text(&metrics, &scrape(0));
        let expected = (number >= 9).then_some(f64::from((number + 1) / 10 * 10));
        assert_eq!(value(&shown, &series("asked", "3")), expected, "{shown}");
        assert_eq!(value(&shown, &series("no_place", "3")), expected);
        assert!(!shown.contains("app_version=\"4\""), "{shown}");
    }
}
