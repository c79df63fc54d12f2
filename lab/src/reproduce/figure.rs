use serde::Serialize;
use undertone_present::Scale;

/// A claim that a paper makes in words, and our finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// The paper's statement, as a condition that can fail.
    pub says: &'static str,
    /// Our numbers.
    pub found: String,
    /// `true` if the measured values meet the condition.
    pub holds: bool,
}

/// Curves over common abscissae, recomputed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The title: the quantity that is drawn.
    pub title: &'static str,
    /// Name of the abscissa.
    pub x_label: &'static str,
    /// Name of the ordinate.
    pub y_label: &'static str,
    /// The scale of the horizontal axis.
    pub x_scale: Scale,
    /// The scale of the vertical axis.
    pub y_scale: Scale,
    /// The abscissae, rising.
    pub x: Vec<f64>,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// One curve of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// The method that computes the curve.
    pub method: &'static str,
    /// The setting of the curve; curves of one setting and different methods belong together.
    pub setting: String,
    /// One value for each abscissa; `None` where the method has none.
    pub y: Vec<Option<f64>>,
}
