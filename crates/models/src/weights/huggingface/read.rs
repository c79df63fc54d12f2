//! Reading one or several files of tensors.

use super::{Config, EMBEDDING, OUTPUT, PREFIX, Piece, full_name, pieces};
use crate::error::{ModelError, Result};
use crate::sequence::SequenceModel;
use crate::tensors::{append, check, malformed};
use crate::transformer::Transformer;
use safetensors::{SafeTensors, tensor::TensorView};
use std::collections::{HashMap, HashSet};

/// The smallest number of bytes that a parameter is stored in.
const SMALLEST: u64 = 2;

/// Parameters that are read file by file.
#[derive(Debug)]
pub struct Reader {
    pieces: HashMap<String, Piece>,
    /// Names that were read.
    read: HashSet<String>,
    params: Vec<f32>,
    embedding: Vec<usize>,
    /// Added to stored gains.
    shift: f32,
    /// The output matrix of a file whose model predicts with the embedding.
    tied: Option<Vec<f32>>,
}

impl Reader {
    /// A reader of the parameters of `model`, whose architecture is that of the configuration, from files of `bytes` together.
    ///
    /// # Errors
    /// A configuration of another model, naming its key; files that are too small for the model.
    pub fn new(config: &Config, model: &Transformer, bytes: u64) -> Result<Self> {
        config.check_sizes(model.sizes())?;
        let parameters = model.layout().len();
        if bytes / SMALLEST < parameters as u64 {
            return Err(ModelError::TooSmall { parameters, bytes });
        }
        let pieces = pieces(model).into_iter().map(|piece| (piece.name.clone(), piece));
        Ok(Self {
            pieces: pieces.collect(),
            read: HashSet::new(),
            params: vec![0.0; parameters],
            embedding: vec![model.sizes().vocab, model.sizes().width],
            shift: config.family().gain_shift(),
            tied: None,
        })
    }

    /// Reads the tensors of one file, converted from F16 and BF16 where it holds those.
    ///
    /// # Errors
    /// An unreadable file; a tensor that is unknown, that an earlier file held, of another shape or type, or not finite.
    pub fn shard(&mut self, bytes: &[u8]) -> Result<()> {
        let file = SafeTensors::deserialize(bytes).map_err(malformed)?;
        let mut tensors = file.tensors();
        // Files have no order of their own, and an error names the first.
        tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, tensor) in tensors {
            self.tensor(&name, &tensor)?;
        }
        Ok(())
    }

    fn tensor(&mut self, name: &str, tensor: &TensorView<'_>) -> Result<()> {
        let plain = name.strip_prefix(PREFIX).unwrap_or(name);
        // Older versions of the library stored the frequencies of rotary positions.
        if plain.ends_with(".rotary_emb.inv_freq") || plain == "rotary_emb.inv_freq" {
            return Ok(());
        }
        if !self.read.insert(plain.to_owned()) {
            let name = name.to_owned();
            return Err(ModelError::RepeatedTensor { name });
        }
        let mut values = Vec::new();
        if let Some(piece) = self.pieces.remove(plain) {
            check(name, tensor, &piece.shape)?;
            append(&mut values, name, tensor, true)?;
            let shift = if piece.gain { self.shift } else { 0.0 };
            piece.scatter(&values, shift, &mut self.params);
            return Ok(());
        }
        if name == OUTPUT && self.tied.is_none() {
            check(name, tensor, &self.embedding)?;
            append(&mut values, name, tensor, true)?;
            self.tied = Some(values);
            return Ok(());
        }
        Err(ModelError::UnknownTensor {
            name: name.to_owned(),
            got: tensor.shape().to_vec(),
        })
    }

    /// The parameters, after all files.
    ///
    /// # Errors
    /// A tensor that no file held; an output matrix of its own in the files of a model that predicts with the embedding.
    pub fn finish(self) -> Result<Vec<f32>> {
        if let Some(plain) = self.pieces.keys().min() {
            let (name, expected) = (full_name(plain), self.pieces[plain].shape.clone());
            return Err(ModelError::MissingTensor { name, expected });
        }
        match self.tied {
            // The embedding stands first.
            Some(output) if output != self.params[..output.len()] => Err(ModelError::UntiedOutput {
                name: OUTPUT.to_owned(),
                tied: full_name(EMBEDDING),
            }),
            _ => Ok(self.params),
        }
    }
}
