//! The checksum of uploads.

/// CRC-32C (Castagnoli) of bytes that follow others with the checksum `before`; 0 at the start.
///
/// It finds accidents of transport. Nothing of a guarantee rests on it.
#[must_use]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// CRC-32C of bytes with the checksum `first` and of `length` bytes after them with the checksum `second`. No byte is read for it.
#[must_use]
pub fn crc32c_joined(first: u32, second: u32, length: usize) -> u32 {
    crc32c::crc32c_combine(first, second, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_two_parts_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..3000_u32).map(|at| (at * at / 7) as u8).collect();
        for cut in [0, 1, 8, 1024, 2999, 3000] {
            let (first, second) = bytes.split_at(cut);
            let joined = crc32c_joined(crc32c(0, first), crc32c(0, second), second.len());
            assert_eq!(joined, crc32c(0, &bytes), "{cut}");
        }
    }
}
