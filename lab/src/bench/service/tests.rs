use std::io::{Read, Write};
use std::net::TcpListener;

use super::client::{Connection, Place};
use super::load::Update;
use super::table::{Figure, rounded};
use super::tasks::{CLIP_NORM, Model};

fn figure(unit: &'static str, value: f64) -> Figure {
    Figure {
        item: "test",
        unit,
        value,
        limit: 100.0,
        limit_is: "a test",
    }
}

#[test]
fn a_rate_reaches_a_part_of_its_limit_from_below_and_a_cost_from_above() {
    assert_eq!(figure("x/s", 75.0).of_limit(), 0.75);
    assert_eq!(figure("s", 400.0).of_limit(), 0.25);
}

#[test]
fn figures_keep_four_digits() {
    assert_eq!(rounded(123_456.0), 123_500.0);
    assert_eq!(rounded(0.001_234_56), 0.001_235);
    assert_eq!(rounded(0.0), 0.0);
    assert!(rounded(f64::INFINITY).is_infinite());
}

#[test]
fn a_model_has_the_parameters_that_were_asked_for_but_for_one_word() {
    for (asked, word) in [(2000, 4), (20_000, 16), (1_000_000, 96), (4_050_000, 96)] {
        let model = Model::of(asked).unwrap();
        assert!(
            model.parameters <= asked && model.parameters + word > asked,
            "{model:?}"
        );
    }
    assert_eq!(Model::stackoverflow().unwrap().parameters, 4_050_748);
}

#[test]
fn the_update_of_all_devices_has_the_clip_norm_and_chunks_that_cover_it() {
    let update = Update::new(600_000);
    let (values, rest) = update.bytes().as_chunks();
    let squares = values
        .iter()
        .map(|value| f64::from(f32::from_le_bytes(*value)).powi(2));
    let norm = squares.sum::<f64>().sqrt();
    assert!(
        (norm - CLIP_NORM).abs() < 1e-3 * CLIP_NORM && rest.is_empty(),
        "{norm}"
    );
    let chunks: Vec<_> = update.chunks().collect();
    assert_eq!(chunks.len(), 3);
    assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!((chunks[0].start, chunks[2].end), (0, 2_400_000));
}

/// The reply to one request, from a server that sends `pieces` one by one.
fn replied(pieces: &'static [&'static str]) -> anyhow::Result<(u16, Vec<u8>)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place {
        address: listener.local_addr().unwrap(),
        tls: None,
    };
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        for piece in pieces {
            stream.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let mut connection = Connection::open(&place).unwrap();
    let reply = connection
        .exchange(b"he", b"llo")
        .map(|reply| (reply.status, reply.body.to_vec()));
    server.join().unwrap();
    reply
}

#[test]
fn replies_are_read_whole_in_whatever_pieces_they_arrive() {
    let whole = replied(&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"]).unwrap();
    let pieces = replied(&["HTTP/1.1 200 OK\r\ncontent-", "length: 4\r\n\r", "\nbo", "dy"]).unwrap();
    assert_eq!((whole.0, &whole.1[..]), (200, &b"body"[..]));
    assert_eq!(pieces, whole);
    assert_eq!(
        replied(&["HTTP/1.1 204 No Content\r\n\r\n"]).unwrap(),
        (204, Vec::new())
    );
    for bad in [
        &["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody"][..],
        &["HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"],
        &["SMTP\r\n\r\n"],
        &["HTTP/1.1 200 OK\r\n"],
        &["HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nbody"],
    ] {
        assert!(replied(bad).is_err(), "{bad:?}");
    }
}
