"""How the C++ of the run time is compiled.

Everything is compiled for a processor of about 2009 (x86-64-v2) but for the
kernels, which are compiled twice: for AVX2 and for AVX-512. The model picks one
of the two when it starts. --target_cpu_features changes the -march, and
--define=kernels=avx2 leaves AVX-512 out.
"""

# Of everything but the kernels.
IPU_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
] + select({
    "//:native_cpu": ["-march=native"],
    "//:default_cpu": [],
    "//conditions:default": [
        "-march=x86-64-v2",
        "-mtune=generic",
    ],
})

# Of tests themselves, which take longer to compile than to run.
_TEST_COPTS = IPU_COPTS + select({
    "//:debug": [],
    "//conditions:default": ["-O1"],
})

# Of kernels: floats are IEEE, but nobody looks at errno or at exception flags.
_KERNEL_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    # A file that does not include simd.h has no IPU_AVX512.
    "-Werror=undef",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    # GCC 12's own AVX-512 intrinsics trip over it.
    "-Wno-maybe-uninitialized",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    # Unique symbols could not be made local; see _isolated.
    "-fno-gnu-unique",
] + select({
    "//:debug": [],
    "//conditions:default": ["-O3"],
})

# What the model asks a processor for before it takes a variant. Whatever else
# this machine has comes on top with --target_cpu_features=native.
_VARIANTS = {
    "avx2": struct(
        release = ["-march=x86-64-v3"],
        native = ["-march=native", "-mavx2", "-mbmi2", "-mf16c", "-mfma"],
    ),
    "avx512": struct(
        release = ["-march=x86-64-v4", "-mprefer-vector-width=512"],
        native = [
            "-march=native",
            "-mavx512bw",
            "-mavx512cd",
            "-mavx512dq",
            "-mavx512f",
            "-mavx512vl",
            "-mprefer-vector-width=512",
        ],
    ),
}

def sources(folder, exclude = []):
    """The .cc files below `folder` that are no tests."""
    return native.glob(
        [folder + "/**/*.cc"],
        allow_empty = True,
        exclude = exclude + [folder + "/**/*_test.cc"],
    )

def ipu_layer(name, folder, hdrs = [], exclude = [], **kwargs):
    """A cc_library of all C++ below `folder`, kept whole when it is linked."""
    native.cc_library(
        name = name,
        srcs = sources(folder, exclude),
        hdrs = hdrs + native.glob(
            [folder + "/**/*.h"],
            allow_empty = True,
            exclude = exclude,
        ),
        alwayslink = True,
        copts = IPU_COPTS,
        linkstatic = True,
        **kwargs
    )

def _isolated(name, objects, namespace):
    """Links `objects` into one object that shares no code with other objects.

    Inline functions and templates are compiled into every object that uses
    them, and a linker keeps any one of the copies. A copy that was compiled for
    AVX-512 must not be the one that stays: so the copies become local here, and
    only what lies in ipu's `namespace` remains visible.
    """
    native.genrule(
        name = name + "_object",
        srcs = [objects],
        outs = [name + ".pic.o"],
        cmd = " && ".join([
            "ld -r --force-group-allocation -o $@.all" +
            " --whole-archive $(SRCS)",
            "objcopy --wildcard --keep-global-symbol='_ZN3ipu*%d%s*' $@.all $@" %
            (len(namespace), namespace),
            "rm $@.all",
        ]),
        message = "Isolating the kernels for " + namespace,
    )
    native.cc_library(
        name = name,
        srcs = [name + ".pic.o"],
        alwayslink = True,
        linkstatic = True,
    )

def ipu_kernels(name, srcs, hdrs = [], deps = []):
    """Compiles kernels once per instruction set and isolates each variant.

    The sources put what they define into namespace IPU_SIMD_NS, which is avx2 in
    one variant and avx512 in the other.
    """
    for variant, march in _VARIANTS.items():
        native.cc_library(
            name = "%s_%s_objects" % (name, variant),
            srcs = srcs,
            hdrs = hdrs,
            alwayslink = True,
            copts = _KERNEL_COPTS + select({
                "//:native_cpu": march.native,
                "//conditions:default": march.release,
            }),
            linkstatic = True,
            local_defines = [
                "IPU_SIMD_NS=" + variant,
                # Eigen's functions differ with the instruction set: so do their
                # names.
                "Eigen=Eigen_" + variant,
            ],
            deps = deps,
        )
        _isolated(
            name = "%s_%s" % (name, variant),
            namespace = variant,
            objects = ":%s_%s_objects" % (name, variant),
        )
    native.cc_library(
        name = name,
        # Whoever names the variants has to know which there are.
        defines = select({
            "//:avx2_kernels": ["IPU_NO_AVX512_KERNELS"],
            "//conditions:default": [],
        }),
        deps = [":%s_avx2" % name] + select({
            "//:avx2_kernels": [],
            "//conditions:default": [":%s_avx512" % name],
        }),
    )

def ipu_tests(srcs, deps):
    """One test per file x_test.cc, named after its path."""
    for src in srcs:
        native.cc_test(
            name = src[:-len(".cc")].replace("/", "_"),
            size = "small",
            srcs = [src],
            copts = _TEST_COPTS,
            linkstatic = True,
            deps = deps + ["@googletest//:gtest_main"],
        )
