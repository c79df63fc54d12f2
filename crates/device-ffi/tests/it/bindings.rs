//! The generated Kotlin and Swift: they have the whole interface, and the C header between them compiles.

use std::process::Command;

use crate::support::{found, generate, succeeded};

/// Names of the interface as Kotlin and Swift spell them.
const METHODS: [&str; 17] = [
    "open",
    "enrol",
    "renew",
    "add",
    "clear",
    "run",
    "stop",
    "setUnmet",
    "state",
    "participations",
    "models",
    "evaluate",
    "predictor",
    "forget",
    "model",
    "predict",
    "isMet",
];

#[test]
fn kotlin_has_every_method_of_the_interface() {
    let folder = tempfile::tempdir().expect("a folder");
    generate("kotlin", folder.path());
    let file = folder.path().join("dev/undertone/device/undertone_device_ffi.kt");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(text.contains("package dev.undertone.device"));
    for method in METHODS {
        let spelled = [format!("fun `{method}`("), format!("fun {method}(")];
        assert!(spelled.iter().any(|name| text.contains(name)), "{method}");
    }
    for class in [
        "class Device",
        "class Predictor",
        "interface Host",
        "interface Keys",
        "sealed class Failure",
    ] {
        assert!(text.contains(class), "{class}");
    }
}

#[test]
fn swift_has_every_method_and_calls_functions_of_its_header_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    generate("swift", folder.path());
    let read = |name: &str| {
        let path = folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (text, header) = (read("Undertone.swift"), read("UndertoneFFI.h"));
    for method in METHODS {
        let spelled = [format!("func `{method}`("), format!("func {method}(")];
        assert!(spelled.iter().any(|name| text.contains(name)), "{method}");
    }
    let mut number = 0;
    for part in text.split("uniffi_undertone_device_ffi_fn_").skip(1) {
        let name: String = part
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        assert!(
            header.contains(&format!("uniffi_undertone_device_ffi_fn_{name}(")),
            "{name}"
        );
        number += 1;
    }
    assert!(number >= METHODS.len(), "{number} calls");
    assert!(read("UndertoneFFI.modulemap").contains("UndertoneFFI.h"));
    if !found("cc") {
        eprintln!("left out: no C compiler `cc` was found");
        return;
    }
    let program = folder.path().join("check.c");
    std::fs::write(&program, "#include \"UndertoneFFI.h\"\n").expect("writing a file");
    // Two words of Clang, which other compilers do not know.
    let checked = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Werror",
            "-D_Nonnull=",
            "-D_Nullable=",
            "-fsyntax-only",
        ])
        .arg(&program)
        .output();
    succeeded(&checked.expect("running cc"));
    if !found("swiftc") {
        eprintln!("left out: no Swift compiler `swiftc` was found");
        return;
    }
    let checked = Command::new("swiftc")
        .args(["-typecheck", "-parse-as-library", "-I"])
        .arg(folder.path())
        .arg(folder.path().join("Undertone.swift"))
        .output();
    succeeded(&checked.expect("running swiftc"));
}
