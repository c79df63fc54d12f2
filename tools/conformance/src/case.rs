use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::tally::Tally;
use anyhow::Context;
use serde_json::{Map, Value};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, SamplingProbability};

/// Checks every case of a list `{id, family, inputs, outputs, source}` with the checker of its family.
pub(crate) fn check_all(
    cases: &[Value],
    tally: &mut Tally,
    check: impl Fn(&str, &Case<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for (number, value) in cases.iter().enumerate() {
        let text = |name: &str| {
            let text = value[name].as_str();
            text.with_context(|| format!("case {number} has no `{name}`"))
        };
        let (id, family) = (text("id")?, text("family")?);
        let case = Case::new(value).with_context(|| id.to_owned())?;
        let outcome = check(family, &case);
        tally.case(id, &case.wrong(outcome));
    }
    Ok(())
}

/// One case of a reference file: typed access to what goes in, comparison with what should come out.
///
/// Every output must be looked at: one that no checker knows is a failure, so that a file never passes by
/// being misunderstood. Printed numbers (`paper...`) and `note` are not outputs.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    inputs: &'a Map<String, Value>,
    outputs: &'a Map<String, Value>,
    tolerance: Option<f64>,
    seen: RefCell<BTreeSet<String>>,
    wrong: RefCell<Vec<String>>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(case: &'a Value) -> anyhow::Result<Self> {
        let object = |name: &str| {
            let object = case[name].as_object();
            object.with_context(|| format!("no object `{name}`"))
        };
        Ok(Self {
            inputs: object("inputs")?,
            outputs: object("outputs")?,
            tolerance: case["rtol"].as_f64(),
            seen: RefCell::default(),
            wrong: RefCell::default(),
        })
    }

    /// Everything that was found wrong; outputs that nobody looked at are, unless the checker gave up.
    pub(crate) fn wrong(self, outcome: anyhow::Result<()>) -> Vec<String> {
        let seen = self.seen.into_inner();
        let mut wrong = self.wrong.into_inner();
        if let Err(error) = outcome {
            wrong.push(format!("{error:#}"));
            return wrong;
        }
        let left = self.outputs.keys().filter(|key| !seen.contains(*key));
        let left = left.filter(|key| !key.starts_with("paper") && *key != "note");
        wrong.extend(left.map(|key| format!("{key}: an output that this family has no check for")));
        wrong
    }

    /// The relative tolerance that the file states for the case.
    pub(crate) fn tolerance(&self) -> anyhow::Result<f64> {
        self.tolerance.context("no `rtol`")
    }

    pub(crate) fn input(&self, name: &str) -> anyhow::Result<&'a Value> {
        self.inputs
            .get(name)
            .with_context(|| format!("no input `{name}`"))
    }

    pub(crate) fn number(&self, name: &str) -> anyhow::Result<f64> {
        number(self.input(name)?).with_context(|| format!("input `{name}`"))
    }

    pub(crate) fn numbers(&self, name: &str) -> anyhow::Result<Vec<f64>> {
        list(self.input(name)?).with_context(|| format!("input `{name}`"))
    }

    /// A whole number, which a file may write as `5`, `5.0` or `1e6`.
    pub(crate) fn whole(&self, name: &str) -> anyhow::Result<u64> {
        whole(self.number(name)?).with_context(|| format!("input `{name}`"))
    }

    /// A whole number as a length.
    pub(crate) fn size(&self, name: &str) -> anyhow::Result<usize> {
        Ok(usize::try_from(self.whole(name)?)?)
    }

    pub(crate) fn text(&self, name: &str) -> anyhow::Result<&'a str> {
        let text = self.input(name)?.as_str();
        text.with_context(|| format!("input `{name}` is not a text"))
    }

    pub(crate) fn has_input(&self, name: &str) -> bool {
        self.inputs.contains_key(name)
    }

    pub(crate) fn delta(&self) -> anyhow::Result<Delta> {
        Ok(Delta::new(self.number("delta")?)?)
    }

    pub(crate) fn epsilon(&self) -> anyhow::Result<Epsilon> {
        Ok(Epsilon::new(self.number("epsilon")?)?)
    }

    pub(crate) fn noise(&self, name: &str) -> anyhow::Result<NoiseMultiplier> {
        Ok(NoiseMultiplier::new(self.number(name)?)?)
    }

    pub(crate) fn probability(&self, name: &str) -> anyhow::Result<SamplingProbability> {
        Ok(SamplingProbability::new(self.number(name)?)?)
    }

    /// An output, if the case has it; from now on it counts as looked at.
    pub(crate) fn output(&self, name: &str) -> Option<&'a Value> {
        let value = self.outputs.get(name)?;
        self.seen.borrow_mut().insert(name.to_owned());
        Some(value)
    }

    /// An output as a number, if the case has it; from now on it counts as looked at.
    pub(crate) fn expected(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let value = self.output(name).map(number).transpose();
        value.with_context(|| format!("output `{name}`"))
    }

    /// An output that the case must have.
    pub(crate) fn required(&self, name: &str) -> anyhow::Result<f64> {
        self.expected(name)?
            .with_context(|| format!("no output `{name}`"))
    }

    /// The outputs whose names start with `prefix` and go on with a number: that number and the output.
    pub(crate) fn outputs_at(&self, prefix: &str) -> anyhow::Result<Vec<(f64, f64)>> {
        let mut found = Vec::new();
        for name in self.outputs.keys() {
            let Some(at) = name.strip_prefix(prefix).and_then(|rest| rest.parse().ok()) else {
                continue;
            };
            found.push((at, self.required(name)?));
        }
        Ok(found)
    }

    /// Records a failure.
    pub(crate) fn fail(&self, detail: String) {
        self.wrong.borrow_mut().push(detail);
    }

    /// Records a failure unless `holds`.
    pub(crate) fn ensure(&self, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.fail(detail());
        }
    }

    /// `got` against the output `name`, if the case has it, within `relative`.
    pub(crate) fn close(&self, name: &str, got: f64, relative: f64) -> anyhow::Result<()> {
        if let Some(want) = self.expected(name)? {
            self.near(name, got, want, relative * want.abs());
        }
        Ok(())
    }

    /// Every entry of `got` against the output `name`, if the case has it, within `relative` of the entry itself.
    pub(crate) fn close_list(&self, name: &str, got: &[f64], relative: f64) -> anyhow::Result<()> {
        let Some(want) = self.output(name) else {
            return Ok(());
        };
        let want = list(want).with_context(|| format!("output `{name}`"))?;
        self.near_list(name, got, &want, |want| relative * want.abs());
        Ok(())
    }

    /// Every entry of `got` against the output `name`, within `relative` of the largest entry: for numbers that are
    /// known no better.
    pub(crate) fn close_vector(&self, name: &str, got: &[f64], relative: f64) -> anyhow::Result<()> {
        let Some(want) = self.output(name) else {
            return Ok(());
        };
        let want = list(want).with_context(|| format!("output `{name}`"))?;
        let scale = want.iter().fold(0.0f64, |top, value| top.max(value.abs()));
        self.near_list(name, got, &want, |_| relative * scale);
        Ok(())
    }

    /// `got` against `want`, entry by entry.
    pub(crate) fn near_list(&self, what: &str, got: &[f64], want: &[f64], tolerance: impl Fn(f64) -> f64) {
        self.ensure(got.len() == want.len(), || {
            format!("{what}: expected {} numbers, got {}", want.len(), got.len())
        });
        for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
            self.near(&format!("{what}[{index}]"), got, want, tolerance(want));
        }
    }

    /// `got` not above the output `name`, if the case has it, by more than `relative`: what an optimiser must reach.
    pub(crate) fn at_most(&self, name: &str, got: f64, relative: f64) -> anyhow::Result<()> {
        if let Some(want) = self.expected(name)? {
            self.ensure(got <= want * (1.0 + relative), || {
                format!("{name}: expected at most {want:e} (1 + {relative:e}), got {got:e}")
            });
        }
        Ok(())
    }

    /// `got` against `want` within an absolute `tolerance`.
    pub(crate) fn near(&self, what: &str, got: f64, want: f64, tolerance: f64) {
        // Not `>`: a NaN must fail.
        let near = got == want || (got - want).abs() <= tolerance;
        self.ensure(near, || {
            let relative = (got - want).abs() / want.abs();
            format!("{what}: expected {want:e}, got {got:e} (relative {relative:.1e})")
        });
    }
}

/// A JSON number, or one of the texts `inf` and `-inf`.
pub(crate) fn number(value: &Value) -> anyhow::Result<f64> {
    match value {
        Value::String(text) if text == "inf" => Ok(f64::INFINITY),
        Value::String(text) if text == "-inf" => Ok(f64::NEG_INFINITY),
        other => other.as_f64().with_context(|| format!("{other} is not a number")),
    }
}

/// A list of numbers; a single number is a list of one.
pub(crate) fn list(value: &Value) -> anyhow::Result<Vec<f64>> {
    match value.as_array() {
        Some(values) => values.iter().map(number).collect(),
        None => Ok(vec![number(value)?]),
    }
}

/// `value` as a count.
pub(crate) fn whole(value: f64) -> anyhow::Result<u64> {
    let fits = value >= 0.0 && value.fract() == 0.0 && value <= 2f64.powi(53);
    anyhow::ensure!(fits, "{value} is not a whole number");
    Ok(value as u64)
}

/// Helpers for the tests of all checkers.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;

    use super::*;

    /// The verdict on a whole file.
    pub(crate) fn verdict(file: &Value, check: impl Fn(&Value, &mut Tally) -> anyhow::Result<()>) -> String {
        let mut tally = Tally::default();
        check(file, &mut tally).unwrap();
        tally.verdict()
    }

    /// The number of cases and outputs of each family of a list.
    pub(crate) fn counts(cases: &Value) -> Vec<(&str, usize, usize)> {
        let mut counts = BTreeMap::new();
        for case in cases.as_array().unwrap() {
            let (cases, outputs) = counts.entry(case["family"].as_str().unwrap()).or_default();
            *cases += 1;
            *outputs += case["outputs"].as_object().unwrap().len();
        }
        let counts = counts.into_iter();
        counts
            .map(|(family, (cases, outputs))| (family, cases, outputs))
            .collect()
    }

    /// The first case of a family, with a changed part, or with a changed key in it.
    pub(crate) fn changed(cases: &Value, family: &str, part: &str, key: &str, value: Value) -> Value {
        let mut cases = cases.as_array().unwrap().iter();
        let mut case = cases.find(|case| case["family"] == family).unwrap().clone();
        if key.is_empty() {
            case[part] = value;
        } else {
            case[part][key] = value;
        }
        case
    }
}
