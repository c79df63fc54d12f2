//! Runs each worker on its own thread.

/// Runs `work` with each worker on its own thread. Returns the results in the order of the workers.
///
/// # Errors
/// The first in that order. A panic of a worker goes on in the caller.
pub fn on_threads<W: Send, T: Send, E: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let work = &work;
    std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        handles
            .into_iter()
            .map(|handle| {
                handle
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_in_order_and_the_first_error() {
        let mut workers = [1, 2, 3];
        let work = |worker: &mut i32| {
            *worker *= 10;
            if *worker > 100 { Err(*worker) } else { Ok(*worker) }
        };
        assert_eq!(on_threads(&mut workers, work), Ok(vec![10, 20, 30]));
        assert_eq!(on_threads(&mut workers, work), Err(200));
        assert_eq!(on_threads(&mut [(); 0], |()| Ok::<(), ()>(())), Ok(vec![]));
    }
}
