//! The functions of a predictor.

use std::ffi::c_char;

use undertone_device::Predictor;

use crate::device::{copy_list, on_device, task as task_of, ut_device};
use crate::failure::{Failure, border, ut_status};
use crate::handles::Handles;
use crate::text::{fill, room_for, string};
use crate::types::ut_model;

/// A released model in memory. 0 is none. It stays usable when its device is closed.
pub type ut_predictor = u64;

/// The number of bytes of a predicted word, the zero byte at the end included. A longer word is never predicted.
pub const UT_WORD_BYTES: usize = 64;

/// The max number of words of one prediction.
pub const UT_MAX_PREDICTIONS: usize = 1024;

/// A word that may come next.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_prediction {
    /// The probability of the word, from 0 to 1.
    pub probability: f64,
    /// The word in UTF-8 and lower case.
    pub word: [c_char; UT_WORD_BYTES],
}

static PREDICTORS: Handles<Predictor> = Handles::new("predictor");

/// Loads a released model that the device holds, to predict with it. Writes its handle to `predictor`.
///
/// `task` is the 32 bytes of a task, or null for the newest model. Close the predictor with `ut_predictor_close`.
///
/// # Safety
/// `task` is null or valid for reads of 32 bytes. `predictor` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_predictor_open(
    device: ut_device,
    task: *const u8,
    predictor: *mut ut_predictor,
) -> ut_status {
    border(|| {
        if predictor.is_null() {
            return Err(Failure::null("predictor"));
        }
        // SAFETY: the caller promises 32 bytes where the address is not null.
        let task = unsafe { task_of(task) };
        let loaded = on_device(device, |_, open| Ok(open.device.predictor(task)?))?;
        // SAFETY: the address is not null, and the caller promises that it is valid.
        unsafe { predictor.write(PREDICTORS.insert(loaded)) };
        Ok(())
    })
}

/// Writes the task, the round and the time of a predictor's model to `model`.
///
/// # Safety
/// `model` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_predictor_model(predictor: ut_predictor, model: *mut ut_model) -> ut_status {
    border(|| {
        if model.is_null() {
            return Err(Failure::null("model"));
        }
        let found = PREDICTORS.find(predictor)?.model().into();
        // SAFETY: the address is not null, and the caller promises that it is valid.
        unsafe { model.write(found) };
        Ok(())
    })
}

/// Predicts the next words after a text, in falling order of probability. The last word of the text counts as complete.
///
/// Writes up to `room` words to `predictions`, and their number to `count`. `UT_MAX_PREDICTIONS` is the max of `room`. Several threads may
/// predict with one predictor; their calls work one after the other.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte. `predictions` has room for `room` elements. `count` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ut_predict(
    predictor: ut_predictor,
    text: *const c_char,
    predictions: *mut ut_prediction,
    room: usize,
    count: *mut usize,
) -> ut_status {
    border(|| {
        // SAFETY: the caller promises a string, and the address is checked for null.
        let text = unsafe { string("text", text)? };
        if room > UT_MAX_PREDICTIONS {
            let message = format!("`room` must be at most {UT_MAX_PREDICTIONS}, got {room}");
            return Err(Failure::new(ut_status::UT_VALUE, message));
        }
        if count.is_null() || (predictions.is_null() && room > 0) {
            return Err(Failure::null(if count.is_null() {
                "count"
            } else {
                "predictions"
            }));
        }
        let words = PREDICTORS.find(predictor)?.predict(text, room)?;
        let mut list = Vec::with_capacity(words.len());
        for each in &words {
            let mut word = room_for();
            if fill(&mut word, &each.word) {
                list.push(ut_prediction {
                    probability: each.probability,
                    word,
                });
            }
        }
        // SAFETY: the caller makes the promise of `copy_list`.
        unsafe { copy_list(&list, predictions, room, count) }
    })
}

/// Closes a predictor and frees its model, once the calls that use it have ended. Closing 0 does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ut_predictor_close(predictor: ut_predictor) -> ut_status {
    border(|| match predictor {
        0 => Ok(()),
        predictor => PREDICTORS.remove(predictor).map(drop),
    })
}
