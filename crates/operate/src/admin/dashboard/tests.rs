mod streams;

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt;
use undertone_protocol::{TaskState, digest_of};
use undertone_service::test_world::{Kind, World, checkin, member};
use undertone_store::{NewProcess, SessionId, SessionState};

use super::*;

const TOKEN: &str = "the token of operators";

/// A dashboard over a service with one active task.
struct Shown {
    world: World,
    doors: Arc<Doors>,
    routes: Router,
    folder: tempfile::TempDir,
}

struct Answered {
    status: u16,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Shown {
    fn new(goal: u32) -> Self {
        let (world, doors) = (World::new(Kind::Memory, goal), Arc::new(Doors::default()));
        let folder = tempfile::tempdir().unwrap();
        let routes = routes(Arc::new(Dashboard::new(
            world.service.clone(),
            folder.path().to_owned(),
            digest_of(TOKEN.as_bytes()),
            doors.clone(),
            Arc::default(),
        )));
        Self {
            world,
            doors,
            routes,
            folder,
        }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:8441");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 22).await.unwrap();
        Answered {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answered {
        let bearer = format!("Bearer {TOKEN}");
        self.send(Method::GET, path, &[("authorization", &bearer)], "")
            .await
    }

    async fn post(&self, path: &str, body: &Value) -> Answered {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("origin", "http://127.0.0.1:8441"),
        ];
        self.send(Method::POST, path, &headers, &body.to_string()).await
    }

    fn task(&self) -> String {
        self.world.room.task().id.to_string()
    }

    /// Admits devices to the open attempt.
    fn admit(&self, numbers: core::ops::Range<u32>) {
        for number in numbers {
            self.world
                .room
                .admit(&member(number), checkin(number, 0), &self.world.token)
                .unwrap();
        }
    }
}

/// All paths that answer with figures.
fn paths(task: &str) -> [String; 5] {
    [
        "/api/overview".to_owned(),
        format!("/api/tasks/{task}"),
        format!("/api/tasks/{task}/privacy"),
        format!("/api/tasks/{task}/model"),
        "/api/populations/people".to_owned(),
    ]
}

#[tokio::test]
async fn a_link_opens_one_session_and_the_token_of_operators_opens_others() {
    let shown = Shown::new(4);
    let enter = async |key: Value| {
        shown
            .send(Method::POST, "/api/session", &[], &key.to_string())
            .await
    };
    let code = shown.doors.link().unwrap();
    let first = enter(json!({ "code": *code })).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(enter(json!({ "code": *code })).await.status, 401);
    assert_eq!(enter(json!({ "token": TOKEN })).await.status, 200);
    for wrong in [
        json!({}),
        json!({ "code": "" }),
        json!({ "code": first.json()["token"] }),
        json!({ "token": format!("{TOKEN}x") }),
        json!({ "code": null, "token": null }),
    ] {
        assert_eq!(enter(wrong.clone()).await.status, 401, "{wrong}");
    }
    for malformed in [
        json!("a"),
        json!({ "token": 7 }),
        json!({ "code": "a", "more": 1 }),
    ] {
        assert_eq!(enter(malformed.clone()).await.status, 400, "{malformed}");
    }
    let session = format!("Bearer {}", first.json()["token"].as_str().unwrap());
    let headers = [("authorization", session.as_str())];
    let read = async || shown.send(Method::GET, "/api/overview", &headers, "").await;
    assert_eq!(read().await.status, 200);
    let left = shown.send(Method::DELETE, "/api/session", &headers, "").await;
    assert_eq!(left.status, 204);
    assert_eq!(read().await.status, 401);
}

#[tokio::test]
async fn nothing_is_answered_without_a_session() {
    let shown = Shown::new(4);
    let task = shown.task();
    let reading = paths(&task).map(|path| (Method::GET, path));
    let others = ["pause", "resume", "stop"].map(|act| (Method::POST, format!("/api/tasks/{task}/{act}")));
    let events = [
        (Method::GET, "/api/events".to_owned()),
        (Method::DELETE, "/api/session".to_owned()),
    ];
    for (method, path) in reading.into_iter().chain(others).chain(events) {
        for headers in [
            &[][..],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer x")],
            &[("authorization", TOKEN)],
            &[("cookie", "undertone-session=x")],
        ] {
            let answer = shown.send(method.clone(), &path, headers, "{}").await;
            assert_eq!(answer.status, 401, "{method} {path} {headers:?}");
            assert!(!answer.text.contains("words"), "{}", answer.text);
        }
    }
    assert_eq!(
        shown.world.service.shared().store.tasks().unwrap()[0].state,
        TaskState::Active
    );
}

#[tokio::test]
async fn requests_under_foreign_names_and_of_other_pages_are_refused() {
    let shown = Shown::new(4);
    let bearer = format!("Bearer {TOKEN}");
    let send = async |method: Method, path: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend_from_slice(more);
        shown.send(method, path, &headers, "{}").await.status
    };
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:8441",
        "127.1.2.3:1",
        "[::1]:9",
        "[::1]",
    ] {
        assert_eq!(
            send(Method::GET, "/api/overview", &[("host", host)]).await,
            200,
            "{host}"
        );
    }
    for host in [
        "evil.example",
        "evil.example:8441",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:8441@evil.example",
        "10.0.0.1:8441",
        "0.0.0.0:8441",
        "[::2]:1",
        "[::1]x",
        "localhost:",
        "localhost:99999",
        "",
    ] {
        for path in ["/", "/assets/main.js", "/api/overview"] {
            assert_eq!(
                send(Method::GET, path, &[("host", host)]).await,
                403,
                "{host} {path}"
            );
        }
    }
    let pause = format!("/api/tasks/{}/pause", shown.task());
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "http://127.0.0.1:9999"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
    ] {
        assert_eq!(
            send(Method::POST, &pause, &[(name, value)]).await,
            403,
            "{name} {value}"
        );
    }
    // A link on another page may open this one, and read nothing.
    let cross = [("sec-fetch-site", "cross-site")];
    assert_eq!(send(Method::GET, "/", &cross).await, 200);
    assert_eq!(send(Method::GET, "/api/overview", &cross).await, 403);
    assert_eq!(
        shown.world.service.shared().store.tasks().unwrap()[0].state,
        TaskState::Active
    );
}

#[tokio::test]
async fn an_act_needs_a_note_which_the_audit_log_keeps_and_a_stop_needs_the_name() {
    let shown = Shown::new(4);
    let path = |act: &str| format!("/api/tasks/{}/{act}", shown.task());
    for body in [
        json!({}),
        json!({ "note": "" }),
        json!({ "note": "  " }),
        json!({ "note": "two\nlines" }),
        json!({ "note": "x".repeat(501) }),
        json!({ "note": "fine", "more": 1 }),
    ] {
        assert_eq!(shown.post(&path("pause"), &body).await.status, 400, "{body}");
    }
    assert_eq!(
        shown.post(&path("dance"), &json!({ "note": "why" })).await.status,
        400
    );
    let paused = shown
        .post(&path("pause"), &json!({ "note": "too hot: wait" }))
        .await;
    assert_eq!(
        (paused.status, paused.json()["state"].as_str()),
        (200, Some("paused"))
    );
    assert_eq!(
        shown
            .post(&path("pause"), &json!({ "note": "again" }))
            .await
            .status,
        409
    );
    let alert = shown.get("/api/overview").await.json()["overview"]["tasks"][0]["alert"].clone();
    assert_eq!(alert["happened"], "This task is paused: too hot: wait.");
    assert!(alert["advice"].as_str().unwrap().contains("Resume to go on"));
    let resumed = shown
        .post(&path("resume"), &json!({ "note": "cool again" }))
        .await;
    assert_eq!(resumed.json()["state"], "active");
    for confirm in ["", "word", "Words"] {
        let body = json!({ "note": "done", "confirm": confirm });
        assert_eq!(shown.post(&path("stop"), &body).await.status, 400, "{confirm}");
    }
    let stopped = shown
        .post(&path("stop"), &json!({ "note": "done", "confirm": "words" }))
        .await;
    assert_eq!(
        (stopped.status, stopped.json()["state"].as_str()),
        (200, Some("completed"))
    );
    let acts = shown.get(&format!("/api/tasks/{}", shown.task())).await.json()["acts"].clone();
    let acts: Vec<(&str, &str)> = acts
        .as_array()
        .unwrap()
        .iter()
        .map(|act| (act["act"].as_str().unwrap(), act["note"].as_str().unwrap()))
        .collect();
    assert_eq!(
        acts,
        [
            ("active to completed", ""),
            ("stop", "done"),
            ("paused to active", "cool again"),
            ("active to paused", "too hot: wait"),
            ("draft to active", ""),
        ]
    );
}

#[tokio::test]
async fn a_task_that_needs_a_person_says_what_to_do() {
    let shown = Shown::new(4);
    let store = &shown.world.service.shared().store;
    let id = shown.world.room.task().id;
    let alert = async || shown.get("/api/overview").await.json()["overview"]["tasks"][0]["alert"].clone();
    assert_eq!(alert().await, Value::Null);
    let starved = "starved: 5 attempts in a row were abandoned";
    store
        .set_state(id, TaskState::Active, TaskState::Paused, "test", starved)
        .unwrap();
    let text = alert().await.to_string();
    assert!(text.contains("more devices") && text.contains("paused"), "{text}");
    store
        .set_state(
            id,
            TaskState::Paused,
            TaskState::Halted,
            "guard",
            "the head is older",
        )
        .unwrap();
    let text = alert().await.to_string();
    assert!(
        text.contains("the head is older.") && text.contains("with a note"),
        "{text}"
    );
}

#[tokio::test]
async fn counts_of_fewer_than_ten_devices_are_hidden_and_others_move_in_steps_of_ten() {
    let shown = Shown::new(30);
    let stages =
        async || shown.get("/api/overview").await.json()["overview"]["tasks"][0]["attempt"]["stages"].clone();
    let hidden = json!([
        ["assigned", null],
        ["joined", null],
        ["reported", null],
        ["included", null]
    ]);
    assert_eq!(stages().await, hidden);
    shown.admit(0..9);
    assert_eq!(stages().await, hidden);
    shown.admit(9..10);
    assert_eq!(stages().await[0], json!(["assigned", 10]));
    shown.admit(10..29);
    assert_eq!(stages().await[0], json!(["assigned", 20]));
    for device in 0..9 {
        shown
            .world
            .service
            .shared()
            .store
            .enrol(&undertone_service::test_world::enrolment(&member(device).device))
            .unwrap();
    }
    let people = shown.get("/api/populations/people").await.json();
    assert_eq!(people["enrolments"].as_array().unwrap().len(), 1);
    assert_eq!(people["enrolments"][0][1], Value::Null);
}

#[tokio::test]
async fn no_answer_names_a_subject_a_device_a_session_or_a_user() {
    let shown = Shown::new(30);
    shown.admit(0..20);
    let mut secrets = vec![TOKEN.to_owned()];
    for number in 20..25 {
        let (token, claims, _) = shown.world.joined(number);
        secrets.extend([
            hex(&token),
            hex(&claims.session),
            format!("{:016x}", claims.pseudonym),
            claims.pseudonym.to_string(),
            hex(&member(number).subject),
            hex(&member(number).device),
        ]);
        let store = &shown.world.service.shared().store;
        store
            .note_sessions(&[(SessionId(claims.session), SessionState::Ready)])
            .unwrap();
    }
    for _ in 0..2 {
        for path in paths(&shown.task()) {
            let answer = shown.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            for secret in &secrets {
                assert!(!answer.text.contains(secret.as_str()), "{path} holds {secret}");
            }
        }
        // Their participations count, and nobody is named then either.
        let room = &shown.world.room;
        room.end(undertone_coordinator::record::EndReason::Stopped)
            .unwrap_or(());
    }
    let view = shown.get(&format!("/api/tasks/{}", shown.task())).await.json();
    assert_eq!(view["attempts"][0]["reason"], "operator");
    assert_eq!(view["funnel"]["stages"][0], json!(["assigned", 20]));
    assert_eq!(view["funnel"]["stages"][1], json!(["joined", null]));
    // The 25 sessions count, since none of them was lost before it was ready.
    let privacy = shown
        .get(&format!("/api/tasks/{}/privacy", shown.task()))
        .await
        .json();
    assert_eq!(
        (&privacy["subjects"], &privacy["participations"]),
        (&json!(20), &json!([[1, 20]]))
    );
}

fn hex(bytes: &[u8]) -> String {
    undertone_service::identity::hex(bytes)
}

#[tokio::test]
async fn processes_are_listed_with_their_leases_and_their_last_sign_of_life() {
    let shown = Shown::new(4);
    let store = &shown.world.service.shared().store;
    for (name, roles) in [("old", "leader"), ("new", "front,aggregator")] {
        shown.world.clock.advance(20_000);
        let process = NewProcess {
            name: name.to_owned(),
            url: "https://127.0.0.1:1".to_owned(),
            roles: roles.to_owned(),
        };
        store.register(&process).unwrap();
    }
    let overview = shown.get("/api/overview").await.json()["overview"].clone();
    assert_eq!(
        overview["processes"],
        json!([
            { "name": "new", "roles": "front,aggregator", "alive": true },
            { "name": "old", "roles": "leader", "alive": false },
        ])
    );
    // The lease of the test has ended meanwhile.
    assert_eq!(overview["leases"], json!([]));
    assert_eq!(overview["tasks"][0]["alert"]["level"], "waiting");
}

#[tokio::test]
async fn names_that_do_not_exist_are_not_found() {
    let shown = Shown::new(4);
    for path in [
        "/api/tasks/nothing",
        "/api/tasks/ffffffffffff",
        "/api/tasks/nothing/privacy",
        "/api/tasks/nothing/model",
        "/api/populations/nobody",
        "/assets/nothing.js",
        "/assets/..%2Fadmin.token",
        "/elsewhere",
    ] {
        assert_eq!(shown.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_page_is_served_whole_under_a_policy_without_inline_code() {
    let shown = Shown::new(4);
    let page = shown.send(Method::GET, "/", &[], "").await;
    assert_eq!(page.status, 200);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let mut size = page.text.len();
    for (name, kind, text) in assets::FILES {
        let file = shown.send(Method::GET, &format!("/assets/{name}"), &[], "").await;
        assert_eq!((file.status, file.text.as_str()), (200, text), "{name}");
        assert_eq!(file.headers["content-type"], kind);
        assert!(file.headers.contains_key("content-security-policy"), "{name}");
        size += text.len();
        // Text of tasks and notes becomes text nodes, and never markup.
        for risky in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
        ] {
            assert!(!text.contains(risky), "{name} uses {risky}");
        }
        for line in text.lines().filter(|line| line.starts_with("import ")) {
            let from = line.split('"').nth(1).and_then(|path| path.strip_prefix("./"));
            let from = from.unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(
                assets::FILES.iter().any(|(found, ..)| *found == from),
                "{name}: {line}"
            );
        }
    }
    assert!(size < 90_000, "the page has {size} bytes");
    for risky in ["<style", "style=", "onclick", "http:", "https:"] {
        assert!(!assets::PAGE.contains(risky), "the page holds {risky}");
    }
    let scripts = assets::PAGE.matches("<script").count();
    assert_eq!(
        scripts,
        assets::PAGE
            .matches("<script type=\"module\" src=\"/assets/")
            .count()
    );
}
