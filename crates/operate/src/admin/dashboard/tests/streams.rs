//! Streams of changes, and their limits.

use super::*;

/// The next event of a stream that holds this text. A stream that hangs fails.
async fn event_with(stream: &mut axum::body::BodyDataStream, text: &str) -> String {
    let read = async {
        loop {
            let next =
                std::future::poll_fn(|context| futures_core::Stream::poll_next(pin!(&mut *stream), context));
            let bytes = next.await.expect("the stream has ended").unwrap();
            let event = String::from_utf8(bytes.to_vec()).unwrap();
            if event.contains(text) {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow"]
async fn a_change_reaches_every_page_that_watches_and_the_end_of_the_service_ends_the_streams() {
    let shown = Shown::new(4);
    let open = async || {
        let request = Request::get("/api/events")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Body::empty())
            .unwrap();
        let response = shown.routes.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body().into_data_stream()
    };
    let (mut first, mut second) = (open().await, open().await);
    for stream in [&mut first, &mut second] {
        let event = event_with(stream, "\"state\":\"active\"").await;
        assert!(
            event.starts_with("event: overview\ndata: {\"now\":1800000000000,"),
            "{event}"
        );
        assert!(event.ends_with("\n\n"), "{event}");
    }
    // The guarantee is computed beside, and reaches the page by itself.
    event_with(&mut first, "\"planned\":").await;
    let store = &shown.world.service.shared().store;
    let id = shown.world.room.task().id;
    store
        .set_state(id, TaskState::Active, TaskState::Paused, "test", "a note")
        .unwrap();
    for stream in [&mut first, &mut second] {
        event_with(stream, "This task is paused: a note.").await;
    }
    drop(second);
    // A page that comes later sees the present state at once.
    let mut third = open().await;
    event_with(&mut third, "\"state\":\"paused\"").await;
    shown.world.service.close();
    for mut stream in [first, third] {
        let ends = async {
            while std::future::poll_fn(|context| futures_core::Stream::poll_next(pin!(&mut stream), context))
                .await
                .is_some()
            {}
        };
        tokio::time::timeout(Duration::from_secs(60), ends).await.unwrap();
    }
    drop(shown.folder);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_beyond_the_limit_are_refused_and_leave_their_place_when_they_end() {
    let shown = Shown::new(4);
    let open = async || {
        let request = Request::get("/api/events")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Body::empty())
            .unwrap();
        shown.routes.clone().oneshot(request).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(open().await);
    }
    assert_eq!(open().await.status(), 503);
    streams.pop();
    assert_eq!(open().await.status(), 200);
}
