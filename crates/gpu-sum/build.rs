//! Compiles the kernels for the emulator.

fn main() {
    println!("cargo::rerun-if-changed=kernels/bound.c");
    cc::Build::new()
        .file("kernels/bound.c")
        .opt_level(2)
        .warnings(true)
        .compile("undertone_bound");
}
