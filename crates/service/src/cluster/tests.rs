use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use undertone_store::{Memory, TaskHolder};

use super::*;
use crate::http::Listener;

fn cluster(name: &str, store: &Arc<Memory>, runtime: &tokio::runtime::Runtime) -> Cluster {
    let (_, peers) = runtime
        .block_on(async { identity(&Keys::from_root([1; 32])) })
        .unwrap();
    let config = ClusterConfig::new("127.0.0.1:0");
    let store: Arc<dyn Store> = store.clone();
    let url = format!("https://{name}.example");
    Cluster::join(name, url, &config, store, peers, runtime.handle().clone()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn processes_answer_those_that_have_a_certificate_of_the_same_keys_alone() {
    let runtime = runtime();
    runtime.block_on(async {
        let (tls, own) = identity(&Keys::from_root([1; 32])).unwrap();
        let (_, foreign) = identity(&Keys::from_root([2; 32])).unwrap();
        let listener = Listener::bind("127.0.0.1:0", Some(tls)).await.unwrap();
        let address = listener.address().unwrap();
        let routes = Router::new().route("/x", post(|body: String| async move { format!("got {body}") }));
        tokio::spawn(listener.serve(routes, std::future::pending()));
        let url = format!("https://{address}");
        let (status, body) = own.post(&url, "/x", b"one".to_vec(), 100).await.unwrap();
        assert_eq!((status.as_u16(), &body[..]), (200, &b"got one"[..]));
        assert!(foreign.post(&url, "/x", b"one".to_vec(), 100).await.is_err());
        // An answer is no longer than was asked for.
        assert!(own.post(&url, "/x", vec![b'a'; 200], 100).await.is_err());
        // A client without a certificate gets no byte.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let credentials = credentials::credentials(&Keys::from_root([1; 32])).unwrap();
        let without = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(credentials.roots.clone())
            .with_no_client_auth();
        let credentials = credentials::Credentials {
            client: without,
            ..credentials
        };
        let without = Peers::new(&credentials).unwrap();
        assert!(without.post(&url, "/x", b"one".to_vec(), 100).await.is_err());
    });
}

#[test]
fn a_process_whose_address_refuses_is_gone() {
    let runtime = runtime();
    let (_, peers) = runtime
        .block_on(async { identity(&Keys::from_root([1; 32])) })
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    drop(listener);
    let answer = runtime.block_on(peers.post(&url, "/x", Vec::new(), 10));
    assert!(matches!(answer, Err(peers::Silence::Gone)), "{answer:?}");
}

#[test]
fn a_process_that_lost_its_name_takes_no_new_work() {
    let (runtime, store) = (runtime(), Arc::new(Memory::default()));
    let first = cluster("one", &store, &runtime);
    first.beat().unwrap();
    assert!(first.takes_work());
    let second = cluster("one", &store, &runtime);
    let error = first.beat().unwrap_err().to_string();
    assert!(
        error.contains("another process runs under the name one"),
        "{error}"
    );
    assert!(first.is_replaced() && !first.takes_work());
    second.beat().unwrap();
    // The end of the first one does not remove the second.
    first.retire();
    second.beat().unwrap();
    assert!(second.lives("one", second.epoch) && !second.lives("one", first.epoch));
}

#[test]
fn a_process_that_ends_is_asked_for_nothing_new() {
    let (runtime, store) = (runtime(), Arc::new(Memory::default()));
    let (one, two) = (cluster("one", &store, &runtime), cluster("two", &store, &runtime));
    one.beat().unwrap();
    let names = |cluster: &Cluster| -> Vec<String> {
        cluster.aggregators().into_iter().map(|peer| peer.name).collect()
    };
    assert_eq!(names(&one), ["one", "two"]);
    two.drain();
    assert_eq!(names(&one), ["one"], "no sign of life of its own lies between");
    assert!(matches!(one.peer("two"), Found::Peer(_)), "its sessions go on");
    two.retire();
    one.beat().unwrap();
    // Within a moment of a look the store is not asked again, and a process may have started since.
    assert_eq!(one.peer("two"), Found::Unsure);
    std::thread::sleep(LOOK_AGAIN);
    assert_eq!(one.peer("two"), Found::Nobody);
}

#[test]
fn a_process_that_has_started_again_is_found_where_its_old_address_refuses() {
    let (runtime, store) = (runtime(), Arc::new(Memory::default()));
    let before = cluster("two", &store, &runtime);
    let one = cluster("one", &store, &runtime);
    let Found::Peer(old) = one.peer("two") else {
        panic!("the process is listed");
    };
    std::thread::sleep(LOOK_AGAIN);
    assert_eq!(one.successor(&old), Found::Nobody, "its session is over with it");
    before.retire();
    let after = cluster("two", &store, &runtime);
    assert_eq!(one.successor(&old), Found::Unsure);
    std::thread::sleep(LOOK_AGAIN);
    match one.successor(&old) {
        Found::Peer(new) => assert_eq!((new.epoch, &*new.url), (after.epoch, "https://two.example")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_cannot_stand_in_a_path_are_refused() {
    for good in ["a", "node-1", "undertone_leader_0", &"x".repeat(63)] {
        check_name(good).unwrap();
    }
    for bad in ["", "0", "a/b", "a.b", "ä", "a b", &"x".repeat(64)] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_leader_is_known_while_its_lease_lasts() {
    let (runtime, store) = (runtime(), Arc::new(Memory::default()));
    let (one, _two) = (cluster("one", &store, &runtime), cluster("two", &store, &runtime));
    one.beat().unwrap();
    let held = |process: &str, until| TaskHolder {
        process: process.to_owned(),
        until,
    };
    let led = |holder: Option<TaskHolder>, now| {
        let rows = [task_row(holder)];
        let found = one.leaders(&rows, now);
        found.into_iter().map(|peer| peer.name).collect::<Vec<_>>()
    };
    assert_eq!(led(Some(held("two", 100)), 99), ["two"]);
    assert!(led(Some(held("two", 100)), 100).is_empty());
    assert!(
        led(Some(held("one", 100)), 99).is_empty(),
        "it need not ask itself"
    );
    assert!(led(Some(held("gone", 100)), 99).is_empty());
    assert!(led(None, 0).is_empty());
    assert!(
        one.may_lead(&task_row(Some(held("one", 100))), 99),
        "a restarted process goes on at once"
    );
    assert!(!one.may_lead(&task_row(Some(held("two", 100))), 99));
}

/// A task with this holder of its lease, for tests of processes.
fn task_row(holder: Option<undertone_store::TaskHolder>) -> undertone_store::TaskRow {
    undertone_store::TaskRow {
        task: undertone_store::NewTask {
            id: undertone_store::TaskId([3; 32]),
            population: "people".to_owned(),
            name: "words".to_owned(),
            kind: undertone_protocol::TaskKind::Train,
            config: String::new(),
            plan: [0; 32],
            genesis: String::new(),
            participation: undertone_accounting::participation::Participation::single(),
            rounds: 1,
            min_included: 1,
            model: [0; 32],
        },
        state: undertone_protocol::TaskState::Active,
        head_round: 0,
        head_model: [0; 32],
        deleted: false,
        pinned: None,
        head_state: None,
        chain: String::new(),
        fence: 1,
        holder,
    }
}
