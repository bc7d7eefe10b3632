// Collectives of processes that are computed together, as operations of one: what a program for many devices is on a platform whose
// devices share a memory.
#include <algorithm>

#include "src/ops/build.h"
#include "src/ops/collective/processes.h"
#include "src/ops/reducer.h"
#include "src/ops/registry.h"

namespace weft::ops {
namespace {

using namespace ir;

size_t PositionOf(const Node& node, std::string_view name) {
  const auto& attrs = node.op().attrs;
  return static_cast<size_t>(std::ranges::find(attrs, name, &AttrDef::name) - attrs.begin());
}
int64_t IntOf(const Node& node, std::string_view name) { return node.attrs().Int(PositionOf(node, name)); }

// Processes that work together, each list in its order. No groups at all: all are one.
std::vector<std::vector<size_t>> GroupsOf(const Node& node, size_t processes) {
  const HostTensor& named = node.attrs().Tensor(PositionOf(node, "replica_groups"));
  std::vector<std::vector<size_t>> groups;
  if (named.count() == 0) {
    std::vector<size_t>& all = groups.emplace_back(processes);
    for (size_t p = 0; p < processes; ++p) all[p] = p;
    return groups;
  }
  const int64_t width = named.dims()[1];
  for (int64_t i = 0; i < named.count(); ++i) {
    if (i % width == 0) groups.emplace_back();
    if (named.GetInt(i) >= 0) groups.back().push_back(static_cast<size_t>(named.GetInt(i)));
  }
  return groups;
}

Value Combine(Builder& b, Reducer reducer, const Value& x, const Value& y) {
  switch (reducer) {
    case Reducer::kSum: return Call(b, kOp_add, {x, y});
    case Reducer::kProd: return Call(b, kOp_mul, {x, y});
    case Reducer::kMax: return Call(b, kOp_maximum, {x, y});
    case Reducer::kMin: return Call(b, kOp_minimum, {x, y});
    case Reducer::kAnd: return Call(b, kOp_bitwise_and, {x, y});
    case Reducer::kOr: return Call(b, kOp_bitwise_or, {x, y});
  }
  return {};
}

// In the order of the processes' numbers, whatever order the group has; f16 and bf16 in f32, rounded once.
Value Combined(Builder& b, Reducer reducer, const Values& shares, std::vector<size_t> group) {
  std::ranges::sort(group);
  const DType dtype = shares[0].dtype();
  const bool wide = IsFloat(dtype) && BytesOf(dtype) < 4 && (reducer == Reducer::kSum || reducer == Reducer::kProd);
  Value all;
  for (const size_t p : group) {
    const Value share = wide ? Convert(b, shares[p], DType::kF32) : shares[p];
    all = all ? Combine(b, reducer, all, share) : share;
  }
  return wide ? Convert(b, all, dtype) : all;
}

// Piece `at` of `count` along a dimension.
Value Piece(Builder& b, const Value& x, int64_t dimension, size_t at, size_t count) {
  Ints starts(x.dims().size(), 0), ends = ToInts(x.dims());
  const auto d = static_cast<size_t>(dimension);
  const int64_t size = x.dims()[d] / static_cast<int64_t>(count);
  starts[d] = size * static_cast<int64_t>(at);
  ends[d] = starts[d] + size;
  return Slice(b, x, starts, ends, Ints(x.dims().size(), 1));
}

Value Joined(Builder& b, Values pieces, int64_t dimension) {
  return pieces.size() == 1 ? pieces[0] : Call(b, kOp_concatenate, std::move(pieces), {dimension});
}

Values InGroups(Builder& b, const Node& node, const Values& shares) {
  const OpDef& op = node.op();
  Values results(shares.size());
  for (const std::vector<size_t>& group : GroupsOf(node, shares.size())) {
    const size_t count = group.size();
    if (&op == &kOp_all_to_all) {
      for (size_t k = 0; k < count; ++k) {
        Values pieces;
        for (const size_t p : group) pieces.push_back(Piece(b, shares[p], IntOf(node, "split_dimension"), k, count));
        results[group[k]] = Joined(b, std::move(pieces), IntOf(node, "concat_dimension"));
      }
      continue;
    }
    Value all;
    if (&op == &kOp_all_gather) {
      Values pieces;
      for (const size_t p : group) pieces.push_back(shares[p]);
      all = Joined(b, std::move(pieces), IntOf(node, "all_gather_dim"));
    } else if (&op == &kOp_collective_broadcast) {
      all = shares[group[0]];
    } else {
      all = Combined(b, static_cast<Reducer>(IntOf(node, "reducer")), shares, group);
    }
    for (size_t k = 0; k < count; ++k) {
      const bool scatters = &op == &kOp_reduce_scatter;
      results[group[k]] = scatters ? Piece(b, all, IntOf(node, "scatter_dimension"), k, count) : all;
    }
  }
  // A process in no group of a broadcast gets zeros.
  for (size_t p = 0; p < shares.size(); ++p) {
    if (!results[p]) results[p] = FullLike(b, shares[p], 0);
  }
  return results;
}

Values Permuted(Builder& b, const Node& node, const Values& shares) {
  const HostTensor& pairs = node.attrs().Tensor(PositionOf(node, "source_target_pairs"));
  Values results(shares.size());
  for (int64_t i = 0; i < pairs.count(); i += 2) {
    results[static_cast<size_t>(pairs.GetInt(i + 1))] = shares[static_cast<size_t>(pairs.GetInt(i))];
  }
  for (size_t p = 0; p < shares.size(); ++p) {
    if (!results[p]) results[p] = FullLike(b, shares[p], 0);
  }
  return results;
}

}  // namespace

absl::StatusOr<OfProcesses> Together(Builder& b, const Node& node, const OfProcesses& operands, size_t processes) {
  WEFT_RETURN_IF_ERROR(CheckProcesses(node.op(), node.attrs(), processes));
  OfProcesses results;
  if (operands.empty()) {
    // Which process this is.
    Values& numbers = results.emplace_back();
    for (size_t p = 0; p < processes; ++p) {
      HostTensor number(DType::kU32, {});
      number.SetInt(0, &node.op() == &kOp_partition_id ? static_cast<int64_t>(p) : 0);
      numbers.push_back(Constant(b, std::move(number)));
    }
    return results;
  }
  for (const Values& shares : operands) {
    results.push_back(&node.op() == &kOp_collective_permute ? Permuted(b, node, shares) : InGroups(b, node, shares));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return results;
}

}  // namespace weft::ops
