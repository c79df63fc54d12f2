"""The noise of `undertone_dp.jax.privatizer` inside optax."""

import numpy as np
import pytest
import undertone_dp as udp
from undertone_dp.jax import batch_iterator, privatizer

jax = pytest.importorskip("jax", reason="jax is not installed")
optax = pytest.importorskip("optax", reason="optax is not installed")
jnp = jax.numpy

ROUNDS = 20


def mechanism():
    schema = udp.Participation.at_least(gap=5, max_participation=4)
    return udp.Mechanism("blt", rounds=ROUNDS, participation=schema, noise_multiplier=2.0)


def key():
    return udp.NoiseKey.insecure_seed(3)


def params():
    return {"w": jnp.zeros((3, 5), jnp.float32), "b": jnp.zeros(4, jnp.float32)}


def sums(round):
    values = np.random.default_rng(round).standard_normal(19).astype(np.float32)
    # Leaves in the order in which JAX flattens a dict: by name.
    return values, {"b": jnp.asarray(values[:4]), "w": jnp.asarray(values[4:].reshape(3, 5))}


def test_a_chain_under_jit_equals_the_stream_bit_for_bit():
    chain = optax.chain(privatizer(mechanism(), clip_norm=0.5, key=key()), optax.scale(0.25))
    state, update = chain.init(params()), jax.jit(chain.update)
    stream, row = mechanism().noise(19, clip_norm=0.5, key=key()), np.zeros(19, np.float32)
    for round in range(ROUNDS):
        values, tree = sums(round)
        noised, state = update(tree, state)
        stream.next_into(row)
        want = (values + row) * np.float32(0.25)
        got = np.concatenate([np.asarray(noised["b"]), np.asarray(noised["w"]).ravel()])
        assert got.tobytes() == want.tobytes()


def test_a_state_that_is_used_twice_is_refused():
    noise = privatizer(mechanism(), clip_norm=1.0)
    state = noise.init(params())
    tree = sums(0)[1]
    jax.block_until_ready(noise.update(tree, state)[0])
    with pytest.raises(Exception, match="a state that is used twice would put the same noise on two sums"):
        jax.block_until_ready(jax.jit(noise.update)(tree, state)[0])
    with pytest.raises(Exception, match="a state that is used twice"):
        jax.block_until_ready(noise.update(tree, noise.init(params()))[0])


def test_other_numbers_are_refused_by_name():
    noise = privatizer(mechanism(), clip_norm=1.0)
    with pytest.raises(TypeError, match=r"updates\['b'\]: expected float32 numbers, got bfloat16"):
        noise.update({"b": jnp.zeros(4, jnp.bfloat16)}, noise.init(params()))


def test_chains_learn_and_their_batches_come_from_the_sampler():
    """Noisy averages of users' gradients bring a mean near its target; the noise decides how near."""
    sampler = udp.FixedSizeUsers(50, 10, rounds=ROUNDS, key=key())
    data = jnp.linspace(0.0, 1.0, 50)
    chain = optax.chain(privatizer(mechanism(), clip_norm=1.0, key=key()), optax.scale(1 / 10), optax.sgd(0.3))
    value = jnp.float32(5.0)
    state = chain.init(value)

    @jax.jit
    def step(value, state, users, mask):
        gradients = jnp.clip(value - data[users], -1.0, 1.0) * mask
        update, state = chain.update(gradients.sum().astype(jnp.float32), state)
        return optax.apply_updates(value, update), state

    for users, mask in batch_iterator(sampler, pad_to=12):
        value, state = step(value, state, users, mask)
    assert abs(float(value) - 0.5) < 3
