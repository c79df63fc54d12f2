//! Algorithm 1 of \[DPLM\] against plain arithmetic: user updates, the released average, and the plan's figures.

mod bounded;
mod plan;
mod support;
mod user_update;
