"""Parts of build.py that need neither network nor compiler."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

import pytest
from build_kit import ROOT, program


class TestOptions:
  def test_defaults(self, tools):
    options = tools.options.parse(["--enable_ipu"])
    assert options.wheels == ["jaxlib"]
    assert options.target_cpu_features == "release"
    assert options.output_path == ROOT / "dist"
    assert options.venv == ROOT / ".venv"
    assert options.then is None

  def test_another_python_has_its_own_venv(self, tools):
    options = tools.options.parse(["--enable_ipu", "--python=python3"])
    version = "{}.{}".format(*sys.version_info)
    assert options.venv == ROOT / f".venv-{version}"
    options = tools.options.parse(["--update_pins=1.0"])
    assert options.update_pins == "1.0"

  def test_repeated_options_accumulate(self, tools):
    flags = ["--copt=-g3", "--strip=never", "--copt=-DX=a b"]
    options = tools.options.parse(
      [
        "--enable_ipu",
        "--bazel_options=--copt=-g3 --strip=never",
        "--bazel_options='--copt=-DX=a b'",
      ]
    )
    assert options.bazel_options == flags

  def test_test_passes_on_the_remaining_arguments(self, tools):
    options = tools.options.parse(
      ["--enable_ipu", "--test", "-k", "dot", "--wheels=x"]
    )
    assert options.then.arguments == ["-m", "pytest", "-k", "dot", "--wheels=x"]
    assert options.wheels == ["jaxlib"]

  def test_run_passes_on_the_remaining_arguments(self, tools):
    options = tools.options.parse(["--enable_ipu", "--run", __file__, "--help"])
    assert options.then.arguments == [__file__, "--help"]
    assert options.then.requirements.is_file()

  @pytest.mark.parametrize(
    ("arguments", "answer"),
    [
      ([], "python3 build/build.py --enable_ipu"),
      (["--test"], "python3 build/build.py --enable_ipu"),
      (["--enable_ipu", "--wheels=jax,torch"], "unknown wheel 'torch'"),
      (["--enable_ipu", "--run"], "--run expects a script"),
      (["--enable_ipu", "--run", "nowhere.py"], "no such script 'nowhere.py'"),
      (["--enable_ipu", "--target_cpu_features=z80"], "'release', 'native'"),
      (["--enable_ipu", "--bazel_options='-c opt"], "No closing quotation"),
    ],
  )
  def test_invalid_arguments(self, tools, capsys, arguments, answer):
    with pytest.raises(SystemExit) as exit_:
      tools.options.parse(arguments)
    assert exit_.value.code == 2
    assert answer.replace("'", "") in capsys.readouterr().err.replace("'", "")

  def test_help_explains_every_option(self):
    text = subprocess.run(
      [sys.executable, ROOT / "build" / "build.py", "--help"],
      capture_output=True,
      check=True,
      text=True,
    ).stdout
    for option in (
      "--enable_ipu", "--wheels", "--bazel_path", "--bazel_options",
      "--bazel_startup_options", "--target_cpu_features", "--output_path",
      "--install_deps", "--venv", "--run", "--test", "--verbose", "--python",
      "--update_pins", "--page_libraries",
    ):  # fmt: skip
      assert f"\n  {option}" in text


def test_output_folder(tools, tmp_path):
  tools.system.check_folder(tmp_path / "a" / "b")
  (tmp_path / "file").write_text("")
  for path in (tmp_path / "file", tmp_path / "file" / "below"):
    with pytest.raises(tools.BuildError, match=f"--output_path={path} cannot"):
      tools.system.check_folder(path)


class TestPython:
  def test_a_shim_is_resolved(self, tools, tmp_path):
    shim = program(tmp_path / "shim", f'exec {sys.executable} "$@"')
    assert tools.system.find_python(str(shim)) == sys.executable

  @pytest.mark.parametrize("path", ["/nowhere/python", "/bin/false"])
  def test_invalid_paths(self, tools, path):
    with pytest.raises(tools.BuildError, match=f"--python={path} must be"):
      tools.system.find_python(path)

  def test_build_py_restarts_in_the_given_python(self, tmp_path):
    """The pins would be changed if the other Python were not started first."""
    other = program(
      tmp_path / "python",
      f'if [ "$1" = -c ]; then echo {tmp_path}/python; else echo "$@"; fi',
    )
    words = ["build/build.py", "--update_pins=nonsense", f"--python={other}"]
    done = subprocess.run(
      [sys.executable, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(ROOT / words[0]), *words[1:]]


class TestBazel:
  def test_wrong_path(self, tools, tmp_path):
    missing = tmp_path / "bazel"
    with pytest.raises(tools.BuildError, match="is not a program"):
      tools.bazel.Bazel(missing, [], verbose=False)

  def test_missing_bazel(self, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.BuildError, match="apt-get install -y bazel"):
      tools.bazel.Bazel(None, [], verbose=False)
    assert "bazel-bootstrap" in tools.bazel.wanted_packages(None)

  def test_an_installed_bazel_needs_no_packages(
    self, tools, tmp_path, monkeypatch
  ):
    program(tmp_path / "bazelisk", "echo bazel 7.4.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not tools.bazel.wanted_packages(None)

  @pytest.mark.parametrize(
    ("printed", "version"),
    [
      ("bazel 7.4.1", (7, 4, 1)),
      ("bazel 6.5.0-vmware", (6, 5, 0)),
      ("bazel no_version", ()),
    ],
  )
  def test_version(self, tools, tmp_path, printed, version):
    path = program(tmp_path / "bazel", f"echo {printed}")
    assert tools.bazel.Bazel(path, [], verbose=False)._version() == version

  @pytest.mark.parametrize("version", ["3.7.2", "8.0.0"])
  def test_unsupported_versions(self, tools, tmp_path, version):
    path = program(tmp_path / "bazel", f"echo bazel {version}")
    with pytest.raises(tools.BuildError, match=f"{version}(?s:.)*--bazel_path"):
      tools.bazel.Bazel(path, [], verbose=False).configure(
        generator_python=sys.executable, pip_python=tmp_path / "python"
      )

  def test_a_program_that_is_not_bazel(self, tools, tmp_path):
    path = program(tmp_path / "bazel", "exit 3")
    with pytest.raises(tools.BuildError, match=r"code 3(?s:.)*--bazel_path"):
      tools.bazel.Bazel(path, [], verbose=False)._version()


class TestProgress:
  def test_a_stage_says_that_it_goes_on_and_how_long_it_took(
    self, tools, capsys, monkeypatch
  ):
    monkeypatch.setattr(tools.command, "REMINDER_SECONDS", 0.01)
    with tools.command.stage("waiting"):
      time.sleep(0.2)
    first, *reminders, last = capsys.readouterr().err.splitlines()
    assert first == "build.py: waiting"
    assert set(reminders) == {"build.py: still waiting, 0 s"}
    assert last == "build.py: waiting took 0 s"

  def test_a_stage_that_fails_took_no_time(self, tools, capsys):
    threads = threading.active_count()
    with pytest.raises(KeyError), tools.command.stage("failing"):
      raise KeyError
    assert capsys.readouterr().err == "build.py: failing\n"
    assert threading.active_count() == threads

  @pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s")]
  )
  def test_duration(self, tools, seconds, text):
    assert tools.command.duration(seconds) == text

  @pytest.mark.parametrize("first", [True, False])
  def test_the_library(self, tools, tmp_path, capfd, monkeypatch, first):
    """Without a terminal, Bazel's progress comes in lines, but rarely."""
    path = program(
      tmp_path / "bazel",
      f'if [ "$1" = info ]; then echo {tmp_path}; else echo "$@" >&2; fi',
    )
    if not first:
      (tmp_path / "bazel-bin").mkdir()
    monkeypatch.setattr(tools.bazel, "ROOT", tmp_path)
    bazel = tools.bazel.Bazel(path, [], verbose=False)
    bazel.build_library("release", [])
    printed = capfd.readouterr().err
    assert "--show_progress_rate_limit=30" in printed
    assert "--noshow_progress" not in printed
    assert ("the first build takes 5 to 10 minutes" in printed) is first
    assert re.search(
      r"building //jaxlib/ipu:libjaxipu.so .*took \d+ s", printed
    )


class TestEnvironment:
  def test_a_folder_that_is_no_venv(self, tools, tmp_path):
    with pytest.raises(
      tools.BuildError, match="--venv=.* not a working virtual"
    ):
      tools.environment.Environment(tmp_path).create()

  def test_a_venv_of_another_python(self, tools, tmp_path):
    (tmp_path / "pyvenv.cfg").write_text("version = 3.9.2\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    with pytest.raises(tools.BuildError, match="another Python"):
      tools.environment.Environment(tmp_path).create()

  def test_runs_on_the_model(self, tools, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "bin").mkdir()
    program(
      tmp_path / "bin" / "python",
      f'echo "$JAX_IPU_USE_MODEL,$JAX_PLATFORMS,$1" > {tmp_path}/out; exit 7',
    )
    assert tools.environment.Environment(tmp_path).run(["x.py"]) == 7
    assert (tmp_path / "out").read_text() == "true,,x.py\n"


def test_description_of_poplar(tools, monkeypatch):
  monkeypatch.delenv("TF_POPLAR_BASE", raising=False)
  assert "model only" in tools.poplar.describe()
  monkeypatch.setenv("TF_POPLAR_BASE", "/opt/poplar")
  assert "/opt/poplar" in tools.poplar.describe()
