//! Losses and gradients against the models of the processor, in double precision.

use serde_json::{Value, json};
use undertone_gpu::Trainer;
use undertone_local::{CohortText, UserBatches};
use undertone_text::SpecialIds;

use crate::world::{Cohort, Kept, World};

/// One step of a large learning rate, whose update is not hidden by the rounding of the parameters.
const RATE: f64 = 256.0;

/// The largest difference of a tensor's gradient, relative to the largest value of that gradient.
pub(crate) fn run<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let (mut lines, mut worst) = (serde_json::Map::new(), 0.0f64);
    for mut world in World::all(small)? {
        world.settings.learning_rate = Some(RATE);
        let cohort = Cohort::uneven(2, 4, 8, world.ids);
        let kept = Kept::default();
        world.train(
            &mut world.engine(machine, &cohort, 2)?,
            &cohort,
            &cohort.places(),
            &kept,
        )?;
        let wide: Vec<f64> = world.theta.iter().copied().map(f64::from).collect();
        let mut worker = world.model.check_worker(16, 16 * 8);
        let mut of_model = 0.0f64;
        for (place, update, _) in kept.sorted() {
            let batches = UserBatches::new(&cohort.examples(place), cohort.order(place), &world.settings);
            let Some((batch, _)) = batches.into_steps(&world.settings, SpecialIds::WORDS).next() else {
                continue;
            };
            let mut gradient = vec![0.0; wide.len()];
            worker.gradient(&wide, &batch.batch(), &mut gradient)?;
            for tensor in world.model.layout().tensors() {
                let Some(range) = world.model.layout().range(&tensor.name) else {
                    continue;
                };
                let scale = gradient[range.clone()]
                    .iter()
                    .fold(0.0f64, |top, value| top.max(value.abs()));
                let differences = range.map(|i| (gradient[i] + f64::from(update[i]) / RATE).abs());
                of_model = of_model.max(differences.fold(0.0, f64::max) / scale.max(f64::MIN_POSITIVE));
            }
        }
        worst = worst.max(of_model);
        lines.insert(world.name.to_owned(), json!(format!("{of_model:.1e}")));
    }
    Ok(json!({ "relative_difference": lines, "limit": 1e-5, "holds": worst <= 1e-5 }))
}
