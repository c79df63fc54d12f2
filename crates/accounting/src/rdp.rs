//! Renyi differential privacy: orders, divergences of each event, conversion.

mod bounded_range;
pub mod conversion;
mod laplace;
mod orders;
pub(crate) mod poisson_gaussian;
mod randomized_response;
pub mod repeat_and_select;
mod without_replacement;

pub use orders::default_orders;

use crate::error::{finite_order, without_noise};
use crate::{AccountingError, Adjacency, Event, event};

/// Renyi divergence of one `event` at each of `orders` (all > 1), under the relation it is stated for; the larger
/// of the two directions.
///
/// # Errors
/// [`AccountingError::UnsupportedCurve`] for an event without a Renyi curve; [`AccountingError::NoFiniteGuarantee`]
/// for [`Event::NonPrivate`]; [`AccountingError::OutOfRange`] for an order that is not a finite number > 1, and
/// whatever the event's own fields break.
///
/// # Example
/// ```
/// use undertone_accounting::{Event, NoiseMultiplier, rdp};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let event = Event::Gaussian { noise_multiplier: NoiseMultiplier::new(2.0)? };
/// assert_eq!(rdp::curve(&event, &[2.0, 8.0])?, [0.25, 1.0]);
/// # Ok(())
/// # }
/// ```
pub fn curve(event: &Event, orders: &[f64]) -> Result<Vec<f64>, AccountingError> {
    curve_under(
        event,
        event.adjacency().unwrap_or(Adjacency::AddOrRemoveOne),
        orders,
    )
}

/// The Renyi divergences of an event at `orders`, under any relation that the event supports. `+inf` where no
/// divergence is finite, or none is evaluated because the order is beyond any use.
///
/// # Errors
/// [`AccountingError::UnsupportedAdjacency`] for a relation that the event cannot be accounted for under, and the errors of [`curve`].
pub(crate) fn curve_under(
    event: &Event,
    adjacency: Adjacency,
    orders: &[f64],
) -> Result<Vec<f64>, AccountingError> {
    event.validate()?;
    for &order in orders {
        finite_order(order)?;
    }
    if *event == Event::NonPrivate {
        return Err(without_noise());
    }
    if !event.supports(adjacency) {
        return Err(AccountingError::UnsupportedAdjacency {
            adjacency,
            event: event.kind(),
        });
    }
    if let Some((rho, xi)) = event.concentrated(adjacency) {
        return Ok(orders.iter().map(|order| rho * order + xi).collect());
    }
    let mut curve = curve_of(event, adjacency, orders)?;
    // PRIVACY: a release over a sample is a mixture of releases without sampling over coins that both neighbours share, and Renyi
    // divergences are jointly quasi-convex. So each order has the smaller bound of the two. No order exceeds the largest loss.
    let unsampled = event.unsampled_rho(adjacency).unwrap_or(f64::INFINITY);
    let largest = event.max_loss(adjacency);
    for (divergence, order) in curve.iter_mut().zip(orders) {
        let limit = (unsampled * order).min(largest);
        if limit < *divergence || divergence.is_nan() {
            *divergence = limit;
        }
    }
    if !std::ptr::eq(event.without_sampling(), event) {
        let all = curve_under(event.without_sampling(), adjacency, orders)?;
        curve
            .iter_mut()
            .zip(all)
            .for_each(|(divergence, all)| *divergence = divergence.min(all));
    }
    Ok(curve)
}

/// The divergences of an event of one relation that has no rho.
fn curve_of(event: &Event, adjacency: Adjacency, orders: &[f64]) -> Result<Vec<f64>, AccountingError> {
    let each = |divergence: &dyn Fn(f64) -> Result<f64, AccountingError>| {
        orders.iter().map(|&order| divergence(order)).collect()
    };
    let factor = adjacency.sensitivity_factor();
    match event {
        Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        }
        | Event::ExampleLevelSampling {
            group_size: 1,
            sampling_probability,
            noise_multiplier,
        } if adjacency != Adjacency::ReplaceOne => each(&|order| {
            Ok(poisson_gaussian::rdp(
                *sampling_probability,
                *noise_multiplier,
                order,
            ))
        }),
        Event::FixedSizeGaussian {
            population,
            cohort_size,
            noise_multiplier,
        } => Ok(without_replacement::curve(
            *population,
            *cohort_size,
            *noise_multiplier,
            orders,
        )),
        Event::BoundedRange { epsilon } => each(&|order| bounded_range::rdp(*epsilon, order)),
        Event::Laplace { scale } => each(&|order| laplace::rdp(scale / factor, order)),
        Event::RandomizedResponse {
            num_buckets,
            noise_parameter,
        } => each(&|order| {
            if adjacency == Adjacency::ReplaceOne {
                randomized_response::rdp(*num_buckets, *noise_parameter, order)
            } else {
                randomized_response::zero_out_rdp(*num_buckets, *noise_parameter, order)
            }
        }),
        Event::DistributedDiscreteGaussian { .. } | Event::Skellam { .. } => {
            let shares = event.doubled_if_replaced(adjacency);
            if let Some(mechanism) = shares.distributed_discrete_gaussian()? {
                return each(&|order| mechanism.rdp(order));
            }
            let mechanism = shares.skellam()?;
            each(&|order| {
                mechanism
                    .as_ref()
                    .map_or(Ok(f64::INFINITY), |mechanism| mechanism.rdp(order))
            })
        }
        Event::RepeatAndSelect { event, repetitions } => {
            let once = curve_under(event, adjacency, orders)?;
            repeat_and_select::curve(orders, &once, *repetitions)
        }
        _ => match event::pair(event, adjacency, LOG_TAIL)?.and_then(|pair| pair.renyi(orders)) {
            Some(curve) => Ok(curve),
            None => Err(AccountingError::UnsupportedCurve { event: event.kind() }),
        },
    }
}

/// Outcomes rarer than this may be left out of a pair, and then make its divergences infinite.
const LOG_TAIL: f64 = -1e5;
