// A function's nodes as fusion sees them: which of them kernels compute, who uses each, and what joins must not tear apart.
#pragma once

#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/ir/function.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "src/passes/fuse.h"

namespace weft::passes {

// The index space of a reduction without its dimensions of size 1.
struct RowSpace {
  Dims full, kept;
  std::vector<bool> reduced;  // per dimension of full
  bool operator==(const RowSpace& other) const { return full == other.full && reduced == other.reduced; }

  bool suffix() const {
    bool seen = false;
    for (bool r : reduced) {
      if (seen && !r) return false;
      seen = seen || r;
    }
    return true;
  }
};
RowSpace SpaceOf(const ir::Node& reduce);

inline bool IsReduce(const ir::Node& node) { return node.op().lowering == ir::Lowering::kReduction; }
inline bool IsBroadcast(const ir::Node& node) { return &node.op() == &ops::kOp_broadcast_in_dim; }

// Nodes are known by their numbers in the function's order.
class FuseGraph {
 public:
  static constexpr int kNone = -1;
  // Inline nodes are computed where they are read; fused ones stand in groups; the others stand alone.
  enum class Kind { kOther, kInline, kFused };

  FuseGraph(const ir::Function& function, const FuseOptions& options);
  FuseGraph(const FuseGraph&) = delete;
  FuseGraph& operator=(const FuseGraph&) = delete;

  const ir::Function& function() const { return function_; }
  const FuseOptions& options() const { return options_; }
  int size() const { return static_cast<int>(nodes_.size()); }
  // The first node that is no parameter.
  int first() const { return static_cast<int>(function_.parameters().size()); }
  const ir::Node& node(int n) const { return *nodes_[n]; }
  int NumberOf(const ir::Value& value) const { return index_.at(value.node.get()); }
  Kind kind(int n) const { return kind_[n]; }

  // Fused users, seen through inline nodes; more than once where they read more than one of those.
  const std::vector<int>& users(int n) const { return users_[n]; }
  // Sorts these users and drops repetitions, also for later calls of users().
  const std::vector<int>& SortUsers(int n);
  // These, and users that are not fused.
  const std::vector<int>& consumers(int n) const { return consumers_[n]; }
  // Tells whether a result or a node that is not fused wants it, too.
  bool outside(int n) const { return outside_[n]; }
  // Tells whether node `n` takes long, or a value of its size that is computed on the way to it does.
  bool costly(int n) const { return costly_[n]; }
  // The reduction that node `n` is computed from, in its own size or a row at a time; none.
  int reduction_of(int n) const { return reduction_of_[n]; }

  // The node behind inline ones; none for a literal.
  int ProducerOf(const ir::Value& value) const;
  // The last of what a node is made of: a node that nothing reads may be placed as late as before that one, beside whatever else is
  // made of it.
  int LastBefore(int n) const;
  bool JoinsParts(const ir::Node& node) const { return options_.joins_parts != nullptr && options_.joins_parts(node); }
  // Tells whether node `n` follows one product alone, and its only user joins it with a value that follows a later
  // product. Then each product has an epilogue of its own. (A residual block whose shortcut is a convolution, too.)
  bool EndsOtherSums(int n, int user) const;
  // Tells whether a product stands right before what follows it, wherever it stood: its blocks are still in a cache then. Unless operands
  // larger than its result would have to be kept meanwhile (a gradient of weights, which an update at the end reads).
  bool WaitsForUser(int n) const;
  // Tells whether node `n` chooses between a reduction and something else, in rows that no kernel walks twice. It begins
  // a kernel, which the reduction joins: where the kernel sees that nothing chooses the reduction, it need not compute
  // it.
  bool ChoosesSums(int n) const;
  // Tells whether node `n`, which takes long, is one value per row of a reduction that may join a kernel over these
  // elements. It is then computed once per row there (the root of a layer norm's variance).
  bool ComesFromRows(int n, const Dims& domain) const;
  // Tells whether several passes may walk the rows of a space.
  bool RowsFit(const RowSpace& space) const;

 private:
  void Classify();
  void FindUsers();
  bool IsCostly(int n) const;
  int ReductionOf(int n) const;
  int ProductBefore(int n, int steps) const;

  const ir::Function& function_;
  const FuseOptions& options_;
  std::vector<const ir::Node*> nodes_;
  absl::flat_hash_map<const ir::Node*, int> index_;
  std::vector<Kind> kind_;
  std::vector<std::vector<int>> users_, consumers_;
  std::vector<bool> outside_, costly_;
  std::vector<int> reduction_of_;
};

}  // namespace weft::passes
