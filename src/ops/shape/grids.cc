// meshgrid, cartesian_prod, combinations: all ways to take an element from each of several rows, or several from one.
#include <algorithm>
#include <optional>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kRows[] = {{"inputs", kEveryType, "rows [n], or scalars, of one type", false, true}};
constexpr OperandDef kOne[] = {{"x", kEveryType, "a row [n]"}};
constexpr std::string_view kIndexings[] = {"ij", "xy"};
constexpr AttrDef kGridAttrs[] = {{"indexing", AttrType::kEnum,
                                   "ij: dimension i goes along input i; xy: the first two change places", false, "ij",
                                   kIndexings}};
constexpr AttrDef kCombinationAttrs[] = {
    {"count", AttrType::kInt, "elements of each, at least 0", false, "2"},
    {"replacement", AttrType::kBool, "an element may be taken again", false, "false"}};

// The dimension of the grid that goes along each input.
Ints PlacesOf(size_t count, bool swapped) {
  Ints places = Axes(count);
  if (swapped && count > 1) std::swap(places[0], places[1]);
  return places;
}
absl::StatusOr<Dims> GridDims(std::span<const Type* const> inputs, const Ints& places) {
  Dims dims(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->rank() > 1)
      return UserError("inputs[", i, "] has shape ", DimsToString(inputs[i]->dims), "; [n] is needed");
    dims[places[i]] = inputs[i]->count();
  }
  return dims;
}
bool Swapped(const Attrs& attrs) { return Attr<kGridAttrs, "indexing">(attrs) == 1; }

// Each input along its dimension of the grid, one after the other along a new first one.
Value Grids(Builder& b, std::span<const Value> inputs, const Ints& places) {
  Dims dims(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) dims[places[i]] = inputs[i].type().count();
  Values grids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    grids.push_back(BroadcastInDim(b, Reshape(b, inputs[i], {inputs[i].type().count()}), dims, {places[i]}));
  }
  return Call(b, kOp_stack, std::move(grids), {int64_t{0}});
}

absl::Status InferGrid(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Dims dims, GridDims(call.operands, PlacesOf(call.operands.size(), Swapped(call.attrs))));
  dims.insert(dims.begin(), static_cast<int64_t>(call.operands.size()));
  results->push_back(Type::Tensor(call.operands[0]->dtype, std::move(dims)));
  return absl::OkStatus();
}
absl::Status ExpandGrid(const ExpandCall& call, std::span<Value> results) {
  results[0] = Grids(call.b, call.operands, PlacesOf(call.operands.size(), Swapped(call.attrs)));
  return call.b.status();
}

absl::Status InferProduct(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const Dims dims, GridDims(call.operands, Axes(call.operands.size())));
  const std::optional<int64_t> count = CheckedCount(dims);
  if (!count) return UserError("there are more than 2^63 - 1 ways to take an element from each input");
  results->push_back(Type::Tensor(call.operands[0]->dtype, {*count, static_cast<int64_t>(call.operands.size())}));
  return absl::OkStatus();
}
absl::Status ExpandProduct(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value grids = Grids(b, call.operands, Axes(call.operands.size()));
  if (!grids) return b.status();
  const int64_t inputs = static_cast<int64_t>(call.operands.size());
  int64_t count = 1;
  for (const Value& each : call.operands) count *= each.type().count();
  results[0] = Transpose(b, Reshape(b, grids, {inputs, count}), {1, 0});
  return b.status();
}

// The indices of a combination are part of the program: at most so many numbers.
constexpr int64_t kMostIndices = int64_t{1} << 24;

// Steps to the next combination in order; false behind the last.
bool Next(std::vector<int64_t>& at, int64_t n, bool replacement) {
  const auto count = static_cast<int64_t>(at.size());
  for (int64_t i = count; i-- > 0;) {
    if (at[i] + 1 > n - (replacement ? 1 : count - i)) continue;
    ++at[i];
    for (int64_t k = i + 1; k < count; ++k) at[k] = at[k - 1] + (replacement ? 0 : 1);
    return true;
  }
  return false;
}
absl::StatusOr<std::vector<int64_t>> CombinationsOf(const Attrs& attrs, int64_t n) {
  const int64_t count = Attr<kCombinationAttrs, "count">(attrs);
  const bool replacement = Attr<kCombinationAttrs, "replacement">(attrs);
  if (count < 0 || count > 1000) return UserError("count is ", count, "; it must be 0 to 1000");
  std::vector<int64_t> all, at(count);
  if (count == 0 || n == 0 || (!replacement && count > n)) return all;
  for (int64_t i = 0; i < count && !replacement; ++i) at[i] = i;
  do {
    all.insert(all.end(), at.begin(), at.end());
    if (static_cast<int64_t>(all.size()) > kMostIndices) {
      return UserError("there are more than 2^24 / ", count, " combinations of ", count, " of ", n, " elements");
    }
  } while (Next(at, n, replacement));
  return all;
}

absl::Status InferCombinations(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  if (x.rank() != 1) return UserError("x has shape ", DimsToString(x.dims), "; [n] is needed");
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> all, CombinationsOf(call.attrs, x.dims[0]));
  const int64_t count = Attr<kCombinationAttrs, "count">(call.attrs);
  const int64_t rows = count == 0 ? 0 : static_cast<int64_t>(all.size()) / count;
  results->push_back(Type::Tensor(x.dtype, {rows, count}));
  return absl::OkStatus();
}
absl::Status ExpandCombinations(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> all, CombinationsOf(call.attrs, x.dims()[0]));
  const int64_t count = Attr<kCombinationAttrs, "count">(call.attrs);
  if (all.empty()) {
    results[0] = Reshape(b, Slice(b, x, {0}, {0}, {1}), {0, count});
    return b.status();
  }
  HostTensor places(DType::kI32, {static_cast<int64_t>(all.size()) / count, count});
  for (size_t i = 0; i < all.size(); ++i) places.SetInt(static_cast<int64_t>(i), all[i]);
  results[0] = Call(b, kOp_take, {x, Constant(b, std::move(places))}, {int64_t{0}});
  return b.status();
}

constexpr Sample kGrids[] = {{"T[3] T[4]"}, {"T[2] T[3] T[] indexing=xy"}, {"T[5]"}, {"T[0] T[2]"}};
constexpr Sample kProducts[] = {{"T[3] T[4]"}, {"T[2] T[3] T[]"}, {"T[5]"}, {"T[0] T[2]"}};
constexpr Sample kCombinations[] = {
    {"T[4]"}, {"T[3] count=3 replacement=true"}, {"T[2] count=3"}, {"T[0]"}, {"T[5] count=0"}};

}  // namespace

constinit const OpDef kOp_meshgrid = Formula({
    .name = "weft.meshgrid",
    .c_name = "meshgrid",
    .doc = "The grids of several rows, [inputs, n1, n2, …]: the i-th repeats input i along its own dimension.",
    .example = "grids = wf_meshgrid(s, WF_TENSORS(x, y));",
    .operands = kRows,
    .attrs = kGridAttrs,
    .infer = InferGrid,
    .expand = ExpandGrid,
    .samples = kGrids,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_cartesian_prod = Formula({
    .name = "weft.cartesian_prod",
    .c_name = "cartesian_prod",
    .doc = "All ways to take an element from each of several rows, [n1 n2 …, inputs], the last changing fastest.",
    .example = "pairs = wf_cartesian_prod(s, WF_TENSORS(x, y));",
    .operands = kRows,
    .infer = InferProduct,
    .expand = ExpandProduct,
    .samples = kProducts,
    .tolerance = kExact,
    .rounds_once = true,
});
constinit const OpDef kOp_combinations = Formula({
    .name = "weft.combinations",
    .c_name = "combinations",
    .doc =
        "All ways to take so many elements from a row, [ways, count], in order of their places; these are part of the "
        "program, at most 2^24 numbers.",
    .example = "pairs = wf_combinations(s, x);",
    .operands = kOne,
    .attrs = kCombinationAttrs,
    .infer = InferCombinations,
    .expand = ExpandCombinations,
    .samples = kCombinations,
    .tolerance = kExact,
    .rounds_once = true,
});

}  // namespace weft::ops
