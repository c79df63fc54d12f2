use crate::scalar::Scalar;

/// Base of the angles' geometric progression.
const BASE: f64 = 10_000.0;

/// Cosines and sines of every position and pair.
#[derive(Debug)]
pub(super) struct Rotary<T> {
    half: usize,
    heads: usize,
    /// `[context, half]`: cosine and sine.
    turns: Vec<[T; 2]>,
}

impl<T: Scalar> Rotary<T> {
    pub(super) fn new(context: usize, heads: usize, head_width: usize) -> Self {
        let half = head_width / 2;
        let turn = |index: usize| {
            let (position, pair) = ((index / half) as f64, (index % half) as f64);
            let angle = position / BASE.powf(pair / half as f64);
            [T::of(angle.cos()), T::of(angle.sin())]
        };
        Self {
            half,
            heads,
            turns: (0..context * half).map(turn).collect(),
        }
    }

    /// Turns queries and keys of one sequence, rows of `[3 heads, 2 half]` from position `first` on; back where `backward`.
    pub(super) fn turn(&self, rows: &mut [T], first: usize, backward: bool) {
        let width = 2 * self.half;
        let sign = if backward { -T::ONE } else { T::ONE };
        let lines = rows.chunks_exact_mut(3 * self.heads * width);
        for (row, turns) in lines.zip(self.turns.chunks_exact(self.half).skip(first)) {
            for head in row[..2 * self.heads * width].chunks_exact_mut(width) {
                let (first, second) = head.split_at_mut(self.half);
                for ((a, b), &[cosine, sine]) in first.iter_mut().zip(second).zip(turns) {
                    let sine = sign * sine;
                    (*a, *b) = (*a * cosine - *b * sine, *a * sine + *b * cosine);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products of a turned query and a turned key depend on the distance alone, values are left alone, and turning back
    /// gives back.
    #[test]
    fn products_depend_on_the_distance() {
        let rotary = Rotary::<f64>::new(9, 1, 6);
        let line: Vec<f64> = (0..18).map(|i| f64::from(i).sin()).collect();
        let rows = line.repeat(9);
        let mut turned = rows.clone();
        rotary.turn(&mut turned, 0, false);
        let product =
            |i: usize, j: usize| -> f64 { (0..6).map(|k| turned[i * 18 + k] * turned[j * 18 + 6 + k]).sum() };
        for i in 2..9 {
            assert!((product(i, i - 2) - product(2, 0)).abs() < 1e-14);
            assert_eq!(turned[i * 18 + 12..(i + 1) * 18], line[12..]);
        }
        assert!((product(3, 0) - product(2, 0)).abs() > 1e-3);
        rotary.turn(&mut turned, 0, true);
        assert!(turned.iter().zip(&rows).all(|(a, b)| (a - b).abs() < 1e-15));
    }
}
