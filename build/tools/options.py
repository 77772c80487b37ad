"""The command line of build.py."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import shlex
import sys
from collections.abc import Sequence

from tools.command import ROOT

WHEELS = ("jaxlib", "jax", "plugin")
CPU_FEATURES = ("release", "native", "default")


@dataclasses.dataclass(frozen=True)
class Then:
  """What to run with the built wheels: Python's arguments and requirements."""

  arguments: list[str]
  requirements: pathlib.Path


_EXAMPLES = """\
examples:
  python3 build/build.py --enable_ipu --install_deps --test
  python3 build/build.py --enable_ipu --run ipu/examples/mnist_classifier.py
  python3 build/build.py --enable_ipu --bazel_options="--copt=-g3 --strip=never"
"""


def _wheels(text: str) -> list[str]:
  names = text.split(",")
  for name in names:
    if name not in WHEELS:
      raise argparse.ArgumentTypeError(
        f"unknown wheel {name!r}: expected a comma-separated list of"
        f" {', '.join(WHEELS)}"
      )
  return list(dict.fromkeys(names))


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog="build.py",
    description="Builds the wheels of JAX on IPU.",
    epilog=_EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  what = parser.add_argument_group("what to build")
  what.add_argument(
    "--enable_ipu",
    action="store_true",
    help="build the IPU backend: its shared library and the wheels below",
  )
  what.add_argument(
    "--wheels",
    type=_wheels,
    default=["jaxlib"],
    metavar="NAME[,NAME]",
    help="jaxlib: upstream's jaxlib plus the backend (default). jax:"
    " upstream's jax plus our overlay, as built by `setup.py bdist_wheel`."
    " plugin: only the backend, for an unmodified jax and jaxlib",
  )
  what.add_argument(
    "--target_cpu_features",
    choices=CPU_FEATURES,
    default="release",
    help="release: kernels for AVX2 and AVX-512, chosen at start-up, and"
    " everything else for any x86-64 since 2009 (default). native: only for"
    " this machine's processor (-march=native). default: like release, but"
    " everything else for the compiler's default processor",
  )
  what.add_argument(
    "--output_path",
    type=pathlib.Path,
    default=ROOT / "dist",
    metavar="DIR",
    help="folder for the wheels (default: dist)",
  )
  how = parser.add_argument_group("how to build it")
  how.add_argument(
    "--python",
    metavar="FILE",
    help="the Python to build for, which determines the version of JAX"
    " (default: the Python that runs this script)",
  )
  how.add_argument(
    "--bazel_path",
    type=pathlib.Path,
    metavar="FILE",
    help="the bazel or bazelisk to use (default: the one on the PATH)",
  )
  how.add_argument(
    "--bazel_options",
    action="append",
    default=[],
    metavar="OPTIONS",
    help="options for `bazel build`, such as --bazel_options=--config=debug"
    " (.bazelrc has the configs); may be repeated",
  )
  how.add_argument(
    "--bazel_startup_options",
    action="append",
    default=[],
    metavar="OPTIONS",
    help="options for bazel itself, such as"
    " --bazel_startup_options=--output_user_root=DIR; may be repeated",
  )
  how.add_argument(
    "--install_deps",
    action="store_true",
    help="first install what is missing: the compiler, Bazel, npm and"
    " GoogleTest with apt-get (through sudo unless root), Python's build"
    " requirements into the venv",
  )
  how.add_argument(
    "--venv",
    type=pathlib.Path,
    metavar="DIR",
    help="the virtual environment to create and use (default: .venv; with"
    " --python, .venv-3.13 and so on)",
  )
  how.add_argument(
    "--verbose",
    action="store_true",
    help="show every command that Bazel runs",
  )
  how.add_argument(
    "--page_libraries",
    action="store_true",
    help="put the JavaScript libraries of reports into the source tree, for"
    " running from there; wheels have them anyway",
  )
  how.add_argument(
    "--update_pins",
    metavar="VERSION",
    help="pin this release of JAX for every Python for which your package"
    " index has it, and exit; it replaces the pinned release of its series",
  )
  then = parser.add_argument_group(
    "what to do with it", "Has to be last: all further arguments are passed on."
  )
  then.add_argument(
    "--run",
    nargs=argparse.REMAINDER,
    metavar="SCRIPT [ARGS]",
    help="install the wheels, including jax's, into the venv and run a Python"
    " script there, on the IPU model",
  )
  then.add_argument(
    "--test",
    nargs=argparse.REMAINDER,
    metavar="PYTEST ARGS",
    help="install the wheels, including jax's, into the venv and run the tests"
    " there (default: all of tests/ipu)",
  )
  return parser


def _venv(python: str | None) -> pathlib.Path:
  if python is None:
    return ROOT / ".venv"
  return ROOT / f".venv-{sys.version_info[0]}.{sys.version_info[1]}"


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the options, with absolute paths; `then` is a Then or None.

  Exits with a message if the options are invalid.
  """
  parser = _parser()
  options = parser.parse_args(argv)
  build = ROOT / "build"
  options.then = None
  if options.run is not None:
    if not options.run:
      parser.error("--run expects a script: --run ipu/examples/minimal.py")
    if not pathlib.Path(options.run[0]).is_file():
      parser.error(f"--run: no such script {options.run[0]!r}")
    options.then = Then(options.run, build / "requirements-run.txt")
  elif options.test is not None:
    options.then = Then(
      ["-m", "pytest", *(options.test or ["-n", "auto"])],
      build / "requirements-test.txt",
    )
  alone = options.install_deps or options.update_pins or options.page_libraries
  if not options.enable_ipu and (options.then or not alone):
    parser.error("nothing to build; type: python3 build/build.py --enable_ipu")
  for name in ("bazel_options", "bazel_startup_options"):
    try:
      words = [shlex.split(text) for text in getattr(options, name)]
    except ValueError as error:
      parser.error(f"--{name}: {error}; quote it as in a shell")
    setattr(options, name, [word for some in words for word in some])
  options.output_path = options.output_path.absolute()
  options.venv = (options.venv or _venv(options.python)).absolute()
  return options
