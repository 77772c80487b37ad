"""Modules that contradict themselves where StableHLO's verifier does not look:
errors that name the operation, the value and what is expected."""

from __future__ import annotations

import ipu_test_util as util
import numpy as np
import pytest

import jax
from jaxlib.ipu import options, pipeline
from jaxlib.ipu.diagnostics import CompileError, ErrorCode
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

pytestmark = pytest.mark.ipu_only

F32 = "tensor<4x6xf32>"


def call(target: str, more: str = "") -> str:
  return f'"stablehlo.custom_call"(%x) {{call_target_name = "{target}"{more}}}'


OPERATIONS = [
  (call("ipu_eigh"), "square matrices"),
  (call("ipu_lu"), "the module has"),
  (call("ipu_svd"), "the module has"),
  (call("ipu_gehrd"), "square matrices"),
  (call("ipu_sytrd_upper"), "square matrices"),
  (call("ipu_geqp3"), "expected 2 operands"),
  (call("Qr"), "the module has"),
  (call("ProductOfElementaryHouseholderReflectors"), "expected 2 operands"),
  (call("ApproxTopK"), "reduction_dim = None .* 2 dimensions"),
  (
    call("ApproxTopK", ", mhlo.backend_config = {reduction_dim = 9 : i64}"),
    "reduction_dim = 9",
  ),
  (
    call("ApproxTopK", ", mhlo.backend_config = {reduction_dim = 0 : i64}"),
    "its padding",
  ),
]


@pytest.mark.parametrize(
  "operation, said", OPERATIONS, ids=[o[24:60] for o, _ in OPERATIONS]
)
def test_custom_calls(ipu, operation, said):
  x = np.ones((4, 6), np.float32)
  text = f"""
func.func @main(%platform: tensor<i32>, %x: {F32}) -> {F32} {{
  %y = {operation} : ({F32}) -> {F32}
  return %y : {F32}
}}"""
  with pytest.raises(
    jax.errors.JaxRuntimeError, match=f"(?s)INVALID_ARGUMENT.*{said}"
  ):
    util.run_on(ipu, util.from_stablehlo(text, x), x)


@pytest.mark.parametrize(
  "target, result",
  [("Sharding", "4x6xi32"), ("LayoutConstraint", "6x4xf32"), ("Qr", "f32")],
)
def test_results_that_do_not_belong_to_the_operands(ipu, target, result):
  x = np.ones((4, 6), np.float32)
  text = f"""
func.func @main(%platform: tensor<i32>, %x: {F32}) -> {F32} {{
  %y = {call(target)} : ({F32}) -> tensor<{result}>
  %z = stablehlo.custom_call @LayoutConstraint(%y) : (tensor<{result}>) -> {F32}
  return %z : {F32}
}}"""
  with pytest.raises(
    jax.errors.JaxRuntimeError, match=rf"@{target} of .*module has.*{result}"
  ):
    util.run_on(ipu, util.from_stablehlo(text, x), x)


@pytest.mark.parametrize(
  "algorithm, state, expected",
  [
    ("THREE_FRY", "3xui64", "2xui64"),
    ("PHILOX", "7xui64", "2xui64 or 3xui64"),
    ("DEFAULT", "4xui32", "2xui64 or 3xui64"),
    ("PHILOX", "ui64", "2xui64 or 3xui64"),
  ],
)
def test_states_of_random_numbers(algorithm, state, expected):
  text = f"""
func.func @main(%x: tensor<{state}>) -> tensor<4xui32> {{
  %s, %y = stablehlo.rng_bit_generator %x, algorithm = {algorithm}
    : (tensor<{state}>) -> (tensor<{state}>, tensor<4xui32>)
  return %y : tensor<4xui32>
}}"""
  with pytest.raises(CompileError, match=f"a state of {expected}") as caught:
    compile_text(text)
  assert caught.value.code is ErrorCode.INVALID_ARGUMENT
  assert f"'{state}'" in caught.value.message


def compile_text(text: str) -> pipeline.State:
  """Compiles a module as it is: JAX makes a new @main around an exported
  one."""
  context = jax.jit(lambda: 0).lower().compiler_ir("stablehlo").context
  module = ir.Module.parse(text, context)
  with context:
    code = stablehlo.serialize_portable_artifact(
      module, stablehlo.get_current_version()
    )
  target = options.Settings().target
  return pipeline.compile_module(code, pipeline.Options(target=target))


MAINS = [
  ("tf.aliasing_output = 7 : i32", "argument 0 of @main, 4x6xf32, .* = 7"),
  ("tf.aliasing_output = -1 : i32", "tf.aliasing_output = -1"),
  ("tf.aliasing_output = 1 : i32", "none of the 2 results of its size"),
  ('tf.aliasing_output = "x"', 'tf.aliasing_output = "x"'),
  ('mhlo.layout_mode = "{5,3}"', r"layout \{5,3\} of an array of 2 dim"),
  ('mhlo.layout_mode = "{0,0}"', r"layout \{0,0\} .* each of them once"),
  ('mhlo.layout_mode = "{0}"', r"layout \{0\} of"),
  ("mhlo.layout_mode = 3 : i32", "mhlo.layout_mode = 3 : i32: expected a str"),
  ("mhlo.memory_kind = 3 : i32", "mhlo.memory_kind = 3"),
]


@pytest.mark.parametrize("attribute, said", MAINS, ids=[a for a, _ in MAINS])
def test_attributes_of_arguments(attribute, said):
  text = f"""
func.func @main(%x: {F32} {{{attribute}}}) -> ({F32}, tensor<i32>) {{
  %c = stablehlo.constant dense<1> : tensor<i32>
  return %x, %c : {F32}, tensor<i32>
}}"""
  with pytest.raises(CompileError, match=said) as caught:
    compile_text(text)
  assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_two_arguments_that_become_one_result():
  donated = f"{F32} {{tf.aliasing_output = 0 : i32}}"
  text = f"""
func.func @main(%x: {donated}, %z: {donated}) -> {F32} {{
  %y = stablehlo.add %x, %z : {F32}
  return %y : {F32}
}}"""
  with pytest.raises(CompileError, match="argument 1 of @main.*another arg"):
    compile_text(text)


def test_layouts_of_results():
  text = f"""
func.func @main(%x: {F32}) -> ({F32} {{mhlo.layout_mode = "{{2,1}}"}}) {{
  return %x : {F32}
}}"""
  with pytest.raises(CompileError, match=r"layout \{2,1\} of an array of 2"):
    compile_text(text)


def test_a_function_that_is_not_there():
  called = ", called_computations = [@nowhere]"
  text = f"""
func.func @main(%x: {F32}) -> {F32} {{
  %y = {call("LayoutConstraint", called)} : ({F32}) -> {F32}
  return %y : {F32}
}}"""
  with pytest.raises(CompileError, match="calls @nowhere, which the module"):
    compile_text(text)


def test_a_main_without_a_body():
  text = f"func.func private @main({F32}) -> {F32}"
  with pytest.raises(CompileError, match="no function @main"):
    compile_text(text)
