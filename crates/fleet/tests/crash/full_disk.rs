//! Disks that are full, and folders that may not be written, at each write: no half state, a message that names the path, and work
//! that goes on once there is space.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use undertone_service::data_folder;

use super::agreement::check_inside;
use super::hooks::Hook;
use super::inside::{Inside, hooked};
use super::task::{Size, Template, copy_folder, data, drawn};

/// A file system in memory with little space, which is unmounted when it is dropped.
struct Mounted {
    folder: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

fn mount(args: &[&str]) -> bool {
    let output = Command::new("mount").args(args).output();
    output.is_ok_and(|output| output.status.success())
}

impl Mounted {
    /// `None` where this process may not mount.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        mount(&["-t", "tmpfs", "-o", "size=12m,mode=0700", "tmpfs", &path]).then(|| Self {
            mounts: vec![folder.path().to_owned()],
            folder,
        })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a folder below read-only until the value is dropped.
    fn protect(&self, folder: &Path) -> Self {
        let path = folder.to_str().unwrap();
        assert!(mount(&["--bind", path, path]), "{path}");
        assert!(mount(&["-o", "remount,bind,ro", path]), "{path}");
        Self {
            folder: tempfile::tempdir().unwrap(),
            mounts: vec![folder.to_owned()],
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for path in &self.mounts {
            let _ = Command::new("umount").arg("--lazy").arg(path).output();
        }
    }
}

/// The trouble that strikes at an act.
#[derive(Debug, Clone)]
enum Trouble {
    /// The act is refused, with nothing done.
    Refused,
    /// The disk is filled up by a file until there is space again.
    Full(PathBuf),
}

/// Trouble that begins at a visit of an act.
struct Strike {
    trouble: Trouble,
    /// The act and its visit, from 1; `None` counts alone.
    at: Option<(&'static str, u64)>,
    state: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    /// The visits of each act that writes.
    visits: BTreeMap<&'static str, u64>,
    striking: bool,
    /// Acts since the trouble began; `None` before it.
    struck: Option<u64>,
}

/// Acts of which the disk is full in a row: two tries and whatever follows from them.
const ACTS_IN_TROUBLE: u64 = 6;

impl Strike {
    fn new(trouble: Trouble, at: Option<(&'static str, u64)>) -> Arc<Self> {
        Arc::new(Self {
            trouble,
            at,
            state: Mutex::new(Count::default()),
        })
    }

    /// Ends the trouble.
    fn relieve(&self) {
        let mut state = self.state.lock().unwrap();
        if std::mem::take(&mut state.striking)
            && let Trouble::Full(ballast) = &self.trouble
        {
            fs::remove_file(ballast).unwrap();
        }
    }

    fn is_striking(&self) -> bool {
        self.state.lock().unwrap().striking
    }
}

/// Fills a disk to its last page.
fn fill(ballast: &Path) {
    let mut file = fs::File::create(ballast).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        let page = vec![7; size];
        while file.write_all(&page).is_ok() {}
    }
}

impl Hook for Strike {
    fn before(&self, act: &'static str) -> Result<(), String> {
        if act == "outcome" {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap();
        let visits = state.visits.entry(act).or_default();
        *visits += 1;
        let visit = *visits;
        state.struck = state.struck.map(|acts| acts + 1);
        if state.struck.is_none() && self.at == Some((act, visit)) {
            (state.striking, state.struck) = (true, Some(0));
            if let Trouble::Full(ballast) = &self.trouble {
                fill(ballast);
            }
        }
        let over = state.struck.is_some_and(|acts| acts >= ACTS_IN_TROUBLE);
        let refused = state.striking && matches!(self.trouble, Trouble::Refused);
        drop(state);
        if over {
            self.relieve();
        } else if refused {
            return Err("no space left on the device".to_owned());
        }
        Ok(())
    }
}

/// The outcome of a play.
struct Played {
    visits: BTreeMap<&'static str, u64>,
    struck: bool,
    /// Errors of the service's own work while there was trouble.
    messages: Vec<String>,
}

/// Plays the task with trouble at an act, and checks everything.
fn play(template: &Template, folder: &Path, strike: &Arc<Strike>) -> Played {
    let inside = Inside::new(folder);
    inside.serve(hooked(inside.shared("local"), strike.clone()));
    let fleet = inside.fleet(60, 1);
    let mut messages = Vec::new();
    // A disk that is full refuses devices for a while.
    for _ in 0..2 {
        let enrolled = fleet.enrol();
        strike.relieve();
        if enrolled.is_ok() {
            break;
        }
    }
    let mut ticks = 0;
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(
                ticks < 20_000,
                "the task does not end: {messages:?} {} {:#?}",
                inside.shown(template.task),
                fleet.statistics()
            );
            let trouble = strike.is_striking();
            let errors = inside.tick(template.task);
            assert!(
                errors.is_empty() || strike.state.lock().unwrap().struck.is_some(),
                "{errors:?}"
            );
            messages.extend(errors);
            if trouble && ticks % 8 == 0 {
                strike.relieve();
            }
            inside.is_over(template.task)
        })
        .unwrap();
    strike.relieve();
    let seen = inside.seen();
    inside.put_away();
    check_inside(folder, template.task, template.size, &seen, &fleet);
    let state = strike.state.lock().unwrap();
    Played {
        visits: state.visits.clone(),
        struck: state.struck.is_some(),
        messages,
    }
}

/// The visits of acts to strike: so many of each kind, or all.
fn chosen(visits: &BTreeMap<&'static str, u64>, each: Option<u64>) -> Vec<(&'static str, u64)> {
    let mut chosen = Vec::new();
    for (kind, (&act, &visits)) in visits.iter().enumerate() {
        match each {
            None => chosen.extend((1..=visits).map(|visit| (act, visit))),
            // The last visits may come in one play and not in another.
            Some(each) => chosen.extend((0..each).map(|number| {
                let last = if visits > 3 { visits * 2 / 3 } else { visits };
                (act, 1 + drawn(&[kind as u64, number]) % last)
            })),
        }
    }
    chosen
}

/// Strikes acts one at a time, and returns the number of plays and the messages by the kind of the act.
fn strikes(each: Option<u64>, mounted: Option<&Mounted>) -> (u64, BTreeMap<&'static str, Vec<String>>) {
    let template = Template::new(Size::default());
    let whole = template.copy();
    let visits = play(&template, whole.path(), &Strike::new(Trouble::Refused, None)).visits;
    let mut messages = BTreeMap::<&str, Vec<String>>::new();
    let (mut plays, mut reached) = (0, 0);
    for at in chosen(&visits, each) {
        let copy = template.copy();
        let (folder, trouble) = match mounted {
            None => (copy.path().to_owned(), Trouble::Refused),
            Some(mounted) => {
                let folder = mounted.path().join("play");
                copy_folder(copy.path(), &folder);
                (folder, Trouble::Full(mounted.path().join("ballast")))
            }
        };
        let strike = Strike::new(trouble, Some(at));
        let played = play(&template, &folder, &strike);
        if played.struck {
            reached += 1;
            messages.entry(at.0).or_default().extend(played.messages);
        }
        if mounted.is_some() {
            fs::remove_dir_all(&folder).unwrap();
        }
        plays += 1;
    }
    assert!(
        reached * 10 >= plays * 9,
        "{reached} of {plays} places were reached"
    );
    (plays, messages)
}

/// Ticks in which a folder may not be written: some seconds of the clock of the test, in which a task would be led again and again.
const TICKS_IN_TROUBLE: u32 = 40;

/// The kinds of acts that write in the course of a task.
const KINDS: usize = 16;

#[test]
#[ignore = "slow"]
fn a_write_that_is_refused_leaves_no_half_state_and_is_made_later() {
    let (plays, messages) = strikes(Some(1), None);
    println!("{plays} plays, trouble at {:?}", messages.keys());
    assert!(messages.len() >= KINDS, "{:?}", messages.keys());
}

fn full_disk(each: Option<u64>) {
    let Some(mounted) = Mounted::new() else {
        eprintln!("skipped: this process may not mount a file system of its own");
        return;
    };
    let (plays, messages) = strikes(each, Some(&mounted));
    let place = mounted.path().join("play").display().to_string();
    let mut named = 0;
    for (act, messages) in &messages {
        for message in messages {
            assert!(message.contains(&place), "{act}: {message}");
            named += 1;
        }
    }
    println!(
        "{plays} plays, {named} messages, such as {:?}",
        messages.values().flatten().next()
    );
    assert!(named >= 8, "{messages:?}");
}

#[test]
#[ignore = "slow"]
fn a_full_disk_leaves_no_half_state_and_the_message_names_the_path() {
    full_disk(Some(1));
}

mod by_hand {
    use super::*;

    /// Every write of a whole task is refused once.
    #[test]
    #[ignore = "five minutes"]
    fn every_write_may_be_refused() {
        let (plays, _) = strikes(None, None);
        println!("{plays} plays");
    }

    /// The disk is full at every write of a whole task.
    #[test]
    #[ignore = "five minutes"]
    fn a_disk_may_be_full_at_every_write() {
        full_disk(None);
    }
}

#[test]
#[ignore = "slow"]
fn a_folder_that_may_not_be_written_is_named_and_the_work_goes_on_once_it_may() {
    let Some(mounted) = Mounted::new() else {
        eprintln!("skipped: this process may not mount a file system of its own");
        return;
    };
    let template = Template::new(Size::default());
    let folder = mounted.path().join("play");
    copy_folder(template.copy().path(), &folder);
    // A service does not start on a folder that it may not write.
    {
        let _protected = mounted.protect(&data(&folder));
        let error = data_folder::open(&data(&folder), None).err().unwrap().to_string();
        assert!(error.contains(&data(&folder).display().to_string()), "{error}");
    }
    // Each folder that a release writes may lose its right in the middle.
    for part in ["data/blobs", "witness"] {
        let place = mounted.path().join(part.replace('/', "-"));
        copy_folder(template.copy().path(), &place);
        let inside = Inside::new(&place);
        inside.serve(inside.shared("local"));
        let fleet = inside.fleet(60, 1);
        fleet.enrol().unwrap();
        let (mut ticks, mut messages, mut protected, mut was) = (0, Vec::new(), None, false);
        let mut lost = 0;
        let mut since = None;
        fleet
            .run_until(|| {
                ticks += 1;
                assert!(
                    ticks < 20_000,
                    "the task does not end: {messages:?} {} {:#?}",
                    inside.shown(template.task),
                    fleet.statistics()
                );
                if !was && inside.seen().heads.last() == Some(&1) {
                    was = true;
                    protected = Some(mounted.protect(&place.join(part)));
                }
                messages.extend(inside.tick(template.task));
                let store = inside.service().shared().store.clone();
                lost = lost.max(store.abandoned_since_release(template.task).unwrap().len());
                // A trouble is logged once. The folder is writable again after some tries.
                if !messages.is_empty() && ticks > *since.get_or_insert(ticks) + TICKS_IN_TROUBLE {
                    protected = None;
                }
                inside.is_over(template.task)
            })
            .unwrap();
        let seen = inside.seen();
        inside.put_away();
        check_inside(&place, template.task, template.size, &seen, &fleet);
        let named = place.join(part).display().to_string();
        assert!(messages[0].contains(&named), "{messages:?}");
        // Each attempt that is lost costs its people the round, so no second one begins before its release could be kept.
        assert!(lost <= 1, "{part}: {lost} attempts are lost");
    }
}
