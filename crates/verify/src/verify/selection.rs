//! `sweep.json`: a run that a private sweep chose lies alone.

use std::fs;
use std::path::Path;

use super::same::exactly;
use super::{Check, Run};
use undertone_run_directory::files;
use undertone_run_directory::files::names::{MODEL_FILE, SWEEP_FILE};
use undertone_run_directory::manifest::sha256_of;
use undertone_run_directory::sweep_statement::{CANDIDATES, SweepStatement};

/// Checks that no other candidate of the sweep is on disk beside the run. The guarantee of the sweep itself is recomputed with the
/// others, from the statement.
///
/// PRIVACY: the guarantee holds if the best candidate alone is kept. The metrics of a loser, or the number of candidates, say more.
pub(super) fn alone(run: &Run<'_>) -> Option<Check> {
    run.plan.selection()?;
    let mut check = Check::new("private sweep");
    let bytes = check.keep(files::read(&run.folder.join(SWEEP_FILE)))?;
    let statement = match exactly::<SweepStatement>(SWEEP_FILE, &bytes) {
        Ok(statement) => statement,
        Err(problems) => {
            check.problems(problems);
            return Some(check);
        }
    };
    let here = check.keep(run.folder.canonicalize());
    if let Some((here, above)) = here.as_deref().and_then(|here| Some((here, here.parent()?))) {
        beside(here, above, &statement.id, &mut check);
    }
    check.found = format!(
        "the best of a secret number of candidates, {} expected, over {} combinations; no other candidate lies beside it",
        f64::from(statement.mean_runs),
        statement.combinations.len()
    );
    Some(check)
}

fn beside(here: &Path, above: &Path, id: &str, check: &mut Check) {
    if files::exists(&above.join(CANDIDATES)) {
        check.problem(format!(
            "{CANDIDATES}: the folder of the sweep's candidates is still there; run the sweep again to end it"
        ));
    }
    let mine = sha256_of(&here.join(MODEL_FILE)).ok();
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder == here || !files::exists(&folder.join(SWEEP_FILE)) {
            continue;
        }
        // A folder whose statement cannot be read is no candidate that anybody can tell from others.
        let Ok(Some(other)) = SweepStatement::read(&folder) else {
            continue;
        };
        let is_copy = mine.is_some() && sha256_of(&folder.join(MODEL_FILE)).ok() == mine;
        if other.id == id && !is_copy {
            let name = entry.file_name();
            check.problem(format!(
                "{}: another candidate of the same private sweep; the guarantee holds only if the losers are removed",
                name.to_string_lossy()
            ));
        }
    }
}
