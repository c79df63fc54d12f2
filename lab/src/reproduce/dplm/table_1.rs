//! Table 1: epsilon over rounds for several populations, cohorts and noise multipliers.

use super::{RECIPE, Setting};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, ReproduceError, Rounding, table::Row};

pub(crate) const CHECK: Check = Check {
    id: "dplm-table-1",
    title: "Upper bound on epsilon after 1 to 10^6 rounds, delta = K^-1.1",
    source: "[DPLM] Table 1",
    recipe: RECIPE,
    body,
};

/// log10 of K, log10 of C~, z, and epsilon after 10^0 ... 10^6 rounds.
const PRINTED: [(i32, i32, f64, &str); 6] = [
    (5, 2, 1.0, "0.97 0.98 1.00 1.07 1.18 2.21 7.50"),
    (6, 1, 1.0, "0.68 0.69 0.69 0.69 0.69 0.72 0.73"),
    (6, 3, 1.0, "1.17 1.17 1.20 1.28 1.39 2.44 8.13"),
    (6, 4, 1.0, "1.73 1.92 2.08 3.06 8.49 32.38 187.01"),
    (6, 3, 3.0, "0.47 0.47 0.48 0.48 0.49 0.67 1.95"),
    (9, 3, 1.0, "0.84 0.84 0.84 0.85 0.88 0.88 0.88"),
];

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let rows = PRINTED.iter().map(|&(users, sample, noise, printed)| {
        let users_exact = 10f64.powi(users);
        let setting = Setting {
            users: users_exact,
            sample: 10f64.powi(sample),
            noise,
            delta: users_exact.powf(-1.1),
        };
        let rounds = (0..7).map(|power| 10u64.pow(power));
        let printed: Vec<_> = rounds.zip(printed.split(' ')).collect();
        Ok(Row {
            parameters: vec![
                format!("10^{users}"),
                format!("10^{sample}"),
                format!("{noise:.1}"),
            ],
            entries: setting.entries(&printed, Rounding::Nearest { decimals: 2 })?,
        })
    });
    Ok(Body {
        parameters: vec!["users K", "sample C~", "noise z"],
        columns: (0..7).map(|power| format!("10^{power}")).collect(),
        rows: rows.collect::<Result<_, ReproduceError>>()?,
        notes: Vec::new(),
        ..Body::default()
    })
}
