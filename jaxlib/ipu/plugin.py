"""Loads the shared library, and compiles for it.

The library knows no Python: `load` passes it the compiler as a C function
pointer. Nothing here imports JAX; `jax_plugins.ipu` registers the backend.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxlib.ipu import (
  clients,
  diagnostics,
  feeds,
  host_functions,
  internals,
  options,
)
from jaxlib.ipu.library import LIBRARY

logger = logging.getLogger("jaxlib.ipu")

# The versions of jaxlib that the wheel was tested with: `oldest`, `newest`.
VERSIONS = Path(__file__).with_name("jax_versions.json")

# What a device has besides what every JAX device has (pjrt/device.cc).
DEVICE_ATTRIBUTES = (
  "num_tiles",
  "version",
  "tile_clock_frequency",
  "bytes_per_tile",
  "is_ipu_model",
)

# void (code, size, format, options, size, machine, sink)
_CompileFunction = ctypes.CFUNCTYPE(
  None,
  ctypes.c_void_p,
  ctypes.c_size_t,
  ctypes.c_char_p,
  ctypes.c_void_p,
  ctypes.c_size_t,
  ctypes.c_char_p,
  ctypes.c_void_p,
)
# void (program, cycles, waiting cycles, exchange bytes, loops, lines, trips)
_RunReader = ctypes.CFUNCTYPE(
  None,
  ctypes.c_char_p,
  ctypes.c_double,
  ctypes.c_double,
  ctypes.c_double,
  ctypes.c_size_t,
  ctypes.POINTER(ctypes.c_char_p),
  ctypes.POINTER(ctypes.c_uint64),
)


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run of a program on the model.

  Attributes:
    program: its name.
    cycles: of the modelled machine, with the actual trip counts and the
      branches that were taken; including those of arguments that had to move
      to the layout that the program expects.
    seconds: the same at its clock.
    waiting_cycles: in which the device waited in collectives for others of the
      same process, which are not part of `cycles`.
    exchange_bytes: received by tiles that did not hold them.
    trips: the loops whose trip count data decided, outer ones first: the user's
      line, and iterations over the whole run.
  """

  program: str
  cycles: float
  seconds: float
  waiting_cycles: float
  exchange_bytes: float
  trips: tuple[tuple[str, int], ...]


class PluginError(RuntimeError):
  """The backend's installation cannot be used; says what to do."""


# Threads that compile. After Ctrl-C a thread may still compile until Python
# exits: it is then stopped, repeatedly, as the code it runs may ignore it.
_compiling: set[int] = set()
_ended = threading.Event()
_STOP_SECONDS = 0.2

_NO_MEMORY = "the host ran out of memory while compiling"
_TOO_DEEP = (
  "control flow of the program is nested deeper than Python's recursion limit "
  "allows the IPU compiler to follow: let inner functions return before outer "
  "ones continue, or raise sys.setrecursionlimit"
)
_INTERRUPTED = "the compiler was interrupted by Ctrl-C"


def check_installation(jaxlib_version: str) -> None:
  """Checks that this installation of the backend can be used.

  Warns of a jaxlib newer than the tested ones.

  Args:
    jaxlib_version: `jaxlib.version.__version__`.

  Raises:
    PluginError: jaxlib is too old, or parts of the backend are missing.
  """
  for path in (LIBRARY, VERSIONS):
    if not path.exists():
      raise PluginError(
        f"the IPU backend's file {path} is missing: build it with "
        "`python3 build/build.py --enable_ipu` and install the wheels in dist/;"
        " a source tree on PYTHONPATH is not enough"
      )
  tested = json.loads(VERSIONS.read_text())
  installed = internals.version_tuple(jaxlib_version)
  oldest, newest = tested["oldest"], tested["newest"]
  if installed < internals.version_tuple(oldest):
    raise PluginError(
      f"the IPU backend needs jaxlib {oldest} or later, and jaxlib "
      f"{jaxlib_version} is installed: run `pip install 'jax>={oldest}' "
      f"'jaxlib>={oldest}'`"
    )
  if installed > internals.version_tuple(newest):
    logger.warning(
      "jaxlib %s is newer than %s, the newest that this IPU backend was tested "
      "with",
      jaxlib_version,
      newest,
    )


@functools.cache
def load() -> ctypes.CDLL:
  """Loads the shared library, and passes it the compiler.

  Raises:
    PluginError: it cannot be loaded.
  """
  try:
    library = ctypes.CDLL(str(LIBRARY))
  except OSError as error:
    raise PluginError(
      f"the IPU backend's library {LIBRARY} cannot be loaded: {error}"
    ) from error
  text: list[Any] = [ctypes.c_char_p, ctypes.c_size_t]
  library.ipu_compile_succeeded.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
  library.ipu_compile_succeeded.restype = ctypes.c_void_p
  library.ipu_compile_failed.argtypes = [ctypes.c_void_p, ctypes.c_int, *text]
  library.ipu_compile_failed.restype = None
  library.ipu_set_compiler.argtypes = [_CompileFunction]
  library.ipu_set_compiler.restype = None
  library.ipu_show_whole_programs.argtypes = [ctypes.c_int]
  library.ipu_show_whole_programs.restype = ctypes.c_int
  library.ipu_read_last_run.argtypes = [ctypes.c_int, _RunReader]
  library.ipu_read_last_run.restype = None

  host_functions.connect(library)
  feeds.connect(library)
  callback = _CompileFunction(functools.partial(_compile, library))
  library.ipu_set_compiler(callback)
  # The library must not call into a finalised interpreter.
  atexit.register(_end, library)
  library.callback = callback  # type: ignore[attr-defined]  # keep it alive
  return library


def _end(library: ctypes.CDLL) -> None:
  """Stops running compilations when Python exits, and waits for them."""
  _ended.set()
  while _compiling:
    for thread in list(_compiling):
      if not ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(SystemExit)
      ):
        _compiling.discard(thread)  # a thread of the process forked from
    time.sleep(_STOP_SECONDS)
  library.ipu_set_compiler(_CompileFunction(0))


def _compile(library: ctypes.CDLL, *arguments: Any) -> None:
  """Compiles one module; answers through the library, and never raises.

  Called on jaxlib's threads, concurrently, with the GIL held. Takes the
  arguments of `_CompileFunction`.
  """
  # This and what it calls are short: without memory Python does not reach
  # handlers more than 256 instructions behind the beginning of a function.
  *given, sink = arguments
  thread = threading.get_ident()
  _compiling.add(thread)
  try:
    _succeed(library, sink, _compiled(*given))
  except BaseException as error:  # reported here or never
    _compiling.discard(thread)
    _fail(library, sink, error)
  finally:
    _compiling.discard(thread)


def _compiled(
  code: int,
  code_size: int,
  format: bytes,
  compile_options: int,
  compile_options_size: int,
  machine: bytes,
) -> Sequence[bytes | memoryview]:
  """A compiled module, in pieces."""
  if _ended.is_set():
    raise SystemExit
  if format != b"mlir":
    raise diagnostics.invalid_argument(
      f"a program of format {format.decode()!r}: the IPU backend compiles only "
      "'mlir'"
    )
  from jaxlib.ipu import compiler  # deferred until a program is compiled

  with options.use(clients.settings_of(machine.decode())):
    return compiler.compile_program(
      _memory(code, code_size),
      ctypes.string_at(compile_options, compile_options_size),
    )


def _explained(error: BaseException) -> tuple[diagnostics.ErrorCode, str]:
  """What to tell JAX of an error in the compiler."""
  code = diagnostics.ErrorCode
  if isinstance(error, diagnostics.CompileError):
    return error.code, error.message
  if isinstance(error, KeyboardInterrupt):  # JAX compiles on the calling thread
    return code.CANCELLED, _INTERRUPTED
  if isinstance(error, SystemExit):
    return code.CANCELLED, "Python is ending"
  if isinstance(error, RecursionError):
    return code.UNIMPLEMENTED, _TOO_DEEP
  if _lacks_memory(error):
    return code.RESOURCE_EXHAUSTED, _NO_MEMORY
  name, trace = type(error).__name__, "".join(traceback.format_exception(error))
  return (
    code.INTERNAL,
    f"{name} in the IPU compiler (this is a bug of it): {error}\n\n{trace}",
  )


def _lacks_memory(error: BaseException) -> bool:
  """Whether an error says, in one of its forms, that the host's memory is
  used up."""
  if isinstance(error, MemoryError) or "bad_alloc" in str(error):  # MLIR's C++
    return True
  if not isinstance(error, SystemError):
    return False
  # CPython's and nanobind's functions may fail without an exception when there
  # is no memory for one. What the compiler holds is still held here.
  try:
    bytearray(16 << 20)
  except MemoryError:
    return True
  return False


def interrupt(error: Exception) -> BaseException | None:
  """The exception to raise instead of a compiler's `error` after Ctrl-C: none
  can cross the C++ between `_compile` and JAX."""
  return KeyboardInterrupt() if _INTERRUPTED in str(error) else None


def _succeed(
  library: ctypes.CDLL, sink: int, program: Sequence[bytes | memoryview]
) -> None:
  """Answers with a program, in pieces. They are written directly to where the
  executable reads them: constants may be large."""
  size = sum(map(len, program))
  address = library.ipu_compile_succeeded(sink, size)
  if address is None:
    return  # out of memory, which the library reports
  memory, at = _memory(address, size), 0
  for piece in program:
    memory[at : at + len(piece)] = piece
    at += len(piece)


_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_memory_view.restype = ctypes.py_object
_WRITABLE = 0x200  # PyBUF_WRITE


def _memory(address: int, size: int) -> memoryview:
  """Memory of the library. An array of ctypes would be a type of its own for
  each size, which takes time and is cyclic garbage."""
  view: memoryview = _memory_view(address, size, _WRITABLE)
  return view


def _fail(library: ctypes.CDLL, sink: int, error: BaseException) -> None:
  code, message = _explained(error)
  text = message.encode(errors="replace")
  library.ipu_compile_failed(sink, int(code), text, len(text))


def last_run(device: Any) -> Run | None:
  """`device.ipu_last_run()`: the last finished run on an IPU; None before the
  first. Runs are asynchronous: wait for their results first."""
  found: list[Run] = []

  def read(
    program: bytes,
    cycles: float,
    waited: float,
    moved: float,
    n: int,
    lines: Any,
    trips: Any,
  ) -> None:
    loops = tuple((lines[i].decode(), trips[i]) for i in range(n))
    seconds = cycles / device.tile_clock_frequency
    found.append(Run(program.decode(), cycles, seconds, waited, moved, loops))

  load().ipu_read_last_run(device.id, _RunReader(read))
  return found[0] if found else None


def prepare_feeds() -> None:
  """Makes `feeds` usable, also if there is no client.

  Raises:
    PluginError: the library cannot be loaded.
    OptionError: a flag is invalid.
  """
  load()
  if not clients.exist():
    settings = options.read()
    feeds.set_limits(settings.feed_depth, settings.feed_timeout)


def whole_programs(method: Callable[..., Any]) -> Callable[..., Any]:
  """Wraps a method of jaxlib's executables that shows the optimised module.

  Within it the library returns the whole module instead of only its signature,
  which is all that jaxlib needs while it compiles.
  """

  @functools.wraps(method)
  def wrapper(*args: Any, **kwargs: Any) -> Any:
    library = load()
    before = library.ipu_show_whole_programs(1)
    try:
      return method(*args, **kwargs)
    finally:
      library.ipu_show_whole_programs(before)

  return wrapper


def guard_transfers(level: str | None) -> None:
  """Makes reading an array a transfer, once `jax.transfer_guard` has set a
  level; until then NumPy reads the model's memory directly."""
  if level not in (None, "allow"):
    load().ipu_guard_transfers()
