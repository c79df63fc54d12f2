use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use undertone_store::{ManualClock, Memory};

use super::*;

const DAYS: u64 = DAY;

/// A verifier that accepts `genuine:` with the challenge in hexadecimal digits, a colon and a name of the hardware.
#[derive(Debug, Clone, Copy, Default)]
struct TestAttestor;

impl TestAttestor {
    /// Evidence that this verifier accepts.
    fn evidence(challenge: &Digest32, hardware: &str) -> Vec<u8> {
        format!("genuine:{}:{hardware}", crate::identity::hex(challenge)).into_bytes()
    }
}

impl Attestor for TestAttestor {
    fn verify(&self, evidence: &[u8], challenge: &Digest32) -> Result<Passed, AttestError> {
        let start = Self::evidence(challenge, "");
        match evidence.strip_prefix(start.as_slice()) {
            Some(hardware) => Ok(Passed {
                hardware: (!hardware.is_empty()).then(|| digest_of(hardware)),
            }),
            None => Err(AttestError::Refused(
                "the evidence is not over this challenge".to_owned(),
            )),
        }
    }
}

fn member(number: u8) -> Member {
    Member {
        subject: [number; 32],
        device: [number ^ 0x80; 32],
        issuer: [9; 32],
    }
}

/// The refusal of a device with evidence of this hardware.
fn ask(rules: &Admissions, store: &dyn Store, who: u8, hardware: &str) -> Option<Problem> {
    let member = member(who);
    let evidence = TestAttestor::evidence(&challenge("people", &member.device), hardware);
    rules.attest(store, "people", &member, &evidence).err()
}

#[test]
fn evidence_of_another_device_or_population_is_refused() {
    let store = Memory::default();
    let rules = Admissions::new(Arc::new(TestAttestor));
    assert!(ask(&rules, &store, 1, "a").is_none());
    let (one, two) = (member(1), member(2));
    let of_one = TestAttestor::evidence(&challenge("people", &one.device), "a");
    for (population, member, evidence) in [
        ("people", &two, of_one.clone()),
        ("others", &one, of_one),
        ("people", &one, Vec::new()),
        ("people", &one, vec![b'g'; MAX_EVIDENCE + 1]),
        ("people", &one, b"genuine:".to_vec()),
    ] {
        let problem = rules.attest(&store, population, member, &evidence).unwrap_err();
        assert_eq!(problem.code(), Code::Attestation, "{}", problem.message);
    }
}

#[test]
fn one_piece_of_hardware_serves_a_limited_number_of_people() {
    let clock = ManualClock::at(1_800_000_000_000);
    let store = Memory::new(Arc::new(clock.clone()));
    let rules = Admissions::new(Arc::new(TestAttestor)).with_limits(100, 2);
    for _ in 0..3 {
        for who in [1, 2] {
            assert!(ask(&rules, &store, who, "phone").is_none());
        }
        // Repeating does not help the third one.
        let refused = ask(&rules, &store, 3, "phone").unwrap();
        assert_eq!(refused.code(), Code::Attestation);
        assert!(refused.message.contains("at most 2"), "{}", refused.message);
    }
    assert!(ask(&rules, &store, 3, "another").is_none());
    // Hardware without a name is not counted.
    for who in 4..9 {
        assert!(ask(&rules, &store, who, "").is_none());
    }
    clock.advance(61 * DAYS);
    store.sweep().unwrap();
    assert!(ask(&rules, &store, 3, "phone").is_none());
}

#[test]
fn an_issuer_enrols_a_limited_number_of_devices_per_day() {
    let clock = ManualClock::at(1_800_000_000_000);
    let store = Memory::new(Arc::new(clock.clone()));
    let rules = Admissions::default().with_limits(3, 1);
    let enrol = |issuer: u8, device: u8| {
        let device = [device; 32];
        rules.enrol(&store, &[issuer; 32], (&device, "a", &device))
    };
    for device in 0..3 {
        enrol(1, device).unwrap();
    }
    let refused = enrol(1, 3).unwrap_err();
    assert_eq!(refused.code(), Code::TooOften);
    assert!(refused.retry.is_some());
    enrol(2, 4).unwrap();
    // A device that has a row is not counted again.
    enrol(1, 0).unwrap();
    clock.advance(DAYS);
    enrol(1, 3).unwrap();
}

/// A verifier that counts its questions.
struct Counting(AtomicU32);

impl Attestor for Counting {
    fn verify(&self, evidence: &[u8], challenge: &Digest32) -> Result<Passed, AttestError> {
        self.0.fetch_add(1, Ordering::AcqRel);
        TestAttestor.verify(evidence, challenge)
    }
}

#[test]
fn accepted_evidence_is_judged_once_per_day_and_refused_evidence_each_time() {
    let clock = ManualClock::at(1_800_000_000_000);
    let store = Memory::new(Arc::new(clock.clone()));
    let verifier = Arc::new(Counting(AtomicU32::new(0)));
    let rules = Admissions::new(verifier.clone());
    let asked = |number: u32| assert_eq!(verifier.0.load(Ordering::Acquire), number);
    for _ in 0..5 {
        assert!(ask(&rules, &store, 1, "a").is_none());
    }
    asked(1);
    assert!(ask(&rules, &store, 2, "a").is_none());
    asked(2);
    clock.advance(DAYS);
    assert!(ask(&rules, &store, 1, "a").is_none());
    asked(3);
    for _ in 0..2 {
        rules.attest(&store, "people", &member(1), b"forged").unwrap_err();
    }
    asked(5);
}

#[test]
fn without_a_verifier_every_device_is_refused() {
    let refused = ask(&Admissions::default(), &Memory::default(), 1, "a").unwrap();
    assert_eq!(refused.code(), Code::Busy);
}

/// A web server that gives one answer to each of `requests` requests, and returns what it was asked.
fn server(answer: Vec<u8>, requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/verify", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = Vec::new();
            let mut buffer = [0; 4096];
            while !text.ends_with(b"}") {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "the question ended early");
                text.extend_from_slice(&buffer[..count]);
            }
            asked.push(String::from_utf8(text).unwrap());
            // A client that has read enough may be gone.
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (url, thread)
}

fn reply(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn verdict(answer: Vec<u8>) -> (Result<Passed, AttestError>, String) {
    let (url, thread) = server(answer, 1);
    let found = Webhook::new(&url, None).unwrap().verify(b"evidence", &[7; 32]);
    (found, thread.join().unwrap().remove(0))
}

#[test]
fn a_webhook_passes_what_its_verifier_passes_and_tells_it_no_subject() {
    let (found, asked) = verdict(reply("200 OK", r#"{"passed": true, "hardware": "abc"}"#));
    let hardware = found.unwrap().hardware.unwrap();
    assert!(asked.starts_with("POST /verify "), "{asked}");
    let body = asked.rsplit("\r\n\r\n").next().unwrap();
    let expected = format!(
        r#"{{"evidence":"{}","challenge":"{}"}}"#,
        crate::identity::hex(b"evidence"),
        "07".repeat(32)
    );
    assert_eq!(body, expected);
    let (again, _) = verdict(reply("200 OK", r#"{"passed": true, "hardware": "abc"}"#));
    assert_eq!(again.unwrap().hardware, Some(hardware));
    let (other, _) = verdict(reply("200 OK", r#"{"passed": true, "hardware": "fff"}"#));
    assert_ne!(other.unwrap().hardware, Some(hardware));
    let (none, _) = verdict(reply("200 OK", r#"{"passed": true}"#));
    assert_eq!(none.unwrap(), Passed { hardware: None });
    let (refused, _) = verdict(reply("200 OK", r#"{"passed": false, "reason": "rooted"}"#));
    assert_eq!(refused.unwrap_err(), AttestError::Refused("rooted".to_owned()));
}

#[test]
fn a_webhook_fails_closed() {
    let long = format!(r#"{{"passed": true, "hardware": "{}"}}"#, "a".repeat(300));
    let huge = format!(r#"{{"passed": true, "reason": "{}"}}"#, "a".repeat(8192));
    for answer in [
        reply("500 Internal Server Error", r#"{"passed": true}"#),
        reply("302 Found", r#"{"passed": true}"#),
        reply("204 No Content", ""),
        reply("200 OK", ""),
        reply("200 OK", "true"),
        reply("200 OK", r#"{"passed": "yes"}"#),
        reply("200 OK", r#"{"passed": true, "admin": true}"#),
        reply("200 OK", &long),
        reply("200 OK", &huge),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"passed\": true}".to_vec(),
        b"not http at all".to_vec(),
    ] {
        let shown = String::from_utf8_lossy(&answer)
            .chars()
            .take(80)
            .collect::<String>();
        let (found, _) = verdict(answer);
        assert!(
            matches!(found, Err(AttestError::Unavailable(_))),
            "{shown}: {found:?}"
        );
    }
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hook = Webhook::new(&format!("http://{closed}/"), None).unwrap();
    assert!(matches!(
        hook.verify(b"e", &[0; 32]),
        Err(AttestError::Unavailable(_))
    ));
}

#[test]
fn a_webhook_is_on_this_machine_or_behind_tls() {
    for good in [
        "https://verify.example.org/v1",
        "http://127.0.0.1:99/",
        "http://[::1]/",
        "http://localhost/",
    ] {
        assert!(Webhook::new(good, None).is_ok(), "{good}");
    }
    for bad in [
        "http://verify.example.org/",
        "ftp://127.0.0.1/",
        "verify",
        "",
        "http://127.0.0.1.example.org/",
    ] {
        let error = Webhook::new(bad, None).unwrap_err().to_string();
        assert!(error.contains("https://"), "{error}");
    }
    assert!(Webhook::new("https://a.example/", Some(b"no certificate")).is_err());
}
