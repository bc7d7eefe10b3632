// An optimizer's state in parts: each process of a job keeps one part of each slot, updates the same part of the parameters, and all
// of them put the new values together. Optimizers are split by this; who carries the values is the caller's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/ir/builder.h"
#include "src/lazy/value/tensor.h"

namespace weft::lazy {

class Engine;

// How many bytes travel together.
struct BucketSizes {
  int64_t first = int64_t{1} << 20, rest = int64_t{25} << 20;
};
// Which tensors of these types travel together: those of one dtype, the last first; empty ones nowhere. The same in all processes
// that have the same types.
std::vector<std::vector<size_t>> Buckets(std::span<const ir::Type* const> types, const BucketSizes& sizes);

// The parts of a state: whose they are, and the operations between them. Immutable, and of any thread.
class StateParts {
 public:
  virtual ~StateParts() = default;
  int64_t rank() const { return rank_; }
  int64_t count() const { return count_; }  // of parts; more than 1
  // The elements of one part of a tensor: as many in every process, the last ones of the last parts perhaps behind the tensor's end.
  int64_t PartOf(const Dims& dims) const;

  // Before a step is recorded.
  virtual void StepBegins(Engine& engine) const = 0;
  // Row `rank` of the sums over processes of x[count, n].
  virtual ir::Value Scatter(ir::Builder& b, ir::Value x) const = 0;
  // x[n] of all processes, [count, n].
  virtual ir::Value Gather(ir::Builder& b, ir::Value x) const = 0;
  // OK, or why tensors of this type do not travel.
  virtual absl::Status Carries(const ir::Type& type) const = 0;
  // All parts of a state tensor, put together in these dimensions, by values and not by operations: every process calls it.
  virtual absl::StatusOr<Ref<Tensor>> Whole(Tensor* part, const Dims& dims) const = 0;

 protected:
  StateParts(int64_t rank, int64_t count) : rank_(rank), count_(count) {}

 private:
  const int64_t rank_, count_;
};

// One step's way into parts and out of them.
class PartsOfStep {
 public:
  // `rank`: this process's, a number of the program's arguments, so that all processes have one program.
  PartsOfStep(ir::Builder& b, const StateParts& parts, std::span<const ir::Value> parameters, const ir::Value& rank);

  // This process's parts of the parameters.
  std::vector<ir::Value> Own() const;
  // Its parts of the means of these gradients over all processes.
  std::vector<ir::Value> MeansOf(std::span<const ir::Value> gradients) const;
  // The parameters, from the new parts of all processes.
  std::vector<ir::Value> Whole(std::span<const ir::Value> parts) const;

 private:
  // In one dimension, with zeros behind its end so that every process has a whole part.
  ir::Value Padded(const ir::Value& x) const;

  ir::Builder& b_;
  const StateParts& parts_;
  const std::vector<ir::Value> parameters_;
  const ir::Value rank_;
  std::vector<std::vector<size_t>> buckets_;
};

}  // namespace weft::lazy
