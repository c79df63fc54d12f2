//! Mutations of bytes.

use crate::random::Random;

/// Nothing grows beyond this: a mutation is about what a file says, not how much of it there is.
const LARGEST: usize = 4 << 20;

/// Written in place of a number, in text.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "4294967295",
    "2147483648",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999999999",
    "1e308",
    "-1e308",
    "1e-320",
    "1e999",
    "nan",
    "0.1",
];

/// Written in place of bytes.
const TEXTS: [&[u8]; 12] = [
    b"\x1b[2J",
    b"\r",
    b"\n",
    b"\0",
    b"\"",
    b"\xc2\x9b",
    "\u{202e}".as_bytes(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[[[[[[[[[[[[[[[[",
    b"{\"\":",
    b"\xef\xbb\xbf",
];

/// Changes some bytes; `honest` is where other bytes are taken from.
pub(super) fn edit(bytes: &mut Vec<u8>, honest: &[u8], random: &mut Random) {
    // Headers stand at one end, footers at the other: half of the changes are near an end.
    let at = match random.below(4) {
        0 => random.below(bytes.len().min(64)),
        1 => bytes.len() - random.below(bytes.len().min(512)).min(bytes.len()),
        _ => random.below(bytes.len()),
    }
    .min(bytes.len().saturating_sub(1));
    let length = short(random, 10);
    let end = (at + length).min(bytes.len());
    match random.below(12) {
        0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        2 if !bytes.is_empty() => bytes[at] = *random.choose(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', 0x1b]),
        3 => extreme(bytes, at, random),
        4 => bytes.truncate(at),
        5 => {
            bytes.drain(at..end);
        }
        6 => {
            let range = bytes[at..end].to_vec();
            let times = short(random, 8);
            insert(bytes, at, &range.repeat(times));
        }
        7 => {
            let from = random.below(honest.len());
            let to = (from + length).min(honest.len());
            let piece = honest[from..to].to_vec();
            match random.one_in(2) {
                true => insert(bytes, at, &piece),
                false => overwrite(bytes, at, &piece),
            }
        }
        8 => bytes[at..end].fill(*random.choose(&[0, 0xff])),
        9 => number(bytes, at, random),
        10 => insert(bytes, at, TEXTS[random.below(TEXTS.len())]),
        _ => {
            let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            overwrite(bytes, at, &noise);
        }
    }
}

/// Draws a number from 1 up with at most `bits` bits, small numbers more often.
fn short(random: &mut Random, bits: usize) -> usize {
    let bits = random.below(bits);
    1 + random.below(1 << bits)
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if bytes.len() + piece.len() <= LARGEST {
        bytes.splice(at..at, piece.iter().copied());
    }
}

fn overwrite(bytes: &mut [u8], at: usize, piece: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(piece) {
        *byte = *new;
    }
}

/// A whole number of 2, 4 or 8 bytes at the end of its range.
fn extreme(bytes: &mut [u8], at: usize, random: &mut Random) {
    let value: u64 = *random.choose(&[
        0,
        1,
        u64::MAX,
        u64::MAX >> 1,
        1 << 63,
        1 << 31,
        u64::from(u32::MAX),
        1 << 40,
        u64::from(u16::MAX),
        0x7fff,
    ]);
    let width = *random.choose(&[2, 4, 8]);
    let written = match random.one_in(2) {
        true => value.to_le_bytes()[..width].to_vec(),
        false => value.to_be_bytes()[8 - width..].to_vec(),
    };
    overwrite(bytes, at, &written);
}

/// Another number in place of the next one that is written in digits.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = bytes[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|place| at + place)
    else {
        return;
    };
    let more = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+');
    let length = bytes[start..].iter().take_while(|byte| more(byte)).count();
    bytes.splice(start..start + length, random.choose(&NUMBERS).bytes());
}
