//! Plans of tasks: what they cost and what noise they add.

use super::*;

#[test]
fn an_evaluation_names_its_model_and_trains_nothing() {
    let (evaluation, training) = (file(EVALUATION), file(PLAIN));
    evaluation.validate(Seeding::Refused).unwrap();
    evaluation.check_evaluates(&training).unwrap();
    assert_eq!(
        evaluation.purpose,
        TaskPurpose::Evaluate {
            of: "plain".to_owned(),
            loss_cap: 10.0
        }
    );
    assert_eq!(evaluation.layout(50).unwrap().len(), 3);
    for (key, value) in [
        ("user_update", "{ batch_size = 4, learning_rate = 0.5 }"),
        ("clip", "{ kind = \"flat\", norm = 2.0 }"),
        ("server", "{ learning_rate = 0.5 }"),
        ("initial_model", "\"m.safetensors\""),
    ] {
        refused(EVALUATION, &[(key, value)], &[key, "trains nothing"]);
    }
    refused(EVALUATION, &[("of", "-")], &["`of` is missing"]);
    refused(EVALUATION, &[("of", "\"accuracy\"")], &["of", "another task"]);
    refused(EVALUATION, &[("loss_cap", "0.0")], &["loss_cap"]);
    refused(PLAIN, &[("of", "\"x\"")], &["of", "kind = \"evaluate\""]);
    refused(PLAIN, &[("user_update", "-")], &["user_update", "local training"]);
    for (change, key) in [
        (("of", "\"other\""), "`of`"),
        (
            ("model", "{ family = \"dplm\", embed = 4, hidden = 7 }"),
            "`model`",
        ),
        (("vocabulary.path", "\"words.txt\""), "`vocabulary`"),
        (("text.max_sentence_tokens", "9"), "`text`"),
    ] {
        let other = changed(EVALUATION, &[change]).unwrap();
        let error = other.check_evaluates(&training).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    assert!(training.check_evaluates(&training).is_err());
}

/// With z = 3, m = 1,000 and one participation, rho is 1 / 18. The noise on a rate has the standard deviation `z sqrt 3 / m`.
#[test]
fn an_evaluation_costs_what_its_noise_says() {
    let many = [
        ("cohort.users_per_round", "1000"),
        ("cohort.population", "400000"),
    ];
    let evaluation = changed(EVALUATION, &many).unwrap();
    let plan = evaluation.plan(None, 50).unwrap();
    let rho = plan.planned().unwrap().unwrap().schema.unwrap().rho;
    assert!((rho - 1.0 / 18.0).abs() < 1e-9, "{rho}");
    // The three rates travel over the root of three.
    let noise = plan.round(0).noise_std * 3.0_f64.sqrt();
    assert!((noise - 3.0 * 3.0_f64.sqrt() / 1000.0).abs() < 1e-9, "{noise}");
}

#[test]
fn the_declared_population_changes_no_cost_and_no_noise() {
    let of = |population: &str| {
        let task = changed(PLAIN, &[("cohort.population", population)]).unwrap();
        let plan = task.plan(None, 20).unwrap();
        (plan.round(0), plan.planned().unwrap().unwrap())
    };
    let (small, large) = (of("30"), of("7000001"));
    assert_eq!(small.0, large.0);
    assert_eq!(small.1.epsilon, large.1.epsilon);
    assert_eq!((small.1.population, large.1.population), (30, 7_000_001));
    assert!(small.1.schema.is_some() && small.1.adjacency.contains("zero"));
}

/// The whole mechanism is one event under at least `b` rounds between and at most `k` participations.
#[test]
fn the_plan_of_a_task_is_that_of_its_schema() {
    let task = file(PLAIN);
    let plan = task.plan(None, 20).unwrap();
    let schema = plan.participation().unwrap();
    assert_eq!((schema.gap().get(), schema.max_participation()), (3, 2));
    assert!(plan.bounded().is_some());
    plan.check_budget().unwrap();
    let mechanism = plan.bounded().unwrap().mechanism();
    let again = task.plan_with(Some(mechanism), 20).unwrap();
    assert_eq!(
        again.planned().unwrap().unwrap().epsilon,
        plan.planned().unwrap().unwrap().epsilon
    );
    let tight = changed(PLAIN, &[("privacy.max_epsilon", "0.01")]).unwrap();
    let error = tight
        .plan(None, 20)
        .unwrap()
        .check_budget()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("privacy.max_epsilon") && error.contains("all rounds"),
        "{error}"
    );
    // Noise so small that no epsilon can be stated exceeds every budget.
    let loud = [
        ("privacy.max_epsilon", "1e9"),
        ("privacy.noise_multiplier", "1e-3"),
    ];
    let plan = changed(PLAIN, &loud).unwrap().plan(None, 20).unwrap();
    assert_eq!(plan.planned().unwrap(), None);
    let error = plan.check_budget().unwrap_err().to_string();
    assert!(error.contains("at least the inf of all rounds"), "{error}");
}

/// Noise in shares is sized for the floor of one group, whatever the report goal.
#[test]
fn noise_of_clients_is_sized_for_one_group() {
    const SHARES: (&str, &str) = (
        "aggregation",
        "{ sum = \"secagg\", encoding = { kind = \"skellam\", scale = 1e4 }, min_clients = 5, max_clients = 200 }",
    );
    let shares = |goal: &str| {
        let task = changed(
            PLAIN,
            &[
                ("cohort.users_per_round", goal),
                ("privacy.mechanism", "-"),
                SHARES,
            ],
        )
        .unwrap();
        task.validate(Seeding::Refused).unwrap();
        task.plan(None, 20).unwrap()
    };
    let (one, many) = (shares("10"), shares("100"));
    let epsilon = |plan: &PrivacyPlan| plan.planned().unwrap().unwrap().epsilon;
    assert_eq!(epsilon(&one), epsilon(&many));
    // The budget is that of all rounds, not of the first one.
    let planned = epsilon(&one);
    let within = |budget: f64| {
        let task = changed(
            PLAIN,
            &[
                ("privacy.mechanism", "-"),
                ("privacy.max_epsilon", &format!("{budget:?}")),
                SHARES,
            ],
        );
        let plan = task.unwrap().plan(None, 20).unwrap();
        (plan.check_budget().is_ok(), plan.check_whole_budget().is_ok())
    };
    assert_eq!(within(0.99 * planned), (true, false));
    assert_eq!(within(1.01 * planned), (true, true));
    // Two participations of a user, at most.
    let schema = one.participation().unwrap();
    let client_noise = one.client_noise().unwrap();
    assert_eq!(client_noise.times(12, schema), 2);
}

#[test]
fn a_simulation_refuses_devices_that_check_in() {
    use crate::cohorts::Cohorts;
    use crate::participation::ParticipationKey;

    let task = file(PLAIN);
    let plan = task.plan(None, 20).unwrap();
    let key = ParticipationKey::from_bytes([1; 32]);
    let error = Cohorts::new(&task.task, &plan, &[], &key)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("undertone serve") && error.contains("check_in"),
        "{error}"
    );
    // The head of a service has no cohorts, and takes the plan.
    let first = crate::entropy::RoundEntropy::seeded(1);
    RunHead::new(&task.task, plan, None, "genesis", &first).unwrap();
}
