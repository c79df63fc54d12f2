//! The number of assignments per second, which this prints.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::test_world::{Kind, World, checkin, member};

/// Admits as many devices as there are places, on this many threads, and returns the rate per second.
fn rate(kind: Kind, goal: u32, threads: u32) -> f64 {
    let world = World::new(kind, goal);
    let next = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let device = next.fetch_add(1, Ordering::Relaxed);
                    if device >= world.places {
                        return;
                    }
                    let admitted = world
                        .room
                        .admit(&member(device), checkin(device, 0), &world.token);
                    assert!(admitted.is_ok(), "device {device}: {:?}", admitted.err());
                }
            });
        }
    });
    f64::from(world.places) / begun.elapsed().as_secs_f64()
}

/// Prints assignments per second, without the signatures of the devices: `cargo test -p undertone-service assignments_per_second -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, of half a minute"]
fn assignments_per_second() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        for threads in [1, 8, 64, 256] {
            let rate = rate(kind, 8000, threads);
            println!("{kind:?}, {threads} threads: {rate:.0} assignments/s");
        }
    }
}
