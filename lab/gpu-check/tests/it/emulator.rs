//! The steps on the emulator.

use std::process::Command;

#[test]
#[ignore = "slow"]
fn every_step_that_the_emulator_can_take_holds() {
    let steps = [
        "probe",
        "kernels",
        "models",
        "independence",
        "determinism",
        "exactness",
        "speed",
        "profile",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_undertone-gpu-check"));
    command.args(["--machine", "emulator", "--small"]);
    steps.iter().for_each(|step| {
        command.args(["--only", step]);
    });
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<serde_json::Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("RESULT "))
        .map(|line| serde_json::from_str(line).expect("a document per line"))
        .collect();
    for step in steps {
        let line = lines.iter().find(|line| line["step"] == step).expect(step);
        assert_ne!(line.get("holds"), Some(&serde_json::Value::Bool(false)), "{line}");
        assert!(line.get("error").is_none(), "{line}");
    }
    let values = |step: &str, key: &str| {
        let line = lines.iter().find(|line| line["step"] == step).expect(step);
        line[key].as_u64().expect(key)
    };
    assert!(values("kernels", "values") > 10_000 && values("independence", "updates") > 100);
    assert!(values("exactness", "values") > 10_000);
}

#[test]
#[ignore = "slow"]
fn a_program_without_the_feature_says_how_to_get_a_gpu() {
    if cfg!(feature = "cuda") {
        return;
    }
    let program = env!("CARGO_BIN_EXE_undertone-gpu-check");
    let output = Command::new(program).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("--machine emulator"),
        "{said}"
    );
}
