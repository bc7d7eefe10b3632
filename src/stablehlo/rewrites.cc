// Operations of StableHLO that are others in disguise: old names, special cases, and what means nothing on one device.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "src/ops/build.h"
#include "src/ops/reducer_read.h"
#include "src/stablehlo/rules.h"

namespace weft::stablehlo {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::StableHloOp;
using ir::Value;
using ir::Values;

// Tells whether there are as many operands and results; otherwise puts a UserError in the builder.
bool Expect(StableHloOp& op, size_t operands, size_t results = 1) {
  if (op.operands.size() == operands && op.results.size() == results) return true;
  op.b.Fail(UserError(op.operands.size(), " operands and ", op.results.size(), " results; ", operands, " and ", results,
                      " are expected"));
  return false;
}

// The same operation under another name: read as that one is read.
Values As(StableHloOp& op, std::string_view name, Values operands, ir::ShloAttr::Fields attributes) {
  const Rule* rule = FindRule(name);
  if (rule == nullptr) return op.Refuse("this version of Weft has no ", name);
  StableHloOp other(op.b, rule->op, name, std::move(attributes));
  other.operands = std::move(operands);
  other.results = op.results;
  return rule->read(other);
}

ir::ShloAttr List(const Ints& values) { return ir::ShloAttr::Ints({values.begin(), values.end()}); }

Values DotGeneral(StableHloOp& op, Values factors, const Ints& lhs_batching, const Ints& rhs_batching,
                  const Ints& lhs_contracting, const Ints& rhs_contracting) {
  ir::ShloAttr::Fields attributes = {{"lhs_batching_dimensions", List(lhs_batching)},
                                     {"rhs_batching_dimensions", List(rhs_batching)},
                                     {"lhs_contracting_dimensions", List(lhs_contracting)},
                                     {"rhs_contracting_dimensions", List(rhs_contracting)}};
  if (const ir::ShloAttr* const precision = op.Find("precision_config"))
    attributes.push_back({"precision_config", *precision});
  return As(op, "stablehlo.dot_general", std::move(factors), std::move(attributes));
}

// Vectors and matrices: the last dimension against the first.
Values ReadDot(StableHloOp& op) {
  if (!Expect(op, 2)) return {};
  const auto rank = static_cast<int64_t>(op.operands[0].dims().size());
  if (rank == 0 || op.operands[1].dims().empty()) {
    op.b.Fail(UserError("both factors must have dimensions"));
    return {};
  }
  return DotGeneral(op, op.operands, {}, {}, {rank - 1}, {0});
}

// Value `x` with the dimensions named by `labels`, summed over those that `keep` does not have.
Value SumOthers(ir::Builder& b, const Value& x, std::string& labels, std::string_view keep) {
  Ints summed;
  std::string left;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (keep.find(labels[i]) == std::string_view::npos) {
      summed.push_back(static_cast<int64_t>(i));
    } else {
      left += labels[i];
    }
  }
  labels = left;
  return summed.empty() ? x : ops::Reduce(b, x, ops::Reducer::kSum, summed);
}

// Letters, each once in an operand, each of the result in some operand.
bool LabelsFit(StableHloOp& op, std::span<const std::string> operands, std::string_view result) {
  std::string known;
  bool fits = true;
  const auto once = [](std::string_view labels) {
    return std::ranges::all_of(labels,
                               [&](char c) { return absl::ascii_isalpha(c) && std::ranges::count(labels, c) == 1; });
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    known += operands[i];
    fits = fits && once(operands[i]) && operands[i].size() == op.operands[i].dims().size();
  }
  fits =
      fits && once(result) && std::ranges::all_of(result, [&](char c) { return known.find(c) != std::string::npos; });
  if (fits) return true;
  op.b.Fail(UserError("einsum_config is \"", op.Word("einsum_config"),
                      "\"; it must name each dimension of each operand by a letter, once, as in \"ab,bc->ac\""));
  return false;
}

Value PutInOrder(ir::Builder& b, Value x, std::string_view from, std::string_view to) {
  Ints permutation;
  for (char label : to) permutation.push_back(static_cast<int64_t>(from.find(label)));
  return ops::Transpose(b, std::move(x), std::move(permutation));
}

Values ReadUnaryEinsum(StableHloOp& op) {
  if (!Expect(op, 1)) return {};
  const std::string config = op.Word("einsum_config");
  const size_t arrow = config.find("->");
  std::string x = config.substr(0, arrow);
  const std::string result = arrow == std::string::npos ? "" : config.substr(arrow + 2);
  if (!LabelsFit(op, {&x, 1}, result)) return {};
  const Value summed = SumOthers(op.b, op.operands[0], x, result);
  return {PutInOrder(op.b, summed, x, result)};
}

Values ReadEinsum(StableHloOp& op) {
  if (!Expect(op, 2)) return {};
  const std::string config = op.Word("einsum_config");
  const size_t comma = config.find(','), arrow = config.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    op.b.Fail(UserError("einsum_config is \"", config, "\"; it must be as in \"ab,bc->ac\""));
    return {};
  }
  std::string labels[2] = {config.substr(0, comma), config.substr(comma + 1, arrow - comma - 1)};
  const std::string result = config.substr(arrow + 2);
  if (!LabelsFit(op, labels, result)) return {};
  Values factors;
  const std::string both[2] = {absl::StrCat(labels[1], result), absl::StrCat(labels[0], result)};
  for (int i : {0, 1}) factors.push_back(SumOthers(op.b, op.operands[i], labels[i], both[i]));
  Ints batching[2], contracting[2];
  std::string batch, free;
  for (size_t i = 0; i < labels[0].size(); ++i) {
    const size_t j = labels[1].find(labels[0][i]);
    const bool kept = result.find(labels[0][i]) != std::string::npos;
    if (j == std::string::npos) {
      free += labels[0][i];
      continue;
    }
    (kept ? batching : contracting)[0].push_back(static_cast<int64_t>(i));
    (kept ? batching : contracting)[1].push_back(static_cast<int64_t>(j));
    if (kept) batch += labels[0][i];
  }
  for (char label : labels[1]) {
    if (labels[0].find(label) == std::string::npos) free += label;
  }
  const Values product = DotGeneral(op, std::move(factors), batching[0], batching[1], contracting[0], contracting[1]);
  if (!op.b.ok()) return product;
  return {PutInOrder(op.b, product[0], batch + free, result)};
}

// New dimensions in front.
Values ReadBroadcast(StableHloOp& op) {
  if (!Expect(op, 1)) return {};
  const Value& x = op.operands[0];
  const Ints sizes = op.Ints("broadcast_sizes");
  Dims dims(sizes.begin(), sizes.end());
  Ints positions;
  for (int64_t dim : x.dims()) {
    positions.push_back(static_cast<int64_t>(dims.size()));
    dims.push_back(dim);
  }
  return {ops::BroadcastInDim(op.b, x, dims, std::move(positions))};
}

// Slices of one dimension at indices, with leading dimensions that run along.
Values ReadTorchIndexSelect(StableHloOp& op) {
  if (!Expect(op, 2)) return {};
  const Value &x = op.operands[0], &index = op.operands[1];
  const auto rank = static_cast<int64_t>(x.dims().size()), index_rank = static_cast<int64_t>(index.dims().size());
  const int64_t dim = op.Int("dim", 0), batch = op.Int("batch_dims", 0);
  if (dim < 0 || dim >= rank || batch < 0 || batch > dim || batch > index_rank) {
    op.b.Fail(
        UserError("dim is ", dim, " and batch_dims ", batch, " for operands of rank ", rank, " and ", index_rank));
    return {};
  }
  Ints along = ops::Axes(batch), offset, sizes;
  for (int64_t d = 0; d < rank; ++d) {
    const bool whole = d >= batch && d != dim;
    sizes.push_back(whole ? x.dims()[d] : 1);
    if (whole) offset.push_back(d < dim ? d : d + index_rank - batch - 1);
  }
  return {
      ops::Call(op.b, ops::kOp_gather, {x, index}, {offset, Ints{dim}, Ints{dim}, index_rank, sizes, along, along})};
}

Values ReadSort(StableHloOp& op) { return ops::ReadByBody(op, ops::kOp_sort_by); }

Values ReadCall(StableHloOp& op) {
  return ops::CallAll(op.b, ops::kOp_call, op.OperandsAndCaptures(), {}, op.Functions());
}

// Reads the body as one of whole values, where a shard is the whole.
Values ReadManual(StableHloOp& op) {
  op.Understand({"in_shardings", "out_shardings", "manual_axes"});
  return ReadCall(op);
}

// Reads an operation that changes nothing on one device, where every value lies where it should.
Values ReadUnchanged(StableHloOp& op) {
  op.Understand({"call_target_name"});
  return Expect(op, 1) ? op.operands : Values();
}

// n inputs, n first values of a reduction that nobody makes here; the best of each row, sorted exactly.
Values ReadApproxTopK(StableHloOp& op) {
  op.Understand({"call_target_name", "backend_config", "mhlo.backend_config", "api_version"});
  const ir::ShloAttr* config = op.Find("mhlo.backend_config");
  if (config == nullptr || config->kind != ir::ShloAttr::Kind::kFields) config = op.Find("backend_config");
  const auto number = [&](std::string_view name) -> int64_t {
    const ir::ShloAttr* found = config == nullptr ? nullptr : config->Find(name);
    return found == nullptr || found->kind != ir::ShloAttr::Kind::kInt ? -1 : found->integer;
  };
  const size_t n = op.operands.size() / 2;
  const int64_t k = number("top_k"), dim = number("reduction_dim");
  if (n == 0 || op.operands.size() % 2 != 0 || op.results.size() != n || op.regions.size() != 1) {
    op.b.Fail(UserError("ApproxTopK takes n inputs, n initial values and one comparator, and has n results; there are ",
                        op.operands.size(), " operands, ", op.regions.size(), " comparators and ", op.results.size(),
                        " results"));
    return {};
  }
  const Values inputs(op.operands.begin(), op.operands.begin() + static_cast<ptrdiff_t>(n));
  const Dims& dims = inputs[0].dims();
  if (dim < 0 || dim >= static_cast<int64_t>(dims.size()) || k < 0 || k > dims[static_cast<size_t>(dim)]) {
    op.b.Fail(UserError("reduction_dim is ", dim, " and top_k ", k, " for inputs ", DimsToString(dims)));
    return {};
  }
  if (number("aggregate_to_topk") != 1) {
    return op.Refuse("ApproxTopK with aggregate_to_topk = false leaves the size of its results to the compiler");
  }
  Values sorted = ops::CallAll(op.b, ops::kOp_sort_by, inputs, {dim, true}, op.Functions());
  if (!op.b.ok()) return sorted;
  Ints start(dims.size(), 0), limit(dims.begin(), dims.end()), strides(dims.size(), 1);
  limit[static_cast<size_t>(dim)] = k;
  for (Value& x : sorted) x = ops::Slice(op.b, x, start, limit, strides);
  return sorted;
}

constexpr Rule kRewrites[] = {
    {"func.call", ReadCall},
    {"stablehlo.composite", ReadCall},  // of its decomposition; name, attributes and version stay on the node
    {"stablehlo.sort", ReadSort},
    {"stablehlo.dot", ReadDot},
    {"stablehlo.einsum", ReadEinsum},
    {"stablehlo.unary_einsum", ReadUnaryEinsum},
    {"stablehlo.broadcast", ReadBroadcast},
    {"stablehlo.torch_index_select", ReadTorchIndexSelect},
    {"stablehlo.custom_call @ApproxTopK", ReadApproxTopK},
    {"stablehlo.custom_call @Sharding", ReadUnchanged},
    {"stablehlo.custom_call @SPMDFullToShardShape", ReadUnchanged},
    {"stablehlo.custom_call @SPMDShardToFullShape", ReadUnchanged},
    {"stablehlo.custom_call @xla.sdy.FuncResultSharding", ReadUnchanged},
    {"stablehlo.custom_call @annotate_device_placement", ReadUnchanged},
    {"sdy.sharding_constraint", ReadUnchanged},
    {"stablehlo.uniform_quantize", ReadUnchanged},    // what it says is in the types of the
    {"stablehlo.uniform_dequantize", ReadUnchanged},  // operand and the result (quantization.cc)
    {"sdy.manual_computation", ReadManual},
};

}  // namespace

std::span<const Rule> Rewrites() { return kRewrites; }

}  // namespace weft::stablehlo
