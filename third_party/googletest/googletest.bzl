"""@googletest: GoogleTest, compiled from the sources that the system installs.

Debian and Ubuntu put them into /usr/src/googletest (libgtest-dev); for another
place set GOOGLETEST_SOURCE. Only the C++ tests need it.
"""

_BUILD = """
cc_library(
    name = "gtest_main",
    srcs = ["googletest/src/gtest-all.cc", "googletest/src/gtest_main.cc"],
    hdrs = glob(["googletest/include/**/*.h"]),
    includes = ["googletest/include"],
    copts = ["-Iexternal/googletest/googletest", "-w"],
    linkopts = ["-lpthread"],
    textual_hdrs = glob(["googletest/src/*"]),
    visibility = ["//visibility:public"],
)
"""

def _googletest_impl(ctx):
    root = ctx.os.environ.get("GOOGLETEST_SOURCE", "/usr/src/googletest")
    source = ctx.path(root).get_child("googletest")
    if not source.get_child("src").get_child("gtest-all.cc").exists:
        fail("The C++ tests need GoogleTest's sources, and " +
             "%s/googletest/src/gtest-all.cc does not exist. " % root +
             "Type: sudo apt-get install libgtest-dev (or set " +
             "GOOGLETEST_SOURCE to the root of a checkout).")
    ctx.symlink(source, "googletest")
    ctx.file("WORKSPACE", "workspace(name = \"googletest\")\n")
    ctx.file("BUILD.bazel", _BUILD)

googletest = repository_rule(
    implementation = _googletest_impl,
    environ = ["GOOGLETEST_SOURCE"],
    local = True,
)
