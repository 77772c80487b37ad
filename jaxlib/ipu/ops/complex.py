"""complex, real and imag, which passes/complex_planes.py removes.

The real part of a real number is the number itself, its imaginary part is 0."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.ipu.dtypes import COMPLEX
from jaxlib.ipu.ir.emitter import Emitter
from jaxlib.ipu.ir.graph import Node, Value
from jaxlib.ipu.ir.registry import Operation, define
from jaxlib.ipu.ops.elementwise import left_outside


def _real(e: Emitter, node: Node) -> Sequence[Value] | None:
  (x,) = node.inputs
  return None if x.dtype in COMPLEX else [x]


def _imag(e: Emitter, node: Node) -> Sequence[Value] | None:
  (x,) = node.inputs
  return None if x.dtype in COMPLEX else [e.constant(0, x.dtype, x.shape)]


define(Operation("stablehlo.complex", left_outside))
define(Operation("stablehlo.real", left_outside, decompose=_real))
define(Operation("stablehlo.imag", left_outside, decompose=_imag))
