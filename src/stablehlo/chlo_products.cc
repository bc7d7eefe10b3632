// CHLO's scan and ragged_dot: a body along a dimension, and products of groups of rows.
#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/elementwise/special.h"
#include "src/ops/parameter.h"
#include "src/stablehlo/rules.h"

namespace weft::stablehlo {
namespace {

using ir::Builder;
using ir::Ints;
using ir::StableHloOp;
using ir::Value;
using ir::Values;

// The order of dimensions that brings one to the front, and the one that brings it back.
Ints Front(size_t rank, int64_t dimension) {
  Ints order = ops::Axes(rank);
  std::rotate(order.begin(), order.begin() + dimension, order.begin() + dimension + 1);
  return order;
}
Ints Back(size_t rank, int64_t dimension) {
  Ints order = ops::Axes(rank);
  std::rotate(order.begin(), order.begin() + 1, order.begin() + dimension + 1);
  return order;
}

// chlo's body takes slices and then what is carried, and gives slices and then what is carried next; scan's has these the other way round.
absl::StatusOr<Ref<const ir::Function>> ScanBody(const ir::Function& body, size_t inputs, size_t carried) {
  const std::span<const Value> taken = body.parameters();
  if (taken.size() < inputs + carried || body.results().size() < carried) {
    return UserError("the region takes ", taken.size(), " values and gives ", body.results().size(), "; there are ",
                     inputs, " inputs and ", carried, " inits");
  }
  std::vector<Value> parameters;
  const auto like = [&](size_t first, size_t count) {
    for (const Value& value : taken.subspan(first, count)) parameters.push_back(ops::Parameter(value.type()));
  };
  like(inputs, carried);
  like(0, inputs);
  like(inputs + carried, taken.size() - inputs - carried);
  std::vector<Value> arguments(parameters);
  std::rotate(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(carried),
              arguments.begin() + static_cast<ptrdiff_t>(carried + inputs));
  const Values found = ir::Inline(body, arguments);
  std::vector<Value> results(found.begin(), found.end());
  std::rotate(results.begin(), results.end() - static_cast<ptrdiff_t>(carried), results.end());
  return ir::Function::Create(body.name(), std::move(parameters), std::move(results));
}

Values ReadScan(StableHloOp& op) {
  Builder& b = op.b;
  const Values none(op.results.size());
  const Ints sizes = op.Ints("operandSegmentSizes");
  const int64_t dimension = op.Int("dimension", 0);
  const bool reverse = op.Int("is_reverse", 0) != 0;
  op.Understand({"is_associative", "resultSegmentSizes"});
  if (op.regions.size() != 1 || sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 0 ||
      static_cast<size_t>(sizes[0] + sizes[1]) != op.operands.size()) {
    b.Fail(UserError("inputs, at least one, inits and a region are expected"));
    return none;
  }
  const auto inputs = static_cast<size_t>(sizes[0]), carried = static_cast<size_t>(sizes[1]);
  Values operands(op.operands.begin() + static_cast<ptrdiff_t>(inputs), op.operands.end());
  int64_t length = -1;
  for (size_t i = 0; i < inputs; ++i) {
    const Value& x = op.operands[i];
    if (!x.type().is_tensor() || dimension < 0 || dimension >= static_cast<int64_t>(x.dims().size()) ||
        (length >= 0 && x.dims()[dimension] != length)) {
      b.Fail(
          UserError("input ", i, " is ", ShortType(x.type()), "; all inputs are as long along dimension ", dimension));
      return none;
    }
    length = x.dims()[dimension];
    operands.push_back(ops::Transpose(b, x, Front(x.dims().size(), dimension)));
  }
  auto body = ScanBody(*op.regions[0].function, inputs, carried);
  if (!body.ok()) {
    b.Fail(body.status());
    return none;
  }
  operands.insert(operands.end(), op.regions[0].captures.begin(), op.regions[0].captures.end());
  ir::Attrs attrs{length,
                  static_cast<int64_t>(carried),
                  static_cast<int64_t>(inputs),
                  int64_t{reverse},
                  int64_t{false},
                  int64_t{false},
                  int64_t{true},
                  int64_t{1},
                  int64_t{1}};
  const size_t sliced = (*body)->results().size() - carried;
  const Values found = ops::CallAll(b, ops::kOp_scan, std::move(operands), std::move(attrs), std::vector{*body});
  if (!b.ok()) return none;
  Values results;
  for (size_t i = 0; i < sliced; ++i) {
    const Value& stack = found[carried + i];
    if (dimension >= static_cast<int64_t>(stack.dims().size())) {
      b.Fail(UserError("output ", i, " has no dimension ", dimension));
      return none;
    }
    results.push_back(ops::Transpose(b, stack, Back(stack.dims().size(), dimension)));
  }
  results.insert(results.end(), found.begin(), found.begin() + static_cast<ptrdiff_t>(carried));
  return results;
}

// The numbers of a ragged product, and its kind: the ragged dimension of lhs is a batching one, a contracted one, or neither.
struct Ragged {
  Ints lhs_batch, rhs_batch, lhs_sum, rhs_sum;
  int64_t along = 0, group = -1;
  bool in_batch = false, in_sum = false;
};

Value Product(StableHloOp& op, const Value& x, const Value& y, const Ragged& r) {
  ir::Attrs attrs{r.lhs_batch, r.rhs_batch, r.lhs_sum, r.rhs_sum};
  attrs.set(4, op.results[0].dtype);
  return ops::Call(op.b, ops::kOp_dot_general, {x, y}, std::move(attrs));
}

// True where a position along the ragged dimension is in a group: [groups, positions], or with batching dimensions in front.
Value InGroup(Builder& b, const Value& sizes, int64_t positions) {
  const auto rank = static_cast<int64_t>(sizes.dims().size());
  const Value ends = ops::Call(b, ops::kOp_cumsum, {sizes}, {rank - 1, int64_t{0}});
  if (!ends) return {};
  Dims dims = sizes.dims();
  dims.push_back(positions);
  const Ints all = ops::Axes(static_cast<size_t>(rank));
  const Value at = ops::Iota(b, sizes.dtype(), dims, rank);
  const Value begin = ops::BroadcastInDim(b, ops::Sub(b, ends, sizes), dims, all);
  return ops::And(b, ops::Compare(b, ops::Direction::kGe, at, begin),
                  ops::Compare(b, ops::Direction::kLt, at, ops::BroadcastInDim(b, ends, dims, all)));
}

// Each group's part of the contracted dimension, [groups, …].
Value OfParts(StableHloOp& op, Ragged r) {
  Builder& b = op.b;
  const Value &x = op.operands[0], &sizes = op.operands[2];
  const int64_t groups = sizes.dims().back();
  const Value in = InGroup(b, sizes, x.dims()[r.along]);
  if (!in) return {};
  Dims dims = x.dims();
  dims.insert(dims.begin(), groups);
  // The mask's dimensions, batching ones, then group and position, in the order in which the broadcast wants them.
  Ints places, order;
  for (size_t i = 0; i + 1 < sizes.dims().size(); ++i) places.push_back(r.lhs_batch[i] + 1);
  places.insert(places.end(), {0, r.along + 1});
  const Value mask = ops::BroadcastInAnyOrder(b, in, dims, places);
  Ints after = ops::Axes(dims.size());
  after.erase(after.begin());
  const Value each = ops::BroadcastInDim(b, x, dims, after);
  const Value held = ops::Select(b, mask, each, ops::FullLike(b, each, 0));
  for (Ints* list : {&r.lhs_batch, &r.lhs_sum}) {
    for (int64_t& d : *list) ++d;
  }
  const Value all = Product(op, held, op.operands[1], r);
  return all ? ops::Transpose(b, all, Front(all.dims().size(), static_cast<int64_t>(r.lhs_batch.size()))) : all;
}

// Each row by its group's matrix: by all of them, of which one counts. Without batching dimensions ragged_dot has no such waste.
Value OfRows(StableHloOp& op, const Ragged& r) {
  Builder& b = op.b;
  const Value &x = op.operands[0], &y = op.operands[1], &sizes = op.operands[2];
  const bool plain = x.dims().size() == 2 && y.dims().size() == 3 && r.lhs_sum.size() == 1 && r.rhs_sum.size() == 1 &&
                     op.results[0].dtype == x.dtype() && ir::Contains(ops::kOp_ragged_dot.operands[0].types, x.dtype());
  if (plain) {
    const int64_t last = 3 - r.group - r.rhs_sum[0];
    return ops::Call(
        b, ops::kOp_ragged_dot,
        {ops::Transpose(b, x, {r.along, r.lhs_sum[0]}), ops::Transpose(b, y, {r.group, r.rhs_sum[0], last}), sizes});
  }
  const Value all = Product(op, x, y, r), in = InGroup(b, sizes, x.dims()[r.along]);
  if (!all || !in) return {};
  const auto place = [](const Ints& batch, const Ints& sum, int64_t wanted) {
    int64_t before = 0;
    for (int64_t d = 0; d < wanted; ++d) {
      before += std::ranges::find(batch, d) == batch.end() && std::ranges::find(sum, d) == sum.end() ? 1 : 0;
    }
    return before;
  };
  const auto batch = static_cast<int64_t>(r.lhs_batch.size());
  const auto rows = static_cast<int64_t>(x.dims().size()) - batch - static_cast<int64_t>(r.lhs_sum.size());
  const int64_t along = batch + place(r.lhs_batch, r.lhs_sum, r.along);
  const int64_t group = batch + rows + place(r.rhs_batch, r.rhs_sum, r.group);
  Ints places = ops::Axes(sizes.dims().size() - 1);
  places.insert(places.end(), {group, along});
  const Value mask = ops::BroadcastInAnyOrder(b, in, all.dims(), places);
  return ops::Reduce(b, ops::Select(b, mask, all, ops::FullLike(b, all, 0)), ops::Reducer::kSum, {group});
}

Values ReadRagged(StableHloOp& op) {
  op.Understand({"ragged_dot_dimension_numbers", "precision_config"});
  if (op.operands.size() != 3 || op.results.size() != 1 ||
      !std::ranges::all_of(op.operands, [](const Value& v) { return v.type().is_tensor(); })) {
    op.b.Fail(UserError("three operands and a result are expected"));
    return Values(op.results.size());
  }
  Ragged r{op.Ints("lhs_batching_dimensions"), op.Ints("rhs_batching_dimensions"),
           op.Ints("lhs_contracting_dimensions"), op.Ints("rhs_contracting_dimensions")};
  const Ints along = op.Ints("lhs_ragged_dimensions"), group = op.Ints("rhs_group_dimensions");
  const auto inside = [](const Ints& list, const Value& v) {
    return std::ranges::all_of(list, [&](int64_t d) { return d >= 0 && d < static_cast<int64_t>(v.dims().size()); });
  };
  const Value& sizes = op.operands[2];
  if (along.size() != 1 || group.size() > 1 || !inside(along, op.operands[0]) || !inside(group, op.operands[1]) ||
      !inside(r.lhs_batch, op.operands[0]) || r.lhs_batch.size() != r.rhs_batch.size() || !IsInteger(sizes.dtype()) ||
      sizes.dims().empty()) {
    op.b.Fail(UserError("one ragged dimension, at most one of groups and sizes that are integers are expected"));
    return {Value()};
  }
  r.along = along[0];
  r.in_batch = std::ranges::find(r.lhs_batch, r.along) != r.lhs_batch.end();
  r.in_sum = std::ranges::find(r.lhs_sum, r.along) != r.lhs_sum.end();
  if (group.empty() != (r.in_batch || r.in_sum)) {
    op.b.Fail(UserError(
        "rhs has a dimension of groups where the ragged dimension of lhs is neither a batching nor a contracted one"));
    return {Value()};
  }
  if (r.in_batch) return {Product(op, op.operands[0], op.operands[1], r)};
  if (!group.empty()) r.group = group[0];
  Dims lead;
  for (const int64_t d : r.lhs_batch) lead.push_back(op.operands[0].dims()[d]);
  const Dims front(sizes.dims().begin(), sizes.dims().end() - 1);
  if (!front.empty() && front != lead) {
    return op.Refuse("sizes are ", ShortType(sizes.type()),
                     "; they must be [groups], or with the batching dimensions in front");
  }
  return {r.in_sum ? OfParts(op, r) : OfRows(op, r)};
}

constexpr Rule kProducts[] = {{"chlo.scan", ReadScan}, {"chlo.ragged_dot", ReadRagged}};

}  // namespace

std::span<const Rule> ChloProductRules() { return kProducts; }

}  // namespace weft::stablehlo
