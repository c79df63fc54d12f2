//! Removing near-duplicates of private text from a public corpus.

mod filter;
mod index;
mod minhash;
#[cfg(test)]
mod tests;
mod url;

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use undertone_vocabulary::{MadeFromPeople, not_private};

use crate::columns::{Columns, Keys};
use crate::error::{Result, invalid};
use crate::file;
use crate::made_from;
use crate::path::expand;
use crate::progress::{Progress, Stage};
use crate::rows::Rows;
use crate::source::{files, read_columns};
use index::PrivateBlock;
use minhash::{MinHash, shingles};
use undertone_settings::name_of_source;
use url::UrlFilter;

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupSource {
    /// The file: `.parquet`, `.jsonl`, `.csv`, `.tsv`, else plain text with one document per line.
    pub path: String,
    /// Column with the text.
    pub text: String,
    /// Column with the document's own URL, if URLs are to be compared.
    pub url: Option<String>,
}

/// The definition of a near-duplicate, and the settings of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct DedupOptions {
    /// Jaccard similarity of the sets of word 5-grams from which on two documents are near-duplicates, in (0, 1].
    pub threshold: f64,
    /// Bands of the locality-sensitive hash.
    pub bands: usize,
    /// Minima in a band: two documents of similarity `s` agree in one band with probability `s^rows_per_band`.
    pub rows_per_band: usize,
    /// Bytes for the part of the private corpus that is compared at a time.
    pub memory: usize,
    /// Public documents whose URL is at one of these hosts, or below it, are removed.
    pub hosts: Vec<String>,
    /// Replaces an existing file.
    pub overwrite: bool,
}

impl Default for DedupOptions {
    fn default() -> DedupOptions {
        DedupOptions {
            threshold: 0.8,
            bands: 32,
            rows_per_band: 6,
            memory: 1 << 30,
            hosts: Vec::new(),
            overwrite: false,
        }
    }
}

impl DedupOptions {
    /// Probability that a document of Jaccard similarity `similarity` to a private one is not found: `(1 - s^r)^b` for `b`
    /// bands of `r` minima, as long as the hash is as good as random.
    #[must_use]
    pub fn miss_probability(&self, similarity: f64) -> f64 {
        let agree = similarity.powi(self.rows_per_band as i32);
        (1.0 - agree).powi(self.bands as i32)
    }

    fn validate(&self) -> Result<()> {
        let check = |key, fits: bool, expected: &str, got: String| match fits {
            true => Ok(()),
            false => Err(invalid(key, expected, got)),
        };
        let threshold = self.threshold > 0.0 && self.threshold <= 1.0;
        check(
            "threshold",
            threshold,
            "a number in (0, 1]",
            self.threshold.to_string(),
        )?;
        let within = |value: usize, max| (1..=max).contains(&value);
        check(
            "bands",
            within(self.bands, 1024),
            "between 1 and 1024",
            self.bands.to_string(),
        )?;
        let rows = self.rows_per_band;
        check(
            "rows_per_band",
            within(rows, 1024),
            "between 1 and 1024",
            rows.to_string(),
        )?;
        let min_memory = 16 << 20;
        check(
            "memory",
            self.memory >= min_memory,
            "at least 16777216 bytes",
            self.memory.to_string(),
        )
    }
}

/// Counts of kept and removed rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DedupSummary {
    /// Rows of the public corpus.
    pub rows: u64,
    /// Rows kept.
    pub kept: u64,
    /// Rows removed as near-duplicates of a private document.
    pub near_duplicates: u64,
    /// Rows removed by their URL alone.
    pub by_url: u64,
    /// Rows of the private corpus.
    pub private_rows: u64,
    /// Number of passes over the public corpus: one per part of the private corpus that fits in memory.
    pub passes: u64,
    /// Probability that a document just at the threshold is missed. More similar documents are missed more rarely.
    pub miss_probability: f64,
}

/// Copies the rows of `public` that are no near-duplicates of any text of `private` to `output`, in their format and order.
///
/// A document is the set of its word 5-grams (words by the rule of Unicode, in lower case; of shorter texts the words
/// together are the one gram). Candidates come from `bands * rows_per_band` min-wise hashes; of each candidate the Jaccard
/// similarity is then computed from the sets, so nothing below the threshold is removed. With URL columns on both sides,
/// documents with the URL of a private document are removed as well.
///
/// The private corpus is taken in parts that fit in `memory`, and the public one is streamed past each; beside that there is
/// one bit a public row, and 8 bytes a private URL. A text without words is nobody's duplicate.
///
/// # Guarantee
/// None by itself: the result depends on the private text (a removed document tells that a similar one exists). It is for
/// public corpora that shall not contain the private one, so that what a private fine-tuning gains is not overstated. A record beside the
/// output says that it is not private.
///
/// # Errors
/// [`DataError::Setting`](crate::DataError::Setting), [`DataError::OutputExists`](crate::DataError::OutputExists)
/// unless overwriting is asked for, and whatever reading says.
///
/// # Source
/// \[UserDP\] Appendix D; Lee et al., *Deduplicating training data makes language models better* (ACL 2022), appendix A
/// (`NearDup`). DEVIATION: they compare candidates by edit similarity of the text, this by the Jaccard similarity of 5-grams.
pub fn dedup(
    public: &DedupSource,
    private: &DedupSource,
    output: &Path,
    options: &DedupOptions,
    progress: &dyn Progress,
) -> Result<DedupSummary> {
    options.validate()?;
    file::refuse_existing(output, options.overwrite)?;
    let public_path = expand("PUBLIC", &public.path, Path::new(""))?;
    if public_path.is_dir() {
        // Its rows are written again in the file's own format.
        return Err(invalid(
            "PUBLIC",
            "one file; those of a folder one by one",
            format!("the folder {}", public_path.display()),
        ));
    }
    let (own, other) = (files::extension(&public_path), files::extension(output));
    if own != other && files::TEXTS.contains(&other) {
        let expected =
            format!("a name that ends in .{own}, because the rows are written in the format of PUBLIC");
        return Err(invalid("--output", expected, output.display()));
    }
    let private_path = expand("--against", &private.path, Path::new(""))?;
    let minhash = MinHash::new(options.bands, options.rows_per_band);
    let mut urls = UrlFilter::new(public, private, &options.hosts)?;
    let mut removed = Removed::default();
    let (mut private_rows, mut passes) = (0, 0);
    let mut pass = |block: &PrivateBlock, removed: &mut Removed, urls: Option<&UrlFilter>| {
        passes += 1;
        let mut at = 0;
        read_columns(&public_path, public.columns(), &mut |rows, total| {
            let found = compare(rows, at, block, &minhash, options.threshold, removed);
            removed.mark(at, &found, urls, rows);
            at += rows.len() as u64;
            progress.update(Stage::Comparing, at, total);
            Ok(())
        })
        .map(|()| removed.rows = at)
    };
    let mut block = PrivateBlock::default();
    read_columns(&private_path, private.columns(), &mut |rows, total| {
        if let Some(urls) = urls.as_mut().filter(|_| private.url.is_some()) {
            (0..rows.len()).for_each(|row| urls.learn(rows.users.get(row)));
        }
        private_rows += rows.len() as u64;
        let sketches: Vec<_> = (0..rows.len())
            .into_par_iter()
            .with_min_len(64)
            .map(|row| {
                let set = shingles(rows.texts.get(row));
                let bands = minhash.bands(&set);
                (set, bands)
            })
            .collect();
        for (set, bands) in &sketches {
            block.push(set, bands);
            if block.bytes() >= options.memory {
                block.seal();
                pass(&block, &mut removed, None)?;
                block = PrivateBlock::default();
            }
        }
        progress.update(Stage::Hashing, private_rows, total);
        Ok(())
    })?;
    block.seal();
    // The last part, perhaps an empty one: by now all URLs are known.
    pass(&block, &mut removed, urls.as_ref())?;
    drop(block);
    let recorded = [&public_path, &private_path].map(|path| not_private(path));
    let mut people = vec![name_of_source(&private.path)];
    for record in recorded {
        people.extend(record?.iter().flat_map(|record| record.sources().to_vec()));
    }
    // PRIVACY: the record comes first, so that the rows never lie there as if they were public.
    made_from::write_beside(output, &MadeFromPeople::text(people))?;
    let kept = filter::copy(&public_path, &removed, output, options.overwrite)?;
    debug_assert_eq!(kept, removed.rows - removed.near_duplicates - removed.by_url);
    Ok(DedupSummary {
        rows: removed.rows,
        kept,
        near_duplicates: removed.near_duplicates,
        by_url: removed.by_url,
        private_rows,
        passes,
        miss_probability: options.miss_probability(options.threshold),
    })
}

/// The options that name the columns of both sides.
const KEYS: &Keys = &Keys {
    user: "--url or --against-url",
    text: "--text or --against-text",
    ..*Keys::SOURCE
};

impl DedupSource {
    /// The URL stands where other sources have the user: one name per row that must not be missing.
    fn columns(&self) -> Columns<'_> {
        Columns {
            user: self.url.as_deref(),
            text: &self.text,
            time: None,
            split: None,
            time_unit: None,
            keys: KEYS,
        }
    }
}

/// Marks the near-duplicates among the rows of a batch; rows removed before are not looked at again.
fn compare(
    rows: &Rows,
    first: u64,
    block: &PrivateBlock,
    minhash: &MinHash,
    threshold: f64,
    removed: &Removed,
) -> Vec<bool> {
    (0..rows.len())
        .into_par_iter()
        .with_min_len(16)
        .map(|row| {
            if removed.contains(first + row as u64) || block.is_empty() {
                return false;
            }
            let set = shingles(rows.texts.get(row));
            block.holds_similar(&set, &minhash.bands(&set), threshold)
        })
        .collect()
}

/// The removed public rows, with one bit per row.
#[derive(Debug, Default)]
struct Removed {
    bits: Vec<u64>,
    rows: u64,
    near_duplicates: u64,
    by_url: u64,
}

impl Removed {
    fn contains(&self, row: u64) -> bool {
        let word = self.bits.get((row / 64) as usize).copied().unwrap_or(0);
        word >> (row % 64) & 1 == 1
    }

    fn insert(&mut self, row: u64) {
        let word = (row / 64) as usize;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (row % 64);
    }

    fn mark(&mut self, first: u64, found: &[bool], urls: Option<&UrlFilter>, rows: &Rows) {
        for (place, &near) in found.iter().enumerate() {
            let row = first + place as u64;
            if self.contains(row) {
                continue;
            }
            if near {
                self.near_duplicates += 1;
                self.insert(row);
            } else if urls.is_some_and(|urls| urls.removes(rows.users.get(place))) {
                self.by_url += 1;
                self.insert(row);
            }
        }
    }
}
