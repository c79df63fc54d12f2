//! The exchange of columns between the threads of a pass.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Looks at the board before a waiting thread lets others have its core.
const LOOKS: u32 = 1 << 12;

/// Board on which each thread puts the columns that it computed, for all threads to read.
pub(super) struct Board {
    /// Number of times that a thread has come to wait.
    arrived: AtomicUsize,
    /// A thread has panicked, so that nobody should wait for it.
    failed: AtomicBool,
    /// Two slots per thread, used in turn: a thread that writes to one knows that all have read it, since all have filled the other since.
    slots: Vec<[RwLock<Vec<f32>>; 2]>,
}

/// The place of one thread.
pub(super) struct Seat {
    board: Arc<Board>,
    number: usize,
    rounds: usize,
}

/// Tells the other threads of a panic.
pub(super) struct Guard(Arc<Board>);

impl Board {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            arrived: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            slots: (0..threads).map(|_| Default::default()).collect(),
        }
    }
}

impl Seat {
    pub(super) fn new(board: &Arc<Board>, number: usize) -> Self {
        let (board, rounds) = (Arc::clone(board), 0);
        Self {
            board,
            number,
            rounds,
        }
    }

    /// Kept during a pass, so that nobody waits for a thread that has panicked.
    pub(super) fn guard(&self) -> Guard {
        Guard(Arc::clone(&self.board))
    }

    /// Gives this thread's columns to all threads, and gathers those of all in `whole`, side by side in the order of the threads.
    ///
    /// # Panics
    /// If another thread of the pass has panicked.
    pub(super) fn gather(&mut self, rows: usize, own: &[f32], whole: &mut [f32]) {
        let (board, side) = (Arc::clone(&self.board), self.rounds % 2);
        let slots = &board.slots;
        {
            let slot = &slots[self.number][side];
            let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
            slot.clear();
            slot.extend_from_slice(own);
        }
        self.wait();
        let (total, mut first) = (whole.len() / rows, 0);
        for slot in slots {
            let slot = slot[side].read().unwrap_or_else(PoisonError::into_inner);
            let width = slot.len() / rows;
            // A thread without columns adds nothing.
            for (line, own) in whole.chunks_exact_mut(total).zip(slot.chunks_exact(width.max(1))) {
                line[first..first + width].copy_from_slice(own);
            }
            first += width;
        }
    }

    /// Waits for all threads.
    fn wait(&mut self) {
        self.rounds += 1;
        let Board {
            arrived,
            failed,
            slots,
        } = &*self.board;
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut looks = 0;
        while arrived.load(Ordering::Acquire) < self.rounds * slots.len() {
            assert!(
                !failed.load(Ordering::Relaxed),
                "another thread of the pass has panicked"
            );
            looks += 1;
            match looks < LOOKS {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "slow"]
    fn every_thread_gathers_the_columns_of_all_in_order() {
        let board = Arc::new(Board::new(3));
        std::thread::scope(|scope| {
            for number in 0..3 {
                let mut seat = Seat::new(&board, number);
                scope.spawn(move || {
                    let _guard = seat.guard();
                    for round in 0..400 {
                        // The first thread has one column, the second none, the third two.
                        let value = |row: usize, col: usize| (100 * round + 10 * row + col) as f32;
                        let columns = [0..1, 1..1, 1..3][number].clone();
                        let own: Vec<f32> = (0..2)
                            .flat_map(|row| columns.clone().map(move |col| value(row, col)))
                            .collect();
                        let mut whole = [0.0; 6];
                        seat.gather(2, &own, &mut whole);
                        let expected: Vec<f32> = (0..6).map(|place| value(place / 3, place % 3)).collect();
                        assert_eq!(whole[..], expected[..]);
                    }
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_panicked() {
        let board = Arc::new(Board::new(2));
        let (mut first, second) = (Seat::new(&board, 0), Seat::new(&board, 1));
        let ended = std::thread::scope(|scope| {
            let others = [
                scope.spawn(move || first.gather(1, &[1.0], &mut [0.0])),
                scope.spawn(move || {
                    let _guard = second.guard();
                    panic!("as a test");
                }),
            ];
            others.map(std::thread::ScopedJoinHandle::join)
        });
        assert!(ended.iter().all(Result::is_err));
    }
}
