//! Estimators of audits against `vectors/audit.json`, computed by mpmath with 30 digits and, where they have the function, compared with
//! jax-privacy and dp-accounting. Then their coverage on simulated audits.

mod coverage;

use serde_json::Value;
use undertone_accounting::audit::many_runs;
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_accounting::audit::{Guesses, Significance, attack, exposure, noise, one_run, one_run_fdp};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, SamplingProbability};

type Outputs = Vec<(&'static str, f64)>;

/// The inputs of a case.
struct Inputs<'a>(&'a Value);

impl Inputs<'_> {
    fn number(&self, name: &str) -> f64 {
        self.0[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no number {name}"))
    }

    fn whole(&self, name: &str) -> u64 {
        self.0[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no whole number {name}"))
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        numbers(&self.0[name])
    }

    fn lists(&self, name: &str) -> Vec<Vec<f64>> {
        self.0[name].as_array().unwrap().iter().map(numbers).collect()
    }

    fn significance(&self) -> Significance {
        Significance::new(self.number("significance")).unwrap()
    }

    fn delta(&self) -> Delta {
        Delta::new(self.number("delta")).unwrap()
    }

    fn epsilon(&self) -> Epsilon {
        Epsilon::new(self.number("epsilon")).unwrap()
    }

    fn guesses(&self) -> Guesses {
        let of = |name| self.whole(name);
        Guesses::new(of("canaries"), of("guesses"), of("correct")).unwrap()
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

fn one(name: &'static str, value: f64) -> Outputs {
    vec![(name, value)]
}

/// The outputs of a case; `None` for an estimator that this test does not know.
fn outputs(estimator: &str, case: &Inputs<'_>) -> Option<Outputs> {
    Some(match estimator {
        "one_run.p_value" => {
            let p = one_run::p_value(&case.guesses(), case.number("epsilon"), case.number("delta"));
            one("p", p.unwrap())
        }
        "one_run.epsilon" => {
            let bound = one_run::epsilon(&case.guesses(), case.significance(), case.number("delta"));
            one("epsilon", bound.unwrap().get())
        }
        "one_run_fdp.gaussian" => {
            let (guesses, significance) = (case.guesses(), case.significance());
            let epsilon = one_run_fdp::epsilon_if_gaussian(&guesses, significance, case.delta()).unwrap();
            vec![
                ("mu", one_run_fdp::mu(&guesses, significance)),
                ("epsilon", epsilon.get()),
            ]
        }
        "clopper_pearson.upper" => {
            let (successes, trials) = (case.whole("successes"), case.whole("trials"));
            let p = many_runs::clopper_pearson_upper(successes, trials, case.number("alpha"));
            one("p", p.unwrap())
        }
        "gdp.epsilon" => {
            let epsilon = one_run_fdp::epsilon_of_mu(case.number("mu"), case.delta());
            one("epsilon", epsilon.unwrap().get())
        }
        "gdp.mu" => one(
            "mu",
            one_run_fdp::mu_of_epsilon(case.epsilon(), case.delta()).unwrap(),
        ),
        "score.poisson_llr" => {
            let q = SamplingProbability::new(case.number("sampling_probability")).unwrap();
            let z = NoiseMultiplier::new(case.number("noise_multiplier")).unwrap();
            one(
                "score",
                SecretCoins::poisson(q).log_likelihood_ratio(z, case.numbers("whitened")),
            )
        }
        "exposure.rank" => {
            let exposure = exposure::exposure(case.whole("rank"), case.whole("candidates"));
            one("exposure", exposure.unwrap())
        }
        "exposure.dp_limit" => {
            let limit = exposure::limit(case.epsilon(), case.number("delta"), case.significance());
            one("exposure", limit.unwrap())
        }
        "attack.auc" | "attack.auc_delong_se" => {
            let area = attack::area(&case.numbers("members"), &case.numbers("non_members")).unwrap();
            match estimator {
                "attack.auc" => one("auc", area.auc),
                _ => one("se", area.standard_error),
            }
        }
        "attack.dp_limits" => {
            let limits = attack::limits(case.epsilon(), case.delta(), case.number("fpr")).unwrap();
            vec![
                ("auc", limits.auc),
                ("tpr", limits.tpr),
                ("auc_gaussian", limits.auc_gaussian),
                ("tpr_gaussian", limits.tpr_gaussian),
            ]
        }
        "attack.user_inference" => {
            let (model, reference) = ("model_log_probabilities", "reference_log_probabilities");
            let score = attack::user_inference(&case.lists(model), &case.lists(reference)).unwrap();
            vec![
                ("mean_over_texts", score.mean_over_texts),
                ("mean_over_texts_per_token", score.mean_over_texts_per_token),
            ]
        }
        "noise.probe_tests" => {
            let values = case.numbers("whitened");
            let (variance, lag) = (noise::variance(&values).unwrap(), noise::lag(&values, 1).unwrap());
            vec![
                ("chi2", variance.statistic),
                ("chi2_p", variance.p),
                ("lag1_z", lag.statistic),
                ("lag1_p", lag.p),
                ("ks_statistic", noise::shape(&values).unwrap().statistic),
            ]
        }
        "coverage.p_value" => {
            let (covered, runs) = (case.whole("covered"), case.whole("runs"));
            let p = many_runs::coverage_p_value(covered, runs, case.number("stated"));
            one("p", p.unwrap())
        }
        _ => return None,
    })
}

#[test]
fn every_output_of_the_reference_is_within_its_tolerance() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/audit.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let (id, estimator) = (case["id"].as_str().unwrap(), case["estimator"].as_str().unwrap());
        let got = outputs(estimator, &Inputs(&case["inputs"])).unwrap_or_default();
        let tolerance = case["tolerance"].as_f64().unwrap();
        for (name, want) in case["outputs"].as_object().unwrap() {
            let want = want.as_f64().unwrap();
            let scale = match case["tolerance_kind"].as_str().unwrap() {
                "relative" => want.abs(),
                _ => 1.0,
            };
            match got.iter().find(|(known, _)| known == name) {
                Some((_, got)) if (got - want).abs() <= tolerance * scale => {}
                found => wrong.push(format!("{id} {estimator} {name}: expected {want}, got {found:?}")),
            }
        }
    }
    assert_eq!(cases.len(), 54);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
