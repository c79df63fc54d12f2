use undertone_protocol::{Code, Problem};

use super::*;
use crate::capacity::Capacity;
use crate::test_world::{Kind, World};

/// A device that has joined, by its claims, and the length of its upload.
fn joined(world: &World, device: u32) -> (Claims, u64) {
    let (_, claims, length) = world.joined(device);
    (claims, length)
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
    match world.room.upload_of(claims).unwrap() {
        Uploading::Open(upload) => upload,
        Uploading::Nothing | Uploading::Done(_) => panic!("no upload is open"),
    }
}

fn busy<T: std::fmt::Debug>(reply: Result<T, Problem>) -> bool {
    reply.is_err_and(|problem| problem.code() == Code::Busy)
}

#[test]
fn requests_beside_a_commit_are_refused_as_busy_and_hold_nobody_up() {
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
        assert!(matches!(answer.step, Some(next::Step::Wait(_))), "{answer:?}");
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
    assert_eq!(world.service.spool().reserved(), 0);
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

/// A world whose uploads stand in the file of the spool.
fn spooled() -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let capacity = Capacity {
        spool_ram: 0,
        spool_folder: Some(folder.path().to_owned()),
        ..Capacity::default()
    };
    (World::with_large_model(&capacity), folder)
}

/// The chunks of an upload.
fn put_all(world: &World, claims: &Claims, bytes: &[u8]) -> Reply<u64> {
    let mut stands = 0;
    for chunk in bytes.chunks(100_000) {
        stands = world.room.upload(claims, stands, crc32c(0, chunk), chunk)?;
    }
    Ok(stands)
}

#[test]
fn an_upload_that_was_spooled_is_added_and_a_damaged_one_ends_its_session() {
    let (world, folder) = spooled();
    let room = &world.room;
    let (good, length) = joined(&world, 1);
    let (bad, _) = joined(&world, 2);
    let bytes: Vec<u8> = (0..length as u32 / 4)
        .flat_map(|at| (at as f32 * 1e-9).to_le_bytes())
        .collect();
    assert_eq!(put_all(&world, &good, &bytes), Ok(length));
    let first = world.service.spool().on_disk();
    assert!(first > 0);
    assert_eq!(put_all(&world, &bad, &bytes), Ok(length));
    // The records of the second upload come after those of the first.
    world.service.spool().spoil(first + 5);
    let refused = room.commit(&bad, &committed(&bytes)).unwrap_err();
    assert_eq!(refused.code(), Code::Gone);
    assert_eq!(room.offset(&bad).unwrap_err().code(), Code::Gone);
    room.commit(&good, &committed(&bytes)).unwrap();
    assert_eq!(world.service.spool().on_disk(), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let counts = room.lock().current.as_ref().unwrap().machine.counts();
    assert_eq!((counts.reported, counts.lost), (1, 1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_makes_devices_wait_and_the_attempt_go_on() {
    let (world, _folder) = spooled();
    let room = &world.room;
    let (claims, length) = joined(&world, 1);
    let bytes = vec![0; length as usize];
    world.service.spool().fill();
    assert!(busy(put_all(&world, &claims, &bytes)));
    let stands = room.offset(&claims).unwrap();
    assert_eq!(stands, 0);
    room.tick().unwrap();
    let state = world.service.shared().store.task(room.task.id).unwrap().state;
    assert_eq!(state, undertone_protocol::TaskState::Active);
    world.service.spool().make_space();
    assert_eq!(put_all(&world, &claims, &bytes), Ok(length));
    assert!(room.commit(&claims, &committed(&bytes)).is_ok());
}
