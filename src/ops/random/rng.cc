// rng: StableHLO's random numbers of a distribution whose ends, or mean and deviation, are tensors.
#include "src/ir/stablehlo_read.h"
#include "src/ops/random/bits.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr std::string_view kDistributions[] = {"UNIFORM", "NORMAL"};
constexpr OperandDef kOperands[] = {{"a", kAnyType | kWhole, "scalar: the least number, or the mean"},
                                    {"b", kAnyType | kWhole, "scalar: the end, never reached, or the deviation"},
                                    kState};
constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "result shape", true},
                              {"rng_distribution", AttrType::kEnum, "which", true, {}, kDistributions}};

bool IsNormal(const Attrs& attrs) { return Attr<kAttrs, "rng_distribution">(attrs) == 1; }

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(CheckState(*call.operands[2]));
  for (size_t i : {0, 1}) {
    if (call.operands[i]->rank() == 0) continue;
    return UserError(kOperands[i].name, " is ", ShortType(*call.operands[i]), "; it must be a scalar");
  }
  const DType dtype = call.operands[0]->dtype;
  if (IsNormal(call.attrs) && !IsFloat(dtype)) {
    return UserError("a and b are ", NameOf(dtype), "; rng_distribution NORMAL takes f16, bf16, f32 and f64");
  }
  results->push_back(Type::Tensor(dtype, ToDims(Attr<kAttrs, "shape">(call.attrs))));
  return absl::OkStatus();
}

// a + bits mod (b - a): no number is preferred by more than one in 2^(64 - bits of b - a).
Value Integers(Builder& b, const Value& low, const Value& end, const Value& state, const Dims& dims) {
  const Value range = Sub(b, Convert(b, end, DType::kU64), Convert(b, low, DType::kU64));
  const Value step = Call(b, kOp_rem, {RandomBits(b, state, dims, DType::kU64), BroadcastTo(b, range, dims)});
  return Convert(b, Add(b, BroadcastTo(b, Convert(b, low, DType::kU64), dims), step), low.dtype());
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &low = call.operands[0], &end = call.operands[1], &state = call.operands[2];
  const Dims dims = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const DType dtype = low.dtype(), kind = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  if (IsBool(dtype)) {
    results[0] = Convert(
        b, Call(b, kOp_shift_right_logical, {RandomBits(b, state, dims, DType::kU32), Full(b, DType::kU32, dims, 31)}),
        dtype);
  } else if (!IsFloat(dtype)) {
    results[0] = Integers(b, low, end, state, dims);
  } else {
    const auto wide = [&](const Value& x) { return BroadcastTo(b, Convert(b, x, kind), dims); };
    if (IsNormal(call.attrs)) {
      const Value z = Call(b, kOp_normal, {state}, {ToInts(dims), 0.0, 1.0, kind});
      results[0] = Convert(b, Add(b, wide(low), Mul(b, z, wide(end))), dtype);
      return absl::OkStatus();
    }
    const Value unit = RandomUnit(b, state, dims, kind);
    const Value x = Convert(b, Add(b, wide(low), Mul(b, unit, Sub(b, wide(end), wide(low)))), dtype);
    // Rounding may reach the end.
    const Value over = Compare(b, Direction::kGe, x, BroadcastTo(b, end, dims));
    results[0] = Select(b, over, BroadcastTo(b, low, dims), x);
  }
  return absl::OkStatus();
}

// Its third operand is the shape, which the type of the result says too; the reader adds the state.
Values Read(StableHloOp& op) {
  if (op.operands.size() != 4 || op.results.size() != 1) {
    op.b.Fail(UserError(op.operands.size() - 1, " operands and ", op.results.size(),
                        " results; a, b and shape and one "
                        "result are expected"));
    return {};
  }
  const Dims& dims = op.results[0].dims;
  const Value& shape = op.operands[2];
  const auto known = KnownAmounts(shape);
  if (!IsInteger(shape.dtype()) || shape.dims() != Dims{static_cast<int64_t>(dims.size())} ||
      (known && ToDims(*known) != dims)) {
    op.b.Fail(UserError("shape is ", known ? DimsToString(ToDims(*known)) : ShortType(shape.type()),
                        "; it must give the result's, ", DimsToString(dims)));
    return {};
  }
  return CallAll(op.b, *op.op, {op.operands[0], op.operands[1], op.operands[3]}, op.SchemaAttrs());
}

constexpr Sample kSamples[] = {{"T[] T[] u64[3]<0:1000> shape=[2,3] rng_distribution=UNIFORM", 0.5, 2},
                               {"f32[] f32[] u64[3]<0:1000> shape=[131] rng_distribution=NORMAL"},
                               {"i32[]<-3:-2> i32[]<4:5> u64[3]<0:1000> shape=[131] rng_distribution=UNIFORM"},
                               {"bf16[] bf16[] u64[3]<0:1000> shape=[7] rng_distribution=NORMAL"},
                               {"i64[]<-3:-2> i64[]<4:5> u64[3]<0:9> shape=[0] rng_distribution=UNIFORM"}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kNotDifferentiable},
                              {Part::kReference, Reason::kExpands},
                              {Part::kStableHlo, Reason::kExpands},
                              {Part::kExample, Reason::kFromStableHlo}};

}  // namespace

constinit const OpDef kOp_rng = {
    .name = "rng",
    .c_name = "rng",
    .kind = Kind::kComposite,
    .doc =
        "StableHLO's random numbers, drawn from the context's generator: UNIFORM at least a and below b, bools either with "
        "one half; NORMAL of mean a and deviation b. From C they are uniform, normal and bernoulli.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-12, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-6},
    .absent = kAbsent,
    .exported = false,
    .random = true,
    .rounds_once = true,
};

}  // namespace weft::ops
