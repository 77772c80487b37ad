"""Checks what compute sets say of the elements of constants. Engines rely on it
and do not look (`Codelet.described`)."""

from __future__ import annotations

import math

import numpy as np

from jaxlib.ipu.check.verify_state import Verifier
from jaxlib.ipu.codelets import CODELETS
from jaxlib.ipu.codelets._codelet import Array
from jaxlib.ipu.dtypes import NUMPY, DType
from jaxlib.ipu.program import schema


def check(v: Verifier, step: schema.Execute) -> None:
  """Checks the operands that a compute set describes, those that are constants
  of f32 or f64; none if `v` does not know the constants."""
  described = CODELETS[type(step.fields)].described(step.fields, step.shape)
  for operand, expected in described.items():
    found = _elements(v, step, operand)
    if found is None:
      continue
    # Elements are rounded once; so is the description, and before that the
    # angles of which it has the sines, up to 2 pi.
    bound = 16 * np.finfo(found.dtype).eps * np.abs(expected).max(initial=0)
    error = np.abs(found - expected).max(initial=0)
    v.require(
      error <= bound,
      f"operand {operand} differs by {error:.3g} from what {step.fields} says",
    )


def _elements(v: Verifier, step: schema.Execute, operand: int) -> Array | None:
  """An operand over the iteration space, of extent 1 where it is broadcast;
  None if it is no known constant of f32 or f64."""
  access = step.operands[operand]
  t = v.tensor(access.tensor)
  root = v.tensor(t.root)
  if (
    v.constants is None
    or root.space != schema.CONSTANT
    or t.dtype not in (DType.F32, DType.F64)
  ):
    return None
  flat = np.frombuffer(
    v.constants, NUMPY[DType(t.dtype)], math.prod(root.shape), root.address
  )
  rank = len(step.shape)
  at = np.full((1,) * rank, t.offset)
  for d, k in enumerate(access.dims):
    if k >= 0:
      along = [-1 if i == d else 1 for i in range(rank)]
      at = at + (np.arange(step.shape[d]) * t.strides[k]).reshape(along)
  return flat[at]
