// full: one fixed number everywhere.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "result shape", true},
                              {"value", AttrType::kDouble, "the number", true},
                              {"dtype", AttrType::kDType, "element type", false, "f32"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const DType dtype = call.attrs.Type(2);
  if (!Contains(kAnyType, dtype))
    return UserError("dtype ", NameOf(dtype), " cannot be computed with in this version");
  const double value = call.attrs.Double(1);
  if (!IsFloat(dtype) && value != static_cast<double>(static_cast<int64_t>(value))) {
    return UserError("value ", value, " is not a whole number and dtype is ", NameOf(dtype));
  }
  results->push_back(Type::Tensor(dtype, ToDims(call.attrs.IntList(0))));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  results[0] = Full(call.b, call.attrs.Type(2), ToDims(call.attrs.IntList(0)), call.attrs.Double(1));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"shape=[2,3] value=1.5"}, {"shape=[] value=-1 dtype=i32"}, {"shape=[0] value=1 dtype=i1"}};

}  // namespace

constinit const OpDef kOp_full = {
    .name = "weft.full",
    .c_name = "full",
    .kind = Kind::kMacro,
    .doc =
        "A tensor filled with one number that is part of the program (a change compiles anew). A number that "
        "changes from "
        "step to step belongs into a scalar tensor.",
    .example = "const int64_t shape[] = {2, 3};\nx = wf_full(s, shape, 2, 0.5);",
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
};

}  // namespace weft::ops
