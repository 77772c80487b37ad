"""Advice for operations that are not supported."""

from __future__ import annotations

from jaxlib.ipu.diagnostics import ON_THE_CPU

_FIXED_SHAPES = (
  "give every array a fixed shape: jnp.where in place of a boolean index, "
  "size= in jnp.nonzero and jnp.unique, jax.jit(static_argnums=...) for "
  "numbers that are part of a shape"
)
_ARGUMENTS = "pass it as an argument, and return what should leave the device"
_FOREIGN = (
  "no function of that name is registered for the IPU: write it in jax.numpy "
  "or jax.lax, or register a function that the host runs, with "
  'jax.ffi.register_ffi_target(..., platform="ipu")'
)

# Calls of these targets are primitives without a lowering rule in JAX
# (jax_plugins/ipu/late_rules.py).
PRIMITIVE = "jax primitive "
_OWN_RULE = (
  f"{ON_THE_CPU}. A primitive of your own needs a rule: "
  "jax.interpreters.mlir.register_lowering(primitive, rule)"
)
_PRIMITIVES = {
  "pallas_call": (
    "pallas_call(..., interpret=True) runs Pallas kernels on the IPU, slowly; "
    "jax.numpy and jax.lax are compiled for it"
  )
}

_INSTEAD = {
  **dict.fromkeys(
    (
      "dynamic_broadcast_in_dim",
      "dynamic_conv",
      "dynamic_gather",
      "dynamic_iota",
      "dynamic_pad",
      "dynamic_reshape",
      "get_dimension_size",
      "real_dynamic_slice",
      "set_dimension_size",
    ),
    _FIXED_SHAPES,
  ),
  **dict.fromkeys(("recv", "send"), _ARGUMENTS),
  "custom_call": _FOREIGN,
}


def describe(operation: str) -> str:
  """What is refused: the operation, or the primitive that it stands for."""
  _, found, primitive = operation.partition(f"@{PRIMITIVE}")
  if found:
    return f"the primitive {primitive}: JAX has no rule for it on ipu"
  return f"operation {operation}"


def instead_of(operation: str) -> str:
  """The advice for an operation, `stablehlo.sort` or `stablehlo.custom_call
  @NAME`."""
  _, found, primitive = operation.partition(f"@{PRIMITIVE}")
  if found:
    return _PRIMITIVES.get(primitive, _OWN_RULE)
  name = operation.removeprefix("stablehlo.").partition(" ")[0]
  return _INSTEAD.get(name, ON_THE_CPU)


def instead_of_type(type_text: str) -> str:
  """The advice for values of an MLIR type that is not a fixed-shape array."""
  return _FIXED_SHAPES if "?" in type_text else ON_THE_CPU
