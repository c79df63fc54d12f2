//! Generates the Kotlin or Swift of a built library: `undertone-bindgen generate --language kotlin --out-dir DIR LIBRARY`.

fn main() {
    uniffi::uniffi_bindgen_main();
}
