use std::sync::Arc;

use undertone_aggregation::{BoundedSum, Clipping, NonFinite};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::crc32c;
use undertone_store::Memory;

use super::*;
use crate::attempt::plain::PlainResult;

const LENGTH: usize = 5;

fn layout() -> Arc<ParamLayout> {
    Arc::new(ParamLayout::with_tensor_groups(vec![("w".into(), vec![LENGTH])]).unwrap())
}

fn bound() -> Bound {
    Bound::new(layout(), Clipping::Flat { clip_norm: 1.0 }, NonFinite::Refuse)
}

fn terms(attempt: u64, fence: u64, with_bits: bool) -> Terms<'static> {
    Terms {
        task: TaskId([7; 32]),
        attempt,
        fence,
        leader: "a",
        until: 1_000_000,
        goal: 4,
        with_bits,
    }
}

fn opening(attempt: u64, fence: u64) -> Opening {
    Opening::new(&terms(attempt, fence, false), &bound())
}

fn claims(number: u8, attempt: u64) -> SessionClaims {
    SessionClaims {
        session: [number; 16],
        pseudonym: u64::from(number),
        attempt,
        shard: 0,
        expires_ms: u64::MAX,
    }
}

fn bytes(value: f32) -> Vec<u8> {
    [value; LENGTH]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn commit_of(bytes: &[u8]) -> Commit {
    Commit {
        length: bytes.len() as u64,
        crc32c: crc32c(0, bytes),
        weight: 1.0,
        below: None,
    }
}

fn problem(trouble: Trouble) -> String {
    match trouble {
        Trouble::Refused(problem) => problem.message,
        Trouble::Damaged => "damaged".to_owned(),
    }
}

/// A sum of `numbers`, each an update of equal values, with a bit where it is asked for.
fn summed(numbers: &[u8], with_bits: bool) -> PlainResult {
    let sum = PlainSum::new(bound(), 10, with_bits).unwrap();
    for number in numbers {
        let report = Report {
            session: SessionId([*number; 16]),
            user: ParticipantId::new(u64::from(*number)),
            bytes: &bytes(f32::from(*number) / 100.0),
            weight: 1.0,
            below: with_bits.then_some(number % 2 == 0),
        };
        sum.commit(&report).unwrap();
    }
    sum.seal().unwrap()
}

/// The values of a sum, and its weight.
fn steps(mut sum: BoundedSum) -> Vec<i64> {
    let mut all = Vec::new();
    let done: Result<(), undertone_aggregation::AggregationError> = sum.combine(1, |values| {
        all.extend_from_slice(values);
        Ok(())
    });
    done.unwrap();
    all
}

#[test]
fn sums_of_shards_add_up_to_the_bits_of_one_sum() {
    for with_bits in [false, true] {
        let parts = [&[1, 2, 3][..], &[4], &[]].map(|numbers| {
            let written = Partial::write(9, 3, summed(numbers, with_bits)).unwrap();
            Partial::read(&written, 9, 3, LENGTH, with_bits).unwrap()
        });
        let mut result = summed(&[5, 6], with_bits);
        Partial::merge(&mut result, parts.into()).unwrap();
        let whole = summed(&[1, 2, 3, 4, 5, 6], with_bits);
        result.included.sort_unstable();
        assert_eq!(result.included, whole.included);
        assert_eq!(steps(result.sum), steps(whole.sum));
        assert_eq!(result.bits.map(steps), whole.bits.map(steps));
    }
}

#[test]
fn a_partial_sum_of_another_attempt_length_or_kind_is_none() {
    let written = Partial::write(9, 3, summed(&[1, 2], true)).unwrap();
    let read = |bytes: &[u8], attempt, fence, length, bits| {
        Partial::read(bytes, attempt, fence, length, bits).is_some()
    };
    assert!(read(&written, 9, 3, LENGTH, true));
    assert!(!read(&written, 8, 3, LENGTH, true));
    assert!(!read(&written, 9, 4, LENGTH, true));
    assert!(!read(&written, 9, 3, LENGTH + 1, true));
    assert!(!read(&written, 9, 3, LENGTH, false));
    for length in 0..written.len() {
        assert!(!read(&written[..length], 9, 3, LENGTH, true), "{length} bytes");
    }
    let longer = [&written[..], &[0]].concat();
    assert!(!read(&longer, 9, 3, LENGTH, true));
    let mut huge = written.to_vec();
    huge[32..36].fill(0xff);
    assert!(!read(&huge, 9, 3, LENGTH, true));
}

#[test]
fn an_opening_travels_without_a_changed_bit() {
    for clipping in [
        Clipping::Flat { clip_norm: 0.1 + 0.2 },
        Clipping::PerLayer {
            clip_norms: vec![1.0 / 3.0],
        },
        Clipping::None,
    ] {
        let bound = Bound::new(layout(), clipping.clone(), NonFinite::Zero);
        let sent = Opening::new(&terms(1, 2, true), &bound);
        let text = serde_json::to_vec(&sent).unwrap();
        let got: Opening = serde_json::from_slice(&text).unwrap();
        assert_eq!(got, sent);
        assert_eq!(got.clipping(), clipping);
        assert_eq!(got.non_finite(), NonFinite::Zero);
        assert_eq!(got.task(), Some(TaskId([7; 32])));
    }
}

#[test]
fn a_shard_is_opened_once_and_under_the_highest_fence() {
    let shards = Shards::default();
    shards.open(&opening(5, 2), layout()).unwrap();
    assert_eq!(shards.open(&opening(5, 2), layout()), Err(Refusal::Gone));
    assert_eq!(shards.open(&opening(6, 1), layout()), Err(Refusal::Gone));
    shards.open(&opening(6, 3), layout()).unwrap();
    let other = Arc::new(ParamLayout::with_tensor_groups(vec![("w".into(), vec![3])]).unwrap());
    let refused = shards.open(&opening(7, 3), other).unwrap_err().to_string();
    assert!(refused.contains("uploads of 20 bytes"), "{refused}");
}

#[test]
fn an_update_is_added_once_and_only_after_its_session_has_joined() {
    let shards = Shards::default();
    let spool = Arc::new(Spool::new(1 << 20, &std::env::temp_dir()).unwrap());
    shards.open(&opening(5, 2), layout()).unwrap();
    let shard = shards.of(5).unwrap();
    let (claims, update) = (claims(1, 5), bytes(0.1));
    let (session, commit) = (SessionId(claims.session), commit_of(&update));
    let early = problem(shard.take(session, 0, crc32c(0, &update), &update).unwrap_err());
    assert!(early.contains("has not joined"), "{early}");
    // A process that ends waits for a session that has joined, and for none that may join.
    assert!(shards.are_vacant());
    shard.joined(session, &spool);
    assert!(!shards.are_vacant());
    assert_eq!(
        shard
            .take(session, 0, crc32c(0, &update[..8]), &update[..8])
            .unwrap(),
        8
    );
    let short = problem(shard.is_added(session, &commit).unwrap_err());
    assert!(short.contains("8 of 20"), "{short}");
    assert_eq!(
        shard
            .take(session, 8, crc32c(0, &update[8..]), &update[8..])
            .unwrap(),
        20
    );
    // A repeated join keeps the upload.
    shard.joined(session, &spool);
    assert_eq!(shard.offset(session).unwrap(), 20);
    assert!(!shard.is_added(session, &commit).unwrap());
    shard.add(&claims, &commit).unwrap();
    shard.add(&claims, &commit).unwrap();
    assert!(shard.is_added(session, &commit).unwrap());
    assert_eq!(shard.sum.included(), 1);
    assert!(!shards.are_vacant(), "its update is in the sum");
}

#[test]
fn a_shard_gives_no_sum_before_the_store_says_that_its_attempt_is_being_released() {
    let shards = Shards::default();
    let store = Memory::default();
    shards.open(&opening(5, 2), layout()).unwrap();
    // The store knows no such attempt.
    assert_eq!(shards.seal(5, 2, &store).map(drop), Err(Refusal::Gone));
    assert_eq!(shards.seal(5, 1, &store).map(drop), Err(Refusal::Gone));
    assert_eq!(shards.seal(6, 2, &store).map(drop), Err(Refusal::Gone));
    assert!(shards.of(5).is_some(), "a refused seal takes nothing");
}
