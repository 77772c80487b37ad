"""The graph as text, for dumps."""

from __future__ import annotations

from jaxlib.ipu.ir.graph import Graph, Module, Value
from jaxlib.ipu.location import location_text, resolve


def module_text(module: Module) -> str:
  """A module: its signature's aliases, its functions, then its graph."""
  names: dict[int, str] = {}
  lines = [f"module {module.name}"]
  for i, j in module.aliases:
    lines.append(f"  argument {i} may become result {j}")
  if module.donors:
    lines.append(f"  donated besides: {module.donors}")
  for function in module.functions:
    lines.append(f"function {function.number}")
    lines += _graph(function.graph, names, "  ")
  return "\n".join(lines + _graph(module.graph, names, "  ")) + "\n"


def _graph(graph: Graph, names: dict[int, str], indent: str) -> list[str]:
  def name(value: Value) -> str:
    return names.setdefault(id(value), f"%{len(names)}")

  parameters = ", ".join(f"{name(p)}: {p.type}" for p in graph.parameters)
  lines = [f"{indent}({parameters}) {{"]
  for node in graph.nodes:
    results = ", ".join(name(v) for v in node.results)
    inputs = ", ".join(name(v) for v in node.inputs)
    types = ", ".join(v.type for v in node.results)
    text = f"{indent}  {results} = {node.op}({inputs}) : {types}"
    if node.attributes is not None:
      attributes = " ".join(str(node.attributes).split())
      text += f"  {attributes[:200]}"
    where = location_text(resolve(node.location))
    lines.append(f"{text}  # {where}" if where else text)
    for region in node.regions:
      lines += _graph(region, names, indent + "    ")
  results = ", ".join(name(v) for v in graph.results)
  return [*lines, f"{indent}  return {results}", f"{indent}}}"]
