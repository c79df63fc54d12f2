use serde::Serialize;
use undertone_present::Scale;

/// What a paper says in words, and what we find.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// The paper's statement, as a condition that can fail.
    pub says: &'static str,
    /// Our numbers.
    pub found: String,
    /// Whether they meet the condition.
    pub holds: bool,
}

/// Curves over common abscissae, recomputed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What is drawn.
    pub title: &'static str,
    /// Name of the abscissa.
    pub x_label: &'static str,
    /// Name of the ordinate.
    pub y_label: &'static str,
    /// How the abscissae lie.
    pub x_scale: Scale,
    /// How the ordinates lie.
    pub y_scale: Scale,
    /// The abscissae, rising.
    pub x: Vec<f64>,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// One curve of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// What it is computed with.
    pub method: &'static str,
    /// Its setting; curves of one setting and different methods belong together.
    pub setting: String,
    /// One value for each abscissa; `None` where the method has none.
    pub y: Vec<Option<f64>>,
}
