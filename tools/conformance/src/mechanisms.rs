//! Noise mechanisms: one checker for every family of `vectors/mechanisms.json`.
//!
//! A file is `{meta, cases: [{id, family, inputs, outputs, source, rtol}]}`; `rtol` is the relative tolerance of the
//! case. Separations called `min_sep` are gaps `j - i`, no `max_par` means as many participations as fit, losses are
//! sensitivity times the root of the squared error. Checkers see inputs and outputs, never the id; an output that nobody
//! here knows is a failure.
//!
//! Optimised families pass when the matrix that this library finds loses no more than the best known one; parameters
//! are not unique, so those of the file are evaluated instead of compared.

mod banded;
mod blt;
mod guarantee;
mod inverse;
mod schema;
mod sensitivity;
mod stream;
mod table3;
mod table4;
mod toeplitz;
mod tree;
mod workload;

use anyhow::Context;
use serde_json::Value;

use crate::case::{self, Case};
use crate::tally::Tally;

/// Relative tolerance of an evaluation in double precision, where the case's own tolerance is an optimiser's.
const EVALUATED: f64 = 1e-8;

pub(crate) fn check(file: &Value, tally: &mut Tally) -> anyhow::Result<()> {
    let cases = file["cases"].as_array().context("the file has no list `cases`")?;
    case::check_all(cases, tally, check_family)
}

fn check_family(family: &str, case: &Case<'_>) -> anyhow::Result<()> {
    match family {
        "amplified_bandmf" => guarantee::amplified_bandmf(case),
        "band_fhu" => toeplitz::band_fhu(case),
        "band_inv_mf_optimised" => inverse::band_inv_mf_optimised(case),
        "band_mf_optimised" => banded::band_mf_optimised(case),
        "band_toeplitz_column_normalised" => toeplitz::band_toeplitz_column_normalised(case),
        "band_toeplitz_optimised" => toeplitz::band_toeplitz_optimised(case),
        "bisr" => inverse::bisr(case),
        "bisr_workload" => inverse::bisr_workload(case),
        "blt_calc_output_scale" => blt::calc_output_scale(case),
        "blt_column_normalised" => blt::column_normalised(case),
        "blt_inverse_params" => blt::inverse_params(case),
        "blt_loss" => blt::loss(case),
        "blt_optimised" => blt::optimised(case),
        "blt_rational_init" => blt::rational_init(case),
        "blt_sensitivity" => blt::table(case),
        "blt_stream_forward" => stream::forward(case),
        "blt_stream_inverse" => stream::inverse(case),
        "blt_toeplitz_coefs" => blt::toeplitz_coefs(case),
        "dense_mf_optimised" => banded::dense_mf_optimised(case),
        "dp_lambda_cgd" => inverse::dp_lambda_cgd(case),
        "fhu" => toeplitz::fhu(case),
        "figure_curve" => blt::table(case),
        "gaussian_rho_to_eps" => guarantee::gaussian_rho_to_eps(case),
        "general_sensitivity" => sensitivity::general_sensitivity(case),
        "normalized_square_root" => toeplitz::normalised_square_root(case),
        "seed_table3" => table3::seed_table3(case),
        "seed_table4" => table4::seed_table4(case),
        "tree_agg" => tree::tree_agg(case),
        "tree_agg_full" => tree::tree_agg_full(case),
        "tree_sensitivity" => tree::tree_sensitivity(case),
        "vec_sens" => sensitivity::vec_sens(case),
        "workload_momentum_lr" => workload::workload_momentum_lr(case),
        _ => anyhow::bail!("family {family} is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::testing;

    fn file() -> Value {
        serde_json::from_str(include_str!("../../../vectors/mechanisms.json")).unwrap()
    }

    fn verdict(file: &Value) -> String {
        testing::verdict(file, check)
    }

    fn changed(family: &str, part: &str, key: &str, value: impl Into<Value>) -> Value {
        let case = testing::changed(&file()["cases"], family, part, key, value.into());
        serde_json::json!({ "cases": [case] })
    }

    #[test]
    #[ignore = "slow"]
    fn the_repository_vectors_pass() {
        let file = file();
        let cases = file["cases"].as_array().unwrap().len();
        assert_eq!(verdict(&file), format!("{cases} passed, 0 failed"));
    }

    /// A case that leaves the file leaves a gap that the verdict cannot show.
    #[test]
    fn each_family_has_all_its_cases_and_outputs() {
        let expected = [
            ("amplified_bandmf", 3, 12),
            ("band_fhu", 4, 24),
            ("band_inv_mf_optimised", 3, 18),
            ("band_mf_optimised", 1, 12),
            ("band_toeplitz_column_normalised", 6, 30),
            ("band_toeplitz_optimised", 6, 36),
            ("bisr", 5, 40),
            ("bisr_workload", 2, 6),
            ("blt_calc_output_scale", 8, 34),
            ("blt_column_normalised", 4, 56),
            ("blt_inverse_params", 8, 18),
            ("blt_loss", 24, 120),
            ("blt_optimised", 60, 480),
            ("blt_rational_init", 6, 24),
            ("blt_sensitivity", 4, 8),
            ("blt_stream_forward", 4, 4),
            ("blt_stream_inverse", 4, 4),
            ("blt_toeplitz_coefs", 4, 24),
            ("dense_mf_optimised", 3, 9),
            ("dp_lambda_cgd", 4, 20),
            ("fhu", 2, 16),
            ("figure_curve", 12, 24),
            ("gaussian_rho_to_eps", 10, 50),
            ("general_sensitivity", 1, 2),
            ("normalized_square_root", 3, 15),
            ("seed_table3", 5, 35),
            ("seed_table4", 7, 63),
            ("tree_agg", 7, 78),
            ("tree_agg_full", 2, 10),
            ("tree_sensitivity", 9, 21),
            ("vec_sens", 3, 3),
            ("workload_momentum_lr", 3, 24),
        ];
        assert_eq!(testing::counts(&file()["cases"]), expected);
    }

    #[test]
    fn anything_else_fails() {
        let fails = |file: Value| assert_eq!(verdict(&file), "0 passed, 1 failed", "{file}");
        fails(changed("blt_loss", "outputs", "MaxLoss", 10.5041161));
        fails(changed("blt_loss", "outputs", "MeanLoss", 1.0));
        fails(changed("blt_loss", "inputs", "n", Value::Null));
        fails(changed("blt_loss", "rtol", "", Value::Null));
        fails(changed("blt_loss", "family", "", "blt_losses"));
        fails(changed("blt_optimised", "outputs", "best_loss", 1.0));
        fails(changed("blt_optimised", "outputs", "sens", 2.0));
        fails(changed("band_mf_optimised", "outputs", "RmsError", 2.6202));
        fails(changed("band_mf_optimised", "outputs", "RmsError", 2.7));
        fails(changed("tree_agg", "inputs", "forest", "all nodes"));
        fails(changed("tree_agg_full", "inputs", "layout", "forest13_levels"));
        fails(changed("seed_table4", "outputs", "match_eps", false));
        fails(changed("seed_table3", "outputs", "match", false));
        fails(changed("general_sensitivity", "outputs", "upper_bound", 3.92));
        fails(changed(
            "blt_stream_inverse",
            "outputs",
            "Zhat",
            serde_json::json!([[1.0]]),
        ));
        fails(changed(
            "figure_curve",
            "outputs",
            "rows",
            serde_json::json!([[1.0]]),
        ));
        // Another id changes nothing.
        assert_eq!(
            verdict(&changed("blt_loss", "id", "", "other")),
            "1 passed, 0 failed"
        );
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let error = |file: &Value| format!("{:#}", check(file, &mut Tally::default()).unwrap_err());
        assert_eq!(error(&Value::Null), "the file has no list `cases`");
        assert_eq!(
            error(&serde_json::json!({"cases": [{"id": "a"}]})),
            "case 0 has no `family`"
        );
    }
}
