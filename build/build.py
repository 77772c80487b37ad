#!/usr/bin/env python3
"""Builds JAX on IPU: the wheels, and optionally a venv to run programs in.

python3 build/build.py --enable_ipu
python3 build/build.py --help
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
  sys.exit(
    "build.py: error: JAX on IPU needs Python 3.11 or later, but this is "
    + f"{sys.executable}, version {sys.version.split()[0]}. "
    + "Type: python3.11 build/build.py"
  )

import os

from tools import (
  bazel,
  command,
  environment,
  npm,
  options,
  pins,
  poplar,
  system,
  wheels,
)


def main(argv: list[str]) -> int:
  """Runs the command line; returns the exit code."""
  opts = options.parse(argv)
  if opts.python is not None:
    python = system.find_python(opts.python)
    if python != sys.executable:
      os.execv(python, [python, os.path.abspath(__file__), *argv])
  if opts.update_pins is not None:
    pins.update(opts.update_pins)
    return 0
  wanted = opts.wheels
  if opts.install_deps:
    system.install(bazel.wanted_packages(opts.bazel_path))
  venv = environment.Environment(opts.venv)
  if opts.install_deps:
    venv.install_build_requirements()
  if opts.page_libraries:
    npm.install()
  if not opts.enable_ipu:
    return 0

  command.say(f"for Python {sys.version.split()[0]}: JAX {pins.release()}")
  system.check_compiler()
  system.check_folder(opts.output_path)
  tool = bazel.Bazel(opts.bazel_path, opts.bazel_startup_options, opts.verbose)
  venv.create()
  command.say(poplar.describe())
  tool.configure(generator_python=sys.executable, pip_python=venv.python)
  library = tool.build_library(opts.target_cpu_features, opts.bazel_options)

  if opts.then is not None and "plugin" not in wanted:
    wanted = ["jaxlib", "jax"]
  built = []
  for kind in wanted:
    with command.stage(f"making the {kind} wheel"):
      built.append(wheels.build(kind, library, opts.output_path, venv.python))
  if opts.then is None:
    return 0
  venv.install(built, opts.then.requirements)
  return venv.run(opts.then.arguments)


if __name__ == "__main__":
  try:
    sys.exit(main(sys.argv[1:]))
  except command.BuildError as error:
    sys.exit(f"build.py: error: {error}")
  except KeyboardInterrupt:
    sys.exit(130)
