"""Lowering rules for JAX primitives without a suitable rule for all platforms.
The compiler implements their call targets (`jaxlib/ipu/ops`)."""

from __future__ import annotations

from typing import Any

from jax_plugins.ipu import tridiagonal
from jaxlib.ipu.partition import batches

PLATFORM = "ipu"


def register() -> None:
  """Registers the rules; the platform must be registered."""
  import jax
  from jax.interpreters import mlir
  from jax.lax import linalg
  from jaxlib.ipu import ffi_targets, internals, plugin

  for primitive, function in (
    (linalg.eigh_p, _eigh),
    (internals.pivoted_qr(), _geqp3),
    (linalg.hessenberg_p, _hessenberg),
    (linalg.lu_p, _lu),
    (linalg.svd_p, _svd),
    (linalg.tridiagonal_p, _tridiagonal),
  ):
    if primitive is None:
      continue  # disabled, with a warning
    rule = mlir.lower_fun(function, multiple_results=True)
    mlir.register_lowering(primitive, rule, platform=PLATFORM)
  rule = mlir.lower_fun(tridiagonal.solve, multiple_results=False)
  solve = linalg.tridiagonal_solve_p
  mlir.register_lowering(solve, rule, platform=PLATFORM)
  internals.guarantee_custom_calls(batches.OUR_TARGETS)
  for target in batches.TARGETS:
    jax.ffi.register_ffi_target_as_batch_partitionable(target)
  internals.keep_memory_kinds()
  handlers, find_lapack = internals.lapack_handlers() or ({}, None)
  for name, handler in handlers.items():
    ffi_targets.register(plugin.load(), name, handler, 1, find_lapack)
  internals.register_lapack_rules(_of_elements)


def _of_elements(rule: Any) -> Any:
  """Restricts a rule to nonempty matrices, which LAPACK requires."""
  from jax import numpy as jnp
  from jax.interpreters import mlir

  def wrapper(ctx: Any, a: Any, **params: Any) -> Any:
    if 0 not in ctx.avals_in[0].shape:
      return rule(ctx, a, **params)

    def empty(_: Any) -> list[Any]:
      return [jnp.empty(aval.shape, aval.dtype) for aval in ctx.avals_out]

    return mlir.lower_fun(empty, multiple_results=True)(ctx, a)

  return wrapper


def _call(name: str, shapes: list[Any], *operands: Any) -> list[Any]:
  import jax

  assert name in batches.OUR_TARGETS, name
  return list(jax.ffi.ffi_call(name, shapes)(*operands))


def _like(x: Any, shape: tuple[int, ...] | None = None) -> Any:
  """A result of x's element type, and of its shape if none is given."""
  import jax

  return jax.ShapeDtypeStruct(x.shape if shape is None else shape, x.dtype)


def _least(m: Any, n: Any) -> Any:
  """The smaller extent, which may be symbolic in exported programs."""
  from jax import core

  return core.min_dim(m, n)


def _eigh(
  a: Any,
  *,
  lower: bool,
  sort_eigenvalues: bool,
  subset_by_index: tuple[int, int] | None,
  **_: Any,
) -> list[Any]:
  """Vectors and values, always sorted; only one triangle is read."""
  import jax.numpy as jnp

  if lower:
    a = jnp.tril(a) + jnp.tril(a, -1).mT.conj()
  else:
    a = jnp.triu(a) + jnp.triu(a, 1).mT.conj()
  v, w = _call("ipu_eigh", [_like(a), _like(a.real, a.shape[:-1])], a)
  if subset_by_index is not None:
    begin, end = subset_by_index
    v, w = v[..., begin:end], w[..., begin:end]
  return [v, w]


def _geqp3(a: Any, jpvt: Any, **_: Any) -> list[Any]:
  """Factors, columns in order, tau."""
  *batch, m, n = a.shape
  tau = _like(a, (*batch, _least(m, n)))
  return _call("ipu_geqp3", [_like(a), _like(jpvt), tau], a, jpvt)


def _hessenberg(a: Any) -> list[Any]:
  """The Hessenberg form and its reflectors, tau."""
  *batch, n, _ = a.shape
  return _call("ipu_gehrd", [_like(a), _like(a, (*batch, n - 1))], a)


def _tridiagonal(a: Any, *, lower: bool) -> list[Any]:
  """The tridiagonal form and its reflectors, diagonal, off-diagonal, tau."""
  *batch, n, _ = a.shape
  name = "ipu_sytrd_lower" if lower else "ipu_sytrd_upper"
  d, e = _like(a.real, (*batch, n)), _like(a.real, (*batch, n - 1))
  return _call(name, [_like(a), d, e, _like(a, e.shape)], a)


def _lu(a: Any) -> list[Any]:
  """Factors, pivots, permutation."""
  import numpy as np

  import jax

  *batch, m, n = a.shape
  shapes = [
    _like(a),
    jax.ShapeDtypeStruct((*batch, _least(m, n)), np.int32),
    jax.ShapeDtypeStruct((*batch, m), np.int32),
  ]
  return _call("ipu_lu", shapes, a)


def _svd(
  a: Any,
  *,
  full_matrices: bool,
  compute_uv: bool,
  subset_by_index: tuple[int, int] | None,
  **_: Any,
) -> list[Any]:
  """Values, and both kinds of vectors if requested."""
  *batch, m, n = a.shape
  k = _least(m, n)
  shapes = [_like(a.real, (*batch, k))]
  if compute_uv:
    rows, columns = (m, n) if full_matrices else (k, k)
    shapes.append(_like(a, (*batch, m, rows)))
    shapes.append(_like(a, (*batch, columns, n)))
  s, *vectors = _call("ipu_svd", shapes, a)
  if subset_by_index is not None and subset_by_index != (0, k):
    begin, end = subset_by_index
    s = s[..., begin:end]
    vectors = [
      v[..., begin:end] if i == 0 else v[..., begin:end, :]
      for i, v in enumerate(vectors)
    ]
  return [s, *vectors]
