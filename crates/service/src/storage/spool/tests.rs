use proptest::prelude::*;

use super::*;

impl Spool {
    /// Changes a byte of the file.
    pub(crate) fn spoil(&self, at: u64) {
        self.file().as_mut().unwrap().spoil(at);
    }

    /// Takes a disk that is full.
    #[cfg(target_os = "linux")]
    pub(crate) fn fill(&self) {
        let mut options = std::fs::OpenOptions::new();
        let full = options.read(true).write(true).open("/dev/full").unwrap();
        *self.file() = Some(File::over(full));
    }

    /// Takes a disk with space again.
    pub(crate) fn make_space(&self) {
        *self.file() = None;
    }
}

/// Bytes that occur nowhere else.
fn canary(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| b"the words of a person, "[at % 23] ^ (at / 23 % 7) as u8)
        .collect()
}

fn spool(limit: u64) -> (Arc<Spool>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::new(limit, folder.path()).unwrap();
    (Arc::new(spool), folder)
}

fn bytes(body: &Body) -> Vec<u8> {
    body.with(<[u8]>::to_vec).unwrap()
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn uploads_are_in_memory_up_to_the_limit_and_in_the_file_beyond_it() {
    let (spool, folder) = spool(250_000);
    let content = canary(100_000);
    let mut bodies = Vec::new();
    for number in 0..4 {
        let mut body = Body::new(&spool, 100_000);
        body.append(&content).unwrap();
        let memory = 100_000 * (number + 1).min(2);
        assert_eq!(spool.reserved(), memory);
        bodies.push(body);
    }
    // One full record each; the rest of each is shorter.
    assert_eq!(spool.on_disk(), 2 * RECORD as u64);
    assert!(bodies.iter().all(|body| bytes(body) == content));
    assert_eq!(files(folder.path()), 0, "the file has no name");
    // Memory that was given back is used again.
    bodies.remove(0);
    assert_eq!(spool.reserved(), 100_000);
    let mut body = Body::new(&spool, 100_000);
    body.append(&content).unwrap();
    assert_eq!(spool.reserved(), 200_000);
    drop(body);
    bodies.clear();
    assert_eq!((spool.reserved(), spool.on_disk()), (0, 0));
    assert!(
        spool.file().as_mut().unwrap().bytes().is_empty(),
        "nothing is on disk"
    );
    assert_eq!(files(folder.path()), 0);
}

#[test]
#[ignore = "slow"]
fn the_file_holds_no_bytes_of_an_upload() {
    let (spool, _folder) = spool(0);
    // The same bytes in each record: equal plain bytes give no equal sealed ones.
    let mut body = Body::new(&spool, 5 * RECORD as u64);
    let record = canary(RECORD);
    for _ in 0..5 {
        body.append(&record).unwrap();
    }
    let sealed = spool.file().as_mut().unwrap().bytes();
    assert_eq!(sealed.len(), 5 * RECORD);
    for piece in record.chunks(16).take(64) {
        assert!(!sealed.windows(piece.len()).any(|window| window == piece));
    }
    let mut records: Vec<&[u8]> = sealed.chunks(RECORD).collect();
    records.sort_unstable();
    records.dedup();
    assert_eq!(records.len(), 5);
}

#[test]
fn a_changed_byte_of_the_file_is_never_read() {
    let content = canary(3 * RECORD + 10);
    for at in [0, RECORD as u64 - 1, RECORD as u64 + 77, 3 * RECORD as u64 - 1] {
        let (spool, _folder) = spool(0);
        let mut body = Body::new(&spool, content.len() as u64);
        body.append(&content).unwrap();
        assert_eq!(bytes(&body), content);
        spool.spoil(at);
        assert!(matches!(body.with(|_| ()), Err(SpoolError::Damaged)), "byte {at}");
        let place = at / RECORD as u64 * RECORD as u64;
        let part = &content[place as usize..place as usize + 1];
        assert!(matches!(body.has(place, part), Err(SpoolError::Damaged)));
    }
}

#[test]
fn records_that_were_swapped_or_put_back_are_not_read() {
    let (spool, _folder) = spool(0);
    let content = canary(2 * RECORD);
    let mut body = Body::new(&spool, content.len() as u64);
    body.append(&content).unwrap();
    let Kept::File { records, .. } = &mut body.kept else {
        panic!("it is in memory")
    };
    // A record in the place of another one, with nonce and tag of its own.
    records.swap(0, 1);
    assert!(matches!(body.with(|_| ()), Err(SpoolError::Damaged)));
    // The slot of a body that has ended is another body's, whose record is not the first one's.
    let (spool, _folder) = self::spool(0);
    let mut first = Body::new(&spool, RECORD as u64);
    first.append(&content[..RECORD]).unwrap();
    let old = spool.file().as_mut().unwrap().bytes();
    drop(first);
    let mut second = Body::new(&spool, RECORD as u64);
    second.append(&content[..RECORD]).unwrap();
    assert_ne!(spool.file().as_mut().unwrap().bytes(), old);
    assert_eq!(bytes(&second), content[..RECORD]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_what_is_there_and_takes_no_more() {
    let (spool, _folder) = spool(0);
    spool.fill();
    let mut body = Body::new(&spool, 4 * RECORD as u64);
    // The rest of a record is in memory.
    body.append(&canary(1000)).unwrap();
    for _ in 0..3 {
        let refused = body.append(&canary(2 * RECORD));
        assert!(matches!(refused, Err(SpoolError::Full(_))));
        assert_eq!((body.len(), spool.on_disk()), (1000, 0));
        assert_eq!(bytes(&body), canary(1000));
    }
    // Space was made.
    spool.make_space();
    body.append(&canary(2 * RECORD)).unwrap();
    assert_eq!(bytes(&body), [canary(1000), canary(2 * RECORD)].concat());
}

#[test]
fn a_folder_that_is_gone_refuses_the_bytes() {
    let spool = Arc::new(Spool::new(0, Path::new("/there/is/no/such/folder")).unwrap());
    let mut body = Body::new(&spool, RECORD as u64);
    let refused = body.append(&canary(RECORD));
    assert!(matches!(refused, Err(SpoolError::Full(_))));
    assert_eq!(body.len(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn the_bytes_of_an_upload_come_back_whatever_its_chunks(
        cuts in prop::collection::vec(0..200_000usize, 0..30),
        limit in prop::sample::select(vec![0u64, 1 << 30]),
    ) {
        let (spool, _folder) = spool(limit);
        let content = canary(200_000);
        let mut cuts = cuts;
        cuts.extend([0, content.len()]);
        cuts.sort_unstable();
        let mut body = Body::new(&spool, content.len() as u64);
        for pair in cuts.windows(2) {
            body.append(&content[pair[0]..pair[1]]).unwrap();
            prop_assert_eq!(body.len(), pair[1] as u64);
            let from = pair[0] / 2;
            prop_assert!(body.has(from as u64, &content[from..pair[1]]).unwrap());
            if pair[1] > 0 {
                let other = [content[pair[1] - 1] ^ 1];
                prop_assert!(!body.has(pair[1] as u64 - 1, &other).unwrap());
            }
        }
        prop_assert_eq!(body.with(|all| all == content).unwrap(), true);
        body.clear();
        prop_assert_eq!((body.len(), spool.reserved(), spool.on_disk()), (0, 0, 0));
    }
}
