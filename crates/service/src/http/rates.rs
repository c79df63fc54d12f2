//! Limits on the rate of requests: buckets that fill with time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use undertone_protocol::{Code, Problem, RetryWindow};

use super::Refused;
use super::connections::Connection;
use crate::capacity::RateLimits;
use crate::server::Service;

/// The least number of requests that may come at once.
const BURST: f64 = 10.0;

/// Addresses that are remembered. Beyond it those whose buckets are full are forgotten, and then all.
const ADDRESSES: usize = 65_536;

/// The acts whose rates are limited apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    CheckIn,
    Enrol,
}

/// A bucket: the tokens in it at a time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The size and the speed of buckets.
#[derive(Debug, Clone, Copy)]
struct Rate {
    per_second: f64,
    burst: f64,
}

impl Rate {
    fn new(per_second: f64) -> Self {
        Self {
            per_second,
            burst: per_second.max(BURST),
        }
    }

    fn full(self, now: Instant) -> Bucket {
        Bucket {
            tokens: self.burst,
            at: now,
        }
    }

    fn tokens(self, bucket: Bucket, now: Instant) -> f64 {
        let filled = now.duration_since(bucket.at).as_secs_f64() * self.per_second;
        (bucket.tokens + filled).min(self.burst)
    }

    /// Takes a token; `Err` holds the milliseconds until there is one.
    fn take(self, bucket: &mut Bucket, now: Instant) -> Result<(), u64> {
        let tokens = self.tokens(*bucket, now);
        bucket.at = now;
        if tokens >= 1.0 {
            bucket.tokens = tokens - 1.0;
            return Ok(());
        }
        bucket.tokens = tokens;
        Err(((1.0 - tokens) / self.per_second * 1000.0).ceil() as u64)
    }
}

/// The buckets of a service.
#[derive(Debug)]
pub(crate) struct Rates {
    check_ins: Option<(Rate, Mutex<Bucket>)>,
    enrolments: Option<(Rate, Mutex<Bucket>)>,
    addresses: Option<(Rate, Mutex<HashMap<IpAddr, Bucket>>)>,
}

impl Rates {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        let now = Instant::now();
        let whole = |limit: Option<f64>| {
            limit.map(|per_second| {
                let rate = Rate::new(per_second);
                (rate, Mutex::new(rate.full(now)))
            })
        };
        Self {
            check_ins: whole(limits.check_ins),
            enrolments: whole(limits.enrolments),
            addresses: limits
                .requests_per_address
                .map(|per_second| (Rate::new(per_second), Mutex::default())),
        }
    }

    /// Counts an act; `Err` holds the milliseconds after which it may come again.
    fn act(&self, act: Act, now: Instant) -> Result<(), u64> {
        let limit = match act {
            Act::CheckIn => &self.check_ins,
            Act::Enrol => &self.enrolments,
        };
        let Some((rate, bucket)) = limit else {
            return Ok(());
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        rate.take(&mut bucket, now)
    }

    /// Counts a request of an address.
    fn address(&self, peer: IpAddr, now: Instant) -> Result<(), u64> {
        let Some((rate, buckets)) = &self.addresses else {
            return Ok(());
        };
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= ADDRESSES && !buckets.contains_key(&prefix(peer)) {
            buckets.retain(|_, bucket| rate.tokens(*bucket, now) < rate.burst);
            if buckets.len() >= ADDRESSES {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(prefix(peer)).or_insert_with(|| rate.full(now));
        rate.take(bucket, now)
    }
}

/// The part of an address that one subscriber has: all of IPv4, 64 bits of IPv6.
fn prefix(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

fn refused(wait: u64) -> Response {
    let window = RetryWindow::between(wait.max(1000), 2 * wait.max(1000));
    Refused(Problem::new(Code::TooSoon, "too many requests came at once").with_retry(window)).into_response()
}

/// Lets a request pass that its address has a token for.
pub(super) async fn per_address(
    State(service): State<Arc<Service>>,
    request: Request,
    then: Next,
) -> Response {
    let peer = request
        .extensions()
        .get::<Arc<Connection>>()
        .map(|connection| connection.peer);
    match peer.map(|peer| service.rates().address(peer, Instant::now())) {
        Some(Err(wait)) => refused(wait),
        _ => then.run(request).await,
    }
}

/// Lets an act pass that there is a token for.
pub(super) async fn of_act(
    State((service, act)): State<(Arc<Service>, Act)>,
    request: Request,
    then: Next,
) -> Response {
    match service.rates().act(act, Instant::now()) {
        Ok(()) => then.run(request).await,
        Err(wait) => refused(wait),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_beyond_a_rate_are_refused_with_the_time_until_the_next_token() {
        let rates = Rates::new(&RateLimits {
            check_ins: Some(2.0),
            ..RateLimits::default()
        });
        let begun = Instant::now();
        let taken = (0..100)
            .filter(|_| rates.act(Act::CheckIn, begun).is_ok())
            .count();
        assert_eq!(taken, 10);
        assert_eq!(rates.act(Act::CheckIn, begun), Err(500));
        assert_eq!(rates.act(Act::Enrol, begun), Ok(()));
        let later = begun + Duration::from_secs(3);
        let taken = (0..100)
            .filter(|_| rates.act(Act::CheckIn, later).is_ok())
            .count();
        assert_eq!(taken, 6);
    }

    #[test]
    fn one_address_does_not_take_the_tokens_of_another_and_a_subscriber_has_one_address() {
        let rates = Rates::new(&RateLimits {
            requests_per_address: Some(1.0),
            ..RateLimits::default()
        });
        let now = Instant::now();
        let count = |address: &str| {
            let address = address.parse().unwrap();
            (0..100).filter(|_| rates.address(address, now).is_ok()).count()
        };
        assert_eq!(count("192.0.2.1"), 10);
        assert_eq!(count("::ffff:192.0.2.1"), 0);
        assert_eq!(count("192.0.2.2"), 10);
        assert_eq!(count("2001:db8::1"), 10);
        assert_eq!(count("2001:db8::ffff:1"), 0);
        assert_eq!(count("2001:db8:0:1::1"), 10);
    }

    #[test]
    fn the_addresses_that_are_remembered_have_a_ceiling() {
        let rates = Rates::new(&RateLimits {
            requests_per_address: Some(1.0),
            ..RateLimits::default()
        });
        let now = Instant::now();
        for number in 0..ADDRESSES as u32 + 10 {
            assert!(rates.address(IpAddr::V4(number.into()), now).is_ok());
        }
        let (_, buckets) = rates.addresses.as_ref().unwrap();
        assert!(buckets.lock().unwrap().len() <= ADDRESSES);
    }
}
