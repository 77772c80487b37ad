"""Trains the MLP of mnist_classifier.py; each epoch is one call.

  python ipu/examples/mnist_classifier_with_infeed.py
  python ipu/examples/mnist_classifier_with_infeed.py --backend cpu

The program takes the batches from an iterator while it runs (`jax.ipu.feed`),
in a loop on the device. Options, data and losses are those of
mnist_classifier.py. Then trains an epoch with a call for each step, and prints
the run times of both on the host, and their modelled times on the IPU.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Iterator
from typing import Any

import mnist_classifier as plain
import mnist_data
import numpy as np

import jax
import jax.ipu


@functools.partial(jax.jit, static_argnames="steps", donate_argnames="state")
def train_epoch(
  state: plain.State, feed: Any, steps: int
) -> tuple[plain.State, jax.Array]:
  """Steps of training on the items of a feed, and their losses f32[steps]."""

  def step(state: plain.State, _: None) -> tuple[plain.State, jax.Array]:
    return plain.train_step(state, *feed.next())

  return jax.lax.scan(step, state, length=steps)


def with_rates(
  args: argparse.Namespace,
  digits: mnist_data.Digits,
  rng: np.random.Generator,
  rates: Iterator[float],
) -> Iterator[tuple[np.ndarray, np.ndarray, np.float32]]:
  """An epoch's batches, each with its learning rate."""
  for images, labels in plain.batches(digits, args.batch_size, rng):
    yield images, labels, np.float32(next(rates))


def main(argv: list[str] | None = None) -> int:
  return plain.main(argv, train)


def train(
  args: argparse.Namespace,
  digits: mnist_data.Digits,
  held_out: mnist_data.Digits,
  device: jax.Device,
) -> None:
  rng = np.random.default_rng(args.seed)
  steps = len(digits) // args.batch_size
  rates = iter(np.linspace(args.learning_rate, 0, args.epochs * steps))
  test_images, test_labels = jax.device_put((held_out.images, held_out.labels))
  state = plain.init(args.seed)

  start = time.perf_counter()
  example = digits.take(np.arange(args.batch_size))
  batch = (example.images, example.labels, np.float32(0))
  epoch_of = train_epoch.lower(
    state, jax.ipu.feed((), like=batch), steps
  ).compile()
  print(f"compiled for {device} in {time.perf_counter() - start:.2f} s")

  for epoch in range(1, args.epochs + 1):
    start = time.perf_counter()
    feed = jax.ipu.feed(with_rates(args, digits, rng, rates), like=batch)
    state, losses = epoch_of(state, feed)
    mean = float(np.mean(jax.device_get(losses)))
    fed = (time.perf_counter() - start) / steps
    correct = int(plain.count_correct(state[0], test_images, test_labels))
    print(
      f"epoch {epoch}: loss {mean:.4f}, "
      f"test accuracy {correct / len(held_out):.1%}, "
      f"{fed * steps:.2f} s on the host, {fed * 1e3:.2f} ms per step"
    )
  step = plain.train_step.lower(state, *batch).compile()
  called = time_of_calls(args, digits, rng, state, step)
  print(
    f"\na step on the host: {called * 1e3:.2f} ms as a call of its own, "
    f"{fed * 1e3:.2f} ms in a loop on the device"
  )
  report(epoch_of, step, batch, steps)


def time_of_calls(
  args: argparse.Namespace,
  digits: mnist_data.Digits,
  rng: np.random.Generator,
  state: plain.State,
  step: jax.stages.Compiled,
) -> float:
  """Seconds of a step on the host, if each is a call; of one epoch."""
  start = time.perf_counter()
  count, losses = 0, []
  for images, labels in plain.batches(digits, args.batch_size, rng):
    batch = jax.device_put((images, labels, np.float32(0)))
    state, value = step(state, *batch)
    losses.append(value)
    count += 1
  jax.device_get(losses)
  return (time.perf_counter() - start) / count


def report(
  epoch: jax.stages.Compiled, step: jax.stages.Compiled, batch: Any, steps: int
) -> None:
  """Prints the modelled time of a step in both forms, on IPUs."""
  fed, called = epoch.cost_analysis() or {}, step.cost_analysis() or {}
  if "ipu cycles" not in fed:
    return
  # A call of its own comes after the transfer of its batch.
  transfer = jax.jit(lambda *batch: batch).lower(*batch).compile()
  stream = (transfer.cost_analysis() or {})["ipu argument stream cycles"]
  cycles = called["ipu cycles"] + stream
  hertz = called["ipu cycles"] / called["ipu seconds"]
  inside = fed["ipu cycles"] / steps
  print(
    f"a step as modelled: {cycles / hertz * 1e6:,.1f} us as a call of its own, "
    f"{stream / hertz * 1e6:,.1f} us of which is the transfer of its batch; "
    f"{inside / hertz * 1e6:,.1f} us in the loop"
  )


if __name__ == "__main__":
  sys.exit(main())
