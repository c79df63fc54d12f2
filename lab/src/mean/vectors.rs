//! The vectors whose mean is estimated: made up, or read from a file of real updates.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use safetensors::{Dtype, SafeTensors};
use serde::Serialize;

use super::npy;

/// Vectors that are made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Uniform in the unit ball.
    Ball,
    /// Unit vectors with one coordinate in a hundred, and at least one, that is not zero.
    Sparse,
    /// Independent normal coordinates of variance 1/d, around a common direction of half their length.
    Gaussian,
}

/// Options of the vectors: a kind to make up, or a file to read.
#[derive(Debug, clap::Args)]
pub(super) struct VectorArgs {
    /// Vectors to make up.
    #[arg(long, value_enum, default_value = "ball", conflicts_with = "file")]
    vectors: Kind,
    /// Vectors to read: .npy with one a row, or .safetensors with one tensor of one a row or one tensor a client.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["clients", "dim"])]
    file: Option<PathBuf>,
    /// Clients, with one vector each.
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// Coordinates of a vector.
    #[arg(long, default_value_t = 1024)]
    dim: usize,
}

/// One vector per client, all of one length.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vectors {
    pub(super) dim: usize,
    values: Vec<f32>,
    /// Source of the vectors in words: the name of their kind, or the path of their file.
    pub(super) source: String,
}

/// Most coordinates of all clients together: 4 GiB.
const MOST: usize = 1 << 30;

impl VectorArgs {
    /// Reads or makes the vectors; `seed` decides what is made.
    pub(super) fn vectors(&self, seed: u64) -> anyhow::Result<Vectors> {
        if let Some(file) = &self.file {
            return read(file).with_context(|| format!("--file {}", file.display()));
        }
        ensure!(self.clients > 0, "--clients: expected at least 1, got 0");
        ensure!(self.dim > 0, "--dim: expected at least 1, got 0");
        let all = self.clients.checked_mul(self.dim).filter(|all| *all <= MOST);
        let Some(all) = all else {
            bail!(
                "--clients times --dim: expected at most 2^30, got {} x {}",
                self.clients,
                self.dim
            );
        };
        let mut values = Vec::with_capacity(all);
        for client in 0..self.clients {
            values.extend(self.vectors.draw(self.dim, seed, client as u64));
        }
        let name = self.vectors.to_possible_value();
        Ok(Vectors {
            dim: self.dim,
            values,
            source: name.map_or_else(String::new, |name| name.get_name().to_owned()),
        })
    }
}

impl Vectors {
    fn new(dim: usize, values: Vec<f32>, source: String) -> anyhow::Result<Self> {
        ensure!(
            dim > 0 && !values.is_empty(),
            "expected at least one vector of one coordinate, got none"
        );
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            bail!(
                "expected finite numbers, got {} in vector {}, coordinate {}",
                values[at],
                at / dim,
                at % dim
            );
        }
        Ok(Self { dim, values, source })
    }

    /// The vectors, one per client.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.dim)
    }

    /// Every vector shortened to `clip_norm`, as clients do first; what schemes are measured against is the mean of these.
    pub(super) fn clip(&mut self, clip_norm: f64) -> usize {
        let mut shortened = 0;
        for vector in self.values.chunks_exact_mut(self.dim) {
            let norm = norm(vector);
            if norm > clip_norm {
                shortened += 1;
                let factor = clip_norm / norm;
                vector
                    .iter_mut()
                    .for_each(|value| *value = (f64::from(*value) * factor) as f32);
            }
        }
        shortened
    }

    /// The mean of the vectors.
    pub(super) fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.dim];
        for vector in self.iter() {
            for (sum, value) in mean.iter_mut().zip(vector) {
                *sum += f64::from(*value);
            }
        }
        let clients = self.iter().len() as f64;
        mean.iter_mut().for_each(|sum| *sum /= clients);
        mean
    }
}

fn norm(vector: &[f32]) -> f64 {
    vector
        .iter()
        .map(|value| f64::from(*value).powi(2))
        .sum::<f64>()
        .sqrt()
}

impl Kind {
    /// The vector of one client: it depends on nothing but the kind, the seed and the client, and on the seed alone where
    /// clients have something in common.
    fn draw(self, dim: usize, seed: u64, client: u64) -> Vec<f32> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut common = vec![0.0; dim];
        if self == Self::Gaussian {
            common.iter_mut().for_each(|value| *value = normal(&mut rng));
            scale(&mut common, 0.5);
        }
        rng.set_stream(client + 1);
        let mut vector = vec![0.0; dim];
        match self {
            Self::Ball => {
                vector.iter_mut().for_each(|value| *value = normal(&mut rng));
                scale(&mut vector, uniform(&mut rng).powf((dim as f64).recip()));
            }
            Self::Sparse => {
                for _ in 0..dim.div_ceil(100) {
                    // Two draws of one place leave one coordinate fewer.
                    let at = ((uniform(&mut rng) * dim as f64) as usize).min(dim - 1);
                    vector[at] = normal(&mut rng);
                }
                scale(&mut vector, 1.0);
            }
            Self::Gaussian => {
                let stddev = (dim as f64).sqrt().recip();
                for (value, common) in vector.iter_mut().zip(&common) {
                    *value = common + stddev * normal(&mut rng);
                }
            }
        }
        vector.into_iter().map(|value| value as f32).collect()
    }
}

fn scale(vector: &mut [f64], norm: f64) {
    let have = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    if have > 0.0 {
        vector.iter_mut().for_each(|value| *value *= norm / have);
    }
}

/// Draws a uniform number in (0, 1).
fn uniform(rng: &mut ChaCha20Rng) -> f64 {
    ((rng.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Draws a standard normal number: one of the two of Box and Muller's method. These are data, not noise.
fn normal(rng: &mut ChaCha20Rng) -> f64 {
    (-2.0 * uniform(rng).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos()
}

fn read(file: &Path) -> anyhow::Result<Vectors> {
    let bytes = std::fs::read(file).context("reading")?;
    let source = file.display().to_string();
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => {
            let (dim, values) = npy::rows(&bytes)?;
            Vectors::new(dim, values, source)
        }
        Some("safetensors") => {
            let (dim, values) = tensors(&bytes)?;
            Vectors::new(dim, values, source)
        }
        _ => bail!("expected a name that ends in .npy or .safetensors"),
    }
}

/// One tensor of one vector a row, or several tensors of one size, in the order of their names.
fn tensors(bytes: &[u8]) -> anyhow::Result<(usize, Vec<f32>)> {
    let file = SafeTensors::deserialize(bytes).context("expected a safetensors file")?;
    let mut tensors = file.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let dim = match tensors.as_slice() {
        [] => bail!("expected at least one tensor, got none"),
        [(name, only)] => match only.shape() {
            [_, dim] => *dim,
            shape => bail!("tensor {name}: expected one vector a row (2 dimensions), got shape {shape:?}"),
        },
        [(_, first), ..] => first.shape().iter().product(),
    };
    let several = tensors.len() > 1;
    let mut values = Vec::new();
    for (name, tensor) in &tensors {
        let size: usize = tensor.shape().iter().product();
        ensure!(
            !several || size == dim,
            "tensor {name}: expected {dim} values as in the first, got {size}"
        );
        ensure!(
            tensor.dtype() == Dtype::F32,
            "tensor {name}: expected F32, got {:?}",
            tensor.dtype()
        );
        let words = tensor.data().as_chunks::<4>().0;
        values.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
    }
    Ok((dim, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_their_norms_and_places() {
        for seed in 0..20 {
            let ball = Kind::Ball.draw(50, seed, 3);
            assert!(norm(&ball) <= 1.0 + 1e-6 && norm(&ball) > 0.8);
            let sparse = Kind::Sparse.draw(250, seed, 3);
            let places = sparse.iter().filter(|value| **value != 0.0).count();
            assert!((1..=3).contains(&places) && (norm(&sparse) - 1.0).abs() < 1e-6);
        }
        // A common half and independent normals of length about 1: the mean of many is the half.
        let vectors = VectorArgs {
            vectors: Kind::Gaussian,
            file: None,
            clients: 2000,
            dim: 40,
        };
        let made = vectors.vectors(5).unwrap();
        let mean = made.mean().iter().map(|value| value * value).sum::<f64>().sqrt();
        // 0.5 +- 1 / sqrt(2000) a direction, and 40 / 2000 / 40 more in its square.
        assert!((mean - 0.5).abs() < 0.06, "{mean}");
        assert_eq!(made, vectors.vectors(5).unwrap());
        assert_ne!(made, vectors.vectors(6).unwrap());
    }

    #[test]
    fn clipping_shortens_what_is_longer() {
        let mut vectors = Vectors::new(2, vec![3.0, 4.0, 0.3, 0.4], String::new()).unwrap();
        assert_eq!(vectors.clip(1.0), 1);
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-6, "{got} {want}");
        let mean = vectors.mean();
        near(mean[0], 0.45);
        near(mean[1], 0.6);
    }
}
