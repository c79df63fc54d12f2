//! Compiles the kernels for the emulator.

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    cc::Build::new()
        .file("kernels/all.c")
        // The next level makes the code half as large again, and the emulator no faster.
        .opt_level(2)
        .std("c11")
        // A product and a sum are fused only where the source says so. Otherwise two machines could round differently.
        .flag("-ffp-contract=off")
        .flag("-fno-math-errno")
        .warnings(true)
        .compile("undertone_training");
}
