//! Flat parameters to and from safetensors files.

use crate::error::{ModelError, Result, check_count};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, serialize, tensor::Metadata, tensor::TensorView};
use std::collections::{HashMap, HashSet};
use undertone_aggregation::ParamLayout;

pub(crate) fn malformed(error: impl std::fmt::Display) -> ModelError {
    ModelError::MalformedWeights {
        reason: error.to_string(),
    }
}

/// Key of the description in a file's header.
pub(crate) const DESCRIPTION_KEY: &str = "undertone";

/// Writes parameters as f32 tensors under the layout's names, with a description (such as JSON) in the header.
///
/// PRIVACY: the description says what the model was trained on. It is not optional, so that no writer of a model can forget it.
///
/// The bytes follow from the parameters and the description alone. The header has one description, because the format leaves the order of
/// several open.
///
/// # Errors
/// A parameter count that is not the layout's.
pub fn to_safetensors(layout: &ParamLayout, params: &[f32], description: &str) -> Result<Vec<u8>> {
    check_count("parameter", layout.len(), params.len())?;
    serialized(
        layout,
        params,
        str::to_owned,
        Some((DESCRIPTION_KEY, description)),
    )
}

/// Writes parameters as [`to_safetensors`] does, without a description. These bytes are no file of a model: they are read back at
/// once, or a signed plan hands them to devices.
///
/// # Errors
/// A parameter count that is not the layout's.
pub fn tensors_alone(layout: &ParamLayout, params: &[f32]) -> Result<Vec<u8>> {
    check_count("parameter", layout.len(), params.len())?;
    serialized(layout, params, str::to_owned, None)
}

/// The entry that the readers of `transformers` ask for: tensors are laid out as PyTorch has them.
pub(crate) const PYTORCH: Option<(&str, &str)> = Some(("format", "pt"));

/// A file of the tensors of a layout, under other names, with one entry in its header.
pub(crate) fn serialized(
    layout: &ParamLayout,
    params: &[f32],
    name: impl Fn(&str) -> String,
    entry: Option<(&str, &str)>,
) -> Result<Vec<u8>> {
    let bytes = bytes_of(params);
    let tensors = layout.tensors().iter().map(|tensor| {
        let range = tensor.range();
        let data = &bytes[range.start * 4..range.end * 4];
        (name(&tensor.name), &tensor.shape[..], data)
    });
    file_of(tensors, entry)
}

pub(crate) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A file of F32 tensors, each with its name, shape and bytes, with one entry in its header.
pub(crate) fn file_of<'a>(
    tensors: impl Iterator<Item = (String, &'a [usize], &'a [u8])>,
    entry: Option<(&str, &str)>,
) -> Result<Vec<u8>> {
    let views = tensors.map(|(name, shape, data)| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), data).map_err(malformed)?;
        Ok((name, view))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    let metadata = entry.map(|(key, value)| HashMap::from([(key.to_owned(), value.to_owned())]));
    serialize(views, metadata).map_err(malformed)
}

/// Reads parameters in the order of the layout; names, shapes, types and finiteness are all checked.
///
/// # Errors
/// An unreadable file, or a tensor that is missing, unknown, of another shape or type, or not finite.
pub fn from_safetensors(layout: &ParamLayout, bytes: &[u8]) -> Result<Vec<f32>> {
    let file = SafeTensors::deserialize(bytes).map_err(malformed)?;
    let known: HashSet<&str> = layout.tensors().iter().map(|tensor| &tensor.name[..]).collect();
    let tensors = file.tensors().into_iter();
    let unknown = tensors.filter(|(name, _)| !known.contains(&name[..]));
    // The first by name: files have no order of their own.
    if let Some((name, tensor)) = unknown.min_by(|(a, _), (b, _)| a.cmp(b)) {
        return Err(ModelError::UnknownTensor {
            name,
            got: tensor.shape().to_vec(),
        });
    }
    // All shapes are compared first: the file is then as large as the memory that is asked for.
    let mut found = Vec::with_capacity(file.len());
    for spec in layout.tensors() {
        let Ok(tensor) = file.tensor(&spec.name) else {
            return Err(ModelError::MissingTensor {
                name: spec.name.clone(),
                expected: spec.shape.clone(),
            });
        };
        check(&spec.name, &tensor, &spec.shape)?;
        found.push((&spec.name[..], tensor));
    }
    let mut params = reserved(layout)?;
    for (name, tensor) in &found {
        append(&mut params, name, tensor, false)?;
    }
    Ok(params)
}

/// An empty vector with room for the parameters of a layout.
pub(crate) fn reserved(layout: &ParamLayout) -> Result<Vec<f32>> {
    let (mut params, parameters) = (Vec::new(), layout.len());
    match params.try_reserve_exact(parameters) {
        Ok(()) => Ok(params),
        Err(_) => Err(ModelError::OutOfMemory { parameters }),
    }
}

/// Refuses a tensor of another shape.
pub(crate) fn check(name: &str, tensor: &TensorView<'_>, shape: &[usize]) -> Result<()> {
    if tensor.shape() == shape {
        return Ok(());
    }
    Err(ModelError::TensorShape {
        name: name.to_owned(),
        expected: shape.to_vec(),
        got: tensor.shape().to_vec(),
    })
}

/// Appends a tensor's values, of type F32, or also of the half-width types.
pub(crate) fn append(params: &mut Vec<f32>, name: &str, tensor: &TensorView<'_>, halves: bool) -> Result<()> {
    let name = || name.to_owned();
    let data = tensor.data();
    let start = params.len();
    match tensor.dtype() {
        Dtype::F32 => params.extend(
            data.as_chunks::<4>()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes)),
        ),
        Dtype::BF16 if halves => {
            let wide = |&bytes: &[u8; 2]| bf16::from_le_bytes(bytes).to_f32();
            params.extend(data.as_chunks::<2>().0.iter().map(wide));
        }
        Dtype::F16 if halves => {
            let wide = |&bytes: &[u8; 2]| f16::from_le_bytes(bytes).to_f32();
            params.extend(data.as_chunks::<2>().0.iter().map(wide));
        }
        other => {
            return Err(ModelError::TensorType {
                name: name(),
                expected: if halves { "F32, F16 or BF16" } else { "F32" },
                got: format!("{other:?}"),
            });
        }
    }
    let broken = params[start..].iter().position(|value| !value.is_finite());
    broken.map_or(Ok(()), |index| {
        Err(ModelError::NonFiniteTensor {
            name: name(),
            index,
            value: params[start + index],
        })
    })
}

/// Puts a description into the header of a file, beside what the header says already. The same file and description give the
/// same bytes.
///
/// # Errors
/// [`ModelError::MalformedWeights`] for bytes that are no file of tensors.
pub fn describe(mut bytes: Vec<u8>, description: &str) -> Result<Vec<u8>> {
    let (length, _) = SafeTensors::read_metadata(&bytes).map_err(malformed)?;
    let before = 8..8 + length;
    let mut header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes[before.clone()]).map_err(malformed)?;
    let metadata = header
        .entry("__metadata__")
        .or_insert_with(|| serde_json::json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(DESCRIPTION_KEY.to_owned(), description.into());
    }
    let mut header = serde_json::to_vec(&header).map_err(malformed)?;
    // Tensors begin at a multiple of 8 bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    bytes[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.splice(before, header);
    Ok(bytes)
}

/// The description in a file's header, if there is one.
///
/// # Errors
/// An unreadable file.
pub fn description(bytes: &[u8]) -> Result<Option<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
    Ok(description_of(&header))
}

/// The places in a file's header that this program does not write: texts beside the description, keys beside type, shape and place of a
/// tensor, and keys that stand there twice. Readers of the format pass over all of them.
///
/// # Errors
/// An unreadable file.
pub fn foreign_in_header(bytes: &[u8]) -> Result<Vec<String>> {
    let (length, _) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
    let text = std::str::from_utf8(&bytes[8..8 + length]).map_err(malformed)?;
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(malformed)?;
    let mut found = Vec::new();
    for (name, entry) in &header {
        let known: &[&str] = match name.as_str() {
            "__metadata__" => &[DESCRIPTION_KEY],
            _ => &["dtype", "shape", "data_offsets"],
        };
        let keys = entry.as_object().into_iter().flat_map(serde_json::Map::keys);
        let foreign = keys.filter(|key| !known.contains(&key.as_str()));
        found.extend(foreign.map(|key| format!("{name}, {key}")));
    }
    let written = serde_json::to_string(&header).map_err(malformed)?;
    // One value per key is kept while a text is read, so that a text with more of them is longer.
    if found.is_empty() && written.len() != text.trim_end_matches(' ').len() {
        found.push("a key that stands there twice, or blanks".to_owned());
    }
    Ok(found)
}

fn description_of(header: &Metadata) -> Option<String> {
    header.metadata().as_ref()?.get(DESCRIPTION_KEY).cloned()
}

/// The description in the header of a file whose tensors were not read. `header` has the first bytes of the file: the length of the
/// header and the header.
///
/// # Errors
/// [`ModelError::MalformedWeights`] for a damaged header.
pub fn description_in_header(header: &[u8]) -> Result<Option<String>> {
    let text = header.get(8..).unwrap_or_default();
    let header = serde_json::from_slice(text).map_err(malformed)?;
    Ok(description_of(&header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shapes: &[(&str, &[usize])]) -> ParamLayout {
        let tensors = shapes
            .iter()
            .map(|(name, shape)| ((*name).to_owned(), shape.to_vec()))
            .collect();
        ParamLayout::with_tensor_groups(tensors).unwrap()
    }

    fn check(shapes: &[(&str, &[usize])], value: f32, message: &str) {
        let stored = layout(shapes);
        let bytes = tensors_alone(&stored, &vec![value; stored.len()]).unwrap();
        let error = from_safetensors(&layout(&[("a", &[2, 3]), ("b", &[4])]), &bytes).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn parameters_and_description_survive_a_file() {
        let layout = layout(&[("a", &[2, 3]), ("b", &[4])]);
        let params: Vec<f32> = (0..10).map(|i| i as f32 / 3.0).collect();
        let bytes = to_safetensors(&layout, &params, "a test").unwrap();
        assert_eq!(from_safetensors(&layout, &bytes).unwrap(), params);
        assert_eq!(description(&bytes).unwrap().as_deref(), Some("a test"));
        let plain = tensors_alone(&layout, &params).unwrap();
        assert_eq!(description(&plain).unwrap(), None);
        for file in [plain.clone(), bytes.clone()] {
            let described = describe(file, "a longer description than before").unwrap();
            assert_eq!(from_safetensors(&layout, &described).unwrap(), params);
            let read = description(&described).unwrap();
            assert_eq!(read.as_deref(), Some("a longer description than before"));
        }
        assert!(description(&bytes[..5]).is_err());
    }

    #[test]
    fn mismatches_name_the_tensor() {
        check(
            &[("a", &[2, 3])],
            0.0,
            "the weights file lacks tensor `b` of shape [4]",
        );
        check(
            &[("a", &[3, 2]), ("b", &[4])],
            0.0,
            "tensor `a`: expected shape [2, 3], got [3, 2]",
        );
        check(
            &[("a", &[2, 3]), ("b", &[4]), ("c", &[1])],
            0.0,
            "the weights file holds the unknown tensor `c` of shape [1]",
        );
        check(
            &[("a", &[2, 3]), ("b", &[4])],
            f32::NAN,
            "tensor `a`: value NaN at index 0 is not finite",
        );
    }

    #[test]
    fn other_types_and_broken_files_are_refused() {
        let data = [0u8; 48];
        let view = TensorView::new(Dtype::F64, vec![2, 3], &data).unwrap();
        let bytes = serialize([("a", view)], None).unwrap();
        let layout = layout(&[("a", &[2, 3])]);
        let error = from_safetensors(&layout, &bytes).unwrap_err();
        assert_eq!(error.to_string(), "tensor `a`: expected type F32, got F64");
        for cut in [0, 7, bytes.len() - 1] {
            let error = from_safetensors(&layout, &bytes[..cut]).unwrap_err();
            assert!(matches!(error, ModelError::MalformedWeights { .. }), "{error}");
        }
        let error = to_safetensors(&layout, &[0.0; 5], "a test").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model has 6 parameters, but the parameter slice has 5 values"
        );
    }
}
