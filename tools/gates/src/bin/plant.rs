//! Applies `lab/mutants/mutants.toml` to a copy of the tree: `plant TABLE COPY`.

use std::path::Path;
use std::process::ExitCode;

use undertone_gates::Mutants;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, copy] = arguments.as_slice() else {
        eprintln!("usage: plant TABLE COPY");
        return ExitCode::FAILURE;
    };
    let planted = std::fs::read_to_string(table)
        .map_err(|error| format!("{table}: {error}"))
        .and_then(|text| Mutants::parse(&text))
        .and_then(|mutants| mutants.apply(Path::new(copy)));
    match planted {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("plant: {problem}");
            ExitCode::FAILURE
        }
    }
}
