//! Privacy accounting: CPU seconds of whole answers, from parameters to a guarantee, one thread.
//!
//! The same questions as `bench/accounting` asks dp-accounting, and the tree sensitivities of the production runs of
//! \[Gboard\] Tables 1 and 2.

use crate::usage::cpu_time;
use anyhow::{Context, bail};
use serde_json::json;
use undertone_accounting::participation::{Participation, RoundsBetween};
use undertone_accounting::sensitivity::tree;
use undertone_accounting::{
    Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability, calibrate, zcdp,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Repeats of every answer, after one that is discarded
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// One question only
    #[arg(long)]
    only: Option<String>,
}

type Answer = Box<dyn Fn() -> anyhow::Result<f64>>;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut asked = 0;
    for (name, answer) in questions() {
        if arguments.only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        asked += 1;
        let value = answer()?;
        let mut seconds = Vec::new();
        for _ in 0..arguments.repeats {
            let start = cpu_time().context("this system does not tell CPU time")?;
            let again = answer()?;
            let end = cpu_time().context("this system does not tell CPU time")?;
            if again != value {
                bail!("{name}: {value} at first, {again} later");
            }
            seconds.push(end.saturating_sub(start).as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let result = json!({
            "name": "undertone",
            "version": env!("CARGO_PKG_VERSION"),
            "question": name,
            "value": value,
            "cpu_s": seconds[seconds.len() / 2],
            "cpu_s_all": seconds,
        });
        println!("RESULT {result}");
    }
    if asked == 0 {
        bail!("--only: no question of this name");
    }
    Ok(())
}

fn questions() -> Vec<(String, Answer)> {
    let mut questions: Vec<(String, Answer)> = vec![
        (
            "pld-1e3".into(),
            Box::new(|| epsilon(Recipe::Pld, &poisson()?, 1000)),
        ),
        (
            "pld-1e6".into(),
            Box::new(|| epsilon(Recipe::Pld, &poisson()?, 1_000_000)),
        ),
        (
            "pld-1e3-lower".into(),
            Box::new(|| {
                let accountant = accountant(Recipe::Pld, &poisson()?, 1000)?;
                Ok(accountant.lower_bound(Delta::new(1e-6)?)?.get())
            }),
        ),
        (
            "rdp-1e3".into(),
            Box::new(|| epsilon(Recipe::Rdp, &poisson()?, 1000)),
        ),
        (
            "mixture-64".into(),
            Box::new(|| epsilon(Recipe::Pld, &mixture()?, 2000)),
        ),
        ("calibrate-pld".into(), Box::new(calibrated)),
    ];
    questions.extend(PRODUCTION.iter().map(|&(name, rounds, between, most)| {
        let answer: Answer = Box::new(move || tree_epsilon(rounds, between, most));
        (format!("tree-{name}"), answer)
    }));
    questions
}

fn poisson() -> anyhow::Result<Event> {
    Ok(Event::PoissonGaussian {
        sampling_probability: SamplingProbability::new(0.01)?,
        noise_multiplier: NoiseMultiplier::new(1.0)?,
    })
}

fn mixture() -> anyhow::Result<Event> {
    Ok(Event::ExampleLevelSampling {
        group_size: 64,
        sampling_probability: SamplingProbability::new(0.01)?,
        noise_multiplier: NoiseMultiplier::new(4.0)?,
    })
}

fn accountant(recipe: Recipe, event: &Event, rounds: u64) -> anyhow::Result<Accountant> {
    let mut accountant = Accountant::new(recipe);
    accountant.compose(event, rounds)?;
    Ok(accountant)
}

fn epsilon(recipe: Recipe, event: &Event, rounds: u64) -> anyhow::Result<f64> {
    let guarantee = accountant(recipe, event, rounds)?.guarantee(Delta::new(1e-6)?)?;
    Ok(guarantee.epsilon.get())
}

fn calibrated() -> anyhow::Result<f64> {
    let target = (Epsilon::new(1.0)?, Delta::new(1e-9)?);
    let q = SamplingProbability::new(0.001_637_347_235_502_927_6)?;
    Ok(calibrate::noise_multiplier(target, q, 3000, Recipe::Pld)?.get())
}

/// Rounds, rounds between two participations and most participations of \[Gboard\] Tables 1 and 2.
const PRODUCTION: [(&str, u64, u64, u64); 16] = [
    ("1-de-DE", 930, 212, 4),
    ("1-en-GB", 980, 226, 4),
    ("1-fr-FR", 1280, 180, 5),
    ("1-it-IT", 1620, 303, 5),
    ("1-es-ES", 1900, 526, 3),
    ("1-es-ES_secagg", 1750, 349, 4),
    ("1-en-US", 2800, 371, 7),
    ("1-en-US_secagg", 1360, 622, 2),
    ("1-pt-BR", 3600, 909, 3),
    ("1-en-IN", 1290, 170, 6),
    ("1-es-MX", 1980, 343, 5),
    ("1-es-ES_baseMT22", 2000, 313, 6),
    ("2-de-DE", 1170, 206, 5),
    ("2-es-ES", 1280, 197, 5),
    ("2-fr-FR", 1300, 290, 4),
    ("2-ru-RU", 870, 327, 3),
];

fn tree_epsilon(rounds: u64, between: u64, most: u64) -> anyhow::Result<f64> {
    let schema = Participation::at_least(RoundsBetween::new(between).gap(), most)?;
    let squared = tree::squared_sensitivity(rounds, &schema)?.squared_sensitivity;
    let rho = squared.rho(NoiseMultiplier::new(7.0)?)?;
    Ok(zcdp::epsilon_of_gaussians(rho, Delta::new(1e-10)?)?.get())
}
