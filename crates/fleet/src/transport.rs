//! The ways from the devices to the service.

use undertone_device::{HttpTransport, Transport};

use crate::error::Result;

/// A maker of connections to the service. Each worker thread opens one and keeps it, so that connections are used again.
pub trait Transports: Send + Sync {
    /// Opens the connection of a worker.
    ///
    /// # Errors
    /// A connection that cannot be made.
    fn open(&self, worker: usize) -> Result<Box<dyn Transport>>;
}

impl<F> Transports for F
where
    F: Fn(usize) -> Result<Box<dyn Transport>> + Send + Sync,
{
    fn open(&self, worker: usize) -> Result<Box<dyn Transport>> {
        self(worker)
    }
}

/// Connections over HTTP, one pool per worker.
#[derive(Debug, Clone)]
pub struct OverHttp {
    base: String,
    roots: Vec<Vec<u8>>,
    insecure: bool,
}

impl OverHttp {
    /// Connections to a service at this address: `https://`, or `http://` on this machine.
    #[must_use]
    pub fn new(base: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            roots: Vec::new(),
            insecure: false,
        }
    }

    /// Trusts one more root certificate, in PEM. The first one replaces the public roots.
    #[must_use]
    pub fn with_root(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// Allows `http://` to any machine.
    ///
    /// PRIVACY: everybody on the way can read updates. This is for tests in closed networks.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self {
            insecure: true,
            ..self
        }
    }
}

impl Transports for OverHttp {
    fn open(&self, _: usize) -> Result<Box<dyn Transport>> {
        let roots: Vec<&[u8]> = self.roots.iter().map(Vec::as_slice).collect();
        let transport = match self.insecure {
            true => HttpTransport::insecure(&self.base),
            false => HttpTransport::with_roots(&self.base, &roots),
        };
        Ok(Box::new(transport?))
    }
}
