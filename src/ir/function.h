// A function is a finished piece of graph: parameters, nodes in order, results. A module is what gets compiled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/ir/mesh.h"
#include "src/ir/node.h"
#include "src/runtime/mutex.h"

namespace weft::ir {

// A backend must know this of an argument beyond its type.
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

class Function;

// A function's gradient in two steps. Forward computes the function's results and, behind them, what backward reads of what is
// inside; null where nothing is, and the function itself does. Backward's parameters are, in the order of `reads`: parameters
// of the function, results of forward, then cotangents, numbered through. Its results: cotangents of the wanted parameters.
struct SplitGradient final : public RefCounted {
  Ref<const Function> forward, backward;
  std::vector<uint32_t> reads;
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
  // How deep regions nest: 0 without any. Calls do not count: they are written out, one function after the other.
  int depth() const { return depth_; }
  // The functions that its nodes carry, each once, in order of first use.
  std::span<const Function* const> callees() const { return callees_; }
  // Nodes when all calls are written out.
  uint64_t size() const { return size_; }

  // Returns the object derived from this function under the key (its gradient, say), or null if there is none. It lives
  // as long as the function. Thread rule: any thread.
  Ref<const Function> Derived(std::string_view key) const;
  // Keeps it, or gives back what another thread has kept meanwhile. What itself keeps this function is only given back.
  Ref<const Function> Derive(std::string key, Ref<const Function> made) const;
  // The same of gradients in two steps.
  Ref<const SplitGradient> Split(std::string_view key) const;
  Ref<const SplitGradient> KeepSplit(std::string key, Ref<const SplitGradient> made) const;

  // Functions within functions die one after the other.
  static void Destroy(const Function* function);
  // Topological: operands before users; parameters first, in order.
  std::span<const Node* const> nodes() const { return nodes_; }

 private:
  friend Ref<const Function> Intern(Ref<const Function> function);
  ~Function() override;
  // Tells whether the functions in `from` keep this one alive, directly or through others.
  bool KeptBy(std::vector<const Function*> from) const;
  std::string name_;
  std::vector<Value> parameters_;
  std::vector<ParameterInfo> infos_;
  std::vector<Value> results_;
  std::vector<const Node*> nodes_;
  std::vector<const Function*> callees_;
  int depth_ = 0;
  uint64_t size_ = 0;
  // Written before anybody else has the function.
  mutable bool interned_ = false;
  mutable std::string code_;
  mutable const Function* next_dead_ = nullptr;
  mutable Mutex mutex_;
  mutable std::vector<std::pair<std::string, Ref<const Function>>> derived_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<std::pair<std::string, Ref<const SplitGradient>>> splits_ ABSL_GUARDED_BY(mutex_);
};

// The function and all that it carries at any depth, each once, callees before callers; those that `wanted` refuses, and what
// only they carry, are left out.
std::vector<const Function*> CalleesFirst(const Function& function, absl::FunctionRef<bool(const Function&)> wanted);
std::vector<const Function*> CalleesFirst(const Function& function);

// The one object for all functions of this process that compute the same, but for names and positions, which are those of the
// first; itself if it is that one. What it carries must be such objects. Thread rule: any thread.
Ref<const Function> Intern(Ref<const Function> function);

struct Regions {
  std::vector<Ref<const Function>> functions;
};

// functions[0] is the entry ("main").
struct Module {
  std::vector<Ref<const Function>> functions;
  uint32_t argument_words = 0;  // size of the u32 argument block
  Participants participants;
  bool draws =
      false;  // read from StableHLO: main's last parameter is a stream of random numbers, no argument of the text

  const Function& main() const { return *functions.front(); }
};

// All nodes reachable from the values, by id. `stop(node)` true: the node is in, its operands are not followed.
std::vector<const Node*> Reachable(std::span<const Value> values, bool (*stop)(const Node&) = nullptr);

}  // namespace weft::ir
