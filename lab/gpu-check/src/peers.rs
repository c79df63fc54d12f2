//! Other programs on the same machine: PyTorch on the same shapes, and compute-sanitizer on these kernels.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::Arguments;

const SCRIPT: &str = include_str!("../torch_peer.py");

/// Local training of the same shapes by `torch.func.vmap`, users side by side. Each line of the peer is printed at once.
pub(crate) fn torch(arguments: &Arguments) -> anyhow::Result<Value> {
    let mut command = Command::new("python3");
    command.arg("-").args(arguments.small.then_some("--small"));
    if let Some(model) = &arguments.model {
        command.args(["--model", model]);
    }
    if let Some(users) = arguments.users {
        command.args(["--users", &users.to_string()]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 cannot be started")?;
    child
        .stdin
        .take()
        .context("python3 has no standard input")?
        .write_all(SCRIPT.as_bytes())?;
    let output = child.stdout.take().context("python3 has no standard output")?;
    let mut last = String::new();
    for line in BufReader::new(output).lines() {
        last = line?;
        println!("torch {last}");
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the peer in PyTorch ended with {status}");
    }
    serde_json::from_str(&last).with_context(|| format!("the peer in PyTorch printed `{last}`"))
}

/// memcheck and racecheck over the kernels of a small run.
pub(crate) fn sanitizer(on_gpu: bool) -> anyhow::Result<Value> {
    if !on_gpu {
        return Ok(json!({"left_out": "the emulator has no kernels of a GPU"}));
    }
    let program = std::env::current_exe()?;
    let mut tools = serde_json::Map::new();
    let mut holds = true;
    for tool in ["memcheck", "racecheck"] {
        let arguments = [
            "--machine",
            "gpu",
            "--small",
            "--only",
            "kernels",
            "--only",
            "exactness",
        ];
        let mut command = Command::new("compute-sanitizer");
        command
            .args(["--tool", tool, "--error-exitcode", "9"])
            .arg(&program)
            .args(arguments);
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                return Ok(json!({"left_out": format!("compute-sanitizer cannot be started: {error}")}));
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let summary = text
            .lines()
            .rfind(|line| line.contains("SUMMARY"))
            .unwrap_or("no summary");
        tools.insert(tool.to_owned(), json!(summary.trim_start_matches('=').trim()));
        holds &= output.status.success();
    }
    Ok(json!({"tools": tools, "holds": holds}))
}
