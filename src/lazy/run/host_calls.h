// Custom operations and matrix decompositions on devices whose programs cannot call the host (CustomCallers::kEngine): a cut stops at them, what they read is
// computed and fetched, the function runs on host memory, and its results are uploaded and known.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "src/lazy/cut/cut.h"
#include "src/lazy/record/recorder.h"
#include "src/lazy/service/services.h"
#include "src/runtime/work_queue.h"

namespace weft::lazy {

// Thread rule: under the engine's lock, but for Close. Functions run on a thread of this object's, one after the other, for which
// callers wait with the lock open.
class HostCalls {
 public:
  using Lock = Recorder::Lock;
  using Nodes = std::vector<Ref<const ir::Node>>;
  HostCalls(Recorder& recorder, Services& services, Metrics& metrics, const Options& options)
      : recorder_(recorder), services_(services), metrics_(metrics), options_(options) {}
  ~HostCalls();

  // Returns the nodes of a traced cut that the host has to compute and that need no other such node: custom operations, factors
  // of matrices, composites that expand to these, and calls of functions that have some. Those in loops and branches are left to the compiler, which refuses them by
  // name.
  Nodes Ready(const MeshState& state, const Cut& cut) const;
  // Calls the function of a custom operation, or computes factors, whose operands are known and shows what it gave. Where it failed, its
  // results have that outcome; any other error (no memory, the waiter gave up) has changed nothing.
  absl::Status Call(Lock& lock, MeshState& state, const ir::Node& node);
  // Tells whether the host computes but a part of the node: of a call, of a composite, of complex numbers.
  static bool WritesOut(const ir::Node& node);
  // Such a node's results on operations of their own, without calls that have custom operations.
  static absl::StatusOr<ir::Values> WrittenOut(const ir::Node& call);
  // The node is what these values are, which are known.
  static void Show(const ir::Node& node, std::span<const ir::Value> results);

  // Why nothing of the traced cut can be computed: the outcome of a function whose results it reads.
  static absl::Status Failed(const Cut& cut);
  // Makes that the outcome of all outputs; the cut is empty then.
  void Fail(MeshState& state, const absl::Status& outcome, Cut* cut) const;

  // Waits for what runs and ends the thread. Without the lock.
  void Close();

 private:
  struct Job;
  // The node's that runs, or a new one.
  absl::StatusOr<std::shared_ptr<Job>> JobOf(const MeshState& state, const ir::Node& node);
  void Fail(MeshState& state, const absl::Status& outcome, const ir::Value& value) const;

  Recorder& recorder_;
  Services& services_;
  Metrics& metrics_;
  const Options& options_;
  // Calls that somebody waits for, or has given up waiting for. Nodes end under the lock, so jobs have none.
  std::vector<std::pair<Ref<const ir::Node>, std::shared_ptr<Job>>> running_;
  std::unique_ptr<WorkQueue> queue_ = std::make_unique<WorkQueue>();
};

}  // namespace weft::lazy
