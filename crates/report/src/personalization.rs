//! The picture of the changes of users' losses by personalisation.

use super::{Picture, ReportError, Result};
use undertone_present::chart::{self, Labels};
use undertone_present::numbers::number;
use undertone_run::personalize::Personalization;

const BINS: usize = 40;

/// The histogram of users by the change of their mean token loss.
///
/// # Errors
/// [`ReportError::Picture`], also where there are no values to draw.
pub fn personalization(done: &Personalization) -> Result<Picture> {
    let failed = |message: String| ReportError::Picture {
        picture: "personalization".to_owned(),
        message,
    };
    let deltas = &done.loss_deltas;
    let (Some(min), Some(max)) = (deltas.first(), deltas.last()) else {
        return Err(failed("no user was personalised".to_owned()));
    };
    // One value has no width.
    let (left, right) = (
        min.min(0.0),
        if max > min { max.max(0.0) } else { min.abs() + 1e-3 },
    );
    let width = (right - left) / BINS as f64;
    let edges: Vec<f64> = (0..=BINS).map(|edge| left + width * edge as f64).collect();
    let mut counts = vec![0.0; BINS];
    for delta in deltas {
        counts[(((delta - left) / width) as usize).min(BINS - 1)] += 1.0;
    }
    let labels = Labels {
        title: "Users by the change of their loss",
        x: "nats per token; below zero personalisation helps",
        x_format: number,
        y_format: number,
        from_zero: true,
    };
    let marks = [
        ("median".to_owned(), done.loss.delta.median),
        ("no change".to_owned(), 0.0),
    ];
    let svg = chart::bars(&labels, &edges, &counts, &marks)
        .unwrap_or_else(|| Err("nothing to draw".to_owned()))
        .map_err(failed)?;
    Ok(Picture {
        name: "personalization",
        caption: format!(
            "Change of the mean token loss of {} users by {} local epochs, on the half of their examples that was not \
             trained on.",
            done.users, done.options.epochs
        ),
        svg,
    })
}
