"""Local training of many users at once in PyTorch: `torch.func.vmap` over users, each with parameters of its own.

It prints one line of JSON per measurement, and one with all of them at the end. The shapes are those of the step `speed` of
`gpu-check`.
"""

import argparse
import json
import statistics
import time

import torch
from torch.func import functional_call, grad, vmap

parser = argparse.ArgumentParser()
parser.add_argument("--small", action="store_true")
parser.add_argument("--model", choices=["dplm", "cifg"])
parser.add_argument("--users", type=int)
ARGUMENTS = parser.parse_args()
SMALL = ARGUMENTS.small
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IDS, WIDTH, HIDDEN, CELLS, BATCH = (211, 12, 20, 20, 4) if SMALL else (10_000, 96, 256, 670, 16)
COUNTS, EXAMPLES, TOKENS, ROUNDS = ([2, 4], 8, 5, 1) if SMALL else ([32, 128, 512], 32, 20, 3)


class Recurrent(torch.nn.Module):
    """An LSTM whose embedding is also the output matrix, or a CIFG with a recurrent projection and an output matrix."""

    def __init__(self, coupled):
        super().__init__()
        self.coupled = coupled
        hidden = CELLS if coupled else HIDDEN
        gates, back = (3, WIDTH) if coupled else (4, hidden)
        shape = {
            "embedding": (IDS, WIDTH),
            "wx": (WIDTH, gates * hidden),
            "wh": (back, gates * hidden),
            "bias": (gates * hidden,),
            "projection": (hidden, WIDTH),
        }
        if coupled:
            shape |= {"out": (WIDTH, IDS), "out_bias": (IDS,)}
        for name, size in shape.items():
            self.register_parameter(name, torch.nn.Parameter(0.05 * torch.randn(size)))
        self.hidden, self.back = hidden, back

    def forward(self, inputs, targets):
        embedding = self.embedding if self.coupled else self.embedding / self.embedding.norm(dim=1, keepdim=True)
        gates = embedding[inputs] @ self.wx + self.bias
        state = inputs.new_zeros(inputs.shape[0], self.back, dtype=self.wx.dtype)
        cell = inputs.new_zeros(inputs.shape[0], self.hidden, dtype=self.wx.dtype)
        states = []
        for step in range(inputs.shape[1]):
            parts = (gates[:, step] + state @ self.wh).chunk(3 if self.coupled else 4, dim=1)
            if self.coupled:
                forget, candidate, out = parts
                forget = torch.sigmoid(forget)
                cell = forget * cell + (1 - forget) * torch.tanh(candidate)
            else:
                enter, forget, candidate, out = parts
                cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
            projected = hidden @ self.projection
            state = projected if self.coupled else hidden
            states.append(projected)
        states = torch.stack(states, dim=1)
        logits = states @ self.out + self.out_bias if self.coupled else states @ embedding.T
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rounds(coupled, users, compiled):
    torch.manual_seed(1)
    model = Recurrent(coupled).to(DEVICE)
    start = {name: value.detach() for name, value in model.named_parameters()}
    text = torch.randint(3, IDS, (users, EXAMPLES, TOKENS + 1), device=DEVICE)

    def loss(parameters, inputs, targets):
        return functional_call(model, parameters, (inputs, targets))

    step = vmap(grad(loss))
    if compiled:
        step = torch.compile(step)
    seconds = []
    for _ in range(ROUNDS + 1):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        mine = {name: value.expand(users, *value.shape).clone() for name, value in start.items()}
        for first in range(0, EXAMPLES, BATCH):
            batch = text[:, first : first + BATCH]
            gradients = step(mine, batch[..., :-1], batch[..., 1:])
            mine = {name: value - 0.5 * gradients[name] for name, value in mine.items()}
        updates = {name: mine[name] - start[name] for name in start}
        squares = sum(update.flatten(1).square().sum(1) for update in updates.values())
        factors = (0.3 / squares.sqrt()).clamp(max=1)
        total = {name: torch.einsum("u,u...->...", factors, update) for name, update in updates.items()}
        next(iter(total.values())).flatten()[0].item()
        seconds.append(time.perf_counter() - begun)
    return users * EXAMPLES * TOKENS / statistics.median(seconds[1:])


lines = []
for name, coupled in [("dplm", False), ("cifg", True)]:
    if ARGUMENTS.model not in (None, name):
        continue
    for users in [ARGUMENTS.users] if ARGUMENTS.users else COUNTS:
        for compiled in [False] if SMALL else [False, True]:
            line = {"model": name, "users_at_once": users, "compiled": compiled}
            try:
                line["tokens_per_s"] = round(rounds(coupled, users, compiled))
            except Exception as error:  # out of memory, or a compiler that is not there
                line["error"] = str(error).splitlines()[0][:200]
            lines.append(line)
            print(json.dumps(line), flush=True)
print(json.dumps({"torch": torch.__version__, "device": DEVICE, "rounds": lines}))
