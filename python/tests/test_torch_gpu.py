"""Sums on a GPU. Skipped on machines without one; `bench/gpu.py` asks the same of larger models."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no GPU is at hand", allow_module_level=True)

import undertone_dp as udp  # noqa: E402
import undertone_dp.torch  # noqa: E402
from test_torch_sum import CLIPS, SEEDED, SHAPES, USERS, one_round, updates, with_wrong_norms  # noqa: E402
from undertone_dp._gpu import GpuSum  # noqa: E402


def optimizer(out, *, on_gpu, **changes):
    parameters = [(f"p{place}", torch.nn.Parameter(torch.zeros(shape, device="cuda"))) for place, shape in enumerate(SHAPES)]
    inner = torch.optim.SGD(parameters, lr=0.1)
    return udp.torch.PrivateOptimizer(inner, out=out, config=SEEDED | changes, users=USERS, sum_on_gpu=on_gpu)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("clip", CLIPS)
def test_a_round_has_the_bits_of_the_host(tmp_path, clip, reports, kernels):
    digests = {}
    for on_gpu in (None, False):
        dp = optimizer(tmp_path / str(on_gpu), on_gpu=on_gpu, **CLIPS[clip])
        digests[on_gpu] = []
        for round in dp:
            assert (dp._sum is None) == (on_gpu is False)
            if on_gpu is None and not kernels:
                dp._sum = GpuSum(dp._flat, round._gpu_groups(), kernels=False)
            # Without reports the program never waits for a unit.
            given = updates().roll(round.index, 0).cuda()
            digests[on_gpu].append(one_round(dp, round, given, reports=reports)[1].sha256)
    assert digests[None] == digests[False]


def test_a_wrong_norm_of_the_audited_unit_stops_the_round(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    audited = with_wrong_norms(dp)
    with dp.unit(audited):
        dp._flat.fill_(0.25)
    with pytest.raises(udp.SessionError, match=f"norm of unit {audited} differs from the exact norm"):
        dp.step()
    with pytest.raises(udp.SessionError, match="gave a wrong norm or sum"):
        dp.step()


@pytest.mark.parametrize("fused", [True, False])
def test_a_unit_leaves_neither_local_training_nor_a_state_of_the_generator(tmp_path, fused):
    dp = optimizer(tmp_path, on_gpu=True)
    parameters = [parameter for group in dp.inner.param_groups for parameter in group["params"]]
    for round in dp:
        before = [parameter.detach().clone() for parameter in parameters]
        state, drawn = torch.cuda.get_rng_state(), []
        for unit in range(4):
            with dp.unit(unit):
                drawn.append(torch.rand(2, device="cuda").tolist())
                dp._flat.fill_(0.5)
                torch.optim.Adam(parameters, lr=0.1, fused=fused).step()
            assert all(torch.equal(one, other) for one, other in zip(parameters, before))
        assert torch.equal(torch.cuda.get_rng_state(), state) and len(set(map(tuple, drawn))) == 4
        dp.step()


def test_a_change_between_units_is_named_before_its_unit_counts(tmp_path):
    dp = optimizer(tmp_path, on_gpu=True)
    parameters = [parameter for group in dp.inner.param_groups for parameter in group["params"]]
    next(iter(dp))
    parameters[1].data[2] += 1e-7
    with dp.unit(0):
        dp._flat.fill_(0.1)
    with pytest.raises(RuntimeError, match="p1: expected the parameter that the last step released"), dp.unit(1):
        dp._flat.fill_(0.1)
    parameters[2].data[3] += 1e-7
    with pytest.raises(RuntimeError, match="p2: expected the parameter that the last step released"):
        dp.step()
