// One small function for each form that JAX prints; forms_test.cc reads them, mutation_test.cc and the fuzzer break them.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace weft::stablehlo {

struct Form {
  std::string_view name, arguments, results, body;
  std::string_view read;  // the line of the operation, in our text
};

inline constexpr Form kForms[] = {
    {"one type for all", "%a: tensor<2xf32>, %b: tensor<2xf32>", "tensor<2xf32>",
     "%0 = stablehlo.add %a, %b : tensor<2xf32>\n return %0 : tensor<2xf32>", "%2 = add(%0, %1) : tensor<2xf32>"},
    {"select", "%p: tensor<2xi1>, %a: tensor<2xf32>", "tensor<2xf32>",
     "%0 = stablehlo.select %p, %a, %a : tensor<2xi1>, tensor<2xf32>\n return %0 : tensor<2xf32>", "= select(%0, %1, %1)"},
    {"function type", "%a: tensor<2xf32>", "tensor<2xi32>",
     "%0 = stablehlo.convert %a : (tensor<2xf32>) -> tensor<2xi32>\n return %0 : tensor<2xi32>", "convert(%0) {dtype = i32}"},
    {"type to type", "%a: tensor<2xf32>", "tensor<2xi1>",
     "%0 = chlo.is_inf %a : tensor<2xf32> -> tensor<2xi1>\n return %0 : tensor<2xi1>", "compare("},
    {"broadcast_in_dim", "%a: tensor<2xf32>", "tensor<2x3xf32>",
     "%0 = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>\n return %0 : tensor<2x3xf32>",
     "broadcast_in_dim(%0) {shape = [2, 3], broadcast_dimensions = [0]}"},
    {"broadcast_in_dim in another order", "%a: tensor<2x4xf32>", "tensor<4x3x2xf32>",
     "%0 = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<2x4xf32>) -> tensor<4x3x2xf32>\n return %0 : tensor<4x3x2xf32>",
     "broadcast_in_dim(%1) {shape = [4, 3, 2], broadcast_dimensions = [0, 2]}"},
    {"broadcast", "%a: tensor<2xf32>", "tensor<3x2xf32>",
     "%0 = stablehlo.broadcast %a, sizes = [3] : (tensor<2xf32>) -> tensor<3x2xf32>\n return %0 : tensor<3x2xf32>",
     "broadcast_in_dim(%0) {shape = [3, 2], broadcast_dimensions = [1]}"},
    {"compare", "%a: tensor<2xi32>", "tensor<2xi1>",
     "%0 = stablehlo.compare LT, %a, %a, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>\n return %0 : tensor<2xi1>",
     "compare(%0, %0) {direction = lt}"},
    {"rng", "%a: tensor<f32>", "tensor<2xf32>",
     "%n = stablehlo.constant dense<2> : tensor<1xi64>\n"
     "%0 = stablehlo.rng %a, %a, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>\n"
     " return %0 : tensor<2xf32>",
     "{shape = [2], rng_distribution = NORMAL} : tensor<2xf32>"},
    {"rng in a loop", "%a: tensor<f32>", "tensor<f32>",
     "%n = stablehlo.constant dense<> : tensor<0xi64>\n"
     "%0 = stablehlo.while(%x = %a) : tensor<f32>\n"
     "cond {\n %r = stablehlo.rng %a, %x, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>\n"
     " %c = stablehlo.compare LT, %r, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %c : tensor<i1>\n} do {\n"
     " %r = stablehlo.rng %x, %a, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>\n"
     " stablehlo.return %r : tensor<f32>\n}\n return %0 : tensor<f32>",
     "= while("},
    {"collective_permute of equal pairs", "%a: tensor<2xf32>", "tensor<2xf32>",
     "%0 = \"stablehlo.collective_permute\"(%a) <{source_target_pairs = dense<0> : tensor<1x2xi64>}> : (tensor<2xf32>) -> tensor<2xf32>\n"
     " return %0 : tensor<2xf32>",
     "collective_permute(%0)"},
    {"slice", "%a: tensor<4x9xf32>", "tensor<4x4xf32>",
     "%0 = stablehlo.slice %a [0:4, 1:9:2] : (tensor<4x9xf32>) -> tensor<4x4xf32>\n return %0 : tensor<4x4xf32>",
     "slice(%0) {start_indices = [0, 1], limit_indices = [4, 9], strides = [1, 2]}"},
    {"pad", "%a: tensor<4xf32>, %v: tensor<f32>", "tensor<9xf32>",
     "%0 = stablehlo.pad %a, %v, low = [-1], high = [0], interior = [2] : (tensor<4xf32>, tensor<f32>) -> tensor<9xf32>\n"
     " return %0 : tensor<9xf32>",
     "pad(%0, %1) {edge_padding_low = [-1], edge_padding_high = [0], interior_padding = [2]}"},
    {"iota", "", "tensor<2x3xi32>", "%0 = stablehlo.iota dim = 1 : tensor<2x3xi32>\n return %0 : tensor<2x3xi32>",
     "iota() {shape = [2, 3], dimension = 1, dtype = i32}"},
    {"concatenate", "%a: tensor<2xf32>, %b: tensor<3xf32>", "tensor<5xf32>",
     "%0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>\n return %0 : tensor<5xf32>",
     "concatenate(%0, %1) {dimension = 0}"},
    {"dynamic_slice", "%a: tensor<4xf32>, %i: tensor<i32>", "tensor<2xf32>",
     "%0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : (tensor<4xf32>, tensor<i32>) -> tensor<2xf32>\n return %0 : "
     "tensor<2xf32>",
     "dynamic_slice(%0, %1) {slice_sizes = [2]}"},
    {"transpose", "%a: tensor<2x3xf32>", "tensor<3x2xf32>",
     "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n return %0 : tensor<3x2xf32>",
     "transpose(%0) {permutation = [1, 0]}"},
    {"dot_general", "%a: tensor<2x3xi8>, %b: tensor<2x3xi8>", "tensor<2xi32>",
     "%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1], precision = [DEFAULT, HIGHEST] "
     ": (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2xi32>\n return %0 : tensor<2xi32>",
     "dot_general(%0, %1) {lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [1], "
     "rhs_contracting_dimensions = [1], dtype = i32}"},
    {"dot", "%a: tensor<2x3xf16>, %b: tensor<3xf16>", "tensor<2xf32>",
     "%0 = stablehlo.dot %a, %b : (tensor<2x3xf16>, tensor<3xf16>) -> tensor<2xf32>\n return %0 : tensor<2xf32>",
     "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0], dtype = f32}"},
    {"einsum", "%a: tensor<2x3x4xf32>, %b: tensor<4x5xf32>", "tensor<5x2xf32>",
     "%0 = stablehlo.einsum %a, %b, config = \"abc,cd->da\" : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<5x2xf32>\n return %0 "
     ": tensor<5x2xf32>",
     "transpose(%3) {permutation = [1, 0]}"},
    {"convolution", "%a: tensor<1x5x5x2xf32>, %k: tensor<3x3x2x4xf32>", "tensor<1x3x5x4xf32>",
     "%0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = "
     "[[0, 0], [1, 1]], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = "
     "[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x5x5x2xf32>, tensor<3x3x2x4xf32>) -> "
     "tensor<1x3x5x4xf32>\n return %0 : tensor<1x3x5x4xf32>",
     "window_strides = [1, 1], padding = [0, 0, 1, 1], lhs_dilation = [1, 1], rhs_dilation = [1, 1], input_dimensions = [0, 3, 1, "
     "2], kernel_dimensions = [2, 3, 0, 1], output_dimensions = [0, 3, 1, 2], feature_group_count = 1, batch_group_count = 1, precision = "
     "DEFAULT}"},
    {"convolution, raw numbers", "%a: tensor<1x2x5xf32>, %k: tensor<4x2x3xf32>", "tensor<1x4x3xf32>",
     "%0 = \"stablehlo.convolution\"(%a, %k) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = "
     "#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 1, input_spatial_dimensions = [2], "
     "kernel_input_feature_dimension = 1, kernel_output_feature_dimension = 0, kernel_spatial_dimensions = [2], "
     "output_batch_dimension = 0, output_feature_dimension = 1, output_spatial_dimensions = [2]>}> : (tensor<1x2x5xf32>, "
     "tensor<4x2x3xf32>) -> tensor<1x4x3xf32>\n return %0 : tensor<1x4x3xf32>",
     "input_dimensions = [0, 1, 2], kernel_dimensions = [1, 0, 2], output_dimensions = [0, 1, 2]"},
    {"reduce, applied", "%a: tensor<2x3xf32>, %v: tensor<f32>", "tensor<3xf32>",
     "%0 = stablehlo.reduce(%a init: %v) applies stablehlo.maximum across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> "
     "tensor<3xf32>\n return %0 : tensor<3xf32>",
     "%2 = reduce(%0) {dimensions = [0], reducer = max}"},
    {"reduce, two of them", "%a: tensor<3xf32>, %b: tensor<3xi32>, %v: tensor<f32>, %w: tensor<i32>", "tensor<f32>, tensor<i32>",
     "%0:2 = stablehlo.reduce(%a init: %v), (%b init: %w) across dimensions = [0] : (tensor<3xf32>, tensor<3xi32>, tensor<f32>, "
     "tensor<i32>) -> (tensor<f32>, tensor<i32>)\n  reducer(%x: tensor<f32>, %y: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>)  "
     "{\n %1 = stablehlo.add %x, %y : tensor<f32>\n %2 = stablehlo.minimum %i, %j : tensor<i32>\n stablehlo.return %1, %2 : "
     "tensor<f32>, tensor<i32>\n }\n return %0#0, %0#1 : tensor<f32>, tensor<i32>",
     "reduce(%1) {dimensions = [0], reducer = min}"},
    {"reduce with a body of its own", "%a: tensor<3xf32>, %v: tensor<f32>", "tensor<f32>",
     "%0 = stablehlo.reduce(%a init: %v) applies stablehlo.subtract across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> "
     "tensor<f32>\n return %0 : tensor<f32>",
     "reduce_by(%0, %1) {dimensions = [0]} regions {"},
    {"sort", "%a: tensor<3xf32>", "tensor<3xf32>",
     "%0 = \"stablehlo.sort\"(%a) <{dimension = 0 : i64, is_stable = true}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %1 = "
     "stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %1 : tensor<i1>\n}) : "
     "(tensor<3xf32>) -> tensor<3xf32>\n return %0 : tensor<3xf32>",
     "sort_by(%0) {dimension = 0, is_stable = true} regions {"},
    {"top_k", "%a: tensor<2x5xf32>", "tensor<2x3xf32>, tensor<2x3xi32>",
     "%values, %indices = chlo.top_k(%a, k = 3) : tensor<2x5xf32> -> (tensor<2x3xf32>, tensor<2x3xi32>)\n return %values, %indices "
     ": tensor<2x3xf32>, tensor<2x3xi32>",
     "sort_by("},
    {"reduce_window", "%a: tensor<4xf32>", "tensor<4xf32>",
     "%cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>\n"
     "%0 = \"stablehlo.reduce_window\"(%a, %cst) <{base_dilations = array<i64: 1>, padding = dense<[[3, 0]]> : tensor<1x2xi64>, "
     "window_dilations = array<i64: 1>, window_dimensions = array<i64: 4>, window_strides = array<i64: 1>}> ({\n^bb0(%x: tensor<f32>, "
     "%y: tensor<f32>):\n %1 = stablehlo.add %x, %y : tensor<f32>\n stablehlo.return %1 : tensor<f32>\n}) : (tensor<4xf32>, "
     "tensor<f32>) -> tensor<4xf32>\n return %0 : tensor<4xf32>",
     "reduce_window(%0) {window_dimensions = [4], reducer = sum, window_strides = [1], base_dilations = [1], window_dilations = "
     "[1], padding = [3, 0]}"},
    {"gather, absent fields", "%a: tensor<5xf32>, %i: tensor<2x1xi32>", "tensor<2xf32>",
     "%0 = \"stablehlo.gather\"(%a, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
     "index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<5xf32>, tensor<2x1xi32>) -> "
     "tensor<2xf32>\n return %0 : tensor<2xf32>",
     "gather(%0, %1) {offset_dims = [], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1, slice_sizes = "
     "[1], operand_batching_dims = [], start_indices_batching_dims = []}"},
    {"scatter that sets", "%a: tensor<5xf32>, %i: tensor<1xi32>, %u: tensor<f32>", "tensor<5xf32>",
     "%0 = \"stablehlo.scatter\"(%a, %i, %u) <{indices_are_sorted = true, scatter_dimension_numbers = "
     "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({\n^bb0(%x: "
     "tensor<f32>, %y: tensor<f32>):\n stablehlo.return %y : tensor<f32>\n}) : (tensor<5xf32>, tensor<1xi32>, tensor<f32>) -> "
     "tensor<5xf32>\n return %0 : tensor<5xf32>",
     "scatter(%0, %1, %2) {update_window_dims = [], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
     "index_vector_dim = 0, reducer = set"},
    {"map", "%a: tensor<2xf32>", "tensor<2xf32>",
     "%0 = \"stablehlo.map\"(%a) <{dimensions = array<i64: 0>}> ({\n^bb0(%x: tensor<f32>):\n %1 = stablehlo.negate %x : "
     "tensor<f32>\n stablehlo.return %1 : tensor<f32>\n}) : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32>",
     "= map(%0) regions {"},
    {"torch_index_select", "%a: tensor<2x5x3xf32>, %i: tensor<2x4xi32>", "tensor<2x4x3xf32>",
     "%0 = \"stablehlo.torch_index_select\"(%a, %i) <{dim = 1 : i64, batch_dims = 1 : i64}> : (tensor<2x5x3xf32>, tensor<2x4xi32>) "
     "-> tensor<2x4x3xf32>\n return %0 : tensor<2x4x3xf32>",
     "gather(%0, %1) {offset_dims = [2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 2, slice_sizes = "
     "[1, 1, 3], operand_batching_dims = [0], start_indices_batching_dims = [0]}"},
    {"real_dynamic_slice of constants", "%a: tensor<5xf32>", "tensor<2xf32>",
     "%s = stablehlo.constant dense<1> : tensor<1xi64>\n %l = stablehlo.constant dense<[4]> : tensor<1xi64>\n %t = "
     "stablehlo.constant dense<2> : tensor<1xi64>\n%0 = stablehlo.real_dynamic_slice %a, %s, %l, %t : (tensor<5xf32>, tensor<1xi64>, "
     "tensor<1xi64>, tensor<1xi64>) -> tensor<2xf32>\n return %0 : tensor<2xf32>",
     "real_dynamic_slice(%0, %1, %2, %3) {shape = [2]}"},
    {"bitcast_convert to a wider type", "%a: tensor<3x2xui32>", "tensor<3xf64>",
     "%0 = stablehlo.bitcast_convert %a : (tensor<3x2xui32>) -> tensor<3xf64>\n return %0 : tensor<3xf64>",
     "bitcast_convert(%13) {dtype = f64}"},
    {"bitcast_convert to a narrower type", "%a: tensor<3xi32>", "tensor<3x2xbf16>",
     "%0 = stablehlo.bitcast_convert %a : (tensor<3xi32>) -> tensor<3x2xbf16>\n return %0 : tensor<3x2xbf16>",
     ") {dimension = 1}"},
    {"bitcast_convert to itself", "%a: tensor<3xi1>", "tensor<3xi1>",
     "%0 = stablehlo.bitcast_convert %a : tensor<3xi1>\n return %0 : tensor<3xi1>", "return %0"},
    {"shardings on one device", "%a: tensor<3xf32>", "tensor<3xf32>",
     "%0 = sdy.sharding_constraint %a <@mesh, [{}]> : tensor<3xf32>\n"
     "%1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{\"x\"}]>] out_shardings=[<@mesh, [{\"x\"}]>] manual_axes={\"x\"} "
     "(%arg1: tensor<3xf32>) {\n %2 = stablehlo.negate %arg1 : tensor<3xf32>\n sdy.return %2 : tensor<3xf32>\n} : "
     "(tensor<3xf32>) -> tensor<3xf32>\n return %1 : tensor<3xf32>",
     "weft.call(%0) @region : "},
    {"attributes we do not know stay", "%a: tensor<2xf32>", "tensor<2xf32>",
     "%0 = \"stablehlo.negate\"(%a) {mhlo.sharding = \"{replicated}\", sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([k, l], "
     "[]) {i=1, j=1}, custom>} : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32>",
     "negate(%0) : tensor<2xf32> sharding(\"{replicated}\") unknown(\"sdy.sharding_rule\" = \"#sdy.op_sharding_rule<([i, "
     "j])->([k, l], []) {i=1, j=1}, custom>\")"},
    {"uniform_quantize", "%a: tensor<2xf32>", "tensor<2x!quant.uniform<i8:f32, 5.000000e-01:3>>",
     "%0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 5.000000e-01:3>>\n"
     " return %0 : tensor<2x!quant.uniform<i8:f32, 5.000000e-01:3>>",
     ") {dtype = i8}"},
    {"uniform_dequantize", "%a: tensor<2x!quant.uniform<u8<1:200>:bf16, 0.5:3>>", "tensor<2xbf16>",
     "%0 = stablehlo.uniform_dequantize %a : (tensor<2x!quant.uniform<u8<1:200>:bf16, 0.5:3>>) -> tensor<2xbf16>\n"
     " return %0 : tensor<2xbf16>",
     "convert(%0) {dtype = i32}"},
    {"arithmetic of quantised values", "%a: tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 1.0:-128}>>",
     "tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>",
     "%0 = stablehlo.add %a, %a : (tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 1.0:-128}>>, "
     "tensor<2x3x!quant.uniform<i8:f32:1, {0.5:3, 0.25, 1.0:-128}>>) -> tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>\n"
     " return %0 : tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>",
     "dense tensor<3xi32> [3, 0, -128]"},
    {"a quantised constant", "", "tensor<2x!quant.uniform<u8:f32, 0.5>>",
     "%0 = stablehlo.constant() <{value = dense<[1, -3]> : tensor<2xi8>}> : () -> tensor<2x!quant.uniform<u8:f32, 0.5>>\n"
     " return %0 : tensor<2x!quant.uniform<u8:f32, 0.5>>",
     "bitcast_convert("},
    {"a quantised reduction", "%a: tensor<2x!quant.uniform<i8:f32, 0.5>>, %v: tensor<!quant.uniform<i8:f32, 0.5>>",
     "tensor<!quant.uniform<i8:f32, 0.5>>",
     "%0 = stablehlo.reduce(%a init: %v) applies stablehlo.maximum across dimensions = [0] : (tensor<2x!quant.uniform<i8:f32, 0.5>>, "
     "tensor<!quant.uniform<i8:f32, 0.5>>) -> tensor<!quant.uniform<i8:f32, 0.5>>\n return %0 : tensor<!quant.uniform<i8:f32, 0.5>>",
     "maximum("},
};

inline std::string TextOf(const Form& form) {
  return absl::StrCat("func.func public @main(", form.arguments, ") -> (", form.results, ") {\n", form.body, "\n}\n");
}

}  // namespace weft::stablehlo
