//! The words of a service in its log.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The fields of a line, by name.
type Fields = Vec<(&'static str, String)>;

/// Does something, and returns the warnings and errors that this thread logs meanwhile, each with its fields by name.
pub fn heard<T>(act: impl FnOnce() -> T) -> (T, Vec<Fields>) {
    let log = Log::default();
    let value = tracing::subscriber::with_default(log.clone(), act);
    let heard = std::mem::take(&mut *log.0.lock().unwrap());
    (value, heard)
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Fields>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut entry = Entry::default();
        event.record(&mut entry);
        self.0.lock().unwrap().push(entry.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Entry(Fields);

impl Visit for Entry {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}
