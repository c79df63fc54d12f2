//! The boards that were signed last, as they travel. `card` in `server.rs` makes their cards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use axum::body::Bytes;
use axum::http::HeaderValue;
use undertone_protocol::digest_of;
use undertone_store::Millis;

use crate::identity::hex;

/// A board is made anew after this long, in milliseconds.
const FRESH: Millis = 250;

/// A signed board.
#[derive(Debug)]
pub(crate) struct Posted {
    made: Millis,
    /// The board as it travels.
    pub(crate) body: Bytes,
    /// The name of these bytes, for readers that have them.
    pub(crate) tag: Option<HeaderValue>,
}

/// The last board of each population. Readers wait for no other reader, nor for the making of a board.
#[derive(Debug, Default)]
pub(crate) struct Boards {
    posted: RwLock<BTreeMap<String, Arc<Posted>>>,
    making: Mutex<()>,
}

impl Boards {
    /// The board of a population, if it is fresh.
    pub(crate) fn fresh(&self, population: &str, now: Millis) -> Option<Arc<Posted>> {
        let posted = self.posted.read().unwrap_or_else(PoisonError::into_inner);
        let board = posted.get(population)?;
        (now.saturating_sub(board.made) < FRESH).then(|| board.clone())
    }

    /// The right to make boards, which one thread has at a time.
    pub(crate) fn making(&self) -> MutexGuard<'_, ()> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next readers get boards that are made from now on.
    pub(crate) fn renew(&self) {
        // A board that is being made may not know what has changed.
        let _making = self.making();
        self.posted
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Keeps the board of a population, which exists: so strangers cannot fill the memory with names.
    pub(crate) fn post(&self, population: &str, now: Millis, signed: Vec<u8>) -> Arc<Posted> {
        let tag = format!("\"{}\"", hex(&digest_of(&signed)[..16]));
        let board = Arc::new(Posted {
            made: now,
            body: signed.into(),
            tag: HeaderValue::try_from(tag).ok(),
        });
        let mut posted = self.posted.write().unwrap_or_else(PoisonError::into_inner);
        posted.insert(population.to_owned(), board.clone());
        board
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_served_for_a_quarter_of_a_second() {
        let boards = Boards::default();
        assert!(boards.fresh("words", 1000).is_none());
        let board = boards.post("words", 1000, vec![1, 2, 3]);
        assert_eq!(board.body[..], [1, 2, 3]);
        assert!(board.tag.as_ref().is_some_and(|tag| tag.len() == 34));
        assert!(
            boards
                .fresh("words", 1249)
                .is_some_and(|fresh| Arc::ptr_eq(&fresh, &board))
        );
        assert!(boards.fresh("words", 1250).is_none() && boards.fresh("others", 1000).is_none());
        boards.renew();
        assert!(boards.fresh("words", 1000).is_none());
        let next = boards.post("words", 1250, vec![4]);
        assert_ne!(next.tag, board.tag);
        assert!(
            boards
                .fresh("words", 1300)
                .is_some_and(|fresh| Arc::ptr_eq(&fresh, &next))
        );
    }
}
