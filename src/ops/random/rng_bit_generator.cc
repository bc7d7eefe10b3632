// rng_bit_generator: random bits by Philox-4x32-10 or Threefry-2x32-20, the same on every backend.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/random/bits.h"
#include "src/runtime/philox.h"

namespace weft::ops {
namespace {

using namespace ir;

// The caller's own state.
constexpr OperandDef kOperands[] = {{.name = kState.name,
                                     .types = kState.types,
                                     .doc = "u64[3]: key, counter low, counter high; or u64[2]: key and counter",
                                     .group = 0}};
constexpr std::string_view kAlgorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
enum class Algorithm : int64_t { kDefault, kThreeFry, kPhilox };
constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "shape of the bits", true},
                              {"dtype", AttrType::kDType, "u8 to u64 or i8 to i64", false, "u32"},
                              {"rng_algorithm", AttrType::kEnum, "DEFAULT is PHILOX; THREE_FRY has a state of u64[2]",
                               false, "PHILOX", kAlgorithms}};
constexpr std::string_view kResults[] = {"output_state", "output"};

bool IsThreeFry(const Attrs& attrs) {
  return static_cast<Algorithm>(Attr<kAttrs, "rng_algorithm">(attrs)) == Algorithm::kThreeFry;
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& state = *call.operands[0];
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  const bool two = state.dims == Dims{2}, three = state.dims == Dims{3};
  if (state.dtype != DType::kU64 || !(two || three)) {
    return UserError("state is ", ShortType(state), "; it must be u64[3]: key, counter low, counter high; or u64[2]");
  }
  if (three && IsThreeFry(call.attrs)) return UserError("state is u64[3]; THREE_FRY takes u64[2]: key and counter");
  if (!Contains(kI | kWhole, dtype))
    return UserError("dtype is ", NameOf(dtype), "; it must be u8 to u64 or i8 to i64");
  results->push_back(state);
  results->push_back(Type::Tensor(dtype, ToDims(Attr<kAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

bool IsWide(DType dtype) { return BitsOf(dtype) == 64; }
// Blocks of four u32 that `count` elements take.
int64_t BlocksOf(int64_t count, DType dtype) { return IsWide(dtype) ? (count + 1) / 2 : (count + 3) / 4; }

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
// Joins two u32, the low one first.
Value Join(Builder& b, const Value& low, const Value& high) {
  const Value wide = Convert(b, high, DType::kU64);
  return Call(b, kOp_bitwise_or, {Call(b, kOp_shift_left, {wide, U64(b, 32)}), Convert(b, low, DType::kU64)});
}

// The state after so many elements.
Value PhiloxNext(Builder& b, const Value& state, int64_t count, DType dtype) {
  const bool three = state.dims() == Dims{3};
  // A state of two has the key for the upper half of the counter, too.
  const Value key = Element(b, state, 0), low = Element(b, state, 1), high = three ? Element(b, state, 2) : key;
  const auto [next_low, next_high] = Advance(b, low, high, U64(b, BlocksOf(count, dtype)));
  auto one = [&](const Value& x) { return Reshape(b, x, {1}); };
  Values next = {one(key), one(next_low)};
  if (three) next.push_back(one(next_high));
  return Call(b, kOp_concatenate, next, {int64_t{0}});
}

// Every element computes its own block and takes its word of it: four times the arithmetic of computing each
// block once, but one elementwise loop that fuses with whatever uses the bits.
void ExpandPhilox(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& state = call.operands[0];
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  const bool wide = IsWide(dtype), three = state.dims() == Dims{3};
  const int64_t count = CountOf(dims);
  results[0] = PhiloxNext(b, state, count, dtype);
  Value key = Element(b, state, 0), low = Element(b, state, 1), high = three ? Element(b, state, 2) : key;

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
  if (wide) {
    bits = Select(b, odd, Join(b, c[2], c[3]), Join(b, c[0], c[1]));
  } else {
    Value upper = Compare(b, Direction::kEq, And(b, index, U64(b, 2)), U64(b, 2));
    bits = Select(b, upper, Select(b, odd, c[3], c[2]), Select(b, odd, c[1], c[0]));
  }
  results[1] = Convert(b, Reshape(b, bits, dims), dtype);
}

// Two words for one counter. 32 bits and fewer take both: along the first even dimension, else the first of the longest, two
// neighbours have one counter. Counters are positions in row-major order.
struct Pairs {
  Dims counted;         // the shape that counters run over
  int64_t paired = -1;  // the dimension with two elements a counter; none for 64 bits and scalars
};
Pairs PairsOf(const Dims& dims, DType dtype) {
  Pairs pairs{dims};
  if (IsWide(dtype) || dims.empty()) return pairs;
  const auto even = std::ranges::find_if(dims, [](int64_t size) { return size % 2 == 0; });
  pairs.paired = (even != dims.end() ? even : std::ranges::max_element(dims)) - dims.begin();
  pairs.counted[pairs.paired] = (dims[pairs.paired] + 1) / 2;
  return pairs;
}

constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
constexpr uint32_t kParity = 0x1BD11BDA;

void ExpandThreeFry(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const DType dtype = Attr<kAttrs, "dtype">(call.attrs);
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const Pairs pairs = PairsOf(dims, dtype);
  const Value key = Element(b, call.operands[0], 0), counter = Element(b, call.operands[0], 1);
  const auto one = [&](const Value& x) { return Reshape(b, x, {1}); };
  const Value next = Add(b, counter, U64(b, CountOf(pairs.counted)));
  results[0] = Call(b, kOp_concatenate, {one(key), one(next)}, {int64_t{0}});

  const auto all = [&](const Value& x) { return BroadcastTo(b, x, dims); };
  Value at = all(counter), second;
  const Dims strides = StridesOf(pairs.counted);
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    Value index = Iota(b, DType::kU64, dims, d);
    if (d == pairs.paired) {
      second = Compare(b, Direction::kEq, And(b, index, all(U64(b, 1))), all(U64(b, 1)));
      index = Call(b, kOp_shift_right_logical, {index, all(U64(b, 1))});
    }
    at = Add(b, at, Mul(b, index, all(U64(b, strides[d]))));
  }
  const Value k0 = Low(b, key), k1 = High(b, key);
  const Value keys[3] = {all(k0), all(k1), all(Xor(b, Xor(b, U32(b, kParity), k0), k1))};
  Value x0 = Add(b, Low(b, at), keys[0]), x1 = Add(b, High(b, at), keys[1]);
  for (int group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 = Add(b, x0, x1);
      const Value left = Call(b, kOp_shift_left, {x1, all(U32(b, r))});
      const Value right = Call(b, kOp_shift_right_logical, {x1, all(U32(b, 32 - r))});
      x1 = Xor(b, x0, Call(b, kOp_bitwise_or, {left, right}));
    }
    x0 = Add(b, x0, keys[(group + 1) % 3]);
    x1 = Add(b, Add(b, x1, keys[(group + 2) % 3]), all(U32(b, group + 1)));
  }
  const Value bits = IsWide(dtype) ? Join(b, x0, x1) : second ? Select(b, second, x1, x0) : x0;
  results[1] = Convert(b, bits, dtype);
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  IsThreeFry(call.attrs) ? ExpandThreeFry(call, results) : ExpandPhilox(call, results);
  return absl::OkStatus();
}

// Two words on the host.
uint64_t ThreeFry(uint64_t key, uint64_t counter) {
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {k0, k1, kParity ^ k0 ^ k1};
  uint32_t x0 = static_cast<uint32_t>(counter) + k0, x1 = static_cast<uint32_t>(counter >> 32) + k1;
  for (uint32_t group = 0; group < 5; ++group) {
    for (int r : kRotations[group % 2]) {
      x0 += x1;
      x1 = x0 ^ (x1 << r | x1 >> (32 - r));
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return uint64_t{x1} << 32 | x0;
}

void ReferenceThreeFry(const ReferenceCall& call) {
  const HostTensor& state = *call.operands[0];
  HostTensor& bits = call.results[1];
  const Pairs pairs = PairsOf(bits.dims(), bits.dtype());
  const Dims strides = StridesOf(bits.dims()), counted = StridesOf(pairs.counted);
  const auto key = static_cast<uint64_t>(state.GetInt(0)), counter = static_cast<uint64_t>(state.GetInt(1));
  for (int64_t k = 0; k < bits.count(); ++k) {
    uint64_t at = counter;
    bool second = false;
    for (size_t d = 0; d < strides.size(); ++d) {
      int64_t index = k / strides[d] % bits.dims()[d];
      if (static_cast<int64_t>(d) == pairs.paired) {
        second = index % 2 != 0;
        index /= 2;
      }
      at += static_cast<uint64_t>(index * counted[d]);
    }
    const uint64_t words = ThreeFry(key, at);
    bits.SetInt(k, static_cast<int64_t>(second ? words >> 32 : IsWide(bits.dtype()) ? words : words & 0xFFFFFFFF));
  }
  call.results[0].SetInt(0, state.GetInt(0));
  call.results[0].SetInt(1, static_cast<int64_t>(counter + static_cast<uint64_t>(CountOf(pairs.counted))));
}

void ReferencePhilox(const ReferenceCall& call) {
  const HostTensor& state = *call.operands[0];
  HostTensor& bits = call.results[1];
  const bool wide = IsWide(bits.dtype()), three = state.count() == 3;
  const auto key = static_cast<uint64_t>(state.GetInt(0));
  auto low = static_cast<uint64_t>(state.GetInt(1)), high = three ? static_cast<uint64_t>(state.GetInt(2)) : key;
  const int64_t each = wide ? 2 : 4;
  for (int64_t first = 0; first < bits.count(); first += each) {
    const PhiloxBlock block = Philox(key, low, high);
    for (int64_t i = 0; i < std::min(each, bits.count() - first); ++i) {
      const uint64_t word = wide ? uint64_t{block.words[2 * i + 1]} << 32 | block.words[2 * i] : block.words[i];
      bits.SetInt(first + i, static_cast<int64_t>(word));
    }
    if (++low == 0) ++high;
  }
  const uint64_t next[] = {key, low, high};
  for (int64_t i = 0; i < state.count(); ++i) call.results[0].SetInt(i, static_cast<int64_t>(next[i]));
}

absl::Status Reference(const ReferenceCall& call) {
  IsThreeFry(call.attrs) ? ReferenceThreeFry(call) : ReferencePhilox(call);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const auto algorithm = kAlgorithms[Attr<kAttrs, "rng_algorithm">(node.attrs())];
  writer.Emit("rng_bit_generator", {{"rng_algorithm", ShloEnum("rng_algorithm", algorithm)}});
}

Values Read(StableHloOp& op) {
  if (op.results.size() != 2) {
    op.b.Fail(UserError(op.results.size(), " results; the next state and the bits are expected"));
    return {};
  }
  Attrs attrs = op.SchemaAttrs();  // shape and dtype of the first result: the state's
  attrs.set(AttrPosition<kAttrs, "shape">(), ToInts(op.results[1].dims));
  attrs.set(AttrPosition<kAttrs, "dtype">(), op.results[1].dtype);
  return CallAll(op.b, kOp_rng_bit_generator, op.operands, std::move(attrs));
}

constexpr Sample kSamples[] = {{"u64[3]<0:1000> shape=[2,3]"},
                               {"u64[3]<0:1000> shape=[5] dtype=u64"},
                               {"u64[3]<-2:-1> shape=[131]"},
                               {"u64[3]<0:9> shape=[0]"},
                               {"u64[3]<0:9> shape=[]"},
                               {"u64[2]<0:1000> shape=[7]"},
                               {"u64[2]<-2:-1> shape=[5] dtype=i64 rng_algorithm=DEFAULT"},
                               {"u64[3]<0:1000> shape=[2,5] dtype=u8"},
                               {"u64[3]<0:1000> shape=[9] dtype=i16"},
                               {"u64[2]<0:1000> shape=[3,4] rng_algorithm=THREE_FRY"},
                               {"u64[2]<-2:-1> shape=[3,5,7] dtype=i32 rng_algorithm=THREE_FRY"},
                               {"u64[2]<0:1000> shape=[5,6] dtype=u64 rng_algorithm=THREE_FRY"},
                               {"u64[2]<0:1000> shape=[131] dtype=u16 rng_algorithm=THREE_FRY"},
                               {"u64[2]<0:1000> shape=[] dtype=i8 rng_algorithm=THREE_FRY"},
                               {"u64[2]<0:1000> shape=[0,3] rng_algorithm=THREE_FRY"}};

// Returns the low and the high word of the product of x and a constant, 32 bits each, computed by halves.
std::pair<Value, Value> MulWide(Builder& b, const Value& x, uint32_t by) {
  const auto lower = [&](const Value& y) { return And(b, y, U32(b, 0xFFFF)); };
  const auto upper = [&](const Value& y) { return Call(b, kOp_shift_right_logical, {y, U32(b, 16)}); };
  const auto times = [&](const Value& y, uint32_t half) { return Mul(b, y, U32(b, half)); };
  const Value low = lower(x), high = upper(x);
  const Value middle = Add(b, times(high, by & 0xFFFF), upper(times(low, by & 0xFFFF)));
  const Value other = Add(b, times(low, by >> 16), lower(middle));
  return {times(x, by), Add(b, Add(b, times(high, by >> 16), upper(middle)), upper(other))};
}

}  // namespace

bool GoesByBlocks(const Node& node) {
  if (&node.op() != &kOp_rng_bit_generator || IsThreeFry(node.attrs())) return false;
  const Type& bits = node.type(1);
  return BlocksOf(bits.count(), bits.dtype) < int64_t{1} << 32;
}

Values PhiloxByBlocks(Builder& b, const Value& state, const Dims& dims, DType dtype) {
  const bool three = state.dims() == Dims{3};
  const int64_t count = CountOf(dims), blocks = BlocksOf(count, dtype);
  const Value key = Element(b, state, 0), low = Element(b, state, 1), high = three ? Element(b, state, 2) : key;
  // The counter, 128 bits, and the block's number.
  const Value start[4] = {Low(b, low), High(b, low), Low(b, high), High(b, high)};
  Value c[4], carry = Iota(b, DType::kU32, {blocks}, 0);
  for (int i = 0; i < 4; ++i) {
    c[i] = Add(b, carry, start[i]);
    if (i < 3) carry = Convert(b, Compare(b, Direction::kLt, c[i], carry), DType::kU32);
  }
  Value k0 = Low(b, key), k1 = High(b, key);
  for (int round = 0; round < 10; ++round) {
    const auto [low0, high0] = MulWide(b, c[0], 0xD2511F53);
    const auto [low1, high1] = MulWide(b, c[2], 0xCD9E8D57);
    c[0] = Xor(b, Xor(b, high1, c[1]), k0);
    c[2] = Xor(b, Xor(b, high0, c[3]), k1);
    c[1] = low1;
    c[3] = low0;
    k0 = Add(b, k0, U32(b, 0x9E3779B9));
    k1 = Add(b, k1, U32(b, 0xBB67AE85));
  }
  Values parts = {c[0], c[1], c[2], c[3]};
  if (IsWide(dtype)) parts = {Join(b, c[0], c[1]), Join(b, c[2], c[3])};
  const auto each = static_cast<int64_t>(parts.size());
  for (Value& part : parts) part = Reshape(b, part, {blocks, 1});
  const Value words = Reshape(b, Call(b, kOp_concatenate, parts, {int64_t{1}}), {blocks * each});
  return {PhiloxNext(b, state, count, dtype), Convert(b, Reshape(b, Slice(b, words, {0}, {count}, {1}), dims), dtype)};
}

constinit const OpDef kOp_rng_bit_generator = {
    .name = "rng_bit_generator",
    .c_name = "rng_bit_generator",
    .kind = Kind::kComposite,
    .doc =
        "Random bits by Philox-4x32-10 or Threefry-2x32-20, and the state after them, bit for bit as XLA's CPU. PHILOX: "
        "element i takes word i % 4 of counter + i / 4 (64 bits: two words, low first; fewer than 32: the lowest); a state "
        "of u64[2] has the key for the upper half of the counter, too. THREE_FRY: two words a counter, to neighbours "
        "along the first even dimension, else along the longest (64 bits: both). Source: Salmon et al., Parallel Random "
        "Numbers (2011).",
    .example = "wf_rng_bit_generator(s, state, WF_INTS(64), &state, &bits);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kNoGradient,
    .as_seen = true,
};

}  // namespace weft::ops
