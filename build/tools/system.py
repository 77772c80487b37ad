"""What the build needs from the operating system, and how to install it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

from tools import command
from tools.command import BuildError

# GoogleTest is only needed for the C++ tests.
_PACKAGES = ("g++", "libgtest-dev")


def venv_package() -> str | None:
  """The Debian package that this Python needs to create venvs, or None."""
  if importlib.util.find_spec("ensurepip"):
    return None
  if os.path.dirname(os.path.realpath(sys.executable)) != "/usr/bin":
    return None
  return f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"


def find_python(path: str) -> str:
  """The interpreter that `path` starts; pyenv's shims start another file.

  Raises:
    BuildError: it is not a Python.
  """
  return command.run(
    [path, "-c", "import sys; print(sys.executable)"],
    quiet=True,
    hint=f"--python={path} must be Python 3.11 or later.",
  ).strip()


def _is_installed(package: str) -> bool:
  query = ["dpkg-query", "--show", "--showformat=${Status}", package]
  done = subprocess.run(query, capture_output=True, text=True)
  return done.stdout == "install ok installed"


def install_command(packages: Sequence[str]) -> str:
  """The command that installs Debian packages."""
  sudo = "" if os.geteuid() == 0 else "sudo "
  return f"{sudo}apt-get install -y {' '.join(packages)}"


def install(bazel_packages: Sequence[str]) -> None:
  """Installs the compiler, Bazel, GoogleTest, npm and venv, as far as missing.

  Raises:
    BuildError: there is no apt-get, no sudo, or they failed.
  """
  packages = [*bazel_packages, *_PACKAGES]
  if package := venv_package():
    packages.append(package)
  if not shutil.which("npm"):
    packages.append("npm")
  if not shutil.which("apt-get"):
    raise BuildError(
      "--install_deps only supports apt-get, which this system does not have."
      " Install Bazel 4 to 7, g++ 12 or later, npm and GoogleTest with your"
      " system's package manager, and omit --install_deps."
    )
  missing = [package for package in packages if not _is_installed(package)]
  if not missing:
    return
  prefix = ["env", "DEBIAN_FRONTEND=noninteractive"]
  if os.geteuid() != 0:
    if not shutil.which("sudo"):
      raise BuildError(
        "--install_deps needs root or sudo. As root, type:"
        f" apt-get update && apt-get install -y {' '.join(missing)}"
      )
    prefix = ["sudo", *prefix]
  options = ["-qq", "-y", "--no-install-recommends"]
  with command.stage(f"installing {' '.join(missing)}"):
    for words in (["update"], ["install", *options, *missing]):
      command.run(
        [*prefix, "apt-get", *words],
        hint="See the output of apt-get.",
        quiet=True,
      )


def check_folder(folder: pathlib.Path) -> None:
  """Creates the folder for the wheels; raises BuildError if it cannot be used.

  Runs before the build, which would take too long to fail on a typing error.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
      raise PermissionError(f"{folder} is not writable")
  except OSError as error:
    raise BuildError(
      f"--output_path={folder} cannot be used: {error}. Choose another folder."
    ) from None


def check_compiler() -> None:
  """Raises BuildError unless g++, ld and objcopy are installed."""
  for tool, package in (("g++", "g++"), ("ld", "binutils")):
    if not shutil.which(tool):
      raise BuildError(
        f"no {tool} on the PATH. Type: {install_command([package])}"
        " (or add --install_deps)"
      )
