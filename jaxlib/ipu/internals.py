"""Every use of private parts of JAX and jaxlib, in one place.

JAX has no public API for these features, so each one names the internals that
it uses, and from which version on they have that shape. If the internals of a
feature have changed in the installed JAX, the feature is disabled with a
warning that names them, and everything else continues; a feature that is
required raises an error instead.

When JAX changes one of these: give the old shape an `until`, and define the
feature again with the new names and `since`. `tests/ipu/test_internals.py`
fails on a JAX whose internals match no shape here.

JAX is not imported before a feature is used.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

logger = logging.getLogger("jaxlib.ipu")

PLATFORM = "ipu"

R = TypeVar("R")


class InternalsError(RuntimeError):
  """An internal of JAX that the backend requires has changed."""


@dataclasses.dataclass(frozen=True)
class Shape:
  """An implementation of a feature for the JAX versions [since, until).

  Attributes:
    names: the internals, `package.module.attribute`.
    use: the function; gets the internals as its first arguments.
    since: the first version of jaxlib with this shape, such as (0, 12).
    until: the first version with another one; None: none is known.
  """

  names: tuple[str, ...]
  use: Callable[..., Any]
  since: tuple[int, ...]
  until: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Feature:
  """A feature that needs internals of JAX.

  Attributes:
    name: the function's.
    lost: what users lose if it is disabled; None: it is required.
    shapes: one for each range of versions.
  """

  name: str
  lost: str | None
  shapes: list[Shape]

  def shape(self) -> Shape | None:
    """The shape for the installed jaxlib."""
    installed = jaxlib_version()
    for shape in self.shapes:
      if shape.since <= installed and not (
        shape.until and installed >= shape.until
      ):
        return shape
    return None


FEATURES: dict[str, Feature] = {}
# Features disabled in this process, and why.
given_up: dict[str, str] = {}


def version_tuple(version: str) -> tuple[int, ...]:
  """`1.12.0.1+ipu` as (1, 12, 0, 1); stops at the first part that is no
  number."""
  numbers = []
  for part in version.partition("+")[0].split("."):
    if not part.isdecimal():
      break
    numbers.append(int(part))
  return tuple(numbers)


@functools.cache
def jaxlib_version() -> tuple[int, ...]:
  """The version of the installed jaxlib."""
  import jaxlib.version

  return version_tuple(jaxlib.version.__version__)


def resolve(name: str) -> Any:
  """The object that `package.module.attribute` names.

  Raises:
    ImportError: no module of that name can be imported.
    AttributeError: the module has no such attribute.
  """
  parts = name.split(".")
  for i in range(len(parts) - 1, 0, -1):
    try:
      found = importlib.import_module(".".join(parts[:i]))
    except ModuleNotFoundError as error:
      if i > 1 and error.name and name.startswith(error.name):
        continue
      raise
    for part in parts[i:]:
      found = getattr(found, part)
    return found
  raise ImportError(f"no module in {name}")


def uses(
  *names: str,
  lost: str | None,
  since: tuple[int, ...] = (),
  until: tuple[int, ...] | None = None,
  users: bool = False,
) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
  """Declares a function that uses internals of JAX.

  Args:
    *names: the internals; the function gets them as its first arguments.
    lost: what users lose if the internals have changed. None: the function is
      required, and calling it then raises InternalsError.
    since, until: the versions of jaxlib with this shape; `()` is the oldest
      supported one.
    users: the function works on what users pass, or calls their functions. An
      error is then taken for a change of the internals only if they are missing
      or cannot be called this way; what they raise is the user's.

  Returns:
    A decorator. The decorated function takes the remaining arguments, and
    returns None if the feature is disabled.
  """

  def decorate(use: Callable[..., R]) -> Callable[..., R | None]:
    name = use.__name__
    feature = FEATURES.setdefault(name, Feature(name, lost, []))
    feature.shapes.append(Shape(names, use, since, until))

    @functools.wraps(use)
    def wrapper(*args: Any, **kwargs: Any) -> R | None:
      shape = feature.shape()
      found = None
      try:
        if shape is None:
          raise AttributeError("no shape of it is known for this version")
        found = [resolve(name) for name in shape.names]
        return shape.use(*found, *args, **kwargs)
      except (ImportError, AttributeError, TypeError, LookupError) as error:
        if users and found is not None and not _raised_here(error):
          raise
        _give_up(feature, shape or feature.shapes[-1], error)
        return None

    return wrapper

  return decorate


def _raised_here(error: Exception) -> bool:
  """Whether an error was raised in this file, not in a function it called."""
  trace = error.__traceback__
  assert trace is not None
  while trace.tb_next is not None:
    trace = trace.tb_next
  return trace.tb_frame.f_code.co_filename == __file__


def _give_up(feature: Feature, shape: Shape, error: Exception) -> None:
  version = ".".join(map(str, jaxlib_version()))
  what = (
    f"jaxlib {version} has changed {' or '.join(shape.names)}"
    f" ({type(error).__name__}: {error})"
  )
  if feature.lost is None:
    raise InternalsError(
      f"{what}, without which the IPU backend cannot work: install a jax and"
      " jaxlib that it was tested with, or a newer IPU backend"
    ) from error
  if feature.name not in given_up:
    given_up[feature.name] = what
    logger.warning("%s; the IPU backend continues: %s", what, feature.lost)


# --- The backend itself ----------------------------------------------------


@uses(
  "jax._src.lib.xla_client.pjrt_plugin_loaded",
  "jax._src.lib.xla_client.load_pjrt_plugin_dynamically",
  "jax._src.xla_bridge.make_pjrt_c_api_client",
  lost=None,
)
def make_client(
  is_loaded: Any,
  load: Any,
  make: Any,
  library: str,
  client_options: dict[str, Any],
) -> Any:
  """A client of the PJRT plugin in `library`, which is loaded once.

  JAX's public `register_backend_factory` takes a function that makes a client,
  and there is no public way to make one. (`register_plugin`, which is internal
  as well, would load the library at once, whether an IPU is used or not.)
  """
  if not is_loaded(PLATFORM):
    register_profiler(load(PLATFORM, library))
  return make(PLATFORM, client_options)


@uses(
  "jax._src.distributed.global_state",
  lost="jax.distributed with more than one process is refused",
)
def distributed_group(state: Any) -> dict[str, Any]:
  """The processes of `jax.distributed`: the fields of `processes.Group`."""
  return {
    "store": state.client,
    "process": state.process_id,
    "count": state.num_processes,
    "coordinator": state.coordinator_address,
  }


@uses(
  "jaxlib._profiler.register_plugin_profiler",
  lost="jax.profiler.trace shows the host alone",
)
def register_profiler(register: Any, c_api: Any) -> None:
  """Lets JAX's profiler ask the plugin what its devices did."""
  register(c_api)


@uses(
  "jax.profiler.ProfileData.from_serialized_xspace",
  lost="PVTI_OPTIONS writes no events",
)
def read_profile(read: Any, space: bytes) -> Any:
  """The planes of a serialised trace, with lines and events."""
  return read(space).planes


# --- Lists of platforms in JAX's code --------------------------------------


@uses(
  "jax._src.interpreters.mlir._platforms_with_donation",
  lost="donated arguments are not reused for results",
)
def allow_donation(platforms: list[str]) -> None:
  """Enables donation; JAX only warns on platforms that are not in a list."""
  if PLATFORM not in platforms:
    platforms.append(PLATFORM)


class _LooksLikeCpu:
  platform = "cpu"
  supports_executable_serialization = True


@uses(
  "jax._src.compilation_cache",
  "jax._src.compilation_cache.is_cache_used",
  "jax.config",
  lost="its programs are not kept in JAX's persistent compilation cache",
)
def allow_compilation_cache(
  module: Any, is_cache_used: Any, config: Any
) -> None:
  """Enables the compilation cache, which is limited to a list of platforms.

  The check, made once, gives the IPU the answer for the CPU, unless there is
  neither a cache nor a folder for one: JAX would hash the whole module for
  nothing.
  """
  if hasattr(is_cache_used, "includes_ipu"):
    return

  def is_used(backend: Any) -> bool:
    if backend.platform != PLATFORM:
      return is_cache_used(backend)
    folder = config.jax_compilation_cache_dir
    if not folder and getattr(module, "_cache", None) is None:
      return False
    return is_cache_used(_LooksLikeCpu())

  is_used.includes_ipu = True  # type: ignore[attr-defined]
  module.is_cache_used = is_used


# --- Primitives that JAX does not export -----------------------------------


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


# --- What users see --------------------------------------------------------


@uses(
  "jaxlib._jax.LoadedExecutable",
  "jaxlib._jax.LoadedExecutable.hlo_modules",
  "jaxlib._jax.LoadedExecutable.get_hlo_text",
  lost="compiled.as_text() shows a program's signature only",
)
def wrap_program_text(
  executable: Any,
  hlo_modules: Any,
  get_hlo_text: Any,
  wrap: Callable[[Any], Any],
) -> None:
  """Wraps the two methods that show the module of an executable.

  jaxlib asks for the optimised module several times in each compilation. It
  gets only the signature, unless one of these methods asks.
  """
  for name, method in (
    ("hlo_modules", hlo_modules),
    ("get_hlo_text", get_hlo_text),
  ):
    if not hasattr(method, "__wrapped__"):
      setattr(executable, name, wrap(method))


@uses(
  "jax._src.compiler.register_xla_runtime_error_handler",
  lost="Ctrl-C while a program compiles may raise a JaxRuntimeError",
)
def translate_compile_errors(register: Any, handler: Any) -> None:
  """Registers `handler`, which may replace an error of the compiler."""
  register(handler)


@uses(
  "jax._src.traceback_util.register_exclusion",
  lost="tracebacks show what the IPU backend called",
)
def hide_frames(exclude: Any, folder: str) -> None:
  """Hides this backend's frames in tracebacks, as JAX does with its own."""
  exclude(folder)


class Option:
  """An option of `jax.config`, with the interface of JAX's own holders.

  Attributes:
    name: `jax_ipu_...`.
    chosen: the value that was set; None: not set.
    default: the value shown if none was set.
    check: raises an error for invalid values.
  """

  def __init__(
    self,
    name: str,
    default: Callable[[str], object],
    check: Callable[[str, object], None],
  ) -> None:
    self.name = name
    self.chosen: object = None
    self.default = default
    self.check = check

  @property
  def value(self) -> object:
    return self.default(self.name) if self.chosen is None else self.chosen

  def _set(self, value: object) -> None:
    self.check(self.name, value)
    self.chosen = value


_options: dict[str, Option] = {}


@uses(
  "jax._src.config.config",
  "jax._src.config.config.add_option",
  "jax._src.config.Config",
  lost="its options cannot be set by jax.config, only in the environment",
)
def define_option(
  config: Any, add_option: Any, config_class: Any, option: Option, **shown: Any
) -> Option:
  """Adds an option to `jax.config`, once.

  JAX's public functions support only its own options.

  Args:
    option: its name, and how it is read and set.
    **shown: its type, `kind`, and `help`, for flags of absl.

  Returns:
    The option of that name.
  """
  if option.name not in _options:
    meta = {"help": shown["help"]}
    add_option(option.name, option, shown["kind"], (), meta)
    setattr(config_class, option.name, property(lambda _: option.value))
    _options[option.name] = option
  return _options[option.name]


@uses(
  "jax._src.xla_bridge.backends_are_initialized",
  lost="options of jax.config that are set too late are ignored",
)
def devices_are_known(initialized: Any) -> bool:
  """Whether JAX has initialised its backends and created their clients."""
  return initialized()


@uses(
  "jaxlib._jax.Device",
  "jax._src.util._multi_weakref_registry",
  lost="array.device() is not callable, as it was in earlier JAX",
)
def make_devices_callable(
  device_class: Any, weakref_registry: Any, call: Callable[[Any], Any]
) -> None:
  """Supports `array.device()`, next to today's `array.device`.

  JAX's caches keep weak references to callables, which devices do not support:
  jax.jit(lambda x: jax.device_put(x, device)) would fail. Registered as a tree
  without leaves, a device is compared by value.
  """
  if "__call__" in vars(device_class):
    return
  weakref_registry.register_node(
    device_class, lambda device: ((), device), lambda device, _: device
  )
  device_class.__call__ = call


@uses(
  "jax._src.array.ArrayImpl",
  lost="jax.ipu.compat does not give back array.platform() and so on",
)
def array_class(found: Any) -> Any:
  """The class of concrete arrays, to which `jax.ipu.compat` adds methods."""
  return found


@uses(
  "jax._src.mesh.thread_resources",
  lost="jax.ipu.compat does not give back pjit with axis resources",
)
def context_mesh(resources: Any) -> Any:
  """The mesh of the innermost `with mesh:`."""
  return resources.env.physical_mesh


@uses(
  "jaxlib._jax.Device",
  "jaxlib._jax.Device.__dir__",
  lost="dir(device) does not list what an IPU has",
)
def list_device_attributes(
  device_class: Any, listed: Any, names: Iterable[str]
) -> None:
  """Shows an IPU's attributes in `dir(device)`, and only an IPU's; jaxlib looks
  them up by name."""
  if "__dir__" in vars(device_class):
    return
  found = frozenset(names)

  def list_names(device: Any) -> list[str]:
    shown = {*listed(device)}
    return sorted(
      shown | found if device.platform == PLATFORM else shown - found
    )

  device_class.__dir__ = list_names


@uses(
  "jax.interpreters.mlir.register_lowering",
  "jax._src.dispatch.device_put_p",
  "jax._src.dispatch._tpu_gpu_device_put_lowering",
  lost="jax.device_put to host memory inside programs is ignored silently",
)
def keep_memory_kinds(register: Any, primitive: Any, rule: Any) -> None:
  """Marks values that programs put into another memory. JAX has a rule for this
  on accelerators, and drops the memory on platforms that it does not know."""
  register(primitive, rule, platform=PLATFORM)


@uses(
  "jaxlib._jax.Device",
  "jaxlib._jax.Device.platform",
  lost="device.ipu_last_run() is missing",
)
def add_last_run(
  device_class: Any, platform: Any, last_run: Callable[[Any], Any]
) -> None:
  """Adds `device.ipu_last_run()`, to IPUs alone: jaxlib has one class for the
  devices of all platforms."""

  def method(device: Any) -> Callable[[], Any]:
    if platform.__get__(device) != PLATFORM:
      raise AttributeError(f"{device} has no attribute 'ipu_last_run'")
    return functools.partial(last_run, device)

  device_class.ipu_last_run = property(method)


@uses(
  "jax._src.config.transfer_guard_device_to_host",
  "jax._src.config.transfer_guard_device_to_host._add_hooks",
  "jax._src.config.transfer_guard_device_to_host._update_global_hook",
  "jax._src.config.transfer_guard_device_to_host._update_thread_local_hook",
  lost="jax.transfer_guard does not see what leaves an IPU",
)
def watch_transfer_guard(
  state: Any,
  add_hooks: Any,
  on_global: Any,
  on_local: Any,
  watch: Callable[[str | None], None],
) -> None:
  """Calls `watch` with each level of the guard, and with the current one.

  JAX does not ask the guard before it reads host-visible arrays.
  """
  if hasattr(on_global, "__wrapped__"):
    return

  def watched(hook: Any) -> Any:
    @functools.wraps(hook)
    def wrapper(level: str | None) -> None:
      watch(level)
      hook(level)

    return wrapper

  add_hooks(watched(on_global), watched(on_local))
  watch(state.value)


# --- Functions of the host -------------------------------------------------


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


# --- The compiler ----------------------------------------------------------


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


# --- The partitioner -------------------------------------------------------


@uses(
  "jaxlib._jax.CompileOptions.ParseFromString",
  "jaxlib._jax.CompileOptions.executable_build_options",
  lost="programs for several IPUs fail",
)
def sharding_options(
  parse: Any, build_options: Any, serialized: bytes
) -> dict[str, Any]:
  """What a serialised `CompileOptionsProto` says of programs for several
  devices, by the names of `partition.options.Sharding`."""
  options = build_options.__get__(parse(serialized))
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
