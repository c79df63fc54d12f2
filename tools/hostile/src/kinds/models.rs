//! Files of trained parameters that a run starts from.

use std::path::Path;

use anyhow::{Context, Result};
use undertone_coordinator::random::Randomness;
use undertone_data::Vocab;
use undertone_models::weights::{self, gpt2};
use undertone_run::language::{LanguageModel, Predictor};
use undertone_run_directory::initial_model;

use crate::world::World;

pub(super) fn start_from_gpt2(world: &World, _place: &str) -> Result<()> {
    start_from(world, "gpt2/model.safetensors")
}

/// A run that starts from the folder, and a prediction by its model.
pub(super) fn open_huggingface(world: &World, _place: &str) -> Result<()> {
    let vocab = undertone_data::read_words(&world.run("llama").join("vocab.txt"))?;
    let started = start("llama", world, "huggingface", &vocab);
    let model = LanguageModel::open(&world.path("huggingface"));
    let predicted = model.and_then(|model| Predictor::new(&model)?.next_words("ba", "", 3));
    // A run may ask for more than the files say, and the other way round.
    started.and(predicted.map(|_| ()).map_err(Into::into))
}

/// A model with the adapters of the folder, and runs that start from them.
pub(super) fn open_adapters(world: &World, _place: &str) -> Result<()> {
    let vocab = undertone_data::read_words(&world.run("transformer").join("vocab.txt"))?;
    let model = LanguageModel::open(&world.run("transformer"))?;
    let opened = model.with_adapters(&world.path("peft"));
    let (folder, base) = (Path::new("peft"), world.folder());
    let file = Path::new("runs/transformer/model.safetensors");
    let added = ["transformer", "adapters"].map(|run| -> Result<()> {
        let spec = world.run_file(run)?.config.task.model;
        let model = initial_model::model(&spec, Some(file), base, &vocab)?;
        let mut parameters = model.initial_params(0);
        initial_model::add_adapters(&spec, folder, base, model.as_ref(), &vocab, &mut parameters)?;
        Ok(())
    });
    let [whole, adapted] = added;
    opened?;
    whole.and(adapted)
}

/// A run without and a run with adapters that start from the file, and what a file says of itself.
pub(super) fn start_from(world: &World, place: &str) -> Result<()> {
    let vocab = undertone_data::read_words(&world.run("transformer").join("vocab.txt"))?;
    let plain = start("transformer", world, place, &vocab);
    // It may be refused where the other is accepted, and the other way round.
    let adapted = start("adapters", world, place, &vocab);
    let bytes = std::fs::read(world.path(place))?;
    let _ = weights::description(&bytes);
    let _ = gpt2::is(&bytes);
    if let Ok((spec, words)) = gpt2::spec(&bytes) {
        let _ = spec.load(words, &bytes);
    }
    plain.and(adapted)
}

fn start(run: &str, world: &World, place: &str, vocab: &Vocab) -> Result<()> {
    let spec = world.run_file(run)?.config.task.model;
    let (file, base) = (Some(Path::new(place)), world.folder());
    let model = match initial_model::model(&spec, file, base, vocab) {
        Ok(model) => model,
        // Adapters are built on the file's own parameters.
        Err(error) => return Err(error).context(run.to_owned()),
    };
    let randomness = Randomness::seeded(0);
    initial_model::starting_parameters(&spec, file, base, model.as_ref(), vocab, &randomness)?;
    Ok(())
}
