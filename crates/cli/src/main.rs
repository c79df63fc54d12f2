//! The program `undertone`.

use std::process::ExitCode;

fn main() -> ExitCode {
    undertone_cli::run(std::env::args_os()).into()
}
