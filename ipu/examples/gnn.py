"""Node classification with a graph network, on an IPU or the CPU.

  python ipu/examples/gnn.py
  python ipu/examples/gnn.py --backend cpu

The graph is synthetic: nodes of four communities, with edges mostly within one,
and features that say little of a node alone. Each layer sends the nodes'
features along the edges (a gather), and averages what arrives at each node
(`jax.ops.segment_sum`, a scatter). A tenth of the labels is known in training.
Prints the loss, the accuracy on the other nodes, that of a model without
messages, and on an IPU the modelled cost of a step.
"""

from __future__ import annotations

import argparse
import functools
from typing import NamedTuple

import numpy as np

import jax
import jax.numpy as jnp

CLASSES = 4
FEATURES = 16
HIDDEN = 32

Params = list[dict[str, jax.Array]]


class Graph(NamedTuple):
  """N nodes and E directed edges, from `senders` to `receivers`."""

  features: jax.Array  # f32[N, FEATURES]
  senders: jax.Array  # s32[E]
  receivers: jax.Array  # s32[E]
  labels: jax.Array  # s32[N]
  known: jax.Array  # bool[N], the labels that training may use


def draw_graph(rng: np.random.Generator, nodes: int, degree: int) -> Graph:
  """Communities with nine in ten edges within them."""
  labels = rng.integers(0, CLASSES, nodes)
  means = rng.normal(0, 0.5, (CLASSES, FEATURES))
  features = means[labels] + rng.normal(0, 1, (nodes, FEATURES))
  receivers = np.repeat(np.arange(nodes), degree)
  senders = rng.integers(0, nodes, receivers.size)
  members = [np.flatnonzero(labels == c) for c in range(CLASSES)]
  for edge in np.flatnonzero(rng.random(receivers.size) < 0.9):
    senders[edge] = rng.choice(members[labels[receivers[edge]]])
  return Graph(
    features.astype(np.float32),
    senders.astype(np.int32),
    receivers.astype(np.int32),
    labels.astype(np.int32),
    rng.random(nodes) < 0.1,
  )


def initialise(rng: np.random.Generator) -> Params:
  sizes = [FEATURES, HIDDEN, CLASSES]
  return [
    {
      name: rng.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)
      for name in ("self", "neighbours")
    }
    for inputs, outputs in zip(sizes, sizes[1:])
  ]


def predict(params: Params, graph: Graph, messages: bool) -> jax.Array:
  """Logits of the nodes' classes, f32[N, CLASSES]."""
  nodes = graph.labels.size
  x = graph.features
  ones = jnp.ones(graph.receivers.size, x.dtype)
  degree = jax.ops.segment_sum(ones, graph.receivers, nodes)[:, None]
  for index, weights in enumerate(params):
    if index:
      x = jax.nn.relu(x)
    y = x @ weights["self"]
    if messages:
      sent = jax.ops.segment_sum(x[graph.senders], graph.receivers, nodes)
      y += sent / jnp.maximum(degree, 1) @ weights["neighbours"]
    x = y
  return x


def loss(params: Params, graph: Graph, messages: bool) -> jax.Array:
  """Mean cross-entropy of the nodes with a known label."""
  logs = jax.nn.log_softmax(predict(params, graph, messages))
  of_label = jnp.take_along_axis(logs, graph.labels[:, None], axis=1)[:, 0]
  return -jnp.sum(of_label * graph.known) / jnp.sum(graph.known)


@functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
def train_step(
  params: Params, graph: Graph, messages: bool
) -> tuple[Params, jax.Array]:
  value, grads = jax.value_and_grad(loss)(params, graph, messages)
  return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value


@functools.partial(jax.jit, static_argnums=2)
def accuracy(params: Params, graph: Graph, messages: bool) -> jax.Array:
  """Share of the nodes with an unknown label that are classified correctly."""
  right = jnp.argmax(predict(params, graph, messages), axis=1) == graph.labels
  return jnp.sum(right & ~graph.known) / jnp.sum(~graph.known)


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--backend", default="ipu", help="ipu (default) or cpu")
  parser.add_argument("--nodes", type=int, default=1024)
  parser.add_argument("--degree", type=int, default=8, help="edges to a node")
  parser.add_argument("--steps", type=int, default=100)
  args = parser.parse_args()
  device = jax.devices(args.backend)[0]
  rng = np.random.default_rng(0)
  graph = jax.device_put(draw_graph(rng, args.nodes, args.degree), device)
  first = initialise(rng)
  for messages in (False, True):
    params = jax.device_put(first, device)
    step = train_step.lower(params, graph, messages).compile()
    for _ in range(args.steps):
      params, value = step(params, graph)
    share = accuracy(params, graph, messages)
    name = "with messages" if messages else "without messages"
    print(f"{name}: loss {value:.4f}, accuracy {share:.1%}")
    if device.platform == "ipu":
      cost = step.cost_analysis()
      print(
        f"  a step: {cost['ipu cycles']:,.0f} cycles, "
        f"{cost['ipu exchange bytes']:,.0f} bytes exchanged"
      )


if __name__ == "__main__":
  main()
