//! The file that holds a tokenised corpus, written once and then memory-mapped.
//!
//! Layout, all numbers in the byte order of the machine that wrote it (a foreign order fails the magic number):
//! a header of fixed size, then for each partition its tokens (`u32`), the start of each example in them (`u64`, one more
//! than there are examples), the first example of each user (`u64`, one more than there are users), then the words (or
//! the tokenizer) and a JSON description. Every section starts at a multiple of eight bytes.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::error::{DataError, Result, bad_cache, io};
use crate::hash::{Hash, hash_bytes};
use crate::split::Split;
use crate::stats::CorpusStats;
use crate::synthetic::BestAccuracy;
use undertone_text::{Vocab, VocabProvenance};
use undertone_vocabulary::parse_tokenizer;

const MAGIC: u64 = u64::from_be_bytes(*b"undrtone");
/// The version of caches whose rows were read by strict rules of quotes. In version 2 a stray quote gave rows to another user, and
/// version 1 had held-out users in the order of their first rows.
const VERSION: u64 = 3;

#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Section {
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct Header {
    magic: u64,
    version: u64,
    file_bytes: u64,
    /// SHA-256 of everything after the header.
    body_hash: Hash,
    /// Digest of source and settings, as 64 hexadecimal digits.
    digest: [[u8; 32]; 2],
    /// Tokens, example starts and user starts of each partition.
    partitions: [[Section; 3]; 3],
    words: Section,
    description: Section,
    /// SHA-256 of the header with this field zero.
    header_hash: Hash,
}

impl Header {
    fn hash(&self) -> Hash {
        hash_bytes(bytemuck::bytes_of(&Header {
            header_hash: [0; 32],
            ..*self
        }))
    }
}

const HEADER_BYTES: usize = std::mem::size_of::<Header>();

/// The header of a cache file: everything but its tokens and words.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    provenance: VocabProvenance,
    /// Names of the start and end tokens, where the words are those of a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<[String; 2]>,
    stats: CorpusStats,
    best_accuracy: Option<BestAccuracy>,
}

/// Writes a cache beside its final name and moves it there when it is whole.
pub(crate) struct CacheWriter {
    path: PathBuf,
    output: BufWriter<NamedTempFile>,
    hasher: Sha256,
    position: u64,
    header: Header,
    split: Option<Split>,
    tokens: u64,
    example_starts: Vec<u64>,
    user_starts: Vec<u64>,
}

impl CacheWriter {
    pub(crate) fn create(path: &Path, digest: &str) -> Result<CacheWriter> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let file = NamedTempFile::new_in(directory).map_err(io("write the corpus cache in", directory))?;
        let mut writer = CacheWriter {
            path: path.to_owned(),
            output: BufWriter::with_capacity(1 << 20, file),
            hasher: Sha256::new(),
            position: 0,
            header: Header {
                magic: MAGIC,
                version: VERSION,
                digest: digest_field(digest),
                ..Header::zeroed()
            },
            split: None,
            tokens: 0,
            example_starts: Vec::new(),
            user_starts: Vec::new(),
        };
        // Filled in at the end: an interrupted file has no magic number.
        let blank = [0_u8; HEADER_BYTES];
        writer
            .output
            .write_all(&blank)
            .map_err(io("write the corpus cache", &writer.path))?;
        writer.position = HEADER_BYTES as u64;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.position += bytes.len() as u64;
        self.output
            .write_all(bytes)
            .map_err(io("write the corpus cache", &self.path))
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section> {
        let section = Section {
            offset: self.position,
            bytes: bytes.len() as u64,
        };
        self.put(bytes)?;
        self.align()?;
        Ok(section)
    }

    fn align(&mut self) -> Result<()> {
        let padding = self.position.next_multiple_of(8) - self.position;
        self.put(&[0; 8][..padding as usize])
    }

    /// Starts a partition, after finishing the one before.
    pub(crate) fn begin(&mut self, split: Split) -> Result<()> {
        self.finish_partition()?;
        self.split = Some(split);
        self.header.partitions[split.index()][0].offset = self.position;
        self.tokens = 0;
        self.example_starts = vec![0];
        self.user_starts = vec![0];
        Ok(())
    }

    /// Adds an example to the current user.
    pub(crate) fn example(&mut self, tokens: &[u32]) -> Result<()> {
        self.put(bytemuck::cast_slice(tokens))?;
        self.tokens += tokens.len() as u64;
        self.example_starts.push(self.tokens);
        Ok(())
    }

    /// Ends the current user.
    pub(crate) fn end_user(&mut self) -> Result<()> {
        self.user_starts.push(self.example_starts.len() as u64 - 1);
        Ok(())
    }

    fn finish_partition(&mut self) -> Result<()> {
        let Some(split) = self.split.take() else {
            return Ok(());
        };
        self.align()?;
        let examples = std::mem::take(&mut self.example_starts);
        let users = std::mem::take(&mut self.user_starts);
        let (examples, users) = (
            self.section(bytemuck::cast_slice(&examples))?,
            self.section(bytemuck::cast_slice(&users))?,
        );
        let sections = &mut self.header.partitions[split.index()];
        sections[0].bytes = 4 * self.tokens;
        sections[1] = examples;
        sections[2] = users;
        Ok(())
    }

    /// Writes what remains and moves the file to its name.
    pub(crate) fn finish(
        mut self,
        vocab: &Vocab,
        stats: CorpusStats,
        best_accuracy: Option<BestAccuracy>,
    ) -> Result<()> {
        self.finish_partition()?;
        self.header.words = self.section(vocab.to_file_contents().as_bytes())?;
        let description = Description {
            provenance: vocab.provenance(),
            tokenizer: (vocab.file_name() == Vocab::TOKENIZER_FILE).then(|| {
                let special = vocab.special();
                [special.bos, special.eos].map(|id| vocab.word(id).to_owned())
            }),
            stats,
            best_accuracy,
        };
        let description = serde_json::to_vec(&description).map_err(|error| self.bad(&error.to_string()))?;
        self.header.description = self.section(&description)?;
        self.header.file_bytes = self.position;
        self.header.body_hash = self.hasher.clone().finalize().into();
        self.header.header_hash = self.header.hash();
        let CacheWriter {
            path, output, header, ..
        } = self;
        let mut file = output
            .into_inner()
            .map_err(|error| io("write the corpus cache", &path)(error.into_error()))?;
        let write = |file: &mut NamedTempFile| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(bytemuck::bytes_of(&header))?;
            file.as_file().sync_all()
        };
        write(&mut file).map_err(io("write the corpus cache", &path))?;
        file.persist(&path)
            .map_err(|error| io("write the corpus cache", &path)(error.error))?;
        Ok(())
    }

    fn bad(&self, detail: &str) -> DataError {
        bad_cache(&self.path, detail)
    }
}

fn digest_field(digest: &str) -> [[u8; 32]; 2] {
    let mut field = [[0; 32]; 2];
    field
        .as_flattened_mut()
        .iter_mut()
        .zip(digest.bytes())
        .for_each(|(slot, byte)| *slot = byte);
    field
}

/// A mapped cache whose every offset has been checked. Nobody may write or truncate the file while it is mapped.
#[derive(Debug)]
pub(crate) struct Cache {
    map: Mmap,
    partitions: [[Range<usize>; 3]; 3],
    pub(crate) vocab: Vocab,
    pub(crate) stats: CorpusStats,
    pub(crate) best_accuracy: Option<BestAccuracy>,
}

impl Cache {
    /// Opens a cache; `None` where there is none.
    pub(crate) fn open(path: &Path, digest: &str) -> Result<Option<Cache>> {
        // Opening a pipe would wait for its other end.
        match path.symlink_metadata() {
            Ok(entry) if entry.is_file() => {}
            Ok(_) => {
                return Err(bad_cache(path, "expected a regular file"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("read the corpus cache", path)(error)),
        }
        let file = File::open(path).map_err(io("read the corpus cache", path))?;
        // SAFETY: this holds while no other process writes or truncates the file, which the documentation asks for; the file
        // is readable and writable by its owner alone, and this program moves it here whole and never changes it in place.
        // Everything that is read from the mapping is checked in the mapping itself, hash included, so other contents give an
        // error and never an access out of bounds.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map the corpus cache", path))?;
        Cache::check_body(path, &map, digest)?;
        Cache::from_map(path, map).map(Some)
    }

    /// Checks header and contents by their hashes.
    fn check_body(path: &Path, map: &[u8], digest: &str) -> Result<()> {
        let bad = |detail: &str| bad_cache(path, detail);
        let Some((header, body)) = map.split_at_checked(HEADER_BYTES) else {
            return Err(bad("it is shorter than its header"));
        };
        let header: Header = bytemuck::pod_read_unaligned(header);
        if header.magic != MAGIC {
            return Err(bad(
                "its first bytes are not those of a cache, or the machine that wrote it has a different byte order",
            ));
        }
        if header.version != VERSION {
            return Err(bad(&format!(
                "expected version {VERSION}, got {}",
                header.version
            )));
        }
        if header.hash() != header.header_hash {
            return Err(bad("its header does not match its hash"));
        }
        if header.digest != digest_field(digest) {
            return Err(bad("it belongs to a different source or different settings"));
        }
        if header.file_bytes != map.len() as u64 {
            return Err(bad(&format!(
                "expected {} bytes, got {}",
                header.file_bytes,
                map.len()
            )));
        }
        if hash_bytes(body) != header.body_hash {
            return Err(bad("its contents do not match their hash"));
        }
        Ok(())
    }

    fn from_map(path: &Path, map: Mmap) -> Result<Cache> {
        let bad = |detail: &str| bad_cache(path, detail);
        let header: Header = match map.get(..HEADER_BYTES) {
            Some(bytes) => bytemuck::pod_read_unaligned(bytes),
            None => return Err(bad("it is shorter than its header")),
        };
        let range = |section: Section, unit: u64| {
            let end = section
                .offset
                .checked_add(section.bytes)
                .filter(|&end| end <= map.len() as u64);
            let fits = section.offset.is_multiple_of(8) && section.bytes.is_multiple_of(unit);
            end.filter(|_| fits)
                .map(|end| section.offset as usize..end as usize)
                .ok_or_else(|| bad("a section lies outside it"))
        };
        let words =
            std::str::from_utf8(&map[range(header.words, 1)?]).map_err(|_| bad("its words are not UTF-8"))?;
        let description: Description = serde_json::from_slice(&map[range(header.description, 1)?])
            .map_err(|error| bad(&format!("unreadable description ({error})")))?;
        let vocab = match &description.tokenizer {
            None => Vocab::new(words.lines().map(Box::from).collect(), description.provenance),
            Some([bos, eos]) => parse_tokenizer(path, words.into(), Some(bos), Some(eos))
                .map_err(|error| bad(&format!("its tokenizer: {error}")))?
                .with_provenance(description.provenance),
        };

        let mut partitions: [[Range<usize>; 3]; 3] = Default::default();
        for (ranges, [tokens, examples, users]) in partitions.iter_mut().zip(header.partitions) {
            *ranges = [range(tokens, 4)?, range(examples, 8)?, range(users, 8)?];
            let tokens: &[u32] =
                bytemuck::try_cast_slice(&map[ranges[0].clone()]).map_err(|_| bad("misaligned"))?;
            let examples: &[u64] =
                bytemuck::try_cast_slice(&map[ranges[1].clone()]).map_err(|_| bad("misaligned"))?;
            let users: &[u64] =
                bytemuck::try_cast_slice(&map[ranges[2].clone()]).map_err(|_| bad("misaligned"))?;
            if !covers(examples, tokens.len()) || !covers(users, examples.len().saturating_sub(1)) {
                return Err(bad("its offsets do not increase from zero to the end"));
            }
            if tokens.iter().any(|&id| id as usize >= vocab.len()) {
                return Err(bad("it holds ids outside its vocabulary"));
            }
        }
        let Description {
            stats, best_accuracy, ..
        } = description;
        Ok(Cache {
            map,
            partitions,
            vocab,
            stats,
            best_accuracy,
        })
    }

    /// Tokens, example starts and user starts of a partition.
    pub(crate) fn partition(&self, split: Split) -> (&[u32], &[u64], &[u64]) {
        let [tokens, examples, users] = &self.partitions[split.index()];
        // `from_map` has cast these very ranges, so alignment and size are right.
        (
            bytemuck::cast_slice(&self.map[tokens.clone()]),
            bytemuck::cast_slice(&self.map[examples.clone()]),
            bytemuck::cast_slice(&self.map[users.clone()]),
        )
    }
}

/// Returns `true` if offsets rise strictly from 0 to `end` (no example and no user is empty).
fn covers(offsets: &[u64], end: usize) -> bool {
    offsets.first() == Some(&0)
        && offsets.last() == Some(&(end as u64))
        && offsets.is_sorted_by(|one, other| one < other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::PartitionCounter;

    const DIGEST: &str = "d1";

    fn small_cache(path: &Path) {
        let vocab = Vocab::new(vec!["a".into(), "b".into()], VocabProvenance::File);
        let mut writer = CacheWriter::create(path, DIGEST).unwrap();
        for split in Split::ALL {
            writer.begin(split).unwrap();
            for user in 0..2 {
                writer.example(&[3, 4, 2]).unwrap();
                writer.example(&[4, 3 + user]).unwrap();
                writer.end_user().unwrap();
            }
        }
        let part = || PartitionCounter::new(&vocab).finish(&[0; 5], vocab.special());
        let stats = CorpusStats {
            source: "test".to_owned(),
            vocabulary_words: 2,
            tokens_per_word: None,
            vocabulary_provenance: VocabProvenance::File,
            rows: 0,
            users: 0,
            users_without_text: 0,
            users_below_minimum: 0,
            examples_capped: 0,
            tokens_capped: 0,
            noted: crate::noted::Noted::default(),
            names: crate::names::UserNames::default(),
            train: part(),
            validation: part(),
            test: part(),
        };
        writer.finish(&vocab, stats, None).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_cache_is_for_its_owner_alone_and_no_pipe_is_opened() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.bin");
        small_cache(&path);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = folder.path().join("link.bin");
        symlink(&path, &link).unwrap();
        let error = Cache::open(&link, DIGEST).unwrap_err().to_string();
        assert!(error.contains("expected a regular file"), "{error}");
    }

    /// Changes a good cache, makes its hashes right again, and expects `part` in the error.
    fn check(change: impl FnOnce(&mut Header, &mut [u8]), part: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        small_cache(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let (head, body) = bytes.split_at_mut(HEADER_BYTES);
        let mut header: Header = bytemuck::pod_read_unaligned(head);
        change(&mut header, body);
        header.body_hash = hash_bytes(body);
        header.header_hash = header.hash();
        head.copy_from_slice(bytemuck::bytes_of(&header));
        std::fs::write(&path, bytes).unwrap();
        let error = Cache::open(&path, DIGEST).unwrap_err().to_string();
        assert!(error.contains(part), "{error} lacks {part}");
    }

    fn poke(header: &Header, body: &mut [u8], split: usize, section: usize, at: usize, value: &[u8]) {
        let start = header.partitions[split][section].offset as usize - HEADER_BYTES + at;
        body[start..start + value.len()].copy_from_slice(value);
    }

    #[test]
    fn a_cache_reads_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        small_cache(&path);
        let cache = Cache::open(&path, DIGEST).unwrap().unwrap();
        let (tokens, examples, users) = cache.partition(Split::Test);
        assert_eq!(tokens, [3, 4, 2, 4, 3, 3, 4, 2, 4, 4]);
        assert_eq!((examples, users), (&[0, 3, 5, 8, 10][..], &[0, 2, 4][..]));
        assert!(
            Cache::open(&directory.path().join("absent"), DIGEST)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn forged_caches_are_refused() {
        let offsets = "its offsets do not increase";
        check(
            |header, _| header.magic = 1,
            "its first bytes are not those of a cache",
        );
        check(|header, _| header.version = 9, "expected version 3, got 9");
        // Its users are in another order.
        check(|header, _| header.version = 2, "expected version 3, got 2");
        check(
            |header, _| header.digest = digest_field("d2"),
            "a different source or different settings",
        );
        check(|header, _| header.file_bytes += 1, "bytes, got");
        check(
            |header, _| header.partitions[1][0].offset = u64::MAX - 2,
            "a section lies outside it",
        );
        check(
            |header, _| header.partitions[1][1].bytes = 1 << 40,
            "a section lies outside it",
        );
        check(
            |header, _| header.partitions[1][1].offset += 4,
            "a section lies outside it",
        );
        check(|header, _| header.partitions[1][1].bytes = 0, offsets);
        check(|header, _| header.partitions[2][2].bytes = 0, offsets);
        check(
            |header, _| header.words.bytes += 1 << 30,
            "a section lies outside it",
        );
        check(|header, _| header.description.bytes = 3, "unreadable description");
        check(
            |header, body| poke(header, body, 0, 0, 4, &5_u32.to_ne_bytes()),
            "ids outside its vocabulary",
        );
        check(
            |header, body| poke(header, body, 0, 1, 8, &99_u64.to_ne_bytes()),
            offsets,
        );
        check(
            |header, body| poke(header, body, 2, 2, 8, &u64::MAX.to_ne_bytes()),
            offsets,
        );
        check(
            |header, body| poke(header, body, 1, 1, 0, &1_u64.to_ne_bytes()),
            offsets,
        );
    }
}
