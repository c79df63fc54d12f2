//! Adapters in the layout of `peft`, added to a model when it is opened.

use std::path::Path;

use super::LanguageModel;
use crate::error::Result;
use undertone_run_directory::initial_model::AdapterFolder;

impl LanguageModel {
    /// This model with the adapters of a folder added, which holds `adapter_config.json` and `adapter_model.safetensors`. It must be the
    /// model that they were trained on: their tensors show its sizes, and nothing shows its values.
    ///
    /// # Errors
    /// [`RunError`](crate::error::RunError) for files that cannot be read, and for adapters of another kind, model or vocabulary; it names
    /// the key or the tensor.
    pub fn with_adapters(mut self, folder: &Path) -> Result<Self> {
        let adapters = AdapterFolder::read(folder)?;
        adapters.merge(self.model.as_ref(), &self.vocab, &mut self.parameters)?;
        Ok(self)
    }
}
