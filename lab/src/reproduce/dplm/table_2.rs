//! Table 2: epsilon of the private models after 5000 rounds (z = 1; accuracies are not recomputed here).

use super::{RECIPE, REDDIT_USERS, Setting};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, ReproduceError, Rounding, table::Row};

pub(crate) const CHECK: Check = Check {
    id: "dplm-table-2",
    title: "Epsilon of the private models after 5000 rounds, delta = 1e-9",
    source: "[DPLM] Table 2",
    recipe: RECIPE,
    body,
};

/// sigma, S, K as a number and as printed, C~, epsilon. In all rows sigma = z S / C~ with z = 1.
const PRINTED: [(&str, &str, f64, &str, f64, &str); 6] = [
    ("0.003", "15", REDDIT_USERS, "763430", 5000.0, "4.634"),
    ("0.006", "10", REDDIT_USERS, "763430", 1667.0, "2.314"),
    ("0.012", "15", REDDIT_USERS, "763430", 1250.0, "2.038"),
    ("0.003", "15", 1e8, "10^8", 5000.0, "1.152"),
    ("0.006", "10", 1e8, "10^8", 1667.0, "0.991"),
    ("0.012", "15", 1e8, "10^8", 1250.0, "0.987"),
];

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let rows = PRINTED
        .iter()
        .map(|&(sigma, clip_norm, users, users_printed, sample, epsilon)| {
            let setting = Setting {
                users,
                sample,
                noise: 1.0,
                delta: 1e-9,
            };
            Ok(Row {
                parameters: [sigma, clip_norm, users_printed]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([format!("{sample}")])
                    .collect(),
                entries: setting.entries(&[(5000, epsilon)], Rounding::Nearest { decimals: 3 })?,
            })
        });
    Ok(Body {
        parameters: vec!["sigma", "S", "users K", "sample C~"],
        columns: vec!["epsilon".to_owned()],
        rows: rows.collect::<Result<_, ReproduceError>>()?,
        notes: Vec::new(),
        ..Body::default()
    })
}
