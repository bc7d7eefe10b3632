// See replay.h.
#include "src/lazy/record/replay.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"
#include "src/lazy/cut/cut_planner.h"
#include "src/lazy/record/recorder.h"
#include "src/ops/call.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {
namespace {

// Words of operands: twice the number of a result, or that of a leaf and one.
constexpr uint32_t WordOfResult(uint32_t number) { return 2 * number; }
constexpr uint32_t WordOfLeaf(uint32_t leaf) { return 2 * leaf + 1; }

}  // namespace

MeshState::MeshState(std::vector<Device*> devices, ir::Mesh axes, compiler::ProgramCache* programs,
                     std::shared_ptr<Metrics> metrics)
    : mesh(std::move(devices), std::move(axes), std::move(metrics)), programs(programs) {}
MeshState::~MeshState() = default;

// --- Calls ---------------------------------------------------------------------------------------------------------------

void Replay::Add(const Tensor* tensor) {
  if (tensor == nullptr) {
    words_.push_back(kNothing);
  } else if (const ir::Value& value = tensor->value(); value && DataOf(value) != nullptr) {
    Foresee(tensor);
    AddLeaf(value);
  } else {
    words_.push_back(tensor->state.step == step_ ? WordOfResult(tensor->state.number) : kUnknown);
  }
}

void Replay::Foresee(const Tensor* tensor) {
  constexpr size_t kAhead = 8;
  const ir::Value& value = tensor->value();
  const Seen seen = {tensor, value.node.get(), DataOf(value)};
  if (met_before_ < seen_.size()) {
    seen_[met_before_] = seen;
  } else {
    seen_.push_back(seen);
  }
  if (const size_t next = ++met_before_ + kAhead; next < seen_.size()) {
    const auto fetch = [](const void* at, size_t bytes) {
      for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(at) + i);
    };
    fetch(seen_[next].tensor, sizeof(Tensor));
    fetch(seen_[next].node, sizeof(ir::Node));
    fetch(seen_[next].data, sizeof(Data));
  }
}

void Replay::AddLeaf(const ir::Value& leaf) {
  Data& data = *DataOf(leaf);
  if (&leaf.node->op() != &ops::kOp_parameter || data.failed || data.described) return words_.push_back(kUnknown);
  // Where memory ran out on the way, a number stayed behind that has no place.
  if (met_.size() > leaves_.size()) met_.resize(leaves_.size());
  const auto has_place = [&] {
    if (data.step != step_ || data.number >= data_.size()) return false;
    const uint32_t first = data_[data.number].first;
    return first < leaves_.size() && DataOf(leaves_[first]) == &data;
  };
  if (has_place()) {
    const Met& met = data_[data.number];
    if (leaves_[met.first] == leaf) return words_.push_back(WordOfLeaf(met.first));
    // Some tensors share their data and differ in what gradients see of them.
    for (uint32_t i = met.first + 1; met.several && i < leaves_.size(); ++i) {
      if (leaves_[i] == leaf) return words_.push_back(WordOfLeaf(i));
    }
    data_[data.number].several = true;
  } else {
    data_.push_back({static_cast<uint32_t>(leaves_.size()), false});
    data.number = static_cast<uint32_t>(data_.size() - 1);
    data.step = step_;
  }
  met_.push_back({leaf.type(), data.number, data.word_count, leaf.node->needs_gradient(), data.cut()});
  leaves_.push_back(leaf);
  words_.push_back(WordOfLeaf(static_cast<uint32_t>(leaves_.size() - 1)));
}

std::span<const uint32_t> Replay::WordsOf(const Step& step, size_t entry) {
  const size_t begin = entry == 0 ? 0 : step.entries[entry - 1].words_end;
  return std::span(step.words).subspan(begin, step.entries[entry].words_end - begin);
}

bool Replay::Has(const Step& step, const Call& call) const {
  const size_t at = deferred_.size();
  if (at >= step.entries.size()) return false;
  const Entry& entry = step.entries[at];
  if (entry.op != call.op || entry.kind != call.kind || entry.rule != call.rule) return false;
  if (!std::ranges::equal(entry.regions, call.regions)) return false;
  if (!std::ranges::equal(WordsOf(step, at), words_) || entry.leaves_end != leaves_.size()) return false;
  for (size_t i = at == 0 ? 0 : step.entries[at - 1].leaves_end; i < entry.leaves_end; ++i) {
    if (!(step.leaves[i] == met_[i])) return false;
  }
  return entry.attrs == call.attrs;
}

bool Replay::SameBefore(const Step& a, const Step& b, size_t entries) {
  if (&a == &b || entries == 0) return true;
  if (a.entries.size() < entries || b.entries.size() < entries) return false;
  for (size_t i = 0; i < entries; ++i) {
    const Entry& x = a.entries[i];
    const Entry& y = b.entries[i];
    if (x.op != y.op || x.kind != y.kind || x.rule != y.rule || x.leaves_end != y.leaves_end) return false;
    if (!std::ranges::equal(WordsOf(a, i), WordsOf(b, i)) || !(x.attrs == y.attrs)) return false;
    if (!std::ranges::equal(x.regions, y.regions)) return false;
  }
  const size_t leaves = a.entries[entries - 1].leaves_end;
  return std::equal(a.leaves.begin(), a.leaves.begin() + static_cast<ptrdiff_t>(leaves), b.leaves.begin());
}

bool Replay::Defer(const Call& call, std::span<const Result>* results) {
  // A thread that waits with the lock open goes on with the values that were pending then.
  if (recorder_.waiting_ > 0) Interrupt(Miss::kThread);
  if (mode_ != Mode::kReplaying) return false;
  Step* same = current_ != nullptr && Has(*current_, call) ? current_ : nullptr;
  for (size_t i = 0; same == nullptr && i < steps_.size(); ++i) {
    if (current_ != nullptr && !SameBefore(*current_, *steps_[i], deferred_.size())) continue;
    if (Has(*steps_[i], call)) same = steps_[i].get();
  }
  if (same == nullptr) {
    DivergeFor({Miss::kDiffers, call.op, call.kind, deferred_.size(), call.location});
    return false;
  }
  deferred_.push_back(call.location);
  current_ = same;
  const Entry& entry = same->entries[deferred_.size() - 1];
  *results = std::span(same->results).subspan(next_number_, entry.results_end - next_number_);
  next_number_ = static_cast<uint32_t>(entry.results_end);
  recorder_.Advance(entry.draws);
  recorder_.CountDeferred(entry.nodes);
  return true;
}

std::span<const Replay::Result> Replay::Noted(const Call& call, std::span<const ir::Value> results, int64_t nodes) {
  if (mode_ != Mode::kNoting) return {};
  const auto known = [](const ir::Value& value) {
    return value && (DataOf(value) != nullptr || !value.type().is_tensor());
  };
  const bool fits = noting_ == nullptr || noting_->entries.size() < kMostCalls;
  if (!fits || std::ranges::find(words_, kUnknown) != words_.end() || std::ranges::any_of(results, known)) {
    Missed({fits ? Miss::kUnknown : Miss::kTooLong, call.op, call.kind,
            noting_ != nullptr ? noting_->entries.size() : 0, call.location});
    End();
    return {};
  }
  try {
    if (noting_ == nullptr) noting_ = std::make_unique<Step>();
    Step& step = *noting_;
    step.words.insert(step.words.end(), words_.begin(), words_.end());
    for (const ir::Value& value : results) {
      if (!value) {
        step.results.push_back({kAbsent, {}});
        continue;
      }
      const uint32_t number = numbers_.try_emplace(value, static_cast<uint32_t>(step.results.size())).first->second;
      step.results.push_back({number, value.type(), &value.node->op(), value.node->needs_gradient()});
    }
    step.leaves.insert(step.leaves.end(), met_.begin() + static_cast<ptrdiff_t>(step.leaves.size()), met_.end());
    step.entries.push_back({call.kind,
                            call.op,
                            call.rule,
                            call.attrs,
                            step.words.size(),
                            step.results.size(),
                            step.leaves.size(),
                            nodes,
                            call.draws,
                            {call.regions.begin(), call.regions.end()}});
  } catch (const std::bad_alloc&) {
    End();
    return {};
  }
  const size_t first = std::exchange(next_number_, static_cast<uint32_t>(noting_->results.size()));
  return std::span(noting_->results).subspan(first);
}

// --- Recording after all -------------------------------------------------------------------------------------------------

ir::Value Replay::ValueOf(uint32_t word) const {
  if (word == kNothing) return {};
  return (word & 1) != 0 ? leaves_[word / 2] : values_[word / 2];
}

absl::Status Replay::RecordOne(const Entry& entry, std::span<const uint32_t> words, ir::Builder& b,
                               std::vector<ir::Value>* results) {
  const auto values = [&](std::span<const uint32_t> some) {
    std::vector<ir::Value> all;
    for (uint32_t word : some) all.push_back(ValueOf(word));
    return all;
  };
  switch (entry.kind) {
    case Kind::kOperation:
    case Kind::kLiteral: {
      ir::Values operands;
      for (uint32_t word : words) operands.push_back(ValueOf(word));
      const ir::Values made = ops::CallAll(b, *entry.op, std::move(operands), entry.attrs, entry.regions);
      if (b.ok()) results->assign(made.begin(), made.end());
      return b.status();
    }
    case Kind::kGradient: {
      WEFT_ASSIGN_OR_RETURN(*results,
                            autodiff::Gradient(b, ValueOf(words[0]), values(words.subspan(2)), ValueOf(words[1])));
      return b.status();
    }
    case Kind::kOpGradient: {
      const size_t inputs = words[0], made = words[1], cotangents = words[2];
      const std::vector<ir::Value> in = values(words.subspan(3, inputs)), out = values(words.subspan(3 + inputs, made)),
                                   flowing = values(words.subspan(3 + inputs + made, cotangents));
      const std::span<const uint32_t> flags = words.subspan(3 + inputs + made + cotangents);
      const std::unique_ptr<bool[]> wanted(new bool[flags.size() + 1]);
      std::ranges::transform(flags, wanted.get(), [](uint32_t flag) { return flag != 0; });
      WEFT_ASSIGN_OR_RETURN(*results, autodiff::OpGradient(b, {*entry.op, in, entry.attrs, out, flowing,
                                                               std::span<const bool>(wanted.get(), flags.size())}));
      return b.status();
    }
    case Kind::kUpdate: {
      const size_t operands = words[0], scalars = words[1], wide = words[2];
      const std::vector<ir::Value> in = values(words.subspan(3, operands));
      const std::vector<ir::Value> f32 = values(words.subspan(3 + operands, scalars));
      const std::vector<ir::Value> f64 = values(words.subspan(3 + operands + scalars, wide));
      const std::span<const uint32_t> flags = words.subspan(3 + operands + scalars + wide);
      results->resize(flags.size());
      WEFT_RETURN_IF_ERROR(entry.rule->Build(UpdateCall{b, in, f32, f64, *results}));
      for (size_t i = 0; i < flags.size() && b.ok(); ++i) {
        (*results)[i] = Recorder::Detached(b, (*results)[i], flags[i] != 0);
      }
      return b.status();
    }
    case Kind::kAlias: results->push_back(ValueOf(words[0])); return b.status();
    case Kind::kAssign:
      results->push_back(Recorder::Assigned(b, ValueOf(words[0]), words[1] != 0, static_cast<Past>(words[2])));
      return b.status();
  }
  return absl::OkStatus();
}

void Replay::Record() {
  if (deferred_.empty()) return;
  const FloatScope floats;
  values_.reserve(next_number_);
  for (; recorded_ < deferred_.size(); ++recorded_) {
    const Entry& entry = current_->entries[recorded_];
    ir::Builder b(deferred_[recorded_]);
    std::vector<ir::Value> made;
    // The call succeeded when it was noted, and nothing that it depends on has changed.
    const absl::Status status = RecordOne(entry, WordsOf(*current_, recorded_), b, &made);
    if (!status.ok() || values_.size() + made.size() != entry.results_end) throw std::bad_alloc();
    std::vector<ir::Value> there;
    for (const ir::Value& value : made) {
      if (value) there.push_back(value);
    }
    recorder_.CountRecorded(state_, b, entry.kind, entry.op, there, entry.nodes);
    for (ir::Value& value : made) values_.push_back(std::move(value));
  }
  for (Tensor& tensor : state_.live) {
    if (IsDeferred(tensor)) tensor.Show(values_[tensor.state.number]);
  }
  deferred_.clear();
  recorded_ = 0;
}

bool Replay::MakeCut(CutPlanner& planner, const Plan& plan, std::vector<ir::Value>* shown, Cut* cut) const {
  planner.Begin(cut);
  for (const Argument& argument : plan.arguments) {
    const ir::Value& leaf = LeafOf(argument.data);
    const Data& data = *DataOf(leaf);
    if (IsLost(data) || (data.word_count == 0 && data.shards().empty())) return false;
    planner.Take(leaf, cut);
  }
  cut->outputs.resize(plan.outputs);
  cut->offered.resize(plan.outputs);
  shown->reserve(plan.shown.size());
  size_t n = 0;
  for (const Tensor& tensor : state_.live) {
    const Tensor::State& state = tensor.state;
    if (!IsDeferred(tensor) || (state.scoped && !state.assigned)) continue;
    const size_t at = plan.shown[n++].output;
    ir::Value leaf{ir::Node::Create(ops::kOp_parameter, {}, {}, {tensor.type()}), 0};
    if (state.requires_grad) leaf.node->set_needs_gradient();
    if (!cut->offered[at]) cut->offered[at] = state.overwritten;
    if (!cut->outputs[at]) cut->outputs[at] = leaf;
    shown->push_back(std::move(leaf));
  }
  cut->asked = cut->outputs.size();
  cut->replayed = plan.nodes;
  planner.Offer(cut);
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    if (cut->trace.arguments[i].donated_to != plan.arguments[i].donated_to) return false;
  }
  return true;
}

void Replay::Diverge(Miss why) { DivergeFor({why}); }

void Replay::DivergeFor(const Cause& cause) {
  if (mode_ != Mode::kReplaying) return;
  Missed(cause);
  auto step = std::make_unique<Step>();
  if (const size_t calls = deferred_.size(); calls > 0) {
    const Step& known = *current_;
    const Entry& last = known.entries[calls - 1];
    const auto copy = [](const auto& from, size_t count, auto* to) {
      to->assign(from.begin(), from.begin() + static_cast<ptrdiff_t>(count));
    };
    copy(known.entries, calls, &step->entries);
    copy(known.words, last.words_end, &step->words);
    copy(known.results, last.results_end, &step->results);
    copy(known.leaves, last.leaves_end, &step->leaves);
  }
  Record();
  noting_ = std::move(step);
  mode_ = Mode::kNoting;
  current_ = nullptr;
  try {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i]) numbers_.try_emplace(values_[i], noting_->results[i].number);
    }
  } catch (const std::bad_alloc&) {
    return End();
  }
  values_.clear();
}

void Replay::End() {
  Record();
  if (next_number_ > 0) ++in_vain_;
  mode_ = Mode::kIdle;
  ForgetStep();
}

void Replay::ForgetStep() {
  step_ = ++recorder_.steps_;
  next_number_ = 0;
  leaves_.clear();
  met_.clear();
  data_.clear();
  met_before_ = 0;
  deferred_.clear();
  values_.clear();
  recorded_ = 0;
  if (!numbers_.empty()) numbers_.clear();
  noting_.reset();
  current_ = nullptr;
}

void Replay::Missed(const Cause& cause) {
  last_miss_ = cause;
  recorder_.last_missed_ = this;
}

// --- Why not -------------------------------------------------------------------------------------------------------------

std::string Replay::LastMiss() const {
  const auto call = [&] {
    std::string_view what = last_miss_.op != nullptr ? last_miss_.op->c_name : "";
    switch (last_miss_.kind) {
      case Kind::kGradient: what = "a gradient"; break;
      case Kind::kUpdate: what = "an optimizer's update"; break;
      case Kind::kAssign: what = "an assignment"; break;
      case Kind::kAlias: what = "a copy"; break;
      case Kind::kLiteral: what = "a constant"; break;
      case Kind::kOperation:
      case Kind::kOpGradient: break;
    }
    const std::string at = ir::ToString(last_miss_.location);
    return absl::StrCat("call ", last_miss_.at, " of the step, ", what, at.empty() ? "" : absl::StrCat(" (", at, ")"));
  };
  switch (last_miss_.why) {
    case Miss::kNone: return "";
    case Miss::kOther: return "something was called that is not part of a step";
    case Miss::kRead: return "a value was read that was pending";
    case Miss::kEvaluated: return "weft_eval computed a part of the step";
    case Miss::kText: return "the text of the pending program was asked for";
    case Miss::kRun: return "weft_function_run ran a function";
    case Miss::kCompiled: return "a program was compiled ahead";
    case Miss::kGradientWanted: return "weft_tensor_require_grad changed a tensor whose value was pending";
    case Miss::kBody: return "the body of a function used a value that was pending";
    case Miss::kThread: return "another thread recorded while one waited";
    case Miss::kFailed: return "a call failed";
    case Miss::kCut: return "an automatic cut computed a part of the step";
    case Miss::kDiffers:
      return absl::StrCat(call(), ", differs from the steps before: in its operation, attributes or operands");
    case Miss::kTooLong: return absl::StrCat("a step has more than ", kMostCalls, " calls");
    case Miss::kUnknown: return absl::StrCat(call(), ", has an operand or a result that is of no step");
    case Miss::kTensors: return "other tensors were alive at the barrier than in the steps before";
    case Miss::kLaunch:
      return "the step could not be launched as before: other memory was to be taken over, or there was too little";
  }
  return "";
}

// --- Barriers ------------------------------------------------------------------------------------------------------------

template <typename Use>
void Replay::ForEachShown(Use&& use) const {
  for (const Tensor& tensor : state_.live) {
    const Tensor::State& state = tensor.state;
    if (state.expired || (state.scoped && !state.assigned)) continue;
    if (tensor.value() && DataOf(tensor.value()) != nullptr) continue;
    use(tensor);
  }
}

bool Replay::ShowsAs(const Plan& plan) const {
  size_t n = 0;
  bool same = plan.program != nullptr;
  ForEachShown([&](const Tensor& tensor) {
    same = same && n < plan.shown.size() && IsDeferred(tensor) && plan.shown[n].number == tensor.state.number;
    ++n;
  });
  return same && n == plan.shown.size();
}

const Replay::Plan* Replay::Complete() {
  const size_t calls = deferred_.size();
  if (mode_ != Mode::kReplaying || calls == 0) return nullptr;
  const auto complete = [&](const Step& step) {
    return step.entries.size() == calls && SameBefore(*current_, step, calls) && ShowsAs(step.plan);
  };
  if (!complete(*current_)) {
    const auto found = std::ranges::find_if(steps_, [&](const auto& step) { return complete(*step); });
    if (found == steps_.end()) return nullptr;
    current_ = found->get();
  }
  return &current_->plan;
}

size_t Replay::OutputOf(const Plan& plan, const Tensor& tensor) const {
  const auto found = std::ranges::find(plan.shown, tensor.state.number, &Shown::number);
  return found == plan.shown.end() ? plan.outputs : found->output;
}

void Replay::BarrierBegins() {
  if (noting_ != nullptr) noting_->plan = {};
}

void Replay::Planned(const Cut& cut, const std::shared_ptr<const compiler::Program>& program, double bytes) {
  if (mode_ != Mode::kNoting || noting_ == nullptr) return;
  noting_->plan = {};
  Plan plan;
  bool fits = true;
  ForEachShown([&](const Tensor& tensor) {
    const ir::Value& value = tensor.value();
    fits = fits && !tensor.state.set_aside && tensor.state.step == step_;
    if (!fits) return;
    size_t at = plan.outputs;
    if (at < cut.outputs.size() && cut.outputs[at] == value) {
      ++plan.outputs;
    } else {
      // Shown by another tensor before.
      at = static_cast<size_t>(std::ranges::find(cut.outputs, value) - cut.outputs.begin());
      fits = at < plan.outputs;
    }
    plan.shown.push_back({tensor.state.number, static_cast<uint32_t>(at)});
  });
  if (!fits || plan.outputs != cut.outputs.size()) return;
  for (size_t i = 0; i < cut.arguments.size(); ++i) {
    const Data& data = *cut.arguments[i];
    if (data.step != step_ || data_[data.number].first >= leaves_.size()) return;
    if (DataOf(LeafOf(data.number)) != &data) return;
    plan.arguments.push_back({data.number, cut.trace.arguments[i].donated_to});
  }
  plan.nodes = cut.trace.nodes.size();
  plan.bytes = bytes;
  plan.program = program;
  noting_->plan = std::move(plan);
}

void Replay::Start(bool clean) {
  if (!enabled_) return;
  if (mode_ == Mode::kReplaying && deferring()) {
    in_vain_ = 0;
    const auto at = std::ranges::find_if(steps_, [&](const auto& step) { return step.get() == current_; });
    std::rotate(steps_.begin(), at, at + 1);
  } else if (mode_ == Mode::kNoting && next_number_ > 0) {
    ++in_vain_;
    if (noting_->plan.program != nullptr) {
      if (steps_.size() == kSteps) steps_.pop_back();
      steps_.insert(steps_.begin(), std::move(noting_));  // there is room
    }
  }
  ForgetStep();
  mode_ = Mode::kIdle;
  if (pause_ > 0) {
    --pause_;
  } else if (in_vain_ >= kTries) {
    in_vain_ = 0;
    pause_ = kPause;
  } else if (clean) {
    mode_ = steps_.empty() ? Mode::kNoting : Mode::kReplaying;
  }
}

}  // namespace weft::lazy
