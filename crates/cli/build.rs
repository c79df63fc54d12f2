//! Puts files of other folders into the program: the planner, where `.ci/planner` has made it and `UNDERTONE_PLANNER` names its page, and the
//! run files below `examples` that need no file beside them. A package from a registry has neither.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the folder"));
    fs::write(out.join("planner.html"), planner()).expect("the page is written");
    fs::write(out.join("examples.rs"), examples()).expect("the list is written");
}

fn planner() -> String {
    println!("cargo:rerun-if-env-changed=UNDERTONE_PLANNER");
    let Some(path) = env::var_os("UNDERTONE_PLANNER").filter(|path| !path.is_empty()) else {
        return String::new();
    };
    // A build script runs in the folder of its package; a relative path starts at the root of the repository, where `.ci/planner` is called.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    println!("cargo:rerun-if-changed={}", path.display());
    fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "UNDERTONE_PLANNER names {}, which is no page: {error}",
            path.display()
        )
    })
}

/// A Rust list of names and texts.
fn examples() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
        Ok(entries) => entries.map(|entry| entry.expect("an entry").path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
    let mut list = "[\n".to_owned();
    for file in files {
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        if file.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a run file");
        if text.contains("kind = \"synthetic\"") && !text.contains("\"../") {
            list += &format!("    ({name:?}, {text:?}),\n");
        }
    }
    list + "]\n"
}
