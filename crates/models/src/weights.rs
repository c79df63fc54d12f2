//! Flat parameters to and from safetensors files.

use crate::error::{ModelError, Result};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use std::collections::HashMap;
use undertone_aggregation::ParamLayout;

/// Key of the description in a file's header.
pub const DESCRIPTION_KEY: &str = "undertone";

/// Writes parameters as f32 tensors under the layout's names, with a description (such as JSON) in the header.
///
/// The same parameters and description give the same bytes; that is why there is one description and no map, whose order
/// the format leaves open.
///
/// # Errors
/// A parameter count that is not the layout's.
pub fn to_safetensors(layout: &ParamLayout, params: &[f32], description: Option<&str>) -> Result<Vec<u8>> {
    if params.len() != layout.len() {
        return Err(ModelError::ParameterCount {
            what: "parameter",
            expected: layout.len(),
            got: params.len(),
        });
    }
    let bytes: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let malformed = |error: safetensors::SafeTensorError| ModelError::MalformedWeights {
        reason: error.to_string(),
    };
    let mut tensors = Vec::with_capacity(layout.tensors().len());
    for tensor in layout.tensors() {
        let range = tensor.range();
        let data = &bytes[range.start * 4..range.end * 4];
        let view = TensorView::new(Dtype::F32, tensor.shape.clone(), data).map_err(malformed)?;
        tensors.push((tensor.name.as_str(), view));
    }
    let metadata = description.map(|text| HashMap::from([(DESCRIPTION_KEY.to_owned(), text.to_owned())]));
    serialize(tensors, metadata).map_err(malformed)
}

/// Reads parameters in the order of the layout; names, shapes, types and finiteness are all checked.
///
/// # Errors
/// An unreadable file, or a tensor that is missing, unknown, of another shape or type, or not finite.
pub fn from_safetensors(layout: &ParamLayout, bytes: &[u8]) -> Result<Vec<f32>> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| ModelError::MalformedWeights {
        reason: error.to_string(),
    })?;
    for (name, tensor) in file.tensors() {
        if layout.range(&name).is_none() {
            return Err(ModelError::UnknownTensor {
                name,
                got: tensor.shape().to_vec(),
            });
        }
    }
    let mut params = Vec::with_capacity(layout.len());
    for spec in layout.tensors() {
        let Ok(tensor) = file.tensor(&spec.name) else {
            return Err(ModelError::MissingTensor {
                name: spec.name.clone(),
                expected: spec.shape.clone(),
            });
        };
        if tensor.dtype() != Dtype::F32 {
            let got = format!("{:?}", tensor.dtype());
            return Err(ModelError::TensorType {
                name: spec.name.clone(),
                got,
            });
        }
        if tensor.shape() != spec.shape {
            return Err(ModelError::TensorShape {
                name: spec.name.clone(),
                expected: spec.shape.clone(),
                got: tensor.shape().to_vec(),
            });
        }
        for (index, bytes) in tensor.data().as_chunks::<4>().0.iter().enumerate() {
            let value = f32::from_le_bytes(*bytes);
            if !value.is_finite() {
                return Err(ModelError::NonFiniteTensor {
                    name: spec.name.clone(),
                    index,
                    value,
                });
            }
            params.push(value);
        }
    }
    Ok(params)
}

/// The description in a file's header, where there is one.
///
/// # Errors
/// An unreadable file.
pub fn description(bytes: &[u8]) -> Result<Option<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| ModelError::MalformedWeights {
        reason: error.to_string(),
    })?;
    let metadata = header.metadata().as_ref();
    Ok(metadata
        .and_then(|metadata| metadata.get(DESCRIPTION_KEY))
        .cloned())
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
        let bytes = to_safetensors(&stored, &vec![value; stored.len()], None).unwrap();
        let error = from_safetensors(&layout(&[("a", &[2, 3]), ("b", &[4])]), &bytes).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn round_trip() {
        let layout = layout(&[("a", &[2, 3]), ("b", &[4])]);
        let params: Vec<f32> = (0..10).map(|i| i as f32 / 3.0).collect();
        let bytes = to_safetensors(&layout, &params, Some("a test")).unwrap();
        assert_eq!(from_safetensors(&layout, &bytes).unwrap(), params);
        assert_eq!(description(&bytes).unwrap().as_deref(), Some("a test"));
        let plain = to_safetensors(&layout, &params, None).unwrap();
        assert_eq!(description(&plain).unwrap(), None);
        assert!(description(&bytes[..5]).is_err());
    }

    #[test]
    fn mismatches_name_the_tensor() {
        check(
            &[("a", &[2, 3])],
            0.0,
            "weights file lacks tensor `b` of shape [4]",
        );
        check(
            &[("a", &[3, 2]), ("b", &[4])],
            0.0,
            "tensor `a`: expected shape [2, 3], got [3, 2]",
        );
        check(
            &[("a", &[2, 3]), ("b", &[4]), ("c", &[1])],
            0.0,
            "weights file holds unknown tensor `c` of shape [1]",
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
        let error = to_safetensors(&layout, &[0.0; 5], None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the model has 6 parameters, the parameter slice has 5"
        );
    }
}
