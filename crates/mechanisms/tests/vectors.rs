//! The crate against independent oracles: the families of `vectors/mechanisms.json` that its strategies and optimisers
//! answer.
//!
//! The cases come from jax-privacy 2.0.0, mpmath at 60 digits and an independent numpy implementation; each names its
//! source and its relative tolerance. Optimised matrices pass when their loss is no larger than the best known.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use undertone_accounting::participation::{Gap, Participation};
use undertone_mechanisms::optimize::blt::BltOptimizer;
use undertone_mechanisms::optimize::{self, Problem};
use undertone_mechanisms::{
    BandedToeplitz, Blt, InverseToeplitz, NormalisedBlt, NormalisedInverseToeplitz, NormalisedToeplitz,
    Objective, Strategy, Tree, TreeFull, TreeLayout, Workload, output_scales, toeplitz,
};

const VECTORS: &str = include_str!("../../../vectors/mechanisms.json");

struct Case {
    id: String,
    inputs: Value,
    outputs: Value,
    rtol: f64,
}

/// All cases of a family, of which there must be `count`.
fn family(name: &str, count: usize) -> Vec<Case> {
    let mut file: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = file["cases"].as_array_mut().unwrap();
    let cases: Vec<Case> = cases
        .iter_mut()
        .filter(|case| case["family"] == name)
        .map(|case| Case {
            id: case["id"].as_str().unwrap().to_owned(),
            inputs: case["inputs"].take(),
            outputs: case["outputs"].take(),
            rtol: case["rtol"].as_f64().unwrap(),
        })
        .collect();
    assert_eq!(cases.len(), count, "{name}");
    cases
}

fn list(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

impl Case {
    fn size(&self, name: &str) -> usize {
        usize::try_from(self.inputs[name].as_u64().unwrap()).unwrap()
    }

    fn blt(&self) -> Blt {
        Blt::new(&list(&self.inputs["theta"]), &list(&self.inputs["omega"])).unwrap()
    }

    fn schema(&self) -> Participation {
        let gap = Gap::new(self.inputs["min_sep"].as_u64().unwrap()).unwrap();
        Participation::at_least(gap, self.inputs["max_par"].as_u64().unwrap_or(u64::MAX)).unwrap()
    }

    fn close(&self, name: &str, got: f64) {
        let want = self.outputs[name].as_f64().unwrap();
        let near = (got - want).abs() <= self.rtol * want.abs();
        assert!(near, "{}: {name}: got {got}, want {want}", self.id);
    }

    fn close_list(&self, name: &str, got: &[f64]) {
        let want = list(&self.outputs[name]);
        assert!(got.len() >= want.len(), "{}: {name}", self.id);
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let near = (got - want).abs() <= self.rtol * want.abs();
            assert!(near, "{}: {name}[{i}]: got {got}, want {want}", self.id);
        }
    }

    /// Outputs `<prefix>MaxError<suffix>` and so on, as far as the case has them.
    fn costs(&self, strategy: &Strategy, schema: &Participation, prefix: &str, suffix: &str) {
        let rounds = self.size("n");
        let errors = strategy.errors(rounds, &Workload::prefix_sum()).unwrap();
        let squared = strategy.squared_sensitivity(rounds, schema).unwrap().squared;
        let losses = errors.losses(squared);
        let mut looked_at = 0;
        for (name, got) in [
            ("sens", losses.sensitivity),
            ("MaxError", errors.max_error),
            ("RmsError", errors.rms_error),
            ("MaxLoss", losses.max_loss),
            ("RmsLoss", losses.rms_loss),
        ] {
            let name = format!("{prefix}{name}{suffix}");
            if self.outputs.get(&name).is_some() {
                self.close(&name, got);
                looked_at += 1;
            }
        }
        assert!(looked_at >= 2, "{}: {prefix}..{suffix}", self.id);
    }

    fn at_most(&self, name: &str, got: f64) {
        let want = self.outputs[name].as_f64().unwrap();
        assert!(
            got <= want * (1.0 + self.rtol),
            "{}: {name}: got {got}, want {want}",
            self.id
        );
    }
}

#[test]
fn blt_parameters_both_ways() {
    for case in family("blt_calc_output_scale", 8) {
        let (theta, theta_hat) = (list(&case.inputs["theta"]), list(&case.inputs["theta_hat"]));
        let (omega, omega_hat) = output_scales(&theta, &theta_hat).unwrap();
        case.close_list("omega", &omega);
        case.close_list("omega_hat", &omega_hat);
    }
    for case in family("blt_inverse_params", 8) {
        case.close_list("theta_hat", &case.blt().inverse().decays);
    }
    for case in family("blt_rational_init", 6) {
        let free = Blt::rational(case.size("num_buffers")).unwrap();
        case.close_list("unclamped_theta", &free.decays());
        case.close_list("unclamped_omega", free.output_scales());
        let largest = case.inputs["max_buf_decay"].as_f64().unwrap();
        case.close_list("theta", &free.with_largest_decay(largest).unwrap().decays());
    }
}

#[test]
fn blt_series() {
    for case in family("blt_toeplitz_coefs", 4) {
        let (blt, rounds) = (case.blt(), case.size("n"));
        for (name, series) in [
            ("c", blt.coefficients(rounds)),
            ("c_hat", blt.inverse_coefficients(rounds)),
        ] {
            let indices = case.inputs["indices"].as_array().unwrap();
            let at = |i: &Value| series[usize::try_from(i.as_u64().unwrap()).unwrap()];
            case.close_list(name, &indices.iter().map(at).collect::<Vec<f64>>());
            case.close(&format!("sum_{name}"), series.iter().sum());
        }
    }
}

#[test]
fn blt_losses_and_tables() {
    for case in family("blt_loss", 24) {
        case.costs(&Strategy::Blt(case.blt()), &case.schema(), "", "");
    }
    for (name, count) in [("blt_sensitivity", 4), ("figure_curve", 12)] {
        for case in family(name, count) {
            let strategy = Strategy::Blt(case.blt());
            let columns = case.outputs["columns"].as_array().unwrap();
            for row in case.outputs["rows"].as_array().unwrap() {
                let cell = |name: &str| {
                    columns
                        .iter()
                        .position(|column| column == name)
                        .map(|at| &row[at])
                };
                let rounds = cell("n").unwrap_or(&case.inputs["n"]).as_u64().unwrap();
                let rounds = usize::try_from(rounds).unwrap();
                let gap = Gap::new(cell("min_sep").unwrap().as_u64().unwrap()).unwrap();
                let most = cell("max_par").unwrap().as_u64().unwrap_or(u64::MAX);
                let schema = Participation::at_least(gap, most).unwrap();
                let certified = strategy.squared_sensitivity(rounds, &schema).unwrap();
                assert!(certified.exact, "{}", case.id);
                let (got, want) = (
                    certified.squared.sensitivity(),
                    cell("sens").unwrap().as_f64().unwrap(),
                );
                let near = (got - want).abs() <= case.rtol * want;
                assert!(near, "{}: {row}: got {got}", case.id);
            }
        }
    }
}

#[test]
fn normalised_matrices() {
    let single = Participation::single();
    for case in family("blt_column_normalised", 4) {
        let blt = case.blt();
        case.costs(&Strategy::Blt(blt.clone()), &single, "plain_", "1");
        let strategy = Strategy::NormalisedBlt(NormalisedBlt::new(blt, case.size("n")).unwrap());
        case.costs(&strategy, &single, "", "");
        let gap = Gap::new(case.inputs["eval_min_sep"].as_u64().unwrap()).unwrap();
        let schema = Participation::at_least(gap, case.inputs["eval_k"].as_u64().unwrap()).unwrap();
        case.costs(&strategy, &schema, "", "_k6_upper");
    }
    for case in family("band_toeplitz_column_normalised", 6) {
        let strategy = NormalisedToeplitz::new(case.size("n"), list(&case.inputs["coefs"])).unwrap();
        case.costs(&Strategy::NormalisedToeplitz(strategy), &single, "", "");
    }
    for case in family("normalized_square_root", 3) {
        let strategy = NormalisedToeplitz::square_root(case.size("n")).unwrap();
        case.costs(&Strategy::NormalisedToeplitz(strategy), &single, "", "1");
    }
}

#[test]
fn toeplitz_matrices_and_inverses() {
    for case in family("band_fhu", 4) {
        let strategy = BandedToeplitz::fhu(case.size("bands")).unwrap();
        case.costs(&Strategy::BandedToeplitz(strategy), &case.schema(), "", "");
    }
    for case in family("bisr", 5) {
        let strategy = InverseToeplitz::square_root(case.size("bands")).unwrap();
        case.close_list("c_head", &strategy.strategy_coefficients(case.size("n")).unwrap());
        case.costs(&Strategy::InverseToeplitz(strategy), &case.schema(), "", "");
    }
    for case in family("bisr_workload", 2) {
        let number = |name: &str| case.inputs[name].as_f64().unwrap();
        let (momentum, decay) = (number("beta_momentum"), number("alpha_weight_decay"));
        let workload = toeplitz::momentum_with_weight_decay(momentum, decay, case.size("bands"));
        let strategy = InverseToeplitz::square_root_of(&workload).unwrap();
        case.close_list("c_hat", strategy.coefficients());
    }
    for case in family("dp_lambda_cgd", 4) {
        let plain = InverseToeplitz::lambda(case.inputs["lam"].as_f64().unwrap()).unwrap();
        let normalised = NormalisedInverseToeplitz::new(case.size("n"), plain.clone()).unwrap();
        case.costs(&Strategy::InverseToeplitz(plain), &case.schema(), "", "");
        let normalised = Strategy::NormalisedInverseToeplitz(normalised);
        case.costs(&normalised, &Participation::single(), "colnorm_", "");
    }
}

#[test]
fn trees() {
    for case in family("tree_agg", 7) {
        case.costs(&Strategy::Tree(Tree::new()), &case.schema(), "online_", "");
        if case.outputs.get("full_MaxError").is_some() {
            let full = TreeFull::new(case.size("n"), TreeLayout::CompleteNodes).unwrap();
            case.costs(&Strategy::TreeFull(full), &case.schema(), "full_", "");
        }
    }
    for case in family("tree_agg_full", 2) {
        let layout = match case.inputs["layout"].as_str().unwrap() {
            "complete_nodes" => TreeLayout::CompleteNodes,
            "forest12_levels" => TreeLayout::Trees { leaves: 2048 },
            other => panic!("{other}"),
        };
        let full = TreeFull::new(case.size("n"), layout).unwrap();
        case.costs(&Strategy::TreeFull(full), &case.schema(), "", "");
    }
}

#[test]
fn optima_are_no_worse_than_the_best_known() {
    let objective = |case: &Case| match case.inputs["error"].as_str().unwrap() {
        "max" => (Objective::MaxLoss, "MaxLoss"),
        "mean" => (Objective::RmsLoss, "RmsLoss"),
        other => panic!("{other}"),
    };
    for case in family("blt_optimised", 60) {
        let run = BltOptimizer::new(case.size("n"), case.schema()).unwrap();
        let run = run
            .objective(objective(&case).0)
            .buffers(case.size("nbuf"))
            .unwrap();
        case.at_most(
            "best_loss",
            run.optimize().unwrap().best.losses.get(objective(&case).0),
        );
    }
    for case in family("band_inv_mf_optimised", 3) {
        let (objective, name) = objective(&case);
        let problem = Problem::new(case.size("n"), case.schema()).with_objective(objective);
        let (_, losses) = optimize::inverse_toeplitz(&problem, case.size("bands")).unwrap();
        case.at_most(name, losses.get(objective));
    }
    for case in family("band_toeplitz_optimised", 6) {
        let (objective, name) = objective(&case);
        let problem = Problem::new(case.size("n"), Participation::single()).with_objective(objective);
        let (_, losses) = optimize::banded_toeplitz(&problem, case.size("bands")).unwrap();
        case.at_most(&format!("{name}1"), losses.get(objective));
    }
    for case in family("dense_mf_optimised", 3) {
        let (rounds, epochs) = (case.size("n"), case.inputs["epochs"].as_u64().unwrap());
        let schema = Participation::fixed_epochs(Gap::new(rounds as u64 / epochs).unwrap(), epochs).unwrap();
        let (_, losses) = optimize::dense(&Problem::new(rounds, schema)).unwrap();
        case.at_most("RmsLoss", losses.rms_loss);
    }
}
