"""Runs: training, and what a run directory holds."""

from __future__ import annotations

import json
import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

from undertone_dp import _native
from undertone_dp._corpus import Corpus
from undertone_dp._native import Table
from undertone_dp._settings import as_mapping, form, plain

if TYPE_CHECKING:
    import numpy

    from undertone_dp._settings_types import RunSettings


@dataclass(frozen=True)
class RunGuarantee:
    """A guarantee of a run, with what it was computed from. `str()` rounds epsilon up.

    >>> import undertone_dp as udp
    >>> print(udp.RunGuarantee.of({"epsilon": 1.2341, "delta": 1e-5, "adjacency": "add-or-remove one user"}))
    (eps = 1.235, delta = 1e-5), add-or-remove one user
    """

    epsilon: float
    """Upper bound on the privacy loss."""
    delta: float
    """Mass on which the bound may fail."""
    adjacency: str
    """The relation between populations that the guarantee compares."""
    record: dict[str, Any]
    """The guarantee as in `privacy.json`: sampling, accountant, rounds, population, noise multiplier and more."""

    @staticmethod
    def of(record: Mapping[str, Any]) -> RunGuarantee:
        """The guarantee of a record of `privacy.json`.

        >>> import undertone_dp as udp
        >>> udp.RunGuarantee.of({"epsilon": 1.0, "delta": 1e-5, "adjacency": "add-or-remove one user"}).epsilon
        1.0
        """
        return RunGuarantee(record["epsilon"], record["delta"], record["adjacency"], dict(record))

    def __str__(self) -> str:
        return f"{_native._epsilon_delta(self.epsilon, self.delta)}, {self.adjacency}"

    def _repr_html_(self) -> str:
        return f"<code>{self}</code>"


@dataclass(frozen=True)
class Check:
    """One check of a verification; it passed if `problems` is empty.

    >>> import undertone_dp as udp
    >>> udp.Check("ledger", "20 rounds", []).holds
    True
    """

    name: str
    """The name of the check."""
    found: str
    """The findings in a few words."""
    problems: list[str]
    """The failed claims, each naming its file, line or figure."""

    @property
    def holds(self) -> bool:
        """True if the check found no problem."""
        return not self.problems


@dataclass(frozen=True)
class Verification:
    """The claims of a run directory, recomputed from its files, as by `undertone verify`.

    >>> import undertone_dp as udp
    >>> udp.Verification(False, [udp.Check("ledger", "", ["line 3 is missing"])], None, []).raise_for_problems()
    Traceback (most recent call last):
    undertone_dp.RunError: ledger: line 3 is missing
    """

    holds: bool
    """True if every claim was confirmed."""
    checks: list[Check]
    """Every check, in order."""
    recomputed: RunGuarantee | None
    """The guarantee recomputed from the ledger."""
    notes: list[str]
    """Conditions beside the files."""
    warnings: list[str] = field(default_factory=list[str])
    """Faults of the versions that wrote the files. What holds, holds beside them."""

    def raise_for_problems(self) -> None:
        """Raises a `RunError` with every problem, if there is one.

        >>> import undertone_dp as udp
        >>> udp.Verification(True, [], None, []).raise_for_problems()
        """
        problems = [f"{check.name}: {problem}" for check in self.checks for problem in check.problems]
        if problems or not self.holds:
            error = _native.RunError("\n".join(problems) or "the run could not be verified")
            error.kind = "not-verified"
            raise error

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_escape(check.name)}</td><td>{'holds' if check.holds else 'fails'}</td>"
            f"<td>{_escape('; '.join(check.problems) or check.found)}</td></tr>"
            for check in self.checks
        )
        return f"<table><tr><th>check</th><th></th><th></th></tr>{rows}</table>"


@dataclass(frozen=True)
class Progress:
    """One event of a training.

    >>> import undertone_dp as udp
    >>> udp.Progress("round", {"round": 0, "train_loss": 2.5}).record["train_loss"]
    2.5
    """

    kind: Literal["corpus", "start", "round", "evaluation"]
    """The corpus is read, the run starts, a round is done, or the model was evaluated."""
    record: dict[str, Any]
    """`corpus`: stage, done, total. `start`: start, planned, resumed_at. Otherwise the line of `metrics.jsonl`."""


class Run:
    """A run directory as it was when it was opened.

    `metrics` and `evaluations` hold exact statistics of people: sizes, norms and losses. Only the model is a private release. The run
    of a session has no metrics, since another program trains its model.

    >>> import tempfile
    >>> import undertone_dp as udp
    >>> run = udp.train({
    ...     "name": "tiny", "rounds": 2, "seed": 1, "data": {"source": {"kind": "synthetic", "users": 60, "words": 40}},
    ...     "model": {"family": "dplm", "embed": 4, "hidden": 4}, "cohort": {"users_per_round": 12},
    ...     "user_update": {"batch_size": 4, "learning_rate": 0.5}, "clip": {"kind": "flat", "norm": 0.3},
    ...     "privacy": {"noise_multiplier": 2.0, "delta": 1e-5},
    ... }, out=tempfile.mkdtemp())
    >>> run.finished, run.verify().holds, len(run.metrics), run.guarantee.adjacency
    (True, True, 2, 'add-or-remove one user')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._data = json.loads(_native._read_run(self._path))
        self._privacy: dict[str, Any] = self._data["privacy"] or {}

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Run:
        """Reads a run directory, finished or not.

        >>> import undertone_dp as udp
        >>> try:
        ...     udp.Run.open("no-such-run")
        ... except FileNotFoundError as error:
        ...     print(error.filename)
        no-such-run/metrics.jsonl
        """
        return Run(path)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._path

    @property
    def name(self) -> str:
        """The name of the run."""
        start = self._data["start"]
        return start["run"] if start else self.config["name"]

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run, as in `config.toml`."""
        return tomllib.loads(self._data["config"] or "")

    @property
    def finished(self) -> bool:
        """True if the run is over and its model released."""
        return self._data["finished"]

    def _guarantee(self, *names: str) -> RunGuarantee | None:
        for name in names:
            if record := self._privacy.get(name):
                return RunGuarantee.of(record)
        return None

    @property
    def planned(self) -> RunGuarantee | None:
        """The guarantee that was computed before training."""
        return self._guarantee("planned")

    @property
    def guarantee(self) -> RunGuarantee | None:
        """The guarantee that the run may claim, with the costs of a private vocabulary and of the initial model where they are known.

        It is recomputed from the ledger. After a stop before the last round it is that of all rounds: somebody may have chosen the
        round of the stop by a loss. `observed` is the smaller figure, and holds if nobody did.
        """
        together = self._guarantee("selected", "with_initial_model", "with_vocabulary")
        if together is not None or "stopped" not in self._privacy:
            return together or self.observed
        claimed = self._privacy["stopped"]["claimed"]
        return RunGuarantee.of(claimed) if claimed else None

    @property
    def observed(self) -> RunGuarantee | None:
        """The guarantee of the rounds that were made. After a stop it holds on the condition that no release was looked at before it."""
        return self._guarantee("observed")

    @property
    def worst_case(self) -> RunGuarantee | None:
        """The guarantee of the rounds that were made, for each user who keeps to the declared participation schema."""
        return self._guarantee("worst_case")

    @property
    def estimate(self) -> RunGuarantee | None:
        """The guarantee that a larger run with this noise would have; never the guarantee of this run."""
        return self._guarantee("estimate")

    @property
    def warnings(self) -> list[str]:
        """The warnings of the privacy report: seeded noise, words from the training data, estimates."""
        return list(self._privacy.get("warnings", []))

    @property
    def metrics(self) -> Table:
        """One row per round. These are exact statistics of people, and no part of the release."""
        return _native._records(json.dumps(self._data["rounds"]))

    @property
    def evaluations(self) -> Table:
        """One row per evaluation. These are exact statistics of people, and no part of the release."""
        return _native._records(json.dumps(self._data["evaluations"]))

    @property
    def ledger(self) -> Table:
        """One row per round of the ledger that the guarantee is recomputed from."""
        return _native._records(_native._read_ledger(self._path))

    def verify(self) -> Verification:
        """Recomputes the claims of the finished run from its files, as `undertone verify` does."""
        answer = json.loads(_native._verify(self._path))
        found = answer["verification"]
        recomputed = found["recomputed"]
        return Verification(
            answer["holds"],
            [Check(check["name"], check["found"], check["problems"]) for check in found["checks"]],
            RunGuarantee.of(recomputed) if recomputed else None,
            found["notes"],
            found.get("warnings", []),
        )

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one HTML document; with a path it is written there too."""
        html = _native._report(self._path)
        if path is not None:
            Path(path).write_text(html, encoding="utf-8")
        return html

    def weights(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """The tensors of the released model by name: read-only views of `model.safetensors`. It needs numpy."""
        import numpy

        file = self._path / "model.safetensors"
        mapped = numpy.memmap(file, dtype=numpy.uint8, mode="r")
        start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
        header = json.loads(mapped[8:start].tobytes())
        tensors: dict[str, numpy.ndarray[Any, Any]] = {}
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            if tensor["dtype"] != "F32":
                raise TypeError(f"{file}: tensor {name}: expected dtype F32, got {tensor['dtype']}")
            first, last = tensor["data_offsets"]
            tensors[name] = mapped[start + first : start + last].view("<f4").reshape(tensor["shape"])
        return tensors

    def export(
        self,
        folder: str | os.PathLike[str],
        layout: Literal["gpt2", "huggingface", "peft", "gguf", "onnx", "undertone"] = "gpt2",
        *,
        overwrite: bool = False,
    ) -> Path:
        """Writes the model and its words into a new folder for other programs, in a layout of `undertone export`.

        A warning names all that the guarantee does not cover, and the exported file states it too.
        """
        folder, obstacles = _native._export(self._path, Path(folder), layout, overwrite)
        for obstacle in obstacles:
            warnings.warn(f"the guarantee does not cover the model: {obstacle}", stacklevel=2)
        return Path(folder)

    def predict(self, text: str, *, top: int = 5) -> list[dict[str, Any]]:
        """The likeliest next words after a text, each with its probability, as `undertone predict` shows them. The last word counts as complete."""
        return _answer("predict", self._path, f"--top={top}", "--", text)

    def generate(
        self,
        text: str = "",
        *,
        tokens: int = 64,
        samples: int = 1,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> list[str]:
        """Continuations of a text, as `undertone generate` draws them."""
        words = [f"--tokens={tokens}", f"--samples={samples}", f"--temperature={temperature}", f"--top-p={top_p}"]
        words += [f"--{name}={value}" for name, value in (("top-k", top_k), ("seed", seed)) if value is not None]
        words += [f"--stop={end}" for end in stop]
        answer = _answer("generate", self._path, *words, "--", *([text] if text else []))
        return [generated["text"] for generated in answer["texts"]]

    def evaluate(
        self, split: Literal["validation", "test"] = "test", *, against: Run | str | os.PathLike[str] | None = None
    ) -> dict[str, Any]:
        """The accuracy of the final model on held-out users, as `undertone eval` measures it. These are exact statistics of people.

        With another run, `against` in the answer has the difference, paired over users.
        """
        other = against.path if isinstance(against, Run) else against
        return _answer("eval", self._path, f"--split={split}", *([] if other is None else ["--against", other]))

    def personalize(
        self,
        split: Literal["validation", "test"] = "test",
        *,
        users: int | None = None,
        epochs: int = 4,
        learning_rate: float = 0.02,
        batch_size: int = 8,
    ) -> dict[str, Any]:
        """The gain of training the model on half of each held-out user's text, as `undertone personalize` measures it.

        The guarantee does not cover personalised models, nor these figures: they are exact statistics of people.
        """
        words = [f"--split={split}", f"--epochs={epochs}", f"--learning-rate={learning_rate}", f"--batch-size={batch_size}"]
        words += [] if users is None else [f"--users={users}"]
        return _answer("personalize", self._path, *words)

    def story(self) -> Story | None:
        """The rows of the result and the sentences about it; None before the first evaluation. These are exact statistics of people."""
        story = self._data["story"]
        return Story(story["rows"], story["sentences"]) if story else None

    def plot(self, name: str = "accuracy") -> Picture:
        """A picture of the run's report by its name. A notebook shows it. These are exact statistics of people."""
        pictures = dict(_native._pictures(self._path))
        if name not in pictures:
            known = ", ".join(pictures) or "a picture of a run that has begun"
            raise ValueError(f"name: expected {known}, got {name!r}")
        return Picture(pictures[name])

    def publish(self, folder: str | os.PathLike[str]) -> Path:
        """Copies the release of the finished run into a new folder for strangers, as `undertone publish` does.

        A run whose guarantee does not cover the whole folder is refused, with each reason.
        """
        return Path(_native._publish(self._path, Path(folder)))

    def __repr__(self) -> str:
        return f"Run.open({str(self._path)!r})"

    def _repr_html_(self) -> str:
        facts = [("run", self.name), ("finished", str(self.finished)), ("rounds", str(len(self._data["rounds"])))]
        for name in ("planned", "guarantee", "worst_case", "estimate"):
            if (guarantee := getattr(self, name)) is not None:
                facts.append((name.replace("_", " "), str(guarantee)))
        facts += [("warning", warning) for warning in self.warnings]
        rows = "".join(f"<tr><th>{_escape(name)}</th><td>{_escape(value)}</td></tr>" for name, value in facts)
        story = self.story()
        return f"{story._repr_html_() if story else ''}<table>{rows}</table>"


@dataclass(frozen=True)
class Story:
    """The result of a run: the commonest word, the start, the private model, and the same without privacy, with what the rows say.

    >>> import undertone_dp as udp
    >>> print(udp.Story([["private", "27.4 %", "48.7", "epsilon 4"]], ["The model learnt."]))
    private  27.4 %  48.7  epsilon 4
    The model learnt.
    """

    rows: list[list[str]]
    """The name, the top-1 accuracy, the perplexity and the guarantee of each model."""
    sentences: list[str]
    """The verdict."""

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in self.rows]
        return "\n".join(lines + self.sentences)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        sentences = "".join(f"<p>{_escape(sentence)}</p>" for sentence in self.sentences)
        return f"<table><tr><th></th><th>keyboard top-1</th><th>perplexity</th><th></th></tr>{rows}</table>{sentences}"


class Picture(str):
    """A picture as SVG text, which a notebook draws.

    >>> import undertone_dp as udp
    >>> udp.Picture("<svg></svg>")._repr_svg_()
    '<svg></svg>'
    """

    def _repr_svg_(self) -> str:
        return str(self)


def _answer(*words: str | os.PathLike[str]) -> Any:
    """The JSON document of a command, whose warnings become those of Python."""
    document, said = _native._answer([os.fspath(word) for word in words])
    for warning in said:
        warnings.warn(warning, stacklevel=3)
    return json.loads(document)


def _share(metrics: Mapping[str, Any]) -> str:
    """The accuracy of an evaluation with its standard error over users, where there is one."""
    error = metrics.get("top1_standard_error")
    return f"{100 * metrics['top1']:.2f} %" + ("" if error is None else f" ± {100 * error:.2f}")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def train(
    config: RunSettings | Mapping[str, Any] | str | os.PathLike[str],
    *,
    data: Any = None,
    out: str | os.PathLike[str] = "runs",
    overrides: Mapping[str, object] = {},
    threads: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] | bool = False,
) -> Run:
    """Trains a run with user-level differential privacy, and returns it. The files are those of `undertone train`.

    `config` has the keys of a run file: a mapping, TOML text of several lines, or a path. Relative paths start at the folder of the
    file, or else at the working directory. An editor completes the keys of `config: udp.RunSettings = {...}`, a type checker checks them,
    and `udp.explain(key)` explains them. `data` is a `Corpus`, or a table whose columns `config["data"]["source"]` names.
    `progress` is a function that takes a `Progress`, on the calling thread, or True for a bar on standard error.

    An interrupt ends the training between two users. The round is dropped before its release, and the last checkpoint stays:
    `resume=True` goes on from there.

    >>> import tempfile
    >>> import undertone_dp as udp
    >>> posts = {"user": [f"u{row % 40}" for row in range(400)], "text": ["we meet at noon", "see you at noon"] * 200}
    >>> corpus = udp.Corpus.from_table(
    ...     posts, user="user", text="text", vocabulary={"kind": "training_data", "size": 20},
    ...     split={"kind": "held_out_users", "validation": 0.2, "test": 0.0},
    ... )
    >>> rounds = []
    >>> run = udp.train(
    ...     {"name": "posts", "rounds": 3, "model": {"family": "dplm", "embed": 4, "hidden": 4},
    ...      "cohort": {"users_per_round": 8}, "user_update": {"batch_size": 4, "learning_rate": 0.5},
    ...      "clip": {"kind": "flat", "norm": 0.3}, "privacy": {"noise_multiplier": 2.0, "delta": 1e-5}},
    ...     data=corpus, out=tempfile.mkdtemp(), progress=lambda event: rounds.append(event.kind),
    ... )
    >>> run.finished, rounds.count("round")
    (True, 3)
    """
    corpus = None
    if data is None:
        kind, content = form(config)
    else:
        settings = as_mapping(config, overrides)
        overrides = {}
        if isinstance(data, Corpus):
            corpus = data
            settings.setdefault("data", corpus.settings)
        else:
            corpus = Corpus._of(data, settings.get("data", {}))
            settings["data"] = corpus.settings
        kind, content = form(settings)
    changes = json.dumps({key: plain(value, key) for key, value in overrides.items()})
    native = None if corpus is None else corpus._native
    path = _native._train(kind, content, changes, Path(out), threads, resume, native, _delivery(progress))
    return Run(path)


class Key(TypedDict):
    """A key of a run file."""

    key: str
    """The dotted key."""
    type: str
    """The type of its value, in words."""
    required: NotRequired[bool]
    """True if its table cannot be without it."""
    default: NotRequired[Any]
    """The value of a file that leaves it out."""
    meaning: str
    """The meaning, in sentences."""
    choices: NotRequired[list[tuple[str, str]]]
    """The words that it may have, each with its meaning."""
    of: NotRequired[list[str]]
    """The kinds of its table that have it."""


def explain(key: str = "", *, file: Literal["run", "task"] = "run") -> list[Key]:
    """The entries of a key of run files or task files; those of a table are followed by the ones of its keys.

    >>> import undertone_dp as udp
    >>> udp.explain("user_update.unroll")[0]["default"]
    10
    >>> [choice for choice, _ in udp.explain("user_update.algorithm")[0]["choices"]]
    ['fedavg', 'fedsgd', 'uls', 'els']
    """
    return cast(list[Key], _answer("explain", "--file", file, "--", *([key] if key else [])))


def pretrain(
    config: Mapping[str, Any] | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = "runs",
    overrides: Mapping[str, object] = {},
    threads: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] | bool = False,
) -> Path:
    """Trains a start on public text, without privacy, and returns its run directory. The files are those of `undertone pretrain`.

    `config` has the keys of the file of that command, as in `train`. The key `initial_model` of a private run names `model.safetensors` of
    the directory.

    >>> import tempfile, warnings
    >>> import undertone_dp as udp
    >>> warnings.simplefilter("ignore")
    >>> folder = udp.pretrain({
    ...     "name": "public", "steps": 3, "data": {"source": {"kind": "synthetic", "users": 40, "words": 40}},
    ...     "model": {"family": "dplm", "embed": 4, "hidden": 4}, "training": {"batch_size": 8, "learning_rate": 0.1},
    ... }, out=tempfile.mkdtemp())
    >>> (folder / "model.safetensors").is_file()
    True
    """
    warnings.warn(_native._not_private(), stacklevel=2)
    kind, content = form(config)
    base = Path(content).parent if kind == "file" else Path(".")
    settings = json.dumps(as_mapping(config, overrides))
    return Path(_native._pretrain(settings, base, Path(out), threads, resume, _delivery(progress)))


def _delivery(progress: Callable[[Progress], object] | bool) -> Callable[[Any, str], object] | None:
    """The receiver of events that `progress` asks for."""
    if callable(progress):
        callback = progress

        def deliver(kind: Any, record: str) -> object:
            return callback(Progress(kind, json.loads(record)))

        return deliver
    return _Bar() if progress else None


class _Bar:
    """A bar on standard error: one line that is written again after each round."""

    WIDTH = 40

    def __init__(self) -> None:
        self._rounds = 0
        self._done = 0

    def __call__(self, kind: str, text: str) -> None:
        record = json.loads(text)
        if kind == "start":
            self._rounds, self._done = record["start"]["rounds"], record["resumed_at"]
        elif kind == "round":
            self._done = record["round"] + 1
            filled = self.WIDTH * self._done // max(self._rounds, 1)
            bar = "#" * filled + "." * (self.WIDTH - filled)
            loss = record.get("train_loss")
            shown = "" if loss is None else f"  loss {loss:.3f}"
            sys.stderr.write(f"\rrounds {bar} {self._done}/{self._rounds}{shown}  ")
        elif kind == "evaluation":
            metrics = record["metrics"]
            shown = _share(metrics.get("sample", metrics))
            sys.stderr.write(f"\rround {record['round']}: {record['split']} top-1 {shown}\n")
        sys.stderr.flush()
