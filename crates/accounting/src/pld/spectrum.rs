//! Spectra of losses: sums and coarser lattices are products of bins.

use realfft::num_complex::Complex64;

use super::connect_the_dots::PointSplit;
use super::fourier::Spectrum;

/// Bins that are worked on at a time, parted into real and imaginary numbers.
const BLOCK: usize = 128;

impl Spectrum {
    /// The spectrum of the sum of `exponent >= 1` such losses.
    pub(crate) fn raised(mut self, exponent: u64) -> Self {
        raise(&mut self.bins, exponent);
        self
    }

    /// The spectrum of the sum of two independent losses.
    pub(crate) fn times(mut self, other: &Self) -> Self {
        multiply(&mut self.bins, &other.bins);
        self
    }

    /// The spectrum of the sequence whose points are put on every `ratio`-th of them by `split`: the filter first, then
    /// bins that no longer differ are added up.
    ///
    /// On the circle the fractions of the last points go to the first.
    pub(crate) fn thinned(mut self, split: &PointSplit) -> Self {
        let ratio = split.0.len();
        let (length, middle) = (self.length / ratio, self.length / 2);
        filter(&mut self.bins, self.length, &Taps::new(split));
        for bin in 0..=length / 2 {
            // Bins beyond half of the length are conjugates of those before it; none was written to yet.
            let alias = |fold: usize| match bin + fold * length {
                high if high > middle => self.bins[self.length - high].conj(),
                low => self.bins[low],
            };
            let sum: Complex64 = (0..ratio).map(alias).sum();
            self.bins[bin] = sum / ratio as f64;
        }
        self.bins.keep(0, length / 2 + 1);
        self.length = length;
        self
    }
}

/// A filter: its response at the angle `a` is `stays + sum_j (even_j cos(j a) + i odd_j sin(j a))`.
struct Taps {
    stays: f64,
    /// Even and odd part of the taps at each distance.
    others: Vec<(f64, f64)>,
}

impl Taps {
    /// The weights with which points around a coarse point add to it: of one `j` after it, and of one `j` before it.
    fn new(PointSplit(split): &PointSplit) -> Self {
        let ratio = split.len();
        let pair = |j: usize| (split[j].0, split[ratio - j].1);
        Self {
            stays: split[0].0,
            others: (1..ratio)
                .map(pair)
                .map(|(after, before)| (after + before, after - before))
                .collect(),
        }
    }
}

#[inline(always)]
fn square(re: &mut [f64; BLOCK], im: &mut [f64; BLOCK]) {
    for (re, im) in re.iter_mut().zip(im) {
        (*re, *im) = (*re * *re - *im * *im, 2.0 * *re * *im);
    }
}

undertone_simd::vectorised! {
    /// `z^exponent` of every bin, by squaring; `exponent >= 1`.
    fn raise(bins: &mut [Complex64], exponent: u64) {
        for block in bins.chunks_mut(BLOCK) {
            let (mut re, mut im) = ([0.0f64; BLOCK], [0.0f64; BLOCK]);
            for (index, z) in block.iter().enumerate() {
                (re[index], im[index]) = (z.re, z.im);
            }
            let mut rest = exponent;
            while rest.is_multiple_of(2) {
                rest /= 2;
                square(&mut re, &mut im);
            }
            let (mut result_re, mut result_im) = (re, im);
            while rest > 1 {
                rest /= 2;
                square(&mut re, &mut im);
                if !rest.is_multiple_of(2) {
                    for index in 0..BLOCK {
                        let (a, b) = (result_re[index], result_im[index]);
                        result_re[index] = a * re[index] - b * im[index];
                        result_im[index] = a * im[index] + b * re[index];
                    }
                }
            }
            for (index, z) in block.iter_mut().enumerate() {
                *z = Complex64::new(result_re[index], result_im[index]);
            }
        }
    }
}

undertone_simd::vectorised! {
    fn multiply(bins: &mut [Complex64], others: &[Complex64]) {
        for (bin, other) in bins.iter_mut().zip(others) {
            *bin *= other;
        }
    }
}

undertone_simd::vectorised! {
    /// Multiplies the bins of a sequence of `length` points by the response of a filter.
    fn filter(bins: &mut [Complex64], length: usize, taps: &Taps) {
        let turn = std::f64::consts::TAU / length as f64;
        // Angles of bins are sums of one from each of two short tables.
        let (mut cos_within, mut sin_within) = ([0.0f64; BLOCK], [0.0f64; BLOCK]);
        for index in 0..BLOCK {
            (sin_within[index], cos_within[index]) = (turn * index as f64).sin_cos();
        }
        for (number, block) in bins.chunks_mut(BLOCK).enumerate() {
            let (sin_start, cos_start) = (turn * (number * BLOCK) as f64).sin_cos();
            let (mut cos, mut sin) = ([0.0f64; BLOCK], [0.0f64; BLOCK]);
            for index in 0..BLOCK {
                cos[index] = cos_start * cos_within[index] - sin_start * sin_within[index];
                sin[index] = sin_start * cos_within[index] + cos_start * sin_within[index];
            }
            let (mut cos_multiple, mut sin_multiple) = (cos, sin);
            let (mut even, mut odd) = ([taps.stays; BLOCK], [0.0f64; BLOCK]);
            for (distance, (even_tap, odd_tap)) in taps.others.iter().enumerate() {
                for index in 0..BLOCK {
                    if distance > 0 {
                        let (c, s) = (cos_multiple[index], sin_multiple[index]);
                        cos_multiple[index] = c * cos[index] - s * sin[index];
                        sin_multiple[index] = s * cos[index] + c * sin[index];
                    }
                    even[index] += even_tap * cos_multiple[index];
                    odd[index] += odd_tap * sin_multiple[index];
                }
            }
            for (index, z) in block.iter_mut().enumerate() {
                *z *= Complex64::new(even[index], odd[index]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_convolutions() {
        let dice = [0.0, 0.25, 0.5, 0.25];
        for exponent in 1..=6u64 {
            let got = Spectrum::new(&dice, 24).raised(exponent).sequence(0);
            let mut want = vec![1.0];
            for _ in 0..exponent {
                let mut next = vec![0.0; want.len() + 3];
                for (i, a) in want.iter().enumerate() {
                    for (j, b) in dice.iter().enumerate() {
                        next[i + j] += a * b;
                    }
                }
                want = next;
            }
            for (index, want) in want.iter().enumerate() {
                assert!((got[index] - want).abs() < 1e-15, "{exponent} {index}");
            }
        }
    }

    /// Longer than a block, in bins and in aliases.
    #[test]
    fn thinning_splits_every_point_between_two_coarse_ones() {
        for (length, ratio) in [(24usize, 4usize), (720, 4), (1024, 4), (48, 2), (360, 3)] {
            let values: Vec<f64> = (0..length).map(|index| ((index * index) % 17) as f64).collect();
            let split: Vec<(f64, f64)> = (0..ratio)
                .map(|residue| (1.0 - 0.2 * residue as f64, 0.3 * residue as f64))
                .collect();
            let mut want = vec![0.0; length / ratio];
            for (index, value) in values.iter().enumerate() {
                let (coarse, share) = (index / ratio, split[index % ratio]);
                want[coarse] += share.0 * value;
                want[(coarse + 1) % (length / ratio)] += share.1 * value;
            }
            let got = Spectrum::new(&values, length)
                .thinned(&PointSplit(split))
                .sequence(0);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-12, "{length} {ratio}: {got} {want}");
            }
        }
    }
}
