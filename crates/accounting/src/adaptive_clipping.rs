//! How adaptive clipping splits the noise between the clipped sum and the clipped-fraction estimate.
