//! Texts that are held back for an attack: the run is that of people who never wrote them.

use undertone_data::{Corpus, NoProgress, Split};
use undertone_run::{RunFile, Silent, train as train_file};
use undertone_run_directory::config::AuditConfig;

use crate::support::{bytes, config, holds, options};

#[test]
#[ignore = "slow"]
fn a_run_that_holds_texts_back_is_a_run_on_the_other_texts() {
    let kinds: [&[&str]; 3] = [
        &[],
        &["user_update={algorithm=\"uls\",group_size=3}"],
        &[
            "user_update={algorithm=\"els\",group_size=3,batch_size=4}",
            "cohort={sampling=\"poisson\",examples_per_round=20}",
        ],
    ];
    for changes in kinds {
        let folder = tempfile::tempdir().unwrap();
        let plain = config(changes);
        let corpus = Corpus::open(&plain.data, folder.path(), folder.path(), &NoProgress).unwrap();
        let mut holding_back = plain.clone();
        holding_back.audit = Some(AuditConfig::holding_back(0.3));
        let train = |file: RunFile, out: &str| {
            let options = options(&folder.path().join(out));
            train_file(&file, &options, &Silent).unwrap().run_dir
        };
        let held = train(RunFile::new(holding_back, "."), "held");
        holds(&held);
        // The first texts of each user by hand: of n texts, ceil(0.3 n) are out, and one stays at least.
        let all = corpus.partition(Split::Train);
        let kept: Vec<Vec<&[u32]>> = all
            .users()
            .map(|user| {
                let number = user.num_examples();
                let out = (0.3 * number as f64).ceil() as usize;
                user.examples().take((number - out).max(1)).collect()
            })
            .collect();
        let others = corpus.with_training_users(&kept, folder.path()).unwrap();
        let by_hand = train(RunFile::new(plain, ".").with_corpus(others).unwrap(), "by-hand");
        let model = |run: &std::path::Path| bytes(run, "model.safetensors");
        assert!(model(&held) == model(&by_hand), "{changes:?}");
    }
}
