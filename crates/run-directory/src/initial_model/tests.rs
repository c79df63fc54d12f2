use undertone_models::weights::{self, gpt2};
use undertone_models::{BlockMatrix, LoraSpec};

use super::*;

fn vocab(words: &str) -> Vocab {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.txt");
    std::fs::write(&path, words).unwrap();
    undertone_vocabulary::parse_words(&path, &std::fs::read(&path).unwrap()).unwrap()
}

fn words() -> Vocab {
    vocab("a\nb\nc\n")
}

fn cifg(cells: usize) -> ModelSpec {
    ModelSpec::Cifg {
        cells,
        embedding: 4,
        projection: 4,
        tied: true,
    }
}

fn transformer(heads: usize, lora: Option<&LoraSpec>) -> ModelSpec {
    serde_json::from_value(serde_json::json!({
        "family": "transformer", "layers": 2, "width": 8, "heads": heads, "context": 6, "lora": lora,
    }))
    .unwrap()
}

fn lora(rank: usize, alpha: f64, targets: &[BlockMatrix]) -> LoraSpec {
    let targets = targets.to_vec();
    LoraSpec { rank, alpha, targets }
}

fn described(spec: &ModelSpec) -> String {
    Description::new(spec, 7, &words(), Vec::new()).to_json().unwrap()
}

/// A model and its parameters, as a run of `spec` starts from files with these names and contents, the first of them.
fn started(spec: &ModelSpec, files: &[(&str, &[u8])]) -> Result<(Box<dyn SequenceModel>, Vec<f32>)> {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let (file, words) = (Some(Path::new(files[0].0)), words());
    let model = model(spec, file, folder.path(), &words)?;
    let randomness = Randomness::seeded(1);
    let parameters = starting_parameters(spec, file, folder.path(), model.as_ref(), &words, &randomness)?;
    Ok((model, parameters))
}

/// Writes a model with a header and starts `cifg(5)` from it.
fn check(spec: &ModelSpec, description: Option<&str>) -> Result<(Vec<f32>, Vec<f32>)> {
    let written = spec.build(words().len())?;
    let parameters = written.initial_params(1);
    let bytes = match description {
        Some(text) => weights::to_safetensors(written.layout(), &parameters, text)?,
        None => weights::tensors_alone(written.layout(), &parameters)?,
    };
    started(&cifg(5), &[("model.safetensors", &bytes)]).map(|(_, initial)| (parameters, initial))
}

/// A file of tensors without a description, as other programs write it.
fn undescribed(bytes: &[u8]) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let (header, tensors) = bytes[8..].split_at(length);
    let mut header: serde_json::Value = serde_json::from_slice(header).unwrap();
    header.as_object_mut().unwrap().remove("__metadata__");
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat()
}

#[test]
fn a_file_tells_that_its_model_or_its_words_are_not_public() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m");
    let trained = |from_people| Training::NotPrivate {
        source_sha256: "a".repeat(64),
        from_people,
    };
    let write = |vocab: &Vocab, trainings: Vec<Training>| {
        let spec = cifg(5);
        let built = spec.build(vocab.len()).unwrap();
        let text = Description::new(&spec, 7, vocab, trainings).to_json().unwrap();
        let bytes = weights::to_safetensors(built.layout(), &built.initial_params(1), &text).unwrap();
        std::fs::write(&path, bytes).unwrap();
        text
    };
    let text = write(&words(), vec![trained(false)]);
    // Nothing new is said of words and texts that are declared public.
    assert!(!text.contains("provenance") && !text.contains("from_people") && !text.contains("obstacles"));
    assert_eq!(not_public(&path).unwrap(), None);
    assert!(!words_are_of_people(&path, &words()).unwrap());
    write(&words(), vec![trained(false), trained(true)]);
    assert!(
        not_public(&path)
            .unwrap()
            .unwrap()
            .contains("without privacy on people's text")
    );
    let of_people = words().with_provenance(VocabProvenance::TrainingData);
    write(&of_people, vec![trained(false)]);
    assert!(
        not_public(&path)
            .unwrap()
            .unwrap()
            .contains("words that are not private")
    );
    assert!(words_are_of_people(&path, &words()).unwrap());
    assert!(!words_are_of_people(&path, &vocab("other\nwords\n")).unwrap());
    // A task promises devices a guarantee that covers everything, so its words are public.
    let list = folder.path().join("words.txt");
    std::fs::write(&list, "a\nb\nc\n").unwrap();
    crate::task::check_words(&list, &words(), None).unwrap();
    let error = crate::task::check_words(&list, &words(), Some(&path)).unwrap_err();
    assert!(
        error.to_string().contains("which says that they are not private"),
        "{error}"
    );
    let record = undertone_vocabulary::MadeFromPeople::words(&words(), Vec::new());
    std::fs::write(folder.path().join("words.txt.privacy.json"), record.to_json()).unwrap();
    let error = crate::task::check_words(&list, &words(), None).unwrap_err();
    assert!(
        error.to_string().contains("a privacy record beside them"),
        "{error}"
    );
}

fn refused<T>(result: Result<T>, expected: &str) {
    let message = result.map(drop).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn parameters_come_back_with_and_without_a_description() {
    let own = described(&cifg(5));
    let older = r#"{"model":{"family":"dplm"},"rounds":3,"vocabulary":"vocab.txt"}"#;
    for description in [None, Some(own.as_str()), Some(older)] {
        let (expected, initial) = check(&cifg(5), description).unwrap();
        assert_eq!(initial, expected);
    }
}

#[test]
fn other_models_and_other_words_are_refused_by_name() {
    refused(
        check(&cifg(6), None),
        "model.safetensors: tensor `wx`: expected shape [4, 15], got [4, 18]",
    );
    let dplm = ModelSpec::Dplm {
        embed: 4,
        hidden: 5,
        unit_norm: true,
    };
    refused(check(&dplm, None), "unknown tensor `proj");
    let other_words = Description::new(&cifg(5), 7, &vocab("a\nc\nb\n"), Vec::new());
    refused(
        check(&cifg(5), Some(&other_words.to_json().unwrap())),
        "has a different vocabulary: expected SHA-256",
    );
    refused(check(&cifg(5), Some("{")), "is damaged: its description");
    let (missing, base) = (Some(Path::new("such/file")), Path::new("no"));
    let model = cifg(5).build(6).unwrap();
    let randomness = Randomness::seeded(1);
    let read = starting_parameters(&cifg(5), missing, base, model.as_ref(), &words(), &randomness);
    refused(read, "cannot read no/such/file");
}

/// A model goes on with the words that it learnt. Files of earlier versions name no rule and have that of English.
#[test]
fn a_model_of_another_rule_of_words_is_refused_by_name() {
    let unicode = words().with_rule(WordRule::Unicode);
    let header = Description::new(&cifg(5), 7, &unicode, Vec::new())
        .to_json()
        .unwrap();
    assert!(header.contains("\"words\":\"unicode\""), "{header}");
    assert!(!described(&cifg(5)).contains("\"words\""));
    refused(
        check(&cifg(5), Some(&header)),
        "expected words = \"english\", found \"unicode\"; write words = \"unicode\" in [data]",
    );
    let path = Path::new("m.safetensors");
    let of = |text: &str| file::description_of(Some(text.to_owned()), path).unwrap();
    file::check_words(of(&header).as_ref(), &unicode, path).unwrap();
    refused(
        file::check_words(of(&described(&cifg(5))).as_ref(), &unicode, path),
        "expected words = \"unicode\", found \"english\"",
    );
    // Tokens of a tokenizer are no words, and a session knows none.
    let header = header.replace("vocab.txt", "tokenizer.json");
    file::check_words(of(&header).as_ref(), &words(), path).unwrap();
    file::check_words(None, &unicode, path).unwrap();
    refused(
        check(&cifg(5), Some(&header.replace("\"unicode\"", "\"klingon\""))),
        "unknown variant `klingon`",
    );
}

/// A trained model with adapters, in a file that says what it is, and the same with the adapters merged.
fn adapted(spec: &LoraSpec) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
    let (plain, own) = (transformer(2, None), transformer(2, Some(spec)));
    let base = plain.build(words().len()).unwrap();
    let bytes = weights::tensors_alone(base.layout(), &base.initial_params(3)).unwrap();
    let model = own.load(words().len(), &bytes).unwrap().model;
    let adapters: Vec<f32> = (0..model.layout().len())
        .map(|index| (index as f32 * 0.37).sin() / 4.0)
        .collect();
    let merged = model.write_merged(&adapters, "a test").unwrap();
    let file = model.write_params(&adapters, &described(&own)).unwrap();
    (file, adapters, base.read_params(&merged).unwrap())
}

#[test]
fn adapters_start_from_models_with_and_without_adapters() {
    let own = lora(2, 4.0, &[BlockMatrix::Qkv, BlockMatrix::Up]);
    let spec = transformer(2, Some(&own));
    let (file, adapters, merged) = adapted(&own);
    // They go on from a file with adapters.
    let (model, parameters) = started(&spec, &[("m", &file)]).unwrap();
    assert_eq!(parameters, adapters);
    // Without any, B is zero: the base is where training starts.
    let base = transformer(2, None).build(words().len()).unwrap();
    let plain = base.write_params(model.frozen(), &described(&transformer(2, None)));
    let (fresh, parameters) = started(&spec, &[("m", &plain.unwrap())]).unwrap();
    assert_eq!(fresh.frozen(), model.frozen());
    assert_eq!(parameters.len(), adapters.len());
    for tensor in fresh.layout().tensors() {
        let zero = parameters[tensor.range()].iter().all(|&value| value == 0.0);
        assert_eq!(zero, tensor.name.ends_with("_b"), "{}", tensor.name);
    }
    // A model without adapters starts from the sum.
    let (_, parameters) = started(&transformer(2, None), &[("m", &file)]).unwrap();
    assert_eq!(parameters, merged);
}

#[test]
fn other_adapters_and_heads_are_refused_by_key() {
    let targets = [BlockMatrix::Qkv, BlockMatrix::Up];
    let (file, ..) = adapted(&lora(2, 4.0, &targets));
    let check = |heads, lora: &LoraSpec, expected: &str| {
        refused(
            started(&transformer(heads, Some(lora)), &[("m", &file)]),
            expected,
        );
    };
    check(
        2,
        &lora(3, 4.0, &targets),
        "`model.lora.rank`: expected 3, found 2",
    );
    check(
        2,
        &lora(2, 8.0, &targets),
        "`model.lora.alpha`: expected 8, found 4",
    );
    check(
        2,
        &lora(2, 4.0, &targets[..1]),
        "`model.lora.targets`: expected qkv, found qkv, up",
    );
    check(4, &lora(2, 4.0, &targets), "`model.heads`: expected 4, found 2");
    check(
        2,
        &lora(9, 4.0, &targets),
        "`model.lora.rank`: expected 9, found 2",
    );
    let plain = transformer(2, None).build(words().len()).unwrap();
    let plain = weights::tensors_alone(plain.layout(), &plain.initial_params(1)).unwrap();
    refused(
        started(&transformer(2, Some(&lora(9, 4.0, &targets))), &[("m", &plain)]),
        "`lora.rank`: expected from 1 to 8, the smaller side of `qkv`, got 9",
    );
    // A description of adapters that the file does not hold.
    let spec = transformer(2, Some(&lora(2, 4.0, &targets)));
    let base = transformer(2, None).build(words().len()).unwrap();
    let hollow = base
        .write_params(&base.initial_params(1), &described(&spec))
        .unwrap();
    refused(
        started(&transformer(2, None), &[("m", &hollow)]),
        "it lacks the adapters that it describes",
    );
    let alone = model(&spec, None, Path::new("."), &words());
    refused(alone, "`initial_model` is missing: expected the trained model");
}

#[test]
fn the_config_beside_gpt2_weights_is_read() {
    let whole = transformer(2, None).transformer(words().len()).unwrap().unwrap();
    let parameters = whole.initial_params(1);
    let bytes = undescribed(&gpt2::write(&whole, &parameters, "a test").unwrap());
    let start = |heads, config: &[u8]| {
        let files: [(&str, &[u8]); 2] = [("m", &bytes), ("config.json", config)];
        started(&transformer(heads, None), &files).map(|(_, parameters)| parameters)
    };
    let own = serde_json::to_vec(&gpt2::Gpt2Config::new(&whole, 1, 2).unwrap()).unwrap();
    assert_eq!(start(2, &own).unwrap(), parameters);
    refused(
        start(4, &own),
        "m: `n_head` in the config.json beside the weights: expected 4, got 2",
    );
    let other = br#"{"n_head": 2, "activation_function": "relu"}"#;
    refused(
        start(2, other),
        "`activation_function` in the config.json beside the weights: expected gelu_new, got relu",
    );
    refused(
        start(2, br#"{"n_head": 2, "layer_norm_epsilon": 1e-6}"#),
        "`layer_norm_epsilon`",
    );
    refused(start(2, b"{"), "config.json is damaged");
    // Without it, the layout is all that is known.
    let (_, read) = started(&transformer(4, None), &[("m", &bytes)]).unwrap();
    assert_eq!(read, parameters);
}
