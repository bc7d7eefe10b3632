// See cost.h. What only moves elements costs nothing here.
#include "src/compiler/cost.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "src/ir/rewrite.h"
#include "src/ops/conv/conv_shape.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"

namespace weft::compiler {
namespace {

using ir::Node;

Cost operator*(double times, const Cost& cost) { return {times * cost.flops, times * cost.transcendentals}; }
Cost operator+(const Cost& a, const Cost& b) { return {a.flops + b.flops, a.transcendentals + b.transcendentals}; }
double Weight(const Cost& cost) { return cost.flops + cost.transcendentals; }

double Count(const ir::Type& type) { return type.is_tensor() ? static_cast<double>(CountOf(type.dims)) : 0; }

// What functions cost that are known already.
class Costs {
 public:
  absl::StatusOr<Cost> Of(const ir::Function& function) {
    Cost all;
    for (const Node* node : function.nodes()) {
      WEFT_ASSIGN_OR_RETURN(const Cost one, OfNode(*node));
      all = all + one;
    }
    return known_[&function] = all;
  }

 private:
  // Callees come first.
  const Cost& OfRegion(const Node& node, size_t i) { return known_[node.regions()[i].get()]; }

  Cost OfControl(const Node& node) {
    const ir::OpDef& op = node.op();
    if (&op == &ops::kOp_scan) return static_cast<double>(ops::ScanAttrs{node.attrs()}.length()) * OfRegion(node, 0);
    if (&op == &ops::kOp_case || &op == &ops::kOp_if) {
      Cost dearest;
      for (size_t i = 0; i < node.regions().size(); ++i) {
        if (Weight(OfRegion(node, i)) > Weight(dearest)) dearest = OfRegion(node, i);
      }
      return dearest;
    }
    Cost all;  // a call; one run of a while and its condition
    for (size_t i = 0; i < node.regions().size(); ++i) all = all + OfRegion(node, i);
    return all;
  }

  // A function of scalars at every element that goes in, or at every place of a window.
  double ScalarCalls(const Node& node) {
    const ir::OpDef& op = node.op();
    const double elements = Count(node.operands()[0].type()), results = Count(node.type());
    if (&op == &ops::kOp_map) return results;
    if (&op == &ops::kOp_reduce || &op == &ops::kOp_reduce_by) return std::max(elements - results, 0.0);
    if (&op == &ops::kOp_reduce_window || &op == &ops::kOp_reduce_window_by) {
      const ir::Ints& window = &op == &ops::kOp_reduce_window
                                   ? ops::ReduceWindowAttrs{node.attrs()}.window_dimensions()
                                   : ops::ReduceWindowByAttrs{node.attrs()}.window_dimensions();
      return results * std::max(static_cast<double>(CountOf(window)) - 1, 0.0);
    }
    if (&op == &ops::kOp_scatter || &op == &ops::kOp_scatter_by) return Count(node.operands().back().type());
    if (&op == &ops::kOp_select_and_scatter || &op == &ops::kOp_select_and_scatter_by) return elements;
    if (&op == &ops::kOp_sort_by) return elements * std::log2(std::max(elements, 2.0));
    return 0.0;
  }

  static absl::StatusOr<Cost> OfProduct(const Node& node) {
    const ir::OpDef& op = node.op();
    const ir::Type& x = node.operands()[0].type();
    const double results = Count(node.type());
    if (&op == &ops::kOp_dot_general) {
      double summed = 1;
      for (const int64_t d : ops::DotGeneralAttrs{node.attrs()}.lhs_contracting_dimensions()) {
        summed *= static_cast<double>(x.dims[static_cast<size_t>(d)]);
      }
      return Cost{.flops = 2 * results * summed};
    }
    if (&op == &ops::kOp_convolution) {
      const ir::Type& kernel = node.operands()[1].type();
      WEFT_ASSIGN_OR_RETURN(const ops::ConvShape shape, ops::ReadConv(op, node.attrs(), x.dims, kernel.dims));
      return Cost{.flops = 2 * results * Count(kernel) / static_cast<double>(std::max<int64_t>(shape.out_features, 1))};
    }
    const double n = x.dims.empty() ? 1 : static_cast<double>(x.dims.back());
    if (&op == &ops::kOp_cholesky) return Cost{.flops = results * n / 3};
    if (&op == &ops::kOp_triangular_solve) return Cost{.flops = results * n};
    return Cost{};
  }

  absl::StatusOr<Cost> OfNode(const Node& node) {
    const ir::OpDef& op = node.op();
    const bool control =
        op.calls || &op == &ops::kOp_scan || &op == &ops::kOp_while || &op == &ops::kOp_case || &op == &ops::kOp_if;
    if (control) return OfControl(node);
    if (node.operands().empty()) return Cost{};  // literals, indices
    if (op.lowering == ir::Lowering::kScalar) {
      const double count = Count(node.type());
      return op.cost == ir::Cost::kCheap ? Cost{.flops = count} : Cost{.transcendentals = count};
    }
    const double calls = ScalarCalls(node);
    if (calls == 0) return OfProduct(node);
    return node.regions().empty() ? Cost{.flops = calls} : calls * OfRegion(node, node.regions().size() - 1);
  }

  std::unordered_map<const ir::Function*, Cost> known_;
};

}  // namespace

absl::StatusOr<Cost> CostOf(const ir::Function& function) {
  ir::Module module;
  module.functions.push_back(ir::OwnNodes(function));
  WEFT_RETURN_IF_ERROR(passes::CheckCalls(module));
  WEFT_ASSIGN_OR_RETURN(module, passes::MergeCalls(module, {}));
  // A scan says how long it is; its expansion does not.
  const passes::PipelineOptions options = {.claims = [](const Node& node) { return &node.op() == &ops::kOp_scan; }};
  WEFT_ASSIGN_OR_RETURN(module, passes::ExpandComposites(module, options));
  Costs costs;
  Cost all;
  for (const ir::Function* one : ir::CalleesFirst(module.main())) {
    WEFT_ASSIGN_OR_RETURN(all, costs.Of(*one));
  }
  return all;
}

}  // namespace weft::compiler
