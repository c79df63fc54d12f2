//! Tables, vocabularies and tokenizers.

use std::path::Path;

use anyhow::{Result, bail};
use undertone_data::{
    Corpus, EosTargets, GroupOptions, Grouped, ImportOptions, NoProgress, Split, StreamOptions, WordCounts,
    WordRule, group, import,
};
use undertone_run::Silent;
use undertone_run_directory::config::EvaluationSplit;
use undertone_settings::{CorpusSpec, SourceSpec, TableSource};

use crate::world::{World, table_csv};

fn specification(text: &str) -> Result<CorpusSpec> {
    Ok(toml::from_str(text)?)
}

fn open(world: &World, spec: &CorpusSpec) -> Result<Corpus> {
    let cache = tempfile::tempdir_in(world.folder())?;
    let corpus = Corpus::open(spec, world.folder(), cache.path(), &NoProgress)?;
    serde_json::to_string(corpus.stats())?;
    for split in [Split::Train, Split::Validation, Split::Test] {
        let _ = corpus.unigram_accuracy(split, EosTargets::Included);
    }
    Ok(corpus)
}

/// A table as a corpus, imported, grouped, counted, and read as public text.
pub(super) fn table(world: &World, place: &str) -> Result<()> {
    let columns = |time: &str| {
        Ok(
            match Path::new(place)
                .extension()
                .and_then(|extension| extension.to_str())
            {
                Some("csv") => table_csv(place),
                Some("jsonl") => SourceSpec::Jsonl(table_of(place, time)),
                Some("parquet") => SourceSpec::Parquet(table_of(place, time)),
                Some("arrow") => SourceSpec::Arrow(table_of(place, time)),
                other => bail!("no table ends in {other:?}"),
            },
        )
    };
    let source = columns(if place.ends_with("parquet") || place.ends_with("arrow") {
        "timestamp"
    } else {
        "at"
    })?;
    let mut spec = specification(
        "source = { kind = \"synthetic\" }\nvocabulary = { kind = \"public_corpus\", path = \"rows.txt\", size = 20 }",
    )?;
    spec.source = source.clone();
    let opened = open(world, &spec).map(drop);
    let out = tempfile::tempdir_in(world.folder())?;
    let (base, text) = (world.folder(), "text");
    let options = ImportOptions {
        salt: b"salt",
        keep_user_ids: false,
        join_users: false,
        drop_users: &[],
        split: None,
        public: false,
        overwrite: false,
    };
    let imported = import(&source, base, &out.path().join("imported"), &options, &NoProgress);
    let options = GroupOptions {
        memory: GroupOptions::MIN_MEMORY,
        split: None,
        public: false,
        overwrite: false,
    };
    let grouped = group(&source, base, &out.path().join("grouped"), &options, &NoProgress);
    let counted = WordCounts::of_public_corpus(place, text, base, WordRule::Unicode, &NoProgress);
    opened?;
    imported?;
    grouped?;
    counted?;
    Ok(())
}

fn table_of(path: &str, time: &str) -> TableSource {
    TableSource {
        path: path.to_owned(),
        time: Some(time.to_owned()),
        split: Some("split".to_owned()),
        ..TableSource::default()
    }
}

/// A folder of grouped text: opened, read in every way, and used as a corpus.
pub(super) fn grouped(world: &World, _place: &str) -> Result<()> {
    let folder = world.path("grouped");
    let read = (|| {
        let grouped = Grouped::open(&folder)?;
        let users = grouped.num_users().min(100);
        for user in 0..users {
            grouped.name(user)?;
        }
        grouped.find("user-3")?;
        grouped.read_users(&(0..users).collect::<Vec<_>>())?;
        let options = StreamOptions {
            window_users: 7,
            window_rows: 50,
            max_rows: Some(3),
        };
        for rows in grouped.stream(1, &options).take(100) {
            rows?;
        }
        anyhow::Ok(())
    })();
    let spec = specification(
        "source = { kind = \"grouped\", path = \"grouped\", time = true, split = true }\n\
         vocabulary = { kind = \"public_corpus\", path = \"rows.txt\", size = 20 }",
    )?;
    let opened = open(world, &spec);
    read?;
    opened?;
    Ok(())
}

/// A word list and its record, alone and under a corpus.
pub(super) fn words(world: &World, _place: &str) -> Result<()> {
    let path = world.path("words.txt");
    let read = undertone_data::read_words(&path);
    let record = undertone_vocabulary::private_record_of(&path);
    let mut results = Vec::new();
    for kind in ["private", "file"] {
        let spec = specification(&format!(
            "source = {{ kind = \"csv\", path = \"rows.csv\" }}\nvocabulary = {{ kind = \"{kind}\", path = \"words.txt\" }}"
        ))?;
        results.push(open(world, &spec));
    }
    read?;
    record?;
    // Words with a record are never taken for public ones: the second is refused always.
    results.swap_remove(0)?;
    Ok(())
}

/// A tokenizer, alone and under a corpus.
pub(super) fn tokens(world: &World, place: &str) -> Result<()> {
    let vocab = undertone_data::read_tokenizer(&world.path(place), None, None);
    if let Ok(vocab) = &vocab {
        for id in (0..vocab.len().min(1000) as u32).chain([u32::MAX]) {
            let _ = vocab.id(vocab.word(id));
        }
    }
    for source in [
        "kind = \"jsonl\", path = \"rows.jsonl\"",
        "kind = \"csv\", path = \"odd.csv\"",
    ] {
        let examples = "max_example_tokens = 16\nexamples = \"windows\"";
        let spec = specification(&format!(
            "{examples}\nsource = {{ {source} }}\nvocabulary = {{ kind = \"tokenizer\", path = \"{place}\" }}"
        ))?;
        open(world, &spec)?;
    }
    vocab?;
    Ok(())
}

/// The cache of a corpus beside run directories.
pub(super) fn cached(world: &World, _place: &str) -> Result<()> {
    for name in ["sampled", "words", "tokens"] {
        let (folder, base) = (world.run(name), Some(world.folder()));
        undertone_run::evaluate(
            &folder,
            base,
            EvaluationSplit::Test,
            EosTargets::Excluded,
            1,
            &Silent,
        )?;
    }
    Ok(())
}
