// Decides which nodes one kernel computes. It is greedy, from the results upwards: a node joins the kernel of its users. A producer whose users all
// sit in one kernel can never close a cycle; one with users elsewhere becomes a second result of the kernel if no path leads
// back into it.
#pragma once

#include <vector>

#include "src/passes/fuse_graph.h"

namespace weft::passes {

// A group is computed at once: one kernel, or a node that is not fused.
struct FuseGroup {
  std::vector<int> nodes;
  int level = 0;  // higher than that of every group that uses one of the nodes
  Dims domain;    // squeezed; of the elements, or of the rows where row_only
  bool reduces = false;
  RowSpace space;
  bool parts = false;  // a node joins parts of the domain
};

class FuseGroups {
 public:
  explicit FuseGroups(FuseGraph& graph);
  FuseGroups(const FuseGroups&) = delete;
  FuseGroups& operator=(const FuseGroups&) = delete;

  int size() const { return static_cast<int>(groups_.size()); }
  // The group that a node which is no parameter and not inline belongs to.
  int of(int n) const { return of_[n]; }
  // A group's nodes in the function's order.
  const std::vector<int>& nodes(int g) const { return groups_[g].nodes; }

 private:
  void Place(int n);
  FuseGroup& Open(int n);
  bool JoinsSiblings(int n);
  bool Joins(int n, int g, bool only);
  bool StaysAcyclic(int n, int g);
  bool IsOutput(int n, const FuseGroup& group) const;
  bool OutputsFit(const FuseGroup& group) const;
  bool RowsWork(const FuseGroup& group) const;

  FuseGraph& graph_;
  std::vector<int> of_;
  std::vector<FuseGroup> groups_;
};

}  // namespace weft::passes
