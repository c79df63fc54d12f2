//! Strings that cross the border.

use std::ffi::{CStr, c_char};

use crate::failure::{Failure, ut_status};

/// A string of the caller. `name` is the argument, for errors.
///
/// # Safety
/// `text` is null, or the address of a string that ends with a zero byte and does not change during `'a`.
pub(crate) unsafe fn string<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the address is not null, and the caller promises the rest.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|error| {
        let message = format!(
            "`{name}` must be UTF-8, got another byte at place {}",
            error.valid_up_to()
        );
        Failure::new(ut_status::UT_UTF8, message)
    })
}

/// A string of the caller, or nothing where the address is null.
///
/// # Safety
/// The caller makes the promise of [`string`].
pub(crate) unsafe fn optional<'a>(name: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise is that of `string`.
    unsafe { string(name, text) }.map(Some)
}

/// An empty array of characters.
pub(crate) fn room_for<const N: usize>() -> [c_char; N] {
    [0; N]
}

/// Copies a string into an array and ends it with a zero byte. A string that is too long is cut between two characters, and a zero byte
/// inside of it becomes a space. Returns `false` where it was cut.
pub(crate) fn fill<const N: usize>(room: &mut [c_char; N], text: &str) -> bool {
    let mut end = text.len().min(N.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    *room = room_for();
    for (place, byte) in room.iter_mut().zip(text[..end].bytes()) {
        *place = if byte == 0 { b' ' } else { byte } as c_char;
    }
    end == text.len()
}

/// The string in an array, for tests.
#[cfg(test)]
pub(crate) fn shown(room: &[c_char]) -> String {
    let bytes: Vec<u8> = room
        .iter()
        .map(|&byte| byte as u8)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8(bytes).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_cut_between_two_characters_and_always_ends() {
        let mut room: [c_char; 6] = [1; 6];
        for (text, whole, expected) in [
            ("", true, ""),
            ("abcde", true, "abcde"),
            ("abcdef", false, "abcde"),
            ("abcdä", false, "abcd"),
            ("äää", false, "ää"),
            ("a\0b", true, "a b"),
        ] {
            assert_eq!(fill(&mut room, text), whole, "{text:?}");
            assert_eq!(shown(&room), expected);
            assert_eq!(room[5], 0);
        }
    }
}
