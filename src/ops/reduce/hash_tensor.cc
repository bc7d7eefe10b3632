// hash_tensor: a number of 64 bits that changes where a bit of an element does.
#include "src/ops/axes.h"
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kAnyType, "operand"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  results->back().dtype = DType::kU64;
  return absl::OkStatus();
}

// One half of the elements onto the other, again and again: as many steps as the length has bits.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  WEFT_ASSIGN_OR_RETURN(const Ints axes, AxesOrAll(call.attrs, 0, dims.size()));
  const Value bits = IsFloat(x.dtype()) ? Call(b, kOp_bitcast_convert, {Convert(b, x, DType::kF64)}, {DType::kU64})
                                        : Convert(b, x, DType::kU64);
  Ints order;
  int64_t kept = 1, count = 1;
  for (const int64_t d : Axes(dims.size())) {
    if (std::ranges::find(axes, d) == axes.end()) order.push_back(d);
  }
  for (const int64_t d : order) kept *= dims[d];
  for (const int64_t d : axes) count *= dims[d];
  order.insert(order.end(), axes.begin(), axes.end());
  Value rows = Reshape(b, Transpose(b, bits, order), {kept, count});
  while (count > 1 && rows) {
    const int64_t half = (count + 1) / 2;
    const Value upper = Slice(b, rows, {0, half}, {kept, count}, {1, 1});
    rows =
        Call(b, kOp_bitwise_xor,
             {Slice(b, rows, {0, 0}, {kept, half}, {1, 1}), Pad(b, upper, 0, {0, 0}, {0, 2 * half - count}, {0, 0})});
    count = half;
  }
  if (!rows) return b.status();
  Types types;
  const Type* operands[] = {&x.type()};
  WEFT_RETURN_IF_ERROR(InferReduction(InferCall{call.op, operands, call.attrs}, &types));
  results[0] = count == 0 ? Full(b, DType::kU64, types[0].dims, 0) : Reshape(b, rows, types[0].dims);
  return b.status();
}

constexpr Sample kSamples[] = {{"T[2,3]"}, {"T[4,5,3] dims=[0,-1]"}, {"T[3,131] dims=[1] keepdims=true"},
                               {"T[]"},    {"T[0,3] dims=[0]"},      {"bool[3,5] dims=[1]"}};

}  // namespace

constinit const OpDef kOp_hash_tensor = Formula({
    .name = "weft.hash_tensor",
    .c_name = "hash_tensor",
    .doc =
        "The exclusive or of the elements' bits over some axes, by default all, as u64: those of floats as f64, those of integers and "
        "bools as i64. PyTorch's hash_tensor. 0 of no elements.",
    .example = "h = wf_hash_tensor(s, x);",
    .operands = kOperands,
    .attrs = kReductionAttrs,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
});

}  // namespace weft::ops
