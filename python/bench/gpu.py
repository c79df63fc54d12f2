"""Sums on a GPU: their bits beside those of the processor, and what they cost beside a loop of PyTorch without privacy.

Run it on a machine with a GPU: `python bench/gpu.py`. A line `RESULT {...}` ends each step. `--small --device cpu` tries it without one.
"""

import argparse
import json
import math
import os
import tempfile
import time

# Deterministic products ask for it before the first of them. It is no smaller than the workspace by default.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402
from torch import nn  # noqa: E402
from undertone_dp import _gpu  # noqa: E402
from undertone_dp._gpu import GpuSum  # noqa: E402

FULL = {"layers": 12, "width": 768, "heads": 12, "words": 50257, "context": 1024}
SMALL = {"layers": 2, "width": 32, "heads": 2, "words": 101, "context": 64}


class Block(nn.Module):
    """A block of GPT-2. With a rank, its queries and values have adapters, and nothing else is trained."""

    def __init__(self, width, heads, rank):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.adapters = None
        if rank:
            pair = lambda: nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False))
            self.adapters = nn.ModuleList([pair(), pair()])

    def forward(self, x):
        inside = self.first(x)
        q, k, v = self.qkv(inside).chunk(3, dim=-1)
        if self.adapters is not None:
            q, v = q + self.adapters[0](inside), v + self.adapters[1](inside)
        split = lambda part: part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with tied embeddings and random weights."""

    def __init__(self, layers, width, heads, words, context, rank=0):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, rank) for _ in range(layers)])
        self.last = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        if rank:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("adapters" in name)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.last(x), self.words.weight)


class Bench:
    """The device, the sizes and the time that is left."""

    def __init__(self, given):
        self.device = torch.device(given.device)
        self.small = given.small
        self.sizes = SMALL if given.small else FULL
        self.end = time.monotonic() + given.seconds
        self.cuda = self.device.type == "cuda"

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def left(self):
        return self.end - time.monotonic()

    def forget(self):
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self):
        return torch.cuda.max_memory_allocated() / 1e9 if self.cuda else 0.0

    def time(self, work):
        """Seconds of `work`, with all that it starts on the device."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def model(self, rank=0):
        torch.manual_seed(0)
        model = Gpt(**self.sizes, rank=rank).to(self.device)
        if rank:
            for parameter in model.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.bfloat16()
        return model

    def loss(self, model, tokens):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def tokens(self, rows, length, units):
        """A few batches that stand for those of all units."""
        generator = torch.Generator().manual_seed(1)
        shape = (min(units, 8), rows, length + 1)
        return torch.randint(self.sizes["words"], shape, generator=generator).to(self.device)

    def private(self, model, users, *, on_gpu, seed=None, rounds=100, clip=None):
        trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        inner = torch.optim.AdamW(trained, lr=1e-5, fused=self.cuda)
        config = {
            "name": "gpu",
            "rounds": rounds,
            "cohort": {"sampling_probability": 1.0},
            "clip": clip or {"kind": "flat", "norm": 1.0},
            "privacy": {"noise_multiplier": 1.0, "delta": 1e-6},
        }
        if seed is not None:
            config["seed"] = seed
        return udp.torch.PrivateOptimizer(
            inner, out=tempfile.mkdtemp(), config=config, users=users, sum_on_gpu=on_gpu
        )


def emit(step, **found):
    rounded = lambda value: float(f"{value:.5g}") if isinstance(value, float) else value
    print("RESULT " + json.dumps({"step": step} | {key: rounded(value) for key, value in found.items()}), flush=True)


def hostile(count, generator):
    """Updates of this many values that a sum must take as the processor takes them."""
    fill = lambda value: torch.full((count,), value)
    mixed = lambda first, rest: torch.cat([torch.tensor(first), fill(rest)[len(first) :]])
    limit = 2.0**22
    wild = torch.randint(-(2**31), 2**31 - 1, (2, count), dtype=torch.int32, generator=generator).view(torch.float32)
    scales = 10.0 ** (12.0 * torch.rand(4, 1, generator=generator) - 8.0)
    return [
        fill(0.0),
        fill(1e30),
        fill(1e-42),
        fill(math.nan),
        mixed([math.inf], 1.0),
        mixed([-3.4e38], 1e-3),
        mixed([limit - 0.25, 0.25 - limit], 0.25),
        mixed([limit, -limit], 0.25),
        mixed([2.0**-126, -(2.0**-40), 2.0**-41], 1e-30),
        *wild,
        *torch.where(wild.isfinite(), wild, torch.ones(())),
        *(torch.randn(4, count, generator=generator) * scales),
    ]


def sums(bench):
    """Released values of seeded sessions, with the sum of the device and with that of the processor."""
    shapes = [(1, 3), (700, 11)] if bench.small else [(1, 3), (1500, 1000), (4_000_037,)]
    found = {"values": 0, "eager": 0, "kernels": None if not bench.cuda else 0}
    started, count = time.monotonic(), sum(math.prod(shape) for shape in shapes)
    updates = hostile(count, torch.Generator().manual_seed(2))
    for clip in ({"kind": "flat", "norm": 0.5}, {"kind": "per_layer", "norm": 2.0}):
        released = {}
        for kind in ("host", "eager", "kernels") if bench.cuda else ("host", "eager"):
            model = nn.ParameterList([nn.Parameter(torch.zeros(shape, device=bench.device)) for shape in shapes])
            dp = bench.private(model, len(updates), on_gpu=kind != "host", seed=3, rounds=1, clip=clip)
            for round in dp:
                if kind != "host":
                    dp._sum = GpuSum(dp._flat, round._gpu_groups(), kernels=kind == "kernels")
                for unit, update in enumerate(updates):
                    with dp.unit(unit):
                        dp._flat.copy_(update)
                dp.step()
            released[kind] = dp._flat.view(torch.int32).clone()
        found["values"] += count * len(updates)
        for kind in released.keys() - {"host"}:
            found[kind] += (released[kind] != released["host"]).sum().item()
    emit("sum", **found, raw=raw(bench), seconds=time.monotonic() - started)


def raw(bench):
    """The number of digits and places in which the kernels differ from the operations of torch, over any bits at all."""
    if not bench.cuda:
        return None
    from undertone_dp import _triton

    differ = 0
    for count in (1, 1023, 1024, 4_194_309, 1 << 24):
        bits = torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int32, device=bench.device)
        for halvings in (0, 1, 107):
            norms = torch.zeros(2, 5, dtype=torch.int64, device=bench.device)
            _gpu.measure(bits, halvings, norms[0])
            _triton.measure(bits, halvings, norms[1])
            differ += (norms[0] != norms[1]).sum().item()
            for factor in (1, 16, 123_456_789, 1 << 30):
                totals = torch.randint(-(2**60), 2**60, (1, count), device=bench.device).repeat(2, 1)
                _gpu.add(bits, factor, halvings, totals[0])
                _triton.add(bits, factor, halvings, totals[1])
                differ += (totals[0] != totals[1]).sum().item()
    return differ


def kernels(bench):
    """The time of the two passes over the parameters of the full model."""
    count = 10_000 if bench.small else 124_439_808
    values = (torch.randn(count, device=bench.device) * 1e-3).contiguous()
    found = {}
    for name, with_kernels in [("kernels", True), ("eager", False)]:
        sum_ = GpuSum(values, [[(0, count)]], kernels=with_kernels)
        sum_.keep(), sum_.norms(), sum_.add([(1 << 29, 0)])
        repeats = 20 if with_kernels else 3
        found[f"{name}_norms_ms"] = 1e3 * bench.time(lambda: [sum_.keep() for _ in range(repeats)]) / repeats
        found[f"{name}_add_ms"] = 1e3 * bench.time(lambda: [sum_.add([(1 << 29, 0)]) for _ in range(repeats)]) / repeats
        found["sum_down_ms"] = 1e3 * bench.time(lambda: list(sum_.parts()))
    emit("kernels", parameters=count, **found)


def in_parts(bench, dp):
    """A step of the optimizer, and the seconds of its parts."""
    round, marks = dp._open(), []
    bench.wait()
    mark = lambda: (bench.wait(), marks.append(time.perf_counter()))
    mark()
    dp._settle()
    dp._audit.wait()
    mark()
    if dp._sum is not None:
        for first, part in dp._sum.parts():
            round._merge_gpu(first, part)
    mark()
    dp._flat.zero_()
    round.release(dp._out)
    dp._round = None
    mark()
    if dp._out is not dp._flat:
        dp._flat.copy_(dp._out)
    mark()
    dp._step_inner()
    mark()
    names = ("audit_wait", "sum_down", "release", "copy_up", "optimizer")
    return {name: b - a for name, a, b in zip(names, marks, marks[1:])}


def training(bench, step, rank, rows, length, units, host_units):
    """Tokens per second of a loop without privacy, of sums on the device and of sums on the host; in rounds of `units` units."""
    tokens, found = bench.tokens(rows, length, units), {}
    per_unit = rows * length

    def plain():
        bench.forget()
        model = bench.model(rank)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        inner = torch.optim.AdamW(trained, lr=1e-5, fused=bench.cuda)

        def one_step(count):
            inner.zero_grad(set_to_none=False)
            for unit in range(count):
                (bench.loss(model, tokens[unit % len(tokens)]) / count).backward()
            inner.step()

        one_step(4)
        seconds = bench.time(lambda: one_step(units))
        found.update(parameters=sum(parameter.numel() for parameter in trained))
        found.update(plain_tokens_s=units * per_unit / seconds, plain_gb=bench.peak(), plain_unit_ms=1e3 * seconds / units)
        return seconds

    def private(name, on_gpu, count):
        bench.forget()
        model = bench.model(rank)
        dp = bench.private(model, count, on_gpu=on_gpu)

        def units_of(count):
            for unit in range(count):
                with dp.unit(unit):
                    bench.loss(model, tokens[unit % len(tokens)]).backward()

        rounds = iter(dp)
        # Warm: the kernels are compiled, and memory is taken.
        next(rounds)
        units_of(min(count, 8))
        in_parts(bench, dp)
        opening = bench.time(lambda: next(rounds))
        seconds = bench.time(lambda: units_of(count))
        parts = in_parts(bench, dp)
        # The last of them is part of a step without privacy too.
        extra = opening + sum(parts.values())
        unit = seconds / count
        found.update({f"{name}_unit_ms": 1e3 * unit, f"{name}_gb": bench.peak(), f"{name}_open_ms": 1e3 * opening})
        found.update({f"{name}_{part}_ms": 1e3 * value for part, value in parts.items()})
        found[f"{name}_tokens_s"] = units * per_unit / (units * unit + extra)
        return units * unit + extra, unit, extra

    seconds = plain()
    device, unit, extra = private("device", True, units)
    found.update(units=units, tokens_per_unit=per_unit, overhead_percent=100.0 * (device / seconds - 1.0))
    found["unit_overhead_percent"] = 100.0 * (unit * units / seconds - 1.0)
    # A plain step has its optimizer once per round, whatever the number of units is.
    plain_unit = seconds / units
    for cohort in (128, 512, 2048):
        found[f"overhead_percent_at_{cohort}"] = 100.0 * ((cohort * unit + extra) / (cohort * plain_unit) - 1.0)
    emit(step, **found)
    if bench.left() < 15.0:
        return
    host, *_ = private("host", False, host_units)
    emit(step + "_host", units=units, host_over_device=host / device, host_over_plain=host / seconds,
         **{name: value for name, value in found.items() if name.startswith("host")})


def uls(bench):
    rows, length, units = (2, 32, 6) if bench.small else (16, 512, 128)
    training(bench, "uls", 0, rows, length, units, min(units, 6))


def lora(bench):
    length, units = (48, 8) if bench.small else (1024, 256)
    training(bench, "lora", 8, 1, length, units, min(units, 64))


def repeat(bench):
    """Digests of seeded trainings with deterministic algorithms, twice on the device and once with the sums of the host."""
    torch.use_deterministic_algorithms(True)
    sizes = bench.sizes | {"layers": 2, "words": min(bench.sizes["words"], 5000)}
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(sizes["words"], (6, 4, sizes["context"] // 2 + 1), generator=generator).to(bench.device)
    digests = []
    for on_gpu in (True, True, False):
        torch.manual_seed(0)
        model = Gpt(**sizes).to(bench.device)
        dp = bench.private(model, len(tokens), on_gpu=on_gpu, seed=9, rounds=3)
        found = []
        for round in dp:
            for unit in range(len(round.users)):
                with dp.unit(unit):
                    bench.loss(model, tokens[unit]).backward()
            found.append(dp.step().sha256)
        digests.append(found)
    torch.use_deterministic_algorithms(False)
    emit("repeat", equal=digests[0] == digests[1], equal_to_host=digests[0] == digests[2], last=digests[0][-1][:16])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = {"sum": sums, "kernels": kernels, "uls": uls, "lora": lora, "repeat": repeat}
    parser.add_argument("--only", choices=steps, action="append")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    bench = Bench(given)
    name = torch.cuda.get_device_name() if bench.cuda else "processor"
    emit("machine", device=name, torch=torch.__version__, cores=os.cpu_count(), undertone=udp.__version__)
    for step, work in steps.items():
        if given.only and step not in given.only:
            continue
        if bench.left() < 5.0:
            emit(step, skipped="no time is left")
            continue
        try:
            work(bench)
        except Exception as error:
            emit(step, error=f"{type(error).__name__}: {error}"[:500])


if __name__ == "__main__":
    main()
