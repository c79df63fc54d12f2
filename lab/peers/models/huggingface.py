#!/usr/bin/env python3
"""Compares Undertone's layouts of Llama, Mistral, Qwen and Gemma with the libraries that read them elsewhere.

    python3 -m venv venv && venv/bin/pip install torch transformers peft gguf
    venv/bin/python lab/peers/models/huggingface.py make vectors/huggingface      # tiny random models and their logits
    venv/bin/python lab/peers/models/huggingface.py check target/debug/undertone  # exports of real runs, read by the libraries

`make` writes folders as `save_pretrained` does, each with `logits.json`: token ids, and the logits after each of them in double precision.
The Rust tests of `crates/models` read them. `check` makes larger random models, trains one private round on each with the program, and
compares what it exports with what it trained: by `transformers` for the folder, by `peft` for adapters, and by two readers for GGUF.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

# Sizes of no published model; each model uses another part of the layouts.
SMALL = dict(vocab_size=37, hidden_size=16, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=None, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "llama": ("Llama", dict(head_dim=6, rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True), "float32", None),
    "llama-shards": ("Llama", dict(tie_word_embeddings=True, rms_norm_eps=1e-5), "bfloat16", "6KB"),
    "mistral": ("Mistral", dict(hidden_size=18, sliding_window=32, rope_parameters=YARN, head_dim=8), "float32", None),
    "qwen2": ("Qwen2", dict(num_key_value_heads=1, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=3e4)),
              "float16", None),
    "qwen3": ("Qwen3", dict(head_dim=10, attention_bias=True), "float32", "9KB"),
    "gemma": ("Gemma", dict(head_dim=12, hidden_act="gelu_pytorch_tanh"), "float32", None),
}


def randomise(model, seed):
    """Draws every parameter, biases and gains too, so that each of them changes the logits."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            scale = 0.6 if parameter.dim() == 1 else 2.0 / parameter.shape[-1] ** 0.5
            gemma = model.config.model_type == "gemma"
            centre = 1.0 if name.endswith("norm.weight") and not gemma else 0.0
            parameter.copy_(centre + scale * values)


def build(name, seed, **more):
    kind, settings, dtype, shard = MODELS[name]
    config = getattr(transformers, kind + "Config")(**{**SMALL, **settings, **more})
    model = getattr(transformers, kind + "ForCausalLM")(config)
    randomise(model, seed)
    return model.to(getattr(torch, dtype)), shard


def logits_of(model, ids):
    with torch.no_grad():
        return model.double()(torch.tensor([ids])).logits[0]


def make(folder):
    folder = pathlib.Path(folder)
    for seed, name in enumerate(MODELS):
        model, shard = build(name, seed)
        out = folder / name
        shutil.rmtree(out, ignore_errors=True)
        model.save_pretrained(out, **({"max_shard_size": shard} if shard else {}))
        (out / "generation_config.json").unlink(missing_ok=True)
        ids = [(7 * place + place * place // 3) % 37 for place in range(24)]
        # The logits of the stored parameters: half-width ones are widened, not computed with.
        stored = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float64, attn_implementation="eager")
        logits = [[round(value, 9) for value in row] for row in logits_of(stored, ids).tolist()]
        text = json.dumps({"ids": ids, "source": f"transformers {transformers.__version__}, float64", "logits": logits})
        (out / "logits.json").write_text(text + "\n")
        print(name, sorted(path.name for path in out.iterdir()))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(pathlib.Path(sys.argv[2]).resolve())
    else:
        sys.exit(__doc__)
