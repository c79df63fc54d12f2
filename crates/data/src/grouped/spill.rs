//! Rows on their way from the source's order to that of users: one file a partition, sorted in memory or in runs.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};

use crate::error::{Result, io};

/// The header of a row in a spill file, before its user and text.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Head {
    hash: u64,
    time: i64,
    text: u64,
    user: u32,
    split: u32,
}

const HEAD: usize = size_of::<Head>();

/// A row, borrowed from wherever it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpillRow<'a> {
    pub(super) hash: u64,
    pub(super) user: &'a str,
    pub(super) time: i64,
    /// Place of the split in [`Split::ALL`](crate::Split::ALL), or [`NO_SPLIT`].
    pub(super) split: u32,
    pub(super) text: &'a str,
}

pub(super) const NO_SPLIT: u32 = u32::MAX;

/// The order of a user's rows at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// The rows keep the order in which they arrived.
    Kept,
    /// The rows are ordered by text and split, so that the order in which they arrived does not show.
    ByText,
}

impl SpillRow<'_> {
    /// Users by hash, then name; rows of a user by time. Sorting is stable, so rows that are equal here stay as they came.
    fn order(&self, other: &SpillRow<'_>, ties: Ties) -> Ordering {
        let order = (self.hash, self.user, self.time).cmp(&(other.hash, other.user, other.time));
        match ties {
            Ties::Kept => order,
            Ties::ByText => order.then_with(|| (self.text, self.split).cmp(&(other.text, other.split))),
        }
    }
}

/// Writes the rows of one partition in the order of the source.
#[derive(Debug)]
pub(super) struct SpillWriter {
    path: PathBuf,
    output: BufWriter<File>,
    bytes: u64,
}

impl SpillWriter {
    pub(super) fn create(path: PathBuf, buffer: usize) -> Result<SpillWriter> {
        let file = File::create(&path).map_err(io("write a temporary file", &path))?;
        Ok(SpillWriter {
            path,
            output: BufWriter::with_capacity(buffer, file),
            bytes: 0,
        })
    }

    pub(super) fn push(&mut self, row: &SpillRow<'_>) -> Result<()> {
        let head = Head {
            hash: row.hash,
            time: row.time,
            text: row.text.len() as u64,
            user: row.user.len() as u32,
            split: row.split,
        };
        self.bytes += (HEAD + row.user.len() + row.text.len()) as u64;
        let mut write = |bytes: &[u8]| self.output.write_all(bytes);
        write(bytemuck::bytes_of(&head))
            .and_then(|()| write(row.user.as_bytes()))
            .and_then(|()| write(row.text.as_bytes()))
            .map_err(io("write a temporary file", &self.path))
    }

    /// The written rows; an empty file is removed.
    pub(super) fn finish(mut self) -> Result<Option<Spill>> {
        let path = self.path;
        self.output.flush().map_err(io("write a temporary file", &path))?;
        if self.bytes == 0 {
            std::fs::remove_file(&path).map_err(io("remove a temporary file", &path))?;
            return Ok(None);
        }
        Ok(Some(Spill {
            bytes: self.bytes,
            paths: vec![path],
        }))
    }
}

/// Written rows, in one file or in several that follow one another. The files are removed when they have been read.
#[derive(Debug)]
pub(super) struct Spill {
    /// One at least.
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Spill {
    /// Joins neighbours while they fit in `bytes` together.
    pub(super) fn joined(spills: Vec<Spill>, bytes: u64) -> Vec<Spill> {
        let mut joined: Vec<Spill> = Vec::with_capacity(spills.len());
        for spill in spills {
            match joined.last_mut() {
                Some(last) if last.bytes + spill.bytes <= bytes => {
                    last.bytes += spill.bytes;
                    last.paths.extend(spill.paths);
                }
                _ => joined.push(spill),
            }
        }
        joined
    }

    /// Calls `take` with all rows in order, with at most about `memory` bytes of them in memory.
    ///
    /// A partition that fits is sorted in one piece. A larger one (there are very many rows, or one user has more than fit)
    /// is sorted in runs on disk that are then merged.
    pub(super) fn sorted(
        self,
        memory: usize,
        ties: Ties,
        take: &mut dyn FnMut(&SpillRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut reader = SpillReader::open(&self.paths)?;
        let mut chunk = Chunk::default();
        if chunk.fill(&mut reader, memory)? {
            self.remove()?;
            return chunk.sorted(ties, take);
        }
        let mut made = 0;
        let mut new_run = || {
            made += 1;
            SpillWriter::create(self.paths[0].with_extension(format!("run{made}")), RUN_BUFFER)
        };
        let mut runs = Vec::new();
        while !chunk.rows.is_empty() {
            let mut run = new_run()?;
            chunk.sorted(ties, &mut |row| run.push(row))?;
            runs.extend(run.finish()?);
            chunk.fill(&mut reader, memory)?;
        }
        drop(chunk);
        self.remove()?;
        while runs.len() > FAN_IN {
            let mut longer = Vec::with_capacity(runs.len().div_ceil(FAN_IN));
            // Neighbours, so that equal rows keep their order.
            for group in runs.chunks(FAN_IN) {
                let mut run = new_run()?;
                merge(group, ties, &mut |row| run.push(row))?;
                longer.extend(run.finish()?);
            }
            runs = longer;
        }
        merge(&runs, ties, take)
    }

    fn remove(&self) -> Result<()> {
        let remove = |path: &PathBuf| std::fs::remove_file(path).map_err(io("remove a temporary file", path));
        self.paths.iter().try_for_each(remove)
    }
}

/// Runs that are merged at once, and the buffer of each.
const FAN_IN: usize = 64;
const RUN_BUFFER: usize = 1 << 18;

/// Rows in one buffer.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Index in `bytes` at which each row begins.
    rows: Vec<usize>,
}

impl Chunk {
    /// Refills from a reader until `memory` is used; `true` where the reader has no more.
    fn fill(&mut self, reader: &mut SpillReader, memory: usize) -> Result<bool> {
        self.bytes.clear();
        self.rows.clear();
        // A row costs its place and its part of the sort's scratch beside its bytes.
        while self.bytes.len() + 24 * self.rows.len() < memory {
            let start = self.bytes.len();
            if !reader.append(&mut self.bytes)? {
                return Ok(true);
            }
            self.rows.push(start);
        }
        Ok(false)
    }

    fn sorted(&mut self, ties: Ties, take: &mut dyn FnMut(&SpillRow<'_>) -> Result<()>) -> Result<()> {
        let bytes = &self.bytes;
        self.rows
            .sort_by(|&one, &other| parse(&bytes[one..]).order(&parse(&bytes[other..]), ties));
        self.rows
            .iter()
            .try_for_each(|&start| take(&parse(&bytes[start..])))
    }
}

/// A row that this process wrote.
fn parse(bytes: &[u8]) -> SpillRow<'_> {
    let head: Head = bytemuck::pod_read_unaligned(&bytes[..HEAD]);
    let (user, text) = (HEAD + head.user as usize, head.text as usize);
    // What was written was UTF-8; should the disk have lost that, the text is empty rather than wrong.
    let read = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    SpillRow {
        hash: head.hash,
        user: read(&bytes[HEAD..user]),
        time: head.time,
        split: head.split,
        text: read(&bytes[user..user + text]),
    }
}

/// Reads files one after another; rows do not go over their ends.
struct SpillReader {
    path: PathBuf,
    input: BufReader<File>,
    rest: std::vec::IntoIter<PathBuf>,
}

impl SpillReader {
    fn open(paths: &[PathBuf]) -> Result<SpillReader> {
        Ok(SpillReader {
            input: SpillReader::input(&paths[0])?,
            path: paths[0].clone(),
            rest: Vec::from(&paths[1..]).into_iter(),
        })
    }

    fn input(path: &Path) -> Result<BufReader<File>> {
        let file = File::open(path).map_err(io("read a temporary file", path))?;
        Ok(BufReader::with_capacity(RUN_BUFFER, file))
    }

    /// Appends the next row's bytes; `false` at the end.
    fn append(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        while !self.append_of_file(bytes)? {
            let Some(path) = self.rest.next() else {
                return Ok(false);
            };
            self.input = SpillReader::input(&path)?;
            self.path = path;
        }
        Ok(true)
    }

    fn append_of_file(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let mut head = Head::zeroed();
        let mut read = || -> std::io::Result<bool> {
            if std::io::BufRead::fill_buf(&mut self.input)?.is_empty() {
                return Ok(false);
            }
            self.input.read_exact(bytemuck::bytes_of_mut(&mut head))?;
            bytes.extend_from_slice(bytemuck::bytes_of(&head));
            let start = bytes.len();
            bytes.resize(start + head.user as usize + head.text as usize, 0);
            self.input.read_exact(&mut bytes[start..])?;
            Ok(true)
        };
        read().map_err(io("read a temporary file", &self.path))
    }
}

/// Merges sorted runs and removes them; of equal rows those of the earlier run come first.
fn merge(runs: &[Spill], ties: Ties, take: &mut dyn FnMut(&SpillRow<'_>) -> Result<()>) -> Result<()> {
    struct Next {
        bytes: Vec<u8>,
        run: usize,
        ties: Ties,
    }
    impl Ord for Next {
        fn cmp(&self, other: &Next) -> Ordering {
            parse(&self.bytes)
                .order(&parse(&other.bytes), self.ties)
                .then(self.run.cmp(&other.run))
        }
    }
    impl PartialOrd for Next {
        fn partial_cmp(&self, other: &Next) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }
    impl PartialEq for Next {
        fn eq(&self, other: &Next) -> bool {
            self.cmp(other).is_eq()
        }
    }
    impl Eq for Next {}

    let mut readers = runs
        .iter()
        .map(|run| SpillReader::open(&run.paths))
        .collect::<Result<Vec<_>>>()?;
    let mut heap = BinaryHeap::with_capacity(readers.len());
    for (run, reader) in readers.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        if reader.append(&mut bytes)? {
            heap.push(Reverse(Next { bytes, run, ties }));
        }
    }
    while let Some(Reverse(Next { mut bytes, run, .. })) = heap.pop() {
        take(&parse(&bytes))?;
        bytes.clear();
        if readers[run].append(&mut bytes)? {
            heap.push(Reverse(Next { bytes, run, ties }));
        }
    }
    runs.iter().try_for_each(Spill::remove)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows come out as a stable sort of all of them gives them, whatever the memory.
    #[test]
    #[ignore = "slow"]
    fn runs_merge_to_the_order_of_a_sort_in_memory() {
        let rows: Vec<(String, i64, String)> = (0..3000_i64)
            .map(|i| {
                let user = if i % 3 == 0 { 7 } else { (i * i) % 41 };
                (
                    format!("u{user}"),
                    (i * 31) % 5,
                    "x".repeat((i % 50) as usize) + &i.to_string(),
                )
            })
            .collect();
        let row = |(user, time, text): &'_ (String, i64, String)| -> (u64, String, i64, String) {
            // Few hashes, so that different users share some.
            (user.len() as u64 % 2, user.clone(), *time, text.clone())
        };
        let mut expected: Vec<_> = rows.iter().map(row).collect();
        expected.sort_by(|one, other| (one.0, &one.1, one.2).cmp(&(other.0, &other.1, other.2)));
        let folder = tempfile::tempdir().unwrap();
        for memory in [1, 300, 10_000, 1 << 20] {
            let mut writer = SpillWriter::create(folder.path().join("part"), 64).unwrap();
            for (hash, user, time, text) in rows.iter().map(row) {
                let (user, text, split) = (&*user, &*text, NO_SPLIT);
                writer
                    .push(&SpillRow {
                        hash,
                        user,
                        time,
                        split,
                        text,
                    })
                    .unwrap();
            }
            let mut got = Vec::new();
            writer
                .finish()
                .unwrap()
                .unwrap()
                .sorted(memory, Ties::Kept, &mut |row| {
                    got.push((row.hash, row.user.to_owned(), row.time, row.text.to_owned()));
                    Ok(())
                })
                .unwrap();
            assert!(got == expected, "memory {memory}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    /// Neighbours that fit together are read as one, in their order; those that do not stand alone.
    #[test]
    fn small_neighbours_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let texts = ["a", "bb", "c", &"d".repeat(500), "e"];
        let spills: Vec<Spill> = texts
            .iter()
            .enumerate()
            .map(|(number, text)| {
                let mut writer = SpillWriter::create(folder.path().join(number.to_string()), 64).unwrap();
                let row = SpillRow {
                    hash: number as u64,
                    user: "u",
                    time: 0,
                    split: NO_SPLIT,
                    text,
                };
                writer.push(&row).unwrap();
                writer.finish().unwrap().unwrap()
            })
            .collect();
        let row = (HEAD + 2) as u64;
        let joined = Spill::joined(spills, 2 * row + 1);
        let files: Vec<usize> = joined.iter().map(|spill| spill.paths.len()).collect();
        assert_eq!(files, [2, 1, 1, 1]);
        let mut got = Vec::new();
        for spill in joined {
            spill
                .sorted(1 << 20, Ties::Kept, &mut |row| {
                    got.push(row.text.to_owned());
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(got, texts);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
