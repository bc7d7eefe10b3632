// A random program as a list of calls, which can be built into a function, recorded through the engine, printed and made
// smaller. What it consists of is decided in random_moves.cc and its siblings.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/ir/function.h"
#include "src/ir/op_def.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/status.h"

namespace weft::test {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) { state_ = Next(); }  // neighbouring seeds must not run through the same numbers
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, n), in [low, high), with probability p.
  int64_t Below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low); }
  double Uniform(double low = 0, double high = 1) { return low + (high - low) * static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return Uniform() < p; }
  template <typename C>
  const auto& Pick(const C& from) {
    return from[static_cast<size_t>(Below(static_cast<int64_t>(std::size(from))))];
  }

 private:
  uint64_t state_;
};

struct RandomProgram {
  // Items make values, numbered in order over all of them.
  struct Item {
    enum class Kind : uint8_t {
      kLeaf,      // the tensors in `leaf`
      kConstant,  // the same as literals, for bodies: a leaf is a parameter
      kCall,      // `op` on `operands` (values; -1: absent), with the functions that `bodies` are
      kGradient,  // of operands[0], one float, for the others
      kDropped,   // nothing: its values have no users
    };
    Kind kind = Kind::kLeaf;
    std::vector<HostTensor> leaf;
    const ir::OpDef* op = nullptr;
    std::vector<int> operands;
    ir::Attrs attrs;
    std::vector<RandomProgram> bodies;  // their leaves are what they are given in their first run
    int first = 0;                      // number of the first value
    int count = 1;
  };
  std::vector<Item> items;
  std::vector<int> outputs;  // values; leaves and repetitions too
  int values = 0;
};

// Items as nodes: parameters for leaves, in order.
struct BuiltProgram {
  Ref<const ir::Function> function;
  std::vector<HostTensor> arguments;
  std::vector<ir::Value> values;  // by number; empty where dropped
};
absl::StatusOr<BuiltProgram> BuildProgram(const RandomProgram& program);
// How many bodies it has, those in bodies too.
int CountBodies(const RandomProgram& program);

// What a random program may consist of.
struct RandomOptions {
  int calls = 30;
  bool smooth = false;     // f64 alone and nothing that cuts the derivative: for finite differences
  bool gradients = true;   // sometimes differentiates a value at the end
  bool random = true;      // operations that draw random numbers
  double control = 0;      // share of programs with loops, branches and calls, which nest
  double large = 0;        // share of programs with few calls on large tensors
  double hollow = 0;       // share of programs whose tensors are mostly empty, of one element or of rank 0
  double wild = 0.03;      // share of programs with infinities, NaN and values that overflow
};
RandomProgram MakeRandomProgram(uint64_t seed, const RandomOptions& options = {});

// The smallest program found for which `fails` still holds, by dropping outputs and putting the reference's values in
// the place of calls, those in bodies too.
RandomProgram Shrink(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails);
// The function's text and the small arguments' values.
std::string ToString(const RandomProgram& program);

// --- For random_*_moves.cc ----------------------------------------------------------------------------------------------
// Grows a program call by call, and knows the value of everything it has made so far.
class ProgramMaker {
 public:
  ProgramMaker(uint64_t seed, const RandomOptions& options);

  Rng rng;
  const RandomOptions options;
  DType main = DType::kF32;      // most floats are of this type
  std::vector<int64_t> sizes;    // most dimensions are one of these
  bool wild = false;
  bool large = false;
  bool hollow = false;
  bool control = false;
  int depth = 0;                 // bodies around this one
  // Of one value: the reference is slow, and runs bodies many times.
  int64_t max_elements() const { return depth > 0 ? 600 : large ? 60'000 : 6'000; }

  // A new argument: values in [low, high) for floats; integers and bools as fits the type. -1 if it would be too large.
  int Leaf(DType dtype, const Dims& dims, double low = -2, double high = 2);
  int LeafOf(HostTensor value);
  // -1 if the operation refuses the operands, or the result is too large or too wild.
  int Call(const ir::OpDef& op, std::vector<int> operands, ir::Attrs attrs = {}, std::vector<RandomProgram> bodies = {});
  int Call(const ir::OpDef& op, std::vector<int> operands,
           std::initializer_list<std::pair<std::string_view, ir::AttrValue>> attrs, std::vector<RandomProgram> bodies = {});
  // Appends the gradient of `loss` for some float leaves.
  void Gradient(int loss, const std::vector<int>& wrt);

  size_t size() const { return values_.size(); }
  const ir::Type& type(int value) const { return values_[static_cast<size_t>(value)].type(); }
  const Dims& dims(int value) const { return type(value).dims; }
  const HostTensor& host(int value) { return known_.at(values_[value].node.get())[values_[value].result]; }
  const std::vector<int>& leaves() const { return leaves_; }
  bool is_computed(int value) const { return std::ranges::find(leaves_, value) == leaves_.end(); }
  bool is_used(int value) const { return used_[static_cast<size_t>(value)]; }
  // A value that fits, young ones more often; -1 if there is none.
  int Find(const std::function<bool(const ir::Type&)>& fits);

  RandomProgram Finish(std::vector<int> outputs);

 private:
  absl::Status Evaluate(std::span<const ir::Value> results, bool* acceptable);
  int Append(RandomProgram::Item item, std::vector<ir::Value> results);

  RandomProgram program_;
  std::vector<ir::Value> values_;
  std::vector<bool> used_;  // by a later item
  std::vector<int> leaves_;
  absl::flat_hash_map<const ir::Node*, std::vector<HostTensor>> known_;
};

}  // namespace weft::test
