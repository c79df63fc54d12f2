//! Opens the corpus of a run file's `[data]` table and prints what it holds:
//! `cargo run --release -p undertone-data --example open_corpus -- run.toml CACHE_DIR`.

use std::path::Path;

use undertone_data::{Corpus, CorpusSpec, NoProgress};

#[derive(serde::Deserialize)]
struct RunFile {
    data: CorpusSpec,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(run), Some(cache)) = (arguments.next(), arguments.next()) else {
        return Err("expected: open_corpus RUN_FILE CACHE_DIR".into());
    };
    let file: RunFile = toml::from_str(&std::fs::read_to_string(&run)?)?;
    let base = Path::new(&run).parent().unwrap_or(Path::new("."));
    let corpus = Corpus::open(&file.data, base, Path::new(&cache), &NoProgress)?;
    println!("{}", serde_json::to_string_pretty(corpus.stats())?);
    println!("{}", serde_json::to_string_pretty(&corpus.best_accuracy())?);
    Ok(())
}
