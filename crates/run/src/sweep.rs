//! The measure of a candidate of a private sweep on public text.

use std::path::Path;
use undertone_run_directory::config::RunConfig;

use undertone_data::{Corpus, EosTargets, Split};
use undertone_settings::{CorpusSpec, SplitSpec, VocabularySpec};

use crate::driver::CorpusProgress;
use crate::error::{Result, RunError};
use crate::evaluate::{EvaluationSet, first_sentences};
use crate::observer::Observer;
use crate::run_file::vocabulary_of;
use undertone_run_directory::files::names::CONFIG_FILE;
use undertone_run_directory::files::{self, vocabulary_file};
use undertone_run_directory::metrics::Metrics;
use undertone_run_directory::plan_inputs::trained_model;
use undertone_run_directory::sweep_statement::Score;

/// Measures the final model of a candidate on the public text of the score; relative paths start at `base`.
///
/// # Errors
/// [`RunError`]; a text without tokens.
pub fn measure(
    run_dir: &Path,
    score: &Score,
    base: &Path,
    cache: &Path,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Metrics> {
    let path = run_dir.join(CONFIG_FILE);
    let config = RunConfig::parse(&files::read_text(&path)?, &path, &[])?;
    let words = std::path::absolute(vocabulary_file(run_dir))
        .map_err(|source| RunError::io("read", run_dir, source))?;
    let words = words.to_string_lossy().into_owned();
    let spec = CorpusSpec {
        source: score.public.clone(),
        vocabulary: Some(match &config.data.vocabulary {
            Some(VocabularySpec::Tokenizer { bos, eos, .. }) => VocabularySpec::Tokenizer {
                path: words,
                bos: bos.clone(),
                eos: eos.clone(),
            },
            _ => VocabularySpec::File { path: words },
        }),
        split: Some(SplitSpec::HeldOutUsers {
            validation: 0.0,
            test: 0.0,
            seed: 0,
        }),
        min_examples: 0,
        min_tokens: 0,
        max_tokens: None,
        max_examples: None,
        ..config.data.clone()
    };
    let corpus = Corpus::open(&spec, base, cache, &CorpusProgress(observer))?;
    let users = corpus.partition(Split::Train);
    let sentences = first_sentences(&users, None);
    if sentences.is_empty() {
        let hint = "give a text with examples as `private.score.public`";
        return Err(RunError::EmptyPartition { split: "score", hint });
    }
    let vocabulary = vocabulary_of(run_dir, &config.data)?;
    let (model, parameters) = trained_model(run_dir, &config.task.model, &vocabulary)?;
    let set = EvaluationSet::of(sentences, users.special());
    set.evaluate(
        model.as_ref(),
        &parameters,
        EosTargets::Excluded,
        false,
        threads,
        observer,
    )
}
