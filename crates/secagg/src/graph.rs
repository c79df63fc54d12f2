//! The graph of pairs that mask with each other: a regular circulant graph (Harary's) over the places of the roster.
//!
//! Place `i` is joined to the places at distances 1 to `k / 2` around the circle and, where `k` is odd, to the place opposite;
//! such a graph stays connected after any `k - 1` vertices are gone, which is the most that `k` edges a vertex can do.
//! The server puts the clients on their places in random order, so whom a client meets is random as well
//! (\[SecAgg+\], section 3.2).
//!
//! Source: Harary, "The maximum connectivity of a graph", PNAS 1962.

use crate::error::{Result, SecAggError};
use crate::terms::Topology;

/// The neighbours of place `index`, in ascending order.
pub(crate) fn neighbours(topology: &Topology, index: u32) -> Vec<u32> {
    let (n, k) = (topology.clients(), topology.neighbours());
    let mut places: Vec<u32> = (1..=k / 2)
        .flat_map(|distance| [(index + distance) % n, (index + n - distance) % n])
        .collect();
    if k % 2 == 1 {
        places.push((index + n / 2) % n);
    }
    places.sort_unstable();
    places
}

/// Checks that `listed` are exactly the neighbours `expected` by a graph over `clients`.
pub(crate) fn check_neighbours(
    message: &'static str,
    expected: &[u32],
    mut listed: impl Iterator<Item = u32>,
    clients: u32,
) -> Result<()> {
    let mut expected = expected.iter().copied();
    loop {
        match (expected.next(), listed.next()) {
            (None, None) => return Ok(()),
            (expected, got) if expected == got => {}
            (expected, got) => {
                let (expected, got) = (expected.unwrap_or(clients), got.unwrap_or(clients));
                return Err(SecAggError::Neighbours {
                    message,
                    expected,
                    got,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_graph_is_simple_regular_and_symmetric() {
        for n in 2..40 {
            for k in 1..n {
                let Ok(topology) = Topology::new(n, k, 1) else {
                    continue;
                };
                for i in 0..n {
                    let near = neighbours(&topology, i);
                    assert_eq!(near.len(), k as usize);
                    assert!(near.is_sorted_by(|a, b| a < b), "no neighbour twice");
                    assert!(near.iter().all(|j| *j < n && *j != i));
                    assert!(near.iter().all(|j| neighbours(&topology, *j).contains(&i)));
                }
            }
        }
    }

    #[test]
    fn connected_after_any_loss_of_fewer_than_k() {
        for (n, k) in [(7, 2), (8, 3), (9, 4), (10, 5), (8, 7)] {
            let topology = Topology::new(n, k, 1).unwrap();
            for lost in 0u32..1 << n {
                if lost.count_ones() >= k {
                    continue;
                }
                let mut reached = lost | 1 << (!lost).trailing_zeros();
                while let Some(next) = (0..n).find(|i| {
                    reached >> i & 1 == 0
                        && neighbours(&topology, *i)
                            .iter()
                            .any(|j| (reached & !lost) >> j & 1 == 1)
                }) {
                    reached |= 1 << next;
                }
                assert_eq!(reached, (1 << n) - 1, "n {n}, k {k}, lost {lost:b}");
            }
        }
    }
}
