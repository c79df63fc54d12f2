"""Clipping in place, and secure sums of a whole session."""

import array
import math
import random

import pytest
import undertone_dp as udp
from undertone_dp import secagg


def length(values):
    return math.sqrt(math.fsum(value * value for value in values))


def test_clipped_updates_never_exceed_the_norm():
    draw = random.Random(1)
    for size in [1, 2, 17, 1000]:
        for scale in [1e-6, 1.0, 1e6, 1e30]:
            update = array.array("f", [draw.gauss(0, scale) for _ in range(size)])
            before = length(update)
            report = udp.clip(update, 1.0)
            assert report.norm == pytest.approx(before, rel=1e-6)
            assert length(update) <= 1.0 and report.clipped == (before > 1.0)


def test_a_layout_bounds_each_tensor_by_its_share():
    layout = udp.ParamLayout({"w": (2, 2), "b": (3,)})
    update = array.array("f", [10, 0, 0, 0, 0.1, 0, 0])
    report = udp.clip(update, 2.0, layout)
    assert report.clipped and update[0] <= 2.0 / math.sqrt(2) and update[4] == pytest.approx(0.1)
    assert layout.range("b") == range(4, 7) and layout == udp.ParamLayout({"w": (2, 2), "b": (3,)})
    with pytest.raises(udp.AggregationError):
        udp.clip(array.array("f", [1.0]), 2.0, layout)


def test_updates_that_cannot_be_clipped_are_refused_and_left_as_they_are():
    for values, norm in [([1.0, math.nan], 1.0), ([1.0, math.inf], 1.0), ([1.0], -1.0), ([1.0], math.nan)]:
        update = array.array("f", values)
        with pytest.raises(udp.AggregationError) as caught:
            udp.clip(update, norm)
        assert caught.value.kind and str(list(update)) == str(values)
    for update in [array.array("d", [1.0]), b"1234", memoryview(array.array("f", [1, 2, 3, 4]))[::2], [1.0]]:
        with pytest.raises(TypeError, match="update: expected a contiguous, writable float32 buffer"):
            udp.clip(update, 1.0)
    with pytest.raises(udp.AggregationError, match="update: expected 7 values, got 0"):
        udp.clip(array.array("f"), 1.0, udp.ParamLayout({"w": (2, 2), "b": (3,)}))
    with pytest.raises(udp.AggregationError):
        udp.ParamLayout({})
    with pytest.raises(TypeError, match="names with shapes"):
        udp.ParamLayout({"w": "wide"})


@pytest.mark.parametrize("empty", [array.array("f"), memoryview(bytearray()).cast("f")], ids=["array", "memoryview"])
def test_an_empty_update_is_called_empty(empty):
    """The address of an empty buffer says nothing about its numbers."""
    with pytest.raises(ValueError, match="update: expected at least one number, got none"):
        udp.clip(empty, 1.0)


def test_an_empty_buffer_of_other_numbers_is_of_other_numbers():
    with pytest.raises(TypeError, match="update: expected .* float32 buffer .* got numbers of format 'd'"):
        udp.clip(array.array("d"), 1.0)


def test_secure_sums_are_exact():
    draw = random.Random(2)
    for clients, bits in [(2, 16), (3, 32), (12, 8), (25, 62)]:
        largest = ((1 << (bits - 1)) - 1) // clients
        ids = draw.sample(range(1000), clients)
        vectors = {one: array.array("q", [draw.randint(-largest, largest) for _ in range(5)]) for one in ids}
        vectors[ids[0]] = array.array("q", [largest, -largest, 0, 1, -1])
        expected = [sum(vector[place] for vector in vectors.values()) for place in range(5)]
        assert list(secagg.sum(vectors, bits=bits)) == expected


def test_a_sum_without_the_clients_that_dropped():
    vectors = {one: [one, -one] for one in range(20)}
    dropped = {3, 4, 19}
    expected = sum(one for one in vectors if one not in dropped)
    assert list(secagg.sum(vectors, dropped=dropped)) == [expected, -expected]
    found = secagg.parameters(20, drop_out_rate=0.2, corrupt_rate=0.1)
    some = secagg.sum(vectors, dropped=dropped, neighbours=found.neighbours, threshold=found.threshold)
    assert list(some) == [expected, -expected]


def test_sums_that_are_not_possible_are_refused():
    for vectors, options, error, part in [
        ({0: [1], 1: [1, 2]}, {}, ValueError, "vectors[1]: expected 1 numbers"),
        ({0: [1], 1: [2**31]}, {}, ValueError, "vectors[1]: expected numbers from"),
        ({0: [1], 1: [2]}, {"bits": 63}, ValueError, "bits: expected 8 to 62, got 63"),
        ({0: [1], 1: [2]}, {"dropped": [7]}, ValueError, "dropped: expected clients of `vectors`, got 7"),
        ({0: [1]}, {}, udp.SecAggError, ""),
        ({}, {}, udp.SecAggError, ""),
        ({0: [1], 1: [2], 2: [3]}, {"dropped": [0, 1]}, udp.SecAggError, ""),
        ({0: [1], 1: [2], 2: [3]}, {"threshold": 9, "neighbours": 2}, udp.SecAggError, ""),
        ({0: array.array("f", [1.0])}, {}, TypeError, "vectors[0]"),
    ]:
        with pytest.raises(error) as caught:
            secagg.sum(vectors, **options)
        assert part in str(caught.value)


def test_parameters_hold_under_their_assumptions():
    found = secagg.parameters(1000, drop_out_rate=0.1, corrupt_rate=0.1)
    assert (found.neighbours, found.threshold) == (48, 27)
    assert found.privacy_bits >= 40 and found.failure_bits >= 20
    assert secagg.parameters(1000, drop_out_rate=0.1, corrupt_rate=0.1, threat="active").neighbours > 48
    with pytest.raises(ValueError, match="threat"):
        secagg.parameters(1000, threat="none")
    with pytest.raises(udp.SecAggError) as caught:
        secagg.parameters(1000, drop_out_rate=0.6, corrupt_rate=0.6)
    assert caught.value.kind == "infeasible"
