//! Files of settings: runs, pre-training, sweeps, simulations.

use std::path::Path;

use anyhow::Result;
use undertone_run::RunFile;
use undertone_run::pretrain::PretrainFile;
use undertone_studies::simulate::SimulationFile;
use undertone_studies::sweep::Sweep;

use crate::world::World;

/// Reads and checks the file as what it is.
pub(super) fn parse(world: &World, place: &str) -> Result<()> {
    let path = world.path(place);
    let path: &Path = &path;
    match place {
        "pretrain.toml" => drop(PretrainFile::read(path, &[])?),
        "sweep.toml" => drop(Sweep::read(path, &[])?),
        "simulation.toml" => drop(SimulationFile::read(path, &[])?),
        _ => drop(RunFile::read(path, &[])?),
    }
    Ok(())
}
