//! The plan that the devices of a task read, and the terms of its secure sums.

use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::task::{ClipConfig, IdentityLevel, LedgerPlace, SumName, TaskFile, TaskPurpose};
use undertone_protocol::{
    AdaptiveNorm, AggregationRule, Blob, ClipRule, DeviceBudget, Digest32, GraphRule, Guarantee, Label,
    LayerNorms, Plan, Signed, SumMode, TaskKind, TrustedKeys, clip_rule, digest_of, limits, read, write,
};
use undertone_secagg::{Terms, ThreatModel};
use undertone_store::TaskId;
use undertone_text::{TextRules, Vocab};

use super::damaged;
use crate::error::{Result, ServiceError};
use crate::keys::Keys;

/// The numbers that every device of a secure sum agrees on; `None` for a plain sum.
pub(super) fn terms(file: &TaskFile, privacy: &PrivacyPlan) -> Result<Option<Terms>> {
    let secure = file
        .task
        .aggregation
        .as_ref()
        .is_some_and(|aggregation| aggregation.sum == SumName::SecAgg);
    let (true, Some(encoding)) = (secure, privacy.encoding()) else {
        return Ok(None);
    };
    let count = |key: &str, number: u64| {
        u32::try_from(number).map_err(|_| ServiceError::Value {
            key: key.to_owned(),
            expected: "at most 4,294,967,295".to_owned(),
            got: number.to_string(),
        })
    };
    let model = match file.service.identity {
        // PRIVACY: without an issuer a server can invent the neighbours, so the protocol claims no more.
        IdentityLevel::Dev => ThreatModel::HonestButCurious,
        _ => ThreatModel::Active,
    };
    let terms = Terms::new(encoding.padded_dim() as u64, encoding.modulus().get(), model)?;
    // The modulus has room for all groups together; each group agrees on its own numbers of clients.
    let group = file.service.group;
    let min = count("service.group.min", group.min)?;
    Ok(Some(terms.with_clients(
        min,
        count("service.group.target", group.target)?,
    )?))
}

/// The seed of the rotations of a task. Devices read it from the signed plan.
pub(super) fn rotation_seed(task: TaskId) -> Digest32 {
    digest_of(&[b"undertone rotations\0", &task.0[..]].concat())
}

/// The plan that devices read. With secure sums it names the keys of `issuers`.
#[expect(clippy::too_many_arguments, reason = "each is one part of the plan")]
pub(super) fn plan_body(
    file: &TaskFile,
    id: TaskId,
    population: &str,
    privacy: &PrivacyPlan,
    vocab: &Vocab,
    words: &[u8],
    of: Option<TaskId>,
    rotations: Digest32,
    keys: &Keys,
    issuers: &[Digest32],
) -> Result<Vec<u8>> {
    let json = |what: &str, value: serde_json::Result<String>| value.map_err(|error| damaged(what, error));
    let guarantee = privacy.planned()?;
    if guarantee.is_none() {
        // No device would take part.
        return Err(ServiceError::Value {
            key: "privacy".to_owned(),
            expected: "noise for which a guarantee can be stated".to_owned(),
            got: "so little noise that there is none".to_owned(),
        });
    }
    let schema = guarantee.as_ref().and_then(|guarantee| guarantee.schema.as_ref());
    let (min_sep, max_part) = schema.map_or((1, 1), |schema| (schema.min_sep, schema.max_part));
    let service = &file.service;
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let aggregation = file.task.aggregation.as_ref();
    let encoding = privacy.encoding();
    let terms = terms(file, privacy)?;
    let loss_cap = match &file.purpose {
        TaskPurpose::Train { .. } => 0.0,
        TaskPurpose::Evaluate { loss_cap, .. } => *loss_cap,
    };
    let plan = Plan {
        task: id.0.to_vec(),
        name: file.task.name.clone(),
        population: population.to_owned(),
        kind: match file.purpose {
            TaskPurpose::Train { .. } => TaskKind::Train.into(),
            TaskPurpose::Evaluate { .. } => TaskKind::Evaluate.into(),
        },
        rounds: file.task.rounds,
        report_goal: file.goal(),
        model: json("the model", serde_json::to_string(&file.task.model))?,
        user_update: json("user_update", serde_json::to_string(&file.task.user_update))?,
        vocabulary: Some(Blob::of(words)),
        frozen: None,
        text: json("text", text(file.text))?,
        clip: Some(clip_rule(file, vocab)?),
        aggregation: Some(AggregationRule {
            mode: match terms {
                Some(_) => SumMode::Secagg.into(),
                None => SumMode::Plain.into(),
            },
            encoding: match (encoding, aggregation) {
                (Some(_), Some(aggregation)) => {
                    json("the encoding", serde_json::to_string(&aggregation.encoding))?
                }
                _ => String::new(),
            },
            min_clients: narrow(file.floor()),
            max_clients: narrow(
                aggregation
                    .and_then(|aggregation| aggregation.max_clients)
                    .unwrap_or(file.sessions()),
            ),
            modulus: encoding.map_or(0, |encoding| encoding.modulus().get()),
            length: encoding.map_or_else(
                || privacy.layout().len(),
                undertone_aggregation::Encoding::padded_dim,
            ) as u64,
            group_target: narrow(service.group.target),
            group_min: narrow(service.group.min),
            graph: aggregation
                .and_then(|aggregation| aggregation.graph)
                .map(|graph| GraphRule {
                    drop_out_rate: graph.drop_out_rate,
                    corrupt_rate: graph.corrupt_rate,
                    privacy_bits: graph.privacy_bits,
                    failure_bits: graph.failure_bits,
                }),
            rotations: rotations.to_vec(),
            issuers: match (terms.is_some(), service.identity) {
                (true, IdentityLevel::Dev) | (false, _) => Vec::new(),
                (true, _) => issuers.iter().map(|key| key.to_vec()).collect(),
            },
        }),
        min_sep: narrow(min_sep),
        max_part: narrow(max_part),
        timer_s: service.eligibility.timer.millis() / 1000,
        min_examples: service.eligibility.min_examples,
        max_examples: service.eligibility.max_examples,
        min_client_version: service.eligibility.min_client_version,
        guarantee: guarantee.as_ref().map(|guarantee| Guarantee {
            epsilon: guarantee.epsilon,
            delta: guarantee.delta,
            rho: schema.map_or(0.0, |schema| schema.rho),
            noise_multiplier: guarantee.noise_multiplier,
        }),
        budget: Some(DeviceBudget {
            cpu_ms: service.budget.cpu.millis(),
            upload_kbps_min: service.budget.upload_kbps_min,
            battery_percent: service.budget.battery_percent,
        }),
        head_key: keys.head(id).public().to_vec(),
        task_sha256: file.digest()?.to_vec(),
        of: of.map_or_else(Vec::new, |of| of.0.to_vec()),
        loss_cap,
        ledger_on_device: service.ledger == LedgerPlace::Device,
    };
    Ok(write(&plan))
}

/// The rules of examples. The rule of English has no name there: plans of earlier versions are what they were.
fn text(rules: TextRules) -> serde_json::Result<String> {
    let rules = TextRules {
        max_sentence_tokens: rules.longest(),
        max_example_tokens: rules.longest(),
        ..rules
    };
    serde_json::to_string(&serde_json::to_value(rules)?)
}

/// Checks that a signed plan is this one, by the key `by` of the service.
pub(super) fn check_signed(signed: &[u8], body: &[u8], by: &Digest32, keys: &Keys) -> Result<()> {
    let wrong = |got: &dyn std::fmt::Display| damaged("the plan of the task", got);
    if !keys.signed_plans().keys().contains(by) {
        return Err(wrong(&"one that no key of this service signed"));
    }
    let signed: Signed = read(Label::Plan.name(), signed, limits::MAX_PLAN).map_err(|error| wrong(&error))?;
    let trusted = TrustedKeys::new([*by]);
    let (found, _) = trusted
        .open(Label::Plan, &signed)
        .map_err(|error| wrong(&error))?;
    match found == body {
        true => Ok(()),
        false => Err(wrong(&"one that does not follow from its settings and keys")),
    }
}

fn clip_rule(file: &TaskFile, vocab: &Vocab) -> Result<ClipRule> {
    let kind = match &file.task.clip {
        ClipConfig::None => {
            return Err(ServiceError::Value {
                key: "clip.kind".to_owned(),
                expected: "a bound on the update of a user".to_owned(),
                got: "\"none\"".to_owned(),
            });
        }
        ClipConfig::Flat { norm, .. } => clip_rule::Kind::Flat(*norm),
        ClipConfig::PerLayer { norm, norms } => {
            let groups = file.layout(vocab.len())?.groups().len();
            let even = || vec![norm.unwrap_or(1.0) / (groups as f64).sqrt(); groups];
            clip_rule::Kind::Layers(LayerNorms {
                norms: norms.clone().unwrap_or_else(even),
            })
        }
        ClipConfig::Adaptive { initial_norm, .. } => clip_rule::Kind::Adaptive(AdaptiveNorm {
            initial: *initial_norm,
            max: file.max_clip_norm().unwrap_or(*initial_norm),
        }),
    };
    Ok(ClipRule { kind: Some(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans are signed. A task without a rule of words has the plan that it had before there were rules.
    #[test]
    fn a_plan_names_the_rule_of_words_unless_it_is_that_of_english() {
        let mut rules = TextRules::default();
        let plain = r#"{"examples":"sentences","max_example_tokens":20,"max_sentence_tokens":20}"#;
        assert_eq!(text(rules).unwrap(), plain);
        rules.words = undertone_text::WordRule::BROADEST;
        let named = plain.replace('}', r#","words":"unicode"}"#);
        assert_eq!(text(rules).unwrap(), named);
        let read: TextRules = serde_json::from_str(&named).unwrap();
        assert_eq!((read.words, read.longest()), (rules.words, rules.longest()));
    }
}
