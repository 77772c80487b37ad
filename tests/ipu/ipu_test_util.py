"""Compares two devices, and provides sample values for that."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import jax
import jax.numpy as jnp
from jax import export
from jax.sharding import SingleDeviceSharding
from jaxlib.ipu import target
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

BOOL = (np.dtype(np.bool_),)
SIGNED = tuple(np.dtype(t) for t in (np.int8, np.int16, np.int32))
UNSIGNED = tuple(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32))
INTEGERS = SIGNED + UNSIGNED
FLOATS = tuple(
  np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32)
)
NUMBERS = INTEGERS + FLOATS
ALL = BOOL + NUMBERS
# Only with jax.enable_x64: see test_x64.py.
WIDE = tuple(np.dtype(t) for t in (np.int64, np.uint64, np.float64))

# A scalar, a vector that no vector width divides, an empty array, and a matrix
# with more elements than the machine has worker threads.
SHAPES: tuple[tuple[int, ...], ...] = ((), (7,), (3, 0), (129, 81))

# Relative error by which two good implementations of a function may differ, a
# few units in the last place.
RTOL = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-13}


def is_float(dtype: Any) -> bool:
  return jnp.issubdtype(dtype, jnp.floating)


def rng_of(*key: Any) -> np.random.Generator:
  """A generator that only depends on `key`."""
  return np.random.default_rng(zlib.crc32(repr(key).encode()))


def special_values(dtype: np.dtype) -> np.ndarray:
  """The values of `dtype` for which implementations differ."""
  if dtype == np.bool_:
    return np.array([False, True])
  if is_float(dtype):
    info = ml_dtypes.finfo(dtype)
    tiny, large = float(info.tiny), float(info.max)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1 / 3, 3.0]
    values += [np.inf, -np.inf, np.nan, tiny, -tiny, large, -large]
    return np.array(values, dtype)
  info = np.iinfo(dtype)
  values = [0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2 + 1]
  values += [info.min, info.min + 1]
  values += [] if info.min == 0 else [-1, -2, -7]
  return np.array(values, dtype)


def sample(
  dtype: Any,
  shape: Sequence[int] = (),
  *,
  low: float | None = None,
  high: float | None = None,
  special: bool = False,
  key: Any = None,
) -> np.ndarray:
  """Values of `dtype` and `shape`, the same on every call.

  Args:
    dtype: any element type of the backend.
    shape: of the result.
    low: lower bound; defaults to the smallest integer, or -4 for floats.
    high: upper bound; defaults to the largest integer, or 4 for floats.
    special: whether some are replaced by `special_values`.
    key: different keys give different values.
  """
  dtype = np.dtype(dtype)
  rng = rng_of(str(dtype), tuple(shape), low, high, special, key)
  size = int(np.prod(shape))
  if dtype == np.bool_:
    return rng.integers(0, 2, shape).astype(np.bool_)
  if is_float(dtype):
    low, high = -4.0 if low is None else low, 4.0 if high is None else high
    values = np.asarray(rng.uniform(low, high, shape)).astype(dtype)
  else:
    info = np.iinfo(dtype)
    low = info.min if low is None else int(low)
    high = info.max if high is None else int(high)
    values = np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))
  if special and size:
    extra = special_values(dtype)
    where = rng.permutation(size)[: len(extra)]
    flat = values.reshape(-1)
    flat[where] = rng.permutation(extra)[: len(where)]
    values = flat.reshape(shape)
  return values


def from_stablehlo(text: str, *arguments: Any) -> Callable[..., Any]:
  """A function that computes what a StableHLO module computes.

  Args:
    text: its @main takes the number of a platform, i32, before the arguments,
      and has results of the arguments' types.
    *arguments: of these types.
  """
  exported = export.export(
    jax.jit(lambda *a: list(a)), platforms=("ipu", "cpu")
  )(*arguments)
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  module = ir.Module.parse(text, context)
  with context:
    code = stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version()
    )
  return dataclasses.replace(exported, mlir_module_serialized=code).call


def run_on(device: jax.Device, f: Callable[..., Any], *args: Any) -> Any:
  """jit(f)(*args) with everything on `device`; leaves are NumPy arrays."""
  # The default device matters where no argument determines the device.
  with jax.default_device(device):
    out = jax.jit(f)(*jax.device_put(args, device))
  for leaf in jax.tree.leaves(out):
    if leaf.devices() != {device}:
      raise AssertionError(f"a result is on {leaf.devices()}, not on {device}")
  return jax.tree.map(to_numpy, out)


def spec(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
  """Anything with a shape and a type, but no values."""
  return jax.ShapeDtypeStruct(shape, dtype)


def costs(
  device: jax.Device, f: Callable[..., Any], *args: Any, **options: Any
) -> dict[str, float]:
  """cost_analysis() of jit(f), for arrays on `device`.

  Args:
    device: to compile for.
    f: from trees of arrays to a tree of arrays.
    *args: trees of arrays, or of objects with a shape and a dtype.
    **options: of the compiler, such as ipu_num_tiles=16.
  """
  on = SingleDeviceSharding(device)
  there = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on), args
  )
  # A new function object, so that JAX does not reuse the last compilation.
  lowered = jax.jit(functools.partial(f)).lower(*there)
  return lowered.compile(options or None).cost_analysis()


def check_no_fall(few: dict[str, float], many: dict[str, float]) -> None:
  """More work takes no fewer cycles, according to two `costs`.

  Work that spreads over more tiles may be cheaper by no more than the exchange
  that spreading the smaller arrays would have cost, and by synchronisations
  that are no longer needed.
  """
  machine = target.resolve("ipu2")
  slack = machine.sync_cycles + machine.route_cycles
  slack += abs(many["ipu sync cycles"] - few["ipu sync cycles"])
  assert many["ipu cycles"] >= few["ipu cycles"] - slack, (few, many)


def to_numpy(x: jax.Array) -> np.ndarray:
  """The array's values; for key arrays their bits."""
  if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
    x = jax.random.key_data(x)
  return np.asarray(x)


def check(
  f: Callable[..., Any],
  *args: Any,
  devices: tuple[jax.Device, jax.Device],
  exact: bool = False,
  rtol: float | None = None,
  atol: float = 0.0,
) -> None:
  """jit(f) gives the same results on both devices.

  Args:
    f: from arrays to a pytree of arrays; a dict's keys name the cases in
      failure messages.
    *args: NumPy arrays or trees of them.
    devices: under test, and reference.
    exact: whether floats must be bit-identical too (integers always must).
    rtol: allowed relative error of floats, instead of `RTOL` of the dtype.
    atol: allowed absolute error of floats.
  """
  actual, expected = (run_on(device, f, *args) for device in devices)
  check_equal(actual, expected, exact=exact, rtol=rtol, atol=atol)


def check_equal(
  actual: Any,
  expected: Any,
  *,
  exact: bool = False,
  rtol: float | None = None,
  atol: float = 0.0,
) -> None:
  """Compares two trees of NumPy arrays and names every leaf that differs."""
  got, tree = jax.tree_util.tree_flatten_with_path(actual)
  want, wanted_tree = jax.tree_util.tree_flatten_with_path(expected)
  assert tree == wanted_tree, f"results {tree}, expected {wanted_tree}"
  faults = []
  for (path, a), (_, b) in zip(got, want, strict=True):
    fault = difference(a, b, exact=exact, rtol=rtol, atol=atol)
    if fault:
      faults.append(f"{jax.tree_util.keystr(path) or 'result'}: {fault}")
  assert not faults, "\n" + "\n".join(faults)


def difference(
  a: np.ndarray,
  b: np.ndarray,
  *,
  exact: bool = False,
  rtol: float | None = None,
  atol: float = 0.0,
) -> str | None:
  """Describes how `a` differs from `b`; None if it does not."""
  if (a.dtype, a.shape) != (b.dtype, b.shape):
    return f"is {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
  if exact or not is_float(a.dtype):
    wrong = _bits(a) != _bits(b)
  else:
    rtol = RTOL[a.dtype.name] if rtol is None else rtol
    # XLA:CPU flushes denormal results to zero; keeping them is correct.
    atol = max(atol, float(ml_dtypes.finfo(a.dtype).tiny))
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
      close = np.abs(x - y) <= atol + rtol * np.abs(y)
    wrong = ~(close | (x == y) | (np.isnan(x) & np.isnan(y)))
  if not wrong.any():
    return None
  where = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
  return (
    f"{int(wrong.sum())} of {wrong.size} {a.dtype} values differ, the first "
    f"at {list(where)}: {a[where]!r}, expected {b[where]!r}"
  )


def _bits(x: np.ndarray) -> np.ndarray:
  kinds = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
  return np.atleast_1d(x).view(kinds[x.dtype.itemsize]).reshape(x.shape)


def run_python(code: str, **env: str) -> str:
  """Runs code in a separate process and returns its output.

  Args:
    code: a script; a failed assertion in it fails the test.
    **env: additional environment variables.
  """
  done = subprocess.run(
    [sys.executable, "-c", code],
    env={**os.environ, **env},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout
