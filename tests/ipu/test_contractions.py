"""Contractions of tensors whose dimensions are in any order in memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jax
import jax.numpy as jnp
from jax import lax

# Extents of dimensions a, b, ... of each contraction.
CASES = [
  # Results in short runs: rows and columns are interleaved.
  ("aib,bjc->ijac", "a4 i7 b5 j9 c3"),
  ("abcd,befd->aecf", "a10 b6 c10 d3 e10 f10"),
  ("abcd,cdef->eafb", "a5 b12 c3 d2 e9 f6"),
  ("kaib,kbjc->ijkac", "k3 a4 i7 b5 j9 c3"),
  ("aib,bjc,ckd->ijkad", "a4 i6 b5 j9 c7 k8 d3"),
  # A batch that is innermost.
  ("ijb,jkb->ikb", "i9 j5 k11 b33"),
  ("bij,bjk->ikb", "i9 j5 k11 b33"),
  ("nmb,mb->nb", "n7 m9 b70"),
  ("mnb,mb->bn", "n7 m9 b70"),
  ("ij,ij->j", "i40 j150"),
  # Batches of vectors.
  ("ij,ij->i", "i150 j40"),
  ("bi,bij,bj->b", "b50 i7 j9"),
  ("bij,bj->bi", "b20 i30 j40"),
  ("bij,bi->bj", "b20 i30 j40"),
  # Vectors and few rows.
  ("ij,j->i", "i70 j20"),
  ("ij,i->j", "i70 j20"),
  ("ij,kj->ik", "i5 j300 k40"),
  ("ij,kj->ki", "i5 j300 k40"),
  ("bij,bkj->bik", "b3 i2 j80 k20"),
]
DTYPES = [
  np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.complex64,
]  # fmt: skip


def _operands(formula, extents, dtype):
  rng = np.random.default_rng(0)
  sizes = {e[0]: int(e[1:]) for e in extents.split()}
  operands = []
  for names in formula.split("->")[0].split(","):
    # Sums of so small integers are exact in every type.
    value = rng.integers(-2, 3, [sizes[d] for d in names])
    if dtype == np.complex64:
      value = value + 1j * rng.integers(-2, 3, value.shape)
    operands.append(value.astype(dtype))
  return operands


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("formula, extents", CASES)
def test_contraction(formula, extents, dtype, ipu):
  operands = _operands(formula, extents, dtype)
  wide = np.complex128 if dtype == np.complex64 else np.float64
  exact = np.einsum(formula, *[o.astype(wide) for o in operands])
  result = np.int32 if dtype == np.int8 else dtype
  contract = jax.jit(
    lambda *x: jnp.einsum(formula, *x, preferred_element_type=result)
  )
  found = contract(*jax.device_put(operands, ipu))
  if formula.count(",") > 1:  # rounds in between
    np.testing.assert_allclose(
      np.asarray(found, wide), exact, rtol=2e-2, atol=0.2
    )
  else:
    np.testing.assert_array_equal(found, exact.astype(result))


def test_small_updates_and_lookups_in_loops(ipu):
  """They are a part of the loop's function."""

  def f(x, v, places):
    def step(s, i):
      x, t = s
      x = x.at[places[i]].add(v[i], mode="drop").at[-i - 1].set(t[0])
      return (x, x[jnp.stack([places[i], i, 40])] * 0.5), t.sum()

    return lax.scan(step, (x, v[:3]), jnp.arange(len(v)))

  x = np.arange(8, dtype=np.float32)
  v = np.arange(4, 10, dtype=np.float32) * 0.25
  places = np.array([3, 9, -1, 0, 100, 7], np.int32)
  found = jax.jit(f)(*jax.device_put((x, v, places), ipu))
  cpu = jax.devices("cpu")[0]
  expected = jax.jit(f)(*jax.device_put((x, v, places), cpu))
  jax.tree.map(np.testing.assert_array_equal, found, expected)
