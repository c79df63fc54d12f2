//! Writing files that `transformers` reads.

use super::{Config, Family, full_name, pieces};
use crate::error::Result;
use crate::sequence::SequenceModel;
use crate::tensors::{PYTORCH, bytes_of, describe, file_of, malformed};
use crate::transformer::Transformer;
use serde_json::{Map, Value, json};

/// The tensors as F32, adapters added to what they adapt: pairs of a file name and its content. Files hold at most `max_bytes` of
/// tensors, or one tensor that is larger; each has the description in its header. Several files end with their index. Two calls
/// with the same input write the same bytes.
///
/// # Errors
/// An architecture that none of the layouts has, a parameter count that is not the model's.
pub fn write(
    model: &Transformer,
    params: &[f32],
    max_bytes: u64,
    description: &str,
) -> Result<Vec<(String, Vec<u8>)>> {
    let (model, params) = model.merged(params)?;
    let shift = -Family::of(model.sizes())?.gain_shift();
    let pieces = pieces(&model);
    let mut groups: Vec<Vec<&super::Piece>> = Vec::new();
    let mut room = 0;
    for piece in &pieces {
        let bytes = 4 * piece.len() as u64;
        match groups.last_mut().filter(|_| bytes <= room) {
            Some(group) => {
                group.push(piece);
                room -= bytes;
            }
            None => {
                groups.push(vec![piece]);
                room = max_bytes.saturating_sub(bytes);
            }
        }
    }
    let (count, mut files, mut weight_map) = (groups.len(), Vec::new(), Map::new());
    for (number, group) in groups.into_iter().enumerate() {
        let file = match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        let mut tensors = Vec::with_capacity(group.len());
        for piece in &group {
            let values = piece.gather(&params, if piece.gain { shift } else { 0.0 });
            weight_map.insert(full_name(&piece.name), Value::from(&file[..]));
            tensors.push((full_name(&piece.name), &piece.shape[..], bytes_of(&values)));
        }
        let views = tensors.iter();
        let views = views.map(|(name, shape, bytes)| (name.clone(), *shape, &bytes[..]));
        // Every file tells what its model was trained on, so that a part does not lose it.
        files.push((file, describe(file_of(views, PYTORCH)?, description)?));
    }
    if count > 1 {
        let total_size = 4 * model.layout().len();
        let index = json!({"metadata": {"total_size": total_size}, "weight_map": weight_map});
        let mut text = serde_json::to_vec_pretty(&index).map_err(malformed)?;
        text.push(b'\n');
        files.push(("model.safetensors.index.json".to_owned(), text));
    }
    Ok(files)
}

/// The `config.json` beside the files of [`write`](fn@write), with the ids that start and end a text.
///
/// # Errors
/// An architecture that none of the layouts has.
pub fn config_json(model: &Transformer, bos: u32, eos: u32) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(&Config::of(model.sizes(), bos, eos)?).map_err(malformed)?;
    text.push(b'\n');
    Ok(text)
}
