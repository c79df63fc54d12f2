//! The sizes of a recurrent word model, and where its tensors stand in the flat vector.

use undertone_aggregation::ParamLayout;
use undertone_local::LocalError;
use undertone_models::ModelSpec;

use crate::check::{unknown_family, unusable};

/// The layer that turns projected states into logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// The embedding, divided by the norms of its rows with `unit_norm`.
    Tied { unit_norm: bool },
    /// A matrix and a bias of its own, and where they stand.
    Dense { matrix: u64, bias: u64 },
}

/// Sizes and places of a recurrent word model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) parameters: usize,
    pub(crate) vocab: u32,
    pub(crate) embed: u32,
    pub(crate) hidden: u32,
    pub(crate) projection: u32,
    /// Width of all gates together.
    pub(crate) gates: u32,
    /// Width of the state that goes back into the gates.
    pub(crate) fed_back: u32,
    /// `true` for the cell with a coupled input and forget gate, whose projected state goes back into the gates.
    pub(crate) coupled: bool,
    pub(crate) head: Head,
    pub(crate) at: Places,
}

/// The first value of each tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) embedding: u64,
    pub(crate) wx: u64,
    pub(crate) wh: u64,
    pub(crate) bias: u64,
    pub(crate) projection: u64,
    /// `None` for a recurrent projection.
    pub(crate) projection_bias: Option<u64>,
}

impl Shape {
    /// Reads the sizes of a model from its layout.
    ///
    /// # Errors
    /// A model of another family.
    pub(crate) fn new(spec: &ModelSpec, layout: &ParamLayout) -> Result<Self, LocalError> {
        let (coupled, names, unit_norm) = match spec {
            ModelSpec::Dplm { unit_norm, .. } => (false, ("proj", "proj_bias"), *unit_norm),
            ModelSpec::StackOverflow { .. } => (false, ("dense", "dense_bias"), false),
            ModelSpec::Cifg { .. } => (true, ("wp", ""), false),
            other => return Err(unknown_family(other)),
        };
        let tensor = |name: &str| {
            let tensor = layout.tensors().iter().find(|tensor| tensor.name == name)?;
            let range = layout.range(name)?;
            Some((range.start as u64, tensor.shape.clone()))
        };
        let missing = |name: &str| unusable("model", &format!("a tensor `{name}` in its layout"), "none");
        let matrix = |name: &str| match tensor(name) {
            Some((at, shape)) if shape.len() == 2 => Ok((at, shape[0] as u32, shape[1] as u32)),
            _ => Err(missing(name)),
        };
        let vector = |name: &str| tensor(name).map(|(at, _)| at);
        let (embedding, vocab, embed) = matrix("embedding")?;
        let (wx, _, gates) = matrix("wx")?;
        let (wh, fed_back, _) = matrix("wh")?;
        let (of_projection, hidden, projection) = matrix(names.0)?;
        let head = match (matrix("out"), vector("out_bias")) {
            (Ok((matrix, ..)), Some(bias)) => Head::Dense { matrix, bias },
            _ => Head::Tied { unit_norm },
        };
        Ok(Self {
            parameters: layout.len(),
            vocab,
            embed,
            hidden,
            projection,
            gates,
            fed_back,
            coupled,
            head,
            at: Places {
                embedding,
                wx,
                wh,
                bias: vector("bias").ok_or_else(|| missing("bias"))?,
                projection: of_projection,
                projection_bias: vector(names.1),
            },
        })
    }

    /// `true` if word vectors are used divided by their norms.
    pub(crate) fn unit_norm(&self) -> bool {
        self.head == Head::Tied { unit_norm: true }
    }
}
