"""Reports and comparisons as text, on the command line and in notebooks."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from report_kit import lowered

import jax.numpy as jnp
from jaxlib.ipu import __main__ as command_line
from jaxlib.ipu import report

pytestmark = pytest.mark.ipu_only


def one(x):
  y = jnp.sin(x) @ x
  return y + 1


def other(x):
  y = jnp.sin(x) @ x
  return jnp.cumsum(y, 0)


@pytest.fixture(scope="module")
def reports(ipu):
  x = np.ones((128, 128), np.float32)
  return [report.of(lowered(ipu, f, x)) for f in (one, other)]


@pytest.fixture
def files(reports, tmp_path):
  paths = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
  for found, path in zip(reports, paths, strict=True):
    found.save(path)
  return [str(path) for path in paths]


def test_a_report_as_text(reports, files, capsys):
  assert command_line.main(["report", files[0]]) == 0
  printed = capsys.readouterr().out
  assert printed == str(reports[0])  # plain, as this is no terminal
  assert f"{reports[0].cost['ipu cycles']:,.0f} cycles" in printed
  line = reports[0].lines[0]
  assert f"{line.cycles:,.0f}" in printed and line.text in printed
  for insight in reports[0].insights:
    assert insight["text"][:40] in printed


def test_a_comparison(reports, files, capsys):
  assert command_line.main(["compare", *files]) == 0
  printed = capsys.readouterr().out
  found = report.compare(*reports)
  assert printed == str(found)
  changed = {c.what.partition(": ")[2]: c for c in found.lines}
  assert changed["return y + 1"].after == 0
  assert changed["return jnp.cumsum(y, 0)"].before == 0
  by = sum(c.by for c in found.lines)
  cycles = [r.cost["ipu cycles"] for r in reports]
  assert by == pytest.approx(cycles[1] - cycles[0], rel=1e-6)
  assert sum(c.by for c in found.operations) == pytest.approx(by, rel=1e-6)
  held = [r.cost["ipu peak tile bytes"] for r in reports]
  assert sum(c.by for c in found.memory) == held[1] - held[0]


def test_a_report_does_not_differ_from_itself(reports):
  found = report.compare(reports[0], reports[0])
  assert not (found.lines or found.operations or found.memory)
  assert "no difference" in str(found) and "same" in str(found)


def test_folders(reports, tmp_path, capsys):
  for name, found in zip(("0000.jit_a", "0001.jit_b"), reports, strict=True):
    (tmp_path / name).mkdir()
    found.save(tmp_path / name / "report.json.gz")
  assert command_line.main(["report", str(tmp_path)]) == 0
  printed = capsys.readouterr().out
  assert printed.count(" cycles ") == 2 and "0001.jit_b" in printed
  assert command_line.main(["report", str(tmp_path / "0000.jit_a")]) == 0
  assert capsys.readouterr().out == str(reports[0])


def test_errors_of_the_command_line(tmp_path, capsys):
  (tmp_path / "x.json").write_text("{}")
  for path in (tmp_path / "x.json", tmp_path / "nowhere"):
    assert command_line.main(["report", str(path)]) == 1
    assert str(path) in capsys.readouterr().err
  with pytest.raises(SystemExit):
    command_line.main(["nonsense"])


class Terminal(io.StringIO):
  """What a terminal would show."""

  def isatty(self) -> bool:
    return True


def test_colours_in_a_terminal(reports, files, monkeypatch):
  rich = pytest.importorskip("rich", reason="rich is not installed")
  assert rich
  monkeypatch.setenv("TERM", "xterm-256color")
  for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(sys, "stdout", terminal := Terminal())
  assert command_line.main(["report", str(files[0])]) == 0
  assert "\x1b[1m" in terminal.getvalue()
  assert f"{reports[0].lines[0].cycles:,.0f}" in terminal.getvalue()
  monkeypatch.setenv("NO_COLOR", "1")
  monkeypatch.setattr(sys, "stdout", plain := Terminal())
  assert command_line.main(["report", str(files[0])]) == 0
  assert plain.getvalue() == str(reports[0])


def test_a_notebook_shows_a_light_form(reports):
  html = reports[0]._repr_html_()
  assert len(html) < 20_000 and "<script" not in html
  assert f"{reports[0].cost['ipu cycles']:,.0f}" in html
  assert "test_report_terminal.py" in html
