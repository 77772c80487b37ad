"""Primitives that JAX does not export."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from jaxlib.ipu.internals.feature import PLATFORM, uses


@uses(
  "jax._src.lax.linalg.geqp3_p",
  lost="QR with column pivoting is refused",
)
def pivoted_qr(primitive: Any) -> Any:
  """The primitive of `jax.scipy.linalg.qr(..., pivoting=True)`."""
  return primitive


@uses(
  "jax.interpreters.mlir.register_lowering",
  "jax.lax.linalg.eig_p",
  "jax._src.lax.linalg._eig_cpu_lowering",
  "jax.lax.linalg.schur_p",
  "jax._src.lax.linalg._schur_cpu_lowering",
  lost="eig and schur are refused",
)
def register_lapack_rules(
  register: Any,
  eig: Any,
  eig_rule: Any,
  schur: Any,
  schur_rule: Any,
  wrap: Callable[[Any], Any],
) -> None:
  """Registers the CPU's rules of these primitives for the IPU's host."""
  register(eig, wrap(eig_rule), PLATFORM)
  register(schur, wrap(schur_rule), PLATFORM)


@uses(
  "jaxlib.lapack.registrations",
  "jaxlib.cpu._lapack.initialize",
  lost="eig and schur are refused",
)
def lapack_handlers(
  registrations: Any, initialize: Any
) -> tuple[dict[str, Any], Callable[[], None]]:
  """FFI handlers of LAPACK's functions by their names on the CPU, and the
  function that loads LAPACK (from SciPy, which it imports)."""
  return {
    name: handler
    for name, handler, version in registrations()["cpu"]
    if version == 1
  }, initialize


@uses(
  "jax._src.export._export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE",
  lost="jax.export of linear algebra for the IPU needs "
  "export.DisabledSafetyCheck.custom_call(NAME)",
)
def guarantee_custom_calls(targets: set[str], names: Iterable[str]) -> None:
  """Lets `jax.export` accept custom calls, whose meaning must be stable."""
  targets.update(names)


@uses(
  "jax.interpreters.mlir.register_lowering",
  "jax._src.lax.parallel.pbroadcast_p",
  "jax._src.lax.parallel._pbroadcast_lowering",
  "jax._src.lax.parallel.psend_p",
  "jax._src.lax.parallel.precv_p",
  "jax._src.lax.parallel._pcollectives_lowering_common",
  lost="pbroadcast, psend and precv are refused",
)
def register_point_to_point(
  register: Any,
  broadcast: Any,
  broadcast_rule: Any,
  send: Any,
  receive: Any,
  pairs: Any,
  send_rule: Callable[..., Any],
  receive_rule: Callable[..., Any],
) -> None:
  """Registers rules for primitives that JAX has for GPUs alone. Those of psend
  and precv get a function first, of the pairs of devices of a permutation along
  a mesh axis and the attributes of its operation."""
  send_rule = functools.partial(send_rule, pairs)
  receive_rule = functools.partial(receive_rule, pairs)
  register(broadcast, broadcast_rule, PLATFORM)
  register(send, send_rule, PLATFORM, cacheable=False)
  register(receive, receive_rule, PLATFORM, cacheable=False)
