// Functions by themselves: one call on inputs that are known is a program of its own, compiled, launched and weighed.
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/ir/rewrite.h"
#include "src/lazy/engine.h"
#include "src/lazy/value/index_check.h"
#include "src/ops/build.h"
#include "src/ops/collective/processes.h"
#include "src/ops/control/draws.h"
#include "src/ops/registry.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {
namespace {

// Donated tensors, which nobody finds any more; shown again unless the run has been launched.
class Donation {
 public:
  explicit Donation(Recorder& recorder) : recorder_(recorder) {}
  ~Donation() {
    for (auto& [tensor, value] : given_) {
      if (!tensor->state.expired) continue;  // assigned to meanwhile
      tensor->state.expired = tensor->state.donated = false;
      recorder_.Show(*tensor, std::move(value));
    }
  }
  Donation(const Donation&) = delete;
  Donation& operator=(const Donation&) = delete;

  void Give(Tensor& tensor) {
    given_.emplace_back(&tensor, tensor.value());
    tensor.state.expired = tensor.state.donated = true;
    recorder_.Show(tensor, {});
  }
  // The launch is on its way; should it fail, the inputs are shown again (recovery.cc).
  void Keep(const Data& result) {
    const std::vector<std::pair<Tensor*, ir::Value>> given = std::exchange(given_, {});
    auto* const launched = static_cast<Launched*>(result.launched.get());
    if (launched == nullptr) return;
    try {
      for (const auto& [tensor, value] : given) {
        uint64_t& number = tensor->state.assignments;
        if (number == 0) number = ++recorder_.StateOf(tensor->sharding()).assignments;
        launched->Showed(number, Ref<Data>::Share(DataOf(value)));
      }
    } catch (const std::bad_alloc&) {
      // Then they are gone if it fails.
    }
  }

 private:
  Recorder& recorder_;
  std::vector<std::pair<Tensor*, ir::Value>> given_;
};

// Tells whether nobody else can ask for the data: no other tensor, pending value, past that a gradient goes through, or
// cut on its way.
bool IsAlone(const ir::Value& value) {
  const Data* data = DataOf(value);
  return value.node->users() == 0 && value.node->shown() == 1 && !data->shared() && !data->held();
}

}  // namespace

struct Engine::FunctionCall {
  ir::Values inputs;
  ir::Values results;
  std::vector<Ref<Data>> offered;  // per result
  Recorder::Draw drawn;
};

// --- Runs ----------------------------------------------------------------------------------------------------------------

absl::StatusOr<ir::Values> Engine::KnownInputs(Lock& lock, MeshState& state, std::span<Tensor* const> inputs,
                                               std::vector<uint8_t>* offers) {
  ir::Values values;
  std::vector<ir::Value> pending;
  for (const Tensor* input : inputs) {
    values.push_back(input != nullptr ? input->value() : ir::Value());
    if (input != nullptr && DataOf(values.back()) == nullptr) pending.push_back(values.back());
  }
  if (!pending.empty()) WEFT_RETURN_IF_ERROR(evaluator_.Know(lock, state, pending, CutReason::kEval));
  pending.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    ir::Value& value = values[i];
    if (!value) continue;
    if (i < offers->size() && (*offers)[i] != 0) (*offers)[i] = IsAlone(value) ? 1 : 0;
    Data* const data = DataOf(value);
    if (data->word_count > 0) {  // where a scalar lies must not make it another program
      Shards shards;
      for (Device* device : state.mesh.holders()) {
        WEFT_ASSIGN_OR_RETURN(shards.emplace_back(),
                              BufferOfWords(*data, value.type(), options_.held.Of(value.dtype()), device));
      }
      value = Recorder::NewLeaf(value.type(), MakeRef<Data>(state.whole(), std::move(shards)));
    } else if (value.node->needs_gradient()) {
      value = Recorder::NewLeaf(value.type(), Ref<Data>::Share(data));
    }
  }
  return values;
}

absl::Status Engine::CallFunction(const DeviceMesh& mesh, const FunctionRun& run, std::span<const uint8_t> offers,
                                  ir::Location location, FunctionCall* call) {
  if (!mesh.alone()) {
    const absl::Status suits = ops::CheckAxes(mesh.axes(), *run.function);
    if (!suits.ok()) return WithPosition(suits, location);
  }
  ir::Builder b(location);
  call->results = recorder_.Drawing(b, nullptr, ops::kOp_call, call->inputs, {}, {&run.function, 1}, &call->drawn);
  if (!b.ok()) return WithPosition(b.status(), location);
  call->offered.resize(call->results.size());
  for (size_t i = 0; i < offers.size(); ++i) {
    if (offers[i] == 0) continue;
    // The first result of its type that has nothing yet.
    for (size_t r = 0; r < call->results.size(); ++r) {
      if (call->offered[r] || !(call->results[r].type() == call->inputs[i].type())) continue;
      call->offered[r] = Ref<Data>::Share(DataOf(call->inputs[i]));
      break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensors> Engine::RunFunction(const FunctionRun& run, std::span<Tensor* const> inputs,
                                            ir::Location location, const Where& where) {
  Tensors made;
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kRun);
  lock.Borrow(inputs);
  const auto check = [&]() -> absl::Status {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr) continue;
      WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(inputs[i], absl::StrCat("inputs[", i, "]")));
    }
    return recorder_.CheckOpen();
  };
  WEFT_RETURN_IF_ERROR(check());
  WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.PlaceOf(ops::kOp_call, inputs, location, where));
  WEFT_RETURN_IF_ERROR(Recorder::CheckProgram(place.frame, "running a function"));
  MeshState& state = *place.state;
  // In debug mode the inputs are looked at afterwards.
  const bool debug = options_.mode == Mode::kDebug;
  std::vector<uint8_t> offers(run.donated.begin(), run.donated.end());
  if (debug) offers.assign(offers.size(), 0);
  FunctionCall call;
  WEFT_ASSIGN_OR_RETURN(call.inputs, KnownInputs(lock, state, inputs, &offers));
  if (lock.opened() > 0) WEFT_RETURN_IF_ERROR(check());
  WEFT_RETURN_IF_ERROR(CallFunction(state.mesh, run, offers, location, &call));
  Donation donation(recorder_);
  for (size_t i = 0; i < run.donated.size(); ++i) {
    if (run.donated[i] != 0) donation.Give(*inputs[i]);
  }
  ir::Values operands;  // known once they have been computed, when the node has forgotten them
  if (debug && !call.results.empty()) {
    const auto all = call.results[0].node->operands();
    operands.assign(all.begin(), all.end());
  }
  absl::Status status = evaluator_.ComputeOver(lock, state, call.results, call.offered);
  if (status.ok() && debug && !call.results.empty()) {
    status = evaluator_.inspector().CheckInside(lock, state, *call.results[0].node, operands, call.results);
  }
  if (!status.ok()) {
    recorder_.Undraw(call.drawn);
    return WithPosition(std::move(status), location);
  }
  if (!call.results.empty()) donation.Keep(*DataOf(call.results[0]));
  // Each a leaf of its own, so that it may be donated to the next run.
  for (const ir::Value& result : call.results) {
    ir::Value leaf = Recorder::NewLeaf(result.type(), Ref<Data>::Share(DataOf(result)));
    made.push_back(recorder_.NewTensor(place, std::move(leaf), location));
    made.back()->state.maker = &ops::kOp_call;
  }
  return made;
}

absl::StatusOr<compiler::ProgramCache*> Engine::ProgramsFor(const MeshState& state, std::string_view isa) {
  Backend* const backend = state.mesh.devices()[0]->backend;
  if (isa.empty() || isa == options_.program.isa) return state.programs;
  ProgramOptions program = options_.program;
  program.isa = isa;
  const Target target = backend->target({program, nullptr});
  if (target.fingerprint == backend->target({options_.program, nullptr}).fingerprint) return state.programs;
  std::unique_ptr<compiler::ProgramCache>& cache = other_targets_[{backend, std::string(isa)}];
  if (cache == nullptr) {
    compiler::ProgramCache::Config config = CacheConfig(*backend, std::move(program));
    config.other_target = true;
    cache = std::make_unique<compiler::ProgramCache>(std::move(config));
  }
  return cache.get();
}

absl::StatusOr<Ref<Evaluator::Job>> Engine::CompileJob(const FunctionRun& run, const Where& where, std::string_view isa,
                                                       Evaluator::ProgramPointer* known) {
  WEFT_RETURN_IF_ERROR(Recorder::CheckProgram(where.frame, "compiling"));
  const FloatScope floats;
  Lock lock(recorder_, Lock::To::kChange, Replay::Miss::kCompiled);
  WEFT_RETURN_IF_ERROR(recorder_.CheckOpen());
  WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.CheckWhere(where));
  WEFT_ASSIGN_OR_RETURN(compiler::ProgramCache * programs, ProgramsFor(*place.state, isa));
  FunctionCall call;
  for (const ir::Value& parameter : run.function->parameters()) {
    Ref<Data> described = MakeRef<Data>(place.state->whole(), Shards());
    described->described = true;
    call.inputs.push_back(Recorder::NewLeaf(parameter.type(), std::move(described)));
  }
  if (run.draws) call.inputs.back() = {};
  WEFT_RETURN_IF_ERROR(CallFunction(place.state->mesh, run, run.donated, {}, &call));
  recorder_.Undraw(call.drawn);
  return evaluator_.CompileOver(lock, *place.state, *programs, call.results, call.offered, known);
}

absl::StatusOr<Ref<Event>> Engine::CompileFunction(const FunctionRun& run, const Where& where, std::string_view isa,
                                                   bool wait) {
  WEFT_ASSIGN_OR_RETURN(Ref<Evaluator::Job> job, CompileJob(run, where, isa, nullptr));
  return Compiled({&job, job != nullptr ? 1u : 0u}, wait);
}

absl::StatusOr<ExecutableStats> Engine::FunctionStats(const FunctionRun& run, const Where& where) {
  Evaluator::ProgramPointer program;
  WEFT_ASSIGN_OR_RETURN(Ref<Evaluator::Job> job, CompileJob(run, where, {}, &program));
  if (job != nullptr) {
    WEFT_RETURN_IF_ERROR(evaluator_.WaitFor(*job));
    WEFT_ASSIGN_OR_RETURN(program, job->result());
  }
  return program->executable->stats();
}

}  // namespace weft::lazy
