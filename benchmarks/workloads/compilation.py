"""Time of lowered.compile(), for modules that have not been seen before.

Each sample compiles a new function with a different constant, so that no cache
of JAX, the backend or the plugin applies. Tracing and lowering are the same for
all backends and are not timed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

import jax
import jax.numpy as jnp
from benchmarks import models
from benchmarks.workload import Case, Workload, prepared

LIMIT = 0.4


def compiling(
  name: str,
  function: Callable[..., object],
  make_args: Callable[[], tuple[object, ...]],
  limit: float = LIMIT,
  compared: Callable[..., object] = lambda result: result,
) -> Workload:
  """Compiles partial(function, constant), with a new constant each time.

  Args:
    name, limit: see `Workload`.
    function: of a constant and the arguments.
    make_args: makes these.
    compared: what all devices agree on, of its result.
  """

  def make(device: jax.Device) -> Case:
    args = jax.device_put(make_args(), device)
    constants = (1 + k / 1024 for k in itertools.count())

    def lower(constant: float | None = None):
      constant = next(constants) if constant is None else constant
      return jax.jit(lambda *a: function(constant, *a)).lower(*args)

    return prepared(
      lower,
      lambda lowered: lowered.compile(),
      lambda: compared(lower(0.5).compile()(*args)),
    )

  return Workload(
    family="compile", name=name, make=make, limit=limit, tolerance=1e-3
  )


def elementwise_chain(constant, x):
  for i in range(20):
    x = jnp.tanh(x * constant + i) - x
  return x


def mlp_step(constant, state, x, labels):
  return models.momentum_step(state, x * constant, labels)


def transformer_step(constant, state, tokens):
  return models.transformer_step(state, tokens, rate=1e-3 * constant)


def loop(constant, x):
  return jax.lax.scan(lambda c, x: (jnp.sin(c) * constant + x,) * 2, x[0], x)


def uniform(constant, seed):
  return jax.random.uniform(jax.random.key(seed), (1000,)) * constant


def eager_call(constant, x):
  return jnp.sum(x * constant, 0)


def complex_matrix(n: int) -> tuple[np.ndarray]:
  real, imaginary = np.random.default_rng(0).normal(size=(2, n, n))
  return ((real + 1j * imaginary).astype(np.complex64),)


# XLA:CPU only has to compile calls of LAPACK.
FACTORED = 1.2
# Each with what does not depend on the phases of vectors: mostly the matrix.
FACTORISATIONS = {
  "svd": (jnp.linalg.svd, lambda found: (found[0] * found[1]) @ found[2]),
  "singular values": (
    lambda a: jnp.linalg.svd(a, compute_uv=False),
    lambda values: values,
  ),
  "eigh": (
    jnp.linalg.eigh,
    lambda found: (found[1] * found[0]) @ found[1].T.conj(),
  ),
  "eig": (jnp.linalg.eig, lambda found: jnp.sort(jnp.abs(found[0]))),
  "qr": (lambda a: jnp.linalg.qr(a), lambda found: found[0] @ found[1]),
}


WORKLOADS = [
  compiling("x + 1", lambda c, x: x + c, lambda: (np.ones(4, np.float32),)),
  compiling("row sum", eager_call, lambda: (np.ones((8, 4), np.float32),)),
  compiling(
    "chain of 60", elementwise_chain, lambda: (np.ones(64, np.float32),)
  ),
  compiling("scan", loop, lambda: (np.ones((16, 8), np.float32),)),
  compiling("threefry uniform", uniform, lambda: (np.int32(0),)),
  compiling(
    "MLP step",
    mlp_step,
    lambda: (models.momentum_state(models.MNIST), *models.digits(32)),
  ),
  compiling(
    "transformer step with AdamW",
    transformer_step,
    lambda: (models.transformer_state(), models.tokens()),
  ),
  *[
    compiling(
      f"{name} of complex64, {n}x{n}",
      lambda constant, a, f=f: f(a * constant),
      functools.partial(complex_matrix, n),
      FACTORED,
      compared,
    )
    for n in (8, 64)
    for name, (f, compared) in FACTORISATIONS.items()
  ],
]
