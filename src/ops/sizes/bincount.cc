// bincount: how often each number is there.
#include "src/ops/sizes/places.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kI, "numbers of bins", false, false, 'I'},
                                    {"weights", kF, "of x's shape: what each counts; absent: 1", true}};
constexpr AttrDef kAttrs[] = {{"length", AttrType::kInt, "how many bins; what is outside is left out", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Type* weights = call.operands[1];
  const int64_t length = Attr<kAttrs, "length">(call.attrs);
  if (length < 0 || length > INT32_MAX) return UserError("length is ", length, "; it must be 0 to ", INT32_MAX);
  if (weights != nullptr && weights->dims != x.dims) {
    return UserError("weights have shape ", DimsToString(weights->dims), ", x has ", DimsToString(x.dims),
                     "; they must agree");
  }
  WEFT_RETURN_IF_ERROR(CheckPlaces("x", x));
  results->push_back(Type::Tensor(weights != nullptr ? weights->dtype : DType::kI32, {length}));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims flat = {call.operands[0].type().count()};
  const Value x = Reshape(b, call.operands[0], flat);
  const Value weights = call.operands[1] ? Reshape(b, call.operands[1], flat) : Full(b, DType::kI32, flat, 1);
  results[0] = PutAt(b, x, weights, Attr<kAttrs, "length">(call.attrs), 0, /*add=*/true);
  return absl::OkStatus();
}

absl::Status InRange(const IndexCall& call) {
  return CheckIndices("x", *call.values[0], Attr<kAttrs, "length">(call.attrs) - 1);
}

constexpr Sample kSamples[] = {{"i32[9]<0:5> none length=6"},
                               {"i64[2,7]<0:4> T[2,7] length=4"},
                               {"u8[5]<0:9> T[5] length=9"},
                               {"i32[0]<0:3> none length=2"},
                               {"i32[]<0:2> T[] length=3"}};

}  // namespace

constinit const OpDef kOp_bincount = {
    .name = "weft.bincount",
    .c_name = "bincount",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "How often each number from 0 to length - 1 is in x, as i32, or the sum of the weights of its places. Numbers outside are "
        "left out. The gradient goes to the weights.",
    .example = "counts = wf_bincount(s, labels, NULL, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .indices = InRange,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 4e-6},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
