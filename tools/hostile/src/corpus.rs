//! Inputs that once did what no input may do, and those of their kind: small files below `corpus/`, and files that are made here
//! because they are binary or follow from an honest file.

mod built;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::TARGETS;
use crate::kinds::Kind;
use crate::world::World;

/// One input.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of the case. Where it holds the path of an honest file with `~` for `/`, the case is read in the place of that file, else in
    /// the place of the kind's first.
    pub name: String,
    /// `true` if the file must end in an error; any other may be accepted.
    pub refused: bool,
    /// The contents of the file.
    pub bytes: Vec<u8>,
}

/// Every case of a kind, by name. Files below `corpus/KIND/refused` have to end in an error, those below `corpus/KIND/any` may.
///
/// # Errors
/// Files that cannot be read, and honest files that a case is made of.
pub fn cases(world: &World, kind: Kind) -> Result<Vec<Case>> {
    let mut cases = built::cases(world, kind)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(kind.name);
    for (name, refused) in [("refused", true), ("any", false)] {
        let folder = folder.join(name);
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            cases.push(Case {
                name: path.file_name().context("a name")?.to_string_lossy().into_owned(),
                refused,
                bytes: fs::read(&path)?,
            });
        }
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

/// Writes a folder for each fuzz target with the honest files and the cases of its kinds, as the target reads them.
///
/// # Errors
/// Files that cannot be written.
pub fn seeds(world: &World, folder: &Path) -> Result<()> {
    for (target, kinds) in TARGETS {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (name, at) in kinds.iter().zip(0..) {
            let kind = Kind::named(name).context("a kind")?;
            let input = |place: usize, bytes: &[u8]| [&[(at + place * kinds.len()) as u8], bytes].concat();
            for (honest, place) in kind.honest.iter().zip(0..) {
                let bytes = kind.honest_bytes(world, honest)?;
                fs::write(folder.join(format!("{name}-{place}")), input(place, &bytes))?;
            }
            for case in cases(world, kind)? {
                // A fuzzer is to change small files.
                if case.bytes.len() <= 1 << 16 {
                    let place = kind.place_named(&case.name);
                    fs::write(
                        folder.join(format!("{name}-{}", case.name)),
                        input(place, &case.bytes),
                    )?;
                }
            }
        }
    }
    Ok(())
}
