//! A folder with one honest file of every kind, made by the writers themselves: small seeded runs, tables, models, tokenizers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use undertone_accounting::{Delta, Epsilon};
use undertone_data::{
    GroupOptions, ImportOptions, NoProgress, PrivateSelection, TokenizerKind, WordVotes, group, import,
    train_tokenizer,
};
use undertone_mechanisms::NoiseKey;
use undertone_run::export::{ExportOptions, Layout, export};
use undertone_run::{Observer, RunFile, RunOptions, Silent};
use undertone_run_directory::metrics::RoundRecord;
use undertone_settings::{CsvSource, Dialect, SourceSpec};

/// Folder of run directories.
pub(crate) const RUNS: &str = "runs";
/// Folder in which an unfinished run is continued, again and again.
pub(crate) const RESUMED: &str = "resumed";

/// Honest files, all below one folder.
#[derive(Debug, Clone)]
pub struct World {
    folder: PathBuf,
}

/// A run, what differs in its file from the others, and the round after which it is cut off.
struct Honest {
    name: &'static str,
    text: fn() -> String,
    cut_off: Option<u64>,
}

const SAMPLED: &str = r#"
name = "NAME"
seed = 3
rounds = 3

[data]
source = { kind = "synthetic", users = 100, words = 40 }

[model]
family = "dplm"
embed = 4
hidden = 6

[cohort]
sampling = "poisson"
users_per_round = 10

[user_update]
algorithm = "fedavg"
batch_size = 4
learning_rate = 1.0
max_examples = 4

[clip]
kind = "flat"
norm = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-4

[evaluation]
every = 2
max_tokens = 100
final_max_tokens = 200

[checkpoint]
every = 1
"#;

const TRANSFORMER: &str = "family = \"transformer\"\nlayers = 1\nwidth = 64\nheads = 1\ncontext = 16\n";

fn correlated() -> String {
    let text = SAMPLED
        .replace("rounds = 3", "rounds = 10")
        .replace("sampling = \"poisson\"", "sampling = \"shuffled_epochs\"")
        .replace("noise_multiplier = 1.0", "noise_multiplier = 4.0");
    format!("{text}\n[privacy.mechanism]\nkind = \"blt\"\nbuffers = 2\n")
}

/// Blocks of Llama with everything that a folder of `transformers` may state.
const LLAMA: &str = "family = \"llama\"\nlayers = 2\nwidth = 8\nheads = 4\nkey_heads = 2\nhead_width = 4\ninner = 12\ncontext = 16\n\
                     rotary_base = 500.0\nrotary_scaling = { kind = \"linear\", factor = 2.0 }\nbiases = [\"qkv\"]\nrows = 50\n";

fn transformer() -> String {
    SAMPLED
        .replace("family = \"dplm\"\nembed = 4\nhidden = 6\n", TRANSFORMER)
        .replace("words = 40 }", "words = 40 }\nmax_sentence_tokens = 15")
}

const HONEST: [Honest; 13] = [
    Honest {
        name: "sampled",
        text: || SAMPLED.to_owned(),
        cut_off: None,
    },
    Honest {
        name: "correlated",
        text: correlated,
        cut_off: None,
    },
    Honest {
        name: "adaptive",
        text: || {
            correlated()
                .replace(
                    "kind = \"blt\"\nbuffers = 2",
                    "kind = \"tree\"\nrestarts = { first = 4, every = 4 }",
                )
                .replace(
                    "kind = \"flat\"\nnorm = 1.0",
                    "kind = \"adaptive\"\ninitial_norm = 0.1\nbit_noise_std = 8.0",
                )
                .replace("max_examples = 4", "max_examples = 4\nclip_every_step = false")
        },
        cut_off: None,
    },
    Honest {
        name: "els",
        text: || {
            SAMPLED
                .replace("learning_rate = 1.0\nmax_examples = 4\n", "group_size = 2\n")
                .replace("\"fedavg\"", "\"els\"")
                .replace("users_per_round = 10", "examples_per_round = 20")
                .replace("delta = 1e-4", "delta = 1e-4\naccountant = \"pld\"")
        },
        cut_off: None,
    },
    Honest {
        name: "secagg",
        text: || {
            format!(
                "{}\n[aggregation]\nsum = \"secagg\"\nmin_clients = 5\n",
                correlated()
            )
        },
        cut_off: None,
    },
    Honest {
        name: "public",
        text: || {
            SAMPLED
                .replace("[privacy]\nnoise_multiplier = 1.0\ndelta = 1e-4\n", "")
                .replace(
                    "[clip]\nkind = \"flat\"\nnorm = 1.0\n",
                    "[clip]\nkind = \"none\"\n",
                )
        },
        cut_off: None,
    },
    Honest {
        name: "words",
        text: || {
            let source = "{ kind = \"csv\", path = \"rows.csv\", time = \"at\" }\n\
                          vocabulary = { kind = \"private\", path = \"words.txt\" }";
            SAMPLED.replace("{ kind = \"synthetic\", users = 100, words = 40 }", source)
        },
        cut_off: None,
    },
    Honest {
        name: "tokens",
        text: || {
            let source = "{ kind = \"jsonl\", path = \"rows.jsonl\" }\n\
                          vocabulary = { kind = \"tokenizer\", path = \"bpe.json\" }";
            transformer()
                .replace("{ kind = \"synthetic\", users = 100, words = 40 }", source)
                .replace("context = 16\n", "context = 16\npositions = \"rotary\"\n")
        },
        cut_off: None,
    },
    Honest {
        name: "transformer",
        text: transformer,
        cut_off: None,
    },
    Honest {
        name: "llama",
        text: || {
            SAMPLED
                .replace("family = \"dplm\"\nembed = 4\nhidden = 6\n", LLAMA)
                .replace("words = 40 }", "words = 40 }\nmax_sentence_tokens = 15")
        },
        cut_off: None,
    },
    Honest {
        name: "adapters",
        text: || {
            transformer()
                .replace(
                    "context = 16\n",
                    "context = 16\nlora = { rank = 2, alpha = 4.0 }\n",
                )
                .replace(
                    "rounds = 3\n",
                    "rounds = 3\ninitial_model = \"runs/transformer/model.safetensors\"\n",
                )
        },
        cut_off: None,
    },
    Honest {
        name: "open-sampled",
        text: || SAMPLED.to_owned(),
        cut_off: Some(1),
    },
    Honest {
        name: "open-correlated",
        text: correlated,
        cut_off: Some(7),
    },
];

impl World {
    /// The honest files that were made in this folder.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A run directory of it.
    #[must_use]
    pub fn run(&self, name: &str) -> PathBuf {
        self.folder.join(RUNS).join(name)
    }

    /// The run file of one of its runs.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn run_file(&self, name: &str) -> Result<RunFile> {
        Ok(RunFile::read(&self.path(&format!("{name}.toml")), &[])?)
    }

    /// Copies the files to another folder, where something else may change them.
    ///
    /// # Errors
    /// Files that cannot be copied.
    pub fn copy(&self, to: &Path) -> Result<Self> {
        copy(&self.folder, to)?;
        Ok(Self::at(to))
    }

    /// Makes every file, in a folder that is there.
    ///
    /// # Errors
    /// Anything that fails: honest files are made by what is tested.
    pub fn make(folder: &Path) -> Result<Self> {
        let world = Self::at(folder);
        world.tables()?;
        world.vocabularies()?;
        for honest in &HONEST {
            world.train(honest).with_context(|| honest.name)?;
        }
        world.exports()?;
        world.settings()?;
        Ok(world)
    }

    /// The rows of the Parquet file as a stream and as a file of Arrow, in batches of 100 rows.
    fn arrow(&self) -> Result<()> {
        let rows = fs::File::open(self.path("rows.parquet"))?;
        let rows = ParquetRecordBatchReaderBuilder::try_new(rows)?.with_batch_size(100);
        let schema = rows.schema().clone();
        let mut stream = StreamWriter::try_new(fs::File::create(self.path("rows.arrow"))?, &schema)?;
        let mut file = FileWriter::try_new(fs::File::create(self.path("rows-file.arrow"))?, &schema)?;
        for batch in rows.build()? {
            let batch = batch?;
            stream.write(&batch)?;
            file.write(&batch)?;
        }
        stream.finish()?;
        file.finish()?;
        Ok(())
    }

    fn tables(&self) -> Result<()> {
        let mut csv = "user_id,text,at,split\n".to_owned();
        let mut jsonl = String::new();
        let mut plain = String::new();
        for row in 0..240_u64 {
            let (user, day) = (row % 40, 1 + row % 28);
            let text = format!(
                "The cat number {} sat on the mat, said \"\"user {user}\"\"",
                row % 7
            );
            let split = ["train", "train", "train", "validation", "test"][(user % 5) as usize];
            csv += &format!("user-{user},\"{text}\",2024-03-{day:02},{split}\n");
            let text = text.replace("\"\"", "");
            let object = serde_json::json!({
                "user_id": format!("user-{user}"), "text": text, "at": 1_700_000_000 + 86_400 * row, "split": split,
            });
            jsonl += &format!("{object}\n");
            plain += &format!("{text}\n");
        }
        fs::write(self.path("rows.csv"), csv)?;
        fs::write(self.path("rows.jsonl"), jsonl)?;
        fs::write(self.path("rows.txt"), plain)?;
        let odd = [
            "é👩‍👩‍👧",
            "\u{0}\u{1b}[2J\u{202e}",
            "<|endoftext|> [MASK] <s>",
            "x",
            " ",
        ];
        let rows = odd
            .iter()
            .zip(0..)
            .map(|(text, user)| format!("{user},\"{} {text}\"\n", text.repeat(300)));
        fs::write(
            self.path("odd.csv"),
            format!("user_id,text\n{}", rows.collect::<String>()),
        )?;
        let source = table_csv("rows.csv");
        let options = ImportOptions {
            salt: b"salt",
            keep_user_ids: true,
            join_users: false,
            drop_users: &[],
            split: None,
            public: false,
            overwrite: false,
        };
        import(
            &source,
            &self.folder,
            &self.path("rows.parquet"),
            &options,
            &NoProgress,
        )?;
        self.arrow()?;
        let options = GroupOptions {
            memory: GroupOptions::MIN_MEMORY,
            split: None,
            public: false,
            overwrite: false,
        };
        group(
            &source,
            &self.folder,
            &self.path("grouped"),
            &options,
            &NoProgress,
        )?;
        Ok(())
    }

    fn vocabularies(&self) -> Result<()> {
        let sources = [self.path("rows.txt").display().to_string()];
        for (kind, name) in [
            (TokenizerKind::Bpe, "bpe.json"),
            (TokenizerKind::WordPiece, "wordpiece.json"),
        ] {
            let output = self.path(name);
            train_tokenizer(
                (kind, 300),
                (&sources, true),
                "text",
                (&output, false),
                &NoProgress,
            )?;
        }
        let text = "source = { kind = \"csv\", path = \"rows.csv\", split = \"split\" }";
        let spec = toml::from_str(text).context("a specification")?;
        let votes = WordVotes::of_training_data(&spec, 12, &self.folder, &NoProgress)?;
        let target = (Epsilon::new(8.0)?, Delta::new(1e-4)?);
        let settings = PrivateSelection::calibrated(100, target, Delta::new(5e-5)?)?;
        let selected = votes.select(&settings, &NoiseKey::from_insecure_seed(5))?;
        selected.write(&self.path("words.txt"), false)?;
        Ok(())
    }

    fn train(&self, honest: &Honest) -> Result<()> {
        let file = self.path(&format!("{}.toml", honest.name));
        fs::write(&file, (honest.text)().replace("NAME", honest.name))?;
        let run_file = self.run_file(honest.name)?;
        let options = RunOptions {
            out: self.path(RUNS),
            threads: 1,
            resume: false,
        };
        let Some(rounds) = honest.cut_off else {
            undertone_run::train(&run_file, &options, &Silent)?;
            return Ok(());
        };
        // The process ends here for the run: a panic of who watches leaves what a crash leaves.
        let cut_off = std::panic::catch_unwind(|| undertone_run::train(&run_file, &options, &CutOff(rounds)));
        ensure!(cut_off.is_err(), "the run came to its end");
        Ok(())
    }

    fn exports(&self) -> Result<()> {
        for (run, layout, name) in [
            ("transformer", Layout::Gpt2, "gpt2"),
            ("transformer", Layout::Undertone, "plain"),
            ("adapters", Layout::Peft, "peft"),
        ] {
            export(&self.run(run), &self.path(name), ExportOptions::new(layout))?;
        }
        let shards = ExportOptions {
            shard_bytes: Some(4000),
            ..ExportOptions::new(Layout::HuggingFace)
        };
        export(&self.run("llama"), &self.path("huggingface"), shards)?;
        // As other programs write it: then the config.json beside it is what tells of the heads.
        let gpt2 = self.path("gpt2/model.safetensors");
        fs::write(&gpt2, without_description(&fs::read(&gpt2)?)?)?;
        fs::create_dir(self.path("adapted"))?;
        fs::copy(
            self.run("adapters")
                .join(undertone_run_directory::files::names::MODEL_FILE),
            self.path("adapted/model.safetensors"),
        )?;
        Ok(())
    }

    fn settings(&self) -> Result<()> {
        fs::write(self.path("pretrain.toml"), PRETRAIN)?;
        fs::write(self.path("sweep.toml"), SWEEP)?;
        fs::write(self.path("simulation.toml"), SIMULATION)?;
        fs::write(self.path("events.toml"), EVENTS)?;
        fs::copy(
            self.run("correlated")
                .join(undertone_run_directory::files::names::MECHANISM_FILE),
            self.path("mechanism.json"),
        )?;
        Ok(())
    }
}

const PRETRAIN: &str = r#"
name = "pretrain"
steps = 2

[data]
source = { kind = "synthetic", users = 100, words = 40 }

[model]
family = "dplm"
embed = 4
hidden = 6

[training]
batch_size = 8
learning_rate = 0.1
optimizer = { kind = "adam" }

[evaluation]
every = 2
max_tokens = 100
"#;

const SWEEP: &str = r#"
name = "sweep"
run = "sampled.toml"
seeds = [1, 2]

[[axis]]
name = "noise"
values = [
    { name = "low", set = ["privacy.noise_multiplier=0.5"] },
    { name = "high", set = ["privacy.noise_multiplier=2.0"] },
]
"#;

const EVENTS: &str = r#"
[[event]]
kind = "poisson-gaussian"
sampling_probability = 0.01
noise_multiplier = 1.0
count = 100
"#;

const SIMULATION: &str = r#"
name = "timers"
seed = 1
rounds = 20
population = 1000

[timers]
report_goal = 30
over_selection = 1.3
timer_hours = 48
min_round_minutes = 5
round_timeout_minutes = 120
report_minutes = 4
report_spread = 0.5
device_spread = 0.4
drop_out = 0.08

[timers.charging]
start_hour = 23.0
start_spread_hours = 1.5
length_hours = 7.0
length_spread_hours = 1.0
nightly_spread_hours = 0.75
"#;

/// A safetensors file without what its header says beside the tensors.
fn without_description(bytes: &[u8]) -> Result<Vec<u8>> {
    let (length, rest) = bytes.split_first_chunk::<8>().context("a header")?;
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length))?);
    let mut header: serde_json::Value = serde_json::from_slice(header)?;
    header.as_object_mut().context("a header")?.remove("__metadata__");
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    Ok(file)
}

/// The CSV table of the world, or one like it.
pub(crate) fn table_csv(path: &str) -> SourceSpec {
    SourceSpec::Csv(CsvSource {
        path: path.to_owned(),
        user: "user_id".to_owned(),
        text: "text".to_owned(),
        time: Some("at".to_owned()),
        split: Some("split".to_owned()),
        time_unit: None,
        delimiter: ',',
        dialect: Dialect::Quoted,
        header: None,
    })
}

/// Ends the run after so many rounds.
struct CutOff(u64);

impl Observer for CutOff {
    fn on_round(&self, round: &RoundRecord) {
        if round.round >= self.0 {
            std::panic::resume_unwind(Box::new("cut off"));
        }
    }
}

/// Copies a folder and everything below it; links are copied as links are read, as files.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), &target)?;
            }
        }
    }
    Ok(())
}
