//! One-dimensional searches.

/// Narrows `[low, high]` for a predicate that is false at `low`, true at `high` and switches once; returns
/// the true end when the two are neighbours or within `relative` of each other.
pub(crate) fn first_true(
    mut low: f64,
    mut high: f64,
    relative: f64,
    mut holds: impl FnMut(f64) -> bool,
) -> f64 {
    while high - low > relative * high.abs() {
        // Geometric steps while the bracket spans magnitudes.
        let middle = if low > 0.0 && high > 4.0 * low {
            (low * high).sqrt()
        } else {
            low + 0.5 * (high - low)
        };
        if middle <= low || middle >= high {
            break;
        }
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Smallest value of a function with one valley on `[low, high]`, by golden sections.
pub(crate) fn minimum(mut low: f64, mut high: f64, mut f: impl FnMut(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut f_left, mut f_right) = (f(left), f(right));
    let mut best = f_left.min(f_right);
    for _ in 0..200 {
        if high - low <= 1e-12 * (low.abs() + high.abs()) {
            break;
        }
        if f_left <= f_right {
            high = right;
            (right, f_right) = (left, f_left);
            left = high - GOLDEN * (high - low);
            f_left = f(left);
            best = best.min(f_left);
        } else {
            low = left;
            (left, f_left) = (right, f_right);
            right = low + GOLDEN * (high - low);
            f_right = f(right);
            best = best.min(f_right);
        }
    }
    best
}
