"""The settings of a run as types. This file is made from the types that read a run file."""

from __future__ import annotations

from typing import Literal, Required, TypedDict


class CorpusSpec(TypedDict, total=False):
    """The `[data]` table of a run file: the source of the text, the choice of users and the cut into examples."""

    source: Required["SourceSpec"]
    """Source of the text."""
    vocabulary: "VocabularySpec"
    """The origin of the vocabulary. Required, except for the synthetic population, which brings its own words."""
    split: "SplitSpec"
    """The division of rows into partitions. Default: the source's split column if it names one, else held-out users (10 % validation, 10 % test)."""
    examples: Literal["sentences", "windows"]
    """The unit of text that is one example."""
    words: Literal["english", "unicode"]
    """The rule of sentences and words. A run file that names none has the rule of English, and its text is cut as ever."""
    max_sentence_tokens: int
    """Words (or sub-word tokens) of a sentence that are kept; a longer sentence is cut and gets no EOS."""
    max_example_tokens: int
    """Targets of a window, EOS among them. Default 128; only where examples are windows."""
    min_examples: int
    """Training users with fewer examples are left out."""
    min_tokens: int
    """Training users with fewer tokens (words and EOS) are left out."""
    max_tokens: int
    """Cap on the tokens (words and EOS) of a training user: whole examples are kept while they fit."""
    max_examples: int
    """Cap on the examples of a training user."""
    keep: "Keep"
    """Choice of the examples that the caps keep."""


class SourceSpecSynthetic(TypedDict, total=False):
    """A population drawn from a documented process; nothing is read."""

    kind: Required[Literal["synthetic"]]
    users: int
    """Number of users."""
    words: int
    """Number of words."""
    topics: int
    """Number of topics."""
    habits: int
    """Number of habits; every user has one: a set of favourite two-word phrases."""
    zipf_exponent: float
    """Zipf exponent of word frequencies."""
    habit_strength: float
    """Probability of saying the favourite word where the user's habit has one."""
    successor_strength: float
    """Probability that a word is one of the four usual successors of the word before it."""
    topic_strength: float
    """Probability that a word which follows neither habit nor successors is about the sentence's topic."""
    median_sentences: float
    """Median number of sentences per user."""
    sentence_spread: float
    """Standard deviation of the logarithm of the number of sentences."""
    max_sentences: int
    """Maximum number of sentences per user."""
    longest_sentence: int
    """Maximum number of words per sentence."""
    seed: int
    """Seed of the process and of the population."""


class SourceSpecParquet(TypedDict, total=False):
    """Parquet: a file, or all files of a folder."""

    kind: Required[Literal["parquet"]]
    path: Required[str]
    """The file, or a folder: its files of this kind in the order of their paths, those of folders in it among them. Names that start with `.` or `_` are passed over."""
    user: str
    """Column with the user's name or number. In JSON, names that begin with `/` are places below the top, such as `/message/from`."""
    text: str
    """Column with the text."""
    time: str
    """Column with the time (unix seconds, a timestamp type, or an ISO date), if there is one. Rows may lack a time unless a split or a cap needs it."""
    split: str
    """Column with `train`, `validation` or `test`, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns", "calendar"]
    """Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused."""
    records: str
    """Place of the array that holds the rows of a JSON document, such as `/messages`; only for JSON."""


class SourceSpecArrow(TypedDict, total=False):
    """Arrow's files and streams: a file, or all files of a folder, such as one that `datasets.save_to_disk` wrote."""

    kind: Required[Literal["arrow"]]
    path: Required[str]
    """The file, or a folder: its files of this kind in the order of their paths, those of folders in it among them. Names that start with `.` or `_` are passed over."""
    user: str
    """Column with the user's name or number. In JSON, names that begin with `/` are places below the top, such as `/message/from`."""
    text: str
    """Column with the text."""
    time: str
    """Column with the time (unix seconds, a timestamp type, or an ISO date), if there is one. Rows may lack a time unless a split or a cap needs it."""
    split: str
    """Column with `train`, `validation` or `test`, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns", "calendar"]
    """Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused."""
    records: str
    """Place of the array that holds the rows of a JSON document, such as `/messages`; only for JSON."""


class SourceSpecJsonl(TypedDict, total=False):
    """JSON objects, one per line: a file, or all files of a folder."""

    kind: Required[Literal["jsonl"]]
    path: Required[str]
    """The file, or a folder: its files of this kind in the order of their paths, those of folders in it among them. Names that start with `.` or `_` are passed over."""
    user: str
    """Column with the user's name or number. In JSON, names that begin with `/` are places below the top, such as `/message/from`."""
    text: str
    """Column with the text."""
    time: str
    """Column with the time (unix seconds, a timestamp type, or an ISO date), if there is one. Rows may lack a time unless a split or a cap needs it."""
    split: str
    """Column with `train`, `validation` or `test`, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns", "calendar"]
    """Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused."""
    records: str
    """Place of the array that holds the rows of a JSON document, such as `/messages`; only for JSON."""


class SourceSpecCsv(TypedDict, total=False):
    """Separated values with a header line: a file, or all files of a folder."""

    kind: Required[Literal["csv"]]
    path: Required[str]
    """The file or folder, as in `TableSource`."""
    user: str
    """Column with the user's name or number."""
    text: str
    """Column with the text."""
    time: str
    """Column with the time (unix seconds or an ISO date), if there is one."""
    split: str
    """Column with `train`, `validation` or `test`, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns", "calendar"]
    """Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused."""
    delimiter: str
    """One ASCII character between fields. `,` stands for a tab in files whose names end in `.tsv`, and in dumps."""
    dialect: Literal["quoted", "dump", "plain"]
    """The meaning of quotes and backslashes."""
    header: list[str]
    """The names of the columns, for files without a header line."""


class SourceSpecGrouped(TypedDict, total=False):
    """A folder of text grouped by user, as `undertone data group` writes it; its columns are known."""

    kind: Required[Literal["grouped"]]
    path: Required[str]
    """The folder."""
    time: bool
    """`true` if rows have a time. A folder grouped by time keeps that order either way."""
    split: bool
    """`true` to use the folder's split column."""


class SourceSpecMemory(TypedDict, total=False):
    """A table in memory, which the Python package hands over."""

    kind: Required[Literal["memory"]]
    rows: int
    """Number of rows; 0 where it is not known."""
    sha256: str
    """SHA-256 (64 hexadecimal digits) of the rows, as `undertone_data::MemoryTable` computes it; empty where it is not known."""
    user: str
    """Column with the user's name or number."""
    text: str
    """Column with the text."""
    time: str
    """Column with the time (unix seconds or a timestamp type), if there is one."""
    split: str
    """Column with `train`, `validation` or `test`, if there is one."""
    time_unit: Literal["s", "ms", "us", "ns", "calendar"]
    """Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused."""


SourceSpec = (
    SourceSpecSynthetic
    | SourceSpecParquet
    | SourceSpecArrow
    | SourceSpecJsonl
    | SourceSpecCsv
    | SourceSpecGrouped
    | SourceSpecMemory
)


class VocabularySpecFile(TypedDict, total=False):
    """One word per line, most frequent first. The run file declares that the words were chosen without the training users. A record beside the file is believed rather than that: words that are not private count as words of the training data."""

    kind: Required[Literal["file"]]
    path: Required[str]
    """The file."""


class VocabularySpecTokenizer(TypedDict, total=False):
    """A Hugging Face `tokenizer.json`, such as `undertone data tokenizer` writes. The run file declares that it was made without the training users, as for words."""

    kind: Required[Literal["tokenizer"]]
    path: Required[str]
    """The file."""
    bos: str
    """The token that stands for the start of an example; by default looked for under the usual names."""
    eos: str
    """The token that stands for the end of a text; it may be the same."""


class VocabularySpecPrivate(TypedDict, total=False):
    """Words chosen from people's text with differential privacy, and their record, `PATH.privacy.json`, whose cost a run composes."""

    kind: Required[Literal["private"]]
    path: Required[str]
    """The file of the words."""


class VocabularySpecPublicCorpus(TypedDict, total=False):
    """The most frequent words of a public text: `.parquet`, `.jsonl`, `.csv`, or plain text."""

    kind: Required[Literal["public_corpus"]]
    path: Required[str]
    """The file."""
    text: str
    """Column with the text (not for plain text)."""
    size: Required[int]
    """Number of words."""


class VocabularySpecTrainingData(TypedDict, total=False):
    """The most frequent words of the training partition (before caps): the vocabulary is then **not** private."""

    kind: Required[Literal["training_data"]]
    size: Required[int]
    """Number of words."""


VocabularySpec = (
    VocabularySpecFile
    | VocabularySpecTokenizer
    | VocabularySpecPrivate
    | VocabularySpecPublicCorpus
    | VocabularySpecTrainingData
)


class SplitSpecColumn(TypedDict, total=False):
    """A split by the source's split column."""

    kind: Required[Literal["column"]]


class SplitSpecHeldOutUsers(TypedDict, total=False):
    """A split by user: a user is in one partition only."""

    kind: Required[Literal["held_out_users"]]
    validation: float
    """Fraction of users for validation."""
    test: float
    """Fraction of users for test."""
    seed: int
    """Seed of the choice."""


class SplitSpecTime(TypedDict, total=False):
    """A split by time: later rows are test, and a fraction of users (with all their rows) is validation."""

    kind: Required[Literal["time"]]
    test_after: Required[int | str]
    """Rows after this point are test."""
    validation_users: float
    """Fraction of users for validation."""
    seed: int
    """Seed of the choice of validation users."""


SplitSpec = (
    SplitSpecColumn
    | SplitSpecHeldOutUsers
    | SplitSpecTime
)


class KeepEarliest(TypedDict, total=False):
    """The earliest: by the time column where the source has one, else in order of appearance."""

    kind: Required[Literal["earliest"]]


class KeepRandom(TypedDict, total=False):
    """A uniform choice that depends on the seed and the user; the kept examples stay in order."""

    kind: Required[Literal["random"]]
    seed: int
    """Seed of the choice."""


Keep = (
    KeepEarliest
    | KeepRandom
)


class ModelSpecDplm(TypedDict, total=False):
    """The LSTM of [DPLM], whose embedding is also its output matrix. Run files may call it `tied_lstm` as well."""

    family: Required[Literal["dplm"]]
    embed: int
    """Width of embeddings."""
    hidden: int
    """Width of the LSTM state."""
    unit_norm: bool
    """`true` to divide embedding rows by their L2 norm."""


class ModelSpecStackoverflow(TypedDict, total=False):
    """The next-word LSTM of the StackOverflow experiments. Run files may call it `lstm` as well."""

    family: Required[Literal["stackoverflow"]]
    embed: int
    """Width of embeddings."""
    hidden: int
    """Width of the LSTM state."""


class ModelSpecCifg(TypedDict, total=False):
    """The CIFG-LSTM with a recurrent projection of [Gboard]."""

    family: Required[Literal["cifg"]]
    cells: int
    """Cells of the layer."""
    embedding: int
    """Width of embeddings."""
    projection: int
    """Width of the recurrent projection."""
    tied: bool
    """`true` if the embedding is also the output matrix. The published parameter counts are those of a separate output matrix."""


class ModelSpecTransformer(TypedDict, total=False):
    """The decoder-only `Transformer`: 10 M parameters are 10 layers of width 256 over 8,000 tokens, GPT-2's 124 M are 12 of width 768, its 355 M 24 of width 1024, over 50,257 tokens and a context of 1024."""

    family: Required[Literal["transformer"]]
    layers: Required[int]
    """Number of blocks."""
    width: Required[int]
    """Width of embeddings and of the residual stream."""
    heads: Required[int]
    """Number of attention heads per block; it divides the width."""
    context: int
    """Maximum length of a sequence in tokens."""
    positions: Literal["learned", "rotary"]
    """The encoding of positions."""
    feed_forward: int
    """Width of the feed-forward layer in widths of the model."""
    recompute: bool
    """`true` to compute activations again in the backward pass: less memory, more work, the same bits."""
    lora: "LoraSpec"
    """Low-rank adapters as the only parameters that are trained, on a model that was trained before."""


class ModelSpecLlama(TypedDict, total=False):
    """The decoder-only `Transformer` of Llama and its relatives Mistral, Qwen and Gemma."""

    family: Required[Literal["llama"]]
    layers: Required[int]
    """Number of blocks."""
    width: Required[int]
    """Width of embeddings and of the residual stream."""
    heads: Required[int]
    """Number of attention heads per block."""
    key_heads: int
    """Number of heads of keys and values; it divides `heads`, which it is by default."""
    head_width: int
    """Width of a head; by default `width / heads`."""
    inner: Required[int]
    """Width of the feed-forward layer."""
    context: int
    """Maximum length of a sequence in tokens."""
    rotary_base: float
    """The base of the angles of rotary positions."""
    rotary_scaling: "RotaryScaling"
    """The change of these angles for contexts longer than those of the first training."""
    local_rotary: "LocalRotary"
    """Blocks whose angles have another base, as in Gemma 3."""
    norm_epsilon: float
    """The constant that norms add to the mean square."""
    gate: Literal["silu", "gelu"]
    """The activation of the feed-forward layer's gate."""
    biases: list[Literal["qkv", "o", "up", "down"]]
    """The matrices whose outputs have a bias: `['qkv']` in Qwen2."""
    head_norms: bool
    """`true` to normalise queries and keys head by head, as in Qwen3."""
    output_norms: bool
    """`true` to normalise what attention and the feed-forward layer give before it is added, as in Gemma 2 and Gemma 3."""
    query_scalar: int
    """Attention scores are divided by the root of this number; by default by that of the width of a head."""
    soft_caps: "SoftCaps"
    """Bounds of attention scores and of logits, as in Gemma 2."""
    scaled_embedding: bool
    """`true` to multiply embeddings by the root of the width, as in Gemma."""
    tied: bool
    """`true` if the embedding is also the output matrix."""
    rows: int
    """Rows of the embedding, where it has more of them than there are tokens; by default as many."""
    recompute: bool
    """`true` to compute activations again in the backward pass: less memory, more work, the same bits."""
    lora: "LoraSpec"
    """Low-rank adapters as the only parameters that are trained, on a model that was trained before."""


class ModelSpecExternal(TypedDict, total=False):
    """A model that another program trains, through a session. Only the shapes of its parameters are known here."""

    family: Required[Literal["external"]]
    tensors: Required[list["ExternalTensor"]]
    """The tensors, in the order of the flat vector."""


class ModelSpecTiedLstm(TypedDict, total=False):
    """Another name of `dplm`."""

    family: Required[Literal["tied_lstm"]]
    embed: int
    """Width of embeddings."""
    hidden: int
    """Width of the LSTM state."""
    unit_norm: bool
    """`true` to divide embedding rows by their L2 norm."""


class ModelSpecLstm(TypedDict, total=False):
    """Another name of `stackoverflow`."""

    family: Required[Literal["lstm"]]
    embed: int
    """Width of embeddings."""
    hidden: int
    """Width of the LSTM state."""


ModelSpec = (
    ModelSpecDplm
    | ModelSpecStackoverflow
    | ModelSpecCifg
    | ModelSpecTransformer
    | ModelSpecLlama
    | ModelSpecExternal
    | ModelSpecTiedLstm
    | ModelSpecLstm
)


class LoraSpec(TypedDict, total=False):
    """Low-rank adapters: each targeted matrix `W` of every block becomes `W + (alpha / rank) A B`, and `A` and `B` are the only parameters that are trained."""

    rank: Required[int]
    """Columns of `A` and rows of `B`: from 1 to the smaller side of every targeted matrix."""
    alpha: Required[float]
    """The scale of the product is `alpha / rank`."""
    targets: list[Literal["qkv", "o", "up", "down"]]
    """The matrices that get adapters, all four by default."""


class RotaryScalingLinear(TypedDict, total=False):
    """Positions divided by a factor (Chen et al., 'Extending context window of large language models via positional interpolation', 2023)."""

    kind: Required[Literal["linear"]]
    factor: Required[float]
    """The factor, at least 1."""


class RotaryScalingLlama3(TypedDict, total=False):
    """Frequencies of long waves divided by a factor, those of short waves kept, and those between interpolated, as in Llama 3.1."""

    kind: Required[Literal["llama3"]]
    factor: Required[float]
    """The factor, at least 1."""
    low_frequency: Required[float]
    """Waves longer than `original_context / low_frequency` are divided."""
    high_frequency: Required[float]
    """Waves shorter than `original_context / high_frequency` are kept; above `low_frequency`."""
    original_context: Required[int]
    """Context of the first training in tokens."""


class RotaryScalingYarn(TypedDict, total=False):
    """Pairs that turn seldom within the original context are divided by a factor, with a linear ramp, and queries and keys grow (Peng et al., 'YaRN', 2023)."""

    kind: Required[Literal["yarn"]]
    factor: Required[float]
    """The factor, at least 1."""
    beta_fast: float
    """Turns within the original context above which a pair is kept."""
    beta_slow: float
    """Turns within the original context below which a pair is divided."""
    original_context: Required[int]
    """Context of the first training in tokens."""
    attention_factor: Required[float]
    """The factor of queries and of keys, such as `0.1 ln(factor) + 1`."""
    truncate: bool
    """`true` to round the ends of the ramp to whole pairs."""


RotaryScaling = (
    RotaryScalingLinear
    | RotaryScalingLlama3
    | RotaryScalingYarn
)


class LocalRotary(TypedDict, total=False):
    """The blocks whose rotary positions have a base of their own and no scaling: all but every `every`-th. Gemma 3 trains these blocks to attend to a window of neighbours. A context within that window has no other use of it."""

    base: Required[float]
    """The base of their angles."""
    every: Required[int]
    """The blocks `every`, `2 every` and so on, counted from 1, have the base and the scaling of the model."""


class SoftCaps(TypedDict, total=False):
    """Soft caps: each value `x` becomes `cap tanh(x / cap)`, as in Gemma 2."""

    scores: float
    """The cap of attention scores, after their division by the root of the head's width; `None` for no cap."""
    logits: float
    """The cap of logits; `None` for no cap. Both caps are from 1e-6 to 1e6."""


class ExternalTensor(TypedDict, total=False):
    """A tensor of a model that another program trains."""

    name: Required[str]
    """Name of the tensor."""
    shape: Required[list[int]]
    """Number of values along each axis; a scalar has no axis."""


class CohortConfig(TypedDict, total=False):
    """`[cohort]`: the sampling of a round. One of the four sizes is given."""

    sampling: Literal["poisson", "fixed_size", "shuffled_epochs", "device_timers", "check_in"]
    """The sampling scheme of the users of a round, or of its examples with ELS; `poisson` by default."""
    users_per_round: float
    """Expected (Poisson), exact (fixed-size) or min (epochs; devices: the report goal) number of users per round; `q = users_per_round / users`."""
    sampling_probability: float
    """Poisson probability `q` of a user, or `p` of an example with ELS, instead of `users_per_round`."""
    examples_per_round: float
    """ELS: expected examples per round, `B`; `p = examples_per_round / kept examples`."""
    compute_budget: int
    """ULS and ELS: gradients per round, `B`. ELS samples `B` examples, ULS `compute_budget / group_size` users."""
    population: int
    """Only with `check_in`: a declared upper bound on the subjects of the population. Reports name it; no cost depends on it."""
    timers: "TimersConfig"
    """`[cohort.timers]`: the simulated devices of `device_timers`; each user of the corpus has one."""


class TimersConfig(TypedDict, total=False):
    """`[timers]`: the habits of devices, the report goal of the server, and the length of timers. See the [module](crate::participation::timers) for the process."""

    report_goal: int
    """Number of reports that complete a round."""
    over_selection: float
    """Selected devices over the report goal, at least 1."""
    timer_hours: float
    """Hours after a participation in which a device does not take part again (24 to 144 in [Gboard] Table 1)."""
    min_round_minutes: float
    """Min minutes of a round."""
    round_timeout_minutes: float
    """Minutes after which a round below its goal is abandoned; at most the timer, so that no device is in a round twice."""
    report_minutes: float
    """Median minutes from a device's selection to its report."""
    report_spread: float
    """Standard deviation of the logarithm of that time, from round to round."""
    device_spread: float
    """Standard deviation of the logarithm of a device's speed."""
    drop_out: float
    """Probability that a selected device drops out, in `[0, 1)`."""
    charging: "ChargingConfig"
    """Charging habits at night."""
    daytime: "DaytimeConfig"
    """Windows by day; there are none without this table."""
    zones: list["ZoneConfig"]
    """Time zones and their fractions of the population."""
    devices: list["DeviceClassConfig"]
    """Classes of availability and their fractions of the population."""


class ChargingConfig(TypedDict, total=False):
    """`timers.charging`: when devices are idle, charging and on an unmetered network at night."""

    start_hour: float
    """Mean local hour at which a window opens, from 12 to 36 (36 is noon of the next day)."""
    start_spread_hours: float
    """Standard deviation of that hour between devices."""
    length_hours: float
    """Mean length of a window in hours."""
    length_spread_hours: float
    """Standard deviation of the length between devices."""
    nightly_spread_hours: float
    """Standard deviation of both ends of a device's window between its nights."""


class DaytimeConfig(TypedDict, total=False):
    """`timers.daytime`: one window per day besides the night."""

    probability: float
    """Probability of a window per day."""
    from_hour: float
    """Earliest local hour at which the window opens."""
    until_hour: float
    """Latest local hour at which the window opens."""
    length_hours: float
    """Length of the window in hours."""


class ZoneConfig(TypedDict, total=False):
    """One of `timers.zones`."""

    utc_offset_hours: Required[float]
    """Local time minus UTC, from -12 to 14."""
    share: Required[float]
    """Fraction of the population, in relation to the other zones'."""


class DeviceClassConfig(TypedDict, total=False):
    """One of `timers.devices`."""

    share: Required[float]
    """Fraction of the population, in relation to the other classes'."""
    night_probability: Required[float]
    """Probability of a window per night, in `(0, 1]`."""


class UserSettings(TypedDict, total=False):
    """The settings of a user's work."""

    algorithm: Literal["fedavg", "fedsgd", "uls", "els"]
    """FedAvg (several local steps), FedSGD (one gradient), ULS or ELS (gradients of single examples)."""
    batching: Literal["sentences", "stream"]
    """The batching of a user's text; ULS and ELS know sentences only."""
    batch_size: int
    """Number of sentences (or parallel streams) per local batch, `B`. ULS and ELS: number of examples whose gradients are computed at once, by default 16."""
    group_size: int
    """Max number of examples per user: drawn at random in each round (ULS), or kept for the run, chosen once (ELS). A user with fewer gives all it has."""
    unroll: int
    """Number of tokens that a stream advances per local step; only for `batching = 'stream'`."""
    epochs: int
    """Local epochs `E`; FedAvg only."""
    learning_rate: float
    """Local learning rate; FedAvg and FedSGD. ULS and ELS have the server's alone."""
    max_steps: int
    """Max number of local steps, whatever the epochs and the user's data; FedAvg only."""
    clip_every_step: bool
    """`true` to project the update onto the clip ball after each local step ([DPLM]), `false` to clip it once at the end ([Gboard]). FedAvg only."""
    max_examples: int
    """Max number of the user's examples per round, chosen at random in each round; FedAvg and FedSGD."""
    weight_cap: float
    """`w_hat`: users are weighted by `min(examples / w_hat, 1)`; without it each user has weight 1. FedAvg and FedSGD."""


class ClipConfigNone(TypedDict, total=False):
    """No bound: the run cannot be private."""

    kind: Required[Literal["none"]]


class ClipConfigFlat(TypedDict, total=False):
    """The whole update is clipped to norm `S`."""

    kind: Required[Literal["flat"]]
    norm: Required[float]
    """The norm `S`."""
    normalised: bool
    """`true` to give the server's optimizer the average over `S`, so that learning rate and clip norm decouple ([UserDP] section 5, after De et al. 2022)."""


class ClipConfigPerLayer(TypedDict, total=False):
    """Each parameter vector of the model is clipped to its own norm: `norm / sqrt(m)`, or the given `norms`."""

    kind: Required[Literal["per_layer"]]
    norm: float
    """Total norm `S`, spread evenly."""
    norms: list[float]
    """One norm `S_j` for each parameter vector, in the model's order."""


class ClipConfigAdaptive(TypedDict, total=False):
    """[Gboard] Algorithm 1: the norm follows a quantile of the users' update norms, estimated with noise of its own, and changes where the tree restarts. Needs `privacy.mechanism` with `kind = 'tree'` and `restarts`."""

    kind: Required[Literal["adaptive"]]
    initial_norm: Required[float]
    """`C^0`: the norm up to the first restart."""
    quantile: float
    """`gamma`: the fraction of users whose update is to be shorter than the norm."""
    learning_rate: float
    """`eta_gamma`: the speed of the estimate, in logarithms per round."""
    bit_noise_std: float
    """`sigma_b`: noise on the number of users below the norm; by default a twentieth of the users per round."""


ClipConfig = (
    ClipConfigNone
    | ClipConfigFlat
    | ClipConfigPerLayer
    | ClipConfigAdaptive
)


class EstimatorConfigFixedDenominator(TypedDict, total=False):
    """`f_f`: the sum is divided by the expected weight of a round, `q W`."""

    kind: Required[Literal["fixed_denominator"]]
    expected_weight: float
    """`q W`, given instead of computed from the number of users. A private run with weights needs it, because the weights follow from the users' text."""


class EstimatorConfigClippedDenominator(TypedDict, total=False):
    """`f_c`: the sum is divided by `max(q W_min, observed weight)`."""

    kind: Required[Literal["clipped_denominator"]]
    min_weight: Required[float]
    """`W_min`, a lower bound on the population's total weight."""


class EstimatorConfigExact(TypedDict, total=False):
    """`f`: the sum is divided by the observed weight. Its sensitivity has no useful bound, so only runs without noise may use it."""

    kind: Required[Literal["exact"]]


EstimatorConfig = (
    EstimatorConfigFixedDenominator
    | EstimatorConfigClippedDenominator
    | EstimatorConfigExact
)


class ParticipationConfig(TypedDict, total=False):
    """`[participation]`: the participation schema of each user."""

    min_sep: Required[int]
    """`b`: min distance in rounds of two participations of one user (MinS + 1)."""
    max_part: int
    """`k`: max number of participations of one user; by default as many as fit into the run."""
    on_violation: Literal["refuse", "account"]
    """The treatment of a round that breaks the schema."""


class PrivacyConfig(TypedDict, total=False):
    """`[privacy]`: noise and budget."""

    noise_multiplier: float
    """`z`: noise standard deviation over the estimator's sensitivity."""
    target_epsilon: float
    """Target epsilon of the whole training, instead of a noise multiplier: the smallest multiplier that meets it is used. The cost of a private vocabulary comes on top."""
    delta: float
    """The delta of every guarantee of the run; by default `users^-1.1`."""
    max_epsilon: float
    """Budget: no round starts that would bring epsilon above it, the private choice of the vocabulary included."""
    accountant: Literal["rdp", "pld", "moments2016"]
    """The accountant of sampled cohorts, by default the tightest that is valid for them. Correlated noise is one Gaussian, whose epsilon is exact."""
    mechanism: "MechanismConfig"
    """Noise that is correlated over the rounds; without this table it is independent and the guarantee rests on the sampling of the cohorts."""


class MechanismConfig(TypedDict, total=False):
    """`[privacy.mechanism]`: the strategy of the noise of the run. With this table the guarantee rests on the participation schema (`ParticipationConfig`), not on the sampling of users. A key that is added later is left out while it is absent, because identifiers of tasks are digests of this text."""

    kind: Literal["independent", "tree", "tree-full", "blt", "normalised-blt", "fhu", "banded-toeplitz", "normalised-banded-toeplitz", "banded", "bisr", "inverse-toeplitz", "lambda", "normalised-lambda", "square-root", "normalised-square-root", "dense"]
    """Kind of strategy, optimised for the run where there is something to optimise."""
    file: str
    """File of a strategy that `undertone mechanism optimize --out` wrote, instead of a kind."""
    buffers: int
    """Number of buffers of a BLT; by default as many as lower the loss by a thousandth each."""
    bands: int
    """Number of bands of a banded matrix; by default the separation `min_sep`."""
    restarts: "RestartsConfig"
    """The rounds in which new trees begin; only for `kind = 'tree'`."""
    objective: Literal["max_loss", "rms_loss"]
    """The objective of an optimised matrix: the max or the root mean square of the error of the iterates."""
    workload: Literal["prefix_sum", "server"]
    """The outputs whose errors count."""


class RestartsConfig(TypedDict, total=False):
    """`[privacy.mechanism.restarts]`: a new tree after the first `first` rounds and after every further `every`."""

    first: Required[int]
    """Number of rounds of the first tree; [Gboard] takes 128."""
    every: Required[int]
    """Number of rounds of each later tree; [Gboard] takes 1024."""


class AggregationConfig(TypedDict, total=False):
    """`[aggregation]`: the sum of the updates of a round. Without this table the server sees each update. With an encoding, updates are integers that are only ever added modulo a number, so that a secure sum can hide each of them."""

    sum: Literal["plain", "secagg"]
    """The parties that see the users' integers."""
    encoding: "EncodingConfig"
    """The encoding of an update as integers."""
    min_clients: Required[int]
    """Min number of users in a sum: a round with fewer is abandoned. Noise that clients add is sized for this number."""
    max_clients: int
    """Max number of users in one sum, which the modulus has room for. By default the max size of a cohort."""
    graph: "GraphConfig"
    """`[aggregation.graph]`: the pairs of users that agree on masks, with `sum = 'secagg'`; all pairs without this table."""
    dropout: "DropoutConfig"
    """`[aggregation.dropout]`: the fractions of users that fail, for study."""


class EncodingConfigIdentity(TypedDict, total=False):
    """Fixed point, truncated toward zero: the same sum as without this table."""

    kind: Required[Literal["identity"]]


class EncodingConfigRotatedRounding(TypedDict, total=False):
    """[Gboard] Algorithm 2: rotated, rounded at random to a grid; noise is added by the server."""

    kind: Required[Literal["rotated_rounding"]]
    scale: Required[float]
    """`s`: grid steps in one unit of the update."""


class EncodingConfigBinomial(TypedDict, total=False):
    """[cpSGD]: `levels` levels, and binomial noise that each user adds."""

    kind: Required[Literal["binomial"]]
    levels: Required[int]
    """`k`: number of levels of a coordinate."""
    trials: Required[int]
    """`m`: number of trials (coin flips) of the noise of one user."""
    rotate: bool
    """`true` if updates are rotated first."""


class EncodingConfigDiscreteGaussian(TypedDict, total=False):
    """Rotated and rounded, with discrete Gaussian noise that each user adds."""

    kind: Required[Literal["discrete_gaussian"]]
    scale: Required[float]
    """Grid steps in one unit of the update."""


class EncodingConfigSkellam(TypedDict, total=False):
    """Rotated and rounded, with Skellam noise that each user adds."""

    kind: Required[Literal["skellam"]]
    scale: Required[float]
    """Grid steps in one unit of the update."""


EncodingConfig = (
    EncodingConfigIdentity
    | EncodingConfigRotatedRounding
    | EncodingConfigBinomial
    | EncodingConfigDiscreteGaussian
    | EncodingConfigSkellam
)


class GraphConfig(TypedDict, total=False):
    """`[aggregation.graph]`: the assumed rates of drop-outs and of corruption. Each session gets the sparsest graph and the smallest threshold that hold under them (`Assumptions`)."""

    drop_out_rate: Required[float]
    """Max fraction of a session's users that drop out."""
    corrupt_rate: Required[float]
    """Max fraction of a session's users that work with the server."""
    privacy_bits: int
    """The probability that the sum of fewer than all survivors is revealed is at most `2^-privacy_bits`."""
    failure_bits: int
    """The probability that a session fails although the rates hold is at most `2^-failure_bits`."""


class DropoutConfig(TypedDict, total=False):
    """`[aggregation.dropout]`: the fraction of a round's users that fails at each point."""

    before_keys: float
    """Fraction that fails before anything was sent: the user is not in the session."""
    before_shares: float
    """Fraction that fails after the keys, before the shares of secrets."""
    before_upload: float
    """Fraction that fails after the shares, before the masked update."""
    before_unmask: float
    """Fraction that fails after the masked update: the user is in the sum, and others help to unmask it."""


class ServerConfig(TypedDict, total=False):
    """`[server]`: the optimizer that moves the parameters by the released average."""

    optimizer: "OptimizerConfig"
    """The optimizer; it sees only the released average."""
    learning_rate: float
    """Server learning rate; 1 applies the average as it is ([DPLM])."""
    decay: "DecayConfig"
    """Linear decay of the server learning rate over the last part of the run."""


class OptimizerConfigSgd(TypedDict, total=False):
    """`theta += lr * v`, `v = momentum * v + average`."""

    kind: Required[Literal["sgd"]]
    momentum: float
    """Momentum in `[0, 1)`."""


class OptimizerConfigAdam(TypedDict, total=False):
    """Adam on the released average, with bias correction."""

    kind: Required[Literal["adam"]]
    beta1: float
    """Decay of the first moment."""
    beta2: float
    """Decay of the second moment."""
    epsilon: float
    """Constant that is added to the root of the second moment."""


class OptimizerConfigAdamw(TypedDict, total=False):
    """Adam with decoupled weight decay: parameters also shrink by `learning_rate * weight_decay` (Loshchilov, Hutter 2019)."""

    kind: Required[Literal["adamw"]]
    beta1: float
    """Decay of the first moment."""
    beta2: float
    """Decay of the second moment."""
    epsilon: float
    """Constant that is added to the root of the second moment."""
    weight_decay: float
    """Decoupled weight decay."""


class OptimizerConfigAdafactor(TypedDict, total=False):
    """Adafactor with the server's learning rate: no relative step, no first moment (Shazeer, Stern 2018)."""

    kind: Required[Literal["adafactor"]]
    decay_exponent: float
    """Second moments of step `t` keep `1 - t^-decay_exponent`."""
    epsilon: float
    """Constant that is added to squares."""
    clipping_threshold: float
    """Max root mean square of a tensor's step, in learning rates."""


OptimizerConfig = (
    OptimizerConfigSgd
    | OptimizerConfigAdam
    | OptimizerConfigAdamw
    | OptimizerConfigAdafactor
)


class DecayConfig(TypedDict, total=False):
    """`server.decay`: constant, then linear."""

    last_fraction: Required[float]
    """The last part of the rounds, in `(0, 1]`, over which the rate falls."""
    final_factor: Required[float]
    """The factor reached at the last round."""


class SchedulePoint(TypedDict, total=False):
    """One entry of `[[schedule]]`."""

    from_round: Required[int]
    """First round that the entry holds for."""
    clip_norm: float
    """New total clip norm `S`; the noise follows, so the privacy cost of a round stays."""
    noise_multiplier: float
    """New noise multiplier; the accountant composes the rounds as they are."""


class EstimateConfig(TypedDict, total=False):
    """`[estimate]`: the larger run that this one stands for."""

    population: Required[int]
    """Number of users in the larger population, `K`."""
    users_per_round: Required[float]
    """Expected users per round of the larger run, `C`; the noise is `z * S / C`."""
    rounds: int
    """Rounds to account for; by default those of this run."""
    delta: float
    """Delta of the estimate; by default the run's."""


class EvaluationConfig(TypedDict, total=False):
    """`[evaluation]`."""

    every: int
    """Rounds between evaluations; the model is also evaluated at the end. 0: only at the end."""
    split: Literal["validation", "test"]
    """The partition."""
    max_tokens: int
    """Max number of tokens, approximately, for evaluations during the run: those of the first users of the partition, whose order is equal for every run. It counts as `final_max_tokens` where that is smaller."""
    final_max_tokens: int
    """Max number of tokens for the last evaluation, of the first users in that order; by default the whole partition."""
    eos: Literal["included", "excluded"]
    """`included` if the end of a sentence counts as a target."""


class CheckpointConfig(TypedDict, total=False):
    """`[checkpoint]`."""

    every: int
    """Rounds between checkpoints; the last round always makes one."""


class AuditConfig(TypedDict, total=False):
    """`[audit]`: coordinates beside the model, whose releases test the mechanism of the run itself. No user contributes to them. They are summed, averaged and noised with the coordinates of the model, and cut off before the optimizer sees a release. So `model.safetensors` has the bytes that it has without the table, unless `holdback` keeps texts out of the training."""

    lane: int
    """Number of canaries, each with a coordinate of its own. A secret coin says of each whether it contributes."""
    noise_probe: int
    """Number of coordinates without any contribution, whose noise is tested. With `replay_every` or `holdback` it may be 0."""
    replay_every: int
    """One round in so many is replayed beside the neighbour of one of its users, while its keys exist; 0 replays none."""
    holdback: float
    """The fraction of each user's texts, the last ones, that the run is not trained on. An attack by user inference has them."""


class EngineConfigProcessor(TypedDict, total=False):
    """The processor, with one user per core at a time."""

    kind: Required[Literal["processor"]]


class EngineConfigGpu(TypedDict, total=False):
    """An NVIDIA GPU, with many users at a time. `CUDA_VISIBLE_DEVICES` chooses one of several."""

    kind: Required[Literal["gpu"]]
    users: int
    """Number of users that are trained at once. The result does not depend on it."""
    precision: Literal["f32", "bf16"]
    """The numbers that products were made of."""


class EngineConfigEmulator(TypedDict, total=False):
    """The kernels of the GPU on the processor. They give the bits of the GPU, far more slowly than `processor` trains."""

    kind: Required[Literal["emulator"]]
    users: int
    """Number of users that are trained at once. The result does not depend on it."""
    precision: Literal["f32", "bf16"]
    """The numbers that products were made of."""


EngineConfig = (
    EngineConfigProcessor
    | EngineConfigGpu
    | EngineConfigEmulator
)


class RunSettings(TypedDict, total=False):
    """The keys of a run file, for an editor that completes them and a type checker.

    >>> import undertone_dp as udp
    >>> settings: udp.RunSettings = {'name': 'posts', 'rounds': 3, 'clip': {'kind': 'flat', 'norm': 0.5}}
    >>> settings['clip']['kind']
    'flat'
    """

    name: str
    """Name of the run and of its folder below `runs/`."""
    seed: int
    """The seed that fixes cohorts, initial parameters and noise. Seeded runs are for study: anyone who knows the seed can subtract the noise."""
    rounds: int
    """Number of rounds."""
    data: "CorpusSpec"
    """`[data]`: the source of the text, the choice of users and the cut into examples."""
    model: "ModelSpec"
    """`[model]`: the family of the model and its sizes."""
    initial_model: str
    """Parameters to start from, such as those of `undertone pretrain`: a `model.safetensors` of the same model and words, or weights in GPT-2's layout. `model.lora` is added to them."""
    initial_adapters: str
    """A folder with adapters in the layout of `peft`, on the model that `initial_model` names. A run with `model.lora` trains them further; one without starts from the sum."""
    cohort: "CohortConfig"
    """`[cohort]`: the users of a round, and how they are sampled."""
    user_update: "UserSettings"
    """`[user_update]`: the work of a user."""
    clip: "ClipConfig"
    """`[clip]`: the bound on the update of a user. Default: norm 1 in a private run, and no bound elsewhere."""
    estimator: "EstimatorConfig"
    """`[estimator]`: the average of the updates."""
    participation: "ParticipationConfig"
    """`[participation]`: how often a user may contribute, for noise that is correlated over rounds."""
    privacy: "PrivacyConfig"
    """`[privacy]`: noise and budget. A run without it is not private."""
    aggregation: "AggregationConfig"
    """`[aggregation]`: the sum of the updates, such as a secure one."""
    server: "ServerConfig"
    """`[server]`: the optimizer that applies the noised average."""
    schedule: list["SchedulePoint"]
    """`[[schedule]]`: changes of the cohort and the noise at given rounds."""
    estimate: "EstimateConfig"
    """`[estimate]`: the number of users, estimated with noise before the run."""
    evaluation: "EvaluationConfig"
    """`[evaluation]`: the rounds and the text of evaluations."""
    checkpoint: "CheckpointConfig"
    """`[checkpoint]`: the rounds of checkpoints, from which the run can be resumed."""
    audit: "AuditConfig"
    """`[audit]`: coordinates beside the model, whose releases test the mechanism of the run itself."""
    engine: "EngineConfig"
    """`[engine]`: the machine that trains users."""
