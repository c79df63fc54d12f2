//! The processes that MPI started.

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};

use super::Ranks;
use crate::error::{Result, RunError};

/// Max values or bytes per message: lengths of MPI are 32 bits, and a sum needs a copy of its input.
const PIECE: usize = 1 << 16;

/// The world that `mpirun` started; it ends with this value.
///
/// Calls come from the thread that started it. An error of MPI itself ends all processes: that is its default.
pub struct MpiRanks {
    world: SimpleCommunicator,
    _universe: Universe,
}

impl std::fmt::Debug for MpiRanks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MpiRanks")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl MpiRanks {
    /// Joins the world.
    ///
    /// # Errors
    /// [`RunError::Rank`] if this process has joined before, or the MPI library does not let other threads run.
    pub fn start() -> Result<Self> {
        let refused = |got: &str| RunError::Rank {
            rank: 0,
            expected: "an MPI library that allows threads".to_owned(),
            got: got.to_owned(),
        };
        let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Funneled) else {
            return Err(refused("MPI that this process has already started"));
        };
        if threading < Threading::Funneled {
            return Err(refused("an MPI library for single-threaded processes"));
        }
        Ok(Self {
            world: universe.world(),
            _universe: universe,
        })
    }

    /// Ends all processes of the world, this one with a failure.
    pub fn abort(&self) -> ! {
        self.world.abort(1)
    }
}

impl Ranks for MpiRanks {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn all_reduce(&self, values: &mut [i64]) -> Result<()> {
        let mut own = Vec::with_capacity(PIECE.min(values.len()));
        for piece in values.chunks_mut(PIECE) {
            own.clear();
            own.extend_from_slice(piece);
            self.world
                .all_reduce_into(&own[..], piece, SystemOperation::sum());
        }
        Ok(())
    }

    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let root = self.world.process_at_rank(from as i32);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        for piece in bytes.chunks_mut(PIECE) {
            root.broadcast_into(piece);
        }
        Ok(())
    }
}
