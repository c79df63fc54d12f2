"""`replay` makes a unit twice, before and after another: what depends on other units differs, and what does not is equal to the bit."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402

from test_torch_unit import EVERYONE, digest  # noqa: E402

USERS = 12


def data(user):
    return torch.sin(torch.arange(20.0).view(5, 4) * (user + 1))


def private(out, model, given=False, users=USERS, **more):
    inner = torch.optim.SGD(model.named_parameters(), lr=0.1)
    return udp.torch.PrivateOptimizer(
        inner, out=out, config=EVERYONE, users=users, model=model if given else None, **more
    )


def running_mean():
    """Statistics that a pass in training mode collects, and a pass in evaluation mode reads."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))

    def body(unit):
        model.train()
        model(data(unit))
        model.eval()
        model(data(unit)).square().mean().backward()

    return model, body


def variates():
    """Control variates as SCAFFOLD keeps them, if each person corrects those of the server at once."""
    model = torch.nn.Linear(4, 1)
    variates = [torch.zeros_like(parameter) for parameter in model.parameters()]

    def body(unit):
        model(data(unit)).square().mean().backward()
        for parameter, variate in zip(model.parameters(), variates):
            variate += 0.1 * parameter.grad
            parameter.grad -= variate

    return model, body


def optimizer_state():
    """A local optimizer with momentum, which is made once for all people."""
    model = torch.nn.Linear(4, 1)
    local = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)

    def body(unit):
        start = [parameter.detach().clone() for parameter in model.parameters()]
        for _ in range(2):
            for parameter in model.parameters():
                parameter.grad.zero_()
            model(data(unit)).square().mean().backward()
            local.step()
        for parameter, before in zip(model.parameters(), start):
            parameter.grad.copy_(before - parameter.detach())

    return model, body


def spectral_norm():
    """An estimate of the largest singular value, which each pass improves."""
    layer = torch.nn.Linear(4, 4)
    with torch.no_grad():
        # Two values that lie close, so that the estimate takes long.
        layer.weight.copy_(torch.linalg.qr(torch.randn(4, 4))[0] @ torch.diag(torch.tensor([1.0, 0.99, 0.5, 0.2])))
    layer = torch.nn.utils.parametrizations.spectral_norm(layer)
    model = torch.nn.Sequential(layer, torch.nn.Linear(4, 1))

    def body(unit):
        model(data(unit)).square().mean().backward()

    return model, body


@pytest.mark.parametrize("kind", [running_mean, variates, optimizer_state, spectral_norm])
def test_a_unit_that_depends_on_units_before_it_is_found(tmp_path, kind):
    torch.manual_seed(4)
    model, body = kind()
    dp = private(tmp_path, model)
    for round in dp:
        for unit in range(4):
            with dp.unit(unit):
                body(unit)
        before = digest(model.parameters())
        with pytest.raises(RuntimeError, match=r"^unit 7 depends on the units before it: \S+ differs$"):
            dp.replay(7, body)
        assert digest(model.parameters()) == before and not dp._flat.any()
        # Nothing was added: the unit can still contribute.
        with dp.unit(7):
            body(7)
        break


@pytest.mark.parametrize("kind", [running_mean, spectral_norm])
def test_buffers_of_a_model_that_is_given_make_no_unit_depend_on_another(tmp_path, kind):
    torch.manual_seed(4)
    model, body = kind()
    dp = private(tmp_path, model, given=True)
    for round in dp:
        for unit in range(USERS):
            with dp.unit(unit):
                body(unit)
        dp.replay(round.index, body)
        dp.step()
    dp.finish(model.state_dict())


def honest(kind, seed):
    torch.manual_seed(seed)
    width = 2 + seed % 5
    parts = [torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)]
    if kind == "dropout":
        parts.insert(1, torch.nn.Dropout(0.4))
    if kind == "norm":
        # Its statistics are collected and not read.
        parts.insert(1, torch.nn.BatchNorm1d(width))
    model = torch.nn.Sequential(*parts)

    def plain(unit):
        model(data(unit)).square().mean().backward()

    def noisy(unit):
        (model(data(unit) + torch.randn(5, 4)) * torch.rand(())).square().mean().backward()

    def local(unit):
        start = [parameter.detach().clone() for parameter in model.parameters()]
        inner = torch.optim.Adam(model.parameters(), lr=0.1, fused=seed % 2 == 0)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad.zero_()
            plain(unit)
            inner.step()
        for parameter, before in zip(model.parameters(), start):
            parameter.grad.copy_(before - parameter.detach())

    return model, {"noisy": noisy, "local": local}.get(kind, plain)


@pytest.mark.parametrize("rng", ["own", "caller"])
@pytest.mark.parametrize("kind", ["plain", "dropout", "norm", "noisy", "local"])
def test_no_honest_unit_of_50_is_accused(tmp_path, kind, rng):
    for seed in range(5):
        model, body = honest(kind, seed)
        dp = private(tmp_path / str(seed), model, rng=rng)
        round = next(iter(dp))
        for unit in range(USERS):
            with dp.unit(unit):
                body(unit)
        dp.replay(seed, body)
        dp.step()
        assert round.index == 0


def test_replay_adds_nothing_and_changes_nothing(tmp_path):
    released = []
    for replays in (0, 2):
        model, body = honest("local", 1)
        dp = private(tmp_path / str(replays), model)
        for round in dp:
            for unit in range(USERS):
                for _ in range(replays):
                    dp.replay((unit + 3) % USERS, body)
                with dp.unit(unit):
                    body(unit)
            released.append(dp.step().sha256)
    assert released[:4] == released[4:]


def test_units_that_the_round_does_not_have_are_refused(tmp_path):
    model, body = honest("plain", 0)
    dp = private(tmp_path, model, users=1)
    with pytest.raises(RuntimeError, match="expected an open round"):
        dp.replay(0, body)
    next(iter(dp))
    for unit in (-1, 1):
        with pytest.raises(ValueError, match=f"expected a unit from 0 to 0, got {unit}"):
            dp.replay(unit, body)
    # Where there is no other unit, a unit is compared with itself after itself.
    dp.replay(0, body)
    with pytest.raises(KeyError):
        dp.replay(0, {}.__getitem__)
    dp.step()
