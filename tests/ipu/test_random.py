"""jax.random gives the same numbers on the IPU as everywhere."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax, random
from jaxlib.ipu.ir import registry
from jaxlib.ipu.ir.registry import Operation
from jaxlib.ipu.ops import rng

DISTRIBUTIONS = {
  "uniform": lambda k: random.uniform(k, (50,)),
  "uniform f16": lambda k: random.uniform(k, (50,), jnp.float16),
  "uniform bf16": lambda k: random.uniform(k, (50,), jnp.bfloat16, -3, 3),
  "normal": lambda k: random.normal(k, (50,)),
  "normal bf16": lambda k: random.normal(k, (50,), jnp.bfloat16),
  "truncated normal": lambda k: random.truncated_normal(k, -2, 2, (50,)),
  "randint": lambda k: random.randint(k, (50,), -10, 1000),
  "randint u8": lambda k: random.randint(k, (50,), 0, 255, jnp.uint8),
  "bernoulli": lambda k: random.bernoulli(k, 0.3, (50,)),
  "exponential": lambda k: random.exponential(k, (50,)),
  "gumbel": lambda k: random.gumbel(k, (50,)),
  "categorical": lambda k: random.categorical(k, jnp.arange(8.0), shape=(50,)),
  "laplace": lambda k: random.laplace(k, (50,)),
  "logistic": lambda k: random.logistic(k, (50,)),
  "cauchy": lambda k: random.cauchy(k, (50,)),
  "rademacher": lambda k: random.rademacher(k, (50,)),
  "multivariate": lambda k: random.ball(k, 3, shape=(20,)),
  "dirichlet-like gamma": lambda k: random.gamma(k, 2.5, (20,)),
}


# Every pair of Threefry and Philox from which jax.random can make keys.
KEYS = ("threefry2x32", "rbg", "unsafe_rbg")


@pytest.mark.parametrize("impl", KEYS)
def test_bits_are_exact(check, impl):
  def bits(seed):
    key = random.key(seed, impl=impl)
    cases = {
      f"{t} {shape}": random.bits(key, shape, t)
      for t in ("uint8", "uint16", "uint32")
      for shape in ((), (1,), (2,), (7,), (64,), (13, 5), (1001,), (0,))
    }
    return cases | {
      "split": random.split(key, 5),
      "split once": random.split(key),
      "fold in": random.fold_in(key, 123),
      "vmapped": jax.vmap(random.bits)(random.split(key, 3)),
      "clone": key,
    }

  for seed in (0, 42, -1, 2**31 - 1):
    check(bits, np.int32(seed))


def test_large_arrays_of_bits(check):
  """Counts that no vector width divides; odd counts pad the counter."""
  for n in (100_003, 262_144):
    check(lambda seed: random.bits(random.key(seed), (n,)), np.int32(7))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(check, name):
  draw = DISTRIBUTIONS[name]
  check(lambda seed: draw(random.key(seed)), np.int32(3), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
  "name", ("uniform bf16", "normal", "randint", "gumbel")
)
def test_distribution_of_rbg_keys(check, name):
  draw = DISTRIBUTIONS[name]

  def f(seed):
    return draw(random.key(seed, impl="rbg"))

  check(f, np.int32(3), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", lax.RandomAlgorithm)
def test_bit_generators(check, algorithm):
  """States whose counters carry; odd, even, no and many elements."""
  states = [np.array([1, 2, 3, 4], np.uint32)]
  states.append(np.array([7, 9, 2**32 - 2, 2**32 - 1], np.uint32))

  def f(state):
    return {
      f"{np.dtype(t)} {shape}": lax.rng_bit_generator(
        state, shape, dtype=t, algorithm=algorithm
      )
      for t in (np.uint8, np.uint16, np.uint32)
      for shape in ((), (1,), (7,), (5, 3), (3, 4, 5), (0,), (1001,))
    }

  for state in states:
    check(f, state)


@pytest.mark.parametrize("algorithm", lax.RandomAlgorithm)
def test_bit_generators_of_wide_elements(check, algorithm):
  with jax.enable_x64(True):
    check(
      lambda state: [
        lax.rng_bit_generator(state, s, dtype=np.uint64, algorithm=algorithm)
        for s in ((), (4,), (3, 5))
      ],
      np.array([5, 2**64 - 2], np.uint64),
    )


@pytest.mark.ipu_only
def test_stateful_uniform_numbers(on_ipu):
  """Within their bounds, uniform, and different for each operation."""

  @jax.jit
  def f(low, high):
    shape = (4000,)
    return [lax.rng_uniform(low, high, shape) for _ in range(2)]

  for low, high in ((-1.0, 3.0), (-20, 30)):
    a, b = (np.asarray(v, np.float64) for v in f(low, high))
    assert not np.array_equal(a, b)
    for v in (a, b):
      counts, _ = np.histogram(v, 10, (low, high))
      assert counts.sum() == 4000 and 300 < counts.min() < counts.max() < 500
      assert v.max() < high


def test_keys_of_both_kinds(check):
  def f(seed):
    return (
      random.PRNGKey(seed),
      random.key(seed),
      random.uniform(random.PRNGKey(seed)),
      random.uniform(random.wrap_key_data(random.PRNGKey(seed))),
    )

  check(f, np.int32(42))


def test_keys_outside_of_jit(on_ipu, cpu):
  key = random.key(42)
  one, two = random.split(key)
  draws = [random.normal(one, (3,)), random.uniform(two, (2, 2))]
  assert all(d.devices() == {on_ipu} for d in draws)
  with jax.default_device(cpu):
    one, two = random.split(random.key(42))
    expected = [random.normal(one, (3,)), random.uniform(two, (2, 2))]
  util.check_equal(
    [np.asarray(d) for d in draws],
    [np.asarray(e) for e in expected],
    rtol=1e-5,
  )


def test_vmap_over_keys(check):
  def f(seed):
    keys = random.split(random.key(seed), 6)
    return jax.vmap(lambda k: random.normal(k, (4, 3)))(keys)

  check(f, np.int32(1), rtol=1e-5, atol=1e-6)


def test_random_numbers_in_a_loop(check):
  """Estimates pi, with keys carried and split by a scan."""

  def pi(seed):
    def step(key, _):
      key, sub = random.split(key)
      x, y = random.uniform(sub, (2, 500))
      return key, (x * x + y * y < 1).sum()

    key, hits = jax.lax.scan(step, random.key(seed), length=20)
    return key, hits, 4 * hits.sum() / 10_000

  check(pi, np.int32(5), rtol=1e-6)


def test_dropout(check):
  def dropout(seed, x):
    keep = random.bernoulli(random.key(seed), 0.8, x.shape)
    return jnp.where(keep, x / 0.8, 0)

  check(dropout, np.int32(9), util.sample(np.float32, (64, 100)))


def test_moments(ipu):
  """A million draws on the device have the named distribution."""

  def moments(seed):
    a, b = random.split(random.key(seed))
    u, n = random.uniform(a, (1_000_000,)), random.normal(b, (1_000_000,))
    return u.mean(), u.var(), u.min(), u.max(), n.mean(), n.var()

  got = util.run_on(ipu, moments, np.int32(0))
  np.testing.assert_allclose(got[:2], [0.5, 1 / 12], atol=2e-3)
  assert 0 <= got[2] < 1e-5 and 1 - 1e-5 < got[3] < 1
  np.testing.assert_allclose(got[4:], [0, 1], atol=5e-3)


def test_initializers(check):
  names = ("glorot_uniform", "he_normal", "lecun_normal", "uniform")

  def f(seed):
    return {
      name: getattr(jax.nn.initializers, name)()(random.key(seed), (7, 11))
      for name in names
    }

  check(f, np.int32(2), rtol=2e-5, atol=1e-6)


@pytest.mark.ipu_only
def test_stateful_normal_numbers(on_ipu, monkeypatch):
  """StableHLO operations for which JAX has no functions."""
  name = "stablehlo.custom_call @normal"

  def rule(e, node):
    shape = e.constant(np.array([4000], np.int64))
    result = node.results[0]
    return e.node(
      "stablehlo.rng",
      [*node.inputs, shape],
      [(result.shape, result.dtype)],
      rng.Distribution("NORMAL", 5),
    )

  monkeypatch.setitem(registry.REGISTRY, name, Operation(name, decompose=rule))
  shape = jax.ShapeDtypeStruct((4000,), np.float32)
  x = jax.jit(jax.ffi.ffi_call("normal", shape))(np.float32(3), np.float32(2))
  z = (np.asarray(x, np.float64) - 3) / 2
  for power, moment in enumerate((0, 1, 0, 3), 1):
    assert abs((z**power).mean() - moment) < 0.3 * power
