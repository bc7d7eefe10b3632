// The contents of a custom_call node: the function's name and signature, and its results. Recording and execution meet
// here.
#pragma once

#include <string>
#include <vector>

#include "src/ir/builder.h"
#include "src/ops/custom/functions.h"

namespace weft::ops {

// The attributes of a call that gives these results.
ir::Attrs CustomAttrs(const CustomFunction& function, std::span<const ir::Type> results);

// The same taken apart.
const std::string& CustomTarget(const ir::Attrs& attrs);
inline const std::string& CustomTarget(const ir::Node& node) { return CustomTarget(node.attrs()); }
absl::StatusOr<CustomSignature> CustomSignatureOf(const ir::Attrs& attrs);
inline absl::StatusOr<CustomSignature> CustomSignatureOf(const ir::Node& node) {
  return CustomSignatureOf(node.attrs());
}
// Tells whether a program that cannot call the host has no way to compute the node: a custom call, or a matrix decomposition.
bool NeedsHost(const ir::Node& node);
// Tells whether the function, or one that it calls or carries, has such a node; and whether it has a custom call.
bool NeedsHost(const ir::Function& function);
bool CallsCustom(const ir::Function& function);

// The gradient's parameters for such a call: operands, results, and cotangents of float results; and how many results it has.
std::vector<ir::Type> CustomGradientInputs(std::span<const ir::Type* const> operands,
                                           std::span<const ir::Type> results);
// INVALID_ARGUMENT unless the function is a gradient of such a call.
absl::Status CheckCustomGradient(const ir::Function& gradient, std::string_view name,
                                 std::span<const ir::Type* const> operands, std::span<const ir::Type> results);

// PJRT plugins ask this: UNIMPLEMENTED if a function of the module has one.
absl::Status RefuseCustomCalls(const ir::Module& module, std::string_view platform);
// NOT_FOUND or INVALID_ARGUMENT unless all that the function calls is registered, with the same signature.
absl::Status CheckCustomCalls(const ir::Function& function, const CustomFunctions& registered);

// The reader of StableHLO text adds these attributes to a custom call whose target is registered (OpDef::read asks for
// them).
inline constexpr std::string_view kShloSignature = "weft.signature";
inline constexpr std::string_view kShloKind = "weft.kind";
inline constexpr std::string_view kShloBatches = "weft.batches";

}  // namespace weft::ops
