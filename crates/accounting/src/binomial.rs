//! The binomial mechanism: the theorem of \[cpSGD\] and the exact account.
