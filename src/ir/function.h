// A function is a finished piece of graph: parameters, nodes in order, results. A module is what gets compiled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/ir/node.h"

namespace weft::ir {

// What a backend must know of an argument beyond its type.
struct ParameterInfo {
  enum class Role : uint8_t {
    kBuffer,  // a device buffer
    kWords,   // a scalar or a small state inside the launch's u32 argument block
  };
  Role role = Role::kBuffer;
  // kBuffer: result that takes over this buffer, or -1. Donation is a promise of the caller, checked by the engine.
  int32_t donated_to = -1;
  // kWords: first word in the block; 64-bit elements take two words, low half first, 8- and 16-bit ones take a whole word.
  uint32_t word = 0;
  uint16_t device = 0;  // mesh slot
};

// Immutable once created. Results and nodes keep everything alive.
class Function final : public RefCounted {
 public:
  // Parameters are nodes of the operation "parameter". Nodes not reachable from the results (and not parameters) are
  // left out. Runs in O(n log n), iteratively.
  static Ref<const Function> Create(std::string name, std::vector<Value> parameters, std::vector<Value> results,
                                    std::vector<ParameterInfo> infos = {});

  const std::string& name() const { return name_; }
  std::span<const Value> parameters() const { return parameters_; }
  std::span<const ParameterInfo> parameter_infos() const { return infos_; }
  std::span<const Value> results() const { return results_; }
  // How deep regions nest: 0 without any.
  int depth() const { return depth_; }
  // Topological: operands before users; parameters first, in order.
  std::span<const Node* const> nodes() const { return nodes_; }

 private:
  std::string name_;
  std::vector<Value> parameters_;
  std::vector<ParameterInfo> infos_;
  std::vector<Value> results_;
  std::vector<const Node*> nodes_;
  int depth_ = 0;
};

struct Regions {
  std::vector<Ref<const Function>> functions;
};

// functions[0] is the entry ("main").
struct Module {
  std::vector<Ref<const Function>> functions;
  uint32_t argument_words = 0;  // size of the u32 argument block
  uint32_t replicas = 1;
  uint32_t partitions = 1;

  const Function& main() const { return *functions.front(); }
};

// All nodes reachable from the values, by id. `stop(node)` true: the node is in, its operands are not followed.
std::vector<const Node*> Reachable(std::span<const Value> values, bool (*stop)(const Node&) = nullptr);

}  // namespace weft::ir
