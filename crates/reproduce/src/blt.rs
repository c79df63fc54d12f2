//! \[BLT\]: McMahan, Xu, Zhang, "A Hassle-free Algorithm for Strong Differential Privacy in Federated Learning
//! Systems" (2024).

pub(crate) mod table_4;
