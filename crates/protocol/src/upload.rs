//! The checksum of uploads.

/// CRC-32C (Castagnoli) of bytes that follow others with the checksum `before`; 0 at the start.
///
/// It finds accidents of transport. Nothing of a guarantee rests on it.
#[must_use]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}
