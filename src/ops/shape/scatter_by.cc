// scatter_by: takes updates into boxes at computed places by a function, several tensors at once.
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/planes.h"
#include "src/ops/scalar_function.h"
#include "src/ops/shape/gather_dims.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc = "n inputs of one shape, scatter_indices, n updates of one shape, then the scalars that "
            "the body captures",
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"update_window_dims", AttrType::kInts, "update dimensions that run within a box", true},
    {"inserted_window_dims", AttrType::kInts, "operand dimensions of box size 1 that updates do not have", true},
    {"scatter_dims_to_operand_dims", AttrType::kInts, "operand dimension of each component of an index", true},
    {"index_vector_dim", AttrType::kInt, "dimension of scatter_indices that holds the components; its rank: none",
     true},
    {"input_batching_dims", AttrType::kInts, "operand dimensions that run along with …", false, "[]"},
    {"scatter_indices_batching_dims", AttrType::kInts, "… these dimensions of scatter_indices", false, "[]"},
};
constexpr RegionDef kRegions[] = {{"body", "n scalars there, n updates for them and its captures in, n scalars out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

GatherDims Read(const Attrs& a, const Dims& x, const Dims& updates) {
  GatherDims dims{Attr<kAttrs, "update_window_dims">(a),
                  Attr<kAttrs, "inserted_window_dims">(a),
                  Attr<kAttrs, "scatter_dims_to_operand_dims">(a),
                  Attr<kAttrs, "index_vector_dim">(a),
                  Attr<kAttrs, "input_batching_dims">(a),
                  Attr<kAttrs, "scatter_indices_batching_dims">(a),
                  {}};
  SizeByUpdates(dims, x, updates);
  return dims;
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Function& body = *call.regions[0];
  const size_t n = body.results().size(), given = call.operands.size();
  if (n == 0) return UserError("the function @", body.name(), " has no results: nothing is scattered");
  if (given < 2 * n + 1) {
    return UserError("the function @", body.name(), " gives ", n, " results, so there must be ", n,
                     " inputs, the indices and as many updates; there are ", given, " operands");
  }
  const Type &x = *call.operands[0], &indices = *call.operands[n], &updates = *call.operands[n + 1];
  if (!Contains(kI, indices.dtype))
    return UserError("scatter_indices are ", ShortType(indices), "; they must be integers");
  std::vector<DType> types;
  for (const size_t first : {size_t{0}, n + 1}) {
    for (size_t i = 0; i < n; ++i) {
      const Type &one = *call.operands[first + i], &other = *call.operands[first];
      if (one.dims != other.dims || one.dtype != call.operands[i]->dtype) {
        return UserError(first == 0 ? "input " : "update ", i, " is ", ShortType(one), "; it must be ",
                         ShortType(Type::Tensor(call.operands[i]->dtype, other.dims)));
      }
      types.push_back(one.dtype);
    }
  }
  for (size_t c = 2 * n + 1; c < given; ++c) {
    const Type& capture = *call.operands[c];
    if (!capture.dims.empty()) {
      return UserError("capture ", c - 2 * n - 1, " is ", ShortType(capture), "; it must be a scalar");
    }
    types.push_back(capture.dtype);
  }
  WEFT_RETURN_IF_ERROR(CheckScalarFunction(body, types, std::span(types).first(n)));
  const GatherDims dims = Read(call.attrs, x.dims, updates.dims);
  WEFT_RETURN_IF_ERROR(CheckGather(dims, x.dims, indices.dims));
  const Dims wanted = GatheredDims(dims, x.dims, indices.dims);
  if (wanted != updates.dims) {
    return UserError("updates have shape ", DimsToString(updates.dims), "; indices and window ask for ",
                     DimsToString(wanted));
  }
  for (size_t i = 0; i < n; ++i) results->push_back(*call.operands[i]);
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "scatter by the function @", call.node.regions()[0]->name(),
                     " has no gradient; what adds, compares or replaces one tensor's elements is scatter, which has");
}

// The function's captures are scalars: examples that have captures of their own go one after the other.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  for (const size_t i : {0, 1, 2, 4, 5}) attrs.set(i, Shifted(attrs.IntList(i)));
  attrs.set(3, Shifted(attrs.Int(3)));
  return BatchInputs(call, 2 * results.size() + 1, Longer(std::move(attrs), {{4, 0}, {5, 0}}), results);
}

// Updates arrive in row-major order; what would fall outside is left out.
absl::Status Reference(const ReferenceCall& call) {
  const Function& body = *call.regions[0];
  const size_t n = body.results().size();
  for (size_t i = 0; i < n; ++i) call.results[i] = *call.operands[i];
  const HostTensor &x = *call.operands[0], &indices = *call.operands[n], &updates = *call.operands[n + 1];
  const GatherDims dims = Read(call.attrs, x.dims(), updates.dims());
  const Dims strides = StridesOf(x.dims());
  std::vector<HostTensor> arguments(2 * n);
  for (size_t c = 2 * n + 1; c < call.operands.size(); ++c) arguments.push_back(*call.operands[c]);
  absl::Status status;
  ForEachIndex(updates.dims(), [&](int64_t k, const Dims& index) {
    Dims at;
    if (!status.ok() || !Locate(dims, indices, x.dims(), index, false, &at)) return;
    int64_t to = 0;
    for (size_t d = 0; d < at.size(); ++d) to += at[d] * strides[d];
    for (size_t i = 0; i < n; ++i) {
      arguments[i] = ElementOf(call.results[i], to);
      arguments[n + i] = ElementOf(*call.operands[n + 1 + i], k);
    }
    const absl::StatusOr<std::vector<HostTensor>> next = call.run(body, arguments);
    status = next.status();
    for (size_t i = 0; i < n && next.ok(); ++i) CopyElement((*next)[i], 0, call.results[i], to);
  });
  return status;
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const size_t n = node.results().size();
  std::vector<std::string> operands;
  for (const Value& operand : node.operands().first(2 * n + 1)) operands.push_back(writer.Name(operand));
  const GatherDims dims = Read(node.attrs(), node.type().dims, node.operands()[n + 1].dims());
  writer.EmitOn("scatter", operands,
                {{"scatter_dimension_numbers", ShloScatterDims(dims)},
                 {"indices_are_sorted", ShloBool(false)},
                 {"unique_indices", ShloBool(false)}},
                writer.Body(*node.regions()[0], node.operands().subspan(2 * n + 1)));
}

}  // namespace

constinit const OpDef kOp_scatter_by = {
    .name = "scatter_by",
    .c_name = "scatter_by",
    .doc =
        "n tensors whose elements at computed places take updates in by a function of scalars: StableHLO's scatter with any "
        "body. Updates come in row-major order, one after the other; what would fall outside is left out. What adds, "
        "multiplies, compares, masks or replaces one tensor's elements is scatter. For recorded functions; not callable from "
        "C yet.",
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
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .planes = InPlace,
    .work = WorkOfUpdates,
    .on_bytes = true,
};

Values ScatterBy(Builder& b, Values operands, const Ref<const Function>& body, const Attrs& dims) {
  if (!b.ok()) return Values(body->results().size());
  const std::optional<Reducer> plain = PlainReducer(*body);
  const bool one = operands.size() == 3 && body->parameters().size() == 2 && body->results().size() == 1;
  const bool set = one && body->results()[0] == body->parameters()[1];
  if (!one || (!plain && !set)) return CallAll(b, kOp_scatter_by, std::move(operands), dims, {&body, 1});
  Attrs attrs;
  for (size_t i = 0; i < 4; ++i) attrs.set(i, dims.at(i));
  attrs.set(4, set ? kScatterSet : static_cast<int64_t>(*plain));
  for (size_t i = 4; i < 6; ++i) {
    if (dims.has(i)) attrs.set(i + 1, dims.at(i));
  }
  return CallAll(b, kOp_scatter, std::move(operands), std::move(attrs));
}

}  // namespace weft::ops
