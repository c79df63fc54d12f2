"""Loss distributions on a grid against the engine of the accountants, and against hostile input."""

import math

import pytest

np = pytest.importorskip("numpy")
import undertone_dp as udp  # noqa: E402
from undertone_dp import dp_accounting as dp  # noqa: E402
from undertone_dp.dp_accounting.pld import pld_pmf  # noqa: E402
from undertone_dp.dp_accounting.pld import privacy_loss_distribution as made  # noqa: E402

STEP = 1e-3
MIXTURE = {"sensitivities": [0.0, 1.0, 2.0], "probabilities": [0.9, 0.07, 0.03]}

# An event, the same as a distribution on a grid for one kind of bound, and its rounds.
CASES = {
    "gaussian": (
        udp.Event.Gaussian(noise_multiplier=3.0),
        lambda upper: made.from_gaussian_mechanism(3.0, 1, upper, STEP),
        20,
    ),
    "sampled gaussian": (
        udp.Event.PoissonGaussian(sampling_probability=0.05, noise_multiplier=1.0),
        lambda upper: made.from_gaussian_mechanism(1.0, 1, upper, STEP, sampling_prob=0.05),
        50,
    ),
    "laplace": (
        udp.Event.Laplace(scale=4.0),
        lambda upper: made.from_laplace_mechanism(4.0, 1, upper, STEP),
        10,
    ),
    "sampled discrete laplace": (
        udp.Event.PoissonSampled(
            sampling_probability=0.2, event=udp.Event.DiscreteLaplace(parameter=0.3, sensitivity=2)
        ),
        lambda upper: made.from_discrete_laplace_mechanism(0.3, 2, upper, STEP, 0.2),
        10,
    ),
    "discrete gaussian": (
        udp.Event.DiscreteGaussian(sigma=5.0, sensitivity=1),
        lambda upper: made.from_discrete_gaussian_mechanism(5.0, 1, None, upper, STEP),
        10,
    ),
    "mixture": (
        udp.Event.MixtureOfGaussians(noise_multiplier=1.5, **MIXTURE),
        lambda upper: made.from_mixture_gaussian_mechanism(1.5, *MIXTURE.values(), upper, STEP),
        10,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_both_kinds_of_bound_hold_what_the_engine_proves(name):
    event, make, rounds = CASES[name]
    spent, enough = udp.Accountant("pld").compose(event, rounds).bounds(1e-6)
    above = make(True).self_compose(rounds).get_epsilon_for_delta(1e-6)
    below = make(False).self_compose(rounds).get_epsilon_for_delta(1e-6)
    assert spent <= above * (1 + 1e-9) and below <= enough * (1 + 1e-9)
    assert above - below < 1.01 * 2 * STEP * rounds


def test_replacement_of_a_gaussian_is_one_of_half_the_noise():
    replaced = made.from_gaussian_mechanism(4.0, neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    assert replaced.get_epsilon_for_delta(1e-6) == pytest.approx(udp.gaussian.epsilon(2.0, 1e-6), abs=1e-7)


def test_truncated_samples_cost_at_least_what_the_engine_proves():
    event = udp.Event.TruncatedPoissonGaussian(
        population=1000, sampling_probability=0.1, max_cohort_size=105, noise_multiplier=1.0
    )
    grid = made.from_truncated_subsampled_gaussian_mechanism(1000, 0.1, 105, 1.0, STEP).self_compose(10)
    ours = udp.Accountant("pld").compose(event, 10).epsilon(1e-6)
    assert ours <= grid.get_epsilon_for_delta(1e-6) < 1.2 * ours
    whole = made.from_truncated_subsampled_gaussian_mechanism(1000, 0.1, 1000, 1.0, STEP)
    plain = made.from_gaussian_mechanism(1.0, value_discretization_interval=STEP, sampling_prob=0.1)
    assert whole.get_delta_for_epsilon(1.0) == pytest.approx(plain.get_delta_for_epsilon(1.0), rel=1e-9)


def test_a_distribution_function_gives_both_bounds():
    normal = lambda loss: 0.5 * math.erfc((0.5 - loss) / math.sqrt(2))  # noqa: E731
    above, below = (made.create_from_cdf(normal, upper, STEP) for upper in (True, False))
    exact = udp.gaussian.delta(1.0, 1.0)
    assert below.get_delta_for_epsilon(1.0) <= exact <= above.get_delta_for_epsilon(1.0)
    assert above.get_delta_for_epsilon(1.0) - below.get_delta_for_epsilon(1.0) < STEP


def test_statements_and_answers_have_their_own_loss():
    stated = made.from_privacy_parameters(dp.pld.common.DifferentialPrivacyParameters(1.0, 1e-3))
    assert stated.get_delta_for_epsilon(1.0) == pytest.approx(1e-3, abs=1e-9)
    answer = made.from_randomized_response(0.4, 3)
    assert answer.get_epsilon_for_delta(0) == pytest.approx(math.log(1 + 3 * 0.6 / 0.4), abs=1e-4)


def test_the_smallest_noise_holds_its_target():
    target = dp.pld.common.DifferentialPrivacyParameters(1.0, 1e-5)
    z = dp.pld.accountant.get_smallest_subsampled_gaussian_noise(target, 20, sampling_prob=0.1)
    event = lambda z: udp.Event.PoissonGaussian(sampling_probability=0.1, noise_multiplier=z)  # noqa: E731
    delta = lambda z: udp.Accountant("pld").compose(event(z), 20).delta(1.0)  # noqa: E731
    assert delta(z) <= 1e-5 < delta(z * (1 - 1e-6))


def test_hostile_input_is_refused():
    with pytest.raises(udp.AccountingError, match="probability: expected a finite number >= 0, got -0.5"):
        udp.GridPld(1.0, 0, np.array([-0.5]))
    with pytest.raises(udp.AccountingError, match="step: expected a finite number > 0, got 0"):
        udp.GridPld(0.0, 0, np.array([0.5]))
    with pytest.raises(TypeError, match="probabilities: expected a contiguous float64 buffer"):
        udp.GridPld(1.0, 0, np.array([1, 0]))
    with pytest.raises(ValueError, match="losses: expected a span of less than"):
        pld_pmf.SparsePLDPmf({0: 0.5, 1 << 40: 0.5}, 1.0, 0.0, True).get_epsilon_for_delta(0.1)
    with pytest.raises(ValueError, match="at most 134217728 points"):
        udp.GridPld.rounded(1e-9, np.array([-5.0, 5.0]), np.array([0.5, 0.5]))
    with pytest.raises(ValueError, match="cdf: expected losses within"):
        made.create_from_cdf(lambda loss: 0.5)
