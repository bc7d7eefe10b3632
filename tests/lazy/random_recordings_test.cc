// Random programs recorded through the engine in every mode on every platform, cut at random points by barriers,
// evaluations and reads, with handles assigned over, adopted by scopes and dropped on the way: every value that is read
// must be the one the reference gives for the whole. WEFT_FUZZ_SEEDS=first:last runs more of them.
#include <algorithm>

#include "src/backends/cpu/cpu_backend.h"
#include "src/backends/reference/reference_backend.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"
#include "tests/support/expectation.h"
#include "tests/support/random_program.h"
#include "tests/support/seeds.h"

namespace weft::lazy {
namespace {

using test::RandomProgram;
using Item = RandomProgram::Item;

// One recording of a program. Handles show values of the program; several may show one.
class Recording {
 public:
  Recording(const RandomProgram& program, World& world, uint64_t seed, double cuts, bool steps = false)
      : program_(program), engine_(*world.engine), rng_(seed), cuts_(cuts), steps_(steps), needed_(program.values, -1) {
    for (size_t i = 0; i < program.items.size(); ++i) {
      const Item& item = program.items[i];
      for (int operand : item.operands) {
        if (operand >= 0) needed_[operand] = static_cast<int>(i);
      }
      if (item.kind != Item::Kind::kGradient) continue;
      last_gradient_ = static_cast<int>(i);
      for (size_t k = 1; k < item.operands.size(); ++k) differentiated_.push_back(item.operands[k]);
    }
    for (int output : program.outputs) needed_[output] = static_cast<int>(program.items.size());
  }

  // What was read, with the values it must be.
  struct Read {
    int value;
    HostTensor host;
  };

  absl::StatusOr<std::vector<Read>> Run() {
    for (at_ = 0; at_ < static_cast<int>(program_.items.size()); ++at_) {
      WEFT_RETURN_IF_ERROR(RecordItem(program_.items[at_]));
      while (rng_.Chance(cuts_)) WEFT_RETURN_IF_ERROR(Disturb());
    }
    if (steps_ || (cuts_ > 0 && rng_.Chance(0.5))) WEFT_RETURN_IF_ERROR(Barrier());
    for (int output : program_.outputs) {
      WEFT_ASSIGN_OR_RETURN(const size_t handle, Showing(output));
      WEFT_RETURN_IF_ERROR(ReadHandle(handle));
    }
    return std::move(reads_);
  }

 private:
  struct Handle {
    T tensor;
    int value;
    bool scoped = false;
  };

  absl::StatusOr<size_t> Showing(int value) {
    std::vector<size_t> found;
    for (size_t i = 0; i < handles_.size(); ++i) {
      if (handles_[i].value == value) found.push_back(i);
    }
    if (found.empty()) return absl::InternalError(absl::StrCat("the test lost value ", value));
    return rng_.Pick(found);
  }
  bool IsNeeded(int value) const { return needed_[value] >= at_; }

  void Add(T tensor, int value) {
    handles_.push_back({std::move(tensor), value});
    if (cuts_ > 0 && rng_.Chance(0.3)) {
      engine_.AdoptByScope(handles_.back().tensor.get());
      handles_.back().scoped = true;
    }
  }

  absl::StatusOr<T> Leaf(const HostTensor& value) {
    if (value.dims().empty() && rng_.Chance(0.5)) {
      return IsFloat(value.dtype()) ? engine_.Scalar(nullptr, value.dtype(), value.GetDouble(0))
                                    : engine_.ScalarInt(nullptr, value.dtype(), value.GetInt(0));
    }
    return engine_.FromHost(engine_.devices()[0], value.dtype(), value.dims(), value.bytes());
  }

  absl::Status RecordItem(const Item& item) {
    if (item.kind == Item::Kind::kDropped) return absl::OkStatus();
    if (item.kind == Item::Kind::kLeaf) {
      for (int i = 0; i < item.count; ++i) {
        WEFT_ASSIGN_OR_RETURN(T leaf, Leaf(item.leaf[i]));
        const int value = item.first + i;
        if (std::ranges::find(differentiated_, value) != differentiated_.end()) {
          WEFT_RETURN_IF_ERROR(engine_.SetRequiresGrad(leaf.get(), true));
        }
        Add(std::move(leaf), value);
      }
      return absl::OkStatus();
    }
    std::vector<Tensor*> operands;
    for (int operand : item.operands) {
      operands.push_back(nullptr);
      if (operand < 0) continue;
      WEFT_ASSIGN_OR_RETURN(const size_t handle, Showing(operand));
      operands.back() = handles_[handle].tensor.get();
    }
    Tensors results;
    if (item.kind == Item::Kind::kGradient) {
      auto slopes = engine_.Gradient(operands[0], std::span(operands).subspan(1));
      if (absl::IsFailedPrecondition(slopes.status())) {  // the loss depends on nothing: zeros, says autodiff by itself
        for (int i = 0; i < item.count; ++i) {
          HostTensor zeros(operands[1 + i]->dtype(), operands[1 + i]->dims());
          WEFT_ASSIGN_OR_RETURN(T leaf, Leaf(zeros));
          results.push_back(std::move(leaf));
        }
      } else {
        WEFT_ASSIGN_OR_RETURN(results, std::move(slopes));
      }
    } else {
      std::vector<Ref<const ir::Function>> functions;
      for (const RandomProgram& body : item.bodies) {
        WEFT_ASSIGN_OR_RETURN(test::BuiltProgram built, test::BuildProgram(body));
        functions.push_back(ir::Intern(std::move(built.function)));
      }
      WEFT_RETURN_IF_ERROR(engine_.Record(*item.op, operands, item.attrs, {}, &results, {}, functions));
    }
    for (size_t i = 0; i < results.size(); ++i) Add(std::move(results[i]), item.first + static_cast<int>(i));
    return absl::OkStatus();
  }

  absl::Status ReadHandle(size_t handle) {
    Tensor* tensor = handles_[handle].tensor.get();
    HostTensor& host = reads_.emplace_back(handles_[handle].value, HostTensor(tensor->dtype(), tensor->dims())).host;
    return engine_.ToHost(tensor, host.mutable_bytes());
  }

  // A barrier cuts the past off from later gradients, and expires what scopes own.
  absl::Status Barrier() {
    if (at_ < last_gradient_) return absl::OkStatus();
    for (Handle& handle : handles_) {
      if (!handle.scoped || !IsNeeded(handle.value)) continue;
      engine_.Keep(handle.tensor.get());
      handle.scoped = false;
    }
    WEFT_ASSIGN_OR_RETURN(const Ref<Event> done, engine_.Sync());
    std::erase_if(handles_, [](const Handle& handle) { return handle.scoped; });
    return rng_.Chance(0.5) ? done->Wait() : absl::OkStatus();
  }

  // dst shows src's value; what dst showed must be shown by another handle or not be needed any more.
  absl::Status Assign() {
    if (at_ < last_gradient_) return absl::OkStatus();
    const size_t dst = Any(), src = Any();
    if (!(handles_[dst].tensor->type() == handles_[src].tensor->type())) return absl::OkStatus();
    const auto others = std::ranges::count(handles_, handles_[dst].value, &Handle::value);
    if (others < 2 && IsNeeded(handles_[dst].value)) return absl::OkStatus();
    handles_[dst].value = handles_[src].value;
    return engine_.Assign(handles_[dst].tensor.get(), handles_[src].tensor.get());
  }

  size_t Any() { return static_cast<size_t>(rng_.Below(static_cast<int64_t>(handles_.size()))); }

  absl::Status Disturb() {
    if (handles_.empty()) return absl::OkStatus();
    switch (rng_.Below(8)) {
      case 0: return Barrier();
      case 1: {
        std::vector<Tensor*> some;
        for (int64_t n = rng_.Between(1, 4); n > 0; --n) some.push_back(handles_[Any()].tensor.get());
        return engine_.Eval(some).status();
      }
      case 2: return ReadHandle(Any());
      case 3: {
        Tensor* one = handles_[Any()].tensor.get();
        return engine_.GraphText({&one, 1}).status();
      }
      case 4: {
        const Handle& handle = handles_[Any()];
        WEFT_ASSIGN_OR_RETURN(T alias, engine_.Alias(handle.tensor.get()));
        Add(std::move(alias), handle.value);
        return absl::OkStatus();
      }
      case 5:
      case 6: return Assign();
      default: {
        const size_t gone = Any();
        const auto others = std::ranges::count(handles_, handles_[gone].value, &Handle::value);
        if (others > 1 || !IsNeeded(handles_[gone].value)) handles_.erase(handles_.begin() + static_cast<ptrdiff_t>(gone));
        return absl::OkStatus();
      }
    }
  }

  const RandomProgram& program_;
  Engine& engine_;
  test::Rng rng_;
  const double cuts_;
  const bool steps_;  // ends with a barrier
  std::vector<int> needed_;  // the last item that uses the value
  std::vector<int> differentiated_;
  int last_gradient_ = -1;
  int at_ = 0;
  std::vector<Handle> handles_;
  std::vector<Read> reads_;
};

// How a recording runs.
struct Setting {
  Mode mode;
  bool cpu;  // or the reference platform
  double cuts;
};
constexpr std::string_view kModes[] = {"lazy", "eager", "debug"};

std::string ToString(const Setting& setting) {
  return absl::StrCat(kModes[static_cast<size_t>(setting.mode)], setting.cpu ? " on the CPU" : " on the reference platform",
                      setting.cuts > 0 ? ", in pieces" : ", at once");
}

Options DrawOptions(test::Rng rng, Mode mode) {
  Options options;
  options.mode = mode;
  if (rng.Chance(0.3)) options.max_pending_nodes = rng.Between(2, 30);
  if (rng.Chance(0.2)) options.repetition_nodes = rng.Between(1, 20);
  if (rng.Chance(0.3)) options.hash_bits = 4;
  return options;
}

// What is wrong with what was read, or "".
std::string Compare(const RandomProgram& program, std::span<Recording::Read> reads) {
  RandomProgram checked = program;
  checked.outputs.clear();
  std::vector<HostTensor> got;
  for (Recording::Read& read : reads) {
    checked.outputs.push_back(read.value);
    got.push_back(std::move(read.host));
  }
  const auto built = test::BuildProgram(checked);
  if (!built.ok()) return "";
  auto expected = test::Expectation::Of(built->function, built->arguments);
  if (!expected.ok()) return "";
  const auto difference = expected->Differences(got);
  return difference.ok() ? *difference : difference.status().ToString();
}

// What is wrong, or "".
std::string Problem(const RandomProgram& program, uint64_t seed, const Setting& setting) {
  std::unique_ptr<Backend> backend = NewReferenceBackend();
  if (setting.cpu) backend = test::NewCpuBackend({.threads = 1}).value();
  Options options;
  options.mode = setting.mode;
  if (setting.cuts > 0) options = DrawOptions(test::Rng(seed), setting.mode);
  World world(options, std::move(backend));
  auto reads = Recording(program, world, seed, setting.cuts).Run();
  if (!reads.ok()) {
    // What debug mode is for.
    const auto says = [&](std::string_view text) { return reads.status().message().find(text) != std::string_view::npos; };
    const bool checked = says("of the result is NaN") || says("(checked in debug mode)");
    return setting.mode == Mode::kDebug && checked ? "" : reads.status().ToString();
  }
  return Compare(program, *reads);
}

// Prints the smallest program found that shows what is wrong, if anything is.
void Check(const RandomProgram& program, uint64_t seed, const Setting& setting) {
  const std::string problem = Problem(program, seed, setting);
  if (problem.empty()) return;
  const RandomProgram small = test::Shrink(program, [&](const RandomProgram& p) { return !Problem(p, seed, setting).empty(); });
  ADD_FAILURE() << "seed " << seed << ", " << ToString(setting) << ": " << problem << "\nsmallest: " << Problem(small, seed, setting) << "\n"
                << test::ToString(small);
}

TEST(RandomRecordings, GiveTheSameValuesWhereverTheyAreCut) {
  const auto [first, last] = test::Seeds(20);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomProgram program = test::MakeRandomProgram(seed, {.calls = 25, .random = false});
    Check(program, seed, {Mode::kLazy, true, 0.0});
    Check(program, seed, {seed % 7 == 0 ? Mode::kEager : Mode::kLazy, true, 0.4});
  }
}

// The elements of every leaf from the last to the first: the same program on other data.
RandomProgram Mirrored(RandomProgram program) {
  for (Item& item : program.items) {
    for (HostTensor& leaf : item.leaf) {
      const auto width = static_cast<size_t>(BytesOf(leaf.dtype()));
      const std::span<std::byte> bytes = leaf.mutable_bytes();
      std::ranges::reverse(bytes);
      for (size_t i = 0; i + width <= bytes.size(); i += width) std::ranges::reverse(bytes.subspan(i, width));
    }
  }
  return program;
}

// As a step that comes again and again in one context, on other data and now and then cut, assigned to and released in other
// places: as if none of it had been replayed.
TEST(RandomRecordings, GiveTheSameValuesStepAfterStep) {
  const auto [first, last] = test::Seeds(25);
  ASSERT_LE(first, last);
  int64_t replayed = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomProgram program = test::MakeRandomProgram(seed, {.calls = 10, .random = false}), other = Mirrored(program);
    World world({}, test::NewCpuBackend({.threads = 1}).value());
    world.Sync();
    for (int step = 0; step < 8; ++step) {
      const RandomProgram& now = step % 2 == 0 ? program : other;
      auto reads = Recording(now, world, step == 4 || step == 6 ? seed + 1'000 : seed, 0.1, true).Run();
      ASSERT_TRUE(reads.ok()) << "seed " << seed << ", step " << step << ": " << reads.status();
      const std::string problem = Compare(now, *reads);
      ASSERT_EQ(problem, "") << "seed " << seed << ", step " << step << "\n" << test::ToString(now);
    }
    replayed += world.Count(Counter::kStepsReplayed);
  }
  EXPECT_GT(replayed, 0);
}

// With loops, branches and calls: some of them in pieces, some on the reference platform.
TEST(RandomControlFlow, GivesTheSameValuesWhereverItIsCut) {
  const auto [first, last] = test::Seeds(40);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomProgram program = test::MakeRandomProgram(seed, {.calls = 8, .random = false, .control = 1});
    const Mode mode = seed % 7 == 0 ? Mode::kEager : seed % 11 == 0 ? Mode::kDebug : Mode::kLazy;
    Check(program, seed, {mode, seed % 5 != 0, seed % 3 == 0 ? 0.0 : 0.4});
  }
}

// Where shapes are empty, of one element or of rank 0, in every mode on both platforms; a program a setting.
TEST(RandomRecordings, OfHollowTensorsGiveTheSameValuesInEveryMode) {
  std::vector<Setting> settings;
  for (Mode mode : {Mode::kLazy, Mode::kEager, Mode::kDebug}) {
    for (bool cpu : {true, false}) {
      for (double cuts : {0.0, 0.4}) settings.push_back({mode, cpu, cuts});
    }
  }
  const auto [first, last] = test::Seeds(300);
  ASSERT_LE(first, last);
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomProgram program = test::MakeRandomProgram(seed, {.calls = 12, .random = false, .hollow = 1});
    Check(program, seed, settings[seed % settings.size()]);
  }
}

}  // namespace
}  // namespace weft::lazy
