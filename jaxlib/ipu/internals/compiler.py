"""What the compiler needs, and what compiles as JAX does."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlib.ipu.internals.feature import uses


@uses(
  "jaxlib._jax.CompileOptions",
  lost="compiler_options={'ipu_...': ...} are ignored",
)
def compiler_options(options_class: Any, serialized: bytes) -> dict[str, Any]:
  """The user's options of `jax.jit(..., compiler_options=...)`.

  They reach a backend inside a serialised `CompileOptionsProto`.
  """
  return dict(options_class.ParseFromString(serialized).env_option_overrides)


@uses(
  "jaxlib.mlir.ir.DialectRegistry",
  "jaxlib.mlir._mlir_libs._jax_mlir_ext.register_dialects",
  lost="jaxlib.ipu.report.of(compiled) may not read programs from a cache",
)
def allow_functions(registry_class: Any, register: Any, context: Any) -> None:
  """Lets MLIR read modules that are no portable artifacts, such as those in
  programs: they have the dialect `func` itself."""
  registry = registry_class()
  register(registry)
  context.append_dialect_registry(registry)
  context.dialects["func"]


@uses(
  "jaxlib.mlir._mlir_libs._mosaic_gpu_ext.register_inliner_extensions",
  lost="programs with calls (jit in jit, scan, jax.random) are refused",
)
def allow_inlining(register: Any, context: Any) -> None:
  """Lets MLIR's inliner inline calls of `func`."""
  register(context)


@uses(
  "jaxlib._jax.CompileOptions",
  "jax._src.xla_bridge.get_backend",
  lost="python -m jaxlib.ipu replay does nothing",
  users=True,
)
def compile_for(
  options_class: Any,
  get_backend: Any,
  platform: str,
  code: bytes,
  serialized: bytes,
) -> Any:
  """Compiles a module as JAX does.

  Args:
    platform: `ipu` or `cpu`.
    code: a StableHLO portable artifact.
    serialized: a `CompileOptionsProto`; b"" for the default.

  Returns:
    jaxlib's executable.
  """
  client = get_backend(platform)
  options = options_class()
  if serialized:
    options = options_class.ParseFromString(serialized)
  build = options.executable_build_options
  count = max(build.num_partitions, 1) * max(build.num_replicas, 1)
  return client.compile_and_load(code, client.local_devices()[:count], options)


@uses(
  "jax.device_put",
  lost="python -m jaxlib.ipu replay does not run programs",
  users=True,
)
def run_on(
  put: Any,
  executable: Any,
  arguments: list[np.ndarray],
) -> list[np.ndarray]:
  """Runs an executable of `compile_for` on its device."""
  (device,) = executable.local_devices()
  placed = [put(argument, device) for argument in arguments]
  results = executable.execute_sharded(placed)
  parts = results.disassemble_into_single_device_arrays()
  return [np.asarray(part[0]) for part in parts]
