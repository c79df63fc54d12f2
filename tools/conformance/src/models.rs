//! Language models: loss, top-1, gradients, per-sequence gradient norms and one clipped client update, in f64 and f32.

use crate::tally::Tally;
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use undertone_aggregation::{Clipping, ParamLayout};
use undertone_models::{
    Architecture, IGNORE, PackedBatch, Positions, Scalar, SequenceBatch, SequenceModel, SequenceWeights,
    SequenceWorker, StateMode, Transformer, TransformerSizes, WordLstm,
};

/// Relative tolerances in double and single precision.
const DOUBLE: f64 = 1e-9;
const SINGLE: f64 = 1e-4;

pub(crate) fn check(file: &Value, tally: &mut Tally) -> anyhow::Result<()> {
    let cases = file["cases"].as_array().context("the file has no list `cases`")?;
    for (number, case) in cases.iter().enumerate() {
        let id = case["id"]
            .as_str()
            .with_context(|| format!("case {number} has no `id`"))?;
        let family = case["family"]
            .as_str()
            .with_context(|| format!("{id} has no `family`"))?;
        match build(family, &case["inputs"]).with_context(|| id.to_owned())? {
            Some(model) => check_case(id, model.as_ref(), case, tally).with_context(|| id.to_owned())?,
            None => tally.skip(id, &format!("family {family} is not built yet")),
        }
    }
    Ok(())
}

fn build(family: &str, inputs: &Value) -> anyhow::Result<Option<Box<dyn SequenceModel>>> {
    let size = |name: &str| -> anyhow::Result<usize> {
        let size = inputs[name]
            .as_u64()
            .with_context(|| format!("no size `{name}`"))?;
        Ok(usize::try_from(size)?)
    };
    let recurrent = match family {
        "dplm" => WordLstm::tied(size("vocab")?, size("embed")?, size("hidden")?, true)?,
        "stackoverflow" => WordLstm::untied(size("vocab")?, size("embed")?, size("hidden")?)?,
        // The projection of the reference is as wide as its embedding.
        "cifg-tied" | "cifg-untied" => WordLstm::cifg(
            size("vocab")?,
            size("embed")?,
            size("hidden")?,
            size("embed")?,
            family == "cifg-tied",
        )?,
        "transformer" => return Ok(Some(Box::new(transformer(inputs, size)?))),
        _ => return Ok(None),
    };
    Ok(Some(Box::new(recurrent)))
}

/// The context and the width of the feed-forward layer stand in the shapes of the parameters alone.
fn transformer(inputs: &Value, size: impl Fn(&str) -> anyhow::Result<usize>) -> anyhow::Result<Transformer> {
    let extent = |tensor: &str, axis: usize| -> anyhow::Result<usize> {
        let extent = inputs["parameters"][tensor]["shape"][axis]
            .as_u64()
            .with_context(|| format!("tensor {tensor} has no axis {axis}"))?;
        Ok(usize::try_from(extent)?)
    };
    Ok(Transformer::new(TransformerSizes {
        vocab: size("vocab")?,
        layers: size("layers")?,
        width: size("embed")?,
        heads: size("heads")?,
        context: extent("positions", 0)?,
        inner: extent("b0.up", 1)?,
        positions: Positions::Learned,
        architecture: Architecture::GPT2,
    })?)
}

/// Inputs and targets of one sequence; masked targets are [`IGNORE`].
type Sequence = (Vec<u32>, Vec<u32>);

fn check_case(id: &str, model: &dyn SequenceModel, case: &Value, tally: &mut Tally) -> anyhow::Result<()> {
    let inputs = &case["inputs"];
    let params = flat(model.layout(), &inputs["parameters"]).context("parameters")?;
    let run = Run {
        id,
        model,
        outputs: &case["outputs"],
        sequences: sequences(inputs)?,
        learning_rate: inputs["client_lr"].as_f64().context("no `client_lr`")?,
        clip_norm: inputs["clip_norm"].as_f64().context("no `clip_norm`")?,
    };
    let rows = run.sequences.iter().map(|(inputs, _)| inputs.len()).sum();
    let mut worker = model.check_worker(run.sequences.len(), rows);
    run.check("f64", DOUBLE, worker.as_mut(), &params, project_double, tally)?;
    let narrow: Vec<f32> = params.iter().map(|&value| value as f32).collect();
    let mut worker = model.worker(run.sequences.len(), rows);
    run.check("f32", SINGLE, worker.as_mut(), &narrow, project_single, tally)
}

/// Projects `theta` onto the L2 ball of the given radius around the first vector.
type Project<T> = fn(&ParamLayout, &[T], &mut [T], f64) -> anyhow::Result<()>;

/// The product's projection.
fn project_single(layout: &ParamLayout, start: &[f32], theta: &mut [f32], radius: f64) -> anyhow::Result<()> {
    Clipping::Flat { clip_norm: radius }.project(layout, start, theta)?;
    Ok(())
}

/// The projection in double precision, which the product has no need for.
fn project_double(_: &ParamLayout, start: &[f64], theta: &mut [f64], radius: f64) -> anyhow::Result<()> {
    let norm = theta
        .iter()
        .zip(start)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt();
    if norm > radius {
        for (value, start) in theta.iter_mut().zip(start) {
            *value = start + (*value - start) * (radius / norm);
        }
    }
    Ok(())
}

struct Run<'a> {
    id: &'a str,
    model: &'a dyn SequenceModel,
    outputs: &'a Value,
    sequences: Vec<Sequence>,
    learning_rate: f64,
    clip_norm: f64,
}

impl Run<'_> {
    fn check<T: Scalar>(
        &self,
        precision: &str,
        tolerance: f64,
        worker: &mut dyn SequenceWorker<T>,
        params: &[T],
        project: Project<T>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let layout = self.model.layout();
        let name = |what: &str| format!("{} {precision} {what}", self.id);
        let pairs: Vec<(&[u32], &[u32])> = self.sequences.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        let mut packed = PackedBatch::default();
        packed.pack(&pairs);
        let mut grad = vec![T::ZERO; params.len()];

        let loss = worker.gradient(params, &packed.batch(), &mut grad)?.mean_loss();
        let expected = self.outputs["loss"].as_f64().context("no `loss`")?;
        tally.numbers(&name("loss"), &[expected], &[loss], tolerance);
        let expected = flat(layout, &self.outputs["gradients"]).context("gradients")?;
        let got = widen(&grad);
        let by_tensor = |tally: &mut Tally, what: &str, expected: &[f64], got: &[f64]| {
            for tensor in layout.tensors() {
                let (name, range) = (name(&format!("{what} of {}", tensor.name)), tensor.range());
                tally.numbers(&name, &expected[range.clone()], &got[range], tolerance);
            }
        };
        by_tensor(tally, "gradient", &expected, &got);

        let expected: Vec<u64> = rows(&self.outputs["top1"], Value::as_u64)
            .context("top1")?
            .concat();
        tally.ids(&name("top1"), &expected, &top1(worker, params, &packed)?);

        let mut norms = Vec::new();
        let mut theta = params.to_vec();
        let mut one = PackedBatch::default();
        for pair in &pairs {
            let batch = one.pack(&[*pair]);
            worker.gradient(params, &batch, &mut grad)?;
            norms.push(widen(&grad).iter().map(|value| value * value).sum::<f64>().sqrt());
            worker.sgd_step(&mut theta, &batch, T::of(self.learning_rate), StateMode::Zero)?;
            project(layout, params, &mut theta, self.clip_norm)?;
        }
        let expected = &self.outputs["per_sequence_gradient_norms"];
        let expected = list(expected, Value::as_f64).context("per_sequence_gradient_norms")?;
        tally.numbers(&name("per-sequence gradient norms"), &expected, &norms, tolerance);

        // The same norms as private training takes them, all sequences at once.
        let mut together = vec![T::ZERO; pairs.len()];
        let unclipped = SequenceWeights::Clip {
            bound: T::of(f64::INFINITY),
        };
        worker.weighted_gradient(params, &packed.batch(), unclipped, &mut grad, &mut together)?;
        let mut norms = vec![0.0; pairs.len()];
        for (&index, norm) in packed.order().iter().zip(&together) {
            norms[index] = norm.wide();
        }
        tally.numbers(&name("norms for clipping"), &expected, &norms, tolerance);

        let expected = flat(layout, &self.outputs["fedavg_update"]).context("fedavg_update")?;
        let got: Vec<f64> = theta
            .iter()
            .zip(params)
            .map(|(a, b)| a.wide() - b.wide())
            .collect();
        by_tensor(tally, "client update", &expected, &got);
        Ok(())
    }
}

/// Predictions of every position, sequence by sequence in the order of the file.
fn top1<T: Scalar>(
    worker: &mut dyn SequenceWorker<T>,
    params: &[T],
    packed: &PackedBatch,
) -> anyhow::Result<Vec<u64>> {
    let batch: SequenceBatch<'_> = packed.batch();
    let mut by_row = Vec::new();
    worker.evaluate(params, &batch, StateMode::Zero, &mut |_, logits, _| {
        let mut best = 0;
        for (word, logit) in logits.iter().enumerate() {
            if *logit > logits[best] {
                best = word;
            }
        }
        by_row.push(best as u64);
    })?;
    let mut by_sequence = vec![Vec::new(); batch.sequences()];
    let mut next = by_row.into_iter();
    for &active in batch.active {
        for &sequence in &packed.order()[..active] {
            by_sequence[sequence].extend(next.next());
        }
    }
    Ok(by_sequence.concat())
}

fn widen<T: Scalar>(values: &[T]) -> Vec<f64> {
    values.iter().map(|value| value.wide()).collect()
}

fn list<T>(value: &Value, convert: fn(&Value) -> Option<T>) -> anyhow::Result<Vec<T>> {
    let values = value.as_array().context("not a list")?;
    values
        .iter()
        .map(|value| convert(value).context("not a number of the right kind"))
        .collect()
}

fn rows<T>(value: &Value, convert: fn(&Value) -> Option<T>) -> anyhow::Result<Vec<Vec<T>>> {
    value
        .as_array()
        .context("not a list of lists")?
        .iter()
        .map(|row| list(row, convert))
        .collect()
}

/// The tensors of a JSON object in the order of the layout.
fn flat(layout: &ParamLayout, tensors: &Value) -> anyhow::Result<Vec<f64>> {
    let given = tensors.as_object().context("not an object of tensors")?.len();
    ensure!(
        given == layout.tensors().len(),
        "expected {} tensors, got {given}",
        layout.tensors().len()
    );
    let mut values = Vec::with_capacity(layout.len());
    for spec in layout.tensors() {
        let tensor = &tensors[&spec.name];
        let shape = list(&tensor["shape"], Value::as_u64).with_context(|| spec.name.clone())?;
        if !shape.iter().zip(&spec.shape).all(|(&a, &b)| a == b as u64) || shape.len() != spec.shape.len() {
            bail!(
                "tensor {}: expected shape {:?}, got {shape:?}",
                spec.name,
                spec.shape
            );
        }
        let data = list(&tensor["data"], Value::as_f64).with_context(|| spec.name.clone())?;
        ensure!(
            data.len() == spec.len(),
            "tensor {}: {} values",
            spec.name,
            data.len()
        );
        values.extend(data);
    }
    Ok(values)
}

/// Inputs are all tokens but the last, targets all but the first.
fn sequences(inputs: &Value) -> anyhow::Result<Vec<Sequence>> {
    let tokens = rows(&inputs["tokens"], Value::as_u64).context("tokens")?;
    let mask = rows(&inputs["loss_mask"], Value::as_f64).context("loss_mask")?;
    ensure!(
        tokens.len() == mask.len(),
        "{} sequences, {} masks",
        tokens.len(),
        mask.len()
    );
    let mut sequences = Vec::with_capacity(tokens.len());
    for (tokens, mask) in tokens.iter().zip(&mask) {
        ensure!(
            tokens.len() == mask.len() + 1,
            "{} tokens, mask of {}",
            tokens.len(),
            mask.len()
        );
        let ids = tokens
            .iter()
            .map(|&token| u32::try_from(token))
            .collect::<Result<Vec<u32>, _>>()?;
        let target = |(&id, &mask): (&u32, &f64)| if mask > 0.0 { id } else { IGNORE };
        let targets = ids[1..].iter().zip(mask).map(target).collect();
        sequences.push((ids[..mask.len()].to_vec(), targets));
    }
    Ok(sequences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Value {
        serde_json::from_str(include_str!("../../../vectors/models.json")).unwrap()
    }

    #[test]
    fn the_repository_vectors_pass() {
        let mut tally = Tally::default();
        check(&file(), &mut tally).unwrap();
        // Per precision: loss, top-1, norms twice, and gradient and update of every tensor: 6 of dplm, 8 of stackoverflow, 5
        // and 7 of cifg, tied and untied, 28 of a transformer of two blocks.
        let checks = 3 * (4 + 12) + 3 * (4 + 16) + 2 * (4 + 10) + 2 * (4 + 14) + 3 * (4 + 56);
        assert_eq!(
            tally.to_string(),
            format!("{} passed, 0 failed, 0 skipped", 2 * checks)
        );
    }

    #[test]
    fn wrong_numbers_fail_and_unknown_families_are_skipped() {
        let mut file = file();
        file["cases"][0]["outputs"]["loss"] = 1.0.into();
        file["cases"][0]["outputs"]["fedavg_update"]["proj"]["data"][3] = 9.0.into();
        file["cases"][1]["family"] = "gru".into();
        let mut tally = Tally::default();
        check(&file, &mut tally).unwrap();
        assert!(tally.failed());
        assert_eq!(tally.to_string(), "668 passed, 4 failed, 1 skipped");
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let mut broken = file();
        broken["cases"][0]["inputs"]["parameters"]["wx"]["shape"][0] = 5.into();
        let error = check(&broken, &mut Tally::default()).unwrap_err();
        assert!(
            format!("{error:#}").contains("tensor wx: expected shape [4, 20], got [5, 20]"),
            "{error:#}"
        );
        let error = check(&Value::Null, &mut Tally::default()).unwrap_err();
        assert_eq!(error.to_string(), "the file has no list `cases`");
    }
}
