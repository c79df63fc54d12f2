//! The committed header is the one of the code.

use std::path::Path;

/// Writes the header again where this variable is set, instead of comparing it.
const REGENERATE: &str = "UNDERTONE_REGENERATE";

const INTRODUCTION: &str = "\
/*
 * The device of Undertone's federated service, for C and for every language that calls C.
 *
 * Addresses: each is null or valid, as its function says. A null address that must not be null gives UT_NULL.
 * Strings: UTF-8 with a zero byte at the end. Other bytes give UT_UTF8.
 * Threads: any thread may call any function. One call at a time works on a device, and another one returns UT_BUSY at once.
 *   ut_device_stop and ut_device_set_unmet never wait. ut_device_close and ut_device_forget stop the session and wait for its end.
 * Memory: the library owns none of the caller's, and hands out none that the caller frees. Handles are closed.
 *
 * Made from the code by `tests/it/header.rs` of the crate `undertone-device-c`; run that test with UNDERTONE_REGENERATE=1 after a change.
 */";

fn generated(root: &Path) -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(INTRODUCTION.to_owned()),
        include_guard: Some("UNDERTONE_H".to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        cpp_compat: true,
        usize_is_size_t: true,
        line_length: 132,
        style: cbindgen::Style::Both,
        ..cbindgen::Config::default()
    };
    config.documentation_style = cbindgen::DocumentationStyle::C;
    // cbindgen follows the modules that `lib.rs` declares.
    let builder = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"));
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    // What the Rust side calls safety is said about addresses here.
    text.replace(" * # Safety\n", " * Addresses:\n")
}

#[test]
fn the_header_is_that_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/undertone.h");
    let generated = generated(root);
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is not what the code gives; run this test with {REGENERATE}=1",
        path.display()
    );
}

#[test]
fn every_exported_function_is_once_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/undertone.h")).unwrap();
    let mut number = 0;
    for file in std::fs::read_dir(root.join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let line = part.trim_start().lines().next().unwrap();
            let name = line.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            let declared = [" ", "*"].map(|before| header.matches(&format!("{before}{name}(")).count());
            assert_eq!(declared.iter().sum::<usize>(), 1, "{name}");
            number += 1;
        }
    }
    assert!(number >= 20, "{number} functions");
}
