"""What users see: options, devices, errors, texts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from jaxlib.ipu.internals.feature import PLATFORM, uses


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
