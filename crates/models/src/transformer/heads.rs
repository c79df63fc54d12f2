//! Norms of each head's queries and keys, before they are turned.

use super::TransformerSizes;
use super::block::by;
use super::norm::Normaliser;
use crate::scalar::Scalar;
use std::ops::Range;

/// One gain for the queries of all heads, one for their keys; heads stand side by side within a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadNorms {
    norm: Normaliser,
    heads: usize,
    key_heads: usize,
    head_width: usize,
    row: usize,
}

impl HeadNorms {
    /// The norms of an architecture that has them; `norm` is that of rows.
    pub(super) fn of(norm: Normaliser, sizes: TransformerSizes) -> Option<Self> {
        sizes.architecture.head_norms.then(|| Self {
            norm: norm.by_root(),
            heads: sizes.heads,
            key_heads: sizes.key_heads(),
            head_width: sizes.head_width(),
            row: sizes.qkv_width(),
        })
    }

    /// Width of queries and keys side by side, and the number of heads in them.
    fn normed(self) -> (usize, usize) {
        let heads = self.heads + self.key_heads;
        (heads * self.head_width, heads)
    }

    /// Normalises queries and keys in `qkv`, whose rows are those of `span`; `raw` and `stats` keep what the backward pass needs, with
    /// places for all rows.
    pub(super) fn forward<T: Scalar>(
        self,
        qkv: &mut [T],
        gains: [&[T]; 2],
        span: &Range<usize>,
        raw: &mut [T],
        stats: &mut [[T; 2]],
    ) {
        let (width, heads) = self.normed();
        let raw = raw[by(span, width)].chunks_exact_mut(width);
        let stats = stats[by(span, heads)].chunks_exact_mut(heads);
        let queries = self.heads * self.head_width;
        for ((row, raw), stats) in qkv.chunks_exact_mut(self.row).zip(raw).zip(stats) {
            raw.copy_from_slice(&row[..width]);
            let (of_queries, of_keys) = row[..width].split_at_mut(queries);
            let (query_stats, key_stats) = stats.split_at_mut(self.heads);
            self.norm
                .forward(&raw[..queries], gains[0], &[], of_queries, query_stats);
            self.norm
                .forward(&raw[queries..], gains[1], &[], of_keys, key_stats);
        }
    }

    /// Turns gradients of normalised queries and keys in `gradient`, whose rows are those of `range`, into those before, and adds the
    /// gradients of the gains to theirs.
    pub(super) fn backward<T: Scalar>(
        self,
        gradient: &mut [T],
        gains: [&[T]; 2],
        range: &Range<usize>,
        raw: &[T],
        stats: &[[T; 2]],
        of_gains: [&mut [T]; 2],
    ) {
        let (width, heads) = self.normed();
        let raw = raw[by(range, width)].chunks_exact(width);
        let stats = stats[by(range, heads)].chunks_exact(heads);
        let queries = self.heads * self.head_width;
        let mut before = vec![T::ZERO; width];
        let [of_query_gain, of_key_gain] = of_gains;
        for ((row, raw), stats) in gradient.chunks_exact_mut(self.row).zip(raw).zip(stats) {
            before.fill(T::ZERO);
            let row = &mut row[..width];
            let (to_queries, to_keys) = before.split_at_mut(queries);
            let ((of_queries, of_keys), (raw_queries, raw_keys)) =
                (row.split_at(queries), raw.split_at(queries));
            let (query_stats, key_stats) = stats.split_at(self.heads);
            let norm = self.norm;
            norm.backward(
                of_queries,
                raw_queries,
                query_stats,
                gains[0],
                to_queries,
                of_query_gain,
                &mut [],
            );
            norm.backward(
                of_keys,
                raw_keys,
                key_stats,
                gains[1],
                to_keys,
                of_key_gain,
                &mut [],
            );
            row.copy_from_slice(&before);
        }
    }
}
