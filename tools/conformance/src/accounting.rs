//! Privacy accounting: one checker for every family of `vectors/accounting.json` and `vectors/accounting-2.json`.
//!
//! A file is a list of cases `{id, family, inputs, outputs, source}`. A case passes when every output passes; a
//! family or an output that nobody here knows is a failure. Checkers see inputs and outputs, never the id.
//!
//! Closed forms, divergences and sensitivities are compared to a relative 1e-9 (the improved zCDP conversion and
//! binomial numbers 1e-8); what is looser says why beside its number. Numbers of loss distributions are upper bounds
//! on a stated grid, see `reference.rs`.

mod binomial;
mod calibration;
mod clipping;
mod discrete;
mod distributed;
mod gaussian;
mod heterogeneous;
mod mixture;
mod poisson;
mod reference;
mod renyi;
mod second;
mod sensitivity;

use anyhow::Context;
use serde_json::Value;

use crate::case::{self, Case};
use crate::tally::Tally;

/// Relative tolerance of closed forms.
const EXACT: f64 = 1e-9;

pub(crate) fn check(file: &Value, tally: &mut Tally) -> anyhow::Result<()> {
    let cases = file.as_array().context("the file is not a list of cases")?;
    case::check_all(cases, tally, check_family)
}

fn check_family(family: &str, case: &Case<'_>) -> anyhow::Result<()> {
    match family {
        "adaptive_clipping" => clipping::adaptive_clipping(case),
        "binomial_composition" => binomial::binomial_composition(case),
        "binomial_exact" => binomial::binomial_exact(case),
        "calibrate_mog" => mixture::calibrate_mog(case),
        "discrete_gaussian" => discrete::discrete_gaussian(case),
        "discrete_laplace" => discrete::discrete_laplace(case),
        "laplace" => discrete::laplace(case),
        "mog" => mixture::mog(case),
        "mog_independent" => mixture::mog_independent(case),
        "mog_one_step_exact" => mixture::mog_one_step_exact(case),
        "poisson_gaussian_converged" => poisson::poisson_gaussian_converged(case),
        "poisson_gaussian_pld" => poisson::poisson_gaussian_pld(case),
        "poisson_gaussian_prv" => poisson::poisson_gaussian_prv(case),
        "poisson_gaussian_small_delta" => poisson::poisson_gaussian_small_delta(case),
        "randomized_response" => discrete::randomized_response(case),
        "truncated_poisson" => poisson::truncated_poisson(case),
        "blt_multi_participation" => sensitivity::blt_multi_participation(case),
        "skellam" => distributed::skellam(case),
        "tree_restart" => sensitivity::tree_restart(case),
        "tree_single" => sensitivity::tree_single(case),
        "binomial_theorem" => binomial::binomial_theorem(case),
        "calibrate" => calibration::calibrate(case),
        "distributed_discrete_gaussian" => distributed::distributed_discrete_gaussian(case),
        "gaussian" => gaussian::gaussian(case),
        "heterogeneous" => heterogeneous::heterogeneous(case),
        "zcdp" => gaussian::zcdp(case),
        "rdp_poisson_gaussian" => renyi::rdp_poisson_gaussian(case),
        "rdp_accountant" => renyi::rdp_accountant(case),
        "moments_accountant" => renyi::moments_accountant(case),
        "without_replacement" => renyi::without_replacement(case),
        "approximate_dp" => second::approximate_dp(case),
        "bounded_losses" => second::bounded_losses(case),
        "calibrate_zero" => second::calibrate_zero(case),
        "check_draws" => second::check_draws(case),
        "dp_accounting_layer" => second::dp_accounting_layer(case),
        "truncated_huge" => second::truncated_huge(case),
        _ => anyhow::bail!("family {family} is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::testing;

    fn file() -> Value {
        serde_json::from_str(include_str!("../../../vectors/accounting.json")).unwrap()
    }

    fn verdict(file: &Value) -> String {
        testing::verdict(file, check)
    }

    fn changed(family: &str, part: &str, key: &str, value: impl Into<Value>) -> Value {
        let case = testing::changed(&file(), family, part, key, value.into());
        Value::Array(vec![case])
    }

    #[test]
    #[ignore = "slow"]
    fn the_repository_vectors_pass() {
        let file = file();
        let cases = file.as_array().unwrap().len();
        assert_eq!(verdict(&file), format!("{cases} passed, 0 failed"));
    }

    /// A case that leaves the file leaves a gap that the verdict cannot show.
    #[test]
    fn each_family_has_all_its_cases_and_outputs() {
        let expected = [
            ("adaptive_clipping", 4, 4),
            ("binomial_composition", 3, 9),
            ("binomial_exact", 6, 30),
            ("binomial_theorem", 5, 39),
            ("blt_multi_participation", 4, 20),
            ("calibrate", 2, 2),
            ("calibrate_mog", 1, 1),
            ("distributed_discrete_gaussian", 2, 12),
            ("gaussian", 19, 38),
            ("heterogeneous", 2, 4),
            ("mog", 21, 27),
            ("mog_independent", 19, 129),
            ("mog_one_step_exact", 5, 15),
            ("moments_accountant", 10, 37),
            ("poisson_gaussian_converged", 4, 12),
            ("poisson_gaussian_prv", 1, 4),
            ("poisson_gaussian_small_delta", 3, 14),
            ("rdp_accountant", 8, 24),
            ("rdp_poisson_gaussian", 8, 16),
            ("skellam", 2, 10),
            ("tree_restart", 3, 9),
            ("tree_single", 25, 109),
            ("truncated_poisson", 6, 12),
            ("without_replacement", 2, 4),
            ("zcdp", 21, 121),
        ];
        assert_eq!(testing::counts(&file()), expected);
    }

    #[test]
    fn anything_else_fails() {
        let fails = |file: Value| assert_eq!(verdict(&file), "0 passed, 1 failed", "{file}");
        fails(changed("gaussian", "outputs", "delta", 0.383));
        fails(changed("gaussian", "inputs", "sigma", -1.0));
        fails(changed("gaussian", "inputs", "sigma", Value::Null));
        fails(changed("gaussian", "inputs", "sensitivity", 2));
        // Nothing is passed over: neither what nobody knows nor a value that cannot be one.
        fails(changed("gaussian", "family", "", "gausian"));
        fails(changed("gaussian", "outputs", "sigma_renyi", 1.0));
        fails(changed("zcdp", "outputs", "eps_pld", "inf"));
        fails(changed("zcdp", "outputs", "alpha_opt", 20.0));
        fails(changed("moments_accountant", "outputs", "optimal_lambda", 3));
        fails(changed(
            "without_replacement",
            "inputs",
            "neighboring",
            "ADD_OR_REMOVE_ONE",
        ));
        fails(changed("heterogeneous", "inputs", "desc", "5x Cauchy3"));
        fails(changed("mog", "outputs", "epsilon_pld", 0.9));
        fails(changed("mog", "outputs", "epsilon_pld", 1.2));
        // A printed number is not an oracle.
        assert_eq!(
            verdict(&changed("zcdp", "outputs", "paper_epsilon", 9.9)),
            "1 passed, 0 failed"
        );
        // Another id changes nothing.
        assert_eq!(verdict(&changed("zcdp", "id", "", "other")), "1 passed, 0 failed");
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let error = |file: &Value| format!("{:#}", check(file, &mut Tally::default()).unwrap_err());
        assert_eq!(error(&Value::Null), "the file is not a list of cases");
        assert_eq!(error(&serde_json::json!([{"id": "a"}])), "case 0 has no `family`");
        assert_eq!(
            error(&serde_json::json!([{"id": "a", "family": "gaussian", "inputs": {}}])),
            "a: no object `outputs`"
        );
    }
}
