//! The checked-in types are those of the schema.

use std::path::Path;

/// Writes the types again where this variable is set, instead of comparing them.
const REGENERATE: &str = "UNDERTONE_REGENERATE";

/// PRIVACY: these name a subject or hold a secret, so what prints them prints nothing of it.
const SECRET: [&str; 5] = ["Enrol", "Certificate", "SessionKeys", "CheckIn", "Assignment"];

#[test]
fn the_types_are_those_of_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = protox::compile(["undertone.proto"], [root.join("proto")]).unwrap();
    let package = prost_build::Module::from_protobuf_package_name("undertone.v1");
    let modules = prost_build::Config::new()
        .skip_debug(SECRET.map(|name| format!(".undertone.v1.{name}")))
        .generate(
            schema
                .file
                .into_iter()
                .map(|file| (package.clone(), file))
                .collect(),
        )
        .unwrap();
    let generated = format!(
        "// Made from `proto/undertone.proto` by `src/tests/generated.rs`; run that test with {REGENERATE}=1 after a change.\n{}",
        modules[&package]
    );
    let path = root.join("src/generated.rs");
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is not what the schema gives; run this test with {REGENERATE}=1",
        path.display()
    );
}
