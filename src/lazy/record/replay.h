// A step that arrives as one before is not built. Each mesh has steps of its own. Between two barriers every call is noted
// in a canonical form: operation, attributes, operands as numbers. As long as the calls of a step are those of a noted one,
// they make no nodes: tensors show numbers, and at the barrier the program of the noted step is launched on what the numbers
// of this one stand for. Forms are compared, never hashed. At the first difference, and before the engine does anything that
// is not noted here, the calls so far are recorded after all, as they came, so that nobody can tell.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/compiler/program_cache.h"
#include "src/lazy/record/frame.h"
#include "src/lazy/record/update.h"
#include "src/runtime/hash_map.h"

namespace weft::lazy {

class CutPlanner;
class Recorder;

// How a value is assigned: whether gradients go on to the values that it was made of.
enum class Past : uint8_t { kCut, kKept };
inline std::string_view NameOf(Past past) { return past == Past::kCut ? "assign" : "copy_from"; }

// Thread rule: under the engine's lock.
class Replay {
 public:
  // A replay sees the calls of its mesh alone; calls for other meshes do not interrupt it.
  Replay(Recorder& recorder, MeshState& state) : recorder_(recorder), state_(state) {}
  // Starts noting calls; a lazy engine calls it.
  void Enable() {
    enabled_ = true;
    steps_.reserve(kSteps);
  }

  // Why a step that had begun was built after all.
  enum class Miss : uint8_t {
    kNone,
    kOther,
    kRead,
    kEvaluated,
    kText,
    kRun,
    kCompiled,
    kGradientWanted,
    kBody,
    kThread,
    kFailed,
    kCut,
    kDiffers,
    kTooLong,
    kUnknown,
    kTensors,
    kLaunch,
  };

  // --- Calls ---------------------------------------------------------------------------------------------------------
  enum class Kind : uint8_t { kOperation, kLiteral, kGradient, kOpGradient, kUpdate, kAssign, kAlias };
  struct Call {
    Kind kind;
    const ir::OpDef* op = nullptr;
    const ir::Attrs& attrs;
    Ref<const UpdateRule> rule;
    ir::Location location;
    uint64_t draws = 0;  // blocks, where the call is noted
    ir::RegionSpan regions = {};
  };
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Result {
    uint32_t number;  // of the value; results that are one value have one. kAbsent: there is none
    ir::Type type;
    const ir::OpDef* maker = nullptr;
    bool needs_gradient = false;
  };

  // Tells whether calls are to be noted, or compared.
  bool active() const { return mode_ != Mode::kIdle; }
  bool noting() const { return mode_ == Mode::kNoting; }
  // Tells whether there are tensors without a value.
  bool deferring() const { return !deferred_.empty(); }

  // The call in hand, word by word: what a tensor shows (null: nothing), a leaf that no tensor shows, or a number.
  void Begin() { words_.clear(); }
  void Add(const Tensor* tensor);
  void AddLeaf(const ir::Value& leaf);
  void AddNumber(size_t number) { words_.push_back(static_cast<uint32_t>(number)); }
  // Tells whether the call is the noted one at this place, and so deferred: no nodes are made for its results. If it is
  // not, the deferred calls have been recorded, and this call is to be recorded and then Noted.
  bool Defer(const Call& call, std::span<const Result>* results);
  // The call has been recorded, in so many nodes. Returns its results, or none if the step is not noted any more.
  std::span<const Result> Noted(const Call& call, std::span<const ir::Value> results, int64_t nodes);
  void Number(Tensor& tensor, uint32_t number) const {
    tensor.state.step = step_;
    tensor.state.number = number;
  }

  // Something comes that is not noted and may change what is pending: records what was deferred, notes nothing until the next
  // barrier. Where memory runs out, all is as before and the call may be repeated.
  void Interrupt(Miss why) {
    if (mode_ == Mode::kIdle) return;
    if (next_number_ > 0) Missed({why});
    End();
  }
  // Why a step was built that had begun, as a sentence; empty: none was.
  std::string LastMiss() const;

  // --- Barriers ------------------------------------------------------------------------------------------------------
  struct Shown {
    uint32_t number, output;
  };
  struct Argument {
    uint32_t data;  // number among those the step has met
    int32_t donated_to;
  };
  // The launch of a noted step.
  struct Plan {
    std::vector<Shown> shown;  // by the tensors whose values are outputs, in their order
    size_t outputs = 0;
    double bytes = 0;  // of the outputs
    std::vector<Argument> arguments;
    std::shared_ptr<const compiler::Program> program;  // null: none could be noted
    size_t nodes = 0;
  };
  // The plan of a noted step that is the deferred one, up to which tensors are left; null if there is none.
  const Plan* Complete();
  // The step is not launched as a noted one: records it.
  void Diverge(Miss why);
  // A barrier comes, and later this is about to be launched for it. Others may have had the lock in between: what they call is
  // not noted, and which tensors they have left is looked at here.
  void BarrierBegins();
  // The cut of the deferred step as its plan has it: outputs are new leaves, `shown` are those of the plan's tensors. False if
  // what may be taken over is not what it was.
  bool MakeCut(CutPlanner& planner, const Plan& plan, std::vector<ir::Value>* shown, Cut* cut) const;
  // `bytes`: of the cut's outputs.
  void Planned(const Cut& cut, const std::shared_ptr<const compiler::Program>& program, double bytes);
  // The step is through. `clean`: all live values are known.
  void Start(bool clean);

  bool IsDeferred(const Tensor& tensor) const {
    return !tensor.value() && !tensor.state.expired && tensor.state.step == step_;
  }
  // The output that the value of a deferred tensor is, and the number of outputs if it is none.
  size_t OutputOf(const Plan& plan, const Tensor& tensor) const;
  // The leaf or result behind a number of the deferred step.
  const ir::Value& LeafOf(uint32_t data) const { return leaves_[data_[data].first]; }
  const Result& ResultOf(uint32_t number) const { return current_->results[number]; }

 private:
  enum class Mode : uint8_t { kIdle, kNoting, kReplaying };
  // The properties in which a leaf must agree to be the same.
  struct Leaf {
    ir::Type type;
    uint32_t data = 0;  // its number: several leaves may show one
    uint32_t words = 0;
    bool needs_gradient = false;
    const ir::Sharding* cut = nullptr;  // how it lies on the mesh
    friend bool operator==(const Leaf&, const Leaf&) = default;
  };
  struct Entry {
    Kind kind;
    const ir::OpDef* op;
    Ref<const UpdateRule> rule;
    ir::Attrs attrs;
    size_t words_end, results_end, leaves_end;  // of this and all before
    int64_t nodes;
    uint64_t draws;
    std::vector<Ref<const ir::Function>> regions;
  };
  struct Step {
    std::vector<Entry> entries;
    std::vector<uint32_t> words;
    std::vector<Result> results;
    std::vector<Leaf> leaves;
    Plan plan;
  };

  static constexpr uint32_t kNothing = UINT32_MAX, kUnknown = UINT32_MAX - 2;
  struct Cause {
    Miss why = Miss::kNone;
    const ir::OpDef* op = nullptr;  // of a call that differs
    Kind kind = Kind::kOperation;
    size_t at = 0;
    ir::Location location = {};
  };
  void Missed(const Cause& cause);
  // The numbers of different steps that are kept, and of calls in each.
  static constexpr size_t kSteps = 4, kMostCalls = 65'536;
  // After so many steps in a row that were noted in vain, so many are not.
  static constexpr uint32_t kTries = 8, kPause = 32;

  static std::span<const uint32_t> WordsOf(const Step& step, size_t entry);
  bool Has(const Step& step, const Call& call) const;
  static bool SameBefore(const Step& a, const Step& b, size_t entries);
  bool ShowsAs(const Plan& plan) const;
  // Visits the live tensors whose values a barrier computes.
  template <typename Use>
  void ForEachShown(Use&& use) const;
  // The step before had this leaf's tensor, at this place, and others after it: parameters are the same again. Each lies
  // apart, and the kernels have driven it out of every cache, so its next ones are prefetched meanwhile.
  void Foresee(const Tensor* tensor);
  void End();
  void DivergeFor(const Cause& cause);
  void Record();
  absl::Status RecordOne(const Entry& entry, std::span<const uint32_t> words, ir::Builder& b,
                         std::vector<ir::Value>* results);
  ir::Value ValueOf(uint32_t word) const;
  void ForgetStep();

  Recorder& recorder_;
  MeshState& state_;
  bool enabled_ = false;
  Mode mode_ = Mode::kIdle;
  uint64_t step_ = 0;  // no other step of the engine has this number
  // --- The step in hand
  uint32_t next_number_ = 0;
  std::vector<uint32_t> words_;    // of the call in hand
  std::vector<ir::Value> leaves_;  // by number, held as nodes would
  std::vector<Leaf> met_;          // what they are
  struct Met {
    uint32_t first;  // leaf
    bool several;
  };
  std::vector<Met> data_;
  struct Seen {
    const void *tensor, *node, *data;  // may be gone
  };
  std::vector<Seen> seen_;  // of this step up to where it is, of the one before behind
  size_t met_before_ = 0;
  std::vector<ir::Location> deferred_;
  size_t recorded_ = 0;            // of the deferred ones, where memory ran out in between
  std::vector<ir::Value> values_;  // their results
  std::unique_ptr<Step> noting_;
  HashMap<ir::Value, uint32_t> numbers_;  // of the results that are noted
  // --- All steps
  std::vector<std::unique_ptr<Step>> steps_;  // the one that came last first
  Step* current_ = nullptr;                   // of steps_: what is deferred is its beginning
  uint32_t in_vain_ = 0, pause_ = 0;
  Cause last_miss_;
};

}  // namespace weft::lazy
