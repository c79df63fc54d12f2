//! A small folder of each kind, made by the code of today: runs, sessions, a private sweep and a task of the service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_run_directory::session_config::SessionConfig;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
use undertone_aggregation::Limbs;
use undertone_audit::record::of_replay;
use undertone_data::{Corpus, MemoryTable, NoProgress};
use undertone_run::session::{Round, Session};
use undertone_run::{RunFile, RunOptions, Silent, train};
use undertone_run_directory::config::{Override, RunConfig};
use undertone_run_directory::plan_inputs::config_digest;
use undertone_settings::{MemorySource, SourceSpec};
use undertone_studies::sweep::Sweep;
use undertone_verify::{read_lane, read_replays};

use super::task;

/// The run file of all runs. Nothing has a seed, because a seeded run is not published. The accountant is the quickest one.
const BASE: &str = r#"
name = "kept"
rounds = 4
data = { source = { kind = "synthetic", users = 60, words = 32 } }
model = { family = "dplm", embed = 2, hidden = 3 }
cohort = { sampling = "poisson", users_per_round = 12 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.3 }
evaluation = { every = 2 }
privacy = { noise_multiplier = 2.0, delta = 1e-5, accountant = "rdp" }
"#;

/// Words of a text that nobody wrote.
const WORDS: [&str; 8] = ["ba", "ce", "di", "fo", "gu", "ha", "ke", "li"];

/// A setting that makes a run one of bounded participation.
const BY_SCHEMA: [&str; 2] = [
    "cohort={sampling='shuffled_epochs',users_per_round=12}",
    "privacy={noise_multiplier=2.0,delta=1e-5,mechanism={kind='blt',buffers=2}}",
];

/// A kind of folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Poisson sampling of users.
    Sampled,
    /// Correlated noise, with a lane.
    Ftrl,
    /// Example-level sampling.
    Els,
    /// User-level sampling of a JSONL file, with words of a file.
    Uls,
    /// A table in memory.
    Memory,
    /// Local training by the emulator of a GPU.
    Emulator,
    /// A session under Poisson sampling.
    Session,
    /// A session whose sums a device made.
    GpuSum,
    /// The winner of a private sweep.
    Sweep,
    /// A task of the service.
    Task,
    /// A run with a lane and live replays, and the audit of both.
    Audited,
}

/// All kinds, with the names of their folders.
pub(crate) const KINDS: [(Kind, &str); 11] = [
    (Kind::Sampled, "sampled"),
    (Kind::Ftrl, "ftrl"),
    (Kind::Els, "els"),
    (Kind::Uls, "uls"),
    (Kind::Memory, "memory"),
    (Kind::Emulator, "emulator"),
    (Kind::Session, "session"),
    (Kind::GpuSum, "gpu-sum"),
    (Kind::Sweep, "sweep"),
    (Kind::Task, "task"),
    (Kind::Audited, "audited"),
];

/// Makes a folder of a kind below `out`, and returns it.
pub(crate) fn make(kind: Kind, out: &Path) -> PathBuf {
    match kind {
        Kind::Sampled => trained(&[], out),
        Kind::Ftrl => trained(
            &[BY_SCHEMA[0], BY_SCHEMA[1], "audit={lane=10,noise_probe=4}"],
            out,
        ),
        Kind::Els => trained(
            &[
                "user_update={algorithm='els',group_size=3,batch_size=4}",
                // A number of examples that was counted on text would not be published.
                "cohort={sampling='poisson',sampling_probability=0.05}",
                "estimator={kind='fixed_denominator',expected_weight=20.0}",
                "privacy.accountant=pld",
            ],
            out,
        ),
        Kind::Uls => {
            write_text(out);
            let source =
                "data={source={kind='jsonl',path='people.jsonl'},vocabulary={kind='file',path='words.txt'}}";
            trained(
                &[source, "user_update={algorithm='uls',group_size=3,batch_size=3}"],
                out,
            )
        }
        Kind::Memory => of_table(out),
        Kind::Emulator => trained(&["engine={kind='emulator',users=4}"], out),
        Kind::Session => session(SESSION, out, false),
        Kind::GpuSum => session(&by_schema(), out, true),
        Kind::Sweep => sweep(out),
        Kind::Task => task::exported(out),
        Kind::Audited => audited(out),
    }
}

fn file(changes: &[&str], out: &Path) -> RunFile {
    let changes: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let config = RunConfig::parse(BASE, Path::new("kept.toml"), &changes).unwrap();
    RunFile::new(config, out)
}

fn options(out: &Path) -> RunOptions {
    RunOptions {
        out: out.join("runs"),
        threads: 1,
        resume: false,
    }
}

fn trained(changes: &[&str], out: &Path) -> PathBuf {
    train(&file(changes, out), &options(out), &Silent)
        .unwrap()
        .run_dir
}

/// The invented texts of invented users.
fn rows() -> impl Iterator<Item = (String, String)> {
    (0..60).flat_map(|user| {
        (0..4).map(move |text| {
            let word = |place: usize| WORDS[(user * 3 + text * 5 + place * (user % 3 + 1)) % WORDS.len()];
            let words: Vec<&str> = (0..5).map(word).collect();
            (format!("p{user}"), words.join(" "))
        })
    })
}

fn write_text(out: &Path) {
    let lines = rows().map(|(user, text)| format!("{{\"user_id\": \"{user}\", \"text\": \"{text}\"}}\n"));
    std::fs::write(out.join("people.jsonl"), lines.collect::<String>()).unwrap();
    std::fs::write(out.join("words.txt"), WORDS.join("\n") + "\n").unwrap();
}

fn of_table(out: &Path) -> PathBuf {
    write_text(out);
    let (users, texts): (Vec<String>, Vec<String>) = rows().unzip();
    let column = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
    let columns = [("user_id", column(users)), ("text", column(texts))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let source = MemorySource {
        rows: 0,
        sha256: String::new(),
        user: "user_id".to_owned(),
        text: "text".to_owned(),
        time: None,
        split: None,
        time_unit: None,
    };
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let table = MemoryTable::new(reader, &source, &NoProgress).unwrap();
    let words = "data={source={kind='synthetic'},vocabulary={kind='file',path='words.txt'}}";
    let mut file = file(&[words], out);
    file.config.data.source = SourceSpec::Memory(table.source().clone());
    let cache = out.join("cache");
    let corpus = Corpus::from_table(&file.config.data, &table, out, &cache, &NoProgress).unwrap();
    let file = file.with_corpus(corpus).unwrap();
    train(&file, &options(out), &Silent).unwrap().run_dir
}

const SESSION: &str = r#"
name = "kept"
rounds = 4
users = 40
model = { family = "external", tensors = [{ name = "w", shape = [2, 2] }, { name = "b", shape = [2] }] }
cohort = { users_per_round = 10 }
privacy = { noise_multiplier = 1.5, delta = 1e-5, accountant = "rdp" }
"#;

/// A session whose guarantee rests on a participation schema.
fn by_schema() -> String {
    SESSION
        .replace("{ users", "{ sampling = \"shuffled_epochs\", users")
        .replace(
            "accountant = \"rdp\"",
            "mechanism = { kind = \"blt\", buffers = 2 }",
        )
}

fn session(text: &str, out: &Path, on_device: bool) -> PathBuf {
    let config = SessionConfig::parse(text, Path::new("config")).unwrap();
    let mut session = Session::create(&out.join("runs"), config, out, None, false).unwrap();
    let mut average = vec![0.0; session.dim()];
    while let Some(round) = session.next_round().unwrap() {
        let mut sum = vec![0; average.len()];
        for unit in 0..round.users().len() {
            let value = |place: usize| (unit as f32 - 1.5) * 0.1f32.powi(place as i32);
            let update: Vec<f32> = (0..average.len()).map(value).collect();
            match on_device {
                true => add_on_gpu(round, &mut sum, unit, &update),
                false => drop(round.add(unit, &update).unwrap()),
            }
        }
        if on_device {
            round.merge_gpu(0, &sum).unwrap();
        }
        session.release(&mut average).unwrap();
    }
    session.finish(&average).unwrap()
}

/// Adds a unit as a device would, by plain integers.
fn add_on_gpu(round: &Round, sum: &mut [i64], unit: usize, update: &[f32]) {
    let magnitude = |value: f32| (f64::from(value.abs()) * 2f64.powi(40)) as u64;
    let groups = round.gpu_groups().unwrap();
    let norms: Vec<Limbs> = (groups.iter())
        .map(|spans| {
            let values = || spans.iter().flat_map(|span| &update[span.clone()]);
            let mut sums = [0; 4];
            for value in values() {
                let square = u128::from(magnitude(*value)).pow(2);
                for (place, sum) in sums.iter_mut().enumerate() {
                    *sum += (square >> (32 * place)) as u64 & 0xffff_ffff;
                }
            }
            let largest = values().map(|value| value.abs().to_bits()).max().unwrap_or(0);
            Limbs { largest, sums }
        })
        .collect();
    let factors = round.add_on_gpu(unit, &norms).unwrap().groups();
    if round.audits(unit) {
        round.audit(update).unwrap();
    }
    for (spans, (factor, _)) in groups.into_iter().zip(factors) {
        for place in spans.into_iter().flatten() {
            let length = (u128::from(magnitude(update[place])) * u128::from(factor)) >> 30;
            sum[place] += length as i64 * if update[place] < 0.0 { -1 } else { 1 };
        }
    }
}

const SWEEP: &str = r#"
name = "tuned"
run = "run.toml"

[private]
mean_runs = 2.0
score = { public = { kind = "jsonl", path = "public.jsonl" } }

[[axis]]
name = "rate"
values = [
    { name = "slow", set = ["user_update.learning_rate=0.1"] },
    { name = "fast", set = ["user_update.learning_rate=1.0", "privacy.noise_multiplier=2.5"] },
]
"#;

fn sweep(out: &Path) -> PathBuf {
    let line = |user: usize| format!("{{\"user_id\": \"u{user}\", \"text\": \"w1 w2 w3 w1\"}}\n");
    std::fs::write(out.join("public.jsonl"), (0..8).map(line).collect::<String>()).unwrap();
    std::fs::write(out.join("run.toml"), BASE).unwrap();
    std::fs::write(out.join("sweep.toml"), SWEEP).unwrap();
    let sweep = Sweep::read(&out.join("sweep.toml"), &[]).unwrap();
    sweep.select(&options(out)).unwrap().run_dir
}

fn audited(out: &Path) -> PathBuf {
    let file = file(&["audit={lane=10,noise_probe=4,replay_every=2}"], out);
    let run = train(&file, &options(out), &Silent).unwrap().run_dir;
    let lane = read_lane(&run).unwrap().audit(true).unwrap();
    undertone_audit::record(&run, lane).unwrap();
    let digest = config_digest(&file.config).unwrap();
    let replay = of_replay("kept", &digest, read_replays(&run).unwrap());
    undertone_audit::record(&run, replay).unwrap();
    run
}
