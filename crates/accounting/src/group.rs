//! Group privacy without looking inside the mechanism.
