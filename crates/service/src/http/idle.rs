//! A connection that ends where no byte moves for a while, whatever state its protocol is in.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream that fails once no byte has moved in either direction for a time.
pub(super) struct Idle<S> {
    stream: S,
    limit: Duration,
    /// The time of the last byte.
    last: Instant,
    until: Pin<Box<Sleep>>,
}

impl<S> Idle<S> {
    /// Watches a stream.
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            last: Instant::now(),
            until: Box::pin(tokio::time::sleep(limit)),
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
            let until = self.last + self.limit;
            if until <= Instant::now() {
                let error = io::Error::new(io::ErrorKind::TimedOut, "no byte moved for too long");
                return Poll::Ready(error);
            }
            self.until.as_mut().reset(until);
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
