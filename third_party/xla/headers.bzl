"""Repositories made of the headers in a wheel that pip downloads.

    @xla_headers   what the pinned wheel holds: PJRT's headers and Eigen's
    @xla           XLA's source tree as far as it is needed; by default it
                   points into @xla_headers, and
                   --override_repository=xla=PATH puts a checkout in its place
    @pjrt_c_api    the target for the PJRT C API in @xla, whichever that is

pip does the download, so that the user's own index, proxy and certificates are
used, and checks the sha256 in requirements.txt.
"""

_WHEEL = {
    "--python-version": "3.11",
    "--implementation": "cp",
    "--abi": "cp311",
    "--platform": "manylinux_2_27_x86_64",
    "--only-binary": ":all:",
}

_HEADERS = {
    "tensorflow/include/xla/pjrt/c/": "xla/pjrt/c/",
    "tensorflow/include/Eigen/": "Eigen/",
    "tensorflow/include/unsupported/Eigen/": "unsupported/Eigen/",
}

_UNPACK = """
import sys, zipfile
wheel, *prefixes = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
  for info in archive.infolist():
    for prefix in prefixes:
      if info.filename.startswith(prefix) and not info.is_dir():
        info.filename = info.filename[len("tensorflow/include/"):]
        archive.extract(info)
"""

# The headers of PJRT's C API that are C: the others are XLA's own C++.
_C_API = [
    "pjrt_c_api.h",
    "pjrt_c_api_ffi_extension.h",
    "pjrt_c_api_layouts_extension.h",
    "pjrt_c_api_memory_descriptions_extension.h",
    "pjrt_c_api_phase_compile_extension.h",
    "pjrt_c_api_stream_extension.h",
]

def _run(ctx, what, command):
    result = ctx.execute(command, timeout = 3600)
    if result.return_code:
        fail("%s failed:\n%s\n%s\n%s" % (
            what,
            " ".join([str(word) for word in command]),
            result.stdout,
            result.stderr,
        ))

def _python_with_pip(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH", "python3")
    if ctx.execute([python, "-m", "pip", "--version"]).return_code:
        fail("%s has no pip to download XLA's headers with. " % python +
             "Run build/build.py once, or name a Python that has it: " +
             "--repo_env=PYTHON_BIN_PATH=/path/to/python3")
    return python

def _xla_headers_impl(ctx):
    python = _python_with_pip(ctx)
    requirements = ctx.path(ctx.attr.requirements)
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--require-hashes"]
    command += ["--dest", "download", "--requirement", requirements]
    for option, value in _WHEEL.items():
        command += [option, value]
    ctx.report_progress("downloading XLA's headers (a wheel of 260 MB)")
    _run(ctx, "Downloading what %s names" % requirements, command)
    wheels = ctx.path("download").readdir()
    _run(ctx, "Unpacking", [python, "-c", _UNPACK, wheels[0]] + list(_HEADERS))
    ctx.delete("download")
    ctx.file("WORKSPACE", "workspace(name = \"xla_headers\")\n")
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

xla_headers = repository_rule(
    implementation = _xla_headers_impl,
    attrs = {
        "requirements": attr.label(allow_single_file = True),
        "build_file": attr.label(allow_single_file = True),
    },
    doc = "PJRT's and Eigen's headers, from the wheel in `requirements`.",
)

def _xla_impl(ctx):
    root = ctx.path(ctx.attr.headers).dirname
    ctx.symlink(root.get_child("xla"), "xla")
    ctx.file("WORKSPACE", "workspace(name = \"xla\")\n")
    ctx.file("BUILD.bazel", "# See @pjrt_c_api.\n")

xla = repository_rule(
    implementation = _xla_impl,
    attrs = {"headers": attr.label()},
    doc = "XLA's source tree, as far as a wheel has it.",
)

def _pjrt_c_api_impl(ctx):
    root = ctx.path(ctx.attr.xla).dirname
    folder = root.get_child("xla").get_child("pjrt").get_child("c")
    if not folder.get_child(_C_API[0]).exists:
        fail("%s is no XLA source tree: it has no xla/pjrt/c/%s. " %
             (root, _C_API[0]) +
             "Give --override_repository=xla=PATH the root of a checkout.")
    hdrs = []
    for name in _C_API:
        # A newer or older XLA may have more or fewer extensions.
        if folder.get_child(name).exists:
            ctx.symlink(folder.get_child(name), "xla/pjrt/c/" + name)
            hdrs.append("xla/pjrt/c/" + name)
    ctx.file("WORKSPACE", "workspace(name = \"pjrt_c_api\")\n")
    ctx.file("BUILD.bazel", """cc_library(
    name = "pjrt_c_api",
    hdrs = %s,
    includes = ["."],
    visibility = ["//visibility:public"],
)
""" % hdrs)

pjrt_c_api = repository_rule(
    implementation = _pjrt_c_api_impl,
    attrs = {"xla": attr.label()},
    doc = "The PJRT C API's headers of the XLA source tree `xla`.",
)
