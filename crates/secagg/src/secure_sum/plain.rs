//! The sum in the clear: the server sees every vector.

use std::sync::Mutex;

use rand_core::CryptoRng;
use rayon::prelude::*;
use undertone_aggregation::{ModularVec, Modulus, pack};

use super::{DropOut, Phase, SecureSum, SumOutcome, SumRequest, Traffic};
use crate::error::{Result, SecAggError, at_least};

/// Adds the vectors without masks.
///
/// # Guarantee
/// None against the server, which sees every vector; the sum is that of [`SecAggPlus`](super::SecAggPlus).
///
/// # Example
/// ```
/// use undertone_aggregation::ModularVec;
/// use undertone_secagg::{Context, DropOut, GraphChoice, Plain, SecAggPlus, SecureSum, SumRequest, Terms, ThreatModel};
/// use rand_core::SeedableRng;
///
/// let context = Context {
///     run: [0; 32], round: 1, attempt: 0, shard: 0, plan_digest: [0; 32], model_digest: [0; 32],
///     terms: Terms::new(3, 1000, ThreatModel::HonestButCurious)?,
/// };
/// let request = SumRequest {
///     context,
///     clients: 5,
///     input: &|client, vector| vector.add_at(0, &[client, 10 * client, 999]),
///     drop_out: &|client| (client == 2).then_some(DropOut::BeforeInput),
///     finished: &|_| (),
/// };
/// let mut rng = rand_chacha::ChaCha20Rng::from_seed([7; 32]);
/// let plain = Plain.sum(&request, &mut rng)?;
/// let secure = SecAggPlus::simulation(GraphChoice::Full { threshold_percent: 60 }).sum(&request, &mut rng)?;
/// assert_eq!(secure.included, [0, 1, 3, 4]);
/// assert!(secure.sum.iter().eq([8, 80, 996]) && plain.sum.iter().eq(secure.sum.iter()));
/// # Ok::<(), undertone_secagg::SecAggError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl SecureSum for Plain {
    fn sum(&self, request: &SumRequest<'_>, _rng: &mut dyn CryptoRng) -> Result<SumOutcome> {
        let terms = &request.context.terms;
        let modulus = Modulus::new(terms.modulus())?;
        let len = usize::try_from(terms.length()).unwrap_or(usize::MAX);
        let packed = pack::packed_len(modulus, len)? as u64;
        let stays =
            |client: &u32| (request.drop_out)(*client).is_none_or(|point| point > DropOut::BeforeInput);
        let included: Vec<u32> = (0..request.clients).filter(stays).collect();
        let count = included.len() as u32;
        if count > terms.max_clients() {
            return Err(SecAggError::TooMany {
                max: terms.max_clients(),
            });
        }
        at_least("survivors", terms.min_survivors(), count)?;
        let sum = Mutex::new(ModularVec::zeros(modulus, len));
        included.par_iter().try_for_each_init(
            || ModularVec::zeros(modulus, len),
            |vector, client| {
                vector.clear();
                (request.input)(*client, vector)?;
                sum.lock()
                    .map_err(|_| undertone_aggregation::AggregationError::Poisoned)?
                    .add(vector)
            },
        )?;
        (request.finished)(Phase::Sum);
        let sum = sum
            .into_inner()
            .map_err(|_| undertone_aggregation::AggregationError::Poisoned)?;
        let traffic = vec![(
            Phase::Inputs,
            Traffic {
                up: packed * u64::from(count),
                down: 0,
            },
        )];
        Ok(SumOutcome {
            sum,
            included,
            culprits: Vec::new(),
            traffic,
        })
    }
}
