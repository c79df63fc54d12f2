//! Renyi differential privacy: orders, divergences of each event, conversion.

pub mod continuous;
pub mod conversion;
pub mod laplace;
mod orders;
pub mod poisson_gaussian;
pub mod randomized_response;
pub mod repeat_and_select;
pub mod without_replacement;

pub use orders::default_orders;

use crate::{AccountingError, Event};

/// Renyi divergence of one `event` at each of `orders` (all > 1); the larger of the two directions.
///
/// # Errors
/// [`AccountingError::CohortSize`] for an impossible cohort, [`AccountingError::NoFiniteGuarantee`] for
/// [`Event::NonPrivate`], [`AccountingError::OutOfRange`] for an order that is not a finite number > 1.
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
    event.validate()?;
    if let Some(&order) = orders.iter().find(|order| !(order.is_finite() && **order > 1.0)) {
        return Err(AccountingError::OutOfRange {
            quantity: "order",
            expected: "a finite number > 1",
            got: order,
        });
    }
    match *event {
        Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        } => Ok(orders
            .iter()
            .map(|&a| poisson_gaussian::rdp(sampling_probability, noise_multiplier, a))
            .collect()),
        Event::Gaussian { noise_multiplier } => {
            let z = noise_multiplier.get();
            Ok(orders.iter().map(|a| a / z / z * 0.5).collect())
        }
        Event::FixedSizeGaussian {
            population,
            cohort_size,
            noise_multiplier,
        } => Ok(without_replacement::curve(
            population,
            cohort_size,
            noise_multiplier,
            orders,
        )),
        Event::NonPrivate => Err(AccountingError::NoFiniteGuarantee {
            reason: "a release without noise was composed",
        }),
    }
}

/// A Renyi order: a finite number above 1.
pub(crate) fn finite_order(order: f64) -> Result<f64, AccountingError> {
    if order.is_finite() && order > 1.0 {
        Ok(order)
    } else {
        Err(AccountingError::OutOfRange {
            quantity: "order",
            expected: "a finite number > 1",
            got: order,
        })
    }
}
