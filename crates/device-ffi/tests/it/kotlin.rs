//! The app in Kotlin takes part in a round of a real server.
//!
//! It needs a Kotlin compiler, a Java machine, the library JNA and the program `undertone`. The script `.ci/device-ffi` gets them all.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{found, generate, libraries, succeeded};

/// The tools of the test, or the first that is missing.
struct Tools {
    kotlinc: String,
    jna: PathBuf,
    undertone: PathBuf,
}

impl Tools {
    fn find() -> Result<Self, &'static str> {
        let kotlinc = std::env::var("UNDERTONE_KOTLINC").unwrap_or_else(|_| "kotlinc".to_owned());
        let jna = std::env::var("UNDERTONE_JNA").unwrap_or_else(|_| "/usr/share/java/jna.jar".to_owned());
        let jna = PathBuf::from(jna);
        let answers = Command::new(&kotlinc)
            .arg("-version")
            .output()
            .is_ok_and(|output| output.status.success());
        if !answers {
            return Err("a Kotlin compiler, named by UNDERTONE_KOTLINC");
        }
        if !found("java") {
            return Err("`java`");
        }
        if !jna.exists() {
            return Err("the library JNA, named by UNDERTONE_JNA");
        }
        let undertone =
            std::env::var_os("UNDERTONE_BIN").ok_or("the program `undertone`, named by UNDERTONE_BIN")?;
        Ok(Self {
            kotlinc,
            jna,
            undertone: undertone.into(),
        })
    }

    /// A command of `undertone` in a folder.
    fn undertone(&self, folder: &Path, line: &str) -> Command {
        let mut command = Command::new(&self.undertone);
        command
            .args(line.split_whitespace())
            .current_dir(folder)
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn succeed(&self, folder: &Path, line: &str) -> String {
        succeeded(&self.undertone(folder, line).output().expect("running undertone"))
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server, and returns its address.
fn serve(tools: &Tools, folder: &Path) -> (Server, String) {
    let mut child = tools
        .undertone(folder, "serve --data service --listen 127.0.0.1:0 --insecure")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starting the server");
    let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
    let server = Server(child);
    let url = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening to devices at ").map(str::to_owned))
        .expect("the server ended");
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (server, url)
}

/// A service whose rounds have two devices, in a folder with the settings of an app.
fn prepare(tools: &Tools, folder: &Path) -> (Server, [String; 2]) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let read = |name: &str| std::fs::read_to_string(examples.join(name)).expect(name);
    let mut task = read("federated.toml");
    for (from, to) in [
        ("users_per_round = 4", "users_per_round = 2"),
        ("target = 4, min = 3", "target = 2, min = 2"),
        ("over_selection = 1.25", "over_selection = 1.5"),
    ] {
        assert!(task.contains(from), "{from}");
        task = task.replace(from, to);
    }
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect(name);
    write("federated.toml", task);
    write("federated-words.txt", read("federated-words.txt"));
    write(
        "floors.toml",
        "min_goal = 2\nmin_group = 2\nrequire_secagg = false\n".to_owned(),
    );
    let texts = "we walk to the sea every evening\nthe river was cold this morning\nher friend may start a new book\n";
    write("texts.txt", texts.repeat(8));
    tools.succeed(
        folder,
        "task create federated.toml --data service --population demo",
    );
    tools.succeed(folder, "identity keys --data service --out keys.json");
    let (server, url) = serve(tools, folder);
    let issued = tools.succeed(
        folder,
        "identity issue --data service --population demo --count 3 --json",
    );
    let issued: Value = serde_json::from_str(&issued).expect("JSON");
    let invitation = |place: usize| issued["invitations"][place].as_str().expect("text").to_owned();
    tools.succeed(
        folder,
        &format!(
            "device enrol --folder device-0 --server {url} --population demo --keys keys.json --floors floors.toml \
             --invitation {}",
            invitation(0)
        ),
    );
    tools.succeed(folder, "device add --folder device-0 texts.txt");
    let keys: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("keys.json")).expect("keys"))
        .expect("JSON");
    let settings = json!({
        "server": url,
        "population": "demo",
        "client_version": 1,
        "keys": keys,
        "floors": { "min_goal": 2, "min_group": 2, "require_secagg": false },
    });
    write("settings.json", settings.to_string());
    tools.succeed(folder, "task activate federated --data service");
    (server, [invitation(1), invitation(2)])
}

/// The program of the guide, in a package of its own.
fn of_the_guide() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/embed-the-device.md");
    let page = std::fs::read_to_string(&path).expect("the guide");
    let block = page.split("```kotlin\n").nth(1).expect("a block of Kotlin");
    format!("package guide\n\n{}", block.split("```").next().expect("its end"))
}

#[test]
fn an_app_in_kotlin_takes_part_in_a_round_and_predicts() {
    let tools = match Tools::find() {
        Ok(tools) => tools,
        Err(missing) => {
            assert!(
                std::env::var_os("UNDERTONE_REQUIRE_KOTLIN").is_none(),
                "{missing} is missing"
            );
            eprintln!("left out: {missing} was not found");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    generate("kotlin", folder);
    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("kotlin/Keyboard.kt");
    std::fs::write(folder.join("Guide.kt"), of_the_guide()).expect("writing the program of the guide");
    let compiled = Command::new(&tools.kotlinc)
        .args(["-nowarn", "-include-runtime", "-d", "keyboard.jar", "-cp"])
        .arg(&tools.jna)
        .arg("dev/undertone/device/undertone_device_ffi.kt")
        .arg(&app)
        .arg("Guide.kt")
        .current_dir(folder)
        .output();
    succeeded(&compiled.expect("running kotlinc"));
    let (_server, [invitation, second]) = prepare(&tools, folder);
    let java = |arguments: &[&str]| {
        Command::new("java")
            .arg(format!("-Djna.library.path={}", libraries().display()))
            .arg("-cp")
            .arg(format!("keyboard.jar:{}", tools.jna.display()))
            .args(arguments)
            .current_dir(folder)
            .output()
            .expect("running java")
    };
    let is_over = AtomicBool::new(false);
    let settings = std::fs::read_to_string(folder.join("settings.json")).expect("settings");
    let (output, guide) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                tools.succeed(folder, "device run --folder device-0");
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let guide = scope.spawn(|| java(&["guide.GuideKt", "guide", &settings, &second]));
        let output = java(&["KeyboardKt", "app", "settings.json", &invitation, "texts.txt"]);
        let guide = guide.join().expect("the program of the guide");
        is_over.store(true, Ordering::Relaxed);
        (output, guide)
    });
    let visit = succeeded(&guide);
    assert!(visit.starts_with("session: "), "{visit}");
    assert!(
        visit.contains("next word: ") || visit.contains("no session has brought a model yet"),
        "{visit}"
    );
    let text = succeeded(&output);
    for part in [
        "refused: the key store: the key store is locked",
        "is open in another process",
        "enrolled: true",
        "session: the update was sent",
        "stages: BOARD",
        "TRAINING",
        "SENDING",
        "took part: round",
        "evaluation: ",
    ] {
        assert!(text.contains(part), "expected {part:?} in {text}");
    }
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("next word: "))
            .count(),
        3,
        "{text}"
    );
    assert!(!folder.join("app/keys").exists(), "the keys are those of the app");
}
