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

/// One figure beside its limit.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) item: &'static str,
    /// The unit. A unit that ends in `/s` is a rate; any other is a cost.
    pub(super) unit: &'static str,
    pub(super) value: f64,
    /// The limit, in the same unit.
    pub(super) limit: f64,
    pub(super) limit_is: &'static str,
}

impl Figure {
    /// The part of the limit that is reached: 1 is the limit, also where a cost is measured.
    pub(super) fn of_limit(&self) -> f64 {
        match self.unit.ends_with("/s") {
            true => self.value / self.limit,
            false => self.limit / self.value,
        }
    }

    /// Prints the figure, with `more` about how it came about.
    pub(super) fn print(&self, more: &Value) {
        let mut fields = json!({
            "unit": self.unit, "figure": rounded(self.value),
            "limit": rounded(self.limit), "limit_is": self.limit_is, "of_limit": rounded(self.of_limit()),
        });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more.clone());
        }
        report(self.item, &fields);
    }
}
