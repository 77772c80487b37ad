"""Trains the MLP of mnist_classifier.py on several IPUs, data-parallel.

  python ipu/examples/mnist_classifier_multi_ipus.py
  python ipu/examples/mnist_classifier_multi_ipus.py --devices 8 --epochs 2
  python ipu/examples/mnist_classifier_multi_ipus.py --backend cpu

Each device has all weights and its share of the batch; the step is the same
function as on one device. What makes it parallel is where its arguments are:
the compiler adds the all-reduces of the gradients. Prints losses, the accuracy
on held-out digits, and the modelled cost of a step on one IPU and on all.

For the digits: pip install -r build/requirements-run.txt
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mnist_classifier as mnist
import mnist_data
import numpy as np

import jax
import jax.ipu
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def parse(argv: list[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--backend", default="ipu", help="ipu (default) or cpu")
  parser.add_argument("--devices", type=int, default=4)
  parser.add_argument("--epochs", type=int, default=6)
  parser.add_argument("--batch-size", type=int, default=128, help="of all IPUs")
  parser.add_argument("--learning-rate", type=float, default=0.2)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--data", type=Path, metavar="DIR")
  args = parser.parse_args(argv)
  if args.devices < 1 or args.batch_size % args.devices:
    parser.error(
      f"--batch-size {args.batch_size}: expected a multiple of the "
      f"{args.devices} devices"
    )
  return args


def compile_step(
  state: mnist.State, batch: tuple[np.ndarray, np.ndarray]
) -> jax.stages.Compiled:
  """The step for arguments that are where they will be."""
  return mnist.train_step.lower(state, *batch, np.float32(0)).compile()


def main(argv: list[str] | None = None) -> int:
  args = parse(argv)
  jax.config.update("jax_ipu_device_count", args.devices)
  jax.config.update("jax_num_cpu_devices", args.devices)
  try:
    digits, held_out = mnist_data.load(args.data, args.seed)
  except mnist_data.DataError as e:
    print(f"error: {e}", file=sys.stderr)
    return 2
  devices = jax.devices(args.backend)[: args.devices]
  mesh = Mesh(np.array(devices), ("data",))
  everywhere = NamedSharding(mesh, P())
  shared = NamedSharding(mesh, P("data"))  # the batch, in equal parts

  with jax.default_device(devices[0]):
    first = mnist.init(args.seed)
  state = jax.device_put(first, everywhere)
  example = digits.take(np.arange(args.batch_size))
  batch = example.images, example.labels
  alone = compile_step(first, jax.device_put(batch, devices[0]))
  step = compile_step(state, jax.device_put(batch, shared))

  rng = np.random.default_rng(args.seed)
  test = jax.device_put((held_out.images, held_out.labels), everywhere)
  steps = len(digits) // args.batch_size
  rates = iter(np.linspace(args.learning_rate, 0, args.epochs * steps))
  for epoch in range(1, args.epochs + 1):
    losses = []
    for batch in mnist.batches(digits, args.batch_size, rng):
      rate = jax.device_put(np.float32(next(rates)), everywhere)
      state, value = step(state, *jax.device_put(batch, shared), rate)
      losses.append(value)
    mean = float(np.mean(jax.device_get(losses)))
    correct = int(mnist.count_correct(state[0], *test))
    print(
      f"epoch {epoch}: loss {mean:.4f}, "
      f"test accuracy {correct / len(held_out):.1%}"
    )
  report(alone, step, len(devices))
  return 0


def report(
  alone: jax.stages.Compiled, step: jax.stages.Compiled, count: int
) -> None:
  """Prints the modelled costs of a step on one device and on all."""
  one, all_ = (c.cost_analysis() or {} for c in (alone, step))
  if "ipu cycles" not in all_:
    return
  text = step.as_text() or ""
  print(
    f"\na training step, with {text.count(' all-reduce(')} all-reduces\n"
    f"  on one IPU: {one['ipu cycles']:,.0f} cycles\n"
    f"  on each of {count} IPUs: {all_['ipu cycles']:,.0f} cycles, "
    f"{all_['ipu seconds'] * 1e6:,.1f} us, "
    f"a speed-up of {one['ipu cycles'] / all_['ipu cycles']:.2f}"
  )


if __name__ == "__main__":
  sys.exit(main())
