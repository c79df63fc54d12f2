//! Table 4: zCDP and epsilon of the production models.

use undertone_accounting::NoiseMultiplier;
use undertone_accounting::participation::{Participation, RoundsBetween};
use undertone_accounting::sensitivity::production::{BLT_100, BLT_400, BLT_1000, ProductionBlt};

use super::contenders::{STAND_IN, banded};
use crate::reproduce::check::{Body, Check};
use crate::reproduce::gboard::{epsilon, tree_rho};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, ReproduceError, Rounding};

pub(crate) const CHECK: Check = Check {
    id: "blt-table-4",
    title: "zCDP and epsilon of the production models, delta = 1e-10",
    source: "[BLT] Table 4",
    recipe: "BLT of appendix A: Theorem 3.1 with gap MinS + 1; TreeAgg: one binary tree, exact, noise multiplier 7; BandMF: \
             columns of norm 1, for es-ES over the root of 5; epsilon by the exact Gaussian; zero-out, no sampling",
    body,
};

enum Mechanism {
    Tree,
    Blt(&'static ProductionBlt, f64),
    /// Bands, the participations whose squared sensitivity together is 1, noise multiplier.
    Band(usize, f64, f64),
}
use Mechanism::{Band, Blt, Tree};

/// Rounds that the BandMF matrices were made for (section 5, algorithm setting).
const BANDED_ROUNDS: usize = 2000;

/// Model, rounds, mechanism, MinS, MaxP, rho, epsilon. The rhos of pt-BR are printed as 2.45e-2,
/// 2.23e-2 and 1.40e-2.
const PRINTED: [(&str, u64, Mechanism, u64, u64, &str, &str); 10] = [
    ("es-ES", 1280, Band(400, 5.0, 1.411), 296, 4, "0.29", "4.82"),
    ("es-ES", 1280, Blt(&BLT_400, 7.379), 300, 4, "0.16", "3.46"),
    ("id-ID", 2350, Tree, 437, 5, "0.94", "9.29"),
    ("id-ID", 2350, Blt(&BLT_400, 7.379), 447, 5, "0.20", "3.93"),
    ("pt-BR", 2000, Band(1000, 1.0, 4.523), 2001, 1, "0.0245", "1.32"),
    ("pt-BR", 2000, Blt(&BLT_1000, 8.681), 2001, 1, "0.0223", "1.25"),
    ("pt-BR", 2000, Blt(&BLT_1000, 16.1), 1181, 2, "0.0140", "0.98"),
    ("pt-PT", 430, Tree, 91, 4, "1.33", "11.27"),
    ("pt-PT", 430, Blt(&BLT_100, 3.12), 92, 4, "1.11", "10.19"),
    ("pt-PT", 320, Blt(&BLT_100, 5.5), 49, 6, "0.75", "8.19"),
];

const LABELS_DIFFER: &str = "pt-PT TreeAgg: its labels (430 rounds, MinS 91, MaxP 4, noise multiplier 7) compute to rho 0.44 and \
                             epsilon 6.10; what it was accounted with is not printed";

const ONE_PARTICIPATION: &str =
    "pt-BR BandMF: at one participation every matrix with columns of norm 1 has this rho";

const NOT_PUBLISHED: &str = "es-ES BandMF: its matrix is not published, and at gap 297 of 400 bands the sensitivity depends on every \
                             entry; ours is made for the same 2000 rounds and 400 bands";

fn body(conditions: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let rows = PRINTED.iter().map(
        |(model, rounds, mechanism, min_sep, most, rho_printed, epsilon_printed)| {
            let (label, rho) = match mechanism {
                Tree => ("TreeAgg-7".to_owned(), tree_rho(*rounds, *min_sep, *most)?),
                Band(bands, unit, noise) => {
                    let schema = Participation::at_least(RoundsBetween::new(*min_sep).gap(), *most)?;
                    let (_, matrix) = banded(conditions, BANDED_ROUNDS, *bands)?;
                    let certified = matrix.squared_sensitivity(*rounds as usize, &schema)?;
                    let noise_multiplier = NoiseMultiplier::new(*noise)?;
                    (
                        format!("BandMF-{noise}"),
                        certified.squared.rho(noise_multiplier)?.get() / unit,
                    )
                }
                Blt(set, noise) => {
                    let schema = Participation::at_least(RoundsBetween::new(*min_sep).gap(), *most)?;
                    let squared = set.strategy(*rounds as usize)?.squared_sensitivity(&schema)?;
                    (
                        format!("BLT-{noise}"),
                        squared.rho(NoiseMultiplier::new(*noise)?)?.get(),
                    )
                }
            };
            let decimals = rho_printed.len() - 2;
            let entries = [
                Entry::new(rho_printed, rho, Rounding::Up { decimals }, None),
                Entry::new(
                    epsilon_printed,
                    epsilon(rho, 1e-10)?,
                    Rounding::Up { decimals: 2 },
                    None,
                ),
            ];
            let why = match (*model, mechanism) {
                ("pt-PT", Tree) => Some(LABELS_DIFFER),
                ("es-ES", Band(..)) => Some(NOT_PUBLISHED),
                _ => None,
            };
            Ok(Row {
                parameters: vec![
                    (*model).to_owned(),
                    rounds.to_string(),
                    label,
                    min_sep.to_string(),
                    most.to_string(),
                ],
                entries: entries.map(|entry| entry.explained(why)).to_vec(),
            })
        },
    );
    Ok(Body {
        parameters: vec!["model", "rounds", "mechanism", "MinS", "MaxP"],
        columns: vec!["rho".to_owned(), "epsilon".to_owned()],
        rows: rows.collect::<Result<_, ReproduceError>>()?,
        notes: if conditions.slow() {
            vec![ONE_PARTICIPATION]
        } else {
            vec![ONE_PARTICIPATION, STAND_IN]
        },
        ..Body::default()
    })
}
