//! `registry.json`: the record of a run for a public registry of deployments of differential privacy.
//!
//! The registry of the OpenDP community has three tiers of transparency, and a tier holds what the ones below it hold. This record fills
//! all three: a person states curator, use and product, and everything about privacy comes from files of the run that were
//! verified for it. `schema/registry.schema.json` describes the record.
//!
//! # Source
//! <https://registry.opendp.org/transparency-tiers>, for the topics of each tier. The names of the keys are ours.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::record::{GuaranteePoint, PrivacyReport};
use undertone_present::numbers::epsilon_delta;
use undertone_run_directory::config::parse_as;
use undertone_run_directory::error::DirectoryError;
use undertone_run_directory::files::names::PRIVACY_FILE;
use undertone_run_directory::files::{self, write_json};
use undertone_verify::release;

use super::Result;

/// Name of the record in the directory of its run.
pub const REGISTRY_FILE: &str = "registry.json";

/// The facts that no run can know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    /// The organisation or person who is responsible for the data.
    curator: String,
    /// The intended use of the model.
    intended_use: String,
    /// A description of the model as a product.
    data_product: String,
    /// The date of publication, `YYYY-MM-DD`.
    publication_date: String,
    /// A description of the text: whose, and how it was collected.
    data_domain: String,
    /// The reasons for the chosen epsilon and delta.
    rationale: String,
    /// Addresses of pages about the deployment.
    #[serde(default)]
    links: Vec<String>,
}

/// The record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Version of this format.
    format: u32,
    tier_1: Basic,
    tier_2: Intermediate,
    tier_3: Advanced,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Basic {
    curator: String,
    intended_use: String,
    data_product: String,
    publication_date: String,
    links: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Intermediate {
    flavor: &'static str,
    privacy_unit: &'static str,
    epsilon: f64,
    delta: f64,
    deployment_model: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Advanced {
    data_domain: String,
    neighbouring_relation: String,
    unprotected_quantities: String,
    sampling: String,
    population: u64,
    accounting: Accounting,
    implementation: Implementation,
    /// All statements and warnings of `privacy.json`, word for word.
    statements: Vec<String>,
    warnings: Vec<String>,
    tested: Vec<Tested>,
    not_tested: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Accounting {
    /// The record of `privacy.json` that epsilon and delta come from.
    figure: &'static str,
    composition: String,
    rounds: u64,
    noise_multiplier: f64,
    post_processing: &'static str,
    other_points: Vec<GuaranteePoint>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Implementation {
    software: &'static str,
    record_made_by_version: &'static str,
    rationale: String,
    random_numbers: &'static str,
    floating_point: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Tested {
    check: &'static str,
    found: String,
}

impl Record {
    /// The record in a few rows.
    #[must_use]
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        vec![
            ("curator", self.tier_1.curator.clone()),
            (
                "guarantee",
                format!(
                    "{}, {} ({})",
                    epsilon_delta(self.tier_2.epsilon, self.tier_2.delta),
                    self.tier_3.neighbouring_relation,
                    self.tier_3.accounting.figure
                ),
            ),
            (
                "tested",
                format!("{} checks of `undertone verify`", self.tier_3.tested.len()),
            ),
            ("not tested", self.tier_3.not_tested.join(" ")),
        ]
    }
}

/// Verifies a finished run, an exported task or a published folder, makes its record with the facts of a TOML file, and writes
/// `registry.json` into the directory of a run or task. A published folder keeps its files as they are.
///
/// # Errors
/// A claim of the run that does not hold; [`DirectoryError::NotPublishable`] with all that the guarantee does not cover; facts that are missing,
/// by key; files that cannot be read or written.
pub fn registry(run_dir: &Path, facts_file: &Path) -> Result<Record> {
    let facts: Facts = parse_as(&files::read_given_text(facts_file)?, facts_file, &[])?;
    check(&facts)?;
    let (verification, obstacles) = release(run_dir)?;
    if let Some(problem) = verification
        .checks
        .iter()
        .flat_map(|check| &check.problems)
        .next()
    {
        return Err(DirectoryError::damaged(
            run_dir,
            format!("no record of claims that do not hold: {problem}"),
        )
        .into());
    }
    if !obstacles.is_empty() {
        return Err(DirectoryError::NotPublishable {
            path: run_dir.to_owned(),
            reasons: obstacles,
        }
        .into());
    }
    let path = run_dir.join(PRIVACY_FILE);
    let privacy: PrivacyReport = files::read_json(&path)?;
    let Some((figure, guarantee)) = privacy.of_release() else {
        return Err(DirectoryError::damaged(&path, "expected a guarantee, for a public record").into());
    };
    let tested = verification.checks.iter().map(|check| Tested {
        check: check.name,
        found: check.found.clone(),
    });
    let record = Record {
        format: 1,
        tier_1: Basic {
            curator: facts.curator,
            intended_use: facts.intended_use,
            data_product: facts.data_product,
            publication_date: facts.publication_date,
            links: facts.links,
        },
        tier_2: Intermediate {
            flavor: "approximate differential privacy (epsilon, delta)",
            privacy_unit: "one user, with all text that they contributed",
            epsilon: guarantee.epsilon,
            delta: guarantee.delta,
            deployment_model: topic(&privacy, "Setting: "),
        },
        tier_3: Advanced {
            data_domain: facts.data_domain,
            neighbouring_relation: guarantee.adjacency.clone(),
            unprotected_quantities: topic(&privacy, "Taken as public: "),
            sampling: guarantee.sampling.clone(),
            population: guarantee.population,
            accounting: Accounting {
                figure,
                composition: guarantee.recipe.clone(),
                rounds: guarantee.rounds,
                noise_multiplier: guarantee.noise_multiplier,
                post_processing: "predictions, exports and every other use of the released model alone cost nothing more",
                other_points: guarantee.points.clone(),
            },
            implementation: Implementation {
                software: "Undertone",
                record_made_by_version: env!("CARGO_PKG_VERSION"),
                rationale: facts.rationale,
                random_numbers: "ChaCha20 under keys of the operating system, as the operator states",
                floating_point: "sums and noise are integers; the distance of the samples from ideal noise is counted in delta",
            },
            statements: privacy.statements.clone(),
            warnings: privacy.warnings.clone(),
            tested: tested.collect(),
            not_tested: verification.notes.iter().map(|note| (*note).to_owned()).collect(),
        },
    };
    if !undertone_run_directory::public_ledger::is_published(run_dir) {
        write_json(&run_dir.join(REGISTRY_FILE), &record)?;
    }
    Ok(record)
}

/// The rest of the statement that begins with this topic; empty where there is none.
fn topic(privacy: &PrivacyReport, name: &str) -> String {
    let mut found = privacy
        .statements
        .iter()
        .filter_map(|statement| statement.strip_prefix(name));
    found.next().unwrap_or_default().to_owned()
}

fn check(facts: &Facts) -> Result<()> {
    for (key, value) in [
        ("curator", &facts.curator),
        ("intended_use", &facts.intended_use),
        ("data_product", &facts.data_product),
        ("data_domain", &facts.data_domain),
        ("rationale", &facts.rationale),
    ] {
        if value.trim().is_empty() {
            return Err(DirectoryError::value(key, "a sentence", "an empty text").into());
        }
    }
    let date = &facts.publication_date;
    let parts: Vec<&str> = date.split('-').collect();
    let number = |text: &str, digits: usize| {
        let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| plain)
    };
    let is_date = match parts[..] {
        [year, month, day] => {
            number(year, 4).is_some()
                && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
                && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
        }
        _ => false,
    };
    match is_date {
        true => Ok(()),
        false => Err(DirectoryError::value("publication_date", "a date YYYY-MM-DD", date).into()),
    }
}
