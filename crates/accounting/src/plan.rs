//! Planning: from population, report goal, rounds and target to what is feasible.
