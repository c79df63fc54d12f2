//! The search for known bytes in files and in the memory of a process.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use undertone_present::numbers::hex;

/// Grid steps of a sum in one unit.
const STEPS: f64 = (1_u64 << 40) as f64;

/// Byte strings with the names of what they show.
pub(super) type Needles = Vec<(String, Vec<u8>)>;

/// The names of the needles that these bytes hold.
pub(super) fn found(needles: &Needles, hay: &[u8], names: &mut BTreeSet<String>) {
    let mut starts: Vec<Vec<usize>> = vec![Vec::new(); 256];
    for (place, (_, needle)) in needles.iter().enumerate() {
        starts[usize::from(needle[0])].push(place);
    }
    for (at, byte) in hay.iter().enumerate() {
        for &place in &starts[usize::from(*byte)] {
            let (name, needle) = &needles[place];
            if hay[at..].starts_with(needle) {
                names.insert(name.clone());
            }
        }
    }
}

/// The needles in all memory that a process can write, with the kinds of memory that hold them.
pub(super) fn in_memory(pid: u32, needles: &Needles) -> BTreeSet<String> {
    const PART: u64 = 1 << 20;
    let longest = needles.iter().map(|(_, needle)| needle.len()).max().unwrap_or(0) as u64;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the maps of the server");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the memory of the server");
    let mut all = BTreeSet::new();
    let mut seen = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !rights.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').expect("a range");
        let bound = |digits| u64::from_str_radix(digits, 16).expect("an address");
        let (mut at, to) = (bound(from), bound(to));
        let kind = words.nth(3).unwrap_or("anonymous memory");
        let mut names = BTreeSet::new();
        while at < to {
            let mut part = vec![0; (to - at).min(PART + longest) as usize];
            // Pages of a guard or of a thread that has ended cannot be read, and are in no core file either.
            if memory.read_exact_at(&mut part, at).is_ok() {
                seen += part.len();
                found(needles, &part, &mut names);
            }
            at += PART;
        }
        all.extend(names.into_iter().map(|name| format!("{name} in {kind} {range}")));
    }
    assert!(seen > 1 << 20, "{seen} bytes of the server's memory were read");
    all
}

/// The needles in all files of a folder, with the files that hold them.
pub(super) fn in_files(folder: &Path, needles: &Needles) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(in_files(&path, needles));
            continue;
        }
        let mut names = BTreeSet::new();
        found(needles, path.display().to_string().as_bytes(), &mut names);
        // A file of the database may go away meanwhile.
        found(needles, &std::fs::read(&path).unwrap_or_default(), &mut names);
        all.extend(
            names
                .into_iter()
                .map(|name| format!("{name} in {}", path.display())),
        );
    }
    all
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).expect("digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A secret as bytes and as digits.
pub(super) fn both(name: &str, bytes: &[u8]) -> Needles {
    vec![
        (format!("{name}, bytes"), bytes.to_vec()),
        (format!("{name}, digits"), hex(bytes).into_bytes()),
    ]
}

/// The update of a device: a vector of norm below 1, no value of which is like another.
pub(super) fn update(device: usize, devices: usize, length: usize) -> Vec<f32> {
    let part = 0.9 / (length as f32).sqrt();
    let value = |place: usize| {
        let draw = (place * devices + device + 1).wrapping_mul(2_654_435_761) % 1_000_003;
        part * (0.25 + 0.75 * draw as f32 / 1_000_003.0)
    };
    (0..length).map(value).collect()
}

pub(super) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Three places of a vector, eight values each, in one form of numbers.
pub(super) fn places(name: &str, length: usize, form: impl Fn(usize) -> Vec<u8>) -> Needles {
    [0, length / 2, length - 8]
        .map(|from| {
            (
                format!("{name} at {from}"),
                (from..from + 8).flat_map(&form).collect(),
            )
        })
        .into()
}

/// Values in the fixed point in which the service adds them.
fn fixed(updates: &[Vec<f32>], place: usize) -> i64 {
    updates
        .iter()
        .map(|update| (f64::from(update[place]) * STEPS) as i64)
        .sum()
}

/// The sum of these updates in fixed point.
pub(super) fn fixed_of(name: &str, updates: &[Vec<f32>]) -> Needles {
    places(&format!("{name} in fixed point"), updates[0].len(), |place| {
        fixed(updates, place).to_le_bytes().to_vec()
    })
}

/// The sum of these updates before the noise, in each form in which a program may hold it.
pub(super) fn sum_of(name: &str, devices: usize, updates: &[Vec<f32>]) -> Needles {
    let length = updates[0].len();
    let real = |place| fixed(updates, place) as f64 / STEPS;
    let mean = |place| real(place) / devices as f64;
    [
        fixed_of(name, updates),
        places(&format!("{name} in f64"), length, |place| {
            real(place).to_le_bytes().to_vec()
        }),
        places(&format!("{name} in f32"), length, |place| {
            (real(place) as f32).to_le_bytes().to_vec()
        }),
        places(&format!("{name}, its mean in f64"), length, |place| {
            mean(place).to_le_bytes().to_vec()
        }),
        places(&format!("{name}, its mean in f32"), length, |place| {
            (mean(place) as f32).to_le_bytes().to_vec()
        }),
    ]
    .concat()
}
