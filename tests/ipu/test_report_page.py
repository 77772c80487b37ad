"""The page of a report: as a file, and in a browser."""

from __future__ import annotations

import base64
import gzip
import html.parser
import json
import re

import browser_kit
import numpy as np
import plugin_test_util
import pytest
from report_kit import lowered

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib.ipu import report
from jaxlib.ipu.reporting import page

pytestmark = pytest.mark.ipu_only

needs_libraries = pytest.mark.skipif(
  not all((page.VENDOR / name).exists() for name in page.LIBRARIES),
  reason="no page libraries: python3 build/build.py --page_libraries",
)
needs_browser = pytest.mark.skipif(
  browser_kit.find() is None, reason="Chromium is not installed"
)


def layer(w, x):
  """</script><!-- a docstring that would end the page's script -->"""

  def step(_, x):
    return jnp.tanh(x @ w)

  return lax.fori_loop(0, 9, step, x).sum(0) + w[0]


class Elements(html.parser.HTMLParser):
  """Counts scripts, and collects the addresses that elements would load."""

  def __init__(self) -> None:
    super().__init__()
    self.scripts = 0
    self.addresses: list[str] = []

  def handle_starttag(self, tag, attrs):
    self.scripts += tag == "script"
    self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset")]


@pytest.fixture(scope="module")
def found(ipu):
  w, x = np.ones((96, 96), np.float32), np.ones((200, 96), np.float32)
  return report.of(lowered(ipu, layer, w, x))


@pytest.fixture(scope="module")
def too_large(ipu):
  outer = lambda x: (jnp.sin(x)[:, None] * x).sort(0).sum(1)
  return report.of(lowered(ipu, outer, np.ones(24_000, np.float32)))


def repeated(found, count):
  """A report whose steps are those of another one, over and over."""
  which = np.arange(count) % len(found.steps["times"])
  steps = {name: column[which] for name, column in found.steps.items()}
  steps |= {"parent": np.full(count, -1), "depth": np.zeros(count, int)}
  given = found.data["origins"]
  begin, end = given["offsets"][which], given["offsets"][which + 1]
  entries = np.concatenate([np.arange(a, b) for a, b in zip(begin, end)])
  origins = {
    "offsets": np.concatenate([[0], np.cumsum(end - begin)]),
    "location": given["location"][entries],
    "weight": given["weight"][entries],
  }
  return report.Report({**found.data, "steps": steps, "origins": origins})


@needs_libraries
def test_a_page_contains_all_it_needs(found):
  text = found.to_html()
  # Neither its elements nor its styles load anything.
  elements = Elements()
  elements.feed(text)
  assert not elements.addresses and elements.scripts == 4
  assert not re.search(r"@import|url\(\s*['\"]?(http|//)", text)
  assert "sourceMappingURL" not in text
  (data,) = re.findall(r'id="report-data">([^<]+)<', text)
  tree = json.loads(gzip.decompress(base64.b64decode(data)))
  assert tree == found.to_json()
  assert re.search(r"<title>jit.*IPU report</title>", text)


def test_missing_libraries_are_an_error_that_names_them(
  found, tmp_path, monkeypatch
):
  page._libraries.cache_clear()
  page._style.cache_clear()
  monkeypatch.setattr(page, "VENDOR", tmp_path)
  with pytest.raises(page.LibrariesMissing, match="--page_libraries"):
    found.to_html()
  page._libraries.cache_clear()
  page._style.cache_clear()


def test_engine_options_write_a_folder_for_each_program(tmp_path):
  options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
  plugin_test_util.run(
    """
    import jax, numpy as np
    x = jax.device_put(np.ones(500, np.float32), jax.devices("ipu")[0])
    jax.jit(lambda x: x * 2)(x), jax.jit(lambda x: x.sum())(x)
    """,
    POPLAR_ENGINE_OPTIONS=json.dumps(options),
  )
  folders = sorted(tmp_path.iterdir())
  assert [f.name[:5] for f in folders] == ["0000.", "0001."]
  for folder in folders:
    assert report.load(folder).cost["ipu cycles"] > 0
    files = {"report.json.gz", "report.html"}
    if not (page.VENDOR / page.LIBRARIES[0]).exists():
      files.discard("report.html")
    assert {f.name for f in folder.iterdir()} == files


def test_a_program_that_does_not_fit_is_written_before_its_error(ipu, tmp_path):
  outer = lambda x: (jnp.sin(x)[:, None] * x).sort(0).sum(1)
  one = lowered(ipu, outer, np.ones(24_000, np.float32))
  options = {"ipu_report_to": str(tmp_path)}
  with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory") as e:
    one.compile(compiler_options=options)
  (folder,) = tmp_path.iterdir()
  assert str(folder) in str(e.value)
  assert not report.load(folder).fits


def test_dumps_and_reports_of_a_program_share_its_folder(ipu, tmp_path):
  one = lowered(ipu, jnp.cos, np.ones(300, np.float32))
  names = ("ipu_report_to", "ipu_dump_to")
  one.compile(compiler_options=dict.fromkeys(names, str(tmp_path)))
  (folder,) = tmp_path.iterdir()
  made = {path.name for path in folder.iterdir()}
  assert {"report.json.gz", "0_parse.txt", "6_emit.txt"} <= made


def test_nothing_of_reports_is_imported_without_them():
  code = """
  import sys, jax, numpy as np
  x = jax.device_put(np.ones(500, np.float32), jax.devices("ipu")[0])
  jax.jit(lambda x: x * 2)(x)
  print([name for name in sys.modules if "ipu.report" in name])
  """
  # The checks of phases share the code that makes folders.
  assert plugin_test_util.output(code, JAX_IPU_VERIFY="") == "[]"


def test_a_folder_that_cannot_be_written(ipu, tmp_path):
  file = tmp_path / "file"
  file.touch()
  one = lowered(ipu, jnp.cosh, np.ones(300, np.float32))
  with pytest.raises(jax.errors.JaxRuntimeError, match="cannot write a report"):
    one.compile(compiler_options={"ipu_report_to": str(file / "report")})


# --- In a browser -----------------------------------------------------------


@pytest.fixture(scope="module")
def browser(found, tmp_path_factory):
  """The page of `found`, opened once."""
  path = tmp_path_factory.mktemp("page") / "report.html"
  found.save(path)
  with browser_kit.Browser() as opened:
    opened.open(path)
    yield opened


@needs_libraries
@needs_browser
class TestBrowser:
  @pytest.fixture(autouse=True)
  def _no_errors(self, browser):
    """Nothing is loaded but the page, and nothing fails."""
    yield
    assert browser.errors == [] and browser.evaluate("reportErrors") == []
    asked = [url for url in browser.requests if url.partition(":")[0] != "data"]
    assert len(asked) == 1 and asked[0].startswith("file:")

  def test_sections_have_content(self, browser):
    empty = browser.evaluate(
      "(() => { for (const id of charts.keys()) drawChart(id);"
      "return [...charts].filter(([, c]) => !c.chart.getOption().series"
      ".some((s) => s.data && s.data.length)).map(([id]) => id); })()"
    )
    assert empty == []
    assert browser.evaluate("window.reportMarks") > 4
    for part in ("#cards .card", "#insight-list li", ".source-line", "#nav a"):
      assert browser.evaluate(f"document.querySelectorAll({part!r}).length"), (
        part
      )
    assert "jnp.tanh(x @ w)" in browser.evaluate(
      "document.getElementById('source-files').textContent"
    )

  def test_figures_are_those_of_the_report(self, browser, found):
    text = browser.evaluate("document.getElementById('cards').textContent")
    assert f"{found.cost['ipu cycles']:,.0f}" in text
    assert browser.evaluate("report.total") == found.cycles.sum()
    assert browser.evaluate("report.lines.map((l) => l.cycles)") == [
      pytest.approx(line.cycles, rel=1e-5) for line in found.lines
    ]
    tile = found.data["memory"]["peak_tile"]
    held = found.live(tile)
    shown = browser.evaluate(
      f"liveOn(report, {tile}, report.tiles.moment[{tile}])"
    )
    assert sorted(shown) == sorted([size, entry] for size, entry in held)

  def test_search_selects_steps(self, browser, found):
    browser.press("/")
    browser.press("dot_general")
    steps = np.char.find(
      found.locations["name"].astype(str)[found.steps["location"]],
      "dot_general",
    )
    expected = int((steps >= 0).sum())
    assert expected
    status = browser.evaluate(
      "document.getElementById('step-found').textContent"
    )
    assert status.startswith(f"{expected} steps")
    browser.evaluate("searchSteps(''); document.activeElement.blur()")

  def test_a_click_shows_a_steps_tiles(self, browser, found):
    step = int(found.cycles.argmax())
    browser.evaluate(f"selectStep({step})")
    text = browser.evaluate("document.getElementById('step-detail').innerText")
    assert f"Step {step}" in text and "tiles" in text.lower()
    browser.press("]")
    after = browser.evaluate("chosenStep")
    assert after > step and found.cycles[after] > 0

  def test_a_click_shows_what_is_on_a_tile(self, browser, found):
    browser.evaluate("void drawChart('map-chart')")
    browser.click("#map-chart")
    browser.wait("chosenTile >= 0")
    tile = browser.evaluate("chosenTile")
    text = browser.evaluate("document.getElementById('tile-detail').innerText")
    assert f"Tile {tile}" in text
    largest = found.live(tile)[0][1]
    assert str(found.tensors["name"][largest]) in text

  def test_tables_sort_and_filter(self, browser, found):
    browser.evaluate("document.getElementById('step-table').scrollIntoView()")
    rows = "#step-table .tabulator-row"
    browser.wait(f"document.querySelectorAll({rows!r}).length > 0")
    kept = browser.evaluate(
      "(() => { const t = Tabulator.findTable('#step-table')[0];"
      "t.setHeaderFilterValue('what', 'Dot');"
      "t.setSort('cycles', 'desc');"
      "return t.getData('active').map((r) => r.cycles); })()"
    )
    dots = found.cycles[found.steps["codelet"] == "Dot"]
    assert kept == sorted(dots.tolist(), reverse=True)

  def test_dark_and_light(self, browser):
    colour = "getComputedStyle(document.body).backgroundColor"
    before = browser.evaluate(colour)
    browser.click("#theme")
    assert browser.evaluate(colour) != before
    browser.click("#theme")
    assert browser.evaluate(colour) == before

  def test_another_report_is_compared(self, browser, found):
    raw = base64.b64encode(found.compressed()).decode()
    browser.evaluate(
      f"parseReport(bytesOf({raw!r})).then((b) => {{"
      "b.cost['ipu cycles'] *= 2; showComparison(b, report); })"
    )
    text = browser.evaluate("document.getElementById('compare').innerText")
    assert "-50" in text.replace("−", "-") and "No difference" in text

  def test_few_marks_are_drawn_of_many_steps(self, found, tmp_path):
    path = tmp_path / "report.html"
    many = repeated(found, 5000)
    many.save(path)
    with browser_kit.Browser() as opened:
      opened.open(path)
      assert opened.evaluate("report.count") == 5000
      assert 1000 < opened.evaluate("reportMarks") <= 10_000
      # As many steps as are drawn one by one.
      opened.evaluate(
        "(() => { let i = 0; while (visibleSteps(report, 0, report.begin[i])"
        ".length < MOST_STEPS) i++; zoomTo(0, report.begin[i]); })()"
      )
      assert 1000 < opened.evaluate("reportMarks") <= 10_000
      assert opened.errors == [] and len(opened.requests) == 1

  def test_runs_are_listed(self, found, tmp_path):
    path = tmp_path / "report.html"
    run = {
      "device": 0, "cycles": 12_345.0, "seconds": 1e-5, "wall_seconds": 0.25,
      "exchange_bytes": None, "trips": [{"line": "a/b.py:7", "iterations": 9}],
    }  # fmt: skip
    other = {**run, "device": 1, "cycles": 54_321.0}
    report.Report({**found.data, "runs": [run, other]}).save(path)
    with browser_kit.Browser() as opened:
      opened.open(path)
      text = opened.evaluate("document.getElementById('runs').innerText")
      for part in ("12,345", "10 µs", "250 ms", "b.py:7 × 9"):
        assert part in text
      assert "exchanged" not in text and "54,321" in text
      text = opened.evaluate(
        "(() => { const d = document.getElementById('run-device');"
        "d.value = '1'; d.onchange();"
        "return document.getElementById('runs').innerText; })()"
      )
      assert "54,321" in text and "12,345" not in text
      assert opened.errors == []

  def test_a_program_that_does_not_fit(self, too_large, tmp_path):
    path = tmp_path / "report.html"
    too_large.save(path)
    with browser_kit.Browser(390, 800, dark=True) as opened:
      opened.open(path)
      assert "does not fit" in opened.evaluate("document.body.innerText")
      assert opened.evaluate(
        "document.documentElement.scrollWidth <= innerWidth"
      )
      assert opened.errors == [] and len(opened.requests) == 1
