// The IR's own text: what golden tests compare, what error messages quote, what the cache stores as the canonical form.
// Print and Parse are exact inverses; both are linear and iterative (but for control flow, which nests at most
// kMaxRegionDepth deep).
//
//   module {words = 1}
//   func @main(%0: tensor<2x3xf32>, %1: tensor<f32> {word = 0}) -> (tensor<2x3xf32>) {
//     %2 = broadcast_in_dim(%1) {shape = [2, 3], broadcast_dimensions = []} : tensor<2x3xf32>
//     %3 = add(%0, %2) : tensor<2x3xf32> loc("train.c:42")
//     return %3
//   }
//
// Functions that are called stand before those that call them, once each, as "private func @f…"; a call names one behind its
// attributes. Other functions that nodes carry are written where they are carried.
#pragma once

#include <string>
#include <string_view>

#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::ir {

inline constexpr int kMaxRegionDepth = 64;

struct PrintOptions {
  bool locations = true;
};

std::string Print(const Module& module, const PrintOptions& options = {});
std::string Print(const Function& function, const PrintOptions& options = {});
// The one line of a node of the function, without regions' bodies. Numbers the whole function: for error texts.
std::string PrintNode(const Function& function, const Node& node);

// How the parser finds operations; ops::FindOp in practice (ir sits below ops).
using OpLookup = const OpDef* (*)(std::string_view name);

// UserErrors read `line 3, column 14: expected …`. Types are taken as written: run Verify on what comes from outside.
absl::StatusOr<Module> Parse(std::string_view text, OpLookup lookup);

// "a\"b\n" with quotes; every byte outside printable ASCII is \xHH, so that text files stay text.
std::string Quote(std::string_view text, std::string_view hex = "\\x");
// Shortest text that reads back to the same double, with a point or exponent; "inf", "-inf", "nan:0x7ff8000000000000".
std::string DoubleText(double value);

}  // namespace weft::ir
