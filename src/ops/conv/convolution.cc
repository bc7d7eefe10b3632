// convolution: StableHLO's, with every dimension order, dilation and grouping.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "src/ir/stablehlo.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/lies.h"
#include "src/ops/linalg/product_read.h"
#include "src/ops/planes.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"input", kNumber | kC, "batch, features and spatial dimensions in any order"},
                                    {"kernel", kNumber | kC, "input and output features and spatial dimensions"}};

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape,
                        ReadConv(call.op, call.attrs, call.operands[0]->dims, call.operands[1]->dims));
  WEFT_ASSIGN_OR_RETURN(const DType dtype, ConvResultType(call.attrs, call.operands[0]->dtype));
  results->push_back(Type::Tensor(dtype, shape.OutputDims()));
  return absl::OkStatus();
}

// Groups of the batch side by side as groups of features: [… groups × n …, … c …] to [… n …, … groups × c …] with
// the positions of batch and feature. A convolution with batch groups is one with feature groups of that.
Value BatchToFeatures(Builder& b, const Value& x, const Ints& positions, int64_t groups) {
  const auto batch = static_cast<size_t>(positions[0]), feature = static_cast<size_t>(positions[1]);
  Dims split, merged = x.dims();
  Ints order;
  for (size_t d = 0; d < merged.size(); ++d) {
    if (d == batch) split.push_back(groups);
    split.push_back(d == batch ? merged[d] / groups : merged[d]);
  }
  const auto place = [&](size_t d) { return static_cast<int64_t>(d + (d >= batch ? 1 : 0)); };
  for (size_t d = 0; d < merged.size(); ++d) {
    if (d == feature) order.push_back(static_cast<int64_t>(batch));
    order.push_back(place(d));
  }
  merged[batch] /= groups;
  merged[feature] *= groups;
  return Reshape(b, Transpose(b, Reshape(b, x, split), order), merged);
}
// The way back.
Value FeaturesToBatch(Builder& b, const Value& x, const Ints& positions, int64_t groups) {
  const auto batch = static_cast<size_t>(positions[0]), feature = static_cast<size_t>(positions[1]);
  Dims split, merged = x.dims();
  Ints order;
  for (size_t d = 0; d < merged.size(); ++d) {
    if (d == feature) split.push_back(groups);
    split.push_back(d == feature ? merged[d] / groups : merged[d]);
  }
  const auto place = [&](size_t d) { return static_cast<int64_t>(d + (d >= feature ? 1 : 0)); };
  for (size_t d = 0; d < merged.size(); ++d) {
    if (d == batch) order.push_back(static_cast<int64_t>(feature));
    order.push_back(place(d));
  }
  merged[batch] *= groups;
  merged[feature] /= groups;
  return Reshape(b, Transpose(b, Reshape(b, x, split), order), merged);
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const DType factor = GradientDType(call.operands[0].dtype(), call.cotangents[0].dtype());
  Value x = Convert(b, call.operands[0], factor);
  const Value k = Convert(b, call.operands[1], factor);
  Attrs attrs = call.node.attrs();
  const int64_t groups = attrs.Int(kConvBatchGroups);
  const Ints positions = attrs.IntList(kConvInputDims);
  if (groups != 1) {  // then there are no groups of features
    x = BatchToFeatures(b, x, positions, groups);
    attrs.set(kConvBatchGroups, int64_t{1});
    attrs.set(kConvFeatureGroups, groups);
  }
  const Value g = Convert(b, call.cotangents[0], factor);
  if (call.wanted[0]) {
    grads[0] = ConvBackwardInput(b, g, k, attrs, x.dims());
    if (groups != 1) grads[0] = FeaturesToBatch(b, grads[0], positions, groups);
  }
  if (call.wanted[1]) grads[1] = ConvBackwardKernel(b, x, g, attrs, k.dims());
  for (Value& grad : grads) {
    if (grad) grad = Convert(b, grad, call.operands[0].dtype());
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const HostTensor& k = *call.operands[1];
  HostTensor& y = call.results[0];
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape, ReadConv(call.op, call.attrs, x.dims(), k.dims()));
  const Dims xs = StridesOf(x.dims()), ks = StridesOf(k.dims());
  const bool is_float = IsFloat(y.dtype());
  const std::vector<double> xv = is_float ? ToDoubles(x) : std::vector<double>();
  const std::vector<double> kv = is_float ? ToDoubles(k) : std::vector<double>();
  const size_t n = shape.windows.size();
  const int64_t in_group = shape.features / shape.feature_groups;
  Dims taps;
  for (const Window& w : shape.windows) taps.push_back(w.size);
  PieceLook look(static_cast<double>(in_group * CountOf(taps)));
  ForEachIndex(y.dims(), [&](int64_t at, const Dims& index) {
    if (look.Ends()) return;
    const int64_t feature = index[shape.output[1]];
    const int64_t batch_group = feature / (shape.out_features / shape.batch_groups);
    const int64_t feature_group = feature / (shape.out_features / shape.feature_groups);
    const int64_t batch = index[shape.output[0]] + batch_group * (shape.batch / shape.batch_groups);
    const int64_t x_base = batch * xs[shape.input[0]] + feature_group * in_group * xs[shape.input[1]];
    const int64_t k_base = feature * ks[shape.kernel[1]];
    double sum = 0;
    uint64_t integer = 0;
    ForEachIndex(taps, [&](int64_t, const Dims& tap) {
      int64_t from = x_base, by = k_base;
      bool zero = false;  // read beside the input or between its elements: multiplied, for the kernel may be infinite
      for (size_t d = 0; d < n; ++d) {
        const Window& w = shape.windows[d];
        const int64_t i = w.Index(index[shape.output_spatial[d]], tap[d]);
        zero = zero || i < 0;
        from += i * xs[shape.input_spatial[d]];
        by += (shape.reversal[d] != 0 ? w.size - 1 - tap[d] : tap[d]) * ks[shape.kernel_spatial[d]];
      }
      if (zero && !is_float) return;
      for (int64_t c = 0; c < in_group; ++c) {
        const int64_t i = from + c * xs[shape.input[1]], j = by + c * ks[shape.kernel[0]];
        if (is_float) {
          sum += (zero ? 0.0 : xv[i]) * kv[j];
        } else {
          integer += static_cast<uint64_t>(x.GetInt(i)) * static_cast<uint64_t>(k.GetInt(j));
        }
      }
    });
    if (is_float) {
      y.SetDouble(at, sum);
    } else {
      y.SetInt(at, static_cast<int64_t>(integer));
    }
  });
  return absl::OkStatus();
}

// "[b, 0, 1, f]": what each dimension is.
std::string Layout(const Ints& positions, std::string_view first, std::string_view second) {
  std::vector<std::string> names(positions.size());
  names[positions[0]] = first;
  names[positions[1]] = second;
  for (size_t d = 2; d < positions.size(); ++d) names[positions[d]] = absl::StrCat(d - 2);
  return absl::StrCat("[", absl::StrJoin(names, ", "), "]");
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  auto read = ReadConv(node.op(), a, node.operands()[0].dims(), node.operands()[1].dims());
  if (!read.ok()) return writer.Fail(read.status());
  Ints low, high;
  for (const Window& w : read->windows) {
    low.push_back(w.low);
    high.push_back(w.high);
  }
  const std::string dims = absl::StrCat("#stablehlo.conv<", Layout(a.IntList(kConvInputDims), "b", "f"), "x",
                                        Layout(a.IntList(kConvKernelDims), "i", "o"), "->",
                                        Layout(a.IntList(kConvOutputDims), "b", "f"), ">");
  std::string reversal;
  for (int64_t r : read->reversal)
    absl::StrAppend(&reversal, reversal.empty() ? ": " : ", ", r != 0 ? "true" : "false");
  writer.Emit("convolution", {{"window_strides", ShloArray(a.IntList(kConvStrides))},
                              {"padding", ShloPairs(low, high)},
                              {"lhs_dilation", ShloArray(a.IntList(kConvInputDilation))},
                              {"rhs_dilation", ShloArray(a.IntList(kConvKernelDilation))},
                              {"window_reversal", absl::StrCat("array<i1", reversal, ">")},
                              {"dimension_numbers", dims},
                              {"feature_group_count", ShloI64(a.Int(kConvFeatureGroups))},
                              {"batch_group_count", ShloI64(a.Int(kConvBatchGroups))},
                              writer.PrecisionConfig(PrecisionOf(a, kConvPrecision))});
}

#define WEFT_NHWC " input_dimensions=[0,3,1,2] kernel_dimensions=[2,3,0,1] output_dimensions=[0,3,1,2]"
#define WEFT_WINDOW(strides, padding, base, dilation) \
  " window_strides=" strides " padding=" padding " lhs_dilation=" base " rhs_dilation=" dilation
Values Read(StableHloOp& op) {
  Attrs attrs = op.SchemaAttrs();
  attrs.set(kConvPrecision, ReadPrecision(op));
  const size_t n = op.operands.empty() || op.operands[0].dims().size() < 2 ? 0 : op.operands[0].dims().size() - 2;
  for (size_t i : {kConvStrides, kConvInputDilation, kConvKernelDilation}) {
    if (op.Find(kConvAttrs[i].name) == nullptr) attrs.set(i, Ints(n, 1));
  }
  if (op.Find(kConvAttrs[kConvPadding].name) == nullptr) attrs.set(kConvPadding, Ints(2 * n, 0));
  // Nothing turned around is what is left out.
  if (std::ranges::all_of(op.Ints("window_reversal"), [](int64_t turned) { return turned == 0; }))
    attrs.set(kConvReversal, {});
  return ReadProduct(op, kOp_convolution, std::move(attrs), kConvDType);
}

constexpr Sample kSamples[] = {
    {"T[2,5,6,3] T[3,3,3,4]" WEFT_WINDOW("[1,1]", "[0,0,0,0]", "[1,1]", "[1,1]") WEFT_NHWC},
    {"T[1,7,6,2] T[3,2,2,3]" WEFT_WINDOW("[2,3]", "[1,0,2,1]", "[1,1]", "[1,1]") WEFT_NHWC},
    {"T[1,5,5,4] T[2,3,2,6]" WEFT_WINDOW("[1,2]", "[1,1,0,2]", "[1,1]", "[2,1]") WEFT_NHWC " feature_group_count=2"},
    {"T[2,5,6,5] T[3,3,1,5]" WEFT_WINDOW("[1,1]", "[1,1,1,1]", "[1,1]", "[1,1]") WEFT_NHWC " feature_group_count=5"},
    {"T[1,6,5,3] T[3,2,1,6]" WEFT_WINDOW("[2,1]", "[1,1,0,1]", "[1,1]", "[1,2]") WEFT_NHWC " feature_group_count=3"},
    {"T[2,4,3,2] T[3,3,2,2]" WEFT_WINDOW("[1,1]", "[2,2,1,2]", "[2,1]", "[1,1]") WEFT_NHWC " window_reversal=[1,0]"},
    {"T[4,5,5,2] T[3,3,2,4]" WEFT_WINDOW("[1,1]", "[0,0,0,0]", "[1,1]", "[1,1]") WEFT_NHWC " batch_group_count=2"},
    {"T[6,4,2] T[3,4,6]" WEFT_WINDOW("[1]", "[1,0]", "[1]", "[1]") " input_dimensions=[0,1,2] kernel_dimensions=[1,2,0]"
                                                                   " output_dimensions=[0,2,1] batch_group_count=3"},
    {"T[2,3,9] T[5,3,4]" WEFT_WINDOW(
        "[2]", "[-1,3]", "[1]", "[1]") " input_dimensions=[0,1,2] kernel_dimensions=[1,0,2] output_dimensions=[0,1,2]"},
    {"T[2,3] T[3,4] window_strides=[] padding=[] lhs_dilation=[] rhs_dilation=[] input_dimensions=[0,1]"
     " kernel_dimensions=[0,1] output_dimensions=[0,1]"},
    {"T[0,5,5,2] T[3,3,2,4]" WEFT_WINDOW("[1,1]", "[0,0,0,0]", "[1,1]", "[1,1]") WEFT_NHWC},
    {"T[1,2,2,1] T[3,3,1,1]" WEFT_WINDOW("[1,1]", "[0,0,0,0]", "[1,1]", "[1,1]") WEFT_NHWC},
    {"bf16[1,6,6,3] bf16[3,3,3,17]" WEFT_WINDOW("[1,1]", "[1,1,1,1]", "[1,1]", "[1,1]") WEFT_NHWC " dtype=f32"},
    {"f32[1,6,6,3] f32[3,3,3,5]" WEFT_WINDOW("[1,1]", "[1,1,1,1]", "[1,1]", "[1,1]") WEFT_NHWC " dtype=f64"},
    {"u8[1,6,6,3] u8[3,3,3,5]" WEFT_WINDOW("[1,2]", "[1,1,1,1]", "[1,1]", "[1,1]") WEFT_NHWC " dtype=i32"},
    {"T[1,4,4,2] T[2,2,2,3]" WEFT_WINDOW("[1,1]", "[0,0,0,0]", "[1,1]", "[1,1]") WEFT_NHWC " precision=HIGH"},
};
#undef WEFT_NHWC
#undef WEFT_WINDOW

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = ConvBatching(call, {0, 1}, 2);
  return absl::OkStatus();
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  const Value &x = call.node.operands()[0], &kernel = call.node.operands()[1];
  WEFT_ASSIGN_OR_RETURN(const ConvShape shape, ReadConv(call.node.op(), call.node.attrs(), x.dims(), kernel.dims()));
  const auto features = static_cast<double>(std::max<int64_t>(shape.out_features, 1));
  return Work{.flops = 2 * ElementsOf(call.node.type()) * ElementsOf(kernel.type()) / features};
}

// The batch of the input, and the output features of the kernel.
Sharding OwnLie(const LieCall& call) {
  const Attrs& a = call.node.attrs();
  Sharding result;
  const Ints& to = Attr<kConvAttrs, "output_dimensions">(a);
  LieAs(call, call.operands[0], Attr<kConvAttrs, "input_dimensions">(a)[0], to[0], &result);
  LieAs(call, call.operands[1], Attr<kConvAttrs, "kernel_dimensions">(a)[1], to[1], &result);
  return result;
}

}  // namespace

constinit const OpDef kOp_convolution = {
    .name = "convolution",
    .c_name = "convolution",
    .doc =
        "Convolution (cross-correlation) over any number of spatial dimensions, StableHLO's general form. bf16 and "
        "f16 are summed in f32. For images in NHWC see conv.",
    .example =
        "y = wf_convolution(s, x, w, WF_INTS(1, 1), WF_INTS(0, 0, 0, 0), WF_INTS(1, 1), "
        "WF_INTS(1, 1), WF_INTS(0, 3, 1, 2), WF_INTS(2, 3, 0, 1), WF_INTS(0, 3, 1, 2));",
    .operands = kOperands,
    .attrs = kConvAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-5},
    .rounds_once = true,
    .planes = ProductPlanes,
    .work = OwnWork,
    .lies = OwnLie,
};

}  // namespace weft::ops
