//! Mechanisms with discrete outputs, as the log-probabilities of their outcomes under two neighbours.
