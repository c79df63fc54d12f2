//! The shape of a model that another program trains.

use serde::{Deserialize, Serialize};
use undertone_aggregation::ParamLayout;

use crate::error::Result;
use crate::sizes;

/// A tensor of a model that another program trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExternalTensor {
    /// Name of the tensor.
    pub name: String,
    /// Number of values along each axis; a scalar has no axis.
    pub shape: Vec<usize>,
}

/// The layout of these tensors, one after the other. Each is a clip group of its own.
///
/// # Errors
/// No tensor, a repeated name, an empty tensor, or more parameters than can be trained.
pub(crate) fn layout(tensors: &[ExternalTensor]) -> Result<ParamLayout> {
    sizes::check("tensors", tensors.len(), 1, sizes::MAX_IDS)?;
    let mut total = 0_u128;
    for tensor in tensors {
        let len = tensor
            .shape
            .iter()
            .fold(1_u128, |len, &axis| len.saturating_mul(axis as u128));
        total = total.saturating_add(len);
    }
    // Before anything is made from the sizes, which a foreign file can hold.
    sizes::check_total(total)?;
    let named = tensors
        .iter()
        .map(|tensor| (tensor.name.clone(), tensor.shape.clone()));
    Ok(ParamLayout::with_tensor_groups(named.collect())?)
}

#[cfg(test)]
mod tests {
    use crate::{ModelError, ModelSpec};

    fn spec(tensors: &str) -> ModelSpec {
        serde_json::from_str(&format!(r#"{{"family": "external", "tensors": [{tensors}]}}"#)).unwrap()
    }

    #[test]
    fn an_external_model_has_a_layout_and_nothing_to_compute() {
        let spec = spec(r#"{"name": "w", "shape": [3, 4]}, {"name": "b", "shape": []}"#);
        let layout = spec.layout(0).unwrap();
        assert_eq!(layout.len(), 13);
        assert_eq!(layout.range("b"), Some(12..13));
        assert_eq!(layout.groups().len(), 2);
        assert_eq!(spec.build(9).err(), Some(ModelError::TrainedOutside));
        assert_eq!(spec.load(9, &[]).err(), Some(ModelError::TrainedOutside));
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ModelSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn shapes_that_make_no_layout_are_refused() {
        for (tensors, expected) in [
            ("", "`tensors` must be at least 1, got 0"),
            (
                r#"{"name": "w", "shape": [0]}"#,
                "the parameter layout of the model: tensor \"w\" of shape [0] is empty; each dimension must be at least 1",
            ),
            (
                r#"{"name": "w", "shape": [2]}, {"name": "w", "shape": [2]}"#,
                "the parameter layout of the model: tensor \"w\" appears twice in the layout",
            ),
            (
                r#"{"name": "w", "shape": [18446744073709551615, 18446744073709551615, 2]}"#,
                "the sizes of the model make 340282366920938463463374607431768211455 parameters, expected at most 2147483648",
            ),
        ] {
            assert_eq!(spec(tensors).layout(0).unwrap_err().to_string(), expected);
        }
    }
}
