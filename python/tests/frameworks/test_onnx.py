"""Exports of the LSTM families to ONNX: checked by the package `onnx`, and computed by onnxruntime beside `undertone predict`."""

import json
import math
import os
import pathlib
import random
import subprocess

import numpy as np
import pytest

import undertone_dp as udp

ROOT = pathlib.Path(__file__).parents[3]
TEXTS = 200
MODELS = {
    "tied with unit norm": {"family": "dplm", "embed": 16, "hidden": 24, "unit_norm": True},
    "tied": {"family": "dplm", "embed": 16, "hidden": 24, "unit_norm": False},
    "stackoverflow": {"family": "stackoverflow", "embed": 16, "hidden": 24},
    "cifg": {"family": "cifg", "cells": 24, "embedding": 16, "projection": 12},
    "tied cifg": {"family": "cifg", "cells": 24, "embedding": 16, "projection": 16, "tied": True},
}


def program():
    named = os.environ.get("UNDERTONE_CLI")
    built = [ROOT / "target" / profile / "undertone" for profile in ("release", "debug")]
    found = [path for path in built if path.exists()]
    if not named and not found:
        pytest.skip("the program is not built")
    return named or str(max(found, key=lambda path: path.stat().st_mtime))


def settings(model):
    return {
        "name": "small",
        "rounds": 3,
        "data": {"source": {"kind": "synthetic", "users": 400, "words": 150}, "words": "unicode"},
        "model": model,
        "cohort": {"sampling": "poisson", "users_per_round": 60},
        "user_update": {"algorithm": "fedavg", "batch_size": 8, "learning_rate": 1.0, "max_examples": 16},
        "clip": {"kind": "flat", "norm": 2.0},
        "privacy": {"noise_multiplier": 0.3, "delta": 1e-3},
        "server": {"optimizer": {"kind": "sgd", "momentum": 0.5}},
    }


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_predicts_as_the_program_does(name, tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    run = udp.train(settings(MODELS[name]), out=tmp_path)
    folder = run.export(tmp_path / "onnx", layout="onnx")
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    (described,) = [entry.value for entry in model.metadata_props if entry.key == "undertone"]
    assert json.loads(described)["rounds"] == 3
    about = json.loads((folder / "model.json").read_text())
    words = (folder / about["words"]).read_text().splitlines()
    ids = {word: about["first_word_id"] + place for place, word in enumerate(words)}
    assert len(ids) + about["first_word_id"] == about["ids"]

    draw = random.Random(7)
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(TEXTS)]
    command = [program(), "predict", str(run.path), "--json", "--top", str(about["ids"])]
    shown = subprocess.run(command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    answers = json.loads(shown.stdout)
    assert len(answers) == TEXTS
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    start = np.zeros([1, 1, about["state"]["shape"][2]], np.float32)
    for text, answer in zip(texts, answers, strict=True):
        tokens = [about["begin_id"], *(ids[word] for word in text.split())]
        whole, _, _ = session.run(None, {"tokens": np.array(tokens)[:, None], "hidden": start, "cell": start})
        hidden = cell = start
        for place, token in enumerate(tokens):
            step, hidden, cell = session.run(None, {"tokens": np.array([[token]]), "hidden": hidden, "cell": cell})
            np.testing.assert_allclose(step[0, 0], whole[place, 0], atol=1e-6)
        # The program shows probabilities over all ids; differences of their logarithms are those of logits.
        shown = {entry["word"]: math.log(entry["probability"]) for entry in answer["predictions"] if entry["word"] in ids}
        assert len(shown) == len(words)
        logits = np.array([whole[-1, 0, ids[word]] for word in shown], np.float64)
        expected = np.array(list(shown.values()))
        np.testing.assert_allclose(logits - logits.mean(), expected - expected.mean(), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_module_of_torch_computes_the_exported_graph(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import undertone_dp.torch

    run = udp.train(settings(MODELS[name]), out=tmp_path)
    folder = run.export(tmp_path / "onnx", layout="onnx")
    about = json.loads((folder / "model.json").read_text())
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    module = udp.torch.load(run)
    assert module.words == (folder / about["words"]).read_text().splitlines()
    draw = np.random.default_rng(3)
    start = np.zeros([1, 4, about["state"]["shape"][2]], np.float32)
    for _ in range(TEXTS // 4):
        tokens = draw.integers(0, about["ids"], [draw.integers(1, 13), 4])
        expected, hidden, cell = session.run(None, {"tokens": tokens, "hidden": start, "cell": start})
        with torch.no_grad():
            logits, state = module(torch.from_numpy(tokens))
            np.testing.assert_allclose(logits, expected, atol=1e-5)
            np.testing.assert_allclose(torch.stack(state), np.stack([hidden[0], cell[0]]), atol=1e-5)
            # A step at a time gives the same.
            stepped, carried = [], None
            for row in torch.from_numpy(tokens):
                one, carried = module(row[None], carried)
                stepped.append(one[0])
            np.testing.assert_allclose(torch.stack(stepped), logits, atol=1e-6)
    module(torch.from_numpy(tokens))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.chdir(tmp_path)
    run = udp.train(settings(MODELS["tied"]), out=tmp_path)
    run.export(tmp_path / "quickstart-onnx", layout="onnx")
    page = (ROOT / "docs" / "guide" / "use-a-model.md").read_text()
    exec(compile(page.split("```python\n")[1].split("```")[0], "use-a-model.md", "exec"), {})
    words = (tmp_path / "quickstart-onnx" / "vocab.txt").read_text().splitlines()
    assert capsys.readouterr().out.strip() in words
