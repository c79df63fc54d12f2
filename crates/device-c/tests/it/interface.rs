//! The interface as a program calls it: wrong arguments, closed handles, threads and callbacks.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::TcpListener;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use undertone_device_c::*;

fn c(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap()
}

/// Settings with this address of a service.
fn settings(server: &str) -> CString {
    let key = "07".repeat(32);
    c(format!(
        r#"{{"server": "{server}", "population": "p", "client_version": 1,
            "keys": {{"board": "{key}", "plans": "{key}", "issuer": "{key}"}}}}"#
    ))
}

fn open_with(folder: &Path, settings: &CStr, host: *const ut_host) -> Result<ut_device, ut_status> {
    let folder = c(folder.to_str().unwrap());
    let mut device = 0;
    // SAFETY: the strings end with a zero byte, and the handle is a local value.
    match unsafe { ut_device_open(folder.as_ptr(), settings.as_ptr(), host, &raw mut device) } {
        ut_status::UT_OK => Ok(device),
        status => Err(status),
    }
}

fn open(folder: &Path) -> ut_device {
    open_with(folder, &settings("http://127.0.0.1:1"), null()).unwrap()
}

fn text(characters: &[c_char]) -> String {
    // SAFETY: the library ends each array of characters with a zero byte.
    unsafe { CStr::from_ptr(characters.as_ptr()) }
        .to_str()
        .unwrap()
        .to_owned()
}

fn last() -> (ut_status, String) {
    let mut error = ut_error {
        status: ut_status::UT_OK,
        message: [1; UT_MESSAGE_BYTES],
    };
    // SAFETY: the address is that of a local value.
    assert_eq!(unsafe { ut_last_error(&raw mut error) }, ut_status::UT_OK);
    (error.status, text(&error.message))
}

fn add(device: ut_device, words: &str) -> ut_status {
    let words = c(words);
    // SAFETY: the string ends with a zero byte.
    unsafe { ut_example_add(device, words.as_ptr(), 0, 0) }
}

fn state(device: ut_device) -> Result<ut_state, ut_status> {
    let mut state = std::mem::MaybeUninit::uninit();
    // SAFETY: the address is that of a local value, which is read after a success alone.
    unsafe {
        match ut_device_state(device, state.as_mut_ptr()) {
            ut_status::UT_OK => Ok(state.assume_init()),
            status => Err(status),
        }
    }
}

fn run(device: ut_device) -> Result<ut_outcome, ut_status> {
    let mut outcome = std::mem::MaybeUninit::uninit();
    // SAFETY: the address is that of a local value, which is read after a success alone.
    unsafe {
        match ut_device_run(device, outcome.as_mut_ptr()) {
            ut_status::UT_OK => Ok(outcome.assume_init()),
            status => Err(status),
        }
    }
}

#[test]
fn null_addresses_and_other_text_are_errors_that_name_the_argument() {
    let folder = tempfile::tempdir().unwrap();
    let path = c(folder.path().to_str().unwrap());
    let good = settings("http://127.0.0.1:1");
    let mut device = 0;
    let bad = c(b"a\xffb".to_vec());
    // SAFETY: each address is null or that of a local value or string.
    unsafe {
        let mut open = |folder: *const c_char, settings: *const c_char| {
            (
                ut_device_open(folder, settings, null(), &raw mut device),
                last().1,
            )
        };
        let (status, message) = open(null(), good.as_ptr());
        assert_eq!(
            (status, &*message),
            (ut_status::UT_NULL, "`folder` must be an address, got null")
        );
        let (status, message) = open(path.as_ptr(), null());
        assert!(
            status == ut_status::UT_NULL && message.contains("`settings`"),
            "{message}"
        );
        let (status, message) = open(bad.as_ptr(), good.as_ptr());
        assert!(status == ut_status::UT_UTF8 && message.contains("`folder`") && message.contains("place 1"));
        let (status, message) = open(path.as_ptr(), bad.as_ptr());
        assert!(
            status == ut_status::UT_UTF8 && message.contains("`settings`"),
            "{message}"
        );
        let status = ut_device_open(path.as_ptr(), good.as_ptr(), null(), null_mut());
        assert!(status == ut_status::UT_NULL && last().1.contains("`device`"));
        assert_eq!(ut_last_error(null_mut()), ut_status::UT_NULL);
        assert_eq!(device, 0);

        let device = self::open(folder.path());
        assert_eq!(ut_example_add(device, null(), 0, 0), ut_status::UT_NULL);
        assert_eq!(ut_example_add(device, bad.as_ptr(), 0, 0), ut_status::UT_UTF8);
        assert_eq!(ut_device_enrol(device, bad.as_ptr(), null()), ut_status::UT_UTF8);
        assert_eq!(ut_device_state(device, null_mut()), ut_status::UT_NULL);
        assert_eq!(ut_device_evaluate(device, null(), null_mut()), ut_status::UT_NULL);
        assert_eq!(ut_predictor_open(device, null(), null_mut()), ut_status::UT_NULL);
        assert_eq!(ut_predictor_model(1, null_mut()), ut_status::UT_NULL);
        assert_eq!(
            ut_participations(device, null_mut(), 0, null_mut()),
            ut_status::UT_NULL
        );
        let mut count = 7;
        assert_eq!(
            ut_models(device, null_mut(), 3, &raw mut count),
            ut_status::UT_NULL
        );
        assert_eq!(ut_models(device, null_mut(), 0, &raw mut count), ut_status::UT_OK);
        assert_eq!(count, 0);
        let word = c("a");
        assert_eq!(
            ut_predict(1, null(), null_mut(), 0, &raw mut count),
            ut_status::UT_NULL
        );
        assert_eq!(
            ut_predict(1, word.as_ptr(), null_mut(), 1, &raw mut count),
            ut_status::UT_NULL
        );
        assert_eq!(
            ut_predict(1, word.as_ptr(), null_mut(), 0, null_mut()),
            ut_status::UT_NULL
        );
        let many = UT_MAX_PREDICTIONS + 1;
        assert_eq!(
            ut_predict(1, word.as_ptr(), null_mut(), many, &raw mut count),
            ut_status::UT_VALUE
        );
        assert_eq!(ut_device_close(device), ut_status::UT_OK);
    }
}

#[test]
fn settings_that_are_wrong_are_refused_with_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let good = settings("http://127.0.0.1:1").into_string().unwrap();
    for (change, expected) in [
        ((&*good, ""), "JSON of a device's settings"),
        (("\"p\"", "\"a/b\""), "letters, digits"),
        (("0707", "07"), "64 hexadecimal digits"),
        (("http://127", "http://1127"), "https://"),
        (
            ("\"client_version\": 1", "\"client_version\": 1, \"more\": 2"),
            "unknown field `more`",
        ),
    ] {
        let status = open_with(folder.path(), &c(good.replacen(change.0, change.1, 1)), null()).unwrap_err();
        let (kept, message) = last();
        assert_eq!(
            (status, kept),
            (ut_status::UT_VALUE, ut_status::UT_VALUE),
            "{message}"
        );
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn closed_and_invented_handles_are_refused_by_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let closed = open(folder.path());
    assert_eq!(ut_device_close(closed), ut_status::UT_OK);
    let (mut predictor, mut count) = (0, 0);
    let word = c("a");
    let mut model = std::mem::MaybeUninit::uninit();
    let mut measured = std::mem::MaybeUninit::uninit();
    for device in [closed, 0, u64::MAX] {
        // SAFETY: each address is null or that of a local value or string.
        let all = unsafe {
            [
                ut_device_enrol(device, null(), null()),
                ut_device_renew(device),
                ut_example_add(device, word.as_ptr(), 0, 0),
                ut_examples_clear(device),
                ut_device_run(device, null_mut()),
                ut_device_stop(device),
                ut_device_set_unmet(device, 0),
                ut_participations(device, null_mut(), 0, &raw mut count),
                ut_models(device, null_mut(), 0, &raw mut count),
                ut_device_evaluate(device, null(), measured.as_mut_ptr()),
                ut_device_forget(device),
                ut_predictor_open(device, null(), &raw mut predictor),
                ut_predictor_model(device, model.as_mut_ptr()),
                ut_predict(device, word.as_ptr(), null_mut(), 0, &raw mut count),
                state(device).unwrap_err(),
            ]
        };
        assert_eq!(all, [ut_status::UT_HANDLE; 15], "{device}");
        assert!(last().1.contains(&device.to_string()), "{}", last().1);
    }
    assert_eq!(ut_device_close(closed), ut_status::UT_HANDLE, "closed twice");
    assert_eq!(ut_predictor_close(u64::MAX), ut_status::UT_HANDLE);
    assert_eq!(ut_device_close(0), ut_status::UT_OK);
    assert_eq!(ut_predictor_close(0), ut_status::UT_OK);
    assert_eq!(predictor, 0);
}

#[test]
#[ignore = "slow"]
fn texts_are_counted_cleared_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(folder.path());
    assert_eq!(
        open_with(folder.path(), &settings("http://127.0.0.1:1"), null()),
        Err(ut_status::UT_FOLDER_OPEN)
    );
    for number in 0..20 {
        assert_eq!(
            add(device, &format!("this is the text of number {number}")),
            ut_status::UT_OK
        );
    }
    let found = state(device).unwrap();
    assert!(!found.enrolled && found.participations == 0 && found.wake_ms == 0);
    assert_eq!(found.training_examples + found.withheld_examples, 20);
    assert_ne!(found.public_key, [0; 32]);
    // SAFETY: the string ends with a zero byte.
    let expired = unsafe { ut_example_add(device, c("two words").as_ptr(), 1, 2) };
    assert_eq!(expired, ut_status::UT_OK);
    assert_eq!(add(device, &"x".repeat(1 << 17)), ut_status::UT_VALUE);
    assert_eq!(ut_examples_clear(device), ut_status::UT_OK);
    let cleared = state(device).unwrap();
    assert_eq!((cleared.training_examples, cleared.withheld_examples), (0, 0));
    let mut predictor = 0;
    // SAFETY: the address is that of a local value.
    let status = unsafe { ut_predictor_open(device, null(), &raw mut predictor) };
    assert_eq!(status, ut_status::UT_NO_MODEL);

    assert_eq!(ut_device_close(device), ut_status::UT_OK);
    let again = open(folder.path());
    assert_eq!(
        state(again).unwrap().public_key,
        found.public_key,
        "the key stays with the folder"
    );
    assert_eq!(ut_device_forget(again), ut_status::UT_OK);
    assert_eq!(ut_device_forget(again), ut_status::UT_HANDLE);
    let fresh = open(folder.path());
    assert_ne!(state(fresh).unwrap().public_key, found.public_key);
    assert_eq!(ut_device_close(fresh), ut_status::UT_OK);
}

#[test]
fn a_service_that_is_not_there_is_a_failure_or_an_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let device = open(folder.path());
    // SAFETY: the string ends with a zero byte.
    let status = unsafe { ut_device_enrol(device, c("an invitation").as_ptr(), null()) };
    assert_eq!(status, ut_status::UT_NETWORK);
    assert!(last().1.contains("cannot be reached"), "{}", last().1);
    assert_eq!(ut_device_renew(device), ut_status::UT_VALUE);
    let conditions = [
        (ut_condition::UT_CHARGING, "not charging"),
        (ut_condition::UT_IDLE, "in use"),
        (ut_condition::UT_UNMETERED, "metered"),
        (ut_condition::UT_STORAGE, "storage"),
        (ut_condition::UT_THERMAL, "warm"),
    ];
    for (condition, expected) in conditions {
        assert_eq!(ut_device_set_unmet(device, condition as u32), ut_status::UT_OK);
        let outcome = run(device).unwrap();
        assert_eq!(outcome.ended, ut_ended::UT_ENDED_HOST_NOT_READY);
        assert!(
            text(&outcome.message).contains(expected),
            "{}",
            text(&outcome.message)
        );
        assert!(outcome.wake_ms > 0 && outcome.up_bytes == 0);
    }
    assert_eq!(ut_device_set_unmet(device, 32), ut_status::UT_VALUE);
    assert_eq!(ut_device_set_unmet(device, 0), ut_status::UT_OK);
    assert_eq!(ut_device_stop(device), ut_status::UT_OK, "no session runs");
    assert_eq!(ut_device_close(device), ut_status::UT_OK);
}

/// A host in memory, whose callbacks note what they were asked.
#[derive(Default)]
struct Memory {
    keys: Mutex<Vec<(String, [u8; 32])>>,
    counter: AtomicU64,
    asked: AtomicU32,
    unmet: AtomicU32,
    device: AtomicU64,
    statuses: Mutex<Vec<ut_status>>,
    stages: Mutex<Vec<ut_stage>>,
    is_broken: AtomicBool,
    forgot: AtomicBool,
}

/// The memory behind a context.
fn memory<'a>(context: *mut c_void) -> &'a Memory {
    // SAFETY: the tests give the address of a `Memory` that outlives the device.
    unsafe { &*context.cast::<Memory>() }
}

unsafe extern "C" fn is_met(context: *mut c_void, condition: ut_condition) -> bool {
    let memory = memory(context);
    memory.asked.fetch_or(condition as u32, Ordering::SeqCst);
    // A callback may not use its device, and may stop it.
    let device = memory.device.load(Ordering::SeqCst);
    if device != 0 {
        let mut statuses = memory.statuses.lock().unwrap();
        statuses.push(state(device).err().unwrap_or(ut_status::UT_OK));
        statuses.push(ut_device_close(device));
        statuses.push(ut_device_forget(device));
        statuses.push(ut_device_stop(device));
    }
    memory.unmet.load(Ordering::SeqCst) & condition as u32 == 0
}

unsafe extern "C" fn reached(context: *mut c_void, stage: ut_stage) {
    memory(context).stages.lock().unwrap().push(stage);
}

unsafe extern "C" fn battery(_context: *mut c_void) -> f32 {
    -1.0
}

unsafe extern "C" fn key(context: *mut c_void, name: *const c_char, key: *mut u8) -> bool {
    let memory = memory(context);
    if memory.is_broken.load(Ordering::SeqCst) {
        return false;
    }
    let mut keys = memory.keys.lock().unwrap();
    // SAFETY: the library gives a string and room for 32 bytes.
    unsafe {
        let name = CStr::from_ptr(name).to_str().unwrap().to_owned();
        let made = [keys.len() as u8 + 1; 32];
        if !keys.iter().any(|(known, _)| *known == name) {
            keys.push((name.clone(), made));
        }
        let (_, found) = keys.iter().find(|(known, _)| *known == name).unwrap();
        std::ptr::copy_nonoverlapping(found.as_ptr(), key, 32);
    }
    true
}

unsafe extern "C" fn no_key(_context: *mut c_void, _name: *const c_char, _key: *mut u8) -> bool {
    true
}

unsafe extern "C" fn counter(context: *mut c_void, name: *const c_char, value: *mut u64) -> bool {
    // SAFETY: the library gives a string and the address of a number.
    unsafe {
        assert!(matches!(
            CStr::from_ptr(name).to_str(),
            Ok("participations" | "cost")
        ));
        value.write(memory(context).counter.load(Ordering::SeqCst));
    }
    true
}

unsafe extern "C" fn raise(context: *mut c_void, _name: *const c_char, value: u64) -> bool {
    memory(context).counter.fetch_max(value, Ordering::SeqCst);
    true
}

unsafe extern "C" fn forget(context: *mut c_void) -> bool {
    memory(context).forgot.store(true, Ordering::SeqCst);
    true
}

fn host(memory: &Memory) -> ut_host {
    ut_host {
        size: size_of::<ut_host>(),
        context: std::ptr::from_ref(memory).cast_mut().cast(),
        is_met: Some(is_met),
        battery_percent: Some(battery),
        reached: Some(reached),
        key: Some(key),
        counter: Some(counter),
        raise: Some(raise),
        forget: Some(forget),
    }
}

#[test]
fn the_host_s_key_store_holds_the_keys_and_no_file_does() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let good = settings("http://127.0.0.1:1");
    let mut host = host(&memory);
    let device = open_with(folder.path(), &good, &raw const host).unwrap();
    let names: Vec<String> = memory
        .keys
        .lock()
        .unwrap()
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    assert!(
        names.contains(&"examples".to_owned()) && names.contains(&"device".to_owned()),
        "{names:?}"
    );
    assert!(!folder.path().join("keys").exists());
    assert_eq!(add(device, "a text of the person"), ut_status::UT_OK);
    assert_eq!(ut_device_close(device), ut_status::UT_OK);

    memory.is_broken.store(true, Ordering::SeqCst);
    assert_eq!(
        open_with(folder.path(), &good, &raw const host),
        Err(ut_status::UT_KEY_STORE)
    );
    assert!(last().1.contains("`key` returned false"), "{}", last().1);
    memory.is_broken.store(false, Ordering::SeqCst);
    host.key = Some(no_key);
    assert_eq!(
        open_with(folder.path(), &good, &raw const host),
        Err(ut_status::UT_KEY_STORE)
    );
    assert!(last().1.contains("wrote no key"), "{}", last().1);
    host.key = None;
    assert_eq!(
        open_with(folder.path(), &good, &raw const host),
        Err(ut_status::UT_VALUE)
    );
    host.key = Some(key);
    host.size -= 1;
    assert_eq!(
        open_with(folder.path(), &good, &raw const host),
        Err(ut_status::UT_VALUE)
    );
    host.size += 1;
    let device = open_with(folder.path(), &good, &raw const host).unwrap();
    assert_eq!(ut_device_forget(device), ut_status::UT_OK);
    assert!(memory.forgot.load(Ordering::SeqCst));
}

#[test]
fn a_callback_may_stop_its_device_and_do_nothing_else_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let host = host(&memory);
    let device = open_with(folder.path(), &settings("http://127.0.0.1:1"), &raw const host).unwrap();
    memory.device.store(device, Ordering::SeqCst);
    let outcome = run(device).unwrap();
    assert!(
        matches!(
            outcome.ended,
            ut_ended::UT_ENDED_STOPPED | ut_ended::UT_ENDED_NOT_ENROLLED
        ),
        "{:?}",
        outcome.ended
    );
    let statuses = memory.statuses.lock().unwrap().clone();
    let busy = ut_status::UT_BUSY;
    for four in statuses.chunks(4) {
        assert_eq!(four, [busy, busy, busy, ut_status::UT_OK]);
    }
    assert!(!statuses.is_empty());
    assert_eq!(
        memory.asked.load(Ordering::SeqCst),
        31,
        "each condition was asked for"
    );
    assert!(memory.stages.lock().unwrap().contains(&ut_stage::UT_STAGE_OVER));
    memory.device.store(0, Ordering::SeqCst);
    memory.unmet.store(ut_condition::UT_IDLE as u32, Ordering::SeqCst);
    assert_eq!(run(device).unwrap().ended, ut_ended::UT_ENDED_HOST_NOT_READY);
    assert_eq!(ut_device_close(device), ut_status::UT_OK);
}

/// A service that takes connections and never answers.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

#[test]
fn a_second_call_is_busy_and_a_close_waits_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = silent();
    let device = open_with(folder.path(), &settings(&address), null()).unwrap();
    let began = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            // SAFETY: null addresses are allowed here.
            unsafe { ut_device_enrol(device, null(), null()) }
        });
        let (stream, _) = listener.accept().unwrap();
        began.store(true, Ordering::SeqCst);
        // The first call waits for a reply now.
        assert_eq!(state(device).unwrap_err(), ut_status::UT_BUSY);
        assert!(last().1.contains("ut_device_stop"), "{}", last().1);
        assert_eq!(add(device, "a text"), ut_status::UT_BUSY);
        assert_eq!(ut_device_stop(device), ut_status::UT_OK);
        assert_eq!(ut_device_set_unmet(device, 0), ut_status::UT_OK);
        let close = scope.spawn(|| ut_device_close(device));
        while !matches!(state(device), Err(ut_status::UT_HANDLE)) {
            std::thread::yield_now();
        }
        assert!(!close.is_finished(), "the first call still works on the device");
        drop(stream);
        assert_eq!(first.join().unwrap(), ut_status::UT_NETWORK);
        assert_eq!(close.join().unwrap(), ut_status::UT_OK);
    });
    // The folder is free again.
    let device = open(folder.path());
    assert_eq!(ut_device_close(device), ut_status::UT_OK);
}

#[test]
fn many_threads_open_use_and_close_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    let shared = open(&folder.path().join("shared"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..8 {
                    let own = open(&folder.path().join(format!("device-{thread}")));
                    assert_eq!(add(own, &format!("text {round}")), ut_status::UT_OK);
                    let status = add(shared, "a shared text");
                    assert!(
                        matches!(status, ut_status::UT_OK | ut_status::UT_BUSY),
                        "{status:?}"
                    );
                    assert_eq!(ut_device_close(own), ut_status::UT_OK);
                    assert_eq!(ut_device_close(own), ut_status::UT_HANDLE);
                }
            });
        }
    });
    assert_eq!(ut_device_close(shared), ut_status::UT_OK);
}

#[test]
fn the_version_is_that_of_the_header() {
    assert_eq!(ut_abi_version(), UT_ABI_VERSION);
}
