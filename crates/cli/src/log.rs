//! The log of the program: lines of text for a person, or one JSON object per event for a collector.

use std::fmt;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use undertone_present::terminal;

use crate::output;

/// The variable that chooses the events of the log, such as `undertone_service=debug`.
const FILTER: &str = "UNDERTONE_LOG";

/// Starts the log. `json` writes one object per event, from level `info` on for the service; else warnings go out as text.
pub(crate) fn start(json: bool) {
    let asked = std::env::var(FILTER).ok().and_then(|text| text.parse().ok());
    let filter: Targets = asked.unwrap_or_else(|| {
        let usual = Targets::new().with_default(LevelFilter::WARN);
        let service = ["undertone_service", "undertone_operate"].map(|name| (name, LevelFilter::INFO));
        if json { usual.with_targets(service) } else { usual }
    });
    let log = tracing_subscriber::fmt::layer().with_ansi(false);
    let layer = match json {
        true => log.event_format(Json).with_writer(|| Raw).boxed(),
        false => log.with_writer(|| output::Log).without_time().boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}

/// Events as JSON, one per line.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let mut object = Map::new();
        object.insert("time_ms".to_owned(), Value::from(since.as_millis() as u64));
        object.insert("level".to_owned(), Value::from(meta.level().as_str()));
        object.insert("target".to_owned(), Value::from(meta.target()));
        for (name, value) in fields.0 {
            // A field cannot take the place of what stands there.
            object.entry(name).or_insert(value);
        }
        let text = Value::Object(object).to_string();
        writeln!(writer, "{}", terminal::json(&text))
    }
}

/// The fields of an event.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &tracing::field::Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &tracing::field::Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &tracing::field::Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &tracing::field::Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &tracing::field::Field, value: f64) {
        self.put(field, value);
    }
}

/// Standard error. The formatter has escaped what a terminal would obey.
struct Raw;

impl Write for Raw {
    fn write(&mut self, message: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().lock().write_all(message)?;
        Ok(message.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_object_on_one_line_whatever_its_fields_hold() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt()
            .event_format(Json)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            let error = "two\nlines \u{202e}and \u{1b}[2J";
            tracing::warn!(task = %"ab", round = 7_u64, level = "mine", error, "it \"failed\"");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(
            !text
                .trim_end()
                .contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
        let object: Value = serde_json::from_str(&text).unwrap();
        for (name, value) in [
            ("level", Value::from("WARN")),
            ("task", "ab".into()),
            ("round", 7.into()),
            ("message", "it \"failed\"".into()),
            ("error", "two\nlines \u{202e}and \u{1b}[2J".into()),
        ] {
            assert_eq!(object[name], value, "{text}");
        }
        assert!(object["time_ms"].as_u64() > Some(1_700_000_000_000), "{text}");
    }
}
