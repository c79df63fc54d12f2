//! Graph parameters of a session: neighbours per client (k) and threshold (t), from the number of clients and the assumptions.
//!
//! Of `n` clients `c = floor(gamma n)` are corrupt and `d = floor(delta n)` drop out. Both sets are fixed before the
//! clients are dealt onto a ring in uniformly random order; a client's neighbours are the `k / 2` next on either side.
//! Three things must not happen.
//!
//! **A secret is exposed.** A client hides behind its self mask while it counts as a survivor, behind its pairwise masks
//! while it counts as dropped. Honest neighbours give a share of one of the two secrets, corrupt ones of both. Of an
//! honest-but-curious server all clients hear the same set of survivors, so the secret that is not opened has the shares
//! of the corrupt neighbours alone: they must be fewer than `t`. A server that lies may be given the one share by some
//! honest neighbours and the other by the rest, `k + corrupt` shares in all; it lacks one of two times `t` as long as
//! `2 t > k + corrupt`. The neighbours of an honest client are a uniformly random `k` of `n - 1` others, so the number of
//! corrupt ones is hypergeometric; the union bound runs over all `n`, though only the honest ones count.
//!
//! **The survivors fall apart.** Pairwise masks between honest survivors are all that is left unknown in the end; the
//! server learns the sum over each connected component of them. Two survivors next to each other on the ring are
//! neighbours unless a run of at least `h = floor(k / 2)` corrupt or dropped clients lies between them, so the graph is
//! disconnected exactly if there are two such runs. The gaps between the `s = n - c - d` honest survivors are uniform
//! over the compositions of `c + d` into `s` parts, of which a fraction of `C(n - 1 - 2 h, s - 1) / C(n - 1, s - 1)` has two
//! given parts of `h` or more; the sum over the `C(s, 2)` pairs bounds the probability (Bonferroni). Clients that are both corrupt
//! and dropped make this smaller.
//!
//! **A secret stays shut.** Every secret to be opened, a self mask or a key of a dropped client, needs `t` neighbours that
//! are still there: more than `k - t` dropped neighbours of any client fail the session. Hypergeometric again.
//!
//! # Guarantee
//! The first two together have probability at most 2^-privacy, half for each; the third at most 2^-failure. Both rest on
//! two assumptions: the clients were placed in random order, and drop-outs do not depend on that order.
//!
//! A server that lies about who dropped *after* it has seen the graph could choose the two runs that part the ring. The
//! sums over the components would then leak, though no single client's secret would. Clients make this harder, because each
//! demands `t` surviving neighbours: an honest client beside a run of `k / 2` lost or corrupt clients, `c` of them corrupt,
//! has at most `k / 2 + c` survivors around it, and refuses unless `c >= t - k / 2`. No theorem here covers all the other
//! lies that a server could tell on a sparse graph. \[SecAgg+\] has one, with several times as many neighbours; this
//! module does not claim it. Nor does it claim that a session ends if corrupt clients refuse to answer. The full graph needs
//! none of this: it has no order and cannot be parted.
//!
//! # Source
//! The conditions are those of Bell et al. (CCS 2020); the derivation is our own. The same analysis, with half of the
//! privacy failure for each of the two events, stands behind the parameters of Google's federated-compute, which it
//! reproduces: `undertone-lab reproduce secagg-parameters`.

use std::f64::consts::LN_2;

use crate::error::{Result, SecAggError, ensure};
use crate::terms::{MAX_CLIENTS, ThreatModel, Topology};

/// Maximum neighbours per client on a sparse graph: each costs a key agreement and a mask as long as the vector.
const MAX_NEIGHBOURS: u32 = 10_000;

/// Logarithms of factorials of up to 2^20 lie in `f64` within 10^-8; every bound is raised by more than their sum.
const ROUNDING: f64 = 1e-6;

/// The assumed drop-out rate, corrupt rate and threat model of a session, and the probabilities with which it may fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    drop_out_rate: f64,
    corrupt_rate: f64,
    threat_model: ThreatModel,
    privacy_bits: u32,
    failure_bits: u32,
}

/// Bounds on what may go wrong in one session, as logarithms to base 2 (negative infinity: impossible).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assurance {
    /// Logarithm of the probability that the corrupt neighbours of any honest client hold both of its secrets. In an active session
    /// they are helped by a server that lies.
    pub exposed: f64,
    /// Logarithm of the probability that the graph of honest survivors is not connected.
    pub disconnected: f64,
    /// Logarithm of the probability that a secret has fewer neighbours left than it takes to open it.
    pub shut: f64,
}

impl Assumptions {
    /// The assumptions of a deployed client: a quarter of the clients is corrupt, and a quarter drops out.
    pub(crate) const DEVICE: Self = Self {
        drop_out_rate: 0.25,
        corrupt_rate: 0.25,
        threat_model: ThreatModel::Active,
        privacy_bits: 40,
        failure_bits: 20,
    };

    /// At most these fractions of a session's clients drop out and are corrupt; privacy fails with probability at most
    /// 2^-40, a session with 2^-20.
    ///
    /// # Errors
    /// [`SecAggError::Rate`] names a rate outside `[0, 1)`.
    pub fn new(drop_out_rate: f64, corrupt_rate: f64, threat_model: ThreatModel) -> Result<Self> {
        for (name, rate) in [
            ("the drop-out rate", drop_out_rate),
            ("the corrupt rate", corrupt_rate),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(SecAggError::Rate {
                    name,
                    expected: "a number in [0, 1)",
                    got: rate.to_string(),
                });
            }
        }
        Ok(Self {
            drop_out_rate,
            corrupt_rate,
            threat_model,
            privacy_bits: 40,
            failure_bits: 20,
        })
    }

    /// Replaces the exponents: privacy fails with probability at most `2^-privacy_bits`, a session with `2^-failure_bits`.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] for exponents that are not in 1 to 128.
    pub fn with_bits(self, privacy_bits: u32, failure_bits: u32) -> Result<Self> {
        for (name, got) in [
            ("the bits of privacy", privacy_bits),
            ("the bits of failure", failure_bits),
        ] {
            ensure((1..=128).contains(&got), name, "1 to 128", got)?;
        }
        Ok(Self {
            privacy_bits,
            failure_bits,
            ..self
        })
    }

    /// The assumed fraction of corrupt clients.
    #[must_use]
    pub fn corrupt_rate(&self) -> f64 {
        self.corrupt_rate
    }

    /// The threat model for which the assumptions were made.
    #[must_use]
    pub fn threat_model(&self) -> ThreatModel {
        self.threat_model
    }

    /// The exponent of privacy, which fails with probability at most `2^-privacy_bits`.
    #[must_use]
    pub fn privacy_bits(&self) -> u32 {
        self.privacy_bits
    }

    /// The graph of `clients` with the fewest neighbours that holds, and the smallest threshold on it: a ring with `k` even,
    /// or else the full graph.
    ///
    /// # Errors
    /// [`SecAggError::Setting`] for fewer than 2 clients or more than [`MAX_CLIENTS`]; [`SecAggError::Infeasible`] where
    /// corrupt and dropped clients are too many for any graph of at most 10,000 neighbours.
    ///
    /// # Example
    /// ```
    /// use undertone_secagg::{ThreatModel, assurance::Assumptions};
    /// let assumptions = Assumptions::new(0.1, 0.1, ThreatModel::HonestButCurious)?;
    /// let found = assumptions.topology(1000)?;
    /// assert_eq!((found.neighbours(), found.threshold()), (48, 27));
    /// assert!(assumptions.assurance(&found).privacy() <= -40.0);
    /// # Ok::<(), undertone_secagg::SecAggError>(())
    /// ```
    pub fn topology(&self, clients: u32) -> Result<Topology> {
        let holds = (2..=MAX_CLIENTS).contains(&clients);
        ensure(holds, "the number of clients", "2 to 2^20", clients)?;
        let session = Session::new(self, clients);
        let per_event = -(f64::from(self.privacy_bits) + 1.0) * LN_2;
        let failure = -f64::from(self.failure_bits) * LN_2;
        // More neighbours never make fewer corrupt ones likely, so the search goes on where it stopped.
        let mut corrupt = 1;
        for neighbours in (2..(clients - 1).min(MAX_NEIGHBOURS)).step_by(2) {
            while session.log_exposed(neighbours, corrupt) > per_event {
                corrupt += 1;
            }
            let threshold = self.threshold(neighbours, corrupt);
            if threshold <= neighbours
                && session.log_disconnected(neighbours) <= per_event
                && session.log_shut(neighbours, threshold) <= failure
            {
                return Topology::new(clients, neighbours, threshold);
            }
        }
        // On the full graph nothing is left to chance.
        let threshold = self.threshold(clients - 1, session.corrupt + 1);
        if clients - 1 <= MAX_NEIGHBOURS && threshold + session.dropped < clients {
            return Topology::full(clients, threshold);
        }
        Err(SecAggError::Infeasible {
            clients,
            corrupt: session.corrupt,
            dropped: session.dropped,
        })
    }

    /// Computes the failure probabilities of a session on a given graph.
    #[must_use]
    pub fn assurance(&self, topology: &Topology) -> Assurance {
        let session = Session::new(self, topology.clients());
        let (k, t) = (topology.neighbours(), topology.threshold());
        // PRIVACY: the fewest corrupt neighbours that are too many.
        let too_many = match self.threat_model {
            ThreatModel::HonestButCurious => t,
            ThreatModel::Active => (2 * t).saturating_sub(k),
        };
        Assurance {
            exposed: session.log_exposed(k, too_many) / LN_2,
            disconnected: session.log_disconnected(k) / LN_2,
            shut: session.log_shut(k, t) / LN_2,
        }
    }

    /// The smallest threshold with fewer than `corrupt` corrupt neighbours. A secret that one neighbour opens is not shared,
    /// so 2 at least.
    fn threshold(&self, neighbours: u32, corrupt: u32) -> u32 {
        match self.threat_model {
            ThreatModel::HonestButCurious => corrupt.max(2),
            ThreatModel::Active => ((neighbours + corrupt - 1) / 2 + 1).max(2),
        }
    }
}

impl Assurance {
    /// The logarithm to base 2 of the probability that privacy fails: exposed or disconnected.
    #[must_use]
    pub fn privacy(&self) -> f64 {
        (self.exposed.exp2() + self.disconnected.exp2()).log2()
    }
}

/// Clients by what becomes of them, in the worst case.
struct Session {
    clients: u32,
    corrupt: u32,
    dropped: u32,
}

impl Session {
    fn new(assumptions: &Assumptions, clients: u32) -> Self {
        // A fraction of 0.29 is 28.999... of 100 clients in floating point: what is next to an integer counts as it.
        let of_all = |rate: f64| (rate * f64::from(clients) + 1e-6).floor() as u32;
        Self {
            clients,
            corrupt: of_all(assumptions.corrupt_rate),
            dropped: of_all(assumptions.drop_out_rate),
        }
    }

    /// `ln` of a bound on the probability that any client has `too_many` or more corrupt neighbours.
    fn log_exposed(&self, neighbours: u32, too_many: u32) -> f64 {
        self.log_any(self.corrupt, neighbours, too_many)
    }

    /// `ln` of a bound on the probability that any client has fewer than `threshold` neighbours left.
    fn log_shut(&self, neighbours: u32, threshold: u32) -> f64 {
        self.log_any(self.dropped, neighbours, neighbours - threshold + 1)
    }

    fn log_any(&self, marked: u32, neighbours: u32, min: u32) -> f64 {
        let others = self.clients - 1;
        (log_hypergeometric_tail(others, marked.min(others), neighbours, min) + f64::from(self.clients).ln())
            .min(0.0)
    }

    /// `ln` of a bound on the probability that two runs of lost clients part the ring.
    fn log_disconnected(&self, neighbours: u32) -> f64 {
        let lost = self.corrupt + self.dropped;
        let runs = 2 * (neighbours / 2);
        // One survivor or none has nobody to be hidden with.
        let Some(survivors) = self.clients.checked_sub(lost).filter(|left| *left >= 2) else {
            return 0.0;
        };
        if neighbours == self.clients - 1 || runs > lost {
            return f64::NEG_INFINITY;
        }
        let pairs = log_choose(survivors, 2);
        let both =
            log_choose(self.clients - 1 - runs, survivors - 1) - log_choose(self.clients - 1, survivors - 1);
        (pairs + both + ROUNDING).min(0.0)
    }
}

/// `ln P[X >= min]` where `X` of `drawn` out of `population` are among the `marked`; never below the true value.
fn log_hypergeometric_tail(population: u32, marked: u32, drawn: u32, min: u32) -> f64 {
    let highest = drawn.min(marked);
    if min <= (drawn + marked).saturating_sub(population) {
        return 0.0;
    }
    if min > highest {
        return f64::NEG_INFINITY;
    }
    let all = log_choose(population, drawn);
    let log_mass = |x: u32| log_choose(marked, x) + log_choose(population - marked, drawn - x) - all;
    // Masses relative to the first; they rise to the mode and fall from there.
    let first = log_mass(min);
    let mut sum = 0.0;
    for x in min..=highest {
        let mass = (log_mass(x) - first).exp();
        sum += mass;
        // Past the mode the ratios of masses fall, so what is left is below `mass * ratio / (1 - ratio)`.
        let ratio = f64::from(marked - x) * f64::from(drawn - x)
            / (f64::from(x + 1) * f64::from((population - marked + x + 1).saturating_sub(drawn)).max(1.0));
        if ratio < 0.5 && mass < 1e-12 * sum {
            break;
        }
    }
    (first + sum.ln() + ROUNDING).min(0.0)
}

/// `ln C(n, k)`; negative infinity where there is none.
fn log_choose(n: u32, k: u32) -> f64 {
    if k > n {
        return f64::NEG_INFINITY;
    }
    let log_factorial = |n: u32| libm::lgamma(f64::from(n) + 1.0);
    log_factorial(n) - log_factorial(k) - log_factorial(n - k)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [ThreatModel; 2] = [ThreatModel::HonestButCurious, ThreatModel::Active];

    /// Subsets of `size` out of `n` elements, as bits.
    fn subsets(n: u32, size: u32) -> impl Iterator<Item = u32> {
        (0u32..1 << n).filter(move |set| set.count_ones() == size)
    }

    /// Returns `true` if the kept vertices of the ring are connected, by search.
    fn connected(n: u32, neighbours: u32, kept: u32) -> bool {
        let mut reached = kept & kept.wrapping_neg();
        loop {
            let mut next = reached;
            for i in (0..n).filter(|i| (reached >> i) & 1 == 1) {
                for step in 1..=neighbours / 2 {
                    next |= ((1 << ((i + step) % n)) | (1 << ((i + n - step) % n))) & kept;
                }
            }
            if next == reached {
                return reached == kept;
            }
            reached = next;
        }
    }

    #[test]
    fn tails_are_what_enumeration_counts() {
        for (population, marked, drawn) in [(10, 3, 4), (12, 6, 5), (13, 9, 8), (9, 0, 4), (8, 8, 3)] {
            let set = (1u32 << marked) - 1;
            for min in 0..=drawn + 1 {
                let counts = subsets(population, drawn)
                    .map(|draw| u32::from((draw & set).count_ones() >= min))
                    .fold((0, 0), |(hits, all), hit| (hits + hit, all + 1));
                let want = f64::from(counts.0) / f64::from(counts.1);
                let got = log_hypergeometric_tail(population, marked, drawn, min).exp();
                let near = got >= want && got <= want * (1.0 + 3.0 * ROUNDING);
                assert!(near, "{population} {marked} {drawn} {min}: {got}, {want}");
            }
        }
    }

    /// Every set of lost clients on every small ring: the bound holds, and is exact where no three runs fit.
    #[test]
    fn rings_fall_apart_as_often_as_enumeration_counts() {
        for n in 5..=14 {
            for neighbours in [2, 4, 6] {
                for lost in 0..=n - 2 {
                    let session = Session {
                        clients: n,
                        corrupt: lost / 2,
                        dropped: lost - lost / 2,
                    };
                    if neighbours >= n - 1 {
                        continue;
                    }
                    let all = (1u32 << n) - 1;
                    let (mut apart, mut sets) = (0u32, 0u32);
                    for set in subsets(n, lost) {
                        apart += u32::from(!connected(n, neighbours, all & !set));
                        sets += 1;
                    }
                    let want = f64::from(apart) / f64::from(sets);
                    let got = session.log_disconnected(neighbours).exp();
                    assert!(got >= want, "{n} {neighbours} {lost}: {got} < {want}");
                    if 3 * (neighbours / 2) > lost {
                        assert!(
                            got <= want * (1.0 + 2.0 * ROUNDING),
                            "{n} {neighbours} {lost}: {got}, {want}"
                        );
                    }
                }
            }
        }
    }

    /// SplitMix64: enough for shuffling.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = *state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Whole sessions drawn at random, at parameters weak enough to fail: how many clients are exposed and how many secrets
    /// stay shut has the mean that the tails say (6 standard errors: false alarms below 1e-8), and the frequency that a
    /// session fails stays below the bounds.
    #[test]
    fn sampled_sessions_fail_as_computed() {
        const SESSIONS: u32 = 20_000;
        let (n, corrupt, dropped, k) = (60usize, 12usize, 15usize, 10usize);
        // Thresholds for the one and the other, so that both fail now and then.
        let (open, needed) = (6, 4);
        let mut state = 7;
        let mut ring: Vec<usize> = (0..n).collect();
        let (mut exposed, mut shut) = (Sample::default(), Sample::default());
        let (mut any_exposed, mut any_shut, mut apart) = (0.0, 0.0, 0.0);
        for _ in 0..SESSIONS {
            for i in (1..n).rev() {
                ring.swap(i, (random(&mut state) % (i as u64 + 1)) as usize);
            }
            // The first are corrupt, the last drop out.
            let neighbours =
                |at: usize| (1..=k / 2).flat_map(move |step| [(at + step) % n, (at + n - step) % n]);
            let (mut exposures, mut closures) = (0, 0);
            for at in (0..n).filter(|at| ring[*at] >= corrupt) {
                exposures += usize::from(neighbours(at).filter(|j| ring[*j] < corrupt).count() >= open);
                // Of a survivor: a dropped client has one dropped client fewer beside it.
                let left = neighbours(at).filter(|j| ring[*j] < n - dropped).count();
                closures += usize::from(ring[at] < n - dropped && left < needed);
            }
            exposed.add(exposures as f64);
            shut.add(closures as f64);
            any_exposed += f64::from(exposures > 0);
            any_shut += f64::from(closures > 0);
            let kept = |at: usize| ring[at] >= corrupt && ring[at] < n - dropped;
            let runs =
                (0..n).filter(|start| kept(*start) && (1..=k / 2).all(|step| !kept((start + step) % n)));
            apart += f64::from(runs.count() >= 2);
        }
        let tail = |marked: usize, min: usize| {
            log_hypergeometric_tail(n as u32 - 1, marked as u32, k as u32, min as u32).exp()
        };
        exposed.check((n - corrupt) as f64 * tail(corrupt, open));
        shut.check((n - corrupt - dropped) as f64 * tail(dropped, k - needed + 1));
        let session = Session {
            clients: n as u32,
            corrupt: corrupt as u32,
            dropped: dropped as u32,
        };
        for (count, bound) in [
            (any_exposed, session.log_exposed(k as u32, open as u32)),
            (any_shut, session.log_shut(k as u32, needed as u32)),
            (apart, session.log_disconnected(k as u32)),
        ] {
            let (frequency, bound) = (count / f64::from(SESSIONS), bound.exp());
            let error = (bound * (1.0 - bound) / f64::from(SESSIONS)).sqrt();
            assert!(
                count > 0.0 && frequency <= bound + 6.0 * error,
                "{frequency} > {bound}"
            );
        }
    }

    #[derive(Default)]
    struct Sample {
        count: f64,
        sum: f64,
        squares: f64,
    }

    impl Sample {
        fn add(&mut self, value: f64) {
            self.count += 1.0;
            self.sum += value;
            self.squares += value * value;
        }

        fn check(&self, want: f64) {
            let mean = self.sum / self.count;
            let error = ((self.squares / self.count - mean * mean) / self.count).sqrt();
            assert!(
                (mean - want).abs() <= 6.0 * error,
                "{mean} +- {error}, want {want}"
            );
        }
    }

    #[test]
    fn what_is_found_holds_and_two_neighbours_fewer_do_not() {
        for threat_model in BOTH {
            for (drop_out, corrupt) in [(0.0, 0.0), (0.05, 0.05), (0.1, 0.1), (0.2, 0.1), (0.0, 0.3)] {
                let assumptions = Assumptions::new(drop_out, corrupt, threat_model).unwrap();
                for clients in [20, 57, 100, 333, 1000, 5000] {
                    let found = assumptions.topology(clients).unwrap();
                    let (k, t) = (found.neighbours(), found.threshold());
                    let holds = |k, t| {
                        let at = assumptions.assurance(&Topology::new(clients, k, t).unwrap());
                        at.exposed <= -41.0 && at.disconnected <= -41.0 && at.shut <= -20.0
                    };
                    assert!(
                        holds(k, t),
                        "{threat_model:?} {drop_out} {corrupt} {clients}: {found:?}"
                    );
                    assert!(assumptions.assurance(&found).privacy() <= -40.0);
                    let fewer = k - if k == clients - 1 && k % 2 == 1 { 1 } else { 2 };
                    let weaker = (2..=fewer).find(|t| holds(fewer, *t));
                    assert!(weaker.is_none(), "{clients}: {fewer} neighbours hold, found {k}");
                    assert!(
                        t == 2 || !holds(k, t - 1),
                        "{clients}: threshold {t} is not the smallest"
                    );
                }
            }
        }
    }

    #[test]
    #[ignore = "slow"]
    fn impossible_assumptions_are_refused() {
        for rate in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
            let message = Assumptions::new(rate, 0.1, BOTH[0]).unwrap_err().to_string();
            assert!(message.contains("drop-out rate"), "{message}");
            assert!(Assumptions::new(0.1, rate, BOTH[0]).is_err());
        }
        let assumptions = Assumptions::new(0.5, 0.5, BOTH[0]).unwrap();
        assert!(assumptions.with_bits(0, 20).is_err() && assumptions.with_bits(40, 129).is_err());
        assert!(assumptions.topology(1).is_err() && assumptions.topology(MAX_CLIENTS + 1).is_err());
        let message = assumptions.topology(100).unwrap_err().to_string();
        assert_eq!(
            message,
            "no graph with at most 10000 neighbours per client protects 100 clients if 50 are corrupt and 50 drop out"
        );
        // A gap too narrow for a sparse graph and too many clients for a full one.
        let narrow = Assumptions::new(0.49, 0.5, BOTH[0]).unwrap();
        assert!(narrow.topology(50_000).is_err());
        assert_eq!(narrow.topology(200).unwrap().neighbours(), 199);
    }
}
