"""Functions of the host: callbacks, effects, foreign functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.ipu.internals.feature import PLATFORM, uses


@uses(
  "jax._src.callback",
  "jax._src.callback.emit_python_callback",
  lost="Python callbacks (jax.pure_callback, jax.debug.print) are refused",
)
def allow_callbacks(module: Any, emit: Any, wrap: Callable[[Any], Any]) -> None:
  """Wraps the lowering of callbacks, which refuses unknown platforms."""
  if not hasattr(emit, "__wrapped__"):
    module.emit_python_callback = wrap(emit)


@uses(
  "jax.interpreters.mlir.register_lowering",
  "jax._src.debugging.debug_callback_p",
  "jax._src.debugging.debug_callback_lowering",
  "jax._src.debugging.debug_print_p",
  "jax._src.debugging.debug_print_lowering_rule",
  lost="jax.debug.callback and jax.debug.print are refused",
)
def register_debug_rules(register: Any, *args: Any) -> None:
  """Registers rules for primitives whose rules name their platforms, each
  wrapped by the last argument."""
  *pairs, wrap = args
  for primitive, rule in zip(pairs[::2], pairs[1::2]):
    # A callback's number is part of the module, so it must not be cached.
    register(primitive, wrap(rule), PLATFORM, cacheable=False)


@uses(
  "jax._src.interpreters.mlir",
  "jax._src.interpreters.mlir.lower_per_platform",
  lost="checkify.debug_check is refused",
)
def add_late_rules(module: Any, lower: Any, wrap: Callable[[Any], Any]) -> None:
  """Wraps the lookup of lowering rules, to add rules late."""
  if not hasattr(lower, "__wrapped__"):
    module.lower_per_platform = wrap(lower)


@uses(
  "jax._src.checkify.check_lowering_rule",
  lost="checkify.debug_check is refused",
  users=True,
)
def lower_check(rule: Any, *args: Any, **kwargs: Any) -> Any:
  """JAX's own rule, whose module `import jax` does not import."""
  return rule(*args, **kwargs)


@uses(
  "jax._src.ffi.build_ffi_lowering_function",
  "jax._src.interpreters.mlir.set_sharding",
  lost=None,
  users=True,
)
def emit_call(
  build: Any,
  set_sharding: Any,
  target: str,
  has_side_effect: bool,
  sharding: Any,
  aliases: dict[int, int],
  ctx: Any,
  *operands: Any,
  **attributes: Any,
) -> Any:
  """Emits a typed custom call; public `ffi_lowering` hides the operation."""
  emit = build(
    target, has_side_effect=has_side_effect, operand_output_aliases=aliases
  )
  operation = emit(ctx, *operands, **attributes)
  if sharding is not None:
    set_sharding(ctx.module_context, operation, sharding)
  return operation


@uses(
  "jax._src.core.abstract_token",
  lost="ordered callbacks are refused",
)
def abstract_token(token: Any) -> Any:
  """The type of the values that order effects."""
  return token


@uses(
  "jax._src.effects.Effect",
  "jax._src.effects.lowerable_effects",
  "jax._src.effects.control_flow_allowed_effects",
  lost="jax.ipu.feed, lax.infeed and lax.outfeed are missing",
)
def make_effect(base: Any, lowerable: Any, in_control_flow: Any) -> Any:
  """The effect of primitives that take items from feeds, or add some: they are
  neither left out nor done twice."""

  class FeedEffect(base):
    def __str__(self) -> str:
      return "Feed"

  lowerable.add_type(FeedEffect)
  in_control_flow.add_type(FeedEffect)
  return FeedEffect()


@uses(
  "jax._src.core.physical_aval",
  lost="callbacks of values with extended dtypes, such as keys, are refused",
  users=True,
)
def physical_aval(physical: Any, aval: Any) -> Any:
  """The storage type of values of an extended dtype, such as keys."""
  return physical(aval)


@uses(
  "jax._src.lib.xla_client.register_custom_call_handler",
  "jax._src.lib.xla_client.register_custom_type_handler",
  lost="jax.ffi.register_ffi_target(..., platform='ipu') is ignored",
)
def register_ffi_handlers(
  targets: Any,
  types: Any,
  register_target: Callable[..., None],
  register_type: Callable[..., None],
) -> None:
  """Hooks into `jax.ffi`, which forwards registrations for a platform."""
  targets(PLATFORM, register_target)
  types(PLATFORM, register_type)
