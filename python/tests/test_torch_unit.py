"""A unit leaves nothing behind: no local training, no statistics, no state of a generator. Each of its effects goes through the session."""

import collections
import hashlib
import json
import random
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import numpy as np  # noqa: E402
import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402
from undertone_dp import _gpu, _generators, _kept  # noqa: E402
from undertone_dp._kept import fold  # noqa: E402

from test_torch_session import make_model  # noqa: E402

EVERYONE = {
    "name": "unit",
    "seed": 5,
    "rounds": 4,
    "cohort": {"sampling_probability": 1.0},
    "clip": {"kind": "flat", "norm": 1.0},
    "privacy": {"noise_multiplier": 100.0, "delta": 1e-6},
}


def by_fused(parameter, change):
    local = torch.optim.SGD([torch.nn.Parameter(torch.zeros(0)), parameter], lr=1.0, fused=True)
    kept, parameter.grad = parameter.grad, -change
    local.step()
    parameter.grad = kept


def by_fused_adam(parameter, change):
    kept, parameter.grad = parameter.grad, -change
    torch.optim.Adam([parameter], lr=1.0, fused=True).step()
    parameter.grad = kept


def by_dlpack(parameter, change):
    torch.from_dlpack(parameter.detach()).numpy()[...] += change.numpy()


def by_numpy(parameter, change):
    view = parameter.detach().numpy()
    view += change.numpy()


def by_storage(parameter, change):
    parameter.untyped_storage().copy_((parameter.detach() + change).untyped_storage())


def by_no_grad(parameter, change):
    with torch.no_grad():
        parameter += change


def by_replacement(parameter, change):
    parameter.data = parameter.data + change


WAYS = {
    "fused SGD": by_fused,
    "fused Adam": by_fused_adam,
    ".data": lambda parameter, change: parameter.data.add_(change),
    ".data copy": lambda parameter, change: parameter.data.copy_(parameter.data + change),
    "foreach on .data": lambda parameter, change: torch._foreach_add_([parameter.data], [change]),
    "numpy": by_numpy,
    "from_numpy": lambda parameter, change: torch.from_numpy(parameter.detach().numpy()).add_(change),
    "DLPack": by_dlpack,
    "storage": by_storage,
    "replaced .data": by_replacement,
    "no_grad": by_no_grad,
}
# Those that the version counter of a parameter does not see.
UNSEEN = [way for way in WAYS if way not in ("replaced .data", "no_grad")]


def digest(tensors):
    """The bytes of tensors."""
    return [hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest() for tensor in tensors]


class Normed(torch.nn.Module):
    """A batch normalisation, whose buffers are averages of what it saw, and a buffer that the forward pass replaces."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + len(x)
        return self.last(self.norm(self.first(x)).tanh())


@pytest.fixture
def deferred(monkeypatch):
    """The CPU as a device that the program does not wait for."""
    monkeypatch.setattr(_gpu, "_defers", lambda device: True)


def private(tmp_path, model, *, of=torch.optim.SGD, users=4, on_gpu=None, given=True, lr=0.1, **changes):
    inner = of(model.named_parameters(), lr=lr)
    return udp.torch.PrivateOptimizer(
        inner, out=tmp_path, config=EVERYONE | changes, users=users, model=model if given else None, sum_on_gpu=on_gpu
    )


def difference_of_local_training(model, x, way):
    """Two local steps in a way, whose difference becomes the gradient, as federated averaging does."""
    parameters = list(model.parameters())
    start = [parameter.detach().clone() for parameter in parameters]
    for _ in range(2):
        for parameter, gradient in zip(parameters, torch.autograd.grad(model(x).square().mean(), parameters)):
            WAYS[way](parameter, -0.1 * gradient)
    for parameter, before in zip(parameters, start):
        parameter.grad.copy_(before - parameter.detach())


@pytest.mark.parametrize("way", WAYS)
def test_the_version_counter_sees_what_this_test_says_it_sees(way):
    parameter = torch.nn.Parameter(torch.ones(3))
    before = parameter._version, parameter.data_ptr()
    WAYS[way](parameter, torch.full((3,), 0.5))
    assert parameter.tolist() != [1.0] * 3
    assert ((parameter._version, parameter.data_ptr()) == before) == (way in UNSEEN)


@pytest.mark.parametrize("update", ["SGD", "Adam", "FedAvg differences"])
@pytest.mark.parametrize("way", WAYS)
def test_bytes_of_parameters_and_buffers_are_those_before_the_unit(tmp_path, way, update):
    torch.manual_seed(2)
    model = Normed()
    dp = private(tmp_path, model, of=torch.optim.Adam if update == "Adam" else torch.optim.SGD)
    round = next(iter(dp))
    everything = lambda: [*model.parameters(), *model.buffers()]
    before = digest(everything())
    for unit in range(len(round.users)):
        with dp.unit(unit):
            x = torch.randn(5, 4)
            if update == "FedAvg differences":
                difference_of_local_training(model, x, way)
            else:
                model(x).square().mean().backward()
                for parameter in model.parameters():
                    WAYS[way](parameter, torch.full_like(parameter.detach(), 0.25))
            # All but a bias whose mean the normalisation takes off.
            assert sum(one != other for one, other in zip(digest(model.parameters()), before)) >= 5
            assert model.seen.item() > 0.0 and model.norm.running_mean.any()
        assert digest(everything()) == before
        with pytest.raises(KeyError), dp.unit((unit + 1) % len(round.users)):
            difference_of_local_training(model, torch.randn(3, 4), way)
            raise KeyError
        assert digest(everything()) == before
    dp.step()
    run = dp.finish(model.state_dict())
    assert run.verify().holds


@pytest.mark.parametrize("on_gpu", [None, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_change_between_units_is_named_before_a_unit_and_before_the_step(tmp_path, way, on_gpu):
    model = torch.nn.Linear(3, 2)
    dp = private(tmp_path, model, on_gpu=on_gpu)
    next(iter(dp))
    with dp.unit(0):
        pass
    WAYS[way](model.bias, torch.tensor([0.0, 1e-7]))
    with pytest.raises(RuntimeError, match="bias: expected the parameter that the last step released, got another"), dp.unit(1):
        pass
    with pytest.raises(RuntimeError, match="bias: expected the parameter that the last step released, got another"):
        dp.step()
    assert dp.session.round == 0


@pytest.mark.usefixtures("deferred")
@pytest.mark.parametrize("way", WAYS)
def test_on_a_device_that_nobody_waits_for_a_change_between_units_is_named_before_its_unit_counts(tmp_path, way):
    model = torch.nn.Linear(3, 2)
    dp = private(tmp_path, model, on_gpu=True)
    next(iter(dp))
    with dp.unit(0):
        dp._flat.fill_(0.1)
    WAYS[way](model.bias, torch.tensor([0.0, 1e-7]))
    # Nothing is waited for: the error comes when the unit would be added, and its update is left out.
    with dp.unit(1):
        dp._flat.fill_(0.2)
    total = dp._sum._total.clone()
    with pytest.raises(RuntimeError, match="bias: expected the parameter that the last step released") as found, dp.unit(2):
        dp._flat.fill_(0.1)
    assert "unit 1 of round 0" in found.value.__notes__[0]
    assert torch.equal(dp._sum._total, total)
    dp.step()


@pytest.mark.parametrize("fused", [False, True])
def test_the_update_of_one_person_does_not_stay_in_the_model(tmp_path, fused):
    """At a noise of 100 clip norms of 0.005, the model moves by less than 5 though a gradient is 50."""
    model = torch.nn.Linear(2, 2)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    dp = private(tmp_path, model, users=200, lr=1.0, rounds=1)
    for round in dp:
        for unit, user in enumerate(round.users):
            with dp.unit(unit):
                local = torch.optim.SGD(model.parameters(), lr=0.5, fused=fused)
                for _ in range(2):
                    for parameter in model.parameters():
                        parameter.grad.fill_(50.0 if user == 7 else 0.0)
                    local.step()
                for parameter, before in zip(model.parameters(), start):
                    parameter.grad.copy_(before - parameter.detach())
        dp.step()
    assert all((parameter.detach() - before).abs().max() < 5.0 for parameter, before in zip(model.parameters(), start))
    dp.finish(model.state_dict())


def test_inner_does_not_step_by_the_gradient_of_a_person(tmp_path):
    model = make_model()
    dp = private(tmp_path, model, of=torch.optim.Adam)
    next(iter(dp))
    with pytest.raises(RuntimeError, match="a round is open, and its gradients are those of a person"), dp.unit(0):
        model(torch.ones(1, 4)).sum().backward()
        dp.inner.step()
    assert not dp.inner.state
    dp.step()
    assert dp.inner.state
    # Between rounds the gradient is a release, and after the last one the optimizer is the program's.
    dp.inner.step()
    next(iter(dp))
    dp.finish(model.state_dict())
    dp.inner.step()


class Wrapped:
    """A wrapper of an optimizer, as that of Accelerate."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)

    def step(self):
        self.optimizer.step()


def test_an_optimizer_inside_a_wrapper_does_not_step_in_a_round_either(tmp_path):
    model = make_model()
    inner = Wrapped(torch.optim.SGD(model.named_parameters(), lr=0.1))
    dp = udp.torch.PrivateOptimizer(inner, out=tmp_path / "a", config=EVERYONE, users=3)
    next(iter(dp))
    for step in (inner.step, inner.optimizer.step):
        with pytest.raises(RuntimeError, match="a round is open"), dp.unit(0):
            step()
    dp.step()
    with pytest.raises(TypeError, match="inner: expected an optimizer of torch.optim or a wrapper of one, got Wrapped"):
        bare = Wrapped(types.SimpleNamespace(param_groups=inner.param_groups, state={}))
        udp.torch.PrivateOptimizer(bare, out=tmp_path / "b", config=EVERYONE, users=3)
    assert not (tmp_path / "b").exists()


def test_units_do_not_overlap(tmp_path):
    model = make_model()
    dp = private(tmp_path, model)
    next(iter(dp))
    with dp.unit(0), pytest.raises(RuntimeError, match="a unit ends before the next one begins"), dp.unit(1):
        pass
    with dp.unit(1):
        pass


@pytest.mark.parametrize("change", ["weight", "attribute", "buffer", "replaced", "moved"])
def test_a_tensor_that_no_release_trains_is_compared_before_each_step(tmp_path, change):
    """`inv_freq += u` and a base weight, each changed in a unit or, what a unit puts back, between units."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(False)
    model.inv_freq = torch.linspace(1.0, 2.0, 5)
    model.register_buffer("count", torch.zeros(()))
    inner = torch.optim.SGD(model[1].named_parameters(), lr=0.1)
    dp = udp.torch.PrivateOptimizer(inner, out=tmp_path, config=EVERYONE, users=3, model=model)
    changes = {
        "weight": ("0.weight", lambda: model[0].weight.data.add_(0.5)),
        "attribute": ("inv_freq", lambda: model.inv_freq.add_(0.5)),
        "buffer": ("count", lambda: model.count.add_(1.0)),
        "replaced": ("inv_freq", lambda: setattr(model, "inv_freq", model.inv_freq + 1e-6)),
        "moved": ("count", lambda: setattr(model, "count", model.count + 1.0)),
    }
    name, work = changes[change]
    for round in dp:
        with dp.unit(0):
            model(torch.ones(1, 4)).sum().backward()
            if round.index == 1 and change not in ("buffer", "moved"):
                work()
        if round.index == 1:
            if change in ("buffer", "moved"):
                assert model.count.item() == 0.0
                work()
            with pytest.raises(RuntimeError, match=f"^{name}: a unit changed a tensor that no release trains$"):
                dp.step()
            break
        dp.step()
    assert dp.session.round == 1
    dp.finish()


def test_buffers_are_put_back_in_their_memory_also_where_they_share_it(tmp_path):
    model = torch.nn.Linear(2, 1)
    model.register_buffer("shape", torch.zeros(1, 3).expand(4, 3))
    model.register_buffer("small", torch.zeros(4, dtype=torch.bfloat16))
    model.register_buffer("flags", torch.tensor([True, False]))
    model.register_buffer("nothing", None)
    model.register_buffer("alias", model.weight.detach())
    dp = private(tmp_path, model)
    next(iter(dp))
    before = model.flags.data_ptr()
    with dp.unit(0):
        model.shape.narrow(0, 0, 1).fill_(7.0)
        model.small.data = torch.ones(4, dtype=torch.bfloat16)
        model.flags.logical_not_()
        model.nothing = torch.ones(3)
        model.register_buffer("late", torch.ones(2))
        model.weight.data.fill_(3.0)
    assert not model.shape.any() and not model.small.any() and model.flags.tolist() == [True, False]
    assert model.nothing is None and "late" not in model._buffers
    assert model.flags.data_ptr() == before and torch.equal(model.alias, model.weight)
    # A view of a trained parameter moves with it.
    dp.step()
    assert torch.equal(model.alias, model.weight)
    dp.finish(model.state_dict())


def dropout_sum(tmp_path, left_out):
    """The sum of a round of 60 units with dropout, in clip norms and almost without noise."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
    privacy = {"noise_multiplier": 1e-3, "delta": 1e-6}
    dp = private(tmp_path, model, users=60, privacy=privacy, given=False)
    for round in dp:
        for unit, user in enumerate(round.users):
            if user != left_out:
                with dp.unit(unit):
                    (50.0 * model(torch.sin(torch.arange(4.0) * user)).square().sum()).backward()
        dp.step()
        return dp._flat * 60


def test_one_of_60_people_with_dropout_moves_the_sum_by_at_most_one_clip_norm(tmp_path, monkeypatch):
    # Fresh bytes per unit make all other units independent of one that leaves. With the same bytes for the others their sum is the same.
    given = collections.defaultdict(lambda: random.randbytes(16))
    monkeypatch.setattr(_generators, "entropy", given.__getitem__, raising=False)
    whole, without = dropout_sum(tmp_path / "whole", None), dropout_sum(tmp_path / "without", 3)
    assert torch.linalg.vector_norm(whole - without) <= 1.0 + 1e-6
    # The bound holds with something in it: the masks differ from person to person, and from bytes to bytes.
    given.clear()
    again = dropout_sum(tmp_path / "again", None)
    assert torch.linalg.vector_norm(whole - again) > 1.0


def draws():
    return torch.rand(3).tolist(), np.random.random(3).tolist(), random.random()


def test_each_unit_has_generators_of_its_own_and_leaves_those_of_the_caller(tmp_path):
    model = make_model()
    seen = []

    def seed():
        torch.manual_seed(1)
        np.random.seed(2)
        random.seed(3)

    seed()
    expected = [draws(), draws()]
    for rng in (None, "own"):
        dp = udp.torch.PrivateOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), out=tmp_path / str(len(seen)), config=EVERYONE, users=3, rng=rng
        )
        next(iter(dp))
        seed()
        assert draws() == expected[0]
        for unit in range(3):
            with dp.unit(unit):
                seen.append(draws())
        with pytest.raises(KeyError), dp.unit(0):
            seen.append(draws())
            raise KeyError
        assert draws() == expected[1]
    for values in zip(*seen):
        assert len(set(map(str, values))) == len(seen) == 8
    with pytest.raises(ValueError, match="""rng: expected "own" or "caller", got 'unit'"""):
        udp.torch.PrivateOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), out=tmp_path, config=EVERYONE, users=3, rng="unit")


@pytest.mark.parametrize("way", ["argument", "key"])
def test_generators_of_the_caller_are_left_alone_and_the_report_says_so(tmp_path, way):
    model, statements = make_model(), {}
    for rng in ("own", "caller"):
        config, given = (EVERYONE, rng) if way == "argument" else (EVERYONE | {"unit_rng": rng}, None)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        dp = udp.torch.PrivateOptimizer(inner, out=tmp_path / rng, config=config, users=3, rng=given)
        assert dp.session.unit_rng == rng
        for round in dp:
            torch.manual_seed(1)
            before = draws()
            torch.manual_seed(1)
            with dp.unit(0):
                inside = draws()
            assert (inside[0] == before[0]) == (rng == "caller")
            dp.step()
        run = dp.finish(model.state_dict())
        assert run.verify().holds
        statements[rng] = json.loads((run.path / "privacy.json").read_text())["statements"]
        named = "its own generators (`unit_rng = " in (run.path / "privacy.md").read_text().replace("\n", " ")
        assert named == (rng == "caller")
    assert [line for line in statements["caller"] if line not in statements["own"]] == [
        line for line in statements["caller"] if line.startswith("Random numbers of units: ")
    ] != []


def test_the_fold_is_the_sum_of_bits_and_one_times_odd_places(monkeypatch):
    monkeypatch.setattr(_kept, "_folded_at_once", lambda device: 4)
    values = torch.tensor([1.5, -2.0, float("nan"), 0.0, -0.0, 3e-42, 7.0])
    bits = [int.from_bytes(np.float32(value).tobytes(), "little") for value in values.tolist()]
    expected = sum((value + 1) * (2 * place + 1) for place, value in enumerate(bits)) % 2**64
    assert fold(values)[2] % 2**64 == expected
    big = torch.tensor([-1, 2**62, -(2**63)])
    assert fold(big)[2] % 2**64 == sum((value % 2**64 + 1) * (2 * place + 1) for place, value in enumerate(big.tolist())) % 2**64
    changes = [values.flip(0), values[:6], values.to(torch.bfloat16), values.view(7, 1), values.abs()]
    for kind in [torch.bool, torch.uint8, torch.int16, torch.float64, torch.complex64]:
        changes.append(torch.arange(7).to(kind))
    assert len({fold(change) for change in [values, *changes]}) == 11
    assert fold(values[::2]) == fold(values[::2].clone())
