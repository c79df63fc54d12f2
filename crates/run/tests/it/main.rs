//! Algorithm 1 of \[DPLM\] and the algorithms of \[UserDP\] against plain arithmetic: user updates, the released average,
//! the plan's figures, personalisation.

mod bounded;
mod copies;
mod engines;
mod evaluation;
mod forger;
mod holdback;
mod interrupted;
mod kept_folders;
mod lane;
mod languages;
mod lifted_sums;
mod likelihood;
mod live;
mod on_gpu;
mod personalize;
mod plan;
mod planted;
mod provenance;
mod ranks;
mod replay;
mod session;
mod support;
mod user_update;
mod userdp;
