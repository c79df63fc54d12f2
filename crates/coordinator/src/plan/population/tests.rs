use undertone_aggregation::ParamLayout;

use super::*;
use crate::plan::Population;
use crate::task::TaskConfig;

fn plan_of(task: &TaskConfig, users: u64) -> PrivacyPlan {
    let layout = ParamLayout::with_tensor_groups(vec![("w".to_owned(), vec![64])]).unwrap();
    let population = Population {
        users,
        total_weight: users as f64,
    };
    PrivacyPlan::new(task, None, &layout, population).unwrap()
}

fn plan(more: &str) -> PrivacyPlan {
    let text = format!(
        "name = \"t\"\nrounds = 40\nmodel = {{ family = \"dplm\", embed = 4, hidden = 6 }}\n\
         cohort = {{ sampling = \"check_in\", users_per_round = 100, population = 400000 }}\n\
         user_update = {{ batch_size = 4, learning_rate = 0.5 }}\n\
         clip = {{ kind = \"flat\", norm = 0.5 }}\nparticipation = {{ min_sep = 10, max_part = 3 }}\n{more}"
    );
    let task: TaskConfig = toml::from_str(&text).unwrap();
    task.validate().unwrap();
    plan_of(&task, 400_000)
}

fn independent(noise_multiplier: f64) -> PrivacyPlan {
    plan(&format!(
        "privacy = {{ noise_multiplier = {noise_multiplier:?}, delta = 1e-8, mechanism = {{ kind = \"independent\" }} }}\n"
    ))
}

fn skellam(noise_multiplier: f64) -> PrivacyPlan {
    plan(&format!(
        "privacy = {{ noise_multiplier = {noise_multiplier:?}, delta = 1e-8 }}\n[aggregation]\n\
         encoding = {{ kind = \"skellam\", scale = 1e4 }}\nmin_clients = 60\nmax_clients = 140\n"
    ))
}

fn delta(value: f64) -> Delta {
    Delta::new(value).unwrap()
}

/// Costs of Gaussians add up as the squares of inverse noise multipliers: two tasks of z cost what one of z / sqrt 2 costs.
#[test]
fn rho_adds_over_the_tasks_of_a_population() {
    let budget = PopulationBudget::new(100.0, delta(1e-8)).unwrap();
    let z = 8.0;
    let one = budget.cost(&[("a", &independent(z))]).unwrap();
    let two = budget
        .cost(&[("a", &independent(z)), ("b", &independent(z))])
        .unwrap();
    let strong = budget.cost(&[("c", &independent(z / 2.0_f64.sqrt()))]).unwrap();
    // Three participations in independent rounds.
    assert!((one.rho.unwrap() - 3.0 / (2.0 * z * z)).abs() < 1e-9, "{one:?}");
    assert!((two.rho.unwrap() - 2.0 * one.rho.unwrap()).abs() < 1e-12);
    assert!((two.epsilon - strong.epsilon).abs() < 1e-6, "{two:?} {strong:?}");
    assert!(two.epsilon > 1.3 * one.epsilon && two.epsilon < 2.0 * one.epsilon);
    // One task alone costs what its own plan says.
    let planned = independent(z).planned().unwrap().unwrap();
    assert!((one.epsilon - planned.epsilon).abs() < 1e-9 * planned.epsilon);
    assert_eq!(budget.cost(&[]).unwrap().epsilon, 0.0);
}

#[test]
fn a_population_admits_tasks_up_to_its_budget_and_names_both_figures_beyond() {
    let (first, second) = (independent(8.0), independent(10.0));
    let wide = PopulationBudget::new(100.0, delta(1e-8)).unwrap();
    let both = wide.admit(&[("a", &first), ("b", &second)]).unwrap();
    let tight = PopulationBudget::new(0.999 * both.epsilon, delta(1e-8)).unwrap();
    tight.admit(&[("a", &first)]).unwrap();
    let refused = tight
        .admit(&[("a", &first), ("b", &second)])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("population.max_epsilon") && refused.contains("a, b at delta 1e-8"),
        "{refused}"
    );
    assert!(refused.contains(&tight.max_epsilon.to_string()), "{refused}");
}

#[test]
fn noise_of_clients_and_noise_of_the_server_are_composed_by_renyi_divergences() {
    let budget = PopulationBudget::new(100.0, delta(1e-8)).unwrap();
    let (gaussian, shares) = (independent(8.0), skellam(8.0));
    let alone = budget.cost(&[("s", &shares)]).unwrap();
    let both = budget.cost(&[("g", &gaussian), ("s", &shares)]).unwrap();
    assert_eq!(both.rho, None);
    let sum = alone.epsilon + budget.cost(&[("g", &gaussian)]).unwrap().epsilon;
    assert!(
        both.epsilon > alone.epsilon && both.epsilon < sum,
        "{both:?} {alone:?}"
    );
}

#[test]
fn a_budget_that_cannot_be_checked_admits_nothing() {
    for epsilon in [0.0, f64::NAN, f64::INFINITY] {
        assert!(PopulationBudget::new(epsilon, delta(1e-8)).is_err(), "{epsilon}");
    }
    let sampled: TaskConfig = toml::from_str(
        "name = \"t\"\nrounds = 4\nmodel = { family = \"dplm\", embed = 4, hidden = 6 }\n\
         cohort = { users_per_round = 10 }\nuser_update = { batch_size = 4, learning_rate = 0.5 }\n\
         clip = { kind = \"flat\", norm = 0.5 }\nprivacy = { noise_multiplier = 1.0, delta = 1e-3 }\n",
    )
    .unwrap();
    let plan = plan_of(&sampled, 100);
    let budget = PopulationBudget::new(100.0, delta(1e-3)).unwrap();
    let refused = budget.cost(&[("a run", &plan)]).unwrap_err().to_string();
    assert!(
        refused.contains("a run") && refused.contains("poisson"),
        "{refused}"
    );
}
