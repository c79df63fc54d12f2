//! The options of `undertone serve` that limit the share of its machine that clients may take.

use undertone_data::ByteSize;
use undertone_service::capacity::{Capacity, RateLimits};

use super::super::descriptors;

/// The ceilings of a server.
#[derive(Debug, clap::Args)]
pub(super) struct LimitsArgs {
    /// Limit the memory for uploads on their way, for example 512MB. What is beyond it goes to an encrypted temporary file.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    spool_ram: ByteSize,
    /// Limit the memory for bodies of requests that are being received. A fifth of it is kept for check-ins and enrolments.
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    bodies_ram: ByteSize,
    /// Send at most this number of downloads at one time. Each takes up to 96 KiB of memory.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_downloads: usize,
    /// Hold at most this number of connections of devices. Fewer are held where the limit on descriptors is lower: `ulimit -Hn`.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_connections: usize,
    /// Say on `/readyz` that the process is not ready while the disk of the data folder has less room.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    disk_floor: ByteSize,
    /// Take at most this number of check-ins per second, of all devices together (default: no limit).
    #[arg(long, value_name = "RATE", value_parser = rate)]
    check_ins_per_second: Option<f64>,
    /// Take at most this number of enrolments and session keys per second, of all devices together (default: no limit).
    #[arg(long, value_name = "RATE", value_parser = rate)]
    enrolments_per_second: Option<f64>,
    /// Take at most this number of requests per second from one address (default: no limit). Devices behind one proxy have one address.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    requests_per_address: Option<f64>,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (0.001..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected a number of requests per second from 0.001 to 1e9".to_owned()),
    }
}

impl LimitsArgs {
    /// The share of the machine, after the limit on descriptors was raised as far as it goes.
    pub(super) fn capacity(&self) -> Capacity {
        Capacity {
            spool_ram: self.spool_ram.0 as u64,
            in_flight: self.bodies_ram.0 as u64,
            downloads: self.max_downloads,
            connections: self.max_connections,
            descriptors: descriptors::raise_limit(),
            disk_floor: self.disk_floor.0 as u64,
            rates: RateLimits {
                check_ins: self.check_ins_per_second,
                enrolments: self.enrolments_per_second,
                requests_per_address: self.requests_per_address,
            },
            ..Capacity::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitsArgs,
    }

    #[test]
    fn the_options_have_the_defaults_of_the_service() {
        let stated = Line::try_parse_from(["serve"]).unwrap().limits.capacity();
        let own = Capacity::default();
        assert_eq!(stated.in_flight, own.in_flight);
        assert_eq!(stated.downloads, own.downloads);
        assert_eq!(stated.connections, own.connections);
        assert_eq!(stated.disk_floor, own.disk_floor);
        assert_eq!(stated.spool_ram, own.spool_ram);
        assert_eq!(stated.rates, own.rates);
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        for text in ["0", "-1", "nan", "inf", "many", ""] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(rate("0.5"), Ok(0.5));
    }
}
