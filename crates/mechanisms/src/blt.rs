//! Parameters of buffered linear Toeplitz matrices: from decays to output scales and back, and their series.

pub(crate) mod interlace;
pub(crate) mod pair;
pub(crate) mod rational;
pub(crate) mod series;
