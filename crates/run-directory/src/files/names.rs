//! Names of the files of a run directory.

use undertone_text::Vocab;

/// The digests of all files, written last.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The effective configuration.
pub const CONFIG_FILE: &str = "config.toml";
/// One line per event: start, rounds, evaluations.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// One line per round, with everything that the accountant needs.
pub const LEDGER_FILE: &str = "ledger.jsonl";
/// The privacy report for programs.
pub const PRIVACY_FILE: &str = "privacy.json";
/// The final parameters.
pub const MODEL_FILE: &str = "model.safetensors";
/// The words, by id from 3.
pub const VOCAB_FILE: &str = Vocab::WORDS_FILE;
/// The tokenizer of a run on sub-word tokens. It takes the place of the words.
pub const TOKENIZER_FILE: &str = Vocab::TOKENIZER_FILE;
/// The record of the words: their cost if they were chosen privately, or that they are not private.
pub const VOCAB_PRIVACY_FILE: &str = "vocab.txt.privacy.json";
/// The record of a tokenizer that is not private.
pub const TOKENIZER_PRIVACY_FILE: &str = "tokenizer.json.privacy.json";
/// The files of the texts behind the model. No manifest covers it, nobody publishes it, and only its owner can read it.
pub const LOCAL_SOURCES_FILE: &str = ".sources.json";
/// The mechanism of correlated noise, if the run has one.
pub const MECHANISM_FILE: &str = "mechanism.json";
/// The statements of the model that the run started from about its own training, if there is such a model.
pub const INITIAL_MODEL_FILE: &str = "initial_model.json";
/// The privacy report as a page for readers.
pub const PRIVACY_PAGE: &str = "privacy.md";
/// The record of the audits of a finished run. No manifest covers it: it is written after the run has ended.
pub const AUDIT_FILE: &str = "audit.json";
/// The attacks on a finished run. They are exact statistics of users: no manifest covers the file, and nobody publishes it.
pub const AUDIT_PRIVATE_FILE: &str = "audit-private.json";
/// The sizes of the lane of an audit, where the run has one, and the users whose rounds its canaries have.
pub const LANE_FILE: &str = "lane.json";
/// The released values of the lane: one row per round, as little-endian `f32`.
pub const LANE_VALUES_FILE: &str = "lane.f32";
/// The coins of the canaries. No manifest covers it, and nobody publishes it before the guesses are made.
pub const COINS_FILE: &str = "coins.json";
/// The rounds that a run replayed while it ran, where it did.
pub const REPLAYS_FILE: &str = "replays.json";
/// The statement of the private sweep that chose the run, if one did.
pub const SWEEP_FILE: &str = "sweep.json";
/// The public name of the text of a run, where it follows from a path.
pub const SOURCE_FILE: &str = "source.json";
/// The number and the digest of the rows of a table in memory. No manifest covers it, and nobody publishes it.
pub const TABLE_FILE: &str = "table.json";
/// The ledger of a published run, without anything that only insiders may see.
pub const PUBLIC_LEDGER_FILE: &str = "ledger.public.jsonl";
/// The settings of a task of the service, in the directory of an exported task.
pub const TASK_FILE: &str = "task.toml";
/// The population of such a task, and who vouched for its subjects.
pub const SERVICE_FILE: &str = "service.json";
/// The entropy of the rounds of a session since its last state, in the folder of the checkpoint.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// Max number of released values of a lane over all rounds: 1 GiB of them.
pub const MAX_LANE_VALUES: u64 = 1 << 28;

/// The files that a finished run's manifest covers. It does not cover `report.html` and `plots/`, which are drawn from these.
pub const FINISHED_FILES: [&str; 17] = [
    CONFIG_FILE,
    INITIAL_MODEL_FILE,
    LANE_FILE,
    LANE_VALUES_FILE,
    LEDGER_FILE,
    MECHANISM_FILE,
    METRICS_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    PRIVACY_PAGE,
    REPLAYS_FILE,
    SOURCE_FILE,
    SWEEP_FILE,
    TOKENIZER_FILE,
    TOKENIZER_PRIVACY_FILE,
    VOCAB_FILE,
    VOCAB_PRIVACY_FILE,
];

/// The folder of tokenised corpora, beside the folders of runs.
pub const CORPORA_FOLDER: &str = ".corpora";
