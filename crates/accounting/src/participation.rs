//! Participation schemas as types: how often, and how far apart, one user may take part.
