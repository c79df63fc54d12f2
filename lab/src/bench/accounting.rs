//! Privacy accounting: CPU seconds of whole answers, from parameters to a guarantee, one thread.
//!
//! The benchmark asks the questions that `lab/peers/accounting` asks dp-accounting. It adds the tree sensitivities of the production
//! runs of \[Gboard\] Tables 1 and 2.

use crate::bench::questions::{Arguments, Question, ask};
use undertone_accounting::participation::{Participation, RoundsBetween};
use undertone_accounting::sensitivity::tree;
use undertone_accounting::{
    Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability, calibrate, zcdp,
};

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ask(arguments, "value", questions())
}

fn questions() -> Vec<Question> {
    let mut questions = vec![
        Question::new("pld-1e3", || epsilon(Recipe::Pld, &poisson()?, 1000)),
        Question::new("pld-1e6", || epsilon(Recipe::Pld, &poisson()?, 1_000_000)),
        Question::new("pld-1e3-lower", || {
            let accountant = accountant(Recipe::Pld, &poisson()?, 1000)?;
            Ok(accountant.lower_bound(Delta::new(1e-6)?)?.get())
        }),
        Question::new("rdp-1e3", || epsilon(Recipe::Rdp, &poisson()?, 1000)),
        Question::new("mixture-64", || epsilon(Recipe::Pld, &mixture()?, 2000)),
        Question::new("calibrate-pld", calibrated),
    ];
    questions.extend(PRODUCTION.iter().map(|&(name, rounds, between, most)| {
        Question::new(format!("tree-{name}"), move || {
            tree_epsilon(rounds, between, most)
        })
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
