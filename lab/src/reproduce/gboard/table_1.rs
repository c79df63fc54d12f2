//! Table 1: zCDP of the next-word-prediction models.

use super::{RECIPE, tree_rho};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, ReproduceError, Rounding};

pub(crate) const CHECK: Check = Check {
    id: "gboard-table-1",
    title: "zCDP of the next-word-prediction models",
    source: "[Gboard] Table 1",
    recipe: RECIPE,
    body,
};

/// Model, rounds, MinS, MaxP, rho.
pub(super) const PRINTED: [(&str, u64, u64, u64, &str); 13] = [
    ("de-DE", 930, 212, 4, "0.48"),
    ("en-GB", 980, 226, 4, "0.48"),
    ("fr-FR", 1280, 180, 5, "0.89"),
    ("it-IT", 1620, 303, 5, "0.71"),
    ("pt-PT", 530, 54, 8, "1.86"),
    ("es-ES", 1900, 526, 3, "0.35"),
    ("es-ES*", 1750, 349, 4, "0.52"),
    ("en-US", 2800, 371, 7, "1.31"),
    (TWICE_ROUNDED, 1360, 622, 2, "0.25"),
    ("pt-BR", 3600, 909, 3, "0.45"),
    ("en-IN", 1290, 170, 6, "1.14"),
    ("es-MX", 1980, 343, 5, "0.64"),
    ("es-AR", 640, 90, 5, "0.84"),
];

pub(super) const TWICE_ROUNDED: &str = "en-US*";

pub(super) const WHY_TWICE_ROUNDED: &str = "en-US*: rho is 24/98 = 0.2449, which is 0.24 to two decimals; 0.25 comes out of rounding twice (0.245, then 0.25)";

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let rows = PRINTED.iter().map(|&(model, rounds, min_sep, most, paper)| {
        let rho = tree_rho(rounds, min_sep, most)?;
        let entry = Entry::new(paper, rho, Rounding::Nearest { decimals: 2 }, None);
        Ok(Row {
            parameters: vec![
                model.to_owned(),
                rounds.to_string(),
                min_sep.to_string(),
                most.to_string(),
            ],
            entries: vec![entry.explained((model == TWICE_ROUNDED).then_some(WHY_TWICE_ROUNDED))],
        })
    });
    Ok(Body {
        parameters: vec!["model", "rounds", "MinS", "MaxP"],
        columns: vec!["rho".to_owned()],
        rows: rows.collect::<Result<_, ReproduceError>>()?,
        notes: Vec::new(),
        ..Body::default()
    })
}
