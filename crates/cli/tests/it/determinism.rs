//! Equal seeds give equal bytes: at any number of threads, and after a kill in the middle.

use crate::support::{Folder, TINY, check_determinism};

#[test]
#[ignore = "slow"]
fn threads_and_a_kill_leave_the_same_bytes() {
    check_determinism(&Folder::new(), TINY);
}

#[test]
#[ignore = "slow"]
fn another_seed_gives_another_model_and_no_seed_gives_fresh_noise() {
    let folder = Folder::with(TINY);
    folder.write("unseeded.toml", TINY.replace("seed = 3\n", ""));
    folder.succeed("train run.toml --out a");
    folder.succeed("train run.toml --out b --set seed=4");
    folder.succeed("train unseeded.toml --out c");
    folder.succeed("train unseeded.toml --out d");
    let models = ["a", "b", "c", "d"].map(|out| folder.read(&format!("{out}/tiny/model.safetensors")));
    for (i, one) in models.iter().enumerate() {
        for other in &models[i + 1..] {
            assert!(one != other, "two models are the same");
        }
    }
}
