/// The memory that an update writes to, and the weights at the start of the step.
pub(crate) enum UpdateTarget<'a, T> {
    /// Weights are updated in place.
    Step(&'a mut [T]),
    /// A gradient is written beside the weights.
    Gradient { params: &'a [T], gradient: &'a mut [T] },
}

impl<T> UpdateTarget<'_, T> {
    pub(crate) fn slice(&mut self) -> &mut [T] {
        match self {
            Self::Step(params) => params,
            Self::Gradient { gradient, .. } => gradient,
        }
    }

    pub(crate) fn params(&self) -> &[T] {
        match self {
            Self::Step(params) => params,
            Self::Gradient { params, .. } => params,
        }
    }
}
