// dot_general: products summed over contracting dimensions, for each index of batching dimensions.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/lies.h"
#include "src/ops/linalg/precision.h"
#include "src/ops/linalg/product_read.h"
#include "src/ops/planes.h"
#include "src/ops/result_dtype.h"
#include "src/ops/work.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"lhs", kEveryType, "first factor"}, {"rhs", kEveryType, "second factor"}};
constexpr AttrDef kAttrs[] = {
    {"lhs_batching_dimensions", AttrType::kInts, "batching dimensions of lhs", true},
    {"rhs_batching_dimensions", AttrType::kInts, "the same of rhs, in the same order", true},
    {"lhs_contracting_dimensions", AttrType::kInts, "dimensions of lhs that are summed over", true},
    {"rhs_contracting_dimensions", AttrType::kInts, "the same of rhs, in the same order", true},
    {"dtype", AttrType::kDType, kResultDTypeDoc},
    kPrecisionAttr,
};

// The dimensions in neither list, ascending.
Ints Free(size_t rank, const Ints& batching, const Ints& contracting) {
  Ints free;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    auto in = [d](const Ints& list) { return std::find(list.begin(), list.end(), d) != list.end(); };
    if (!in(batching) && !in(contracting)) free.push_back(d);
  }
  return free;
}

absl::Status CheckDims(std::string_view side, const Type& x, const Ints& batching, const Ints& contracting) {
  Ints all = batching;
  all.insert(all.end(), contracting.begin(), contracting.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0 || all[i] >= static_cast<int64_t>(x.rank())) {
      return UserError(side, " dimension ", all[i], " does not exist; ", side, " has rank ", x.rank());
    }
    if (std::find(all.begin(), all.begin() + i, all[i]) != all.begin() + i) {
      return UserError(side, " dimension ", all[i], " is named twice");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(std::string_view what, const Type& x, const Ints& xs, const Type& y, const Ints& ys) {
  if (xs.size() != ys.size()) {
    return UserError("lhs has ", xs.size(), " ", what, " dimensions and rhs ", ys.size(), "; they pair up one to one");
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    if (x.dims[xs[i]] != y.dims[ys[i]]) {
      return UserError(what, " dimensions ", xs[i], " of lhs and ", ys[i], " of rhs have sizes ", x.dims[xs[i]],
                       " and ", y.dims[ys[i]], "; they must be equal");
    }
  }
  return absl::OkStatus();
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Type& y = *call.operands[1];
  const Ints& xb = Attr<kAttrs, "lhs_batching_dimensions">(call.attrs);
  const Ints& yb = Attr<kAttrs, "rhs_batching_dimensions">(call.attrs);
  const Ints& xc = Attr<kAttrs, "lhs_contracting_dimensions">(call.attrs);
  const Ints& yc = Attr<kAttrs, "rhs_contracting_dimensions">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckDims("lhs", x, xb, xc));
  WEFT_RETURN_IF_ERROR(CheckDims("rhs", y, yb, yc));
  WEFT_RETURN_IF_ERROR(CheckPairs("batching", x, xb, y, yb));
  WEFT_RETURN_IF_ERROR(CheckPairs("contracting", x, xc, y, yc));
  const DType dtype = ResultDType<kAttrs>(call.attrs, x.dtype);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, x.dtype));
  Dims dims;
  for (int64_t d : xb) dims.push_back(x.dims[d]);
  for (int64_t d : Free(x.rank(), xb, xc)) dims.push_back(x.dims[d]);
  for (int64_t d : Free(y.rank(), yb, yc)) dims.push_back(y.dims[d]);
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}

// An operand with its dimension numbers.
struct Side {
  const Value& value;
  const Ints &batching, &contracting;

  Ints Free() const { return ops::Free(value.dims().size(), batching, contracting); }
};

// The cotangent of x: g (batch, x free, y free) times y over y's free dimensions gives (batch, x free,
// contracting in y's order), which is then put into x's order.
Value OperandGradient(Builder& b, const Value& g, int64_t g_free_start, const Side& x, const Side& y,
                      const AttrValue& precision) {
  const Ints x_free = x.Free(), y_free = y.Free();
  Ints g_batch = Axes(x.batching.size());
  Ints g_contracting;
  for (size_t i = 0; i < y_free.size(); ++i) g_contracting.push_back(g_free_start + i);
  Attrs attrs = {g_batch, y.batching, g_contracting, y_free};
  attrs.set(AttrPosition<kAttrs, "precision">(), precision);
  const DType factor = GradientDType(y.value.dtype(), g.dtype());
  Value d = Call(b, kOp_dot_general, {Convert(b, g, factor), Convert(b, y.value, factor)}, std::move(attrs));
  // Where each dimension of x stands in d: batch, free, then y's contracting dimensions ascending.
  const Ints& yc = y.contracting;
  Ints sorted = yc;
  std::sort(sorted.begin(), sorted.end());
  Ints at(x.value.dims().size());
  int64_t next = 0;
  for (int64_t dim : x.batching) at[dim] = next++;
  for (int64_t dim : x_free) at[dim] = next++;
  for (int64_t dim : sorted) at[x.contracting[std::find(yc.begin(), yc.end(), dim) - yc.begin()]] = next++;
  return Convert(b, Transpose(b, d, at), x.value.dtype());
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  const Attrs& a = call.node.attrs();
  const Value& g = call.cotangents[0];
  const Side x = {call.operands[0], Attr<kAttrs, "lhs_batching_dimensions">(a),
                  Attr<kAttrs, "lhs_contracting_dimensions">(a)};
  const Side y = {call.operands[1], Attr<kAttrs, "rhs_batching_dimensions">(a),
                  Attr<kAttrs, "rhs_contracting_dimensions">(a)};
  const int64_t x_start = x.batching.size();
  const int64_t y_start = x_start + x.Free().size();
  const AttrValue& precision = a.at(AttrPosition<kAttrs, "precision">());
  if (call.wanted[0]) grads[0] = OperandGradient(call.b, g, y_start, x, y, precision);
  if (call.wanted[1]) grads[1] = OperandGradient(call.b, g, x_start, y, x, precision);
  return absl::OkStatus();
}

// Offsets of all index combinations of some dimensions, last one fastest.
std::vector<int64_t> Offsets(const Dims& dims, const Ints& chosen) {
  const Dims strides = StridesOf(dims);
  std::vector<int64_t> offsets = {0};
  for (int64_t d : chosen) {
    std::vector<int64_t> next;
    for (int64_t base : offsets) {
      for (int64_t i = 0; i < dims[d]; ++i) next.push_back(base + i * strides[d]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const HostTensor& y = *call.operands[1];
  HostTensor& z = call.results[0];
  const Ints &xb = Attr<kAttrs, "lhs_batching_dimensions">(call.attrs),
             &yb = Attr<kAttrs, "rhs_batching_dimensions">(call.attrs);
  const Ints &xc = Attr<kAttrs, "lhs_contracting_dimensions">(call.attrs),
             &yc = Attr<kAttrs, "rhs_contracting_dimensions">(call.attrs);
  const auto x_batch = Offsets(x.dims(), xb), y_batch = Offsets(y.dims(), yb);
  const auto x_sum = Offsets(x.dims(), xc), y_sum = Offsets(y.dims(), yc);
  const auto x_free = Offsets(x.dims(), Free(x.dims().size(), xb, xc));
  const auto y_free = Offsets(y.dims(), Free(y.dims().size(), yb, yc));
  const bool is_float = IsFloat(z.dtype());
  const std::vector<double> xs = is_float ? ToDoubles(x) : std::vector<double>();
  const std::vector<double> ys = is_float ? ToDoubles(y) : std::vector<double>();
  int64_t k = 0;
  PieceLook look(static_cast<double>(x_sum.size()));
  for (size_t n = 0; n < x_batch.size(); ++n) {
    for (int64_t i : x_free) {
      for (int64_t j : y_free) {
        if (look.Ends()) return absl::OkStatus();
        const int64_t at_x = x_batch[n] + i, at_y = y_batch[n] + j;
        double sum = 0;
        uint64_t integer = 0;
        for (size_t c = 0; c < x_sum.size(); ++c) {
          if (is_float) {
            sum += xs[at_x + x_sum[c]] * ys[at_y + y_sum[c]];
          } else {
            integer +=
                static_cast<uint64_t>(x.GetInt(at_x + x_sum[c])) * static_cast<uint64_t>(y.GetInt(at_y + y_sum[c]));
          }
        }
        if (is_float) {
          z.SetDouble(k++, sum);
        } else {
          z.SetInt(k++, IsBool(z.dtype()) ? integer != 0 : static_cast<int64_t>(integer));
        }
      }
    }
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  const std::string dims =
      absl::StrCat("#stablehlo.dot<lhs_batching_dimensions = ", ShloList(Attr<kAttrs, "lhs_batching_dimensions">(a)),
                   ", rhs_batching_dimensions = ", ShloList(Attr<kAttrs, "rhs_batching_dimensions">(a)),
                   ", lhs_contracting_dimensions = ", ShloList(Attr<kAttrs, "lhs_contracting_dimensions">(a)),
                   ", rhs_contracting_dimensions = ", ShloList(Attr<kAttrs, "rhs_contracting_dimensions">(a)), ">");
  writer.Emit("dot_general", {{"dot_dimension_numbers", dims},
                              writer.PrecisionConfig(PrecisionOf(a, AttrPosition<kAttrs, "precision">()))});
}

#define WEFT_DOT(xb, yb, xc, yc)                                                                  \
  " lhs_batching_dimensions=" xb " rhs_batching_dimensions=" yb " lhs_contracting_dimensions=" xc \
  " rhs_contracting_dimensions=" yc
Values Read(StableHloOp& op) {
  if (op.Find("algorithm") != nullptr) op.Understand({"algorithm"});  // each sum is at least as exact as any asks for
  Attrs attrs = op.SchemaAttrs();
  attrs.set(AttrPosition<kAttrs, "precision">(), ReadPrecision(op));
  return ReadProduct(op, kOp_dot_general, std::move(attrs), AttrPosition<kAttrs, "dtype">());
}

constexpr Sample kSamples[] = {{"T[4,5] T[5,3]" WEFT_DOT("[]", "[]", "[1]", "[0]")},
                               {"T[5,4] T[3,5]" WEFT_DOT("[]", "[]", "[0]", "[1]")},
                               {"T[2,4,5] T[2,5,3]" WEFT_DOT("[0]", "[0]", "[2]", "[1]")},
                               {"T[4,2,5,6] T[6,3,5,2]" WEFT_DOT("[1]", "[3]", "[2,3]", "[2,0]")},
                               {"T[7] T[7]" WEFT_DOT("[]", "[]", "[0]", "[0]")},
                               {"T[3,0] T[0,2]" WEFT_DOT("[]", "[]", "[1]", "[0]")},
                               {"T[0,3] T[3,2]" WEFT_DOT("[]", "[]", "[1]", "[0]")},
                               {"bf16[9,17] bf16[17,33]" WEFT_DOT("[]", "[]", "[1]", "[0]") " dtype=f32"},
                               {"f32[2,9,17] f32[2,17,5]" WEFT_DOT("[0]", "[0]", "[2]", "[1]") " dtype=f64"},
                               {"u8[9,17] u8[17,33]" WEFT_DOT("[]", "[]", "[1]", "[0]") " dtype=i32"},
                               {"i32[9,17] i32[17,5]" WEFT_DOT("[]", "[]", "[1]", "[0]") " dtype=i8"},
                               {"T[3,4] T[4,5]" WEFT_DOT("[]", "[]", "[1]", "[0]") " precision=DEFAULT"},
                               {"T[33,65] T[65,17]" WEFT_DOT("[]", "[]", "[1]", "[0]")}};
#undef WEFT_DOT

// Examples of both factors are one more batching dimension; of one alone, one more of those that are in the result.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  constexpr size_t kBatching[] = {AttrPosition<kAttrs, "lhs_batching_dimensions">(),
                                  AttrPosition<kAttrs, "rhs_batching_dimensions">()};
  constexpr size_t kContracting[] = {AttrPosition<kAttrs, "lhs_contracting_dimensions">(),
                                     AttrPosition<kAttrs, "rhs_contracting_dimensions">()};
  const bool both = call.batched[0] && call.batched[1];
  const auto shared = static_cast<int64_t>(attrs.IntList(kBatching[0]).size());
  const auto lhs_free =
      static_cast<int64_t>(call.node.operands()[0].dims().size() - attrs.IntList(kContracting[0]).size()) - shared;
  for (size_t side = 0; side < 2; ++side) {
    if (!call.batched[side]) continue;
    for (const size_t i : {kBatching[side], kContracting[side]}) attrs.set(i, Shifted(attrs.IntList(i)));
    if (both) attrs.set(kBatching[side], Before(0, attrs.IntList(kBatching[side])));
  }
  const Value found = Call(call.b, call.node.op(), {call.operands[0], call.operands[1]}, std::move(attrs));
  results[0] = Moved(call.b, found, both ? 0 : call.batched[0] ? shared : shared + lhs_free, 0);
  return absl::OkStatus();
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  double summed = 1;
  for (const int64_t d : Attr<kAttrs, "lhs_contracting_dimensions">(call.node.attrs())) {
    summed *= static_cast<double>(call.node.operands()[0].dims()[d]);
  }
  return Work{.flops = 2 * ElementsOf(call.node.type()) * summed};
}

// Batches as in either operand, then the free dimensions of each: a sum over parts is the partitioner's to add up.
Sharding OwnLie(const LieCall& call) {
  const Attrs& a = call.node.attrs();
  const Ints& left = Attr<kAttrs, "lhs_batching_dimensions">(a);
  const Ints& right = Attr<kAttrs, "rhs_batching_dimensions">(a);
  Sharding result;
  int64_t to = 0;
  for (size_t i = 0; i < left.size(); ++i, ++to) {
    LieAs(call, call.operands[0], left[i], to, &result);
    LieAs(call, call.operands[1], right[i], to, &result);
  }
  const size_t ranks[] = {call.node.operands()[0].dims().size(), call.node.operands()[1].dims().size()};
  for (const int64_t d : Free(ranks[0], left, Attr<kAttrs, "lhs_contracting_dimensions">(a))) {
    LieAs(call, call.operands[0], d, to++, &result);
  }
  for (const int64_t d : Free(ranks[1], right, Attr<kAttrs, "rhs_contracting_dimensions">(a))) {
    LieAs(call, call.operands[1], d, to++, &result);
  }
  return result;
}

}  // namespace

constinit const OpDef kOp_dot_general = {
    .name = "dot_general",
    .c_name = "dot_general",
    .doc =
        "Sums of products over the contracting dimensions, for each index of the batching dimensions. The result has "
        "the batching dimensions, then the others of lhs, then those of rhs. bf16 and f16 are summed in f32. For "
        "NumPy's matrix product see matmul.",
    .example = "z = wf_dot_general(s, x, y, NULL, 0, NULL, 0, WF_INTS(1), WF_INTS(0));",
    .operands = kOperands,
    .attrs = kAttrs,
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
