use super::super::noise::Source;
use super::*;
use super::{LANE, TEXT};

fn noise(source: Source, values: usize, smallest_p_holm: f64) -> Audit {
    Audit {
        noise: Some(NoiseTests {
            source,
            values,
            seed: None,
            seeded_run: false,
            left_out: Vec::new(),
            tests: Vec::new(),
            smallest_p_holm,
        }),
        claim: Some(claim()),
        ..Audit::new("run", "00")
    }
    .finish()
}

/// A claim of epsilon 4.
pub(crate) fn claim() -> GuaranteeRecord {
    serde_json::from_value(serde_json::json!({
        "epsilon": 4.0,
        "delta": 1e-5,
        "adjacency": "",
        "sampling": "",
        "recipe": "",
        "rounds": 2,
        "population": 10,
        "users_per_round": 5.0,
        "noise_multiplier": 1.0,
    }))
    .unwrap()
}

fn bound(level: &str, adversary: &str, confidence: f64, epsilon_lower: f64) -> Bound {
    Bound {
        level: level.to_owned(),
        adversary: adversary.to_owned(),
        unknown_to_attacker: Vec::new(),
        canaries: 100,
        members: 50,
        guesses: Some(10),
        correct: Some(9),
        confidence,
        headline: true,
        estimator: ANY.to_owned(),
        assumption: "none".to_owned(),
        epsilon_lower,
        most_that_could_show: None,
        p_at_claim: None,
    }
}

fn canaries(level: &str, epsilon_lower: f64, confirmed: Option<f64>) -> Audit {
    let adversary = if level == TEXT { FINAL } else { ITERATES };
    let confirmation = confirmed.map(|epsilon| bound(level, adversary, 0.999, epsilon));
    let canaries = [bound(level, adversary, 0.95, epsilon_lower)];
    Audit {
        canaries: canaries.into_iter().chain(confirmation).collect(),
        claim: Some(claim()),
        ..Audit::new("run", "00")
    }
    .finish()
}

fn said(audit: &Audit, text: &str) -> bool {
    audit.statements.iter().any(|statement| statement.contains(text))
}

#[test]
fn an_alarm_stays_where_a_later_audit_of_its_level_is_clean() {
    let alarm = noise(Source::ThisRun, 1, 1e-9);
    assert_eq!(alarm.judged(), Verdict::Contradicted);
    let clean = noise(Source::ThisRun, 2, 0.5).after(alarm.clone());
    assert_eq!((clean.audits, clean.judged()), (2, Verdict::Contradicted));
    assert_eq!(clean.noise.as_ref().unwrap().values, 2);
    assert!(clean.others.is_empty() && clean.alarms.len() == 1);
    assert!(said(
        &clean,
        "An earlier audit raised an alarm, a test of noise of the level 'lane'"
    ));
    // It stays through all further audits, once, and through the file.
    let again = noise(Source::ThisRun, 3, 0.5).after(alarm.after(clean));
    assert_eq!((again.audits, again.alarms.len()), (4, 1));
    assert_eq!(again.verdict, Verdict::Contradicted.sentence());
    let text = serde_json::to_string(&again).unwrap();
    assert_eq!(serde_json::from_str::<Audit>(&text).unwrap(), again);
    assert_eq!(again.clone().finish(), again);
}

#[test]
fn an_audit_of_another_level_stands_beside_the_one_before() {
    let lane = noise(Source::ThisRun, 1, 1e-9);
    let both = noise(Source::Rehearsal, 2, 0.5).after(lane);
    assert_eq!(both.noise.as_ref().unwrap().values, 2);
    assert_eq!(both.others[0].noise.as_ref().unwrap().values, 1);
    assert!(both.alarms.is_empty());
    assert_eq!(both.judged(), Verdict::Contradicted);
    assert!(said(
        &both,
        "stands beside these figures, a test of noise of the level 'lane': the claim is contradicted"
    ));
    // Canaries share their claim with tests of noise of the same level alone.
    let copy = canaries(TEXT, 1.0, None).after(both);
    assert!(copy.noise.is_none() && copy.canaries.len() == 1);
    let kept: Vec<_> = copy.others.iter().map(|other| other.section().unwrap()).collect();
    assert_eq!(kept, [(Kind::Noise, MECHANISM), (Kind::Noise, LANE)]);
    let rehearsed = canaries(MECHANISM, 1.0, None).after(copy);
    let kept: Vec<_> = rehearsed
        .others
        .iter()
        .map(|other| other.section().unwrap())
        .collect();
    assert_eq!(kept, [(Kind::Canaries, TEXT), (Kind::Noise, LANE)]);
    assert_eq!(rehearsed.noise.as_ref().unwrap().source, Source::Rehearsal);
    assert_eq!((rehearsed.audits, rehearsed.all().count()), (4, 3));
}

#[test]
fn the_worst_verdict_is_that_of_all_audits_together() {
    let once = canaries(LANE, 5.0, Some(3.0));
    assert_eq!(once.judged(), Verdict::OneInTwenty);
    assert!(once.verdict.contains("at most one audit in twenty"));
    let replaced = canaries(LANE, 1.0, None).after(once);
    assert_eq!(replaced.judged(), Verdict::OneInTwenty);
    let confirmed = canaries(MECHANISM, 5.0, Some(4.5)).after(replaced);
    assert_eq!(confirmed.judged(), Verdict::Contradicted);
    assert_eq!(canaries(MECHANISM, 5.0, None).judged(), Verdict::Contradicted);
    assert_eq!(
        canaries(MECHANISM, f64::NAN, None).judged(),
        Verdict::Contradicted
    );
}

#[test]
fn each_headline_names_its_level_its_attacker_and_its_delta() {
    for (level, place, seen) in [
        (MECHANISM, "a rehearsal of the mechanism", "all rounds"),
        (LANE, "the lane of this run", "all rounds"),
        (
            TEXT,
            "a copy of this run with invented users",
            "the final model alone",
        ),
    ] {
        let audit = canaries(level, 1.25, None);
        let expected = format!(
            "An attack of this kind and size on {place}, by somebody who sees {seen}, shows an epsilon of at least 1.25 at a delta of"
        );
        assert!(said(&audit, &expected), "{:?}", audit.statements);
    }
    let mut seeded = noise(Source::Rehearsal, 5, 0.5);
    assert!(!said(&seeded, "seed"));
    seeded = seeded.seeded(17).unwrap();
    assert!(said(&seeded, "follow from the seed 17"));
}
