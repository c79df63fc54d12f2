//! Llama's architecture and those of its relatives.

use super::*;
use crate::decoder::Extension;
use crate::error::ModelError;

/// Llama with four heads that share two of keys and values.
fn llama() -> Architecture {
    Architecture {
        key_heads: Some(2),
        rotary_base: 500.0,
        ..Architecture::LLAMA
    }
}

fn build(inner: usize, architecture: Architecture) -> Transformer {
    Transformer::new(TransformerSizes {
        inner,
        architecture,
        ..sizes(11, 2, 8, 4, Positions::Rotary)
    })
    .unwrap()
}

/// Every part of an architecture, in the combinations of published models and in some of none.
pub(super) fn relatives() -> Vec<(&'static str, Transformer)> {
    let scaling = RotaryScaling::Llama3 {
        factor: 8.0,
        low_frequency: 1.0,
        high_frequency: 4.0,
        original_context: 16,
    };
    let yarn = RotaryScaling::Yarn {
        factor: 4.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 10,
        attention_factor: 1.2,
        truncate: true,
    };
    vec![
        ("Llama", build(5, llama())),
        (
            "Llama 3.2: tied, scaled angles, wide heads",
            build(
                5,
                Architecture {
                    head_width: Some(6),
                    rotary_scaling: Some(scaling),
                    tied: true,
                    ..llama()
                },
            ),
        ),
        (
            "Qwen2: biases of queries, keys and values",
            build(
                7,
                Architecture {
                    biases: [true, false, false, false],
                    rotary_scaling: Some(RotaryScaling::Linear { factor: 2.0 }),
                    ..llama()
                },
            ),
        ),
        (
            "Qwen3: norms of heads, one head of keys",
            build(
                7,
                Architecture {
                    key_heads: Some(1),
                    head_width: Some(4),
                    head_norms: true,
                    biases: [true; 4],
                    ..llama()
                },
            ),
        ),
        (
            "Gemma: scaled tied embedding, gated GELU",
            build(
                9,
                Architecture {
                    key_heads: None,
                    head_width: Some(4),
                    feed_forward: FeedForward::Gated(Gate::Gelu),
                    scaled_embedding: true,
                    tied: true,
                    ..llama()
                },
            ),
        ),
        (
            "Gemma 3: norms of outputs, two rotary bases",
            build(
                9,
                Architecture {
                    head_width: Some(4),
                    feed_forward: FeedForward::Gated(Gate::Gelu),
                    rotary_scaling: Some(RotaryScaling::Linear { factor: 3.0 }),
                    local_rotary: Some(LocalRotary { base: 7.0, every: 2 }),
                    head_norms: true,
                    output_norms: true,
                    biases: [true, true, false, false],
                    scaled_embedding: true,
                    tied: true,
                    ..llama()
                },
            ),
        ),
        (
            "Gemma 2: norms of outputs, soft caps, scores divided by another root",
            build(
                9,
                Architecture {
                    head_width: Some(4),
                    feed_forward: FeedForward::Gated(Gate::Gelu),
                    output_norms: true,
                    query_scalar: Some(7),
                    soft_caps: SoftCaps {
                        scores: Some(0.8),
                        logits: Some(2.0),
                    },
                    scaled_embedding: true,
                    tied: true,
                    ..llama()
                },
            ),
        ),
        (
            "an untied scaled embedding with learned positions and layer norm",
            Transformer::new(TransformerSizes {
                inner: 6,
                architecture: Architecture {
                    norm: Norm::Layer,
                    norm_epsilon: 0.1,
                    rotary_scaling: Some(yarn),
                    scaled_embedding: true,
                    local_rotary: Some(LocalRotary { base: 7.0, every: 2 }),
                    head_norms: true,
                    output_norms: true,
                    biases: [false, true, false, true],
                    ..Architecture::LLAMA
                },
                ..sizes(11, 1, 6, 3, Positions::Learned)
            })
            .unwrap(),
        ),
        (
            "YaRN",
            build(
                5,
                Architecture {
                    rotary_scaling: Some(yarn),
                    ..llama()
                },
            ),
        ),
    ]
}

#[test]
#[ignore = "slow"]
fn gradients_match_finite_differences() {
    for (name, model) in relatives() {
        eprintln!("{name}");
        check_differences(&model, &[4, 1, 6, 4]);
        check_differences(&model, &[1]);
    }
    // More queries than one block of attention, more rows than one run.
    check_differences(&build(3, llama()), &[40, 40, 37, 33]);
    let capped = Architecture {
        soft_caps: SoftCaps {
            scores: Some(1.5),
            logits: Some(3.0),
        },
        ..llama()
    };
    check_differences(&build(3, capped), &[36, 2]);
    // More than one block of words.
    check_differences(
        &Transformer::new(TransformerSizes {
            inner: 3,
            architecture: capped,
            ..sizes(300, 1, 8, 4, Positions::Rotary)
        })
        .unwrap(),
        &[4, 3],
    );
}

/// Ghost norms of every kind of parameter against written-out gradients, in both precisions.
#[test]
#[ignore = "slow"]
fn clipped_sums_equal_the_explicit_way() {
    for (name, model) in relatives() {
        eprintln!("{name}");
        check_weighted(&model, &[4, 1, 6, 4], 3);
        check_weighted(&model, &[1], 4);
    }
    let wide = |vocab, tied| {
        Transformer::new(TransformerSizes {
            inner: 70,
            architecture: Architecture {
                head_norms: true,
                tied,
                ..llama()
            },
            ..sizes(vocab, 2, 48, 4, Positions::Rotary)
        })
        .unwrap()
    };
    check_weighted(&wide(40, false), &[40, 33, 20, 7, 1], 5);
    check_weighted(&wide(300, true), &[40; 9], 6);
    check_weighted(&wide(300, false), &[40; 9], 7);
    let capped = TransformerSizes {
        inner: 70,
        architecture: Architecture {
            soft_caps: SoftCaps {
                scores: Some(2.0),
                logits: Some(3.0),
            },
            ..llama()
        },
        ..sizes(300, 2, 48, 4, Positions::Rotary)
    };
    check_weighted(&Transformer::new(capped).unwrap(), &[40; 9], 8);
}

#[test]
fn single_precision_is_close_to_double() {
    for (name, model) in relatives() {
        eprintln!("{name}");
        check_precision(&model, &[4, 3, 2], 1e-4);
    }
}

#[test]
fn recomputation_changes_no_bit() {
    for (name, kept) in relatives() {
        let params = narrow(&parameters(&kept, 2));
        let packed = batch_of(&[30, 28, 20, 5], 11, 8);
        let clipped = |model: &Transformer| {
            let (mut sum, mut norms) = (vec![0.0; params.len()], [0.0; 4]);
            let weights = SequenceWeights::Clip { bound: 1e9 };
            model
                .worker(4, 110)
                .weighted_gradient(&params, &packed.batch(), weights, &mut sum, &mut norms)
                .unwrap();
            norms
        };
        assert_eq!(clipped(&kept), clipped(&kept.clone().recomputing(true)), "{name}");
        let gradient = |model: &Transformer| {
            let mut gradient = vec![0.0; params.len()];
            let mut worker = model.worker(4, 110);
            worker.gradient(&params, &packed.batch(), &mut gradient).unwrap();
            gradient
        };
        assert_eq!(
            gradient(&kept),
            gradient(&kept.clone().recomputing(true)),
            "{name}"
        );
    }
}

#[test]
fn cached_decoding_equals_the_whole_pass() {
    for (name, model) in relatives() {
        let params = narrow(&parameters(&model, 5));
        let ids: Vec<u32> = (0..23).map(|place| (place * 7 + place / 3) % 11).collect();
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(&ids, &ids)]);
        let mut worker = model.worker(1, ids.len());
        let whole = logits(worker.as_mut(), &params, &batch, StateMode::Zero);
        let mut decoder = model.decoder(&params, 2).unwrap();
        let mut logits = vec![0.0; 11];
        for (first, length) in [(0, 9), (9, 1), (10, 1), (11, 5), (16, 7)] {
            let tokens = &ids[first..first + length];
            let sequence = 1;
            decoder
                .extend(&[Extension { sequence, tokens }], &mut logits)
                .unwrap();
            for (got, expected) in logits.iter().zip(&whole[first + length - 1]) {
                assert!(
                    (got - expected).abs() < 1e-4 * (1.0 + expected.abs()),
                    "{name}: {got} {expected}"
                );
            }
        }
    }
}

#[test]
fn adapters_match_finite_differences_and_the_merged_model() {
    for (name, base) in relatives() {
        eprintln!("{name}");
        let params = narrow(&parameters(&base, 21));
        let lora = LoraSpec {
            rank: 2,
            alpha: 4.0,
            targets: BlockMatrix::ALL.to_vec(),
        };
        let model = base.with_lora(params, &lora).unwrap();
        check_differences(&model, &[4, 1, 6, 4]);
        check_weighted(&model, &[4, 1, 6, 4], 3);
        let adapters = narrow(&numbers(model.layout.len(), 4, 0.5));
        let (whole, merged) = model.merged(&adapters).unwrap();
        let packed = batch_of(&[5, 3], 11, 3);
        let logits_of = |model: &Transformer, params: &[f32]| {
            let mut worker = model.worker(2, 8);
            logits(worker.as_mut(), params, &packed.batch(), StateMode::Zero)
        };
        assert_eq!(logits_of(&model, &adapters), logits_of(&whole, &merged));
    }
}

#[test]
fn architectures_that_make_no_model_are_refused() {
    let refused = |change: fn(&mut TransformerSizes)| {
        let mut sizes = TransformerSizes {
            architecture: llama(),
            ..sizes(11, 2, 8, 4, Positions::Rotary)
        };
        change(&mut sizes);
        Transformer::new(sizes).unwrap_err().to_string()
    };
    for (change, expected) in [
        (
            (|sizes| sizes.architecture.key_heads = Some(3)) as fn(&mut TransformerSizes),
            "`key_heads` must divide `heads` = 4, got 3",
        ),
        (
            |sizes| sizes.architecture.key_heads = Some(0),
            "`key_heads` must be at least 1, got 0",
        ),
        (
            |sizes| sizes.architecture.head_width = Some(3),
            "`head_width`: expected an even number, got 3",
        ),
        (
            |sizes| sizes.architecture.head_width = Some(usize::MAX),
            "`head_width` must be at most 65536, got 18446744073709551615",
        ),
        (
            |sizes| {
                sizes.heads = 65_536;
                sizes.architecture.head_width = Some(65_536);
            },
            "`heads * head_width` must be at most 1048576, got 4294967296",
        ),
        (|sizes| sizes.heads = 3, "`heads` must divide `width` = 8, got 3"),
        (|sizes| sizes.inner = 0, "`inner` must be at least 1, got 0"),
        (
            |sizes| sizes.architecture.norm_epsilon = f64::NAN,
            "`norm_epsilon` must be above 0 and below 1, got NaN",
        ),
        (
            |sizes| sizes.architecture.rotary_base = 1.0,
            "`rotary_base`: expected a finite number above 1, got 1",
        ),
        (
            |sizes| sizes.architecture.local_rotary = Some(LocalRotary { base: 0.0, every: 2 }),
            "`local_rotary.base`: expected a finite number above 1, got 0",
        ),
        (
            |sizes| sizes.architecture.local_rotary = Some(LocalRotary { base: 2.0, every: 0 }),
            "`local_rotary.every`: expected a whole number above 0, got 0",
        ),
        (
            |sizes| sizes.architecture.query_scalar = Some(0),
            "`query_scalar` must be at least 1, got 0",
        ),
        (
            |sizes| sizes.architecture.soft_caps.scores = Some(f64::INFINITY),
            "`soft_caps.scores`: expected a number from 1e-6 to 1e6, got inf",
        ),
        (
            |sizes| sizes.architecture.soft_caps.logits = Some(-30.0),
            "`soft_caps.logits`: expected a number from 1e-6 to 1e6, got -30",
        ),
        (
            |sizes| sizes.architecture.rotary_scaling = Some(RotaryScaling::Linear { factor: 0.5 }),
            "`rotary_scaling.factor`: expected a finite number of at least 1, got 0.5",
        ),
        (
            |sizes| {
                sizes.architecture.rotary_scaling = Some(RotaryScaling::Llama3 {
                    factor: 8.0,
                    low_frequency: 4.0,
                    high_frequency: 4.0,
                    original_context: 8,
                });
            },
            "`rotary_scaling.high_frequency`: expected a finite number above `low_frequency`, got 4",
        ),
    ] {
        assert_eq!(refused(change), expected);
    }
    let broken = ModelError::KeyHeads {
        heads: 4,
        key_heads: 3,
    };
    assert_eq!(broken.to_string(), "`key_heads` must divide `heads` = 4, got 3");
}
