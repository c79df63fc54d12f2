//! A collector of OpenTelemetry beside a server: the messages that it gets, read by types of its own.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use prost::Message;

use crate::canaries::LABELS;
use crate::federated::{PATIENCE, Server, service};

/// The parts of the messages that are looked at; the numbers are those of the specification of OTLP 1.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Text {
        #[prost(string, optional, tag = "1")]
        pub(super) string: Option<String>,
        #[prost(int64, optional, tag = "3")]
        pub(super) int: Option<i64>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Attribute {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Text>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<Attribute>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Traces {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<ResourceSpans>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<ScopeSpans>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "2")]
        pub(super) id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(fixed64, tag = "7")]
        pub(super) start: u64,
        #[prost(fixed64, tag = "8")]
        pub(super) end: u64,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<Attribute>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metrics {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<ResourceMetrics>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceMetrics {
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<ScopeMetrics>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeMetrics {
        #[prost(message, repeated, tag = "2")]
        pub(super) metrics: Vec<Metric>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metric {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "5")]
        pub(super) gauge: Option<Points>,
        #[prost(message, optional, tag = "7")]
        pub(super) sum: Option<Points>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Points {
        #[prost(message, repeated, tag = "1")]
        pub(super) points: Vec<Point>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Point {
        #[prost(double, optional, tag = "4")]
        pub(super) double: Option<f64>,
        #[prost(message, repeated, tag = "7")]
        pub(super) attributes: Vec<Attribute>,
    }
}

/// The paths and bodies that came.
type Came = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that keeps what comes.
fn collector() -> (String, Came) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let came = Came::default();
    let kept = came.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let kept = kept.clone();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some(request) = request(&mut stream) {
                    kept.lock().unwrap().push(request);
                    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    (url, came)
}

fn request(stream: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_ascii_lowercase());
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length?.trim().parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((lines[0].split(' ').nth(1)?.to_owned(), body))
}

fn texts(attributes: &[message::Attribute]) -> Vec<(String, String)> {
    let text = |attribute: &message::Attribute| {
        let value = attribute.value.clone().unwrap_or_default();
        let value = value.string.or_else(|| Some(value.int?.to_string()));
        (attribute.key.clone(), value.unwrap_or_default())
    };
    attributes.iter().map(text).collect()
}

#[test]
fn a_collector_gets_the_figures_of_metrics_and_a_span_per_attempt_and_nothing_of_devices() {
    let folder = service();
    let (url, came) = collector();
    let mut server = Server::start(
        &folder,
        &format!("--insecure --exit --otlp {url} --otlp-seconds 1"),
    );
    folder.succeed("task activate federated --data service");
    folder.json(format!(
        "fleet federated.toml --data service --population demo --devices 24 --server {} --max-pause 1 --updates synthetic --seed 5 \
         --threads 2",
        server.url
    ));
    server.ended(PATIENCE);
    let is_trace = |(path, _): &(String, Vec<u8>)| path == "/v1/traces";
    server.wait_until(|| came.lock().unwrap().iter().any(is_trace));
    let came = came.lock().unwrap();
    let (mut spans, mut metrics) = (Vec::new(), Vec::new());
    for (path, body) in came.iter() {
        match path.as_str() {
            "/v1/traces" => {
                for resource in message::Traces::decode(&body[..]).unwrap().resources {
                    let about = texts(&resource.resource.unwrap().attributes);
                    assert!(
                        about.contains(&("service.name".to_owned(), "undertone".to_owned())),
                        "{about:?}"
                    );
                    spans.extend(resource.scopes.into_iter().flat_map(|scope| scope.spans));
                }
            }
            "/v1/metrics" => {
                for resource in message::Metrics::decode(&body[..]).unwrap().resources {
                    metrics.extend(resource.scopes.into_iter().flat_map(|scope| scope.metrics));
                }
            }
            other => panic!("a request to {other}"),
        }
    }
    drop(came);

    let attempts: Vec<_> = spans.iter().filter(|span| span.name == "attempt").collect();
    let with = |span: &message::Span, key: &str, value: &str| {
        texts(&span.attributes).contains(&(format!("undertone.{key}"), value.to_owned()))
    };
    for round in 0..4 {
        let of_round = |span: &&&message::Span| with(span, "round", &round.to_string());
        let committed = |span: &&&message::Span| with(span, "outcome", "committed");
        let found = attempts.iter().filter(of_round).filter(committed);
        assert_eq!(found.count(), 1, "round {round}: {attempts:?}");
    }
    let keys: BTreeSet<String> = spans
        .iter()
        .flat_map(|span| texts(&span.attributes))
        .map(|(key, _)| key)
        .collect();
    let expected = ["outcome", "population", "round", "task"];
    assert_eq!(keys, expected.map(|key| format!("undertone.{key}")).into());
    let names: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    let known = [
        "abandon",
        "attempt",
        "close_selection",
        "commit_release",
        "open_attempt",
        "publish",
        "release",
        "report",
        "reserve",
        "select",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    for span in &spans {
        assert!(span.start <= span.end, "{span:?}");
        match span.name.as_str() {
            "attempt" => assert!(span.parent.is_empty(), "{span:?}"),
            _ => assert!(
                attempts.iter().any(|attempt| attempt.id == span.parent),
                "{span:?}"
            ),
        }
    }

    // Each figure is one of /metrics, and each count of devices is a multiple of ten.
    let mut devices = 0;
    for metric in &metrics {
        assert!(metric.name.starts_with("undertone_"), "{metric:?}");
        for point in metric
            .gauge
            .iter()
            .chain(&metric.sum)
            .flat_map(|points| &points.points)
        {
            for (key, value) in texts(&point.attributes) {
                let key = key.as_str();
                assert!(
                    LABELS.contains(&key) || ["app_version", "step"].contains(&key),
                    "{metric:?}"
                );
                assert!(value.len() < 40, "{value} may name a device");
            }
            let of_devices = [
                "undertone_checkins_total",
                "undertone_funnel_total",
                "undertone_sessions",
                "undertone_add_seconds_count",
            ];
            if of_devices.contains(&metric.name.as_str()) {
                devices += 1;
                assert_eq!(point.double.unwrap() % 10.0, 0.0, "{metric:?}");
                assert!(point.double.unwrap() >= 10.0, "{metric:?}");
            }
        }
    }
    assert!(devices > 0, "no figure of devices came: {metrics:?}");
    let last = metrics
        .iter()
        .rfind(|metric| metric.name == "undertone_head_round");
    assert_eq!(last.unwrap().gauge.as_ref().unwrap().points[0].double, Some(4.0));
}

#[test]
fn a_collector_that_is_not_there_ends_no_service() {
    let folder = service();
    let mut server = Server::start(&folder, "--insecure --otlp http://127.0.0.1:1 --otlp-seconds 1");
    std::thread::sleep(std::time::Duration::from_secs(2));
    folder.succeed("task list --data service");
    server.signal("-TERM");
    server.ended(PATIENCE);
}
