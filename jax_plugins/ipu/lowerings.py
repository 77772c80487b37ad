"""How JAX's primitives reach the IPU that have no rule for every platform, or
one that suits it less. The compiler knows what they call (`jaxlib/ipu/ops`)."""

from __future__ import annotations

from typing import Any

PLATFORM = "ipu"


def register() -> None:
  """Registers the rules; JAX must know the platform by then."""
  from jax.interpreters import mlir
  from jax.lax import linalg

  for primitive, function in (
    (linalg.eigh_p, _eigh),
    (linalg.lu_p, _lu),
    (linalg.svd_p, _svd),
  ):
    rule = mlir.lower_fun(function, multiple_results=True)
    mlir.register_lowering(primitive, rule, platform=PLATFORM)


def _call(name: str, shapes: list[Any], *operands: Any) -> list[Any]:
  import jax

  return list(jax.ffi.ffi_call(name, shapes)(*operands))


def _eigh(
  a: Any,
  *,
  lower: bool,
  sort_eigenvalues: bool,
  subset_by_index: tuple[int, int] | None,
  **_: Any,
) -> list[Any]:
  """Vectors and values, always sorted; only one triangle is read."""
  import jax
  import jax.numpy as jnp

  if lower:
    a = jnp.tril(a) + jnp.tril(a, -1).mT.conj()
  else:
    a = jnp.triu(a) + jnp.triu(a, 1).mT.conj()
  w = jax.ShapeDtypeStruct(a.shape[:-1], a.real.dtype)
  v, w = _call("ipu_eigh", [jax.ShapeDtypeStruct(a.shape, a.dtype), w], a)
  if subset_by_index is not None:
    begin, end = subset_by_index
    v, w = v[..., begin:end], w[..., begin:end]
  return [v, w]


def _lu(a: Any) -> list[Any]:
  """Factors, pivots, permutation."""
  import numpy as np

  import jax

  *batch, m, n = a.shape
  shapes = [
    jax.ShapeDtypeStruct(a.shape, a.dtype),
    jax.ShapeDtypeStruct((*batch, min(m, n)), np.int32),
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
  """Values, and if they are asked for both kinds of vectors."""
  import jax

  *batch, m, n = a.shape
  k = min(m, n)
  shapes = [jax.ShapeDtypeStruct((*batch, k), a.real.dtype)]
  if compute_uv:
    rows, columns = (m, n) if full_matrices else (k, k)
    shapes.append(jax.ShapeDtypeStruct((*batch, m, rows), a.dtype))
    shapes.append(jax.ShapeDtypeStruct((*batch, columns, n), a.dtype))
  s, *vectors = _call("ipu_svd", shapes, a)
  if subset_by_index is not None and subset_by_index != (0, k):
    begin, end = subset_by_index
    s = s[..., begin:end]
    vectors = [
      v[..., begin:end] if i == 0 else v[..., begin:end, :]
      for i, v in enumerate(vectors)
    ]
  return [s, *vectors]
