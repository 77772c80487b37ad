"""XLA's partitioner."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxlib.ipu.internals.feature import jaxlib_version, uses


@uses("jaxlib._jax.CompileOptions", lost="programs for several IPUs fail")
def sharding_options(
  options_class: Any, serialized: bytes
) -> dict[str, Any] | None:
  """What a serialised `CompileOptionsProto` says of a program for several
  devices, by the names of `partition.options.Sharding`; None if the program is
  for one."""
  parsed = options_class.ParseFromString(serialized)
  options = parsed.executable_build_options
  if options.num_partitions <= 1:
    return None
  # JAX can read an assignment only as text.
  assigned = re.findall(
    r"Computation\d+{(\d+)", repr(options.device_assignment)
  )
  return {
    "num_partitions": options.num_partitions,
    "uses_shardy": options.use_shardy_partitioner,
    "free_arguments": tuple(
      options.allow_spmd_sharding_propagation_to_parameters
    ),
    "free_results": tuple(options.allow_spmd_sharding_propagation_to_output),
    "places": tuple(map(int, assigned)),
  }


@dataclasses.dataclass(frozen=True)
class Xla:
  """What the partitioner needs of XLA. HLO modules are serialised.

  Attributes:
    to_stablehlo: converts an HLO module to MLIR bytecode.
    make_client, register, options_class, assign, read, style, op_sharding,
      tuple_type: internals of jaxlib, for the methods.
  """

  make_client: Any
  register: Any
  options_class: Any
  assign: Any
  to_stablehlo: Callable[[bytes], bytes]
  read: Any
  style: Any
  op_sharding: Any
  tuple_type: Any

  def cpu_client(self, num_devices: int) -> Any:
    """A client of XLA:CPU that JAX does not know, with its own devices."""
    return self.make_client(asynchronous=False, num_devices=num_devices)

  def call_back(
    self, name: str, transform: Callable[[bytes], bytes | None]
  ) -> None:
    """Calls `transform` with each HLO module that XLA:CPU compiles from now on;
    None leaves it as it is, an exception ends the compilation."""
    before_scheduling = 0
    self.register(name, before_scheduling, transform)

  def call_back_passes(self, count: int) -> list[str]:
    """The names that the pass that calls back may have: from 0.12 on it is
    numbered, and this process may have made `count` before."""
    name = "apply-xla-transforms"
    if jaxlib_version() < (0, 12):
      return [name]
    return [f"{name}-{i}" for i in range(count)]

  def run_passes(
    self,
    client: Any,
    code: bytes,
    passes: Iterable[str],
    settings: dict[str, Any],
  ) -> None:
    """Compiles a module with some of XLA's HLO passes alone.

    Args:
      client: of `cpu_client`; all of its devices take part.
      code: MLIR bytecode.
      passes: their names.
      settings: of `sharding_options`.
    """
    count = settings["num_partitions"]
    devices = np.arange(count, dtype=np.int32)[None]
    options = self.options_class()
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, count
    build.device_assignment = self.assign(devices)
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = settings["uses_shardy"]
    build.allow_spmd_sharding_propagation_to_parameters = list(
      settings["free_arguments"]
    )
    build.allow_spmd_sharding_propagation_to_output = list(
      settings["free_results"]
    )
    build.debug_options.xla_enable_hlo_passes_only = ",".join(passes)
    client.compile_and_load(code, client.devices(), options)

  def text(self, proto: bytes) -> str:
    """A module without metadata and large constants."""
    options = self.style()
    options.print_metadata = options.print_large_constants = False
    return self.read(proto).to_string(options)

  def shardings(self, proto: bytes) -> list[bytes]:
    """Those of a partitioned module's arguments and, after them, of its
    results: serialised `OpSharding`s."""
    module = self.read(proto)
    arguments = module.spmd_parameters_shardings or ()
    found = (*arguments, module.spmd_output_sharding)
    return [sharding.SerializeToString() for sharding in found]

  def replicated(self, count: int) -> bytes:
    """The serialised sharding of `count` results that all devices have. That of
    an empty tuple has one element in XLA."""
    sharding = self.op_sharding()
    if count != 1:
      sharding.type = self.tuple_type
      sharding.tuple_shardings = [self.op_sharding()] * max(count, 1)
    return sharding.SerializeToString()


@uses(
  "jaxlib._jax.get_tfrt_cpu_client",
  "jaxlib._xla.register_xla_transform",
  "jaxlib.xla_client.CompileOptions",
  "jaxlib._jax.DeviceAssignment.create",
  "jaxlib._jax.mlir.hlo_to_stablehlo",
  "jaxlib._hlo.HloModule.from_serialized_hlo_module_proto",
  "jaxlib._hlo.HloPrintOptions.short_parsable",
  "jaxlib._hlo.OpSharding",
  "jaxlib._hlo.OpSharding_Type.TUPLE",
  lost="programs for several IPUs are refused",
)
def xla(*found: Any) -> Xla:
  """XLA's partitioner and what belongs to it."""
  return Xla(*found)
