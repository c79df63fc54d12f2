//! `undertone account convert`.

use anyhow::bail;
use serde_json::json;
use undertone_accounting::{Delta, Epsilon, Rho, gaussian, zcdp};
use undertone_present::numbers::upper_bound;
use undertone_present::table::facts;

use crate::shown::Shown;

/// Arguments of `undertone account convert`.
#[derive(Debug, clap::Args)]
pub(super) struct ConvertArgs {
    /// Convert this rho (zCDP) to epsilon, for example 0.5.
    #[arg(long, allow_negative_numbers = true)]
    rho: Option<f64>,
    /// Convert this epsilon to rho, for example 8.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "rho")]
    epsilon: Option<f64>,
    /// Set the delta of the guarantee (for example 1e-6).
    #[arg(long, allow_negative_numbers = true)]
    delta: f64,
}

pub(super) fn run(args: &ConvertArgs) -> anyhow::Result<Shown> {
    let delta = Delta::new(args.delta)?;
    match (args.rho, args.epsilon) {
        (Some(rho), None) => from_rho(Rho::new(rho)?, delta),
        (None, Some(epsilon)) => to_rho(Epsilon::new(epsilon)?, delta),
        _ => bail!("expected --rho (to compute epsilon) or --epsilon (to compute rho)"),
    }
}

/// Three epsilons of one rho, with what each is valid for.
fn from_rho(rho: Rho, delta: Delta) -> anyhow::Result<Shown> {
    let exact = zcdp::epsilon_of_gaussians(rho, delta)?;
    let tight = zcdp::epsilon(rho, delta)?;
    let loose = zcdp::epsilon_bun_steinke(rho, delta)?;
    let document = json!({
            "rho": rho,
            "delta": delta,
            "epsilon_gaussian_exact": exact,
            "epsilon": tight,
            "epsilon_bun_steinke": loose,
    });
    let shown = |epsilon: Epsilon, validity: &str| format!("{} ({validity})", upper_bound(epsilon.get()));
    let text = facts([
        ("rho", rho.to_string()),
        ("delta", upper_bound(delta.get())),
        (
            "epsilon, exact",
            shown(
                exact,
                "valid only for compositions of Gaussians of fixed sensitivity: tree, BLT, DP-FTRL",
            ),
        ),
        ("epsilon", shown(tight, "valid for any mechanism with this rho")),
        (
            "epsilon, classic",
            shown(
                loose,
                "rho + 2 sqrt(rho ln(1/delta)), valid but larger; for comparison with papers",
            ),
        ),
    ]);
    Shown::new(&document, text)
}

/// The largest rhos that promise an epsilon.
fn to_rho(epsilon: Epsilon, delta: Delta) -> anyhow::Result<Shown> {
    let gaussians = zcdp::rho_of_gaussian(gaussian::noise_multiplier(epsilon, delta)?)?;
    let any = largest_rho(epsilon, delta)?;
    let document = json!({
            "epsilon": epsilon,
            "delta": delta,
            "rho_gaussian_exact": gaussians,
            "rho": any,
    });
    let text = facts([
        ("epsilon", upper_bound(epsilon.get())),
        ("delta", upper_bound(delta.get())),
        (
            "rho, exact",
            format!("{gaussians} (valid only for compositions of Gaussians of fixed sensitivity)"),
        ),
        ("rho", format!("{any} (valid for any mechanism)")),
    ]);
    Shown::new(&document, text)
}

/// The largest rho, to twelve digits, whose conversion for any mechanism stays within `epsilon`.
fn largest_rho(epsilon: Epsilon, delta: Delta) -> anyhow::Result<Rho> {
    let holds = |rho: f64| -> anyhow::Result<bool> { Ok(zcdp::epsilon(Rho::new(rho)?, delta)? <= epsilon) };
    let (mut low, mut high) = (0.0, 1.0);
    while holds(high)? {
        (low, high) = (high, 2.0 * high);
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Rho::new(low)?)
}
