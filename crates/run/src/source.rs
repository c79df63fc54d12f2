//! The sources of a run's sums: the cores of this process with the help of other processes, and a simulation of secure aggregation.

pub mod local;
pub mod secagg;

use std::sync::Arc;

use undertone_aggregation::{Bound, BoundedSum, Clipping, NonFinite, ParamLayout};
use undertone_coordinator::head::Opened;
use undertone_data::Partition;
use undertone_local::{CohortText, LocalTask};
use undertone_settings::UserSettings;
use undertone_text::SpecialIds;

use crate::error::Result;

/// The task that an opened round means for each of its users.
#[must_use]
pub(crate) fn task_of<'a>(
    opened: &'a Opened,
    parameters: &'a [f32],
    settings: &'a UserSettings,
    special: SpecialIds,
) -> LocalTask<'a> {
    LocalTask {
        round: opened.round(),
        theta: parameters,
        layout: opened.bound().layout(),
        clipping: opened.bound().clipping(),
        estimate: opened.estimate(),
        special,
        settings,
        non_finite: opened.bound().non_finite(),
    }
}

/// The sum of the users' bits with adaptive clipping, each less one half.
///
/// # Errors
/// From the layout of one value.
pub(crate) fn sum_of_bits() -> Result<BoundedSum> {
    let bit = ParamLayout::with_tensor_groups(vec![("bit".into(), vec![1])])?;
    // PRIVACY: a bit less one half moves the sum of bits by one half.
    let half = Clipping::Flat { clip_norm: 0.5 };
    let bound = Bound::new(Arc::new(bit), half, NonFinite::Refuse);
    Ok(BoundedSum::new(bound))
}

/// The text of a cohort, by the places of its users.
pub(crate) struct RoundText<'a> {
    /// The text of all training users.
    pub(crate) partition: &'a Partition<'a>,
    /// The indices of the cohort in the partition.
    pub(crate) users: &'a [usize],
    /// The seeds of the users' orders.
    pub(crate) orders: &'a [[u8; 32]],
}

impl CohortText for RoundText<'_> {
    fn order(&self, place: usize) -> [u8; 32] {
        self.orders[place]
    }

    fn examples(&self, place: usize) -> Vec<&[u32]> {
        self.partition.user(self.users[place]).examples().collect()
    }

    fn example(&self, place: usize, example: usize) -> &[u32] {
        self.partition.user(self.users[place]).example(example)
    }
}

/// The text of all training users, by their indices, which microbatches of example-level sampling name.
pub(crate) struct AllText<'a>(pub(crate) &'a Partition<'a>);

impl CohortText for AllText<'_> {
    fn order(&self, _: usize) -> [u8; 32] {
        // Gradients of single examples depend on no order.
        [0; 32]
    }

    fn examples(&self, user: usize) -> Vec<&[u32]> {
        self.0.user(user).examples().collect()
    }

    fn example(&self, user: usize, example: usize) -> &[u32] {
        self.0.user(user).example(example)
    }
}
