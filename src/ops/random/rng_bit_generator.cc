// rng_bit_generator: random bits by Philox-4x32-10, the same on every backend.
#include <algorithm>
#include <cstring>

#include "src/ir/stablehlo_read.h"
#include "src/ops/random/bits.h"

namespace weft::ops {
namespace {

using namespace ir;

// The caller's own state.
constexpr OperandDef kOperands[] = {{.name = kState.name, .types = kState.types, .doc = kState.doc, .group = 0}};
constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "shape of the bits", true},
                              {"dtype", AttrType::kDType, "u32 or u64", false, "u32"}};
constexpr std::string_view kResults[] = {"output_state", "output"};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[0]));
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  if (dtype != DType::kU32 && dtype != DType::kU64)
    return UserError("dtype is ", NameOf(dtype), "; it must be u32 or u64");
  results->push_back(*call.operands[0]);
  results->push_back(Type::Tensor(dtype, ToDims(Attr<kAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

// Blocks of four u32 that `count` elements take.
int64_t BlocksOf(int64_t count, DType dtype) { return dtype == DType::kU64 ? (count + 1) / 2 : (count + 3) / 4; }

Value U64(Builder& b, uint64_t value) {
  HostTensor literal(DType::kU64, {});
  literal.SetInt(0, static_cast<int64_t>(value));
  return Constant(b, std::move(literal));
}
Value U32(Builder& b, uint32_t value) {
  HostTensor literal(DType::kU32, {});
  literal.SetInt(0, value);
  return Constant(b, std::move(literal));
}
Value Low(Builder& b, const Value& x) { return Convert(b, x, DType::kU32); }
Value High(Builder& b, const Value& x) {
  return Convert(b, Call(b, kOp_shift_right_logical, {x, U64(b, 32)}), DType::kU32);
}
Value Xor(Builder& b, const Value& x, const Value& y) { return Call(b, kOp_bitwise_xor, {x, y}); }
Value Element(Builder& b, const Value& state, int64_t i) { return Reshape(b, Slice(b, state, {i}, {i + 1}, {1}), {}); }
// 128-bit counter + u64.
std::pair<Value, Value> Advance(Builder& b, const Value& low, const Value& high, const Value& by) {
  Value sum = Add(b, low, by);
  Value carry = Convert(b, Compare(b, Direction::kLt, sum, by), DType::kU64);
  return {sum, Add(b, high, carry)};
}

// Every element computes its own block and takes its word of it: four times the arithmetic of computing each
// block once, but one elementwise loop that fuses with whatever uses the bits.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& state = call.operands[0];
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const bool wide = Attr<kAttrs, "dtype">(call.attrs) == DType::kU64;
  const int64_t count = CountOf(dims);
  Value key = Element(b, state, 0), low = Element(b, state, 1), high = Element(b, state, 2);

  const auto [next_low, next_high] = Advance(b, low, high, U64(b, BlocksOf(count, Attr<kAttrs, "dtype">(call.attrs))));
  auto one = [&](const Value& x) { return Reshape(b, x, {1}); };
  results[0] = Call(b, kOp_concatenate, {one(key), one(next_low), one(next_high)}, {int64_t{0}});

  Value index = Iota(b, DType::kU64, {count}, 0);
  Value block = Call(b, kOp_shift_right_logical, {index, U64(b, wide ? 1 : 2)});
  const auto [at_low, at_high] = Advance(b, low, high, block);
  Value c[4] = {Low(b, at_low), High(b, at_low), Low(b, at_high), High(b, at_high)};
  Value k0 = Low(b, key), k1 = High(b, key);
  for (int round = 0; round < 10; ++round) {
    Value p0 = Mul(b, Convert(b, c[0], DType::kU64), U64(b, 0xD2511F53));
    Value p1 = Mul(b, Convert(b, c[2], DType::kU64), U64(b, 0xCD9E8D57));
    Value c0 = Xor(b, Xor(b, High(b, p1), c[1]), k0);
    Value c2 = Xor(b, Xor(b, High(b, p0), c[3]), k1);
    c[0] = c0;
    c[1] = Low(b, p1);
    c[2] = c2;
    c[3] = Low(b, p0);
    k0 = Add(b, k0, U32(b, 0x9E3779B9));
    k1 = Add(b, k1, U32(b, 0xBB67AE85));
  }
  Value odd = Compare(b, Direction::kEq, And(b, index, U64(b, 1)), U64(b, 1));
  Value bits;
  if (wide) {  // low word first
    auto join = [&](const Value& l, const Value& h) {
      Value shifted = Call(b, kOp_shift_left, {Convert(b, h, DType::kU64), U64(b, 32)});
      return Call(b, kOp_bitwise_or, {shifted, Convert(b, l, DType::kU64)});
    };
    bits = Select(b, odd, join(c[2], c[3]), join(c[0], c[1]));
  } else {
    Value upper = Compare(b, Direction::kEq, And(b, index, U64(b, 2)), U64(b, 2));
    bits = Select(b, upper, Select(b, odd, c[3], c[2]), Select(b, odd, c[1], c[0]));
  }
  results[1] = Reshape(b, bits, dims);
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  uint64_t state[3];
  std::memcpy(state, call.operands[0]->bytes().data(), sizeof state);
  HostTensor& bits = call.results[1];
  const int64_t blocks = BlocksOf(bits.count(), bits.dtype());
  for (int64_t n = 0; n < blocks; ++n) {
    const PhiloxBlock block = Philox(state[0], state[1], state[2]);
    const std::span<std::byte> out = bits.mutable_bytes().subspan(n * sizeof block);
    std::memcpy(out.data(), &block, std::min(out.size(), sizeof block));
    if (++state[1] == 0) ++state[2];
  }
  std::memcpy(call.results[0].mutable_bytes().data(), state, sizeof state);
  return absl::OkStatus();
}

Values Read(StableHloOp& op) {
  const std::string algorithm = op.Word("rng_algorithm", "DEFAULT");
  if (algorithm == "THREE_FRY") return op.Refuse("rng_algorithm THREE_FRY is not supported; PHILOX is");
  if (op.results.size() != 2) {
    op.b.Fail(UserError(op.results.size(), " results; the next state and the bits are expected"));
    return {};
  }
  return CallAll(op.b, kOp_rng_bit_generator, op.operands, {ToInts(op.results[1].dims), op.results[1].dtype});
}

constexpr Sample kSamples[] = {{"u64[3]<0:1000> shape=[2,3]"},
                               {"u64[3]<0:1000> shape=[5] dtype=u64"},
                               {"u64[3]<-2:-1> shape=[131]"},
                               {"u64[3]<0:9> shape=[0]"},
                               {"u64[3]<0:9> shape=[]"}};

}  // namespace

constinit const OpDef kOp_rng_bit_generator = {
    .name = "rng_bit_generator",
    .c_name = "rng_bit_generator",
    .kind = Kind::kComposite,
    .doc =
        "Random bits by Philox-4x32-10, and the state after them. Element i takes word i % 4 of counter + i / 4 "
        "(u64: two words, low first), as StableHLO's rng_bit_generator PHILOX; bit-equal on every backend. Source: "
        "Salmon et al., Parallel Random Numbers (2011).",
    .example = "wf_rng_bit_generator(s, state, WF_INTS(64), &state, &bits);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kPointwiseNoGradient,
};

}  // namespace weft::ops
