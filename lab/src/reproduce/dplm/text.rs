//! Guarantees stated in the running text of section 3 and appendix D.

use super::{RECIPE, REDDIT_USERS, Setting};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::{Conditions, ReproduceError, Rounding, table::Row};

pub(crate) const CHECK: Check = Check {
    id: "dplm-text",
    title: "Guarantees in the text, 763430 users, z = 1, delta = 1e-9",
    source: "[DPLM] section 3 (FedAvg) and appendix D (FedSGD)",
    recipe: RECIPE,
    body,
};

/// Place, C~, rounds, epsilon. The first two show the rule: 1.9763 and 3.8164 are printed as 1.97 and 3.81.
const PRINTED: [(&str, f64, u64, &str); 3] = [
    ("section 3, FedAvg", 1250.0, 3000, "1.97"),
    ("appendix D, FedSGD", 5000.0, 3000, "3.81"),
    ("appendix D, FedSGD", 5000.0, 20_000, "8.92"),
];

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let rows = PRINTED.iter().map(|&(place, sample, rounds, epsilon)| {
        let setting = Setting {
            users: REDDIT_USERS,
            sample,
            noise: 1.0,
            delta: 1e-9,
        };
        Ok(Row {
            parameters: vec![place.to_owned(), format!("{sample}"), rounds.to_string()],
            entries: setting.entries(&[(rounds, epsilon)], Rounding::Truncated { decimals: 2 })?,
        })
    });
    Ok(Body {
        parameters: vec!["place", "sample C~", "rounds"],
        columns: vec!["epsilon".to_owned()],
        rows: rows.collect::<Result<_, ReproduceError>>()?,
        notes: Vec::new(),
        ..Body::default()
    })
}
