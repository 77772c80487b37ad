"""Eager calls: each is its own program, and results stay on the IPU."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
import jax.numpy as jnp


def eager(ipu, cpu, f, *args, rtol=1e-5, atol=1e-6):
  """f, called without jit, gives the same under either default device."""
  results = []
  for device in (ipu, cpu):
    with jax.default_device(device):
      out = f(*jax.device_put(args, device))
    for leaf in jax.tree.leaves(out):
      assert leaf.devices() == {device}
    results.append(jax.tree.map(util.to_numpy, out))
  util.check_equal(*results, rtol=rtol, atol=atol)


def test_creation(ipu, cpu):
  def f():
    return {
      "zeros": jnp.zeros((3, 2)),
      "ones": jnp.ones(4, jnp.int8),
      "full": jnp.full((2, 2), 7.5),
      "empty": jnp.zeros((0, 3)),
      "arange": jnp.arange(10),
      "arange with a step": jnp.arange(2.0, 9.0, 0.5),
      "linspace": jnp.linspace(0, 1, 11),
      "logspace": jnp.logspace(0, 2, 5),
      "eye": jnp.eye(4, 3, 1),
      "array": jnp.array([[1, 2], [3, 4]]),
      "bf16": jnp.array([1.5, 2.5], jnp.bfloat16),
      "meshgrid": jnp.meshgrid(jnp.arange(3), jnp.arange(2)),
      "tri": jnp.tri(4),
      "indices": jnp.indices((2, 3)),
    }

  eager(ipu, cpu, f)


def test_a_chain(ipu, cpu):
  def f(x):
    y = jnp.sin(x) ** 2 + jnp.cos(x) ** 2
    z = jnp.where(x > 0, y, -y).reshape(3, -1)
    w = z @ z.T / 3
    w = w.at[0, 1].set(5).T[::-1]
    return w, w.sum(0), jnp.argmax(w), jnp.concatenate([w, w[:1]])

  eager(ipu, cpu, f, util.sample(np.float32, (12,)))


def test_operators(ipu, cpu):
  def f(x, y):
    return [
      x + y, x - 2, 3 * x, x / y, x // y, x % y, x**2, -x, abs(x), x @ y,
      x < y, x == y, x != 2, (x > 0) & (y > 0), ~(x > 0), divmod(x, y),
      x[0], x[1:3], x[::-1], x[jnp.array([2, 0])], x[x.argmax()],
      round(x, 1),
    ]  # fmt: skip

  x, y = (util.sample(np.float32, (5,), low=1, high=9, key=i) for i in (0, 1))
  eager(ipu, cpu, f, x, y)


def test_numpy_functions(ipu, cpu):
  def f(x):
    return {
      "clip": jnp.clip(x, -1, 1),
      "mean": x.mean(1, keepdims=True),
      "std": x.std(),
      "outer": jnp.outer(x[0], x[1]),
      "einsum": jnp.einsum("ij,kj->ik", x, x),
      "tensordot": jnp.tensordot(x, x, [[0], [0]]),
      "stack": jnp.stack([x, x]),
      "pad": jnp.pad(x, 1, mode="edge"),
      "roll": jnp.roll(x, (1, 2), (0, 1)),
      "diff": jnp.diff(x),
      "trace": jnp.trace(x[:, :4]),
      "kron": jnp.kron(x[:2, :2], x[:2, :2]),
      "interp": jnp.interp(jnp.array([0.5, 1.5]), jnp.arange(3.0), x[0, :3]),
      "polyval": jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x),
      "isclose": jnp.isclose(x, x + 1e-9),
      "allclose": jnp.allclose(x, x),
      "nan_to_num": jnp.nan_to_num(x / 0),
      "take": jnp.take(x, jnp.array([1, 0]), axis=1),
      "select": jnp.select([x > 1, x > 0], [x, 2 * x], 0),
      "vander": jnp.vander(x[0], 3),
      "cross": jnp.cross(x[0, :3], x[1, :3]),
    }

  eager(ipu, cpu, f, util.sample(np.float32, (4, 5)), rtol=1e-4)


def test_transformations_without_jit(ipu, cpu):
  def f(x):
    return {
      "grad": jax.grad(lambda x: jnp.tanh(x).sum())(x),
      "vmap": jax.vmap(lambda r: r / jnp.linalg.norm(r))(x),
      "jvp": jax.jvp(jnp.exp, (x,), (x,)),
      "scan": jax.lax.scan(lambda c, r: (c + r, c), jnp.zeros(4), x),
      "cond": jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    }

  eager(ipu, cpu, f, util.sample(np.float32, (3, 4)), rtol=1e-4)


def test_in_place_arithmetic_and_indexing_in_a_python_loop(ipu, cpu):
  def f(x):
    total = jnp.zeros(3)
    for i in range(5):
      total += x[i] * i
      x = x.at[i].add(total)
    return x, total

  eager(ipu, cpu, f, util.sample(np.float32, (5, 3)))


def test_values_leave_the_device(on_ipu):
  x = jnp.arange(6.0).reshape(2, 3)
  assert float(x.sum()) == 15
  assert int(jnp.int8(5) + 3) == 8
  assert bool(x[1, 2] > 4)
  assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
  assert [float(v) for v in x[0]] == [0, 1, 2]
  assert f"{x[0, 1]:.2f}" == "1.00"
  assert "[[0. 1. 2.]" in str(x) and "Array(" in repr(x)
  assert x.devices() == {on_ipu}


def test_numpy_functions_accept_arrays(on_ipu):
  x = jnp.arange(4.0)
  assert np.sum(x) == 6
  np.testing.assert_array_equal(np.stack([x, x]), [[0, 1, 2, 3]] * 2)


@pytest.mark.parametrize("name", ["float32", "int32", "bool", "bfloat16"])
def test_scalars_of_every_kind(ipu, cpu, name):
  def f():
    x = jnp.asarray(1, name)
    return x, x.astype(jnp.float16), jnp.stack([x, x]), x.reshape(1, 1)

  eager(ipu, cpu, f)
