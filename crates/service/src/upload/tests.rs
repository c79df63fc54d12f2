use undertone_protocol::Code;

use super::*;
use crate::storage::spool::RECORD;

fn uploads(length: u64) -> [(Upload, tempfile::TempDir); 2] {
    // In memory, and in the file.
    [1 << 30, 0].map(|limit| {
        let folder = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::new(limit, folder.path()).unwrap());
        (Upload::new(&spool, length), folder)
    })
}

fn send(upload: &mut Upload, offset: u64, chunk: &[u8]) -> Result<u64, Trouble> {
    upload.take(offset, crc32c(0, chunk), &[chunk])
}

fn refusal<T>(outcome: Result<T, Trouble>) -> Problem {
    match outcome {
        Err(Trouble::Refused(problem)) => problem,
        Err(Trouble::Damaged) => panic!("the upload is damaged"),
        Ok(_) => panic!("it was taken"),
    }
}

fn bytes(upload: &Upload) -> Vec<u8> {
    upload.body.with(<[u8]>::to_vec).unwrap()
}

#[test]
fn an_upload_is_whole_whatever_the_order_and_number_of_its_chunks() {
    let scale = RECORD / 16;
    let content: Vec<u8> = (0..100 * scale).map(|at| (at / 7) as u8).collect();
    let part = |from: usize, to: usize| &content[from * scale..to * scale];
    for (mut taken, _folder) in uploads(content.len() as u64) {
        let mut take = |from: usize, to: usize| {
            let stands = send(&mut taken, (from * scale) as u64, part(from, to));
            stands.map(|stands| stands as usize / scale)
        };
        // A chunk again, a chunk that overlaps, and a chunk that starts too late.
        assert!(matches!(take(0, 40), Ok(40)));
        assert!(matches!(take(0, 40), Ok(40)));
        assert!(matches!(take(30, 70), Ok(70)));
        let refused = refusal(take(80, 100));
        assert_eq!(
            (refused.code(), refused.offset),
            (Code::Conflict, 70 * scale as u64)
        );
        assert!(matches!(take(70, 100), Ok(100)));
        assert_eq!(bytes(&taken), content);
    }
}

#[test]
fn chunks_beyond_the_end_and_other_bytes_change_nothing() {
    for (mut taken, _folder) in uploads(10) {
        assert!(matches!(send(&mut taken, 0, &[1, 2, 3]), Ok(3)));
        assert_eq!(refusal(send(&mut taken, 3, &[0; 8])).code(), Code::Range);
        assert_eq!(refusal(send(&mut taken, u64::MAX, &[0; 8])).code(), Code::Range);
        assert_eq!(refusal(send(&mut taken, 1, &[2, 9, 9])).code(), Code::Conflict);
        assert_eq!(bytes(&taken), [1, 2, 3]);
    }
}

#[test]
fn a_commit_with_a_damaged_checksum_keeps_the_upload() {
    for (mut taken, _folder) in uploads(4) {
        let commit = Commit {
            length: 4,
            crc32c: crc32c(0, &[1, 2, 3, 4]),
            weight: 1.0,
            below: None,
        };
        assert_eq!(taken.check_length(&commit).unwrap_err().code(), Code::Range);
        assert!(matches!(send(&mut taken, 0, &[1, 2, 3, 4]), Ok(4)));
        assert_eq!(
            refusal(taken.with(commit.crc32c ^ 1, |_| ())).code(),
            Code::Malformed
        );
        assert_eq!(taken.offset(), 4);
        assert_eq!(taken.check_length(&commit), Ok(()));
        assert_eq!(taken.with(commit.crc32c, <[u8]>::to_vec).unwrap(), [1, 2, 3, 4]);
    }
}

#[test]
fn the_checksum_of_an_upload_is_that_of_its_bytes_however_they_came() {
    let content: Vec<u8> = (0..3 * RECORD + 100).map(|at| (at * at / 11) as u8).collect();
    let crc = crc32c(0, &content);
    for (mut taken, _folder) in uploads(content.len() as u64) {
        let parts = |from: usize, to: usize| -> Vec<&[u8]> { content[from..to].chunks(RECORD / 3).collect() };
        let mut take =
            |from: usize, to: usize| taken.take(from as u64, crc32c(0, &content[from..to]), &parts(from, to));
        let end = content.len();
        for (from, to) in [(0, RECORD), (RECORD / 2, 2 * RECORD + 7), (2 * RECORD + 7, end)] {
            assert!(matches!(take(from, to), Ok(stands) if stands == to as u64));
        }
        assert!(matches!(take(RECORD, end), Ok(stands) if stands == end as u64));
        assert_eq!(taken.with(crc, <[u8]>::to_vec).unwrap(), content);
        taken.clear();
        assert!(matches!(taken.take(0, crc, &parts(0, end)), Ok(stands) if stands == end as u64));
        assert_eq!(taken.with(crc, <[u8]>::to_vec).unwrap(), content);
    }
}
