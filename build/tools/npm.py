"""The JavaScript libraries of reports: pinned packages of npm.

`third_party/npm/pins.json` names each package with its version, the sha256 of
its archive, the files that pages embed, and its licences. npm downloads the
archive, once, with the user's own settings; nothing in it is run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import shutil
import tarfile
from typing import Any

from tools import command
from tools.command import CACHE, ROOT, BuildError

PATH = ROOT / "third_party" / "npm" / "pins.json"
# Where pages look for the libraries; not in the repository.
VENDOR = "jaxlib/ipu/reporting/vendor"


@dataclasses.dataclass(frozen=True)
class Package:
  """A pinned package.

  Attributes:
    name: with its version, as npm takes it.
    archive: the name of its archive.
    sha256: of the archive.
    files: what pages embed, by name, and its path in the package.
    licenses: the same for its licences.
  """

  name: str
  archive: str
  sha256: str
  files: dict[str, str]
  licenses: dict[str, str]


def packages() -> list[Package]:
  """All packages that pages need."""
  pins: dict[str, Any] = json.loads(PATH.read_text())
  return [Package(name=name, **pin) for name, pin in pins.items()]


def license_names() -> tuple[str, ...]:
  """The names of the licences in a wheel."""
  return tuple(f"ipu/{n}" for p in packages() for n in p.licenses)


def _matches(path: pathlib.Path, sha256: str) -> bool:
  if not path.exists():
    return False
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def archive(
  package: Package, folder: pathlib.Path = CACHE / "npm"
) -> pathlib.Path:
  """A package's archive, downloaded at most once.

  Raises:
    BuildError: npm is missing or could not get it, or its hash is another one.
  """
  path = folder / package.archive
  if _matches(path, package.sha256):
    return path
  folder.mkdir(parents=True, exist_ok=True)
  if not shutil.which("npm"):
    raise BuildError(
      f"no npm on the PATH, which downloads {package.name} for reports. Type:"
      " apt-get install -y npm (or add --install_deps)"
    )
  with command.stage(f"downloading {package.name}"):
    command.run(
      ["npm", "pack", package.name, f"--pack-destination={folder}"],
      hint="npm could not get the package that"
      f" {PATH.relative_to(ROOT)} names: see `npm config list`.",
      quiet=True,
    )
  if not _matches(path, package.sha256):
    path.unlink(missing_ok=True)
    raise BuildError(
      f"npm's {package.archive} does not have the sha256 of"
      f" {PATH.relative_to(ROOT)}: it was removed"
    )
  return path


def _read(package: Package, paths: dict[str, str]) -> dict[str, bytes]:
  """Files of a package, by the names that they get."""
  out = {}
  with tarfile.open(archive(package)) as tar:
    for name, path in paths.items():
      file = tar.extractfile(f"package/{path}")
      if file is None:
        raise BuildError(f"{package.archive} has no file {path}")
      out[name] = file.read()
  return out


def libraries() -> dict[str, bytes]:
  """The files that pages embed, by name."""
  return {n: d for p in packages() for n, d in _read(p, p.files).items()}


def licenses() -> dict[str, bytes]:
  """The texts of their licences, by name."""
  return {n: d for p in packages() for n, d in _read(p, p.licenses).items()}


def install(root: pathlib.Path = ROOT) -> None:
  """Puts the libraries into the source tree, for running from there."""
  folder = root / VENDOR
  folder.mkdir(parents=True, exist_ok=True)
  for name, data in libraries().items():
    (folder / name).write_bytes(data)
