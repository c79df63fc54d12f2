use super::*;
use crate::decoder::Extension;
use crate::spec::ModelSpec;

/// A small reader of protocol buffers and of the operators that the writer uses, so that the graph is computed and not only looked at.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first().unwrap();
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }
}

/// A field: its number, and its whole number or its bytes.
impl<'a> Iterator for Fields<'a> {
    type Item = (u64, u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let key = self.varint();
        let value = self.varint();
        if key & 7 == 0 {
            return Some((key >> 3, value, &[]));
        }
        let (bytes, rest) = self.0.split_at(value as usize);
        self.0 = rest;
        Some((key >> 3, 0, bytes))
    }
}

fn texts(message: &[u8], field: u64) -> Vec<String> {
    let found = Fields(message).filter(|found| found.0 == field);
    found
        .map(|found| String::from_utf8(found.2.to_vec()).unwrap())
        .collect()
}

/// The values of a constant of the graph.
fn constant(graph: &[u8], name: &str) -> Vec<f64> {
    let tensors = Fields(graph).filter(|found| found.0 == 5).map(|found| found.2);
    let tensor = tensors
        .into_iter()
        .find(|tensor| texts(tensor, 8) == [name])
        .unwrap();
    let (_, _, raw) = Fields(tensor).find(|found| found.0 == 9).unwrap();
    let numbers = raw.chunks_exact(4);
    numbers
        .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap())))
        .collect()
}

/// `[rows, inner]` times the transpose of `[columns, inner]`.
fn times_rows(left: &[f64], right: &[f64]) -> Vec<f64> {
    let dot = |row: &[f64]| row.iter().zip(left).map(|(a, b)| a * b).sum();
    right.chunks_exact(left.len()).map(dot).collect()
}

/// The logits after each token, as the specification of the operator LSTM computes them.
fn logits(graph: &[u8], vocab: usize, tokens: &[usize]) -> Vec<Vec<f64>> {
    let of = |name: &str| constant(graph, name);
    let (embedding, w, r, b, projection) = (of("embedding"), of("W"), of("R"), of("B"), of("projection"));
    let nodes: Vec<&[u8]> = Fields(graph)
        .filter(|found| found.0 == 1)
        .map(|found| found.2)
        .collect();
    let lstm = nodes.iter().find(|node| texts(node, 4) == ["LSTM"]).unwrap();
    let settings: Vec<String> = Fields(lstm)
        .filter(|found| found.0 == 5)
        .flat_map(|found| texts(found.2, 1))
        .collect();
    let is_coupled = settings.contains(&"input_forget".to_owned());
    let (width, size) = (b.len() / 8, embedding.len() / vocab);
    let (mut h, mut c) = (vec![0.0; width], vec![0.0; width]);
    let logistic = |value: f64| 1.0 / (1.0 + (-value).exp());
    let mut all = Vec::new();
    for token in tokens {
        let x = &embedding[token * size..][..size];
        let sums: Vec<f64> = times_rows(x, &w)
            .iter()
            .zip(times_rows(&h, &r))
            .map(|(a, b)| a + b)
            .collect();
        let gate = |gate: usize, unit: usize| sums[gate * width + unit] + b[gate * width + unit];
        for unit in 0..width {
            let input = logistic(gate(0, unit));
            let forget = if is_coupled {
                1.0 - input
            } else {
                logistic(gate(2, unit))
            };
            c[unit] = forget * c[unit] + input * gate(3, unit).tanh();
            h[unit] = logistic(gate(1, unit)) * c[unit].tanh();
        }
        let columns = projection.len() / width;
        let mut p: Vec<f64> = (0..columns)
            .map(|column| {
                (0..width)
                    .map(|unit| h[unit] * projection[unit * columns + column])
                    .sum()
            })
            .collect();
        let has = |name: &str| nodes.iter().any(|node| texts(node, 1).contains(&name.to_owned()));
        if has("projection_bias") {
            p.iter_mut()
                .zip(of("projection_bias"))
                .for_each(|(value, bias)| *value += bias);
        }
        all.push(if has("out_bias") {
            let (out, bias) = (of("out"), of("out_bias"));
            (0..vocab)
                .map(|word| {
                    bias[word]
                        + p.iter()
                            .enumerate()
                            .map(|(k, value)| value * out[k * vocab + word])
                            .sum::<f64>()
                })
                .collect()
        } else {
            times_rows(&p, &embedding)
        });
    }
    all
}

#[test]
fn the_graph_computes_the_model_of_each_family() {
    const IDS: usize = 23;
    for family in [
        r#"{"family": "dplm", "embed": 6, "hidden": 10, "unit_norm": true}"#,
        r#"{"family": "dplm", "embed": 6, "hidden": 10, "unit_norm": false}"#,
        r#"{"family": "stackoverflow", "embed": 6, "hidden": 10}"#,
        r#"{"family": "cifg", "embedding": 6, "cells": 10, "projection": 4}"#,
        r#"{"family": "cifg", "embedding": 6, "cells": 10, "projection": 6, "tied": true}"#,
    ] {
        let spec: ModelSpec = serde_json::from_str(family).unwrap();
        let model = spec.build(IDS).unwrap();
        let mut params = model.initial_params(7);
        // Biases that are zero in a fresh model would hide a wrong order of gates.
        for (place, value) in params.iter_mut().enumerate() {
            *value += 0.2 * ((place * 37 % 101) as f32 / 101.0 - 0.5);
        }
        let bytes = write(&spec, IDS, &params, "made by a test").unwrap();
        let (_, _, graph) = Fields(&bytes).find(|found| found.0 == 7).unwrap();
        let tokens = [1, 5, 22, 5, 0, 17];
        let mut decoder = model.decoder(&params, 1).unwrap();
        for (place, computed) in logits(graph, IDS, &tokens).iter().enumerate() {
            let mut expected = vec![0.0; model.vocab_size()];
            let extension = Extension {
                sequence: 0,
                tokens: &[tokens[place] as u32],
            };
            decoder.extend(&[extension], &mut expected).unwrap();
            for (word, value) in computed.iter().enumerate() {
                let expected = f64::from(expected[word]);
                assert!(
                    (value - expected).abs() < 1e-5,
                    "{family}: {value} {expected} of {word} after {place}"
                );
            }
        }
    }
}

#[test]
fn a_transformer_and_other_parameters_are_refused() {
    let spec = ModelSpec::Dplm {
        embed: 4,
        hidden: 4,
        unit_norm: false,
    };
    assert!(
        write(&spec, 9, &[0.0; 3], "")
            .unwrap_err()
            .to_string()
            .contains('3')
    );
    let other: ModelSpec =
        serde_json::from_str(r#"{"family": "transformer", "layers": 1, "width": 8, "heads": 2}"#).unwrap();
    let text = write(&other, 9, &[], "").unwrap_err().to_string();
    assert!(
        text.contains("dplm, stackoverflow or cifg") && text.contains("transformer"),
        "{text}"
    );
}
