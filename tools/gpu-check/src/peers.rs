//! Other programs on the same machine: PyTorch on the same shapes, and compute-sanitizer on these kernels.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../torch_peer.py");

/// Local training of the same shapes by `torch.func.vmap`, users side by side.
pub(crate) fn torch(small: bool) -> anyhow::Result<Value> {
    let mut command = Command::new("python3");
    command.arg("-").args(small.then_some("--small"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("python3 cannot be started")?;
    child
        .stdin
        .take()
        .context("python3 has no standard input")?
        .write_all(SCRIPT.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("nothing").to_owned();
        bail!("the peer in PyTorch failed: {last}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .last()
        .context("the peer in PyTorch printed nothing")?;
    serde_json::from_str(line).with_context(|| format!("the peer in PyTorch printed `{line}`"))
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
