//! The demonstration on a terminal, where the dashboard stays until Ctrl-C.

use std::fs::File;
use std::os::fd::FromRawFd;

use super::*;

/// The two ends of a terminal: that of the test, and that of a program.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (0, 0);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: both places are there to be written, and no name, settings or size is asked for.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, name, settings, size) };
    assert_eq!(opened, 0, "no terminal");
    // SAFETY: both were opened above, and nobody else has them.
    unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) }
}

/// The status and the body of the answer to a request.
fn ask(host: &str, request: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(host).expect("a connection");
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("sending");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.lines().next().unwrap_or_default().to_owned(),
        body.to_owned(),
    )
}

#[test]
#[ignore = "slow"]
fn on_a_terminal_the_dashboard_stays_after_the_last_round_until_ctrl_c() {
    let folder = folder();
    let (screen, theirs) = terminal();
    let mut child = folder
        .command("serve --demo --rounds 2 --pace 0")
        .stdout(Stdio::piped())
        .stderr(theirs)
        .spawn()
        .expect("starting");
    let mut lines = BufReader::new(screen).lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("the dashboard stays until Ctrl-C")),
        "it ended"
    );
    let link = lines.find(|line| line.contains("#code=")).expect("a link");
    let (host, code) = link
        .trim()
        .strip_prefix("http://")
        .and_then(|link| link.split_once("/#code="))
        .expect("a link on a line of its own");
    assert_eq!(code.len(), 22, "{link}");
    let next: Vec<String> = lines
        .by_ref()
        .take_while(|line| !line.contains("undertone report"))
        .collect();
    let predict = "undertone predict undertone-demo/run";
    assert!(next.iter().any(|line| line.contains(predict)), "{next:?}");
    contains(&ask(host, "GET /", "").0, "200");
    let body = serde_json::json!({ "code": code }).to_string();
    let (status, session) = ask(host, "POST /api/session", &body);
    contains(&status, "200");
    contains(&session, "token");
    assert!(child.try_wait().expect("waiting").is_none(), "ended too early");
    let process = libc::pid_t::try_from(child.id()).expect("a process");
    // SAFETY: `kill` touches no memory, and the process is a child that was not waited for.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    let output = child.wait_with_output().expect("waiting");
    assert!(output.status.success(), "{}", output.status);
    contains(&String::from_utf8_lossy(&output.stdout), "verified");
    folder.succeed("verify undertone-demo/run");
    let lines = folder.lines("undertone-demo/run/metrics.jsonl");
    let measured: Vec<_> = lines.iter().filter(|line| line["kind"] == "evaluation").collect();
    let rounds: Vec<_> = measured
        .iter()
        .filter_map(|line| line["round"].as_u64())
        .collect();
    assert_eq!(
        (rounds.first(), rounds.last()),
        (Some(&0), Some(&2)),
        "{rounds:?}"
    );
    contains(&folder.text("undertone-demo/run/report.html"), "accuracy");
}
