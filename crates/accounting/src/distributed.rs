//! Noise that many clients add in parts: the distributed discrete Gaussian and Skellam mechanisms.
