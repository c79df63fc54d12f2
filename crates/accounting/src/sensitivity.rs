//! Sensitivity of a strategy matrix under a participation schema.
