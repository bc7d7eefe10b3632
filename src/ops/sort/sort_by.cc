// sort_by: sorts the rows of several tensors along one dimension by a function that compares.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/ops/batching.h"
#include "src/ops/planes.h"
#include "src/ops/sort/order.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{.name = "operands",
                                     .types = kEveryType,
                                     .doc = "n inputs of one shape, then the scalars that the comparator captures",
                                     .variadic = true,
                                     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"dimension", AttrType::kInt, "dimension to sort along; negative counts from the end", false, "-1"},
    {"is_stable", AttrType::kBool, "equal elements keep their order (they always do on the CPU)", false, "false"}};
constexpr RegionDef kRegions[] = {
    {"comparator",
     "a pair of scalars of each input and its captures in; whether the first ones come before, a bool, out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

size_t InputsOf(const Function& comparator, size_t operands) { return comparator.parameters().size() - operands; }

absl::Status Infer(const InferCall& call, Types* results) {
  const Function& comparator = *call.regions[0];
  const size_t parameters = comparator.parameters().size(), given = call.operands.size();
  if (parameters <= given || parameters > 2 * given) {
    return UserError("the function @", comparator.name(), " takes ", parameters,
                     " scalars; for n inputs and c captures it "
                     "takes 2 n + c, and there are n + c = ",
                     given, " operands");
  }
  const size_t n = InputsOf(comparator, given);
  const Dims& dims = call.operands[0]->dims;
  std::vector<DType> types;
  for (size_t i = 0; i < n; ++i) {
    const Type& x = *call.operands[i];
    if (x.dims != dims) {
      return UserError("inputs 0 and ", i, " have shapes ", DimsToString(dims), " and ", DimsToString(x.dims),
                       "; they must agree");
    }
    types.insert(types.end(), 2, x.dtype);
  }
  for (size_t c = n; c < given; ++c) {
    if (!call.operands[c]->dims.empty()) {
      return UserError("capture ", c - n, " is ", ShortType(*call.operands[c]), "; it must be a scalar");
    }
    types.push_back(call.operands[c]->dtype);
  }
  const DType truth[] = {DType::kBool};
  WEFT_RETURN_IF_ERROR(CheckScalarFunction(comparator, types, truth));
  WEFT_RETURN_IF_ERROR(NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.attrs), dims.size()).status());
  for (size_t i = 0; i < n; ++i) results->push_back(*call.operands[i]);
  return absl::OkStatus();
}

// The positions are sorted along, and cotangents are sorted back by them.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Function& comparator = *call.node.regions()[0];
  const size_t n = InputsOf(comparator, call.operands.size());
  const Dims& dims = call.operands[0].dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.node.attrs()), dims.size()));
  const DType counted = dims[axis] > INT32_MAX ? DType::kI64 : DType::kI32;
  std::vector<DType> types;
  for (const Value& parameter : comparator.parameters()) types.push_back(parameter.dtype());
  types.insert(types.begin() + static_cast<int64_t>(2 * n), 2, counted);
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> with_positions,
                        MakeScalarFunction(comparator.name(), types, [&](Builder&, std::span<const Value> p) {
                          std::vector<Value> own(p.begin(), p.end());
                          own.erase(own.begin() + static_cast<int64_t>(2 * n),
                                    own.begin() + static_cast<int64_t>(2 * n + 2));
                          return Inline(comparator, own);
                        }));
  Values operands(call.operands.begin(), call.operands.end());
  operands.insert(operands.begin() + static_cast<int64_t>(n), Iota(b, counted, dims, axis));
  const Values sorted = CallAll(b, kOp_sort_by, std::move(operands), {axis, int64_t{1}}, {&with_positions, 1});
  if (!b.ok()) return b.status();
  Values back = {sorted[n]};
  for (size_t i = 0; i < n; ++i) {
    if (call.wanted[i] && call.cotangents[i]) back.push_back(call.cotangents[i]);
  }
  const Values found = SortByFirst(b, std::move(back), axis, false);
  for (size_t i = 0, next = 1; i < n; ++i) {
    if (call.wanted[i] && call.cotangents[i]) grads[i] = found[next++];
  }
  return b.status();
}

absl::Status Reference(const ReferenceCall& call) {
  const Function& comparator = *call.regions[0];
  const size_t n = call.results.size();
  const Dims& dims = call.results[0].dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("dimension", Attr<kAttrs, "dimension">(call.attrs), dims.size()));
  const int64_t length = dims[axis], inner = StridesOf(dims)[axis];
  const int64_t rows = length == 0 ? 0 : CountOf(dims) / length;
  std::vector<HostTensor> arguments(2 * n);
  for (size_t c = n; c < call.operands.size(); ++c) arguments.push_back(*call.operands[c]);
  absl::Status status;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t base = row / inner * inner * length + row % inner;
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
      for (size_t i = 0; i < n; ++i) {
        arguments[2 * i] = ElementOf(*call.operands[i], base + p * inner);
        arguments[2 * i + 1] = ElementOf(*call.operands[i], base + q * inner);
      }
      const absl::StatusOr<std::vector<HostTensor>> before = call.run(comparator, arguments);
      status.Update(before.status());
      return before.ok() && (*before)[0].GetInt(0) != 0;
    });
    WEFT_RETURN_IF_ERROR(status);
    for (size_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < length; ++k) {
        CopyElement(*call.operands[i], base + order[static_cast<size_t>(k)] * inner, call.results[i], base + k * inner);
      }
    }
  }
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const size_t n = node.results().size();
  auto axis = NormalizeAxis("dimension", Attr<kAttrs, "dimension">(node.attrs()), node.operands()[0].dims().size());
  if (!axis.ok()) return writer.Fail(axis.status());
  std::vector<std::string> operands;
  for (const Value& operand : node.operands().first(n)) operands.push_back(writer.Name(operand));
  writer.EmitOn("sort", operands,
                {{"dimension", ShloI64(*axis)}, {"is_stable", ShloBool(Attr<kAttrs, "is_stable">(node.attrs()))}},
                writer.Body(*node.regions()[0], node.operands().subspan(n)));
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  const size_t sorted = call.node.results().size();  // what the comparator captures stands behind
  if (AnyBatched(call, sorted)) return absl::OkStatus();
  Attrs attrs = call.node.attrs();
  attrs.set(AttrPosition<kAttrs, "dimension">(), Shifted(Attr<kAttrs, "dimension">(attrs)));
  Values operands;
  for (size_t i = 0; i < call.operands.size(); ++i)
    operands.push_back(i < sorted ? Batched(call, i) : call.operands[i]);
  std::ranges::move(CallAll(call.b, call.node.op(), std::move(operands), std::move(attrs), call.node.regions()),
                    results.begin());
  return absl::OkStatus();
}

// The comparator takes pairs, x's and y's real part and then their imaginary one, where doubling gives x whole before y.
Splits OnPlanes(const PlanesCall& call) {
  const Function &before = *call.node.regions()[0], &split = *call.regions[0];
  const size_t inputs = call.node.results().size();
  std::vector<Value> parameters;
  size_t next = 0;
  for (size_t i = 0; i < before.parameters().size(); ++i) {
    const bool complex = IsComplex(before.parameters()[i].dtype());
    if (i < 2 * inputs && complex && i % 2 == 0) {
      for (const size_t at : {0, 2, 1, 3}) parameters.push_back(split.parameters()[next + at]);
      next += 4, ++i;
      continue;
    }
    for (int k = 0; k < (complex ? 2 : 1); ++k) parameters.push_back(split.parameters()[next++]);
  }
  const Ref<const Function> ordered =
      Function::Create(split.name(), std::move(parameters), {split.results().begin(), split.results().end()});
  return InPlace(call, {&ordered, 1});
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  const double elements = ElementsOf(call.node.operands()[0].type());
  return WorkOfTimes(call, elements * std::log2(std::max(elements, 2.0)));
}

}  // namespace

constinit const OpDef kOp_sort_by = {
    .name = "sort_by",
    .c_name = "sort_by",
    .doc =
        "Sorts n tensors together along one dimension, so that the comparator, a function of scalars, holds of no element "
        "and one before it: StableHLO's sort. Equal elements keep their order. For recorded functions; not callable from C "
        "yet: see sort, argsort and top_k.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .planes = OnPlanes,
    .work = OwnWork,
    .on_bytes = true,
};

}  // namespace weft::ops
