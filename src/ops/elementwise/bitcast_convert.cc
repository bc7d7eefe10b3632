// bitcast_convert: the same bits read as another element type of the same width.
#include <algorithm>
#include <cstring>

#include "src/ir/stablehlo_read.h"
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
  if (BitsOf(from) < 8 || BitsOf(to) < 8) {
    return UserError("elements of ", NameOf(BitsOf(from) < 8 ? from : to),
                     " are not whole bytes; convert says what they are");
  }
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

DType UnsignedOf(int bits) {
  return bits == 64 ? DType::kU64 : bits == 32 ? DType::kU32 : bits == 16 ? DType::kU16 : DType::kU8;
}
Value ShiftBy(Builder& b, const OpDef& shift, const Value& x, int bits) {
  return Call(b, shift, {x, FullLike(b, x, bits)});
}

// Elements that lie side by side in the last dimension as one wider element, the first being its lowest bits.
Value Join(Builder& b, const Value& x, DType wide) {
  const int64_t parts = BitsOf(wide) / BitsOf(x.dtype());
  const Dims& dims = x.dims();
  if (dims.empty() || dims.back() != parts) {
    b.Fail(UserError("the last dimension of ", DimsToString(dims), " must be ", parts, ", as many as make one ",
                     NameOf(wide)));
    return {};
  }
  const Dims outer(dims.begin(), dims.end() - 1);
  Value joined;
  for (int64_t i = 0; i < parts; ++i) {
    Ints start(dims.size(), 0), limit(dims.begin(), dims.end());
    start.back() = i;
    limit.back() = i + 1;
    Value part = Convert(b, Reshape(b, Slice(b, x, start, limit, Ints(dims.size(), 1)), outer), wide);
    part = ShiftBy(b, kOp_shift_left, part, static_cast<int>(i) * BitsOf(x.dtype()));
    joined = joined ? Call(b, kOp_bitwise_or, {joined, part}) : part;
  }
  return joined;
}

// The way back: a new last dimension.
Value Part(Builder& b, const Value& x, DType narrow) {
  Dims dims = x.dims();
  dims.push_back(1);
  Values parts;
  for (int shift = 0; shift < BitsOf(x.dtype()); shift += BitsOf(narrow)) {
    parts.push_back(Reshape(b, Convert(b, ShiftBy(b, kOp_shift_right_logical, x, shift), narrow), dims));
  }
  return Call(b, kOp_concatenate, std::move(parts), {static_cast<int64_t>(dims.size()) - 1});
}

// StableHLO's also changes the width.
Values Read(StableHloOp& op) {
  if (op.operands.size() != 1 || op.results.size() != 1) {
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.results.size(), " results; one of each is expected"));
    return {};
  }
  Builder& b = op.b;
  Value x = op.operands[0];
  const DType to = op.results[0].dtype;
  if (x.dtype() == to) return {x};
  const auto cast = [&](const Value& v, DType dtype) {
    return v && v.dtype() == dtype ? v : Call(b, kOp_bitcast_convert, {v}, {dtype});
  };
  const int from_bits = BitsOf(x.dtype()), to_bits = BitsOf(to);
  const bool resizes = Contains(kNumber, x.dtype()) && Contains(kNumber, to);
  if (from_bits == to_bits || !resizes || std::min(from_bits, to_bits) < 8) return {cast(x, to)};
  x = cast(x, UnsignedOf(from_bits));
  x = from_bits < to_bits ? Join(b, x, UnsignedOf(to_bits)) : Part(b, x, UnsignedOf(to_bits));
  return {cast(x, to)};
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
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .alias = true,  // equally wide elements
    .as_seen = true,
};

}  // namespace weft::ops
