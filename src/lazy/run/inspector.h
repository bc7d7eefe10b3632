// Computes values one operation after the other, into functions, branches and loops, and finds the first operation that makes a bad
// number out of good ones: for mode debug at once, for the option first_bad behind a launch whose results are bad.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "src/compiler/program_cache.h"
#include "src/lazy/record/mesh_state.h"
#include "src/lazy/record/recorder.h"
#include "src/lazy/service/bad_values.h"
#include "src/lazy/service/services.h"

namespace weft::lazy {

class Evaluator;

// Says in an error of Check where the operation is: ", in @f", before what its operands and results hold.
absl::Status Within(const absl::Status& status, std::string_view place);

// Thread rule: under the lock that is handed in, which is open while values are waited for and read.
class Inspector {
 public:
  using Lock = Recorder::Lock;
  Inspector(Evaluator& evaluator, Services& services, const Options& options)
      : evaluator_(evaluator), services_(services), options_(options) {}

  // --- Mode debug. A bad number is NaN unless first_bad says otherwise.
  // An operation whose operands and results are known. FAILED_PRECONDITION names it if a result is bad and no operand is.
  absl::Status Check(Lock& lock, const ir::OpDef& op, std::span<const ir::Value> operands,
                     std::span<const ir::Value> results);
  // Returns the error of the first bad operation inside the node's functions, or `status`, Check's of the node itself.
  absl::Status Narrowed(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                        absl::Status status);
  // Both.
  absl::Status CheckInside(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                           std::span<const ir::Value> results);
  // Computes a call's results by the operations of its function, and of those that it calls, and checks each.
  absl::Status StepThrough(Lock& lock, MeshState& state, ir::Values* results);

  // --- The option first_bad
  // Waits for a launch; where a result of a float type is bad, computes the program again one operation after the other, of the
  // arguments, which are as they were. FAILED_PRECONDITION names the first operation. How the launch itself went is not said here.
  absl::Status Look(Lock& lock, MeshState& state, const compiler::Program& program,
                    std::span<const Ref<Data>> arguments, std::span<const Ref<Data>> results);
  // Returns true while this thread inspects; launches of an inspection are not inspected.
  static bool Looking() { return looking_; }

 private:
  class Looks;
  Bad bad() const { return options_.first_bad == Bad::kOff ? Bad::kNan : options_.first_bad; }
  std::string_view way() const { return options_.mode == Mode::kDebug ? "debug mode" : "first_bad"; }
  absl::Status Step(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                    ir::Values* results);
  // An operation inside the node that makes the first bad number. OK: there is none, or what it carries is not computed alone.
  absl::Status Inside(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands, int depth);
  absl::Status InsideScan(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands, int depth);
  absl::Status InsideWhile(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands, int depth);
  absl::Status InsideBranch(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands, int depth);
  // One function: its results, or the error of the first bad operation. `place` is said behind it, `at` knows positions of nodes that
  // have none (null: nobody does).
  struct Body {
    const ir::Function& function;
    std::span<const ir::Value> arguments;
    std::string_view place;
    std::span<const ir::Location> positions = {};  // of the nodes behind the parameters; empty: their own
    int depth = 0;
  };
  absl::Status Run(Lock& lock, MeshState& state, const Body& body, ir::Values* results);
  // The first element, as an integer, of a value that is known.
  absl::StatusOr<int64_t> Number(Lock& lock, const ir::Value& value);
  // Computes the launch again and returns an error that names the first bad operation. `found` describes the bad result.
  absl::Status FirstOf(Lock& lock, MeshState& state, const compiler::Program& program,
                       std::span<const Ref<Data>> arguments, const std::string& found);

  static constinit thread_local bool looking_;
  Evaluator& evaluator_;
  Services& services_;
  const Options& options_;
};

}  // namespace weft::lazy
