//! Phases of different events, given in the file's shorthand.

use anyhow::{Context, bail};
use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe};

use super::EXACT;
use super::reference::Grid;
use super::renyi::poisson;
use crate::case::Case;

pub(super) fn heterogeneous(case: &Case<'_>) -> anyhow::Result<()> {
    let phases = phases(case.text("desc")?)?;
    let compose = |recipe| -> anyhow::Result<Accountant> {
        let mut accountant = Accountant::new(recipe);
        for (rounds, event) in &phases {
            accountant.compose(event, *rounds)?;
        }
        Ok(accountant)
    };
    let rounds: u64 = phases.iter().map(|(rounds, _)| rounds).sum();
    if let Some(want) = case.expected("epsilon_rdp")? {
        let got = compose(Recipe::Rdp)?.guarantee(case.delta()?)?.epsilon.get();
        case.near("epsilon_rdp", got, want, EXACT * want);
    }
    if let Some(reference) = case.expected("epsilon_pld")? {
        let grid = Grid::new(case.number("vdi")?, rounds);
        grid.epsilon(
            case,
            "epsilon_pld",
            &compose(Recipe::Pld)?,
            case.delta()?,
            reference,
        )?;
    }
    Ok(())
}

/// `500x PS(.01,G1), 7x G20+3x Lap10`: counts of Poisson-sampled Gaussians, Gaussians and Laplaces.
fn phases(text: &str) -> anyhow::Result<Vec<(u64, Event)>> {
    let mut phases = Vec::new();
    // The comma within PS(q,Gz) has no space after it; the one between phases has.
    for phase in text.split(", ").flat_map(|part| part.split('+')) {
        let (count, event) = phase
            .trim()
            .split_once('x')
            .with_context(|| format!("expected COUNTx EVENT, got {phase}"))?;
        let event = event_of(event.trim()).with_context(|| format!("phase {phase}"))?;
        phases.push((count.trim().parse()?, event));
    }
    Ok(phases)
}

fn event_of(text: &str) -> anyhow::Result<Event> {
    if let Some(inner) = text.strip_prefix("PS(").and_then(|rest| rest.strip_suffix(')')) {
        let (q, noise) = inner.split_once(',').context("expected PS(q,Gz)")?;
        let z = noise.strip_prefix('G').context("expected PS(q,Gz)")?;
        return poisson(q.parse()?, z.parse()?);
    }
    if let Some(z) = text.strip_prefix('G') {
        return Ok(Event::Gaussian {
            noise_multiplier: NoiseMultiplier::new(z.parse()?)?,
        });
    }
    if let Some(scale) = text.strip_prefix("Lap") {
        return Ok(Event::Laplace {
            scale: scale.parse()?,
        });
    }
    bail!("expected PS(q,Gz), Gz or Lapb, got {text}")
}
