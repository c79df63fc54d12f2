//! Two ranks of a run, as threads of one process.

use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};

use undertone_run::ranks::Ranks;
use undertone_run::{Result, RunFile, RunOptions, Silent, train_as_follower, train_as_leader};

const SIZE: usize = 2;

/// The state that both ranks share.
#[derive(Debug)]
struct World {
    barrier: Barrier,
    values: Mutex<Vec<i64>>,
    bytes: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Rank {
    rank: usize,
    world: Arc<World>,
}

impl Ranks for Rank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        SIZE
    }

    fn all_reduce(&self, values: &mut [i64]) -> Result<()> {
        {
            let mut sum = self.world.values.lock().unwrap();
            sum.resize(values.len(), 0);
            sum.iter_mut()
                .zip(&*values)
                .for_each(|(sum, value)| *sum += value);
        }
        self.world.barrier.wait();
        values.copy_from_slice(&self.world.values.lock().unwrap());
        // No rank may start the next sum before both have read this one.
        if self.world.barrier.wait().is_leader() {
            self.world.values.lock().unwrap().clear();
        }
        self.world.barrier.wait();
        Ok(())
    }

    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()> {
        if self.rank == from {
            self.world.bytes.lock().unwrap().clone_from(bytes);
        }
        self.world.barrier.wait();
        bytes.clone_from(&self.world.bytes.lock().unwrap());
        self.world.barrier.wait();
        Ok(())
    }
}

/// Trains a run by two ranks, and returns its directory.
pub(crate) fn trained_by_two(file: &RunFile, options: &RunOptions) -> PathBuf {
    let world = Arc::new(World {
        barrier: Barrier::new(SIZE),
        values: Mutex::default(),
        bytes: Mutex::default(),
    });
    std::thread::scope(|scope| {
        let of_rank = |rank| Rank {
            rank,
            world: world.clone(),
        };
        let second = of_rank(1);
        scope.spawn(move || train_as_follower(options, &second).unwrap());
        train_as_leader(file, options, &of_rank(0), &Silent)
            .unwrap()
            .run_dir
    })
}
