"""Lowering rules for primitives of modules that `import jax` does not import.

JAX registers rules by the primitive itself, which would mean to import its
module for everybody. These are asked for by name when JAX finds no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn


def register(platform: str) -> None:
  """Adds the rules for a platform, once."""
  from jax._src.interpreters import mlir

  lower = mlir.lower_per_platform
  if hasattr(lower, "has_late_rules"):
    return

  @functools.wraps(lower)
  def wrapper(
    ctx: Any,
    description: str,
    platform_rules: dict[str, Any],
    default_rule: Any,
    *args: Any,
    **kwargs: Any,
  ) -> Any:
    if default_rule is None and platform not in platform_rules:
      platforms = ctx.platforms or ctx.module_context.platforms
      if description in _RULES and tuple(platforms) == (platform,):
        platform_rules = platform_rules | {platform: _RULES[description]}
    return lower(
      ctx, description, platform_rules, default_rule, *args, **kwargs
    )

  wrapper.has_late_rules = True  # type: ignore[attr-defined]
  mlir.lower_per_platform = wrapper


def _check(*args: Any, **kwargs: Any) -> Any:
  """A check that checkify has not turned into values: as on the CPU."""
  from jax._src import checkify

  return checkify.check_lowering_rule(*args, **kwargs)


def _pallas_call(*args: Any, **kwargs: Any) -> NoReturn:
  """A kernel that is not interpreted."""
  raise NotImplementedError(
    "Pallas kernels are not compiled for the IPU: "
    "pallas_call(..., interpret=True) runs them there, slowly"
  )


_RULES: dict[str, Callable[..., Any]] = {
  "check": _check,
  "pallas_call": _pallas_call,
}
