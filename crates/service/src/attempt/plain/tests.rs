use undertone_mechanisms::{Denominator, NonPrivate};

use super::*;

impl PlainSum {
    /// Number of updates in the sum; 0 after the seal.
    pub(crate) fn included(&self) -> usize {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map_or(0, |open| {
            let ledger = lock(&open.ledger);
            let included = |answer: &&Answer| matches!(answer, Answer::Included(_));
            ledger.answers.values().filter(included).count()
        })
    }
}

fn bound(clip_norm: f64) -> Bound {
    let layout = ParamLayout::with_tensor_groups(vec![("w".into(), vec![2])]).unwrap();
    Bound::new(Arc::new(layout), Clipping::Flat { clip_norm }, NonFinite::Zero)
}

fn bytes(values: [f32; 2]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn report(number: u8, bytes: &[u8]) -> Report<'_> {
    Report {
        session: SessionId([number; 16]),
        user: ParticipantId::new(u64::from(number)),
        bytes,
        weight: 1.0,
        below: None,
    }
}

fn plain(clip_norm: f64, goal: u32) -> PlainSum {
    PlainSum::new(bound(clip_norm), goal, false).unwrap()
}

fn read(sum: BoundedSum) -> Vec<f32> {
    let average = sum.into_raw().unwrap().average(Denominator::Fixed(1.0)).unwrap();
    NonPrivate.privatize(0, average).unwrap().into_values()
}

fn sealed(sum: &PlainSum) -> (Vec<f32>, Vec<u64>) {
    let result = sum.seal().unwrap_or_else(|refusal| panic!("{refusal}"));
    let users = result.included.iter().map(|contributor| contributor.user.get());
    let users = users.collect();
    (read(result.sum), users)
}

#[test]
fn the_first_commit_of_a_session_counts() {
    let sum = plain(1.0, 10);
    assert_eq!(sum.upload_bytes(), 8);
    assert_eq!(sum.commit(&report(1, &bytes([0.5, 0.0]))), Ok(Accepted::Now));
    assert_eq!(sum.commit(&report(1, &bytes([0.0, 0.9]))), Ok(Accepted::Before));
    assert_eq!(sum.commit(&report(2, &bytes([0.0, 0.25]))), Ok(Accepted::Now));
    assert_eq!(sum.included(), 2);
    assert_eq!(sealed(&sum), (vec![0.5, 0.25], vec![1, 2]));
}

#[test]
fn a_second_seal_is_gone() {
    let sum = plain(1.0, 10);
    sum.commit(&report(1, &bytes([0.5, 0.0]))).unwrap();
    sealed(&sum);
    assert_eq!(sum.seal().err(), Some(Refusal::Gone));
    assert_eq!(sum.commit(&report(2, &bytes([0.5, 0.0]))), Err(Refusal::Gone));
    assert_eq!(sum.commit(&report(1, &bytes([0.5, 0.0]))), Err(Refusal::Gone));
    assert_eq!(sum.included(), 0);
    let aborted = plain(1.0, 10);
    aborted.abort();
    assert_eq!(aborted.seal().err(), Some(Refusal::Gone));
}

#[test]
fn an_update_above_the_norm_is_clipped_and_above_twice_the_norm_refused() {
    let sum = plain(1.0, 10);
    assert_eq!(sum.commit(&report(1, &bytes([1.9, 0.0]))), Ok(Accepted::Now));
    for (number, values) in [
        (2, [2.1, 0.0]),
        (3, [f32::NAN, 0.0]),
        (4, [f32::NEG_INFINITY, 0.0]),
        (5, [f32::MAX, f32::MAX]),
    ] {
        assert_eq!(
            sum.commit(&report(number, &bytes(values))),
            Err(Refusal::Norm),
            "{values:?}"
        );
        // The session is over: an honest update comes too late.
        assert_eq!(
            sum.commit(&report(number, &bytes([0.1, 0.0]))),
            Err(Refusal::Norm)
        );
    }
    let (values, users) = sealed(&sum);
    assert!((0.999..=1.0).contains(&values[0]), "{values:?}");
    assert_eq!(users, [1]);
}

#[test]
fn length_weight_and_bit_must_be_exact() {
    let sum = plain(1.0, 10);
    let good = bytes([0.5, 0.0]);
    let refused = |report: &Report<'_>| sum.commit(report).unwrap_err().code();
    let range = undertone_protocol::Code::Range;
    for length in [0, 4, 7] {
        assert_eq!(refused(&report(1, &good[..length])), range);
    }
    assert_eq!(refused(&report(1, &[good.clone(), good.clone()].concat())), range);
    for weight in [0.0, 0.5, 1.000_001, f64::NAN, -1.0] {
        assert_eq!(
            refused(&Report {
                weight,
                ..report(1, &good)
            }),
            range,
            "{weight}"
        );
    }
    let below = Some(true);
    assert_eq!(
        refused(&Report {
            below,
            ..report(1, &good)
        }),
        range
    );
    // The session may still commit what it should.
    assert_eq!(sum.commit(&report(1, &good)), Ok(Accepted::Now));
}

#[test]
fn a_report_after_the_goal_is_late() {
    let sum = plain(1.0, 2);
    for number in 1..=2 {
        sum.commit(&report(number, &bytes([0.1, 0.0]))).unwrap();
    }
    assert_eq!(sum.commit(&report(3, &bytes([0.1, 0.0]))), Err(Refusal::Late));
    assert_eq!(sum.commit(&report(2, &bytes([0.1, 0.0]))), Ok(Accepted::Before));
    assert_eq!(sealed(&sum).1, [1, 2]);
}

#[test]
fn a_subject_is_in_the_sum_once() {
    let sum = plain(1.0, 10);
    let good = bytes([0.1, 0.0]);
    sum.commit(&report(1, &good)).unwrap();
    let other_device = Report {
        session: SessionId([9; 16]),
        ..report(1, &good)
    };
    assert!(matches!(sum.commit(&other_device), Err(Refusal::Conflict(_))));
    assert_eq!(sealed(&sum).1, [1]);
}

#[test]
fn bits_of_adaptive_clipping_are_centred_and_added() {
    let sum = PlainSum::new(bound(1.0), 10, true).unwrap();
    for (number, below) in [(1, true), (2, true), (3, false), (4, true)] {
        let below = Some(below);
        sum.commit(&Report {
            below,
            ..report(number, &bytes([0.1, 0.0]))
        })
        .unwrap();
    }
    let absent = sum.commit(&report(5, &bytes([0.1, 0.0])));
    assert_eq!(
        absent.unwrap_err().to_string(),
        "the bit of adaptive clipping must be there, got absent"
    );
    let result = sum.seal().unwrap_or_else(|_| panic!());
    assert_eq!(result.bits.map(read), Some(vec![1.0]));
    assert_eq!(result.included.len(), 4);
}

#[test]
fn a_goal_that_could_leave_the_range_of_the_sum_is_refused() {
    assert!(PlainSum::new(bound(4194.0), 1000, false).is_ok());
    for (norm, goal) in [(4195.0, 1000), (f64::NAN, 10), (f64::INFINITY, 10), (3e6, 1)] {
        assert!(PlainSum::new(bound(norm), goal, false).is_err(), "{norm} {goal}");
    }
}

/// Sixteen threads commit the updates of 400 sessions, each twice, with a goal of 300.
#[test]
fn threads_commit_each_session_once_and_never_more_than_the_goal() {
    let sum = plain(1.0, 300);
    let accepted = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let (sum, accepted) = (&sum, &accepted);
            scope.spawn(move || {
                for place in 0..50 {
                    let number = (thread * 25 + place) % 400;
                    let mut session = [0; 16];
                    session[..8].copy_from_slice(&number.to_le_bytes());
                    let outcome = sum.commit(&Report {
                        session: SessionId(session),
                        user: ParticipantId::new(number),
                        ..report(0, &bytes([0.125, 0.0]))
                    });
                    if outcome == Ok(Accepted::Now) {
                        accepted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let (values, users) = sealed(&sum);
    assert_eq!((users.len(), accepted.into_inner()), (300, 300));
    assert_eq!(values[0], 37.5);
}
