// Philox on the host, and the ways from bits to numbers.
#include "src/ops/random/bits.h"

#include <algorithm>
#include <cmath>

namespace weft::ops {

absl::Status CheckState(const ir::Type& state) {
  if (state.dtype == DType::kU64 && state.dims == Dims{3}) return absl::OkStatus();
  return UserError("state is ", ir::ShortType(state), "; it must be u64[3]: key, counter low, counter high");
}

absl::Status InferDistribution(const ir::InferCall& call, size_t shape, size_t dtype, ir::Types* results) {
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands.back()));
  const DType type = call.attrs.Type(dtype);
  if (!ir::Contains(ir::kF | ir::kWhole, type))
    return UserError("dtype ", NameOf(type), " is not a float; f16, bf16, f32 and f64 are");
  results->push_back(ir::Type::Tensor(type, ToDims(call.attrs.IntList(shape))));
  return absl::OkStatus();
}

ir::Value RandomBits(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype) {
  return CallAll(b, kOp_rng_bit_generator, {state}, {ToInts(dims), dtype})[1];
}

ir::Value RandomUnit(ir::Builder& b, const ir::Value& state, const Dims& dims, DType dtype) {
  const bool wide = dtype == DType::kF64;
  const int bits = wide ? 64 : 32;
  const int kept = wide ? 53 : dtype == DType::kF32 ? 24 : dtype == DType::kBF16 ? 8 : 11;
  ir::Value x = RandomBits(b, state, dims, wide ? DType::kU64 : DType::kU32);
  if (!x) return {};
  x = Call(b, kOp_shift_right_logical, {x, FullLike(b, x, bits - kept)});
  return Mul(b, Convert(b, x, dtype), std::ldexp(1.0, -kept));
}

ir::Value U64(ir::Builder& b, uint64_t value) {
  HostTensor literal(DType::kU64, {});
  literal.SetInt(0, static_cast<int64_t>(value));
  return Constant(b, std::move(literal));
}

ir::Value Element(ir::Builder& b, const ir::Value& state, int64_t i) {
  return Reshape(b, Slice(b, state, {i}, {i + 1}, {1}), {});
}

std::pair<ir::Value, ir::Value> Advance(ir::Builder& b, const ir::Value& low, const ir::Value& high,
                                        const ir::Value& by) {
  ir::Value sum = Add(b, low, by);
  ir::Value carry = Convert(b, Compare(b, Direction::kLt, sum, by), DType::kU64);
  return {sum, Add(b, high, carry)};
}

namespace {

ir::Value State(ir::Builder& b, const ir::Value& key, const ir::Value& low, const ir::Value& high) {
  const auto one = [&](const ir::Value& word) { return Reshape(b, word, {1}); };
  return Call(b, kOp_concatenate, {one(key), one(low), one(high)}, {int64_t{0}});
}

}  // namespace

ir::Value StateAt(ir::Builder& b, const ir::Value& state, const ir::Value& blocks) {
  const auto [low, high] = Advance(b, Element(b, state, 1), Element(b, state, 2), blocks);
  return State(b, Element(b, state, 0), low, high);
}

ir::Value StreamOf(ir::Builder& b, const ir::Value& state, const ir::Value& number) {
  const ir::Value block = RandomBits(b, StateAt(b, state, number), {2}, DType::kU64);
  if (!block) return {};
  return State(b, Element(b, block, 0), U64(b, 0), Element(b, block, 1));
}

uint64_t RandomBlocks(uint64_t largest, std::span<const ir::Value> results) {
  uint64_t blocks = 0;
  for (const ir::Value& result : results) blocks += static_cast<uint64_t>(result.type().count()) / 2 + 1;
  return 1 + std::max(blocks, largest / 2 + 1);
}

}  // namespace weft::ops
