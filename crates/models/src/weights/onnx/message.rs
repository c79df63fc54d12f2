//! Messages of protocol buffers, written field by field.

/// The bytes of a message.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// Kinds of fields on the wire.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

impl Message {
    /// Adds a whole number.
    pub(super) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3 | NUMBER);
        self.varint(value);
        self
    }

    /// Adds bytes.
    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a text.
    pub(super) fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    /// Adds a message.
    pub(super) fn message(&mut self, field: u64, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Seven bits per byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
