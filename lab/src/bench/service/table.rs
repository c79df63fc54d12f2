//! The lines that the items print.

use serde_json::{Value, json};

/// Rounds to four significant digits.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Prints one line.
pub(super) fn report(item: &str, fields: &Value) {
    let mut line = json!({ "name": "undertone", "version": env!("CARGO_PKG_VERSION"), "item": item });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
        line.extend(fields.clone());
    }
    println!("RESULT {line}");
}

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// The figure should be at least this.
    AtLeast(f64),
    /// The figure should be at most this.
    AtMost(f64),
    /// The part of the limit that is reached should be at least this.
    OfLimit(f64),
}

/// One figure beside its limit.
#[derive(Debug)]
pub(super) struct Figure {
    /// The number of the question in the design of the service.
    pub(super) question: &'static str,
    pub(super) item: &'static str,
    /// The unit. A unit that ends in `/s` is a rate; any other is a cost.
    pub(super) unit: &'static str,
    pub(super) value: f64,
    /// The limit, in the same unit.
    pub(super) limit: f64,
    pub(super) limit_is: &'static str,
    pub(super) target: Option<Target>,
}

impl Figure {
    /// The part of the limit that is reached: 1 is the limit, also where a cost is measured.
    pub(super) fn of_limit(&self) -> f64 {
        match self.unit.ends_with("/s") {
            true => self.value / self.limit,
            false => self.limit / self.value,
        }
    }

    /// `true` where the target is met; `None` without one.
    pub(super) fn met(&self) -> Option<bool> {
        self.target.map(|target| match target {
            Target::AtLeast(least) => self.value >= least,
            Target::AtMost(most) => self.value <= most,
            Target::OfLimit(part) => self.of_limit() >= part,
        })
    }

    /// Prints the figure, with `more` about how it came about.
    pub(super) fn print(&self, more: &Value) {
        let target = self.target.map(|target| match target {
            Target::AtLeast(least) => json!({ "at_least": rounded(least) }),
            Target::AtMost(most) => json!({ "at_most": rounded(most) }),
            Target::OfLimit(part) => json!({ "of_limit": rounded(part) }),
        });
        let mut fields = json!({
            "question": self.question, "unit": self.unit, "figure": rounded(self.value),
            "limit": rounded(self.limit), "limit_is": self.limit_is, "of_limit": rounded(self.of_limit()),
            "target": target, "met": self.met(),
        });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more.clone());
        }
        report(self.item, &fields);
    }
}
