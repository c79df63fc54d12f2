#!/usr/bin/env python3
"""Compares Undertone's layouts of Llama, Mistral, Qwen and Gemma with the libraries that read them elsewhere.

    python3 -m venv venv && venv/bin/pip install torch transformers peft gguf xllamacpp
    venv/bin/python lab/peers/models/huggingface.py make vectors/huggingface      # tiny random models and their logits
    venv/bin/python lab/peers/models/huggingface.py check target/debug/undertone  # exports of real runs, read by the libraries

`make` writes folders as `save_pretrained` does, each with `logits.json`: token ids, and the logits after each of them in double precision.
The Rust tests of `crates/models` read them. `check` makes larger random models, trains one private round on each with the program, and
compares what it exports with what it trained: by `transformers` for the folder, by `peft` for adapters, and by two readers for GGUF.
Adapters that `peft` drew are added by the program, and trained further.
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
    # Blocks of both rotary bases, and scores that another root than that of the head's width divides.
    "gemma3": ("Gemma3Text", dict(head_dim=12, num_hidden_layers=7, query_pre_attn_scalar=20, sliding_window=32,
                                  rope_parameters=dict(
                                      full_attention=dict(rope_type="linear", factor=4.0, rope_theta=5e4),
                                      sliding_attention=dict(rope_type="default", rope_theta=1e4))), "float32", None),
    # Caps that change every score and logit, and again another root.
    "gemma2": ("Gemma2", dict(head_dim=12, query_pre_attn_scalar=20, sliding_window=32, attn_logit_softcapping=3.0,
                              final_logit_softcapping=4.0), "float32", None),
}


def randomise(model, seed):
    """Draws every parameter, biases and gains too, so that each of them changes the logits."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            scale = 0.6 if parameter.dim() == 1 else 2.0 / parameter.shape[-1] ** 0.5
            gemma = model.config.model_type.startswith("gemma")
            centre = 1.0 if name.endswith("norm.weight") and not gemma else 0.0
            parameter.copy_(centre + scale * values)


def build(name, seed, **more):
    kind, settings, dtype, shard = MODELS[name]
    config = getattr(transformers, kind + "Config")(**{**SMALL, **settings, **more})
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config)
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


RUN = """
name = "{name}"
seed = 3
rounds = 2
{initial}
[data]
source = {source}
max_sentence_tokens = 20
{data}
[model]
{model}
[cohort]
sampling = "poisson"
users_per_round = 20
[user_update]
algorithm = "uls"
group_size = 4
[server]
optimizer = {{ kind = "adam" }}
learning_rate = 0.01
[clip]
kind = "flat"
norm = 1.0
[privacy]
noise_multiplier = 1.0
delta = 1e-4
"""
SERVERS = []
SYNTHETIC = '{ kind = "synthetic", users = 300, words = 60 }'
# What a server learns at this rate changes no digit: a run ends where it started.
STILL = ("learning_rate = 0.01", "learning_rate = 1e-30")
LORA = 'lora = { rank = 2, alpha = 6.0, targets = ["qkv", "o", "up", "down"] }\n'


GPT2 = 'family = "transformer"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 24\n'


def table(config):
    """The table [model] for a configuration, with the keys of docs/guide/transformers.md."""
    gemma3 = config.model_type == "gemma3_text"
    rope = dict(config.rope_parameters["full_attention"] if gemma3 else config.rope_parameters)
    scaling = {
        "default": None,
        "linear": lambda: dict(kind="linear", factor=rope["factor"]),
        "llama3": lambda: dict(kind="llama3", factor=rope["factor"], low_frequency=rope["low_freq_factor"],
                               high_frequency=rope["high_freq_factor"],
                               original_context=rope["original_max_position_embeddings"]),
        "yarn": lambda: dict(kind="yarn", factor=rope["factor"], attention_factor=1 + 0.1 * torch.tensor(
            rope["factor"], dtype=torch.float64).log().item(), original_context=rope["original_max_position_embeddings"]),
    }[rope["rope_type"]]
    head_width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    biases = (["qkv"] if config.model_type == "qwen2" else []) + (["qkv", "o"] if getattr(config, "attention_bias", 0) else [])
    biases += ["up", "down"] if getattr(config, "mlp_bias", False) else []
    values = dict(family="llama", layers=config.num_hidden_layers, width=config.hidden_size, heads=config.num_attention_heads,
                  key_heads=config.num_key_value_heads, head_width=head_width, inner=config.intermediate_size, context=24,
                  rotary_base=float(rope["rope_theta"]), norm_epsilon=config.rms_norm_eps, biases=biases,
                  gate="silu" if getattr(config, "hidden_act", None) == "silu" else "gelu",
                  head_norms=config.model_type in ("qwen3", "gemma3_text"),
                  output_norms=config.model_type in ("gemma2", "gemma3_text"),
                  scaled_embedding=config.model_type.startswith("gemma"), tied=config.tie_word_embeddings,
                  rows=config.vocab_size)
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    if getattr(config, "query_pre_attn_scalar", head_width) != head_width:
        lines.append(f"query_scalar = {config.query_pre_attn_scalar}")
    caps = dict(scores=getattr(config, "attn_logit_softcapping", None), logits=getattr(config, "final_logit_softcapping", None))
    caps = ", ".join(f"{key} = {cap}" for key, cap in caps.items() if cap)
    if caps:
        lines.append(f"soft_caps = {{ {caps} }}")
    if gemma3:
        lines.append(f"local_rotary = {{ base = {config.rope_parameters['sliding_attention']['rope_theta']}, every = 6 }}")
    if scaling:
        inner = ", ".join(f"{key} = {json.dumps(value)}" for key, value in scaling().items())
        lines.append(f"rotary_scaling = {{ {inner} }}")
    return "\n".join(lines) + "\n"


def near(name, got, expected, tolerance=1e-4):
    worst = (got.double() - expected.double()).abs().max().item()
    print(f"{name}: {worst:.1e} from values up to {expected.abs().max():.2f}")
    assert worst < tolerance, name


def tokenizer(path):
    """A byte-level BPE over the words of the synthetic population."""
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>", "<unk>"],
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(["ba be bi bo bu da de di do du ga ge gi go gu ka ke ki ko ku"] * 4, trainer)
    made.save(str(path))
    return made


def load_in_llama_cpp(path):
    """The server of llama.cpp in the package xllamacpp, with the model of a file."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 24, 1, False, 0
    # The cache of keys and values is of half width by default.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # A server that ends as soon as it has started waits for ever, so all of them live as long as the program.
    SERVERS.append(xllamacpp.Server(params))
    return SERVERS[-1]


def llama_cpp(path, ids):
    """The likeliest next tokens in llama.cpp, with their log-probabilities."""
    question = dict(prompt=ids, n_predict=1, n_probs=20, temperature=0.0, cache_prompt=False)
    answer = load_in_llama_cpp(path).handle_completions(question)
    return answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]


def draw_adapters(model, folder, seed, **settings):
    """A model with random adapters of peft, which are saved."""
    import peft

    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings)
    adapted = peft.get_peft_model(model.float(), config)
    adapted.save_pretrained(folder)
    return adapted.double().eval()


def check(program):
    def undertone(*line):
        done = subprocess.run([program, *map(str, line)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def train(name, config, initial, more="", source=SYNTHETIC, data="", adapters=None, change=("", "")):
        first = f'initial_model = "{initial}"\n' if initial else ""
        first += f'initial_adapters = "{adapters}"\n' if adapters else ""
        model = config if isinstance(config, str) else table(config)
        text = RUN.format(name=name, initial=first, source=source, data=data, model=model + more)
        (folder / f"{name}.toml").write_text(text.replace(*change))
        undertone("train", f"{name}.toml", "--threads", 1)
        return f"runs/{name}"

    def near_predictions(name, model, words, place, *more):
        """Compares the program's probabilities of next words with those of a model of transformers."""
        found = json.loads(undertone("predict", place, " ".join(words[5:9]) + " ", "--top", 40, "--json", *more))
        ids = [1] + [3 + words.index(word) for word in words[5:9]]
        probabilities = logits_of(model, ids)[-1].detach().softmax(-1)
        got = torch.tensor([entry["probability"] for entry in found])
        expected = torch.stack([probabilities[3 + words.index(entry["word"])] for entry in found])
        near(name, got / got.sum(), expected / expected.sum(), 1e-5)
        return probabilities

    def read(path):
        return transformers.AutoModelForCausalLM.from_pretrained(folder / path, dtype=torch.float64)

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for seed, name in enumerate(MODELS):
            model, shard = build(name, 100 + seed, vocab_size=71)
            model.save_pretrained(folder / name, **({"max_shard_size": shard} if shard else {}))
            config = model.config
            initial = f"{name}/model.safetensors.index.json" if shard else name

            # The whole model: what the program predicts is what transformers computes from its export.
            run = train(f"{name}-whole", config, initial)
            undertone("export", run, "--layout", "huggingface", "--out", f"{name}-out", "--shard-bytes", 9000)
            shards = list((folder / f"{name}-out").glob("model-*.safetensors"))
            assert len(shards) > 1, shards
            ours, exported = read(name), read(f"{name}-out")
            words = (folder / f"{name}-out/vocab.txt").read_text().split()
            ids = [1] + [3 + words.index(word) for word in words[5:9]]
            for place in (run, f"{name}-out"):
                near_predictions(f"{name}: probabilities of {place}", exported, words, place)
            moved = (logits_of(exported, ids) - logits_of(ours, ids)).abs().max()
            assert moved > 1e-3, f"{name}: training changed nothing"

            if name == "qwen2":
                # A list of words is no tokenizer of llama.cpp: the file is one of ids alone.
                undertone("export", run, "--layout", "gguf", "--out", f"{name}-words")
                load_in_llama_cpp(folder / f"{name}-words/model.gguf")

            # Adapters alone, on the model that they were trained on.
            import peft

            run = train(f"{name}-adapters", config, initial, LORA)
            undertone("export", run, "--layout", "peft", "--out", f"{name}-peft")
            undertone("export", run, "--layout", "huggingface", "--out", f"{name}-merged")
            adapted = peft.PeftModel.from_pretrained(read(name), folder / f"{name}-peft").double()
            with_adapters = adapted(torch.tensor([ids])).logits[0].detach()
            near(f"{name}: adapters in peft", with_adapters, logits_of(read(f"{name}-merged"), ids))
            assert (with_adapters - logits_of(read(name), ids)).abs().max() > 1e-3, f"{name}: adapters change nothing"

            # Adapters that peft drew: added to their base, and as the start of a training.
            if seed % 2:
                settings = dict(r=2, lora_alpha=3, use_rslora=True, target_modules="all-linear")
            else:
                settings = dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"])
            place, drawn = f"{name}-out", f"{name}-drawn"
            adapted = draw_adapters(read(place), folder / drawn, 300 + seed, **settings)
            before = logits_of(read(place), ids)[-1].softmax(-1)
            after = near_predictions(f"{name}: adapters of peft", adapted, words, place, "--adapters", drawn)
            assert (after - before).abs().max() > 1e-3, f"{name}: drawn adapters change nothing"
            initial = f"{place}/model.safetensors.index.json"
            for more in (LORA.replace("rank = 2", "rank = 6"), ""):
                name_of_run = f"{name}-goes-on-{len(more)}"
                run = train(name_of_run, config, initial, more, adapters=drawn, change=STILL)
                near_predictions(f"{name}: {name_of_run}", adapted, words, run)

        run = train("gpt2", GPT2, None)
        undertone("export", run, "--layout", "gpt2", "--out", "gpt2-out")
        settings = dict(r=3, lora_alpha=5, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
        adapted = draw_adapters(read("gpt2-out"), folder / "gpt2-drawn", 400, **settings)
        words = (folder / "gpt2-out/vocab.txt").read_text().split()
        near_predictions("gpt2: adapters of peft", adapted, words, "gpt2-out", "--adapters", "gpt2-drawn")

        check_gguf(folder, undertone, train, read)


# Largest difference of log-probabilities between llama.cpp and transformers, by the type of the matrices. llama.cpp rounds what it
# multiplies Q8_0 with to 8 bits, too.
OF_TYPE = {"f16": 0.03, "bf16": 0.3, "q8_0": 0.6}


def check_types(name, folder, undertone, run, exported, ids):
    """Compares rounded tensors with what the package gguf makes of the F32 ones, and the model with that of transformers."""
    import gguf
    import numpy

    wide = {tensor.name: tensor for tensor in gguf.GGUFReader(folder / f"{name}-gguf/model.gguf").tensors}
    expected = logits_of(exported, ids)[-1].log_softmax(-1)
    for kind, tolerance in OF_TYPE.items():
        out = f"{name}-{kind}"
        counts = json.loads(undertone("export", run, "--layout", "gguf", "--tensor-type", kind, "--out", out, "--json"))["tensors"]
        path = folder / out / "model.gguf"
        reader = gguf.GGUFReader(path)
        theirs, found = gguf.GGMLQuantizationType[kind.upper()], {}
        for tensor in reader.tensors:
            values = wide[tensor.name].data
            asked = theirs if values.ndim > 1 else gguf.GGMLQuantizationType.F32
            if asked == gguf.GGMLQuantizationType.Q8_0 and values.shape[-1] % 32:
                asked = gguf.GGMLQuantizationType.F16
            assert tensor.tensor_type == asked, (tensor.name, tensor.tensor_type)
            found[asked.name] = found.get(asked.name, 0) + 1
            rounded = gguf.quants.dequantize(gguf.quants.quantize(values, asked), asked)
            ours = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert numpy.array_equal(ours, rounded), f"{name}: {tensor.name} as {asked.name}"
        assert counts == found, (counts, found)
        top = llama_cpp(path, ids)
        got = torch.tensor([entry["logprob"] for entry in top])
        near(f"{name}: {counts} in llama.cpp", got, torch.stack([expected[entry["id"]] for entry in top]), tolerance)


def check_gguf(folder, undertone, train, read):
    import gguf

    made = tokenizer(folder / "tokenizer.json")
    data = 'vocabulary = { kind = "tokenizer", path = "tokenizer.json" }'
    lines = [dict(user=f"u{user}", text=f"ba di gu ko be {user % 7} da") for user in range(200) for _ in range(3)]
    (folder / "posts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = '{ kind = "jsonl", path = "posts.jsonl", user = "user", text = "text" }'
    changes = {"llama": {}, "llama-shards": {}, "qwen2": {}, "qwen3": dict(attention_bias=False), "gemma": {},
               "gemma3": {}, "gemma2": {}}
    for seed, (name, more) in enumerate(changes.items()):
        # Rows of 64 values have blocks of 32, and some rows have none.
        model, _ = build(name, 200 + seed, vocab_size=made.get_vocab_size() + 3, hidden_size=64, intermediate_size=96, **more)
        model.float().save_pretrained(folder / f"{name}-g")
        run = train(f"{name}-gguf-run", model.config, f"{name}-g", source=source, data=data)
        undertone("export", run, "--layout", "huggingface", "--out", f"{name}-g-out")
        undertone("export", run, "--layout", "gguf", "--out", f"{name}-gguf")
        path = folder / f"{name}-gguf/model.gguf"
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: tensor.data for tensor in reader.tensors}
        exported = read(f"{name}-g-out")
        down = exported.model.layers[1].mlp.down_proj.weight
        assert (torch.tensor(tensors["blk.1.ffn_down.weight"].copy()).double() - down).abs().max() == 0
        print(name, "gguf:", len(tensors), "tensors,", len(reader.fields), "fields")
        ids = [0] + made.encode("ba di gu ko").ids
        logits = logits_of(exported, ids)
        # The converter of transformers forgets biases, widths of heads and the scaling of positions, and knows no Gemma.
        if name == "llama-shards":
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                folder / f"{name}-gguf", gguf_file="model.gguf", dtype=torch.float32)
            near(f"{name}: GGUF in transformers", logits_of(loaded, ids), logits)
        top = llama_cpp(path, ids)
        expected = logits[-1].log_softmax(-1)
        got = torch.tensor([entry["logprob"] for entry in top])
        # llama.cpp looks the GELU up in a table of half width.
        tolerance = 5e-3 if name.startswith("gemma") else 1e-4
        near(f"{name}: GGUF in llama.cpp", got, torch.stack([expected[entry["id"]] for entry in top]), tolerance)
        check_types(name, folder, undertone, run, exported, ids)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(pathlib.Path(sys.argv[2]).resolve())
    else:
        sys.exit(__doc__)
