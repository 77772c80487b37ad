"""The graph verifier refuses graphs that no phase may produce."""

from __future__ import annotations

import pytest

from jaxlib.ipu import ops
from jaxlib.ipu.check import verify_graph as verifier
from jaxlib.ipu.dtypes import DType
from jaxlib.ipu.ir.graph import Graph, Module, Node, Value

ops.load()


def graph() -> tuple[Graph, Node]:
  x = Value(None, 0, (2,), DType.F32)
  node = Node("stablehlo.add", (x, x), [((2,), DType.F32)])
  return Graph([x], [node], [node.results[0]]), node


def bad_graph(g: Graph, message: str, **module) -> None:
  fields = {"name": "m", "graph": g, "aliases": [], "donors": []} | module
  with pytest.raises(verifier.InvalidGraph, match=message):
    verifier.verify(Module(**fields))


def test_graphs():
  g, node = graph()
  verifier.verify(Module("m", g, [(0, 0)], []))
  bad_graph(g, "aliases", aliases=[(0, 1)])
  bad_graph(g, "no argument 3", donors=[3])
  stranger = Value(None, 0, (2,), DType.F32)
  bad_graph(Graph(g.parameters, g.nodes, [stranger]), "result 0")
  bad_graph(Graph([], g.nodes, []), "input 0, .* is not defined yet")
  wrong = Node("stablehlo.add", (g.parameters[0],) * 2, [((3,), DType.F32)])
  bad_graph(Graph(g.parameters, [wrong], []), "an element-wise result 3xf32")
  odd = Node("stablehlo.nothing", (), [])
  bad_graph(Graph([], [odd], []), "nothing lowers stablehlo.nothing")


def test_graphs_of_loops():
  def parameter(shape=(2,), dtype=DType.F32):
    return Value(None, 0, shape, dtype)

  x, c, b = parameter(), parameter(), parameter()
  flag = Node("stablehlo.constant", (), [((), DType.BOOL)])
  condition = Graph([c], [flag], [flag.results[0]])
  for body, message in (
    (Graph([b], [], [b]), None),
    (Graph([b], [], []), "the body gives"),
    (Graph([parameter((3,))], [], [b]), "is not defined|the body takes"),
  ):
    loop = Node(
      "stablehlo.while", (x,), [((2,), DType.F32)], None, (condition, body)
    )
    g = Graph([x], [loop], [])
    if message is None:
      verifier.verify(Module("m", g, [], []))
    else:
      bad_graph(g, message)
