use thiserror::Error;

/// Errors of a model, a batch or a weights file.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A dimension of the model is too small.
    #[error("`{name}` must be at least {minimum}, got {got}")]
    Dimension {
        /// Name of the dimension as in the run file.
        name: &'static str,
        /// Smallest allowed value.
        minimum: usize,
        /// Value given.
        got: usize,
    },
    /// A dimension of the model is larger than any model's.
    #[error("`{name}` must be at most {maximum}, got {got}")]
    DimensionTooLarge {
        /// Name of the dimension as in the run file.
        name: &'static str,
        /// Largest allowed value.
        maximum: usize,
        /// Value given.
        got: usize,
    },
    /// The dimensions of the model make more parameters than can be trained.
    #[error("the sizes of the model make {got} parameters, expected at most {maximum}")]
    TooManyParameters {
        /// Largest allowed number.
        maximum: usize,
        /// The number that the sizes make.
        got: u128,
    },
    /// The machine has no memory for the parameters of a file.
    #[error("cannot allocate memory for {parameters} parameters of 4 bytes")]
    OutOfMemory {
        /// Their number.
        parameters: usize,
    },
    /// A tied model predicts with its embedding, so what it predicts from must be as wide.
    #[error("`projection` must equal `embedding` = {embedding} where `tied` is true, got {projection}")]
    TiedWidths {
        /// Width of the embedding.
        embedding: usize,
        /// Width of the projection.
        projection: usize,
    },
    /// Attention heads do not divide the width.
    #[error("`heads` must divide `width` = {width}, got {heads}")]
    HeadWidth {
        /// Width of the model.
        width: usize,
        /// Heads of a block.
        heads: usize,
    },
    /// Heads of keys and values do not divide the heads of queries.
    #[error("`key_heads` must divide `heads` = {heads}, got {key_heads}")]
    KeyHeads {
        /// Heads of queries.
        heads: usize,
        /// Heads of keys and values.
        key_heads: usize,
    },
    /// A norm's constant that is no small positive number.
    #[error("`norm_epsilon` must be above 0 and below 1, got {got}")]
    NormEpsilon {
        /// Value given.
        got: f64,
    },
    /// A number of the model that makes no computation.
    #[error("`{key}`: expected {expected}, got {got}")]
    Setting {
        /// Name of the value as in the run file.
        key: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// Value given.
        got: String,
    },
    /// Rotary positions turn pairs, so heads have an even width.
    #[error("`width` / `heads` must be even where `positions` is \"rotary\", got {width} / {heads}")]
    RotaryWidth {
        /// Width of the model.
        width: usize,
        /// Heads of a block.
        heads: usize,
    },
    /// Adapters on adapters.
    #[error("the model already has adapters of rank {rank}")]
    Adapted {
        /// Their rank.
        rank: usize,
    },
    /// Adapters that cannot be made.
    #[error("`lora.{key}`: expected {expected}, got {got}")]
    Lora {
        /// Name of the value as in the run file.
        key: &'static str,
        /// The accepted values.
        expected: String,
        /// Value given.
        got: String,
    },
    /// A model with adapters was asked for without the parameters that they are added to.
    #[error("`lora` needs the parameters of a trained model that the adapters are added to")]
    NoBase,
    /// A layout of recurrent models was asked for another model.
    #[error("expected a recurrent model (dplm, stackoverflow or cifg), got one of the family {family:?}")]
    NotRecurrent {
        /// The family of the model.
        family: &'static str,
    },
    /// A model that another program trains was to be computed here.
    #[error(
        "a model of family `external` is trained by another program, through a session: nothing else can compute with it"
    )]
    TrainedOutside,
    /// The file of an adapted model, whose adapters are added to other parameters than the model's.
    #[error("the weights file has adapters for different parameters than those of the model")]
    OtherBase,
    /// A sequence is longer than the model's context.
    #[error("sequence {sequence} of the batch has {got} tokens, above the max `context` = {context}")]
    SequenceTooLong {
        /// Sequence in the order of the packed batch.
        sequence: usize,
        /// Longest sequence of the model.
        context: usize,
        /// Length of the sequence.
        got: usize,
    },
    /// A decoder was given two extensions of one sequence.
    #[error("sequence {sequence} is extended twice in one call, expected once")]
    RepeatedSequence {
        /// The sequence.
        sequence: usize,
    },
    /// A model without a recurrent state was asked to carry it.
    #[error("a transformer carries no state between batches: expected the zero state")]
    NoCarriedState,
    /// The tensors and clip groups of the model do not form a layout.
    #[error("the parameter layout of the model: {0}")]
    Layout(#[from] undertone_aggregation::AggregationError),
    /// The batch has no row.
    #[error("the batch is empty: expected at least 1 row")]
    EmptyBatch,
    /// Input, target and active counts of a batch disagree.
    #[error(
        "the active counts of the batch sum to {rows} rows, but it has {inputs} inputs and {targets} targets"
    )]
    BatchShape {
        /// Sum of the active counts.
        rows: usize,
        /// Length of the inputs.
        inputs: usize,
        /// Length of the targets.
        targets: usize,
    },
    /// The number of active sequences grew, or is zero, at some step.
    #[error(
        "the number of active sequences must be positive and must not grow: step {step} has {got} after {previous}"
    )]
    ActiveOrder {
        /// Time step, from 0.
        step: usize,
        /// Active sequences of the step before.
        previous: usize,
        /// Active sequences of this step.
        got: usize,
    },
    /// The batch does not fit the workspace of the worker.
    #[error("the batch has {got} {what}, above the max of the worker, {limit}")]
    BatchTooLarge {
        /// `sequences` or `rows`.
        what: &'static str,
        /// The capacity of the workspace.
        limit: usize,
        /// The size of the batch.
        got: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {token} at row {row} is not below the vocabulary size {vocab_size}")]
    TokenOutOfRange {
        /// Row of the packed batch.
        row: usize,
        /// The id.
        token: u32,
        /// Vocabulary size of the model.
        vocab_size: usize,
    },
    /// A parameter or gradient slice does not have the length of the layout.
    #[error("the model has {expected} parameters, but the {what} slice has {got} values")]
    ParameterCount {
        /// `parameter` or `gradient`.
        what: &'static str,
        /// Length of the layout.
        expected: usize,
        /// Length of the slice.
        got: usize,
    },
    /// The learning rate is not a finite number.
    #[error("the learning rate must be finite, got {got}")]
    LearningRate {
        /// Value given.
        got: f64,
    },
    /// Weights or norms are fewer than the sequences they belong to.
    #[error("the batch has {expected} sequences, but the slice of {what} has {got} values")]
    SequenceCount {
        /// `weights` or `norms`.
        what: &'static str,
        /// Sequences of the batch.
        expected: usize,
        /// Length of the slice.
        got: usize,
    },
    /// A sequence's weight is not a finite number.
    #[error("the weight of sequence {sequence} must be finite, got {got}")]
    SequenceWeight {
        /// Sequence in the order of the packed batch.
        sequence: usize,
        /// Value given.
        got: f64,
    },
    /// The bound of per-example clipping is not positive.
    #[error("the clipping bound must be positive, got {got}")]
    ClipBound {
        /// Value given.
        got: f64,
    },
    /// The loss is NaN or infinite; parameters were not changed.
    #[error(
        "the loss over {targets} targets is {loss}, which is not finite; the parameters were not changed"
    )]
    NonFiniteLoss {
        /// The summed loss.
        loss: f64,
        /// Number of unmasked targets.
        targets: usize,
    },
    /// A weights file cannot be read as safetensors.
    #[error("not a readable safetensors file: {reason}")]
    MalformedWeights {
        /// The message of the reader.
        reason: String,
    },
    /// A tensor of the layout is missing from a weights file.
    #[error("the weights file lacks tensor `{name}` of shape {expected:?}")]
    MissingTensor {
        /// Name of the tensor.
        name: String,
        /// Shape in the layout.
        expected: Vec<usize>,
    },
    /// A weights file holds a tensor the layout does not know.
    #[error("the weights file holds the unknown tensor `{name}` of shape {got:?}")]
    UnknownTensor {
        /// Name of the tensor.
        name: String,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has another shape than the layout says.
    #[error("tensor `{name}`: expected shape {expected:?}, got {got:?}")]
    TensorShape {
        /// Name of the tensor.
        name: String,
        /// Shape in the layout.
        expected: Vec<usize>,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A tensor is stored in a type that is not read.
    #[error("tensor `{name}`: expected type {expected}, got {got}")]
    TensorType {
        /// Name of the tensor.
        name: String,
        /// Types that are read.
        expected: &'static str,
        /// Type in the file.
        got: String,
    },
    /// Tensors that tie the sizes of a model together do not agree.
    #[error("tensor `{name}` of shape {got:?}: expected {expected}")]
    TensorSizes {
        /// Name of the tensor.
        name: String,
        /// The expected shape.
        expected: String,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// An output matrix of its own in a file whose model predicts with the embedding.
    #[error("tensor `{name}` differs from `{tied}`, but the model uses `{tied}` for its predictions")]
    UntiedOutput {
        /// Name of the output matrix.
        name: String,
        /// Name of the embedding.
        tied: String,
    },
    /// A tensor that the sizes of a model are read from is missing.
    #[error("the weights file lacks tensor `{name}`: expected {expected}")]
    MissingSizes {
        /// Name of the tensor.
        name: String,
        /// The sizes that its shape gives.
        expected: String,
    },
    /// Weights in GPT-2's layout and a model with rotary positions.
    #[error("GPT-2's layout needs learned positions, but the model has rotary positions")]
    LearnedPositions,
    /// The `config.json` of weights in GPT-2's layout describes another model.
    #[error("`{key}` in the config.json beside the weights: expected {expected}, got {got}")]
    Gpt2Config {
        /// The key.
        key: &'static str,
        /// The model's value.
        expected: String,
        /// The file's value.
        got: String,
    },
    /// A setting of a `config.json` beside weights that is missing, of another type, or of no model that can be read.
    #[error("`{key}` in config.json: expected {expected}, got {got}")]
    Config {
        /// The key.
        key: String,
        /// The accepted values.
        expected: String,
        /// The file's value.
        got: String,
    },
    /// The run file's model differs from the one that the `config.json` beside the weights describes.
    #[error("`model.{key}`: expected {expected}, which the config.json beside the weights says, got {got}")]
    OtherSetting {
        /// The key in the run file.
        key: &'static str,
        /// The file's value.
        expected: String,
        /// The run's value.
        got: String,
    },
    /// The index of several files of weights does not fit them.
    #[error("model.safetensors.index.json: expected {expected}, got {got}")]
    ShardIndex {
        /// The accepted content.
        expected: String,
        /// The content of the index or of a file.
        got: String,
    },
    /// A tensor that comes twice in the files of weights, maybe under a shorter name.
    #[error("tensor `{name}` comes twice in the files of weights, expected once")]
    RepeatedTensor {
        /// Name of the tensor.
        name: String,
    },
    /// Files of weights too small for the model that their configuration describes.
    #[error(
        "the model has {parameters} parameters, but the files of weights have {bytes} bytes, less than 2 per parameter"
    )]
    TooSmall {
        /// Parameters of the model.
        parameters: usize,
        /// Bytes of all files.
        bytes: u64,
    },
    /// A setting of adapters of `peft` that is not supported.
    #[error("`{key}` in adapter_config.json: expected {expected}, got {got}")]
    Peft {
        /// The key.
        key: String,
        /// The accepted values.
        expected: String,
        /// The file's value.
        got: String,
    },
    /// Adapters for a model that has no matrices for them.
    #[error(
        "the adapters are for a transformer of the family of GPT-2 or Llama without adapters of its own, and the model is none; \
         `undertone export` merges adapters"
    )]
    NoBlocks,
    /// An architecture that llama.cpp does not compute.
    #[error("GGUF has no architecture for this model: {reason}")]
    NoGguf {
        /// The part that does not fit.
        reason: String,
    },
    /// An architecture that no layout of `transformers` has.
    #[error("none of the layouts of Llama, Mistral, Qwen2, Qwen3 and Gemma holds this model: {reason}")]
    NoLayout {
        /// The part that does not fit.
        reason: String,
    },
    /// A value that the type of its tensor in a file cannot hold.
    #[error("tensor `{name}`: value {value} at index {index} is out of the range of {to}, up to {largest}")]
    TensorRange {
        /// Name of the tensor in the file.
        name: String,
        /// Flat index in the tensor.
        index: usize,
        /// The value.
        value: f32,
        /// The type.
        to: &'static str,
        /// The largest magnitude of the type.
        largest: f32,
    },
    /// A tensor holds NaN or an infinity.
    #[error("tensor `{name}`: value {value} at index {index} is not finite")]
    NonFiniteTensor {
        /// Name of the tensor.
        name: String,
        /// Flat index in the tensor.
        index: usize,
        /// The value.
        value: f32,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, ModelError>;

/// Checks the length of a slice of parameters or gradients.
pub(crate) fn check_count(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if got == expected {
        Ok(())
    } else {
        Err(ModelError::ParameterCount { what, expected, got })
    }
}

/// Checks that a learning rate is finite.
pub(crate) fn check_learning_rate(got: f64) -> Result<()> {
    if got.is_finite() {
        Ok(())
    } else {
        Err(ModelError::LearningRate { got })
    }
}
