"""Names of JAX 0.3, for programs that were written for JAX on IPU of that time.

  import jax.ipu.compat

as a program's first line gives back what today's JAX has under another name.
A name that the installed JAX has is never replaced, except where the table says
so, and programs that do not import this module see nothing of it.

`GIVEN` lists the names that it gives back, `GONE` what has to be changed by
hand; `markdown()` makes ipu/docs/migration.md of both.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import sys
import types
import warnings
from typing import Any

import jax
import jax.ipu
from jax.ipu import _infeed, _nested_pmap, _older
from jaxlib.ipu import internals

logger = logging.getLogger("jaxlib.ipu")


@dataclasses.dataclass(frozen=True)
class Name:
  """A name of earlier JAX.

  Attributes:
    old: `module.attribute`, or `jax.Array.attribute`.
    today: what to write today.
    value: what the name stands for; None: the object that `today` names.
    replaces: whether it replaces what the installed JAX has.
  """

  old: str
  today: str
  value: Any = None
  replaces: bool = False


def _renamed(old: str, today: str, *names: str) -> tuple[Name, ...]:
  """Names that moved from one module to another."""
  return tuple(Name(f"{old}.{name}", f"{today}.{name}") for name in names)


# The platform that an unset `jax_platforms` means.
_PLATFORMS = "ipu,cpu"

GIVEN: tuple[Name, ...] = (
  Name("jax.config.FLAGS", "jax.config.update(NAME, VALUE)", _older.Flags()),
  Name("jax.tree_map", "jax.tree.map"),
  Name("jax.tree_leaves", "jax.tree.leaves"),
  Name("jax.tree_flatten", "jax.tree.flatten"),
  Name("jax.tree_unflatten", "jax.tree.unflatten"),
  Name("jax.tree_structure", "jax.tree.structure"),
  Name("jax.tree_transpose", "jax.tree.transpose"),
  *_renamed("jax", "jax.tree_util", "treedef_is_leaf"),
  Name("jax.Array.platform", "array.device.platform", _older.platform),
  Name(
    "jax.Array.device_buffers",
    "[s.data for s in array.addressable_shards]",
    _older.device_buffers,
    replaces=True,  # an error that says this
  ),
  Name(
    "jax.Array.device_buffer",
    "array.addressable_data(0)",
    _older.device_buffer,
    replaces=True,
  ),
  Name("jax.Array.to_py", "np.asarray(array)", _older.to_py),
  Name("jax.numpy.DeviceArray", "jax.Array"),
  Name("jax.interpreters.xla.DeviceArray", "jax.Array"),
  Name("jax.random.KeyArray", "jax.Array"),
  Name("jax.random.PRNGKeyArray", "jax.Array"),
  Name(
    "jax.device_put_sharded",
    "jax.device_put(np.stack(shards), sharding)",
    _older.device_put_sharded,
  ),
  Name(
    "jax.device_put_replicated",
    "jax.device_put(np.stack([x] * n), sharding)",
    _older.device_put_replicated,
  ),
  Name(
    "jax.pmap",
    "jax.shard_map",
    _nested_pmap.pmap,
    replaces=True,  # it refuses a pmap of a pmap
  ),
  Name("jax.numpy.alltrue", "jax.numpy.all"),
  Name("jax.numpy.sometrue", "jax.numpy.any"),
  Name("jax.numpy.product", "jax.numpy.prod"),
  Name("jax.numpy.cumproduct", "jax.numpy.cumprod"),
  Name("jax.numpy.in1d", "jax.numpy.isin(jax.numpy.ravel(a), b)", _older.in1d),
  Name("jax.numpy.msort", "jax.numpy.sort(a, axis=0)", _older.msort),
  Name("jax.numpy.round_", "jax.numpy.round"),
  Name("jax.numpy.row_stack", "jax.numpy.vstack"),
  Name("jax.numpy.trapz", "jax.numpy.trapezoid"),
  Name("jax.numpy.fix", "jax.numpy.trunc"),
  Name("jax.numpy.issubsctype", "jax.numpy.issubdtype"),
  Name("jax.numpy.NINF", "-jax.numpy.inf", float("-inf")),
  Name("jax.numpy.NZERO", "-0.0", -0.0),
  Name("jax.numpy.PZERO", "0.0", 0.0),
  Name("jax.nn.normalize", "jax.nn.standardize"),
  *_renamed("jax.scipy.linalg", "jax.numpy", "tril", "triu"),
  Name("jax.lax.infeed", "jax.ipu.feed", _infeed.infeed),
  Name("jax.lax.outfeed", "results of the program", _infeed.outfeed),
  Name("jax.lax.infeed_p", "jax.ipu.feed", _infeed.infeed_p),
  Name("jax.lax.outfeed_p", "results of the program", _infeed.outfeed_p),
  Name(
    "jax.lax.create_token",
    "nothing: effects are in order",
    _infeed.create_token,
    replaces=True,  # a token that loops do not carry
  ),
  Name(
    "jax.lax.after_all",
    "nothing: effects are in order",
    _infeed.after_all,
    replaces=True,  # it takes only such tokens
  ),
  Name(
    "jax.Device.transfer_to_infeed", "jax.ipu.feed", _infeed.transfer_to_infeed
  ),
  Name(
    "jax.Device.transfer_from_outfeed",
    "results of the program",
    _infeed.transfer_from_outfeed,
  ),
  Name("jax.Device.target_type", "device.is_ipu_model", _older.target_type),
  Name("jaxlib.xla_extension.XlaRuntimeError", "jax.errors.JaxRuntimeError"),
  Name(
    "jaxlib.ipu_xla_client.IpuTargetType",
    "device.is_ipu_model",
    _older.IpuTargetType,
  ),
  Name(
    "jaxlib.ipu_xla_client.IpuPjRtDevice",
    "nothing: all devices have feeds",
    _older.IpuPjRtDevice,
  ),
  Name("jax.lib.xla_client.shape_from_pyval", "jax.eval_shape", _older.Shape),
  Name(
    "jax.experimental.host_callback.stop_outfeed_receiver",
    "nothing: nobody else takes what leaves",
    _older.stop_outfeed_receiver,
  ),
  Name(
    "jax.random.shuffle",
    "jax.random.permutation(key, x, axis, independent=True)",
    _older.shuffle,
  ),
  *_renamed("jax", "jax.core", "ShapedArray"),
  *_renamed("jax.abstract_arrays", "jax.core", "ShapedArray"),
  *_renamed(
    "jax.core",
    "jax.extend.core",
    *("Jaxpr", "ClosedJaxpr", "JaxprEqn", "Literal", "Primitive", "Var"),
    "jaxpr_as_fun",
  ),
  Name("jax.linear_util", "jax.extend.linear_util"),
  Name("jax.clear_backends", "jax.extend.backend.clear_backends"),
  Name("jax.lib.xla_bridge", "jax.extend.backend, jax", _older.xla_bridge),
  Name("jax._src.lib.xla_bridge", "jax.extend.backend, jax", _older.xla_bridge),
  *_renamed("jax.ad_checkpoint", "jax", "checkpoint", "remat"),
  *_renamed("jax.experimental", "jax.sharding", "PartitionSpec"),
  *_renamed("jax.experimental.pjit", "jax.sharding", "PartitionSpec"),
  *_renamed("jax.experimental.maps", "jax.sharding", "Mesh"),
  *_renamed("jax.experimental.pjit", "jax.lax", "with_sharding_constraint"),
  Name(
    "jax.experimental.pjit.pjit",
    "jax.jit(f, in_shardings=..., out_shardings=...)",
    _older.pjit,
    replaces=True,
  ),
)

# What a program of that time says, and what to do about it today.
GONE: tuple[tuple[str, str], ...] = (
  (
    "`jax==0.3.16+ipu`, `jaxlib==0.3.15+ipu.sdk...`",
    "the wheels of this project",
  ),
  (
    "`jax.experimental.host_callback`: `id_print`; `id_tap`; `call`",
    "`jax.debug.print`; `jax.debug.callback`; `jax.pure_callback` or "
    "`jax.experimental.io_callback`",
  ),
  (
    "`jax.experimental.maps.xmap`",
    "`jax.vmap`, `jax.shard_map`",
  ),
  (
    "`jax.ipu.primitive`: codelets of your own",
    "a function of the host by `jax.ffi`; new codelets only in the compiler",
  ),
  (
    "`jax.ipu.random`: the generator of the hardware",
    "`jax.random`, with any of its generators",
  ),
  (
    "`TF_POPLAR_FLAGS=--executable_cache_path=DIR`",
    "`JAX_COMPILATION_CACHE_DIR=DIR`",
  ),
  (
    "`jax.xla_computation(f)(x)`",
    "`jax.jit(f).lower(x).compiler_ir()`",
  ),
  ("`jax.interpreters.xla.translations`", "`jax.interpreters.mlir`"),
  ("`jax.lax.tie_in(x, y)`", "`y`"),
  ("`jax.soft_pmap`", "`jax.vmap` in `jax.pmap`"),
  ("`jax.scipy.special.sph_harm(m, n, theta, phi)`",
   "`sph_harm_y(n, m, phi, theta)`"),
  ("`jax.dlpack.to_dlpack(x)`", "`x` itself, which has `__dlpack__`"),
  ("`jax.util`, `jax.prng`, `jax.curry`", "copy what you need"),
)  # fmt: skip


def markdown() -> str:
  """Both tables, for the documents."""
  rows = [
    "| given back | today |",
    "|---|---|",
    '| IPUs are the default devices | `JAX_PLATFORMS=ipu,cpu`, or '
    f'`jax.config.update("jax_platforms", "{_PLATFORMS}")` |',
    "| `array.device()`, on any platform | `array.device` |",
    "| `from jax.config import config` | `jax.config` |",
  ]  # fmt: skip
  for name in GIVEN:
    old = name.old.replace("jax.Array.", "array.")
    old = old.replace("jax.Device.", "device.")
    rows.append(f"| `{old}` | `{name.today}` |")
  rows += ["", "| not given back | what to do |", "|---|---|"]
  rows += [f"| {old} | {what} |" for old, what in GONE]
  return "\n".join(rows) + "\n"


def _resolve(name: str) -> Any:
  """The public object of JAX that a dotted name stands for."""
  owner, _, attribute = name.rpartition(".")
  if not owner:
    return importlib.import_module(name)
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError:
    return getattr(_resolve(owner), attribute)


def _owner(name: str) -> Any:
  """The module or class that had a name, made anew if it is gone."""
  if name == "jax.Array":
    return internals.array_class()
  if name in ("jax.config", "jax.Device"):
    return getattr(jax, name.removeprefix("jax."))
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError:
    module = types.ModuleType(name, "Where these names once were.")
    parent, _, attribute = name.rpartition(".")
    sys.modules[name] = module
    setattr(_owner(parent), attribute, module)
    return module


def _give_back(name: Name) -> None:
  owner_name, _, attribute = name.old.rpartition(".")
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of names that are about to go
    owner = _owner(owner_name)
    if owner is None:
      return  # internals has logged it
    if hasattr(owner, attribute) and not name.replaces:
      return
    try:
      value = _resolve(name.today) if name.value is None else name.value
    except (AttributeError, ImportError):
      logger.warning("this JAX has neither %s nor %s", name.old, name.today)
      return
  setattr(owner, attribute, value)
  if isinstance(value, types.ModuleType):
    sys.modules.setdefault(name.old, value)


def _prefer_ipus() -> None:
  """Makes IPUs the default devices, unless the user has chosen others."""
  flags = _older.Flags()
  if flags.jax_platforms or flags.jax_platform_name:
    return
  if internals.devices_are_known():
    logger.warning(
      "jax.ipu.compat is imported after the first use of a device, so IPUs are "
      "not the default devices: import it first"
    )
  else:
    jax.config.update("jax_platforms", _PLATFORMS)


def _install() -> None:
  for name in GIVEN:
    _give_back(name)
  jax.ipu.callable_platforms = None
  _prefer_ipus()


_install()
