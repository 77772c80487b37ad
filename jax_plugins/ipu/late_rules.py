"""Handles primitives for which JAX has no lowering rule.

JAX registers rules by primitive, which would require importing its module.
Rules for primitives of modules that `import jax` does not import are looked up
by name when JAX finds none. If there is no rule at all, a call is left in the
program for the compiler to refuse: JAX no longer knows the user's line at that
point, but the compiler does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from jax_plugins.ipu import buffer_callbacks, sparse_solve
from jaxlib.ipu import internals
from jaxlib.ipu.ir.refusals import PRIMITIVE
from jaxlib.mlir import ir

PLATFORM = "ipu"


def register() -> None:
  """Adds the rules, once."""
  internals.add_late_rules(_wrap)


def _wrap(lower: Callable[..., Any]) -> Callable[..., Any]:
  """Extends `lower_per_platform` by the rules of this module."""

  @functools.wraps(lower)
  def wrapper(
    ctx: Any,
    description: str,
    platform_rules: dict[str, Any],
    default_rule: Any,
    *args: Any,
    **kwargs: Any,
  ) -> Any:
    rule = _RULES.get(description)
    if PLATFORM not in platform_rules and (default_rule is None or rule):
      platforms = ctx.platforms or ctx.module_context.platforms
      if tuple(platforms) == (PLATFORM,):
        if rule is None and _is_plain(ctx, args[1:]):  # effects come first
          rule = functools.partial(_leave, description)
        if rule is not None:
          platform_rules = platform_rules | {PLATFORM: rule}
    return lower(
      ctx, description, platform_rules, default_rule, *args, **kwargs
    )

  return wrapper


def _is_plain(ctx: Any, operands: Sequence[Any]) -> bool:
  """Whether a primitive's operands and results are all arrays."""
  import jax

  return all(isinstance(value, ir.Value) for value in operands) and all(
    isinstance(aval, jax.core.ShapedArray)
    and not jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)
    for aval in (*ctx.avals_in, *ctx.avals_out)
  )


def _leave(primitive: str, ctx: Any, *operands: Any, **_: Any) -> Any:
  """Emits a call named after the primitive."""
  import jax

  if ctx.tokens_out is None:
    ctx.set_tokens_out(ctx.tokens_in)
  return jax.ffi.ffi_lowering(PRIMITIVE + primitive)(ctx, *operands)


_RULES: dict[str, Callable[..., Any]] = {
  # A check that checkify has not functionalised: as on the CPU.
  "check": internals.lower_check,
  # JAX's own rule, for all platforms, refuses unknown ones.
  "buffer_callback": buffer_callbacks.lower,
  "spsolve": sparse_solve.lower,
}
