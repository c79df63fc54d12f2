//! The facade from outside.

mod facade;
