//! Privacy loss distributions: numerical composition with a rigorous upper and lower bound.
