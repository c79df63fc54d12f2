//! The leaves that no file can prove, each with its reason.

/// Changes that pass for one reason.
pub(crate) struct Reason {
    /// The reason why no check can refuse them.
    pub(crate) why: &'static str,
    /// Words that verification says about such a folder; empty where it says nothing.
    says: &'static str,
    /// Folder, file, leaf and kind of change; `*` stands for any text.
    pub(crate) places: &'static [&'static str],
}

/// The reason and the place of the list that let a change pass, if verification says what it has to.
pub(crate) fn listed(change: &str, said: &str) -> Option<(usize, usize)> {
    PASSES.iter().enumerate().find_map(|(number, reason)| {
        let place = reason.places.iter().position(|place| is_like(change, place))?;
        said.contains(reason.says).then_some((number, place))
    })
}

/// `true` if a text fits a pattern.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut places = (0..=text.len()).filter(|place| text.is_char_boundary(*place));
            places.any(|place| is_like(&text[place..], rest))
        }),
    }
}

const fn because(why: &'static str, places: &'static [&'static str]) -> Reason {
    Reason {
        why,
        says: "",
        places,
    }
}

pub(crate) const PASSES: &[Reason] = &[
    because(
        "a setting of local training, of reading text, of evaluation or of checkpoints: no claim depends on it",
        &[
            "*: config.toml .checkpoint*",
            "*: config.toml .evaluation*",
            "*: config.toml .server*",
            "*: config.toml .user_update.batch_size: *",
            "*: config.toml .user_update.clip_every_step: *",
            "*: config.toml .user_update.epochs: *",
            "*: config.toml .user_update.learning_rate: *",
            "*: config.toml .user_update.unroll: *",
            "*: config.toml .data.max_sentence_tokens: *",
            "*: config.toml .data.min_*: *",
            "emulator*: config.toml .engine.users: *",
        ],
    ),
    because(
        "a setting that is absent has its default, which is the value that it had",
        &[
            "*: config.toml .user_update.algorithm: a key removed",
            "*: config.toml .user_update.batching: a key removed",
            "*: config.toml .cohort.sampling: a key removed",
            "*: config.toml .estimator: a key removed",
            "*: config.toml .model.unit_norm: a key removed",
            "*: config.toml .data.keep: a key removed",
            "*: config.toml .data.source.*: a key removed",
            "els*: config.toml .privacy.accountant: a key removed",
            "*: config.toml .privacy.mechanism.buffers: a key removed",
            "*: config.toml .privacy.mechanism.workload: a key removed",
            "emulator*: config.toml .engine.precision: a key removed",
            "session*: config.toml .clip: a key removed",
            "session*: config.toml .user_update: a key removed",
            "gpu-sum*: config.toml .clip: a key removed",
            "gpu-sum*: config.toml .user_update: a key removed",
            "task*: task.toml .estimator: a key removed",
            "task*: task.toml .model.unit_norm: a key removed",
            "task*: task.toml .participation.on_violation: a key removed",
            "task*: task.toml .privacy.mechanism.workload: a key removed",
        ],
    ),
    because(
        "the emulator of a GPU assumes nothing that a processor does not",
        &["emulator*: config.toml .engine: a key removed"],
    ),
    because(
        "no other file holds it: the word of the program that trained, as `verify` says",
        &[
            "*: metrics.jsonl * *.metrics.*",
            "*: metrics.jsonl * *.phases*",
            "*: metrics.jsonl * *.clipped_fraction: *",
            "*: metrics.jsonl * *.discarded: *",
            "*: metrics.jsonl * *.release_norm: *",
            "*: metrics.jsonl * *.tokens: *",
            "*: metrics.jsonl * *.train_loss: *",
            "*: metrics.jsonl * *.update_norms*",
            "*: metrics.jsonl * *.best_accuracy: *",
            "*: metrics.jsonl * *.unigram_*: *",
            "*: metrics.jsonl * *.train_tokens: *",
            "*: metrics.jsonl * *.user_sizes*",
            "task: metrics.jsonl * *.seconds: *",
        ],
    ),
    because(
        "the digest of parameters between rounds, which nobody else has",
        &["*: ledger*.jsonl *.parameters_sha256: *"],
    ),
    because(
        "the digest of what the program got: that its model follows from it is its word, as `verify` says",
        &[
            "session*: ledger*.jsonl *.released_sha256: a foreign one",
            "gpu-sum*: ledger*.jsonl *.released_sha256: a foreign one",
        ],
    ),
    because(
        "the statement names a device if any round has one, and the other rounds have one",
        &["gpu-sum*: ledger*.jsonl *.summed_on_device: a key removed"],
    ),
    because(
        "a name of the key of a round, and the key is not kept",
        &["*: ledger.jsonl *.noise_key: *"],
    ),
    because(
        "a pseudonym: no file says whose it is",
        &[
            "*: ledger.jsonl *.participants[*]: a foreign one",
            "ftrl, published: ledger.public.jsonl *.participants[*]: a foreign one",
            "gpu-sum, published: ledger.public.jsonl *.participants[*]: a foreign one",
            "task, published: ledger.public.jsonl *.participants[*]: a foreign one",
        ],
    ),
    because(
        "the rounds of the user whose rounds a canary has: the word of the run, as the pseudonyms are",
        &["ftrl, published: lane.json .shadow_rounds[*"],
    ),
    because(
        "a private file that no manifest covers: a run that goes on compares its table with it",
        &["memory: table.json *"],
    ),
    because(
        "a promise from before the first round: only a copy of it shows a change",
        &["*: lane.json .coins_sha256: *"],
    ),
    because(
        "nobody reads the coins before an audit, and after it their key and their schema no more",
        &[
            "run: coins.json*",
            "audit: coins.json .key*",
            "audit: coins.json .schema: *",
        ],
    ),
    Reason {
        why: "keys of an issuer are replaced while a task runs, so any round may name other ones of this issuer, as `verify` says",
        says: "Certificates counted from round",
        places: &[
            "task: ledger.jsonl *.issuer.keys[0]: a foreign one",
            "task, published: ledger.public.jsonl *.issuer.keys[0]: a foreign one",
        ],
    },
    Reason {
        why: "without the coins nobody can make the guesses again, as `verify` says",
        says: "coins missing",
        places: &[
            "audit: coins.json : the file is gone",
            "audit without coins: audit.json .canaries[*].correct: *",
        ],
    },
    because(
        "nobody has to record an audit",
        &[
            "audit: audit.json : the file is gone",
            "audit without coins: audit.json : the file is gone",
        ],
    ),
    because(
        "a buffer of the matrix that is optimised away: the sensitivity does not depend on it to 1e-7",
        &[
            "*: mechanism.json .strategy.decay_complements[*]: *",
            "*: mechanism.json .strategy.output_scales[*]: *",
        ],
    ),
    because(
        "a random name that nothing else follows from",
        &["sweep*: sweep.json .id: *"],
    ),
    because(
        "the text that candidates are scored on: that it was public is the word of the party that swept",
        &["sweep*: sweep.json .score.public.*"],
    ),
    because(
        "the name that the party gave a combination",
        &["sweep*: sweep.json .combinations[*].name: *"],
    ),
    because(
        "white space at the end of a document inside another one",
        &[
            "sweep*: sweep.json .combinations[*].config: longer",
            "*: model.safetensors .__metadata__.undertone: longer",
        ],
    ),
    because(
        "a setting of how a task is served or trained: its identifier covers it, and no claim depends on it",
        &[
            "task*: task.toml .service.*",
            "task*: task.toml .server*",
            "task*: task.toml .text*",
            "task*: task.toml .user_update.*",
        ],
    ),
    because(
        "a path or a column of the operator: the genesis covers the words, and the settings with these keys blank",
        &[
            "task*: task.toml .vocabulary.path: *",
            "uls*: config.toml .data.source.user: *",
            "uls*: config.toml .data.source.text: *",
            "memory*: config.toml .data.vocabulary.path: *",
        ],
    ),
    because(
        "the separation of these few rounds allows no more anyway",
        &["task*: task.toml .participation.max_part: *"],
    ),
    because(
        "who was there is the word of the service: the guarantee is that of the participation that its ledger shows",
        &["task*: ledger*.jsonl *.lost*", "task*: ledger*.jsonl *.attempts*"],
    ),
];
