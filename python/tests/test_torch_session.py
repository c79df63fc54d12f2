"""Training with PyTorch through a session."""

import json
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402

from test_session import CONFIG, USERS, binary  # noqa: E402


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def twin_of_the_run_file():
    """A model with as many parameters as that of the run file: the roundings that epsilon counts depend on their number."""
    return torch.nn.Linear(460, 128)


def loss_of(model, user, places):
    x = torch.stack([torch.sin(torch.arange(4.0) * (user % 29) + place) for place in places.tolist()])
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def optimizer(out, model, **changes):
    inner = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    return udp.torch.PrivateOptimizer(inner, out=out, config=CONFIG | changes, users=USERS)


def train(dp, model, last=None):
    for round in dp:
        for unit, user in enumerate(round.users):
            with dp.unit(unit):
                loss_of(model, user, round.choose(user, 7)).backward()
        dp.step()
        if round.index == last:
            break


def test_uls_with_blt_noise_has_the_guarantee_of_its_twin(tmp_path):
    model = twin_of_the_run_file()
    dp = optimizer(tmp_path, model)
    assert dp.session.planned.epsilon == 4.905382355592794
    for round in dp:
        for unit, user in enumerate(round.users):
            with dp.unit(unit):
                places = torch.tensor(round.choose(user, 7).tolist())
                x = torch.sin(torch.arange(460.0) * (user % 29) + places[:, None])
                model(x).square().mean().backward()
        dp.step()
    folder = dp.finish(model.state_dict()).path
    report = json.loads((folder / "privacy.json").read_text())
    assert report["observed"]["epsilon"] == 4.905382355592794
    if binary() is None:
        pytest.skip("no binary of the command line is at hand")
    shown = subprocess.run([binary(), "verify", str(folder)], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_gradients_are_the_memory_of_the_session(tmp_path):
    model = make_model()
    dp = optimizer(tmp_path, model)
    start = dp._flat.data_ptr()
    addresses = [parameter.grad.data_ptr() for parameter in model.parameters()]
    sizes = [parameter.numel() * 4 for parameter in model.parameters()]
    assert addresses == [start + sum(sizes[:place]) for place in range(len(sizes))]
    round = next(iter(dp))
    with dp.unit(0):
        loss_of(model, round.users.tolist()[0], round.choose(round.users.tolist()[0], 7)).backward()
    norm = torch.linalg.vector_norm(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert abs(dp.last.norm - norm.item()) < 1e-5 * norm.item()
    released = dp.step()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert abs(torch.linalg.vector_norm(flat).item() - released.norm) < 1e-5 * released.norm
    assert [parameter.grad.data_ptr() for parameter in model.parameters()] == addresses


def test_gradients_that_are_elsewhere_are_refused(tmp_path):
    model = make_model()
    dp = optimizer(tmp_path, model)
    round = next(iter(dp))
    user = round.users.tolist()[0]
    with pytest.raises(RuntimeError, match="no longer the memory of the session"), dp.unit(0):
        for parameter in model.parameters():
            parameter.grad = None
        loss_of(model, user, round.choose(user, 7)).backward()
    # The unit has not contributed, and can.
    with pytest.raises(KeyError), dp.unit(0):
        raise KeyError("a failed forward pass")
    with dp.unit(0):
        loss_of(model, user, round.choose(user, 7)).backward()
    with pytest.raises(udp.ParticipationError), dp.unit(0):
        pass


def local_training(model, user, places):
    """Two steps on the parameters, whose difference becomes the gradient; nothing is put back here."""
    parameters = list(model.parameters())
    start = [parameter.detach().clone() for parameter in parameters]
    for _ in range(2):
        gradients = torch.autograd.grad(loss_of(model, user, places), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter -= 0.1 * gradient
    for parameter, before in zip(parameters, start):
        parameter.grad.copy_(before - parameter.detach())


def test_local_training_stays_in_its_unit(tmp_path):
    model = make_model()
    dp = optimizer(tmp_path, model)
    round = next(iter(dp))
    start = [parameter.detach().clone() for parameter in model.parameters()]
    unchanged = lambda: all(torch.equal(a, b) for a, b in zip(model.parameters(), start))
    for unit, user in enumerate(round.users):
        with dp.unit(unit):
            assert unchanged()
            local_training(model, user, round.choose(user, 7))
            assert not unchanged()
        assert unchanged()
        if unit == 0:
            with pytest.raises(KeyError), dp.unit(1):
                local_training(model, user, round.choose(user, 7))
                raise KeyError
            assert unchanged()
    with torch.no_grad():
        model[0].weight += 1.0
    with pytest.raises(RuntimeError, match="expected the parameter that the last step released"), dp.unit(0):
        pass
    with pytest.raises(RuntimeError, match="change parameters in a unit"):
        dp.step()


def test_statistics_of_batches_are_not_part_of_the_model(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    dp = optimizer(tmp_path, model)
    next(iter(dp))
    dp.step()
    with pytest.raises(ValueError, match="1.running_mean"):
        dp.finish(model.state_dict())
    dp.finish()


def test_seeded_runs_are_equal_also_when_one_is_killed(tmp_path):
    torch.set_num_threads(1)
    model = make_model()
    dp = optimizer(tmp_path / "whole", model, seed=11, rounds=25)
    train(dp, model)
    dp.finish(model.state_dict())
    program = f"""
import os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import test_torch_session as t
t.torch.set_num_threads(1)
model = t.make_model()
dp = t.optimizer({str(tmp_path / "parts")!r}, model, seed=11, rounds=25)
t.train(dp, model, last=16)
t.torch.save([model.state_dict(), dp.inner.state_dict()], {str(tmp_path / "state.pt")!r})
with_open_round = next(iter(dp))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    dp = udp.torch.PrivateOptimizer(
        inner, out=tmp_path / "parts", config=CONFIG | {"seed": 11, "rounds": 25}, users=USERS, resume=True
    )
    saved = torch.load(tmp_path / "state.pt")
    model.load_state_dict(saved[0])
    inner.load_state_dict(saved[1])
    assert dp.session.round == 17
    train(dp, model)
    dp.finish(model.state_dict())
    for name in ["ledger.jsonl", "model.safetensors", "privacy.json", "manifest.json"]:
        first, second = ((tmp_path / run / "uls-blt" / name).read_bytes() for run in ("whole", "parts"))
        assert first == second, name
