"""Lowering rules for primitives of modules that `import jax` does not import.

JAX registers rules by the primitive itself, which would mean to import its
module for everybody. These are asked for by name when JAX finds no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from jaxlib.ipu import internals

PLATFORM = "ipu"


def register() -> None:
  """Adds the rules, once."""
  internals.add_late_rules(_wrap)


def _wrap(lower: Callable[..., Any]) -> Callable[..., Any]:
  """`lower_per_platform`, which takes a rule from here where it has none."""

  @functools.wraps(lower)
  def wrapper(
    ctx: Any,
    description: str,
    platform_rules: dict[str, Any],
    default_rule: Any,
    *args: Any,
    **kwargs: Any,
  ) -> Any:
    if default_rule is None and PLATFORM not in platform_rules:
      platforms = ctx.platforms or ctx.module_context.platforms
      if description in _RULES and tuple(platforms) == (PLATFORM,):
        platform_rules = platform_rules | {PLATFORM: _RULES[description]}
    return lower(
      ctx, description, platform_rules, default_rule, *args, **kwargs
    )

  return wrapper


def _pallas_call(*args: Any, **kwargs: Any) -> NoReturn:
  """A kernel that is not interpreted."""
  raise NotImplementedError(
    "Pallas kernels are not compiled for the IPU: "
    "pallas_call(..., interpret=True) runs them there, slowly"
  )


_RULES: dict[str, Callable[..., Any]] = {
  # A check that checkify has not turned into values: as on the CPU.
  "check": internals.lower_check,
  "pallas_call": _pallas_call,
}
