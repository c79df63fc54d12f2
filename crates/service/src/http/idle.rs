//! A connection that ends where no byte moves for a while, whatever state its protocol is in, and where bytes move to no end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::connections::Connection;
use super::times::Times;

/// The longest time between two looks at what the connection does.
const LOOK: Duration = Duration::from_secs(30);

/// A stream that fails once no byte has moved in either direction for a time, or nothing of use has happened for a longer one. Bytes
/// alone are no use: a client may answer pings for ever and read nothing.
pub(super) struct Idle<S> {
    stream: S,
    times: Times,
    connection: Arc<Connection>,
    /// The time of the last byte.
    last: Instant,
    until: Pin<Box<Sleep>>,
}

impl<S> Idle<S> {
    /// Watches a stream.
    pub(super) fn new(stream: S, times: Times, connection: Arc<Connection>) -> Self {
        Self {
            stream,
            times,
            last: Instant::now(),
            until: Box::pin(tokio::time::sleep(times.first.min(times.idle).min(LOOK))),
            connection,
        }
    }

    /// A byte has moved.
    fn moved(&mut self) {
        self.last = Instant::now();
    }

    /// Nothing moves now: an error, once the time is over. The task wakes then.
    fn waits(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        // The timer is set anew where it runs out, since that is dear, and bytes move often.
        while self.until.as_mut().poll(context).is_ready() {
            let until = (self.last + self.times.idle).min(self.connection.until(&self.times));
            let now = Instant::now();
            if until <= now {
                let error = io::Error::new(io::ErrorKind::TimedOut, "nothing of use happened for too long");
                return Poll::Ready(error);
            }
            self.until.as_mut().reset(until.min(now + LOOK));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_read(context, into) {
            Poll::Pending => this.waits(context).map(Err),
            ready => {
                this.moved();
                ready
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write(context, bytes) {
            Poll::Pending => this.waits(context).map(Err),
            ready => {
                this.moved();
                ready
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(context) {
            Poll::Pending => this.waits(context).map(Err),
            ready => ready,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_shutdown(context) {
            Poll::Pending => this.waits(context).map(Err),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write_vectored(context, bytes) {
            Poll::Pending => this.waits(context).map(Err),
            ready => {
                this.moved();
                ready
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::http::connections::Connections;

    /// A client that sends four bytes every ten milliseconds.
    struct Pings(Pin<Box<Sleep>>);

    impl AsyncRead for Pings {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.0.as_mut().reset(Instant::now() + Duration::from_millis(10));
            into.put_slice(b"ping");
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_client_that_answers_pings_and_takes_nothing_is_idle() {
        let times = Times {
            stall: Duration::from_millis(300),
            idle: Duration::from_secs(60),
            ..Times::default()
        };
        let connections = Arc::new(Connections::new(4, None));
        let place = connections.place([127, 0, 0, 1].into()).await;
        // A download was asked for, and no piece of it is taken.
        place.connection.ask();
        let _download = place.connection.download();
        let pings = Pings(Box::pin(tokio::time::sleep(Duration::ZERO)));
        let mut idle = Idle::new(pings, times, place.connection.clone());
        let begun = Instant::now();
        // A look comes soon.
        idle.until.as_mut().reset(begun + Duration::from_millis(100));
        let mut bytes = 0;
        let error = loop {
            let mut space = [0; 16];
            let mut into = ReadBuf::new(&mut space);
            match poll_fn(|context| Pin::new(&mut idle).poll_read(context, &mut into)).await {
                Ok(()) => bytes += into.filled().len(),
                Err(error) => break error,
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "bytes alone kept it");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(bytes > 0);
        let passed = begun.elapsed();
        assert!(passed >= times.stall, "{passed:?}");
    }
}
