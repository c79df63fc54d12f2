//! Runs the blocks of a page in one shell.
//!
//! The folder of the shell holds links to the files of the repository, and `undertone` is the program that these tests have built. What a
//! page does outside of that folder would be a fault of the page: `HOME` is a folder of its own. Fixed ports become free ones.

use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::block::{Block, Duty};
use crate::settings;

/// The time that a page may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(540);

/// Lines of output that a failure shows.
const SHOWN: usize = 40;

/// The start of each script.
///
/// `begin` sends the output of a block to files. `beside` runs a server beside the later blocks, and waits until it listens.
const PRELUDE: &str = r#"
set -eE -o pipefail
trap 'echo "$block" >>"$LOGS/failed"' ERR
begin() {
  block=$1
  echo "$1 $(date +%s)" >>"$LOGS/times"
  export PAGE_TRAIN=$2 PAGE_PRETRAIN=$3
  exec >"$LOGS/$1.out" 2>"$LOGS/$1.err"
}
listens() {
  for _ in $(seq 600); do
    if grep -q 'listening to devices' "$LOGS/$1.err" 2>/dev/null; then return 0; fi
    if ! kill -0 "$2"; then return 1; fi
    sleep 0.1
  done
  return 1
}

# Writes invented texts: `posts FILE USERS USER_COLUMN TEXT_COLUMN` as JSON lines, and `public_text FILE` as plain ones.
sentences() {
  awk -v users="$1" -v begin="$2" -v end="$3" 'BEGIN {
    count = split("the ferry did not run today but we walk to sea every evening and river was cold this morning how are you", words, " ")
    srand(1)
    for (user = 1; user <= users; user++) for (post = 0; post < 6; post++) {
      printf begin, user
      for (place = 0; place < 8; place++) printf "%s ", words[int(rand() * count) + 1]
      print end
    }
  }'
}
posts() { sentences "$2" "{\"$3\": \"person %d\", \"$4\": \"" '"}' >"$1"; }
public_text() { sentences 40 "" "" >"$1"; }

# Trains a model of this name in a second, from the file `run.toml`.
tiny() {
  cat >run.toml <<END
name = "$1"
rounds = 4
[data]
source = { kind = "synthetic", users = 300, words = 60 }
[model]
family = "tied_lstm"
embed = 8
hidden = 12
[cohort]
sampling = "poisson"
users_per_round = 20
[user_update]
algorithm = "fedavg"
batch_size = 4
learning_rate = 1.0
max_examples = 8
[clip]
kind = "flat"
norm = 1.0
[privacy]
noise_multiplier = 1.0
delta = 1e-4
[evaluation]
every = 2
END
  undertone train run.toml
}
"#;

/// A stand-in for `undertone` that shortens trainings as a block asks.
const UNDERTONE: &str = r#"#!/bin/sh
case $1 in
  train) exec PROGRAM "$@" $PAGE_TRAIN ;;
  pretrain) exec PROGRAM "$@" $PAGE_PRETRAIN ;;
esac
exec PROGRAM "$@"
"#;

/// A stand-in for `cargo`, since the tests have built the program.
const CARGO: &str = r#"#!/bin/sh
case $1 in
  try) shift; exec undertone "$@" ;;
esac
echo "cargo $*: the tests of the pages know \`cargo try\` alone" >&2
exit 1
"#;

/// Writes an SQLite file with the posts of twelve authors.
fn database(path: &Path) -> rusqlite::Result<()> {
    let database = rusqlite::Connection::open(path)?;
    database.execute_batch("create table posts (author text, body text, at integer)")?;
    for author in 0..12 {
        let row = (
            format!("author {author}"),
            "The ferry is late again today.",
            1_717_588_800 + author,
        );
        database.execute("insert into posts values (?, ?, ?)", row)?;
    }
    Ok(())
}

/// Runs the blocks of a page after some commands, and checks what the page says is printed.
pub(crate) fn run(page: &str, before: &str, blocks: &[Block]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name);
    for name in ["logs", "bin", "work", "home/.cargo/registry"] {
        std::fs::create_dir_all(place(name)).expect("a folder");
    }
    // The pages take it for the packages that cargo has downloaded.
    symlink(
        crate::root().join("crates/cli"),
        place("home/.cargo/registry/src"),
    )
    .expect("a link");
    link_the_repository(&place("work"));
    let program = env!("CARGO_BIN_EXE_undertone");
    write_script(&place("bin/undertone"), &UNDERTONE.replace("PROGRAM", program));
    write_script(&place("bin/cargo"), CARGO);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(place("work/cert.pem"), made.cert.pem()).expect("a certificate");
    std::fs::write(place("work/key.pem"), made.signing_key.serialize_pem()).expect("a key");
    database(&place("work/posts.db")).expect("a database");
    let script = script(before, blocks, &place("logs"));
    std::fs::write(place("script"), free_ports(&script)).expect("the script");

    let started = Instant::now();
    let mut shell = Command::new("bash")
        .arg(place("script"))
        .current_dir(place("work"))
        .env("LOGS", place("logs"))
        .env("HOME", place("home"))
        .env("TMPDIR", place("home"))
        .env(
            "PATH",
            format!(
                "{}:{}",
                place("bin").display(),
                std::env::var("PATH").unwrap_or_default()
            ),
        )
        .env_remove("UNDERTONE_DATA")
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("bash");
    let status = loop {
        if let Some(status) = shell.try_wait().expect("waiting") {
            break Some(status);
        }
        if started.elapsed() > PATIENCE {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let failed = std::fs::read_to_string(place("logs/failed")).unwrap_or_default();
    // Servers and devices that the page has started are in the group of its shell.
    end_group(&mut shell);
    println!(
        "{page}: {:.1} s{}",
        started.elapsed().as_secs_f64(),
        slow(blocks, &read(&place("logs/times")))
    );
    if let Some(number) = failed.split_whitespace().next() {
        panic!("{}", account(blocks, number, &place("logs")));
    }
    match status {
        None => panic!(
            "{page}: {} s are over\n{}",
            PATIENCE.as_secs(),
            newest(&place("logs"))
        ),
        Some(status) => assert!(status.success(), "{page}: {status}\n{}", newest(&place("logs"))),
    }
    for (number, block) in blocks.iter().enumerate() {
        if block.has("printed") {
            let before = number
                .checked_sub(1)
                .filter(|before| blocks[*before].language == "sh");
            let before = before.unwrap_or_else(|| panic!("{}: no command stands before it", block.place()));
            let output = |kind: &str| read(&place("logs").join(format!("{before}.{kind}")));
            is_printed(block, &(output("out") + &output("err")));
        }
    }
}

/// The script of a page: the blocks in their order.
fn script(before: &str, blocks: &[Block], logs: &Path) -> String {
    let mut script = format!("{PRELUDE}\nbegin before '' ''\n{before}\nbegin page '' ''\n");
    for (number, block) in blocks.iter().enumerate() {
        if block.duty() != Ok(Duty::Run) {
            continue;
        }
        match block.language.as_str() {
            "sh" if block.has("beside") => {
                let text = &block.text;
                let _ = write!(
                    script,
                    "( begin {number} '' ''\n{text}) &\nserver=$!\ndisown $server\nlistens {number} $server\n"
                );
            }
            "sh" => {
                let set = |word: &str| {
                    block
                        .values(word)
                        .map(|change| format!("--set {change} "))
                        .collect::<String>()
                };
                let (train, pretrain) = (set("train="), set("pretrain="));
                let mut text = block.text.clone();
                for swap in block.values("swap=") {
                    let (old, new) = swap.split_once(':').expect("`swap=OLD:NEW`");
                    assert!(text.contains(old), "{}: the block has no {old}", block.place());
                    text = text.replace(old, new);
                }
                let _ = write!(script, "begin {number} '{train}' '{pretrain}'\n{text}");
            }
            "toml" | "json" => {
                if let Some(base) = block.value("in=") {
                    settings::check_tables(block, base);
                } else {
                    settings::check_syntax(block);
                }
                if let Some(name) = block.value("file=") {
                    let later = &blocks[number..];
                    let is_read = later
                        .iter()
                        .any(|later| later.language == "sh" && later.text.contains(name));
                    assert!(is_read, "{}: no later command names {name}", block.place());
                    let copy = logs.join(format!("{number}.file"));
                    std::fs::write(&copy, &block.text).expect("a file of the page");
                    let _ = writeln!(script, "cp {} {name}", copy.display());
                }
            }
            _ => {}
        }
    }
    script + "begin end '' ''\n"
}

/// The blocks that took more than five seconds, from the starts of all blocks.
fn slow(blocks: &[Block], times: &str) -> String {
    let mut text = String::new();
    let starts: Vec<(&str, u64)> = times
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(number, at)| Some((number, at.parse().ok()?)))
        .collect();
    for pair in starts.windows(2) {
        let took = pair[1].1.saturating_sub(pair[0].1);
        if took > 5 {
            let line = pair[0]
                .0
                .parse()
                .ok()
                .and_then(|number: usize| blocks.get(number))
                .map_or(0, |block| block.line);
            let _ = write!(text, "; line {line}: {took} s");
        }
    }
    text
}

/// The page's ports of this machine, as free ones. A port has the same new number everywhere on the page.
fn free_ports(script: &str) -> String {
    let mut text = script.to_owned();
    let mut kept = Vec::new();
    for port in ["8440", "8441"] {
        // The listener stays open until all numbers are chosen, so that they differ.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let free = listener.local_addr().expect("its address").port();
        text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
        kept.push(listener);
    }
    text
}

/// Asserts that each line of a block is a line of the output, up to white space.
fn is_printed(block: &Block, output: &str) {
    let flat = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = output.lines().map(flat).collect();
    for line in block.text.lines().map(flat).filter(|line| !line.is_empty()) {
        assert!(
            lines.contains(&line),
            "{}: the command before it does not print: {line}\n--- output\n{output}",
            block.place()
        );
    }
}

fn link_the_repository(folder: &Path) {
    for entry in std::fs::read_dir(crate::root()).expect("the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        let is_output = ["target", "runs", "dist", ".git"]
            .iter()
            .any(|output| name == *output);
        if !is_output {
            symlink(&path, folder.join(name)).expect("a link");
        }
    }
}

fn write_script(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a script");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn end_group(shell: &mut std::process::Child) {
    let group = i32::try_from(shell.id()).expect("the number of a process");
    // SAFETY: the call sends a signal to the group of a shell that this test has started, and touches no memory.
    let sent = unsafe { libc::kill(-group, libc::SIGTERM) };
    if sent == 0 {
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: as above.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = shell.wait();
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// The failure of a block: its place, its commands and the end of its output.
fn account(blocks: &[Block], number: &str, logs: &Path) -> String {
    let block = number.parse().ok().and_then(|number: usize| blocks.get(number));
    let (place, text) = block.map_or(("the commands before the page".to_owned(), ""), |block| {
        (block.place(), &block.text)
    });
    format!("{place}: a command failed\n{text}{}", tail(logs, number))
}

fn tail(logs: &Path, number: &str) -> String {
    let text = read(&logs.join(format!("{number}.out"))) + &read(&logs.join(format!("{number}.err")));
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(SHOWN);
    format!("--- output\n{}", lines[from..].join("\n"))
}

/// The end of the output that was written last.
fn newest(logs: &Path) -> String {
    let files = std::fs::read_dir(logs).expect("the logs").flatten();
    let newest = files.max_by_key(|file| file.metadata().and_then(|facts| facts.modified()).ok());
    let name = newest
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .unwrap_or_default();
    tail(logs, name.split('.').next().unwrap_or_default())
}
