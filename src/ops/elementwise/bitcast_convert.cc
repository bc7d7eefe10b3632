// bitcast_convert: the same bits read as another element type of the same width.
#include <cstring>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber, "operand"}};
constexpr AttrDef kAttrs[] = {{"dtype", AttrType::kDType, "element type of the result, as wide as x's", true}};

absl::Status Infer(const InferCall& call, Types* results) {
  const DType from = call.operands[0]->dtype;
  const DType to = Attr<kAttrs, "dtype">(call.attrs);
  if (!Contains(kNumber, to)) return UserError("dtype ", NameOf(to), " is not a number type");
  if (BitsOf(from) != BitsOf(to)) {
    return UserError("x has ", BitsOf(from), "-bit elements (", NameOf(from), ") and dtype ", NameOf(to), " has ",
                     BitsOf(to), "; they must be equally wide");
  }
  results->push_back(Type::Tensor(to, call.operands[0]->dims));
  return absl::OkStatus();
}

ScalarValue LowerScalar(const ScalarCall& call) { return call.b.Bitcast(call.operands[0], call.dtype); }

absl::Status Reference(const ReferenceCall& call) {
  const std::span<const std::byte> from = call.operands[0]->bytes();
  if (!from.empty()) std::memcpy(call.results[0].mutable_bytes().data(), from.data(), from.size());
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"f32[2,3] dtype=u32"}, {"f64[5] dtype=i64"}, {"i32[131] dtype=f32"},
                               {"bf16[7] dtype=u16"},  {"u8[3] dtype=i8"},   {"f32[0] dtype=i32"}};

}  // namespace

constinit const OpDef kOp_bitcast_convert = {
    .name = "bitcast_convert",
    .c_name = "bitcast_convert",
    .doc = "The same bits read as another element type of the same width.",
    .example = "bits = wf_bitcast_convert(s, x, WEFT_U32);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .lowering = Lowering::kScalar,
    .scalar = LowerScalar,
    .reference = Reference,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .alias = true,  // equally wide elements
};

}  // namespace weft::ops
