// dynamic_conv: a convolution whose padding is an operand.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ir/stablehlo_read.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"input", kNumber, "batch, features and spatial dimensions in any order"},
                                    {"kernel", kNumber, "input and output features and spatial dimensions"},
                                    {.name = "padding",
                                     .types = kI,
                                     .doc = "[spatial dimensions, 2]: low, and high, which follows from the shape",
                                     .group = 0}};
// convolution's, without its padding and with the shape of the result.
enum Position : size_t { kShape, kStrides, kInputDilation, kKernelDilation, kInputDims, kKernelDims, kOutputDims };
constexpr size_t kOptional = 7;  // as convolution's from kConvFeatureGroups on
constexpr std::array<AttrDef, 11> kAttrs = {
    {kShapeAttr, kConvAttrs[kConvStrides], kConvAttrs[kConvInputDilation], kConvAttrs[kConvKernelDilation],
     kConvAttrs[kConvInputDims], kConvAttrs[kConvKernelDims], kConvAttrs[kConvOutputDims],
     kConvAttrs[kConvFeatureGroups], kConvAttrs[kConvBatchGroups], kConvAttrs[kConvReversal], kConvAttrs[kConvDType]}};

// The convolution of an input that has been padded and dilated already.
Attrs Plain(const Attrs& a, size_t spatial) {
  Attrs plain = {a.at(kStrides),   Ints(2 * spatial, 0), Ints(spatial, 1), a.at(kKernelDilation),
                 a.at(kInputDims), a.at(kKernelDims),    a.at(kOutputDims)};
  for (size_t i = kConvFeatureGroups; i <= kConvDType; ++i) {
    const size_t own = i - kConvFeatureGroups + kOptional;
    if (a.has(own)) plain.set(i, a.at(own));
  }
  return plain;
}

// The input's dimensions after padding: what the windows of the result go over.
absl::StatusOr<Dims> PaddedDims(const InferCall& call) {
  const Attrs& a = call.attrs;
  const Dims &x = call.operands[0]->dims, &k = call.operands[1]->dims;
  const Ints& shape = a.IntList(kShape);
  const size_t rank = x.size();
  for (size_t i : {kInputDims, kKernelDims, kOutputDims}) {
    Ints sorted = a.IntList(i);
    std::ranges::sort(sorted);
    if (sorted == Axes(rank)) continue;
    return UserError(kAttrs[i].name, " ", DimsToString(a.IntList(i)), " must name each of ", rank, " dimensions once");
  }
  for (size_t i : {kStrides, kInputDilation, kKernelDilation}) {
    if (rank >= 2 && a.IntList(i).size() == rank - 2) continue;
    return UserError(kAttrs[i].name, " has ", a.IntList(i).size(), " entries for an input of rank ", rank);
  }
  if (k.size() != rank || shape.size() != rank) {
    return UserError("input ", DimsToString(x), ", kernel ", DimsToString(k), " and result ", DimsToString(shape),
                     " must have one rank");
  }
  Dims padded = x;
  for (size_t d = 0; d + 2 < rank; ++d) {
    const int64_t out = shape[a.IntList(kOutputDims)[d + 2]], window = k[a.IntList(kKernelDims)[d + 2]];
    int64_t gaps = 0, taps = 0, size = 0;
    if (window < 1 || __builtin_mul_overflow(std::max<int64_t>(out - 1, 0), a.IntList(kStrides)[d], &gaps) ||
        __builtin_mul_overflow(window - 1, a.IntList(kKernelDilation)[d], &taps) ||
        __builtin_add_overflow(gaps, taps, &size) || taps < 0 || gaps < 0 || size >= int64_t{1} << 40) {
      return UserError("spatial dimension ", d, " of the result has size ", out, ", the window ", window,
                       "; no input has room for that");
    }
    padded[a.IntList(kInputDims)[d + 2]] = out == 0 ? taps : size + 1;
  }
  return padded;
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Ints& shape = call.attrs.IntList(kShape);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_ASSIGN_OR_RETURN(const Dims padded, PaddedDims(call));
  const auto spatial = static_cast<int64_t>(padded.size()) - 2;
  if (call.operands[2]->dims != Dims{spatial, 2}) {
    return UserError("padding is ", ShortType(*call.operands[2]), "; it must have shape [", spatial, ", 2]");
  }
  for (int64_t dilation : call.attrs.IntList(kInputDilation)) {
    if (dilation < 1 || dilation >= int64_t{1} << 40) return UserError("lhs_dilation has the entry ", dilation);
  }
  const Attrs plain = Plain(call.attrs, spatial);
  const Type x = Type::Tensor(call.operands[0]->dtype, padded);
  const Type* const operands[] = {&x, call.operands[1]};
  Attrs filled = plain;
  WEFT_RETURN_IF_ERROR(kOp_convolution.infer(InferCall{kOp_convolution, operands, filled}, results));
  if (results->back().dims == ToDims(shape)) return absl::OkStatus();
  return UserError("shape is ", DimsToString(shape), "; the convolution gives ", DimsToString(results->back().dims));
}

// The spatial numbers at the places of the input's dimensions, zeros at batch and features.
Value Spread(Builder& b, const Value& column, const Ints& input, const HostTensor& zero) {
  const auto rank = static_cast<int64_t>(input.size());
  if (rank == 2) return Constant(b, HostTensor(DType::kI64, {2}));
  Values entries(rank);
  for (int64_t d = 0; d < rank; ++d) {
    entries[input[d]] = d < 2 ? Constant(b, zero) : Slice(b, column, {d - 2}, {d - 1}, {1});
  }
  return Call(b, kOp_concatenate, entries, {int64_t{0}});
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Attrs& a = call.attrs;
  const Type* const types[] = {&call.operands[0].type(), &call.operands[1].type(), &call.operands[2].type()};
  WEFT_ASSIGN_OR_RETURN(const Dims padded, PaddedDims(InferCall{call.op, types, a}));
  const auto spatial = static_cast<int64_t>(padded.size()) - 2;
  const Ints& input = a.IntList(kInputDims);
  const HostTensor zero(DType::kI64, {1});
  const Value padding = Convert(b, call.operands[2], DType::kI64);
  const auto side = [&](int64_t i) {
    return Spread(b, Reshape(b, Slice(b, padding, {0, i}, {spatial, i + 1}, {1, 1}), {spatial}), input, zero);
  };
  HostTensor interior(DType::kI64, {spatial + 2});
  for (int64_t d = 0; d < spatial; ++d) interior.SetInt(input[d + 2], a.IntList(kInputDilation)[d] - 1);
  const Value x = DynamicPad(b, call.operands[0], Scalar(b, call.operands[0].dtype(), 0), side(0), side(1),
                             Constant(b, interior), padded);
  results[0] = Call(b, kOp_convolution, {x, call.operands[1]}, Plain(a, spatial));
  return absl::OkStatus();
}

Values Read(StableHloOp& op) {
  op.Understand({"precision_config"});
  Attrs attrs = op.SchemaAttrs();
  const size_t rank = op.operands.empty() ? 0 : op.operands[0].dims().size();
  for (size_t i : {kStrides, kInputDilation, kKernelDilation}) {
    if (op.Find(kAttrs[i].name) == nullptr) attrs.set(i, Ints(std::max<size_t>(rank, 2) - 2, 1));
  }
  return {Call(op.b, kOp_dynamic_conv, op.operands, std::move(attrs))};
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  const auto layout = [](const Ints& positions, std::string_view first, std::string_view second) {
    std::string text;
    for (size_t place = 0; place < positions.size(); ++place) {
      const auto at =
          static_cast<size_t>(std::ranges::find(positions, static_cast<int64_t>(place)) - positions.begin());
      absl::StrAppend(&text, place == 0 ? "[" : ", ", at == 0 ? first : at == 1 ? second : absl::StrCat(at - 2));
    }
    return text + "]";
  };
  std::string reversal;
  for (size_t d = 0; d + 2 < a.IntList(kInputDims).size(); ++d) {
    const size_t at = kConvReversal - kConvFeatureGroups + kOptional;
    const bool turned = a.has(at) && a.IntList(at)[d] != 0;
    absl::StrAppend(&reversal, d == 0 ? ": " : ", ", turned ? "true" : "false");
  }
  writer.Emit("dynamic_conv",
              {{"window_strides", ShloArray(a.IntList(kStrides))},
               {"lhs_dilation", ShloArray(a.IntList(kInputDilation))},
               {"rhs_dilation", ShloArray(a.IntList(kKernelDilation))},
               {"window_reversal", absl::StrCat("array<i1", reversal, ">")},
               {"dimension_numbers", absl::StrCat("#stablehlo.conv<", layout(a.IntList(kInputDims), "b", "f"), "x",
                                                  layout(a.IntList(kKernelDims), "i", "o"), "->",
                                                  layout(a.IntList(kOutputDims), "b", "f"), ">")},
               {"feature_group_count", ShloI64(a.Int(kOptional))},
               {"batch_group_count", ShloI64(a.Int(kOptional + 1))}});
}

constexpr Sample kSamples[] = {
    {"T[2,5,6,3] T[3,3,3,4] i64[2,2]<1:2> shape=[2,5,6,4] window_strides=[1,1] lhs_dilation=[1,1] rhs_dilation=[1,1] "
     "input_dimensions=[0,3,1,2] kernel_dimensions=[2,3,0,1] output_dimensions=[0,3,1,2]"},
    {"T[2,3,9] T[5,3,4] i32[1,2]<2:3> shape=[2,5,9] window_strides=[2] lhs_dilation=[2] rhs_dilation=[1] "
     "input_dimensions=[0,1,2] kernel_dimensions=[1,0,2] output_dimensions=[0,1,2]"}};

}  // namespace

constinit const OpDef kOp_dynamic_conv = {
    .name = "dynamic_conv",
    .c_name = "dynamic_conv",
    .kind = Kind::kComposite,
    .doc =
        "convolution with padding computed while the program runs. For StableHLO programs; the result's type must be known.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-5},
    .absent = kStableHloComposite,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
