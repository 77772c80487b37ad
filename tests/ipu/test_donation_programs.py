"""Donated arguments whose memory a result takes, in programs that still need
them: JAX pairs donated arguments with results by shape, not by meaning.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax


def swap(a, b):
  return b, a


def rotate(a, b, c):
  return b, c, a


def update_the_other(a, b):
  return a[::-1], lax.dynamic_update_slice(b, a[:2, :3], (1, 2))


def scatter_into_the_third(a, b, c, d):
  return a, b, c.at[b[0, 0].astype(int) % 4].add(d[0]), d


def read_late(a, b):
  s = a * 2
  t = jnp.tanh(b) + s
  return t, s + a.T.reshape(a.shape) + b.sum(0)


def loop(a, b):
  def body(i, state):
    x, y = state
    return y + 1.0, x.at[i].set(y[0])

  return lax.fori_loop(0, 3, body, (a, b))


def branch(a, b):
  return lax.cond(a[0, 0] > b[0, 0], lambda: (b, a), lambda: (a, b[::-1]))


def while_loop(a, b):
  def body(s):
    n, x, y = s
    return n + 1, y, x * 0.5

  _, a, b = lax.while_loop(lambda s: s[0] < 5, body, (0, a, b))
  return a, b


PROGRAMS = [
  swap,
  rotate,
  update_the_other,
  scatter_into_the_third,
  read_late,
  loop,
  branch,
  while_loop,
]


def cases():
  for f in PROGRAMS:
    count = f.__code__.co_argcount
    for size in range(1, count + 1):
      for donated in itertools.combinations(range(count), size):
        yield pytest.param(f, donated, id=f"{f.__name__}-{donated}")


@pytest.mark.parametrize("f, donated", list(cases()))
def test_donated(ipu, cpu, f, donated):
  count = f.__code__.co_argcount
  rng = np.random.default_rng(7)
  xs = [rng.normal(size=(4, 6)).astype(np.float32) for _ in range(count)]
  expected = jax.jit(f)(*[jax.device_put(x, cpu) for x in xs])
  actual = jax.jit(f, donate_argnums=donated)(
    *[jax.device_put(x, ipu) for x in xs]
  )
  for a, e in zip(actual, expected, strict=True):
    np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=1e-5)
