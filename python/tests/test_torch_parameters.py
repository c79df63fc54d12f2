"""The parameters that a session trains: each once, frozen ones not at all, and those in half precision by float32 masters."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import numpy as np  # noqa: E402
import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402

from test_torch_unit import EVERYONE, digest  # noqa: E402

QUIET = EVERYONE | {"privacy": {"noise_multiplier": 1e-3, "delta": 1e-6}, "clip": {"kind": "flat", "norm": 1e3}}


def private(out, inner, config=EVERYONE, users=4, **more):
    return udp.torch.PrivateOptimizer(inner, out=out, config=config, users=users, **more)


def layers():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def rounds(dp, model, x=None, last=None):
    x = torch.ones(3, 4) if x is None else x
    for round in dp:
        for unit in range(len(round.users)):
            with dp.unit(unit):
                model(x).float().square().sum().backward()
        dp.step()
        if round.index == last:
            return


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("of", [torch.optim.SGD, torch.optim.AdamW])
def test_a_frozen_layer_keeps_its_bytes_and_gets_no_noise(tmp_path, of, given):
    model = layers()
    model[0].requires_grad_(False)
    before = digest(model.parameters())
    inner = of(model.named_parameters(), lr=0.1, weight_decay=0.1)
    dp = private(tmp_path, inner, model=model if given else None)
    assert dp.session.dim == 10
    rounds(dp, model)
    after = digest(model.parameters())
    assert after[:2] == before[:2] and after[2] != before[2] and after[3] != before[3]
    run = dp.finish(model.state_dict())
    assert run.verify().holds and set(run.weights()) == {"2.weight", "2.bias"}
    assert np.array_equal(run.weights()["2.bias"], model[2].bias.detach().numpy())


def test_a_frozen_parameter_that_changed_is_refused(tmp_path):
    model = layers()
    model[0].requires_grad_(False)
    dp = private(tmp_path, torch.optim.SGD(model.named_parameters(), lr=0.1))
    rounds(dp, model, last=0)
    model[0].bias.data += 1.0
    with pytest.raises(ValueError, match="'0.bias' is not what it was before the first round, and no release trains it"):
        dp.finish(model.state_dict())
    next(iter(dp))
    with pytest.raises(RuntimeError, match="0.bias: a unit changed a tensor that no release trains"):
        dp.step()
    model[0].bias.data -= 1.0
    dp.finish(model.state_dict())


@pytest.mark.parametrize("frozen", [False, True])
def test_a_flag_that_changes_later_is_refused(tmp_path, frozen):
    model = layers()
    model[0].bias.requires_grad_(frozen)
    dp = private(tmp_path, torch.optim.SGD(model.named_parameters(), lr=0.1))
    next(iter(dp))
    expected = f"0.bias: requires_grad was {frozen} when the session was made, and is {not frozen} now"
    with pytest.raises(RuntimeError, match=expected), dp.unit(0):
        model[0].bias.requires_grad_(not frozen)
    for refused in (dp.step, lambda: dp.unit(1).__enter__()):
        with pytest.raises(RuntimeError, match=expected):
            refused()
    model[0].bias.requires_grad_(frozen)
    with dp.unit(0):
        pass
    dp.step()


def test_a_parameter_that_comes_into_the_optimizer_later_is_refused(tmp_path):
    """The optimizer would step it by the bare gradients of people."""
    model = layers()
    inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
    dp = private(tmp_path, inner)
    next(iter(dp))
    inner.add_param_group({"params": list(model[0].parameters())})
    with pytest.raises(RuntimeError, match="came into the optimizer after the session was made"):
        dp.step()


@pytest.mark.parametrize("named", [False, True])
def test_one_object_that_is_listed_twice_counts_once(tmp_path, named):
    parameter = torch.nn.Parameter(torch.zeros(3))
    listed = [("w", parameter), ("w2", parameter)] if named else [parameter, parameter]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner = torch.optim.SGD(listed, lr=1.0)
    dp = private(tmp_path, inner, QUIET)
    assert dp.session.dim == 3
    for round in dp:
        for unit in range(4):
            with dp.unit(unit):
                parameter.grad.fill_(1.0)
        dp.step()
        assert torch.allclose(parameter.detach(), torch.full((3,), -1.0 - round.index), atol=2.0)
        # Stepped once by what was released once.
        if round.index == 0:
            assert torch.equal(parameter.detach(), -parameter.grad)


def test_two_parameters_of_one_name_are_refused(tmp_path):
    """The optimizer would step both, and the session would bound and noise one of them alone."""
    models = layers(), layers()
    inner = torch.optim.SGD([pair for model in models for pair in model.named_parameters()], lr=0.1)
    with pytest.raises(ValueError, match="0.weight: two parameters of the optimizer have this name"):
        private(tmp_path, inner)
    assert not any(tmp_path.iterdir())


def test_overlapping_memory_is_refused(tmp_path):
    memory = torch.zeros(4, 6)
    of = lambda *tensors: torch.optim.SGD(
        [(name, torch.nn.Parameter(tensor)) for name, tensor in zip(["a", "b", "c"], tensors)], lr=0.1
    )
    columns = [memory[:, 0], memory[:, 1], memory[:, ::2]]
    for tensors, second, first in [
        ([memory, memory[1]], "b", "a"),
        ([memory[1], torch.zeros(2), memory], "c", "a"),
        ([memory[0], memory[1], memory[:, 3]], "c", "a"),
        ([columns[1], columns[0], columns[2]], "c", "b"),
        ([torch.zeros(1), torch.from_numpy(memory.numpy())[2:], memory[3, 2:4]], "c", "b"),
        ([memory.view(-1)[1:9], memory.view(torch.bfloat16).view(-1)[:4]], "b", "a"),
    ]:
        with pytest.raises(ValueError, match=f"^{second}: shares memory with {first}: give the optimizer one of them$"):
            private(tmp_path, of(*tensors))
    with pytest.raises(ValueError, match="^a: shares memory with itself"):
        private(tmp_path, of(torch.zeros(1).expand(3)))
    assert not any(tmp_path.iterdir())
    # Columns lie between one another and share nothing, and so do tied modules that hold one object.
    dp = private(tmp_path, of(*columns[:2], memory[:, 3::2]))
    assert dp.session.dim == 16
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert private(tmp_path / "tied", torch.optim.SGD(tied.named_parameters(), lr=0.1), model=tied).session.dim == 15


def test_parameters_of_other_types_are_refused(tmp_path):
    for given in (torch.zeros(2, dtype=torch.float64), torch.zeros(2, device="meta")):
        inner = torch.optim.SGD([("a", torch.nn.Parameter(torch.zeros(2))), ("b", torch.nn.Parameter(given))], lr=0.1)
        with pytest.raises(TypeError, match="b: expected a float32, bfloat16 or float16 parameter on cpu"):
            private(tmp_path, inner)
    with pytest.raises(ValueError, match="expected a parameter that asks for a gradient"):
        private(tmp_path, torch.optim.SGD(layers().requires_grad_(False).parameters(), lr=0.1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_updates_below_one_step_of_half_precision_add_up(tmp_path, dtype):
    parameter = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    other = torch.nn.Parameter(torch.ones(2))
    # A step of bfloat16 at 1 is 2^-7, and of float16 2^-10.
    lr = 2.0**-13
    inner = torch.optim.SGD([("half", parameter), ("whole", other)], lr=lr)
    quiet = QUIET | {"rounds": 60, "privacy": {"noise_multiplier": 1e-6, "delta": 1e-6}}
    dp = private(tmp_path, inner, quiet)
    for round in dp:
        for unit in range(4):
            with dp.unit(unit):
                assert parameter.grad.dtype == dtype and not parameter.grad.any()
                parameter.grad.fill_(1.0)
                other.grad.fill_(1.0)
        dp.step()
        master = inner.param_groups[0]["params"][0]
        assert master.dtype == torch.float32 and torch.equal(parameter.detach(), master.detach().to(dtype))
        if round.index == 0:
            assert torch.equal(parameter.detach(), torch.ones(3, dtype=dtype))
    assert torch.allclose(master.detach(), torch.full((3,), 1.0 - 60 * lr), atol=1e-5)
    assert torch.allclose(other.detach(), torch.full((2,), 1.0 - 60 * lr), atol=1e-5)
    assert (parameter.detach() < 1.0).all()
    run = dp.finish({"half": parameter.detach(), "whole": other.detach()})
    assert run.verify().holds and np.array_equal(run.weights()["half"], master.detach().numpy())


@pytest.mark.parametrize("of", [torch.optim.SGD, torch.optim.AdamW])
def test_local_training_of_half_precision_is_put_back_with_its_master(tmp_path, of):
    model = layers().to(torch.bfloat16)
    model[2].float()
    forward = model.forward
    model.forward = lambda x: model[2](model[1](model[0](x.bfloat16())).float())
    dp = private(tmp_path, of(model.named_parameters(), lr=0.1), model=model)
    next(iter(dp))
    masters = [parameter for group in dp.inner.param_groups for parameter in group["params"]]
    assert [parameter.dtype for parameter in masters] == [torch.float32] * 4
    before = digest([*masters, *(parameter.view(torch.int16) for parameter in model[0].parameters())])
    now = lambda: digest([*masters, *(parameter.view(torch.int16) for parameter in model[0].parameters())])
    with dp.unit(0):
        model.forward(torch.ones(1, 4)).sum().backward()
        for parameter in [*model.parameters(), *masters]:
            parameter.data += 1.0
        assert now() != before
    assert now() == before and forward is not None
    model[0].bias.data[1] += 1.0
    with pytest.raises(RuntimeError, match="0.bias: expected the parameter that the last step released"), dp.unit(1):
        pass
    model[0].bias.data[1] -= 1.0
    masters[1].data[0] += 1e-7
    with pytest.raises(RuntimeError, match="0.bias: expected the parameter that the last step released"):
        dp.step()


def test_gradients_in_half_precision_are_widened_exactly(tmp_path):
    parameter = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    dp = private(tmp_path, torch.optim.SGD([parameter], lr=1.0))
    next(iter(dp))
    values = torch.tensor([1.0078125, -3e-39, 3e38, -0.0])
    with dp.unit(0):
        parameter.grad.copy_(values)
    assert torch.equal(dp._flat.view(torch.int32), values.to(torch.bfloat16).float().view(torch.int32))


def test_a_resumed_session_with_masters_has_the_bytes_of_one_that_was_not(tmp_path):
    def made(out, resume=False):
        model = layers().to(torch.float16)
        inner = torch.optim.AdamW(model.named_parameters(), lr=1e-3)
        return model, private(out, inner, EVERYONE | {"rounds": 9}, model=model, resume=resume)

    x = torch.ones(3, 4, dtype=torch.float16)
    model, dp = made(tmp_path / "whole")
    rounds(dp, model, x)
    whole = dp.finish(model.state_dict())
    model, dp = made(tmp_path / "parts")
    rounds(dp, model, x, last=3)
    saved = model.state_dict(), dp.state_dict()
    torch.save(saved, tmp_path / "state.pt")
    dp.session.close()
    # Weights that a program loads after the session was made are the start.
    model, dp = made(tmp_path / "parts", resume=True)
    weights, state = torch.load(tmp_path / "state.pt")
    model.load_state_dict(weights)
    with pytest.raises(ValueError, match="masters: expected those of"):
        dp.load_state_dict(state | {"masters": {}})
    dp.load_state_dict(state)
    rounds(dp, model, x)
    parts = dp.finish(model.state_dict())
    for name in ["ledger.jsonl", "model.safetensors", "manifest.json"]:
        assert (whole.path / name).read_bytes() == (parts.path / name).read_bytes(), name


def test_a_second_session_on_one_optimizer_finds_the_parameters_behind_their_masters(tmp_path):
    model = layers().to(torch.bfloat16)
    inner = torch.optim.SGD(model.named_parameters(), lr=0.1)
    first = private(tmp_path / "first", inner)
    next(iter(first))
    second = private(tmp_path / "second", inner)
    rounds(second, model, torch.ones(3, 4, dtype=torch.bfloat16))
    masters = inner.param_groups[0]["params"]
    assert all(torch.equal(master.detach().bfloat16(), parameter) for master, parameter in zip(masters, model.parameters()))
    second.finish(model.state_dict())


def test_a_session_names_its_parameters_as_before(tmp_path):
    model = layers()
    dp = private(tmp_path, torch.optim.SGD([{"params": part.parameters()} for part in (model[0], model[2])], lr=0.1))
    rounds(dp, model)
    run = dp.finish()
    assert set(run.weights()) == {f"parameters.{place}" for place in range(4)}
    assert json.loads((run.path / "privacy.json").read_text())["private"]
