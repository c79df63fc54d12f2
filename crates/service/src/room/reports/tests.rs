use undertone_protocol::{Code, Problem};

use super::*;
use crate::test_world::{Kind, World, checkin, member};

/// A device that has joined, by its claims, and the length of its upload.
fn joined(world: &World, device: u32) -> (Claims, u64) {
    let room = &world.room;
    let assigned = room.admit(&member(device), checkin(device, 0), &world.token);
    let assigned = assigned.unwrap_or_else(|problem| panic!("{problem:?}"));
    let now = world.service.shared().store.now();
    let claims = world.token.open(&assigned.token, now).unwrap();
    let step_of = room.join(&claims, &[]).unwrap();
    let Some(next::What::Upload(grant)) = step_of.what else {
        panic!("{step_of:?}")
    };
    (claims, grant.length)
}

fn committed(bytes: &[u8]) -> Commit {
    Commit {
        length: bytes.len() as u64,
        crc32c: crc32c(0, bytes),
        weight: 1.0,
        below: None,
    }
}

fn put(world: &World, claims: &Claims, bytes: &[u8]) -> Reply<u64> {
    world.room.upload(claims, 0, crc32c(0, bytes), bytes)
}

fn upload_of(world: &World, claims: &Claims) -> Arc<Mutex<Upload>> {
    world.room.upload_of(claims).unwrap()
}

fn busy<T: std::fmt::Debug>(reply: Result<T, Problem>) -> bool {
    reply.is_err_and(|problem| problem.code() == Code::Busy)
}

#[test]
fn requests_beside_a_commit_are_told_to_wait_and_hold_nobody_up() {
    let world = World::new(Kind::Memory, 4);
    let room = &world.room;
    let (claims, length) = joined(&world, 1);
    let bytes = vec![0; length as usize];
    assert_eq!(put(&world, &claims, &bytes), Ok(length));
    let upload = upload_of(&world, &claims);
    {
        // A commit holds the upload while it adds it.
        let _held = hold(&upload).unwrap();
        assert!(busy(room.offset(&claims)));
        assert!(busy(put(&world, &claims, &bytes)));
        assert!(busy(room.commit(&claims, &committed(&bytes))));
        assert!(busy(room.give_up(&claims)));
        // Requests that need no upload go on, for this session and for others.
        assert!(room.join(&claims, &[]).is_ok());
        assert!(room.next(&claims, 0).is_ok());
        let (other, _) = joined(&world, 2);
        assert_eq!(room.offset(&other), Ok(0));
    }
    assert_eq!(room.offset(&claims), Ok(length));
    for _ in 0..2 {
        let answer = room.commit(&claims, &committed(&bytes)).unwrap();
        assert!(matches!(answer.what, Some(next::What::Wait(_))), "{answer:?}");
    }
    assert_eq!(room.offset(&claims), Ok(length));
}

#[test]
fn an_upload_is_wiped_once_it_is_in_the_sum_or_its_session_is_lost() {
    let world = World::new(Kind::Memory, 4);
    let room = &world.room;
    let (claims, length) = joined(&world, 1);
    let bytes = vec![0; length as usize];
    put(&world, &claims, &bytes).unwrap();
    let upload = upload_of(&world, &claims);
    room.commit(&claims, &committed(&bytes)).unwrap();
    assert!(hold(&upload).unwrap().is_done());
    assert!(hold(&upload).unwrap().bytes().is_empty());
    let (lost, _) = joined(&world, 2);
    put(&world, &lost, &bytes).unwrap();
    let upload = Arc::downgrade(&upload_of(&world, &lost));
    room.give_up(&lost).unwrap();
    assert_eq!(upload.strong_count(), 0);
    assert_eq!(put(&world, &lost, &bytes).unwrap_err().code(), Code::Gone);
}

#[test]
fn a_session_does_not_expire_while_its_update_is_added() {
    let world = World::new(Kind::Memory, 4);
    let room = &world.room;
    let mut claims = Vec::new();
    for device in 1..=4 {
        claims.push(joined(&world, device).0);
    }
    assert!(room.target(&claims[0]).unwrap().is_some());
    let service = &room.task.file.service;
    // The sessions expire with their reports' deadline, where the attempt itself is not concluded by the expiry below.
    let later = room.now() + service.deadlines.report.millis();
    let mut inner = room.lock();
    let current = inner.current.as_mut().unwrap();
    let lost = current.sessions.expire(later);
    assert_eq!(lost.len(), 3);
    assert!(lost.iter().all(|(session, _)| session.0 != claims[0].session));
}
