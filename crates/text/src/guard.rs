//! Panics of the libraries that decode files, turned into errors.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while a panic of this thread would become an error: the panic hook then prints nothing.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `decode` and returns the message of its panic, if it panics. The panic prints nothing; panics of other threads, and
/// of this thread at other times, print what they would have printed.
///
/// This is the last resort behind the checks of a reader. Values that `decode` has touched must not be used after an error.
///
/// # Errors
/// The message of the panic.
pub fn caught<T>(decode: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(decode));
    QUIET.set(outer);
    result.map_err(|panic| format!("the decoder gave up ({})", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_on_every_thread() {
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    let result = caught(|| {
                        if number % 2 == 0 {
                            panic!("no {number}")
                        } else {
                            number
                        }
                    });
                    match number % 2 {
                        0 => assert_eq!(result, Err(format!("the decoder gave up (no {number})"))),
                        _ => assert_eq!(result, Ok(number)),
                    }
                });
            }
        });
        assert!(!QUIET.get());
    }
}
