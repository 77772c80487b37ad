"""Reads and writes wheels reproducibly."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import struct
import zipfile
from collections.abc import Iterator, Mapping

# The earliest time that a zip file can represent.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class New:
  """A file of our own to store in the wheel."""

  data: bytes
  executable: bool = False

  def record(self) -> str:
    """Hash and size in the format of RECORD."""
    digest = hashlib.sha256(self.data).digest()
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return f"sha256={text},{len(self.data)}"


@dataclasses.dataclass(frozen=True)
class Kept:
  """A file of another wheel, copied as it is, still compressed."""

  archive: zipfile.ZipFile
  info: zipfile.ZipInfo
  hash_and_size: str

  def record(self) -> str:
    """Hash and size in the format of RECORD."""
    return self.hash_and_size


@contextlib.contextmanager
def files_of(path: pathlib.Path) -> Iterator[dict[str, Kept]]:
  """The files of a wheel by name, without its RECORD; valid while open."""
  with zipfile.ZipFile(path) as archive:
    record = next(
      name for name in archive.namelist() if name.endswith(".dist-info/RECORD")
    )
    hashes = {}
    for line in archive.read(record).decode().splitlines():
      name, *rest = line.rsplit(",", 2)
      hashes[name] = ",".join(rest)
    yield {
      info.filename: Kept(archive, info, hashes[info.filename])
      for info in archive.infolist()
      if not info.is_dir() and info.filename != record
    }


def read(file: Kept) -> bytes:
  """The contents of a file in a wheel."""
  return file.archive.read(file.info)


def _add_new(target: zipfile.ZipFile, name: str, file: New) -> None:
  info = zipfile.ZipInfo(name, _EPOCH)
  info.compress_type = zipfile.ZIP_DEFLATED
  info.external_attr = (0o100755 if file.executable else 0o100644) << 16
  target.writestr(info, file.data)


def _add_kept(target: zipfile.ZipFile, name: str, file: Kept) -> None:
  """Copies a member without unpacking it, which is fast even for 80 MB."""
  source, old = file.archive.fp, file.info
  assert source is not None and target.fp is not None
  source.seek(old.header_offset)
  name_size, extra_size = struct.unpack("<26xHH", source.read(30))
  source.seek(name_size + extra_size, os.SEEK_CUR)
  info = zipfile.ZipInfo(name, old.date_time)
  info.compress_type = old.compress_type
  info.external_attr = old.external_attr
  info.CRC, info.file_size = old.CRC, old.file_size
  info.compress_size = old.compress_size
  target.fp.seek(target.start_dir)
  info.header_offset = target.fp.tell()
  target.fp.write(info.FileHeader())
  left = old.compress_size
  while left:
    left -= target.fp.write(source.read(min(left, 1 << 20)))
  target.filelist.append(info)
  target.NameToInfo[name] = info
  target.start_dir = target.fp.tell()


def record_name(files: Mapping[str, New | Kept]) -> str:
  """The path of RECORD in a wheel with these files."""
  metadata = next(n for n in files if n.endswith(".dist-info/METADATA"))
  return metadata.replace("METADATA", "RECORD")


def write(path: pathlib.Path, files: Mapping[str, New | Kept]) -> bool:
  """Writes a wheel unless it exists with the same contents.

  Args:
    path: the wheel; its folder is created.
    files: all its files by name, except for RECORD, which is generated.

  Returns:
    Whether it was written.
  """
  name = record_name(files)
  lines = [f"{n},{file.record()}\n" for n, file in sorted(files.items())]
  record = ("".join(lines) + f"{name},,\n").encode()
  if path.exists():
    with contextlib.suppress(zipfile.BadZipFile, KeyError):
      with zipfile.ZipFile(path) as archive:
        if archive.read(name) == record:
          return False
  path.parent.mkdir(parents=True, exist_ok=True)
  unfinished = path.with_suffix(".part")
  with zipfile.ZipFile(unfinished, "w") as target:
    # dist-info goes last, as the wheel specification recommends.
    for n in sorted(files, key=lambda n: (".dist-info/" in n, n)):
      file = files[n]
      if isinstance(file, New):
        _add_new(target, n, file)
      else:
        _add_kept(target, n, file)
    _add_new(target, name, New(record))
  unfinished.replace(path)
  return True
