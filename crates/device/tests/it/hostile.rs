//! Any bytes, in any order: a machine never panics, and never sends an update before its participation was written.

use std::cell::Cell;
use std::sync::Once;

use proptest::prelude::*;
use undertone_device::{Action, Event, Machine, Method, Reply, Watch};
use undertone_protocol::SumMode;

use crate::harness::{self, Driven, START, Service, floors, plan, setup};

/// The treatment of one action by a hostile service or network.
#[derive(Debug, Clone)]
enum Turn {
    /// The honest reply.
    Honest,
    /// The honest reply, with one byte changed.
    Changed(usize, u8),
    /// The honest reply, cut.
    Cut(usize),
    /// These bytes with this status.
    Bytes(u16, Vec<u8>),
    /// No reply.
    Lost,
    /// An event that answers nothing.
    Stray(u8),
    /// Time passes.
    Wait(u64),
}

fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![
        20 => Just(Turn::Honest),
        2 => (any::<usize>(), 1u8..).prop_map(|(place, mask)| Turn::Changed(place, mask)),
        1 => any::<usize>().prop_map(Turn::Cut),
        2 => (prop::sample::select(vec![200u16, 206, 304, 404, 409, 429, 500]), prop::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(status, bytes)| Turn::Bytes(status, bytes)),
        2 => Just(Turn::Lost),
        2 => (0u8..6).prop_map(Turn::Stray),
        1 => (0u64..100_000).prop_map(Turn::Wait),
    ]
}

thread_local! {
    /// `true` while a panic of this thread is the service's and says nothing about the device.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The service of the harness panics at requests that no honest device makes. After a changed reply they are to be expected.
fn quietly<T>(handle: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                default(info);
            }
        }));
    });
    QUIET.set(true);
    let handled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(handle));
    QUIET.set(false);
    handled.ok()
}

fn play(mode: SumMode, script: &[Turn]) -> Result<(), TestCaseError> {
    let mut service = Service::new(plan(mode));
    let mut device = Driven::with_memory(0, setup(floors()), harness::memory(0));
    // In a secure sum, honest neighbours take part beside the device.
    let mut others: Vec<Driven> = Vec::new();
    if mode == SumMode::Secagg {
        service.open_sum(5, undertone_secagg::Trust::Anyone);
        others.extend((1..5).map(|number| Driven::new(number, floors())));
    }
    let machine: &mut Machine = &mut device.machine;
    let (mut written, mut ended, mut event) = (false, false, Event::Wake);
    for turn in script.iter().chain(std::iter::repeat_n(&Turn::Honest, 60)) {
        service.now += 500;
        for other in &mut others {
            quietly(|| other.turn(&mut service));
        }
        let action = machine.step(service.now, event);
        event = match (action, turn) {
            (Action::Done(outcome), _) => {
                ended = true;
                prop_assert!(outcome.wake_ms >= START);
                Event::Wake
            }
            (_, Turn::Stray(which)) => match which {
                0 => Event::Wake,
                1 => Event::NetworkLost,
                2 => Event::Cached(vec![1, 2, 3].into()),
                3 => Event::Reply(Reply::default()),
                4 => Event::Trained(Err(undertone_device::JobError::Stopped)),
                _ => Event::Stopped,
            },
            (Action::Http(request), turn) => {
                prop_assert!(!ended, "a request after the end");
                let sends = request.method == Method::Put || request.target.ends_with("/join");
                prop_assert!(written || !sends, "{}", request.target);
                match turn {
                    Turn::Lost => Event::NetworkLost,
                    Turn::Bytes(status, bytes) => Event::Reply(Reply {
                        status: *status,
                        offset: bytes.first().map(|&byte| u64::from(byte)),
                        body: bytes.clone(),
                    }),
                    turn => {
                        let Some(mut reply) = quietly(|| service.handle(&request)) else {
                            event = Event::NetworkLost;
                            continue;
                        };
                        let length = reply.body.len();
                        match turn {
                            Turn::Changed(place, mask) if length > 0 => reply.body[place % length] ^= mask,
                            Turn::Cut(place) if length > 0 => reply.body.truncate(place % length),
                            _ => {}
                        }
                        Event::Reply(reply)
                    }
                }
            }
            (Action::Persist(row), _) => {
                written |= matches!(row, undertone_device::Row::Participation { .. });
                Event::Persisted
            }
            (Action::Train(job), _) => {
                let watch = Watch::new(job.cpu_ms());
                Event::Trained(job.run(&device.texts, &watch))
            }
            (Action::SleepUntil(_), turn) => {
                service.now += match turn {
                    Turn::Wait(more) => *more,
                    _ => 60_000,
                };
                Event::Wake
            }
        };
    }
    // One request to unmask is answered, whatever was asked.
    let unmasked = service.messages.keys().filter(|(_, call)| *call == "unmask");
    prop_assert!(unmasked.count() <= 5);
    if script.iter().all(|turn| matches!(turn, Turn::Honest)) {
        prop_assert!(ended && written);
    }
    Ok(())
}

#[test]
fn an_honest_script_ends_both_kinds_of_sessions() {
    for mode in [SumMode::Plain, SumMode::Secagg] {
        play(mode, &vec![Turn::Honest; 60]).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_reply_makes_a_plain_session_panic_or_send_too_early(script in prop::collection::vec(turns(), 0..60)) {
        play(SumMode::Plain, &script)?;
    }

    #[test]
    #[ignore = "slow"]
    fn no_reply_makes_a_secure_session_panic_or_send_too_early(script in prop::collection::vec(turns(), 0..60)) {
        play(SumMode::Secagg, &script)?;
    }

    #[test]
    fn no_plan_of_a_trusted_key_panics(place: usize, mask in 1u8.., cut: bool) {
        use undertone_protocol::{Label, write};
        for mode in [SumMode::Plain, SumMode::Secagg] {
            let mut body = write(&plan(mode));
            let place = place % body.len();
            match cut {
                true => body.truncate(place),
                false => body[place] ^= mask,
            }
            let bytes = write(&harness::task_key().sign(Label::Plan, body));
            let mut service = Service::with_plan_bytes(plan(mode), bytes);
            let mut device = Driven::new(0, floors());
            for _ in 0..200 {
                service.now += 1000;
                // Only the plan is of interest here: a session that it admits may join a sum of which this service knows nothing.
                if device.has_taken_part() || device.outcome.is_some() {
                    break;
                }
                device.turn(&mut service);
            }
        }
    }
}

#[test]
fn machines_move_between_threads() {
    fn moves<T: Send>() {}
    moves::<Machine>();
    moves::<Action>();
    moves::<Event>();
}
