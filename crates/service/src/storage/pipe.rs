//! Bytes from a writer to a reader, in pieces, so that nobody holds all of them.

use std::io::{self, Read, Write};
use std::mem::take;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::{Result, ServiceError};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// Pieces on their way.
const WAITING: usize = 2;

/// A message of the writer.
enum Message {
    Piece(Vec<u8>),
    /// All bytes were written.
    End,
}

/// Lets `read` have what `write` writes, while it writes. `read` runs on a thread of its own.
///
/// # Guarantee
/// The reader sees an end only where the writer has succeeded. It gets an error after bytes of a writer that failed.
///
/// # Errors
/// The error of the writer, and that of the reader where it left bytes unread.
pub(crate) fn through<T: Send>(
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
    read: impl FnOnce(&mut dyn Read) -> Result<T> + Send,
) -> Result<T> {
    let (sender, receiver) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            read(&mut Outlet {
                receiver,
                piece: Vec::new(),
                at: 0,
                over: false,
            })
        });
        let mut inlet = Inlet {
            sender,
            piece: Vec::new(),
            left: false,
        };
        let moved = |error| ServiceError::io("move", Path::new("the bytes to be stored"), error);
        let written = write(&mut inlet).and_then(|()| inlet.end().map_err(moved));
        let left = inlet.left;
        // A reader that waits sees that nothing more comes.
        drop(inlet);
        let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
        match (written, left) {
            (Err(error), false) => Err(error),
            // The reader has ended, and its reason is the one to tell.
            (Err(error), true) => read.and(Err(error)),
            (Ok(()), _) => read,
        }
    })
}

struct Inlet {
    sender: SyncSender<Message>,
    piece: Vec<u8>,
    /// `true` once the reader has left.
    left: bool,
}

impl Inlet {
    fn send(&mut self, message: Message) -> io::Result<()> {
        self.sender.send(message).map_err(|_| {
            self.left = true;
            io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads what is written")
        })
    }

    fn end(&mut self) -> io::Result<()> {
        let rest = take(&mut self.piece);
        self.send(Message::Piece(rest))?;
        self.send(Message::End)
    }
}

impl Write for Inlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.capacity() == 0 {
            self.piece = Vec::with_capacity(PIECE);
        }
        let part = &bytes[..bytes.len().min(PIECE - self.piece.len())];
        self.piece.extend_from_slice(part);
        if self.piece.len() == PIECE {
            let full = take(&mut self.piece);
            self.send(Message::Piece(full))?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Outlet {
    receiver: Receiver<Message>,
    piece: Vec<u8>,
    at: usize,
    over: bool,
}

impl Read for Outlet {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() && !self.over {
            match self.receiver.recv() {
                Ok(Message::Piece(piece)) => (self.piece, self.at) = (piece, 0),
                Ok(Message::End) => self.over = true,
                Err(_) => {
                    let why = "the writer failed before all bytes were written";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
            }
        }
        let mut rest = &self.piece[self.at..];
        let count = rest.read(bytes)?;
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io_error(error: io::Error) -> ServiceError {
        ServiceError::io("move", Path::new("bytes"), error)
    }

    fn all(reader: &mut dyn Read) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(io_error)?;
        Ok(bytes)
    }

    #[test]
    fn all_bytes_arrive_in_their_order() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3] {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let write = |writer: &mut dyn Write| {
                content
                    .chunks(100_003)
                    .try_for_each(|part| writer.write_all(part))
                    .map_err(io_error)
            };
            assert_eq!(through(write, all).unwrap(), content, "{length}");
        }
    }

    #[test]
    fn a_writer_that_fails_leaves_its_reader_without_an_end() {
        let mut seen = None;
        let write = |writer: &mut dyn Write| {
            writer.write_all(&[7; 3 * PIECE]).map_err(io_error)?;
            Err(ServiceError::Sealed)
        };
        let outcome = through(write, |reader| {
            seen = Some(all(reader).is_err());
            Ok(())
        });
        assert!(matches!(outcome, Err(ServiceError::Sealed)));
        assert_eq!(seen, Some(true));
    }

    #[test]
    fn a_reader_that_fails_ends_its_writer_and_names_the_reason() {
        let write = |writer: &mut dyn Write| {
            (0..1000)
                .try_for_each(|_| writer.write_all(&[7; PIECE]))
                .map_err(io_error)
        };
        let outcome = through(write, |_| Err::<(), _>(ServiceError::Sealed));
        assert!(matches!(outcome, Err(ServiceError::Sealed)));
    }
}
