//! The check of a GPU, on the emulator.

mod emulator;
