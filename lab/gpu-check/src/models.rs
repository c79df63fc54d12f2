//! Losses and gradients against the models of the processor, in double precision.

use serde_json::{Value, json};
use undertone_gpu::{Precision, Trainer};
use undertone_local::{Algorithm, UserBatches};
use undertone_models::SequenceWeights;
use undertone_text::SpecialIds;

use crate::world::{Cohort, Kept, World};

/// The largest difference of a tensor's gradient, relative to the largest value of that gradient. For coarse products the cosine of the angle
/// between both.
pub(crate) fn run<M: Trainer + Clone>(machine: &M, small: bool) -> anyhow::Result<Value> {
    let (mut lines, mut cosines) = (serde_json::Map::new(), serde_json::Map::new());
    let (mut worst, mut least): (f64, f64) = (0.0, 1.0);
    for mut world in World::every(small)? {
        let of_gradient = world.settings.algorithm != Algorithm::FedAvg;
        // One step of a large learning rate, whose update is not hidden by the rounding of the parameters.
        let rate = if of_gradient { 1.0 } else { 256.0 };
        if !of_gradient {
            world.settings.learning_rate = Some(rate);
        }
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
        let (mut of_model, mut cosine): (f64, f64) = (0.0, 1.0);
        for (place, update, _) in kept.sorted() {
            let examples: Vec<&[u32]> = cohort.0[place].iter().map(|example| &example[..]).collect();
            let order = undertone_local::CohortText::order(&cohort, place);
            let batches = UserBatches::new(&examples, order, &world.settings);
            let weight = 1.0 / batches.examples().len().max(1) as f64;
            let Some((batch, _)) = batches.into_steps(&world.settings, SpecialIds::WORDS).next() else {
                continue;
            };
            let (mut gradient, batch) = (vec![0.0; wide.len()], batch.batch());
            if of_gradient {
                let (weights, mut norms) = (vec![weight; batch.sequences()], vec![0.0; batch.sequences()]);
                let weights = SequenceWeights::Fixed(&weights);
                worker.weighted_gradient(&wide, &batch, weights, &mut gradient, &mut norms)?;
            } else {
                worker.gradient(&wide, &batch, &mut gradient)?;
            }
            let dot = |a: &dyn Fn(usize) -> f64, b: &dyn Fn(usize) -> f64| {
                (0..wide.len()).map(|i| a(i) * b(i)).sum::<f64>()
            };
            let (expected, got) = (|i: usize| gradient[i], |i: usize| -f64::from(update[i]) / rate);
            let lengths = (dot(&expected, &expected) * dot(&got, &got)).sqrt();
            cosine = cosine.min(dot(&expected, &got) / lengths.max(f64::MIN_POSITIVE));
            for tensor in world.model.layout().tensors() {
                let Some(range) = world.model.layout().range(&tensor.name) else {
                    continue;
                };
                let scale = gradient[range.clone()]
                    .iter()
                    .fold(0.0f64, |top, value| top.max(value.abs()));
                let differences = range.map(|i| (gradient[i] + f64::from(update[i]) / rate).abs());
                of_model = of_model.max(differences.fold(0.0, f64::max) / scale.max(f64::MIN_POSITIVE));
            }
        }
        if world.precision == Precision::Bf16 {
            least = least.min(cosine);
            cosines.insert(world.name.to_owned(), json!(format!("{cosine:.6}")));
        } else {
            worst = worst.max(of_model);
            lines.insert(world.name.to_owned(), json!(format!("{of_model:.1e}")));
        }
    }
    Ok(json!({
        "relative_difference": lines,
        "limit": 1e-5,
        "cosine_of_bf16": cosines,
        "holds": worst <= 1e-5 && least >= 0.999,
    }))
}
