"""@poplar_sdk: Graphcore's Poplar SDK, found through TF_POPLAR_BASE.

TF_POPLAR_BASE is the folder that holds include/ and lib/, the one whose
enable.sh sets it. Without it the repository is empty and the build is for the
IPU model alone: `load("@poplar_sdk//:defs.bzl", "HAVE_POPLAR")` says which.
"""

_LOOKED_FOR = [
    "include/poplar/Engine.hpp",
    "include/poplar/DeviceManager.hpp",
    "lib/libpoplar.so",
]

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_import(name = "libpoplar", shared_library = "lib/libpoplar.so")

cc_library(
    name = "poplar",
    hdrs = glob(["include/**/*.h", "include/**/*.hpp"]),
    includes = ["include"],
    deps = [":libpoplar"],
)
"""

_EMPTY_BUILD = """
cc_library(name = "poplar", visibility = ["//visibility:public"])
"""

def _poplar_sdk_impl(ctx):
    base = ctx.os.environ.get("TF_POPLAR_BASE", "")
    if base:
        root = ctx.path(base)
        missing = [
            name
            for name in _LOOKED_FOR
            if not ctx.path(base + "/" + name).exists
        ]
        if missing:
            found = "no such folder"
            if root.exists:
                names = sorted([entry.basename for entry in root.readdir()])
                found = ", ".join(names[:8]) or "an empty folder"
                if len(names) > 8:
                    found += " and %d more" % (len(names) - 8)
            fail(("TF_POPLAR_BASE=%s is no Poplar SDK: looked for %s; " +
                  "missing %s; found %s. Set it to the SDK's folder that has " +
                  "include/ and lib/, or unset it to build for the IPU " +
                  "model alone.") % (
                base,
                ", ".join(_LOOKED_FOR),
                ", ".join(missing),
                found,
            ))
        ctx.symlink(root.get_child("include"), "include")
        ctx.symlink(root.get_child("lib"), "lib")
    ctx.file("WORKSPACE", "workspace(name = \"poplar_sdk\")\n")
    ctx.file("BUILD.bazel", _BUILD if base else _EMPTY_BUILD)
    ctx.file("defs.bzl", "HAVE_POPLAR = %s\n" % bool(base))

poplar_sdk = repository_rule(
    implementation = _poplar_sdk_impl,
    environ = ["TF_POPLAR_BASE"],
    local = True,
)
