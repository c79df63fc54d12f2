//! The headers of uploads.

/// The header with the CRC-32C of one chunk of an upload, as eight hexadecimal digits.
pub const CHECKSUM_HEADER: &str = "undertone-crc32c";

/// The header of a reply with the number of bytes of an upload that the server has, as a decimal number.
pub const OFFSET_HEADER: &str = "undertone-offset";

/// The value of [`CHECKSUM_HEADER`].
#[must_use]
pub fn checksum_header(crc32c: u32) -> String {
    format!("{crc32c:08x}")
}

/// Reads the value of [`CHECKSUM_HEADER`]. It is `None` for anything but eight hexadecimal digits in lower case.
#[must_use]
pub fn read_checksum_header(value: &str) -> Option<u32> {
    let digits = value
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (value.len() == 8 && digits)
        .then(|| u32::from_str_radix(value, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_read_as_it_was_written_and_in_no_other_form() {
        for crc in [0, 1, 0xdead_beef, u32::MAX] {
            assert_eq!(read_checksum_header(&checksum_header(crc)), Some(crc));
        }
        for bad in [
            "",
            "1",
            "DEADBEEF",
            "+1234567",
            "0x123456",
            "123456789",
            "1234567ä",
        ] {
            assert_eq!(read_checksum_header(bad), None, "{bad}");
        }
    }
}
