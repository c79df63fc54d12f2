"""The accountant inside Opacus."""

import math

import pytest

import undertone_dp as udp

pytest.importorskip("opacus")


def test_it_is_registered_once_under_a_name():
    import undertone_dp.opacus as bridge

    bridge.register("undertone-twice")
    with pytest.raises(ValueError, match="already registered"):
        bridge.register("undertone-twice")
    bridge.register("undertone-twice", force=True)


def test_it_accounts_for_a_training_and_calibrates():
    import torch
    from opacus import PrivacyEngine
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier

    import undertone_dp.opacus as bridge

    bridge.register(force=True)
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(256, 3), torch.randint(0, 2, (256,)))
    model = torch.nn.Linear(3, 2)
    engine = PrivacyEngine(accountant="undertone")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=32),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
    )
    for features, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    steps = len(engine.accountant)
    assert steps == 8
    theirs = PRVAccountant()
    theirs.history = list(engine.accountant.history)
    lower, upper = engine.accountant.get_epsilon_bounds(1e-5)
    assert engine.get_epsilon(1e-5) == upper
    # Theirs may err by its own tolerance of 0.01.
    assert lower <= upper <= theirs.get_epsilon(1e-5) + 1e-9 or math.isclose(upper, theirs.get_epsilon(1e-5), abs_tol=0.01)
    event = udp.Event.PoissonGaussian(sampling_probability=1 / 8, noise_multiplier=1.1)
    assert udp.Accountant("pld").compose(event, steps).epsilon(1e-5) == upper
    calibrated = get_noise_multiplier(
        target_epsilon=2.0, target_delta=1e-5, sample_rate=0.05, steps=100, accountant="undertone", epsilon_tolerance=0.05
    )
    own = udp.Event.PoissonGaussian(sampling_probability=0.05, noise_multiplier=calibrated)
    assert 1.9 <= udp.Accountant("pld").compose(own, 100).epsilon(1e-5) <= 2.0
    # The optimizer's normaliser follows from the number of examples, and Opacus's own loader is known to the checker.
    report = udp.check.loader(loader, claimed=event, optimizer=optimizer)
    assert [finding.rule for finding in report.errors] == ["normaliser-follows-the-data"]
    assert report.event == event


def test_steps_without_noise_cost_everything():
    import undertone_dp.opacus as bridge
    from opacus.accountants import create_accountant

    bridge.register(force=True)
    accountant = create_accountant("undertone")
    accountant.step(noise_multiplier=0.0, sample_rate=0.1)
    assert accountant.get_epsilon(1e-5) == math.inf
    assert len(accountant) == 1 and accountant.mechanism() == "undertone"
