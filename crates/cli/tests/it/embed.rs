//! Apps in C and Python that embed the device library and take part in a round of a real server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use undertone_protocol::{Board, Signed, limits, read};

use crate::federated::{Server, enrol, invitations, service_of, service_with};
use crate::support::{Folder, contains};

/// The example task with rounds of two devices.
pub(crate) const TWO_DEVICES: [(&str, &str); 3] = [
    ("users_per_round = 4", "users_per_round = 2"),
    ("target = 4, min = 3", "target = 2, min = 2"),
    ("over_selection = 1.25", "over_selection = 1.5"),
];

/// Changes of the example task that make its model as large as that of a phone.
const LARGE: [(&str, &str); 3] = [
    ("cells = 16", "cells = 670"),
    ("embedding = 8", "embedding = 96"),
    ("projection = 8", "projection = 96"),
];

const FLOORS: &str = "min_goal = 2\nmin_group = 2\nrequire_secagg = false\n";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../device-c")
}

/// The folder in which the build has put the libraries: that of this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().expect("a folder").to_owned();
    for name in ["libundertone_device_c.so", "libundertone_device_c.a"] {
        assert!(
            folder.join(name).exists(),
            "{name} is not in {}",
            folder.display()
        );
    }
    folder
}

fn found(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {text}\n{errors}", output.status);
    text
}

/// The settings of an app.
fn settings(folder: &Folder, server: &Server) -> Value {
    let keys: Value = serde_json::from_str(&folder.text("keys.json")).expect("JSON");
    json!({
        "server": server.url,
        "population": "demo",
        "client_version": 1,
        "keys": keys,
        "floors": { "min_goal": 2, "min_group": 2, "require_secagg": false },
    })
}

/// A service with rounds of two devices.
fn started() -> (Folder, Server) {
    let folder = service_of(&TWO_DEVICES);
    let server = Server::start(&folder, "--insecure");
    (folder, server)
}

/// Runs an app while another device takes part as well, until the app ends.
fn beside_another_device(folder: &Folder, app: impl FnOnce() -> Output) -> String {
    let is_over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                folder.succeed("device run --folder device-0");
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let output = app();
        is_over.store(true, Ordering::Relaxed);
        output
    });
    succeeded(&output)
}

/// A service with one device of the command line in `device-0`, the settings of an app, and an invitation for it.
pub(crate) fn prepared() -> (Folder, Server, String) {
    let (folder, server) = started();
    ready(folder, server)
}

/// The folder of [`prepared`], for a server that runs.
fn ready(folder: Folder, server: Server) -> (Folder, Server, String) {
    folder.write("federated-floors.toml", FLOORS);
    let both = invitations(&folder, 2);
    enrol(&folder, 0, &both[0], &server.url);
    folder.write("settings.json", settings(&folder, &server).to_string());
    folder.write(
        "texts.txt",
        "we walk to the sea every evening\nthe river was cold this morning\nher friend may start a new book\n".repeat(8),
    );
    folder.succeed("task activate federated --data service");
    (folder, server, both[1].clone())
}

/// The words and probabilities of lines such as `next word: sea 0.01`.
fn next_words(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("next word: "));
    lines
        .map(|line| {
            let (word, probability) = line.rsplit_once(' ').expect("a word and a probability");
            (word.to_owned(), probability.parse().expect("a number"))
        })
        .collect()
}

/// The command line predicts with the same model as the app.
fn compare_with_the_command_line(folder: &Folder, device: &str, words: &[(String, f64)]) {
    let settings = folder.text("settings.json");
    folder.write(&format!("{device}/settings.json"), settings);
    let mut command = folder.command_of(["device", "predict", "we walk to the", "--count", "3", "--json"]);
    let output = command
        .args(["--folder", device])
        .output()
        .expect("running undertone");
    let document: Value = serde_json::from_str(&succeeded(&output)).expect("JSON");
    let rows = document["words"].as_array().expect("a list");
    assert_eq!((rows.len(), words.len()), (3, 3), "{document}");
    for (row, (word, probability)) in rows.iter().zip(words) {
        assert_eq!(row["word"], **word);
        let got = row["probability"].as_f64().expect("a number");
        assert!((got - probability).abs() < 1e-5, "{document}");
    }
    let shown = folder.succeed(format!("device evaluate --folder {device}"));
    contains(&shown, "withheld examples ... loss ... nats per word");
    folder.refuse(
        format!("device predict --folder {device} the --task 12"),
        "--task must be 64 hexadecimal digits, got 2 characters",
    );
}

fn compile(folder: &Folder, name: &str, link: &[&str]) {
    let root = sources();
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-g",
            "-O1",
            "-I",
        ])
        .arg(root.join("include"))
        .arg(root.join("examples/keyboard.c"))
        .arg("-o")
        .arg(folder.path(name))
        .args(link)
        .output()
        .expect("running cc");
    succeeded(&output);
}

#[test]
#[ignore = "slow"]
fn a_c_program_takes_part_in_a_round_without_a_leak_and_predicts() {
    if !found("cc") {
        eprintln!("left out: no C compiler `cc` was found");
        return;
    }
    let (folder, _server, invitation) = prepared();
    let libraries = libraries();
    let place = libraries.to_str().expect("UTF-8");
    let run_path = format!("-Wl,-rpath,{place}");
    let shared = ["-L", place, "-lundertone_device_c", &run_path];
    compile(
        &folder,
        "keyboard",
        &[
            &shared[..],
            &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ]
        .concat(),
    );
    let text = beside_another_device(&folder, || {
        Command::new(folder.path("keyboard"))
            .args(["take-part", "app", "settings.json", &invitation, "texts.txt"])
            .env("ASAN_OPTIONS", "detect_leaks=1:halt_on_error=1")
            .current_dir(folder.path(""))
            .output()
            .expect("running the app")
    });
    contains(
        &text,
        "stage: training ... stage: sending ... session: the update was sent ... enrolled: yes ... took part: round ... evaluation: ... \
         and was answered",
    );
    let words = next_words(&text);
    compare_with_the_command_line(&folder, "app", &words);

    let archive = format!("{place}/libundertone_device_c.a");
    compile(
        &folder,
        "keyboard-static",
        &[&archive, "-lpthread", "-ldl", "-lm"],
    );
    let mut command = match found("valgrind") {
        true => {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--leak-check=full", "--show-leak-kinds=definite"]);
            command.args(["--errors-for-leak-kinds=definite", "--error-exitcode=9"]);
            command.arg(folder.path("keyboard-static"));
            command
        }
        false => {
            eprintln!("left out: no valgrind was found, so the static program runs without it");
            Command::new(folder.path("keyboard-static"))
        }
    };
    let output = command
        .args(["predict", "app", "settings.json", "we walk to the"])
        .current_dir(folder.path(""))
        .output()
        .expect("running the app");
    let again = next_words(&succeeded(&output));
    assert_eq!(again, words, "the static library predicts the same");
}

#[test]
#[ignore = "slow"]
fn a_python_program_takes_part_in_a_round_and_predicts() {
    if !found("python3") {
        eprintln!("left out: no `python3` was found");
        return;
    }
    let (folder, _server, invitation) = prepared();
    let text = beside_another_device(&folder, || {
        Command::new("python3")
            .args(["-X", "dev", "-W", "error"])
            .arg(sources().join("examples/keyboard.py"))
            .args(["app", "settings.json", &invitation, "texts.txt"])
            .env(
                "UNDERTONE_DEVICE_LIBRARY",
                libraries().join("libundertone_device_c.so"),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(folder.path(""))
            .output()
            .expect("running the app")
    });
    contains(
        &text,
        "enrolled: True; 24 texts ... session: the update was sent ... stages: BOARD ... TRAINING ... SENDING ... took part: round ... \
         evaluation:",
    );
    compare_with_the_command_line(&folder, "app", &next_words(&text));
}

/// The block of the guide in this language.
fn of_the_guide(language: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/embed-the-device.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let block = page
        .split(&format!("```{language}\n"))
        .nth(1)
        .expect("a block of the language");
    block.split("```").next().expect("its end").to_owned()
}

#[test]
#[ignore = "slow"]
fn the_programs_of_the_guide_are_the_two_devices_of_a_round() {
    if !found("cc") || !found("python3") {
        eprintln!("left out: it needs `cc` and `python3`");
        return;
    }
    let (folder, server) = started();
    let invitations = invitations(&folder, 2);
    let settings = settings(&folder, &server).to_string();
    folder.succeed("task activate federated --data service");
    folder.write("app.c", of_the_guide("c"));
    folder.write("app.py", of_the_guide("python"));
    let place = libraries();
    let linked = Command::new("cc")
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "app.c", "-o", "app", "-I",
        ])
        .arg(sources().join("include"))
        .arg("-L")
        .arg(&place)
        .arg("-lundertone_device_c")
        .arg(format!("-Wl,-rpath,{}", place.display()))
        .current_dir(folder.path(""))
        .output();
    succeeded(&linked.expect("running cc"));
    let visit_until_reported = |name: &str, mut command: Command, invitation: &str| {
        command
            .args([&format!("device-{name}"), &settings, invitation])
            .current_dir(folder.path(""));
        // The service lets a device come again after a second.
        for _ in 0..300 {
            let text = succeeded(&command.output().expect("running the app"));
            if text.contains("session: the update was sent") {
                assert_eq!(next_words(&text).len(), 3, "{text}");
                return;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        panic!("{name} never took part: {}", server.log());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| visit_until_reported("c", Command::new(folder.path("app")), &invitations[0]));
        let mut python = Command::new("python3");
        python
            .args(["-B", "app.py"])
            .env("PYTHONPATH", sources().join("python"))
            .env("UNDERTONE_DEVICE_LIBRARY", place.join("libundertone_device_c.so"));
        visit_until_reported("python", python, &invitations[1]);
    });
}

/// Waits until the board has a task, since a device that sees none comes again in an hour.
fn wait_for_a_task(server: &Server) {
    let address = format!("{}/v1/p/demo/board", server.url);
    server.wait_until(|| {
        let mut reply = ureq::get(&address)
            .header("undertone-protocol", "1")
            .call()
            .expect("the board");
        let bytes = reply.body_mut().read_to_vec().expect("the board");
        let signed: Signed = read("the board", &bytes, limits::MAX_MESSAGE).expect("signed bytes");
        let board: Board = read("the board", &signed.body, limits::MAX_MESSAGE).expect("a board");
        !board.tasks.is_empty()
    });
}

/// Max size of the library as apps ship it.
const MAX_LIBRARY: u64 = 9_000_000;

/// Max memory of an app beside four times its model.
const MAX_MEMORY: u64 = 40_000_000;

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "builds the library as apps ship it: 6 minutes"]
    fn the_library_as_shipped_is_small_and_so_is_its_memory() {
        let target = libraries().join("../../device-as-shipped");
        let built = Command::new(env!("CARGO"))
            .args([
                "rustc",
                "--profile",
                "device",
                "--offline",
                "--locked",
                "-p",
                "undertone-device-c",
                "--lib",
            ])
            .args(["--crate-type", "cdylib", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        succeeded(&built.expect("running cargo"));
        let place = target.join("device");
        let bytes = std::fs::metadata(place.join("libundertone_device_c.so"))
            .expect("the library")
            .len();
        eprintln!("library: {bytes} bytes");
        assert!(bytes <= MAX_LIBRARY, "{bytes} bytes");

        // The next-word model of a phone: 10,003 ids, a CIFG-LSTM of 670 cells.
        let words = include_str!("../../../../examples/federated-words.txt");
        let more = (0..)
            .map(|number: u32| format!("word{number}"))
            .take(10_000 - words.lines().count());
        let folder = service_with(
            &[&TWO_DEVICES[..], &LARGE].concat(),
            &[(
                "federated-words.txt",
                &format!("{words}{}\n", more.collect::<Vec<_>>().join("\n")),
            )],
        );
        let server = Server::start(&folder, "--insecure");
        let (folder, server, invitation) = ready(folder, server);
        wait_for_a_task(&server);
        let path = place.to_str().expect("UTF-8");
        compile(
            &folder,
            "keyboard",
            &["-L", path, "-lundertone_device_c", &format!("-Wl,-rpath,{path}")],
        );
        let text = beside_another_device(&folder, || {
            Command::new(folder.path("keyboard"))
                .args(["take-part", "app", "settings.json", &invitation, "texts.txt"])
                .current_dir(folder.path(""))
                .output()
                .expect("running the app")
        });
        let figure = |from: &str, unit: &str| -> u64 {
            let line = text
                .lines()
                .find_map(|line| line.split(from).nth(1))
                .expect("a line");
            line.split(unit)
                .next()
                .expect("a figure")
                .trim()
                .parse()
                .expect("a number")
        };
        let (model, peak) = (figure("sent ", " bytes"), 1024 * figure("peak memory: ", " KiB"));
        eprintln!("model: {model} bytes; peak memory of an app that trains: {peak} bytes");
        assert!(model > 8_000_000, "{model}");
        assert!(
            peak <= MAX_MEMORY + 4 * model,
            "{peak} bytes with a model of {model} bytes"
        );
    }
}

/// A C program and Python print the sizes of their structures, which must agree.
#[test]
fn the_structures_of_python_have_the_sizes_of_the_header() {
    if !found("cc") || !found("python3") {
        eprintln!("left out: it needs `cc` and `python3`");
        return;
    }
    let folder = Folder::new();
    let names = [
        "error",
        "host",
        "outcome",
        "state",
        "participation",
        "model",
        "evaluation",
        "prediction",
    ];
    let lines: String = names
        .iter()
        .map(|name| format!("printf(\"%zu\\n\", sizeof(ut_{name}));"))
        .collect();
    let program =
        format!("#include <stdio.h>\n#include \"undertone.h\"\nint main(void) {{ {lines} return 0; }}\n");
    folder.write("sizes.c", program);
    let include = sources().join("include");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-I"])
        .arg(&include)
        .arg(folder.path("sizes.c"))
        .arg("-o")
        .arg(folder.path("sizes"))
        .output();
    succeeded(&compiled.expect("running cc"));
    let of_c = succeeded(&Command::new(folder.path("sizes")).output().expect("running"));
    let classes: Vec<String> = names
        .iter()
        .map(|name| format!("u._{}{}", name[..1].to_uppercase(), &name[1..]))
        .collect();
    let code = format!(
        "import ctypes, undertone_device as u\nfor s in [{}]: print(ctypes.sizeof(s))",
        classes.join(",")
    );
    let of_python = Command::new("python3")
        .args(["-B", "-c", &code])
        .env("PYTHONPATH", sources().join("python"))
        .output();
    assert_eq!(succeeded(&of_python.expect("running python3")), of_c);
    // The header is one of C++ as well.
    if found("c++") {
        let checked = Command::new("c++")
            .args([
                "-std=c++17",
                "-Wall",
                "-Werror",
                "-fsyntax-only",
                "-x",
                "c++",
                "-I",
            ])
            .arg(&include)
            .arg(include.join("undertone.h"))
            .output();
        succeeded(&checked.expect("running c++"));
    }
}
