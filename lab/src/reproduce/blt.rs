//! \[BLT\]: McMahan, Xu, Zhang, "A Hassle-free Algorithm for Strong Differential Privacy in Federated Learning
//! Systems" (2024).

mod contenders;
mod deployed;
pub(crate) mod figure_1;
pub(crate) mod figure_10;
pub(crate) mod figure_2;
pub(crate) mod figure_3;
pub(crate) mod figure_5;
pub(crate) mod figure_6;
pub(crate) mod figure_8;
pub(crate) mod figure_9;
pub(crate) mod table_2;
pub(crate) mod table_3;
pub(crate) mod table_4;
