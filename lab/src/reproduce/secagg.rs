//! Secure aggregation: neighbours and thresholds on k-regular graphs.
//!
//! Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (CCS
//! 2020), describe the analysis; the numbers are those of the implementation that Google published with it.

use undertone_secagg::assurance::Assumptions;
use undertone_secagg::{ThreatModel, Topology};

use crate::reproduce::check::{Body, Check};
use crate::reproduce::table::{Entry, Row};
use crate::reproduce::{Conditions, Curve, Figure, ReproduceError, Rounding, Statement};
use undertone_present::Scale;

pub(crate) const CHECK: Check = Check {
    id: "secagg-parameters",
    title: "neighbours k and threshold t of secure aggregation on a k-regular graph, 2^-40 for privacy, 2^-20 for failure",
    source: "[SecAgg+]; federated-compute, graph parameter finder",
    recipe: "hypergeometric tails of corrupt and of dropped neighbours, two runs on the ring, union bounds; the fewest \
             neighbours, then the smallest threshold",
    body,
};

const CURIOUS: ThreatModel = ThreatModel::HonestButCurious;
const LYING: ThreatModel = ThreatModel::Active;

/// Threat model, corrupt rate, drop-out rate.
const SETTINGS: [(ThreatModel, f64, f64); 6] = [
    (CURIOUS, 0.05, 0.05),
    (CURIOUS, 0.1, 0.1),
    (CURIOUS, 0.1, 0.3),
    (CURIOUS, 0.2, 0.2),
    (LYING, 0.05, 0.05),
    (LYING, 0.1, 0.1),
];

/// Clients, then `k` and `t` of each entry of [`SETTINGS`].
const REFERENCE: [(u32, [(&str, &str); 6]); 4] = [
    (
        100,
        [
            ("12", "6"),
            ("22", "11"),
            ("34", "11"),
            ("40", "21"),
            ("16", "11"),
            ("32", "22"),
        ],
    ),
    (
        1000,
        [
            ("30", "17"),
            ("48", "27"),
            ("88", "36"),
            ("98", "54"),
            ("52", "37"),
            ("96", "67"),
        ],
    ),
    (
        6500,
        [
            ("32", "19"),
            ("54", "31"),
            ("106", "43"),
            ("120", "65"),
            ("62", "44"),
            ("118", "82"),
        ],
    ),
    (
        100_000,
        [
            ("36", "21"),
            ("58", "33"),
            ("122", "49"),
            ("134", "73"),
            ("68", "48"),
            ("134", "93"),
        ],
    ),
];

/// Abscissae of the curves.
const CLIENTS: [u32; 11] = [
    50, 100, 200, 500, 1000, 2000, 6500, 20_000, 100_000, 300_000, 1_000_000,
];

fn body(_: &Conditions<'_>) -> Result<Body, ReproduceError> {
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for (clients, printed) in REFERENCE {
        for ((setting, corrupt, drop_out), (k, t)) in SETTINGS.into_iter().zip(printed) {
            let assumptions = Assumptions::new(drop_out, corrupt, setting)?;
            let topology = assumptions.topology(clients)?;
            let whole = Rounding::Nearest { decimals: 0 };
            rows.push(Row {
                parameters: vec![
                    clients.to_string(),
                    name(setting).to_owned(),
                    percent(corrupt),
                    percent(drop_out),
                ],
                entries: vec![
                    Entry::new(k, topology.neighbours().into(), whole, None),
                    Entry::new(t, topology.threshold().into(), whole, None),
                ],
            });
            found.push((assumptions, topology));
        }
    }
    Ok(Body {
        parameters: vec!["n", "server", "corrupt", "drop out"],
        columns: vec!["k".to_owned(), "t".to_owned()],
        rows,
        notes: vec![
            "against a server that lies, drop-outs are assumed not to depend on the graph: no client's two secrets come \
             together, but a server that chooses drop-outs after it has seen the graph may learn sums over parts of it; the \
             theorem of [SecAgg+] against that needs several times as many neighbours (about 300 of 10^4 clients at 5 % and \
             5 %), and nothing here claims it",
        ],
        reference: Some(
            "an independent re-implementation (Python) of the analysis that stands in the source of google-parfait's \
             federated-compute; it counts pairs of runs and a client's neighbours a little differently, which moves no entry",
        ),
        statements: vec![holds(&found), smallest(&found)?, flat()?],
        figures: vec![figure()?],
    })
}

fn name(setting: ThreatModel) -> &'static str {
    match setting {
        ThreatModel::HonestButCurious => "curious",
        ThreatModel::Active => "lies",
    }
}

fn percent(rate: f64) -> String {
    format!("{:.0} %", 100.0 * rate)
}

fn holds(found: &[(Assumptions, Topology)]) -> Statement {
    let (mut privacy, mut failure) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (assumptions, topology) in found {
        let assurance = assumptions.assurance(topology);
        privacy = privacy.max(assurance.privacy());
        failure = failure.max(assurance.shut);
    }
    Statement {
        says: "statistical security 2^-40 and failure probability 2^-20 at every entry",
        found: format!("at most 2^{privacy:.1} and 2^{failure:.1}"),
        holds: privacy <= -40.0 && failure <= -20.0,
    }
}

/// Two neighbours fewer break a bound whatever the threshold.
fn smallest(found: &[(Assumptions, Topology)]) -> Result<Statement, ReproduceError> {
    let mut spare = 0;
    for (assumptions, topology) in found {
        let fewer = topology.neighbours() - 2;
        for threshold in 2..=fewer {
            let assurance = assumptions.assurance(&Topology::new(topology.clients(), fewer, threshold)?);
            let half = assurance.exposed <= -41.0 && assurance.disconnected <= -41.0;
            spare += u32::from(half && assurance.shut <= -20.0);
        }
    }
    Ok(Statement {
        says: "no entry has neighbours to spare (k - 2 fails at every threshold)",
        found: format!("{spare} thresholds hold with k - 2 neighbours"),
        holds: spare == 0,
    })
}

fn flat() -> Result<Statement, ReproduceError> {
    let mut growth = Vec::new();
    for (setting, corrupt, drop_out) in SETTINGS {
        let assumptions = Assumptions::new(drop_out, corrupt, setting)?;
        let neighbours =
            |clients| Ok::<_, ReproduceError>(f64::from(assumptions.topology(clients)?.neighbours()));
        growth.push(neighbours(1_000_000)? / neighbours(10_000)?);
    }
    let most = growth.into_iter().fold(0.0, f64::max);
    Ok(Statement {
        says: "the number of neighbours grows with the logarithm of n (from 10^4 to 10^6 clients by less than a half: 6 ln 10 \
               over 4 ln 10)",
        found: format!("by at most {:.0} %", 100.0 * (most - 1.0)),
        holds: most < 1.5,
    })
}

fn figure() -> Result<Figure, ReproduceError> {
    let mut curves = Vec::new();
    for (setting, corrupt, drop_out) in SETTINGS {
        let assumptions = Assumptions::new(drop_out, corrupt, setting)?;
        let y = CLIENTS.map(|clients| Ok(Some(assumptions.topology(clients)?.neighbours().into())));
        curves.push(Curve {
            method: name(setting),
            setting: format!("corrupt {}, drop out {}", percent(corrupt), percent(drop_out)),
            y: y.into_iter().collect::<Result<_, ReproduceError>>()?,
        });
    }
    Ok(Figure {
        title: "neighbours of a client in secure aggregation, 2^-40 and 2^-20",
        x_label: "clients",
        y_label: "neighbours",
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        x: CLIENTS.map(f64::from).to_vec(),
        curves,
    })
}
