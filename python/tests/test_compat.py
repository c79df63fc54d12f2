"""`undertone_dp.dp_accounting` against values and tests of dp-accounting 0.6.0, and against its own contract."""

import copy
import json
import math
import pathlib
import pickle
import statistics
import subprocess
import sys
import warnings

import peer
import pytest

np = pytest.importorskip("numpy")
from undertone_dp import dp_accounting as dp  # noqa: E402

ORACLES = json.loads((pathlib.Path(__file__).parent / "oracles.json").read_text())
KINDS = {"pld": dp.pld.PLDAccountant, "rdp": dp.rdp.RdpAccountant}


def scope():
    return {name: getattr(dp, name) for name in dp.__all__}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: f"{oracle['accountant']} {oracle['event']}")
def test_epsilon_is_at_most_that_of_the_original_and_near_it(oracle):
    relation = dp.NeighboringRelation[oracle["relation"]]
    accountant = KINDS[oracle["accountant"]](neighboring_relation=relation)
    accountant.compose(eval(oracle["event"], scope()), oracle["count"])
    ours, theirs = accountant.get_epsilon(oracle["delta"]), oracle["epsilon"]
    if oracle["accountant"] == "pld" and "Randomized" in oracle["event"] and oracle["count"] > 1:
        # The original forgets the number of releases. Ours pays for each of them.
        assert ours > 2 * theirs
        return
    assert ours <= theirs * (1 + 1e-6)
    if oracle["accountant"] == "rdp":
        assert ours >= theirs * (1 - 1e-6)
    else:
        spent, enough = accountant.get_epsilon_bounds(oracle["delta"])
        assert spent <= theirs * (1 + 1e-9) and enough == ours


def test_the_exponential_mechanism_pays_for_each_release():
    event = dp.dp_event.ExponentialMechanismDpEvent(0.5)
    one_by_one = dp.rdp.RdpAccountant()
    for _ in range(100):
        one_by_one.compose(event)
    counted = dp.rdp.RdpAccountant().compose(event, 100)
    assert counted.get_epsilon(1e-6) == pytest.approx(one_by_one.get_epsilon(1e-6), rel=1e-12)
    # The original states 0.506.
    assert counted.get_epsilon(1e-6) > 15


def test_events_of_unknown_kinds_are_refused_and_change_nothing():
    accountant = dp.pld.PLDAccountant().compose(dp.GaussianDpEvent(2.0))
    before = accountant.get_epsilon(1e-6)
    mixed = dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.UnsupportedDpEvent()])
    assert not accountant.supports(mixed)
    with pytest.raises(dp.UnsupportedEventError, match="caused by subevent UnsupportedDpEvent"):
        accountant.compose(mixed)
    assert accountant.get_epsilon(1e-6) == before and accountant.ledger == dp.GaussianDpEvent(2.0)


def test_edges():
    for accountant in [dp.pld.PLDAccountant(), dp.rdp.RdpAccountant()]:
        assert accountant.get_epsilon(0) == accountant.get_delta(0) == 0
        accountant.compose(dp.LaplaceDpEvent(2.0), 3)
        assert accountant.get_epsilon(1) == 0
        accountant.compose(dp.GaussianDpEvent(0.0))
        assert accountant.get_epsilon(0.5) == math.inf and accountant.get_delta(9) == 1
    mixed = dp.pld.PLDAccountant().compose(dp.DiscreteLaplaceDpEvent(0.64, 2), 6).compose(dp.LaplaceDpEvent(20.0))
    assert mixed.get_epsilon(1e-9) <= 6 * 1.28 + 0.05 + 1e-12
    pure = dp.pld.PLDAccountant().compose(dp.LaplaceDpEvent(2.0), 3)
    assert pure.get_epsilon(0) == 1.5 and pure.get_delta(1.5) == 0


@pytest.mark.parametrize("kind", list(KINDS))
def test_both_accountants_answer_about_a_statement(kind):
    stated = KINDS[kind]().compose(dp.EpsilonDeltaDpEvent(0.1, 1e-5))
    assert stated.get_epsilon(1e-6) == stated.get_epsilon(0) == math.inf
    assert 0.09 < stated.get_epsilon(1.1e-5) < 0.11
    assert 1e-6 < stated.get_delta(0.2) < 1.1e-5 < stated.get_delta(0.0) < 0.06 < stated.get_delta(-1.0) < 1


def test_calibration_holds_its_target():
    def event(z):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(z)), 100)

    z = dp.calibrate_dp_mechanism(dp.rdp.RdpAccountant, event, 1.0, 1e-6)
    at = lambda z: dp.rdp.RdpAccountant().compose(event(z)).get_epsilon(1e-6)  # noqa: E731
    assert at(z) <= 1 < at(z - 1e-5)
    most = dp.calibrate_dp_mechanism(
        dp.rdp.RdpAccountant, lambda n: dp.SelfComposedDpEvent(dp.GaussianDpEvent(8.0), n), 2.0, 1e-6,
        dp.ExplicitBracketInterval(1, 1000), discrete=True,
    )
    at = lambda n: dp.rdp.RdpAccountant().compose(dp.GaussianDpEvent(8.0), n).get_epsilon(1e-6)  # noqa: E731
    assert isinstance(most, int) and at(most) <= 2 < at(most + 1)


def test_named_tuples_there_and_back():
    event = dp.ComposedDpEvent([dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1.0), 2), dp.ZCDpEvent(0.1)])
    stored = event.to_named_tuple()
    assert isinstance(stored, tuple) and stored.class_name == "ComposedDpEvent"
    assert dp.DpEvent.from_named_tuple(stored) == event
    with pytest.raises(ValueError, match="expected an event class"):
        dp.DpEvent.from_named_tuple(stored._replace(module_name="os", class_name="system"))


def test_true_positive_rates_are_those_of_a_gaussian():
    accountant = dp.pld.PLDAccountant().compose(dp.GaussianDpEvent(2.0), 4)
    # One Gaussian of noise 1: the best test at a rate `a` finds `Phi(Phi^-1(a) + 1)`.
    normal = statistics.NormalDist()
    want = [normal.cdf(normal.inv_cdf(rate) + 1) for rate in (0.01, 0.3)]
    got = accountant.get_true_positive_rates([0.01, 0.3])
    assert got == pytest.approx(want, rel=1e-6) and (got >= np.array(want) - 1e-12).all()
    grid = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(1.0)
    got = grid.get_true_positive_rates([0.01, 0.3])
    assert got == pytest.approx(want, rel=1e-6) and (got >= np.array(want) - 1e-12).all()


def test_true_positive_rates_of_a_distribution_are_those_of_its_outcomes():
    # The best test of a fair coin against one of 0.1: it rejects at the outcome of the larger ratio, then at the other.
    masses = ({0: math.log(0.5), 1: math.log(0.5)}, {0: math.log(0.1), 1: math.log(0.9)})
    pld = dp.pld.privacy_loss_distribution.from_two_probability_mass_functions(*masses, symmetric=False)
    found = lambda one, other, rate: min(one[1] / other[1] * rate, 1 - one[0] / other[0] * (1 - rate))  # noqa: E731
    coins = ((0.1, 0.9), (0.5, 0.5))
    for rate in (0.0, 0.05, 0.3, 0.7, 1.0):
        want = max(found(coins[0], coins[1], rate), found(coins[1][::-1], coins[0][::-1], rate))
        assert float(pld.get_true_positive_rates(rate)) == pytest.approx(want, abs=2e-4)
        assert float(pld.get_true_positive_rates(rate)) >= want - 1e-12
    with pytest.raises(ValueError, match="must be probabilities"):
        pld.get_true_positive_rates([0.5, 1.5])


@pytest.mark.parametrize("mu", [0.05, 1.0, 5.0])
def test_gaussians_have_their_own_gdp_parameter(mu):
    accountant = dp.pld.PLDAccountant().compose(dp.GaussianDpEvent(2 / mu), 4)
    grid = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(1 / mu)
    for found in [accountant.get_gdp_parameter_estimate(), grid.get_gdp_parameter_estimate()]:
        assert mu * (1 - 1e-9) <= found <= mu * (1 + 2e-3)
    # Fewer statements leave more to a test, and fewer rates hide more of it.
    coarse = accountant.get_gdp_parameter_estimate(deltas=[1e-12, 1e-6, 1e-3])
    assert coarse > accountant.get_gdp_parameter_estimate()
    assert accountant.get_gdp_parameter_estimate([0.1], [1e-12, 1e-6, 1e-3]) <= coarse


def test_gdp_parameters_of_other_events():
    assert dp.pld.PLDAccountant().get_gdp_parameter_estimate() == 0
    assert dp.pld.PLDAccountant().compose(dp.NonPrivateDpEvent()).get_gdp_parameter_estimate() == math.inf
    # Losses are infinite with probability 1e-6: no Gaussian is as bad at rates below.
    stated = dp.pld.PLDAccountant().compose(dp.EpsilonDeltaDpEvent(1.0, 1e-6))
    assert stated.get_gdp_parameter_estimate() == math.inf
    # The best test finds `e^eps rate + delta`, or misses `e^-eps (1 - rate - delta)`.
    normal = statistics.NormalDist()
    want = max(
        -normal.inv_cdf(max(1 - math.e * rate - 1e-6, math.exp(-1) * (1 - rate - 1e-6))) - normal.inv_cdf(rate)
        for rate in (1e-3, 0.2)
    )
    assert stated.get_gdp_parameter_estimate([1e-3, 0.2]) == pytest.approx(want, rel=2e-3)
    for rates, deltas in [([0.0], None), ([0.5, 1.0], None), ([], None), ([0.1], [1.5]), ([math.nan], None)]:
        with pytest.raises(ValueError, match="must be probabilities"):
            stated.get_gdp_parameter_estimate(rates, deltas)


def layer(kind):
    """Cases of the reference whose outputs have this key."""
    path = pathlib.Path(__file__).parents[2] / "vectors/accounting-2.json"
    cases = [case for case in json.loads(path.read_text()) if case["family"] == "dp_accounting_layer"]
    cases = [case for case in cases if kind in case["outputs"]]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["id"])


def event_of(stated):
    """The event and its count of a list such as `["LaplaceDpEvent", 2.0, 5]`: the class, its arguments, and a count unless it is one."""
    name, *values = stated
    taken = {"GaussianDpEvent": 1, "LaplaceDpEvent": 1, "PoissonSampledDpEvent": 2, "RepeatAndSelectDpEvent": 3}[name]
    arguments = [event_of(value)[0] if isinstance(value, list) else value for value in values[:taken]]
    return getattr(dp, name)(*arguments), *(values[taken:] or [1])


def accountant_of(given):
    accountant = KINDS["pld" if given["accountant"] == "PLDAccountant" else "rdp"](
        neighboring_relation=dp.NeighboringRelation[given["relation"]]
    )
    for stated in given["events"]:
        accountant.compose(*event_of(stated))
    return accountant


@layer("epsilon")
def test_the_factor_of_replace_one_belongs_to_each_event(case):
    got, want = accountant_of(case["inputs"]).get_epsilon(case["inputs"]["delta"]), case["outputs"]["epsilon"]
    assert got == pytest.approx(want, rel=case["rtol"])


@pytest.mark.parametrize("kind", ["LaplaceDpEvent", "DiscreteLaplaceDpEvent", "DiscreteGaussianDpEvent", "RepeatAndSelectDpEvent"])
def test_noise_is_relative_to_the_sensitivity_of_the_relation(kind):
    events = {
        "LaplaceDpEvent": dp.LaplaceDpEvent(2.0),
        "DiscreteLaplaceDpEvent": dp.DiscreteLaplaceDpEvent(0.3, 2),
        "DiscreteGaussianDpEvent": dp.DiscreteGaussianDpEvent(3.0, 1),
        "RepeatAndSelectDpEvent": dp.RepeatAndSelectDpEvent(dp.LaplaceDpEvent(2.0), 3, 1),
    }
    # Orders with infinity: the pure epsilon is that of the same event.
    orders = [2.0, 8.0, 512.0, math.inf]
    relations = (dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE)
    added, replaced = (dp.rdp.RdpAccountant(orders, relation).compose(events[kind], 5) for relation in relations)
    assert replaced.rdp.tolist() == pytest.approx(added.rdp.tolist(), rel=1e-12)
    for delta in (0.0, 1e-9, 1e-5):
        assert replaced.get_epsilon(delta) == pytest.approx(added.get_epsilon(delta), rel=1e-12)


def test_events_without_a_factor_of_their_own_are_refused_under_replace_one():
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    for event in (dp.DiscreteLaplaceDpEvent(0.3, 3), dp.TruncatedSubsampledGaussianDpEvent(100, 0.1, 12, 1.0)):
        with pytest.raises(dp.UnsupportedEventError, match=r"udp\.Accountant"):
            accountant.compose(event)


def copies(accountant):
    yield from (pickle.loads(pickle.dumps(accountant, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))
    yield from (copy.copy(accountant), copy.deepcopy(accountant))


@layer("pickles")
def test_accountants_survive_pickle_and_copies(case):
    accountant = accountant_of(case["inputs"])
    delta = case["inputs"]["delta"]
    epsilon = accountant.get_epsilon(delta)
    for other in copies(accountant):
        assert (other.get_epsilon(delta), other.ledger) == (epsilon, accountant.ledger)
        assert other.neighboring_relation is accountant.neighboring_relation
    # A copy by value goes on by itself.
    other = pickle.loads(pickle.dumps(accountant)).compose(dp.GaussianDpEvent(1.0))
    assert other.get_epsilon(delta) > epsilon == accountant.get_epsilon(delta)
    assert pickle.loads(pickle.dumps(type(accountant)())).supports(dp.GaussianDpEvent(1.0))


def test_accountants_survive_joblib(tmp_path):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    for kind in KINDS.values():
        accountant = kind().compose(dp.LaplaceDpEvent(2.0), 3)
        joblib.dump(accountant, tmp_path / "accountant")
        assert joblib.load(tmp_path / "accountant").get_epsilon(1e-6) == accountant.get_epsilon(1e-6)


@layer("delta")
def test_deltas_at_negative_epsilons_are_those_of_the_exchanged_neighbours(case):
    got, want = accountant_of(case["inputs"]).get_delta(case["inputs"]["epsilon"]), case["outputs"]["delta"]
    assert got == pytest.approx(want, rel=case["rtol"])


def test_deltas_at_negative_epsilons_at_the_edges():
    for kind in KINDS.values():
        assert kind().get_delta(-1.0) == pytest.approx(1 - math.exp(-1), rel=1e-12)
        assert kind().compose(dp.NonPrivateDpEvent()).get_delta(-1.0) == 1
        spent = kind().compose(dp.LaplaceDpEvent(2.0))
        assert spent.get_delta(-math.inf) == 1 and spent.get_delta(-1e-9) == pytest.approx(spent.get_delta(0.0), abs=1e-8)
    # A Renyi bound lies above the exact value.
    exact, bound = (kind().compose(dp.GaussianDpEvent(1.0)).get_delta(-1.0) for kind in KINDS.values())
    assert exact == pytest.approx(0.678818, abs=1e-6) and exact < bound < 0.8


@pytest.mark.parametrize(
    ("make", "closed"),
    [
        (lambda pld: pld.from_gaussian_mechanism(1e-2), 5425.509846147432),
        (lambda pld: pld.from_gaussian_mechanism(1e-2, value_discretization_interval=1e-9), 5425.509846147432),
        (lambda pld: pld.from_laplace_mechanism(1e-7), 1e7),
    ],
)
def test_a_grid_of_little_noise_is_widened_and_says_so(make, closed):
    with pytest.warns(UserWarning, match="value_discretization_interval: the losses span .*, so the interval is ") as warned:
        found = make(dp.pld.privacy_loss_distribution)
    assert warned[0].filename == __file__
    assert found._pmf_remove.size <= (1 << 22) + 2
    assert closed * (1 - 1e-5) <= found.get_epsilon_for_delta(1e-5) <= closed * (1 + 1e-5)


def test_a_grid_of_enough_noise_has_the_interval_that_was_asked_for():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dp.pld.privacy_loss_distribution.from_gaussian_mechanism(1.0, value_discretization_interval=1e-3)
    assert found._pmf_remove._discretization == 1e-3
    # Both parts of a mixture get one interval, so that they fit together.
    with pytest.warns(UserWarning, match="value_discretization_interval"):
        dp.pld.privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(100, 0.1, 12, 1e-2)
    with pytest.raises(ValueError, match=r"truncation_bound must be at most 2\^21, got"):
        dp.pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(1e8)


def test_calibration_to_an_epsilon_of_zero_ends_at_the_least_noise():
    # Half a total variation of one Gaussian is `Phi(1 / (2 z)) - 1 / 2`.
    want = 0.5 / statistics.NormalDist().inv_cdf(0.5 * (1 + 1e-3))
    found = dp.calibrate_dp_mechanism(dp.pld.PLDAccountant, dp.GaussianDpEvent, 0.0, 1e-3)
    assert want * (1 - 1e-9) <= found <= want + 1e-5
    rounds = dp.calibrate_dp_mechanism(
        dp.pld.PLDAccountant, lambda n: dp.SelfComposedDpEvent(dp.GaussianDpEvent(1000.0), n), 0.0, 1e-3,
        dp.ExplicitBracketInterval(1, 1000), discrete=True,
    )  # fmt: skip
    assert rounds == 6


def test_the_least_noise_for_an_epsilon_of_zero_is_that_of_the_search_of_all():
    target = dp.pld.common.DifferentialPrivacyParameters(0.0, 1e-3)
    # `-1 / (2 ln(1 - delta))`
    assert dp.pld.accountant.get_smallest_laplace_noise(target) == pytest.approx(499.749958312, rel=1e-6)


def expected():
    """Outcomes that are checked in, by test function; what follows a `#` is the reason of a failure."""
    lines = (pathlib.Path(__file__).parent / "compat.txt").read_text().splitlines()
    return dict(line.split("#")[0].strip().rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


def test_the_tests_of_the_original_pass_but_for_the_listed_ones(tmp_path):
    pytest.importorskip("absl", reason="absl-py is not installed")
    pytest.importorskip("scipy", reason="scipy is not installed")
    if peer.sources() is None:
        pytest.skip(f"dp-accounting {peer.VERSION} is not installed, and UNDERTONE_DP_ACCOUNTING names no wheel")
    found, wanted = peer.outcomes(tmp_path), expected()
    changed = {name: (wanted.get(name), found.get(name)) for name in wanted.keys() | found.keys()}
    assert {name: pair for name, pair in changed.items() if pair[0] != pair[1]} == {}
    assert len(wanted) == 247 and sum(outcome == "passed" for outcome in wanted.values()) >= 241


def test_install_serves_programs_that_import_the_original():
    program = """
from undertone_dp import dp_accounting as own
own.install()
import dp_accounting
from dp_accounting.pld import privacy_loss_distribution
import dp_accounting.rdp.rdp_privacy_accountant as rdp
assert dp_accounting is own and rdp.RdpAccountant is own.rdp.RdpAccountant
assert privacy_loss_distribution.identity().get_epsilon_for_delta(0) == 0
own.install()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    late = """
import sys, types
sys.modules["dp_accounting"] = types.ModuleType("dp_accounting")
from undertone_dp import dp_accounting
try:
    dp_accounting.install()
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", late], check=True, capture_output=True, text=True)
    assert done.stdout == "dp_accounting is imported already; call install() before anything imports it\n"
