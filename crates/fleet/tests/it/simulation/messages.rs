//! Every message repeated, out of order, late, cut and under the path of another session: the same sum, or a refusal (test 17).

use std::collections::BTreeSet;

use undertone_device::{Method, Request};
use undertone_protocol::{CHECKSUM_HEADER, Commit, checksum_header, crc32c, write};

use super::checker::Facts;
use super::kinds::{Kind, Manner};
use super::template::{Rules, Sum, Template};
use super::world::{World, cut};

fn template(sum: Sum) -> Template {
    let people = 8;
    let rules = Rules {
        over_selection: 1.0,
        sum,
        ..Rules::plain(1, people, 5, 1, 1)
    };
    Template::new(rules, (0..people as usize).collect())
}

/// The kinds of messages of a session, those to session keys and signatures where there are any.
fn kinds(sum: Sum) -> Vec<Kind> {
    let certified = matches!(sum, Sum::Active { .. });
    let secure = Kind::SECURE.into_iter().filter(|kind| match kind {
        Kind::SessionKeys | Kind::Consistency => certified,
        _ => sum != Sum::Plain,
    });
    Kind::PLAIN.into_iter().chain(secure).collect()
}

/// Plays one round under this treatment of one kind of message, and returns who was in the sum.
fn play(template: &Template, kind: Kind, manner: Manner) -> Option<BTreeSet<usize>> {
    let case = format!("{:?}, {kind:?}, {manner:?}", template.rules.sum);
    let mut world = World::new(template);
    world.meddle = Some((kind, manner));
    let released = world.run_until(1, 400, 500);
    // Blobs are loaded once and kept.
    assert!(world.meddled > 0, "{case}: no such message was sent");
    world.turn();
    let facts = Facts::of(&world);
    assert_eq!(facts.violations(), Vec::<String>::new(), "{case}");
    released.then(|| facts.rounds[0].included.iter().copied().collect())
}

fn plays(sum: Sum) {
    let template = template(sum);
    let all: BTreeSet<usize> = template.subjects.iter().copied().collect();
    for kind in kinds(sum) {
        for manner in [
            Manner::Duplicated,
            Manner::Reordered,
            Manner::Truncated,
            Manner::Replayed,
        ] {
            let included = play(&template, kind, manner);
            assert_eq!(included.as_ref(), Some(&all), "{sum:?}, {kind:?}, {manner:?}");
        }
        // Deadlines: of the lobby, of most phases, of the upload, of the reports and of the attempt, and around them.
        for delay in [4_999, 5_000, 5_999, 6_001, 12_000, 39_999, 40_000, 90_000] {
            // A late device is refused, or the round comes with a later attempt or not at all.
            play(&template, kind, Manner::Delayed(delay));
        }
    }
}

#[test]
#[ignore = "slow"]
fn plain_sums_stand_any_treatment_of_their_messages() {
    plays(Sum::Plain);
}

#[test]
#[ignore = "slow"]
fn secure_sums_with_a_curious_server_stand_any_treatment_of_their_messages() {
    plays(Sum::Curious { group: 8 });
}

#[test]
#[ignore = "slow"]
fn secure_sums_with_a_lying_server_stand_any_treatment_of_their_messages() {
    plays(Sum::Active { group: 8 });
}

/// SplitMix64.
fn draw(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % below.max(1) as u64) as usize
}

/// An upload of some thousand bytes, whose connection is lost a thousand times.
#[test]
fn an_upload_that_is_resumed_a_thousand_times_gives_the_same_bytes() {
    let rules = Rules {
        over_selection: 1.0,
        cells: 12,
        ..Rules::plain(1, 2, 2, 1, 1)
    };
    let template = Template::new(rules, vec![0, 1]);
    let mut world = World::new(&template);
    // The first device reports; its bytes show how an update looks.
    world.step(0, 200);
    let put = world
        .sent
        .iter()
        .find(|sent| Kind::of(&sent.request) == Kind::Upload);
    let put = put.unwrap().request.clone();
    // The second device leaves in the middle of its upload, which then goes on by hand: the bytes of the first, one coordinate on.
    world.devices[1].leaves = Some(super::kinds::Point::MidUpload);
    let before = world.sent.len();
    world.step(1, 200);
    assert!(world.sent.len() > before);
    let path = world.devices[1].session.clone().unwrap();
    let token = world
        .sent
        .iter()
        .rev()
        .find(|sent| sent.device == 1 && Kind::of(&sent.request) == Kind::Join);
    let token = token.unwrap().request.headers.clone();
    let unit = &put.body[..4];
    let mut bytes = vec![0; put.body.len()];
    bytes[4..8].copy_from_slice(unit);
    let mut state = 7;
    let mut have = world
        .carry(&request(&path, &token, Method::Head, "upload", Vec::new()))
        .unwrap()
        .offset;
    let (mut resumed, mut refused) = (0, 0);
    while resumed < 1000 {
        resumed += 1;
        let known = have.unwrap() as usize;
        // Chunks that begin anywhere below the end, also behind what is there, and of any length.
        let from = draw(&mut state, (known + 40).min(bytes.len()));
        let most = if resumed < 990 { 8 } else { bytes.len() };
        let to = (from + 1 + draw(&mut state, most)).min(bytes.len());
        let mut chunk = request(
            &path,
            &token,
            Method::Put,
            &format!("upload?offset={from}"),
            bytes[from..to].to_vec(),
        );
        let length = to - from;
        cut(&mut chunk, length);
        let reply = world.carry(&chunk).unwrap();
        refused += usize::from(!reply.is_success());
        assert_eq!(
            reply.is_success(),
            from <= known,
            "a chunk at {from}, where {known} bytes are"
        );
        have = world
            .carry(&request(&path, &token, Method::Head, "upload", Vec::new()))
            .unwrap()
            .offset;
        let expected = if from <= known { known.max(to) } else { known };
        assert_eq!(have, Some(expected as u64));
    }
    assert!(refused > 10, "{refused}");
    // The rest, and the end.
    let known = have.unwrap() as usize;
    if known < bytes.len() {
        let rest = bytes[known..].to_vec();
        let mut chunk = request(
            &path,
            &token,
            Method::Put,
            &format!("upload?offset={known}"),
            rest,
        );
        let length = bytes.len() - known;
        cut(&mut chunk, length);
        assert!(world.carry(&chunk).unwrap().is_success());
    }
    let commit = write(&Commit {
        length: bytes.len() as u64,
        crc32c: crc32c(0, &bytes),
        weight: 1.0,
        below: None,
    });
    assert!(
        world
            .carry(&request(&path, &token, Method::Post, "commit", commit))
            .unwrap()
            .is_success()
    );
    world.step(0, 200);
    assert!(world.run_until(1, 10, 500));
    let facts = Facts::of(&world);
    assert_eq!(facts.violations(), Vec::<String>::new());
    assert_eq!(facts.rounds[0].included.len(), 2);
}

fn request(
    path: &str,
    headers: &[(&'static str, String)],
    method: Method,
    act: &str,
    body: Vec<u8>,
) -> Request {
    let mut headers = headers.to_vec();
    headers.push((CHECKSUM_HEADER, checksum_header(crc32c(0, &body))));
    Request {
        method,
        target: format!("{path}/{act}"),
        headers,
        body: body.into(),
        max_reply: 1 << 20,
        timeout_ms: 1000,
        blob: None,
    }
}
