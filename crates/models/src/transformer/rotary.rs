use super::{LocalRotary, Positions, RotaryScaling, TransformerSizes};
use crate::scalar::Scalar;

/// The turns of every block.
#[derive(Debug)]
pub(super) struct Rotaries<T> {
    /// The turns of the model, and those of the blocks that have a base of their own.
    of_model: Option<Rotary<T>>,
    of_local: Option<(LocalRotary, Rotary<T>)>,
}

impl<T: Scalar> Rotaries<T> {
    /// The turns of the first `context` positions.
    pub(super) fn of(sizes: TransformerSizes, context: usize) -> Self {
        let architecture = sizes.architecture;
        let local = architecture
            .local_rotary
            .filter(|_| sizes.positions == Positions::Rotary);
        Self {
            of_model: Rotary::of(sizes, context),
            of_local: local.map(|local| (local, Rotary::with(sizes, context, local.base, None))),
        }
    }

    /// The turns of the block at this place; `None` for a model with learned positions.
    pub(super) fn at(&self, layer: usize) -> Option<&Rotary<T>> {
        match &self.of_local {
            Some((local, rotary)) if local.covers(layer) => Some(rotary),
            _ => self.of_model.as_ref(),
        }
    }
}

/// Cosines and sines of every position and pair.
#[derive(Debug)]
pub(super) struct Rotary<T> {
    half: usize,
    /// Heads that are turned, those of queries and those of keys, and the width of a row.
    turned: usize,
    row: usize,
    /// `[context, half]`: cosine and sine, times the factor that scaling gives queries and keys.
    turns: Vec<[T; 2]>,
}

impl<T: Scalar> Rotary<T> {
    /// The turns of the first `context` positions by base and scaling of the model; `None` for a model with learned positions.
    pub(super) fn of(sizes: TransformerSizes, context: usize) -> Option<Self> {
        let (base, scaling) = (sizes.architecture.rotary_base, sizes.architecture.rotary_scaling);
        (sizes.positions == Positions::Rotary).then(|| Self::with(sizes, context, base, scaling))
    }

    fn with(sizes: TransformerSizes, context: usize, base: f64, scaling: Option<RotaryScaling>) -> Self {
        let half = sizes.head_width() / 2;
        let divisor = |pair: usize| scaling.map_or(1.0, |scaling| scaling.divisor(base, half, pair));
        let divisors: Vec<f64> = (0..half).map(divisor).collect();
        let factor = scaling.map_or(1.0, RotaryScaling::attention_factor);
        let turn = |index: usize| {
            let (position, pair) = ((index / half) as f64, index % half);
            let angle = position / base.powf(pair as f64 / half as f64) / divisors[pair];
            [T::of(factor * angle.cos()), T::of(factor * angle.sin())]
        };
        Self {
            half,
            turned: sizes.heads + sizes.key_heads(),
            row: sizes.qkv_width(),
            turns: (0..context * half).map(turn).collect(),
        }
    }

    /// `[positions, half]`: cosine and sine.
    pub(super) fn into_turns(self) -> Vec<[T; 2]> {
        self.turns
    }

    /// Turns queries and keys of one sequence, rows of queries, keys and values from position `first` on; back where `backward`, which
    /// is the transpose.
    pub(super) fn turn(&self, rows: &mut [T], first: usize, backward: bool) {
        let width = 2 * self.half;
        let sign = if backward { -T::ONE } else { T::ONE };
        let lines = rows.chunks_exact_mut(self.row);
        for (row, turns) in lines.zip(self.turns.chunks_exact(self.half).skip(first)) {
            for head in row[..self.turned * width].chunks_exact_mut(width) {
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
        let sizes = TransformerSizes {
            vocab: 2,
            layers: 1,
            width: 6,
            heads: 1,
            context: 9,
            inner: 1,
            positions: Positions::Rotary,
            architecture: crate::Architecture::GPT2,
        };
        let rotary = Rotary::<f64>::of(sizes, 9).unwrap();
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
