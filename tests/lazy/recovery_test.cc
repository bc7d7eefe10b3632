// Launches that fail while they run: every tensor stays readable. Assigned ones get their new values from a launch without what was at
// fault or show their old ones, all of a step alike; everything else that does not need what failed is made again; the next steps go on.
#include <map>

#include "src/backends/cpu/cpu_backend.h"
#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

// Results of a step and what they are, by which of the operations somebody needs them.
struct Step {
  explicit Step(World& w) : w(w), p(w.Vector({1, 2})), q(w.Vector({3, 4})) {}

  // p and q are assigned what `exp` and nothing else is made of; log, tanh and abs are beside it.
  void Record() {
    const T x = w.Vector({0.5f, 0.25f});
    const T gradient = w.Tmp("exp", {w.Tmp("mul", {p, x})});
    EXPECT_TRUE(w.engine->Assign(p.get(), w.Tmp("sub", {p, gradient}).get()).ok());
    EXPECT_TRUE(w.engine->Assign(q.get(), w.Tmp("add", {q, w.Tmp("sqrt", {gradient})}).get()).ok());
    loss = w.Op("log", {x});
    metric = w.Op("tanh", {x});
    after = w.Op("abs", {metric});
  }
  std::map<std::string, std::vector<float>> Values() {
    return {{"p", w.Read(p)}, {"q", w.Read(q)}, {"loss", w.Read(loss)}, {"metric", w.Read(metric)}, {"after", w.Read(after)}};
  }

  World& w;
  T p, q, loss, metric, after;
};

absl::Status TryRead(World& w, const T& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor->type().count()));
  return w.engine->ToHost(tensor.get(), std::as_writable_bytes(std::span(values)));
}

// Which results an operation at fault takes with it.
const std::map<std::string, std::vector<std::string>> kNeededBy = {
    {"exp", {"p", "q"}}, {"sqrt", {"q"}}, {"sub", {"p"}}, {"log", {"loss"}}, {"tanh", {"metric", "after"}}, {"abs", {"after"}}};

struct Case {
  bool asynchronous, replay, waits;
};

void Check(const Case& c, int steps, const std::string& fault, const std::vector<std::string>& lost) {
  SCOPED_TRACE(absl::StrCat(fault, " after ", steps, " steps, asynchronous ", c.asynchronous, ", replay ", c.replay, ", waits ", c.waits));
  Options options;
  options.replay = c.replay;
  World good(options), w(options, 1, c.asynchronous);
  Step right(good), step(w);
  for (int i = 0; i < steps; ++i) {
    for (Step* s : {&right, &step}) s->Record(), s->w.Sync();
    if (i + 1 < steps) continue;
    EXPECT_EQ(step.Values(), right.Values());
  }
  const std::map<std::string, std::vector<float>> before = {{"p", w.Read(step.p)}, {"q", w.Read(step.q)}};
  w.backend->refuses_to_run = fault;
  right.Record();
  good.Sync();
  step.Record();
  const auto event = w.engine->Sync();
  ASSERT_TRUE(event.ok()) << event.status();
  if (c.waits) {
    EXPECT_THAT(std::string((*event)->Wait().message()), HasSubstr("fake: no kernel for"));
    w.engine->Told();
  }
  const auto now = right.Values();
  const bool undone = std::ranges::count(lost, "p") + std::ranges::count(lost, "q") > 0;
  const auto expect = [&](const char* name, const T& tensor) {
    SCOPED_TRACE(name);
    const bool assigned = before.contains(name);
    if (assigned) {
      // Both or none of the step's.
      EXPECT_EQ(w.Read(tensor), undone ? before.at(name) : now.at(name));
    } else if (std::ranges::count(lost, name) > 0) {
      EXPECT_THAT(std::string(TryRead(w, tensor).message()), HasSubstr("fake: no kernel for"));
    } else {
      EXPECT_EQ(w.Read(tensor), now.at(name));
    }
  };
  for (int round = 0; round < 2; ++round) {
    expect("loss", step.loss);
    expect("p", step.p);
    expect("after", step.after);
    expect("q", step.q);
    expect("metric", step.metric);
  }
  EXPECT_GE(w.Count(Counter::kLaunchesFailed), 1);
  // The next steps go on from what is shown.
  w.backend->refuses_to_run.clear();
  (void)w.engine->Sync();  // says what nobody has been told
  Step fresh(good);
  for (const auto& [to, from] : {std::pair{&fresh.p, &step.p}, std::pair{&fresh.q, &step.q}}) *to = good.Vector(w.Read(*from));
  for (int i = 0; i < 3; ++i) {
    for (Step* s : {&fresh, &step}) s->Record(), s->w.Sync();
    EXPECT_EQ(step.Values(), fresh.Values());
  }
}

TEST(Recovery, OfAStepWithARefusalAtAnyOfItsOperationsLeavesEverythingReadable) {
  for (const auto& [fault, lost] : kNeededBy) {
    for (const int steps : {0, 1, 4}) {
      for (const bool asynchronous : {false, true}) {
        for (const bool replay : {false, true}) {
          for (const bool waits : {false, true}) Check({asynchronous, replay, waits}, steps, fault, lost);
        }
      }
    }
  }
}

// Steps are launched on what a launch is to make of which nobody knows yet that it fails.
TEST(Recovery, OfStepsInARowShowsWhatWasBeforeTheFirstThatFailed) {
  for (const bool replay : {false, true}) {
    Options options;
    options.replay = replay;
    World w(options, 1, true);
    Step step(w);
    for (int i = 0; i < 4; ++i) step.Record(), w.Sync();
    const auto p = w.Read(step.p), q = w.Read(step.q);
    w.backend->refuses_to_run = "sqrt";
    std::vector<T> all;
    absl::Status told;
    for (int i = 0; i < 3; ++i) {
      step.Record();
      const auto event = w.engine->Sync();
      if (!event.ok()) told = event.status();
      all.insert(all.end(), {step.loss, step.metric, step.after});
    }
    EXPECT_EQ(w.Read(step.p), p);
    EXPECT_EQ(w.Read(step.q), q);
    for (const T& tensor : all) EXPECT_TRUE(TryRead(w, tensor).ok());
    if (told.ok()) told = w.engine->Sync().status();
    EXPECT_THAT(std::string(told.message()), HasSubstr("a launch before failed: fake: no kernel for sqrt"));
  }
}

TEST(Recovery, SaysOnceWhatFailedToTheNextBarrierIfNobodyWasTold) {
  World w;
  Step step(w);
  w.backend->refuses_to_run = "log";
  step.Record();
  EXPECT_TRUE(w.engine->Sync().ok());
  EXPECT_EQ(w.engine->Sync().status().message(), "a launch before failed: fake: no kernel for log");
  EXPECT_TRUE(w.engine->Sync().ok());
  // Who has waited has been told.
  step.Record();
  const auto event = w.engine->Sync();
  ASSERT_TRUE(event.ok());
  EXPECT_FALSE(w.engine->Wait().ok());
  EXPECT_TRUE(w.engine->Sync().ok());
}

// What has been ended is not begun again, but what was beside it is made when somebody asks.
TEST(Recovery, OfWhatWasGivenUpShowsTheValuesBefore) {
  for (const absl::StatusCode code : {absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded}) {
    World w;
    Step step(w);
    w.backend->refuses_to_run = "log";
    w.backend->run_code = code;
    step.Record();
    EXPECT_TRUE(w.engine->Sync().ok());
    EXPECT_EQ(w.engine->Wait().code(), code);
    const int64_t launches = w.Count(Counter::kLaunches);
    EXPECT_THAT(w.Read(step.p), ElementsAre(1, 2));
    EXPECT_THAT(w.Read(step.q), ElementsAre(3, 4));
    EXPECT_EQ(w.Count(Counter::kLaunches), launches);
    EXPECT_TRUE(TryRead(w, step.after).ok());
    EXPECT_EQ(TryRead(w, step.loss).code(), code);
  }
}

// A device that has begun to write where the old values were, and fails, has neither.
TEST(Recovery, SaysWhatIsLostForGoodUntilSomethingIsAssigned) {
  World w;
  Step step(w);
  step.Record();
  w.Sync();
  w.backend->refuses_to_run = "log";
  w.backend->spoils = true;
  step.Record();
  EXPECT_TRUE(w.engine->Sync().ok());
  EXPECT_FALSE(w.engine->Wait().ok());
  EXPECT_THAT(std::string(TryRead(w, step.p).message()), HasSubstr("fake: no kernel for log"));
  w.backend->refuses_to_run.clear();
  EXPECT_TRUE(w.engine->Assign(step.p.get(), w.Vector({7, 8}).get()).ok());
  EXPECT_TRUE(w.engine->Sync().ok());
  EXPECT_THAT(w.Read(step.p), ElementsAre(7, 8));
}

// Two tensors that were assigned one value go back to what each of them showed.
TEST(Recovery, OfOneValueAssignedTwiceShowsEachItsOwn) {
  World w;
  T a = w.Vector({1, 2}), b = w.Vector({3, 4}), bad = w.Tmp("log", {w.Vector({1, 1})});
  const T next = w.Tmp("add", {a, bad});
  for (const T& tensor : {a, b}) EXPECT_TRUE(w.engine->Assign(tensor.get(), next.get()).ok());
  w.backend->refuses_to_run = "log";
  EXPECT_TRUE(w.engine->Sync().ok());
  EXPECT_FALSE(w.engine->Wait().ok());
  EXPECT_THAT(w.Read(a), ElementsAre(1, 2));
  EXPECT_THAT(w.Read(b), ElementsAre(3, 4));
}

// What was recorded on lost values before anybody knew.
TEST(Recovery, OfWhatIsPendingOnALostValue) {
  for (const bool named : {false, true}) {
    World w;
    Step step(w);
    w.backend->refuses_to_run = "log";
    step.Record();
    EXPECT_TRUE(w.engine->Sync().ok());
    const T on_good = w.Op("neg", {step.metric}), on_bad = w.Op("neg", {step.loss});
    EXPECT_TRUE(w.engine->Assign(step.q.get(), w.Tmp("mul", {step.q, on_good}).get()).ok());
    EXPECT_FALSE(w.engine->Wait().ok());
    if (!named) {
      EXPECT_TRUE(w.engine->Sync().ok());
    }
    EXPECT_TRUE(TryRead(w, on_good).ok());
    EXPECT_TRUE(TryRead(w, step.q).ok());
    EXPECT_THAT(std::string(TryRead(w, on_bad).message()), HasSubstr("fake: no kernel for log"));
    EXPECT_TRUE(w.engine->Sync().ok());
  }
}

// Buffers that a launch needed go when it has gone through.
TEST(Recovery, HoldsNoMemoryBehindALaunchThatWentThrough) {
  World w({}, 1, true);
  {
    const T x = w.Vector(std::vector<float>(1000, 1));
    const T y = w.Op("neg", {x});
    w.Sync();
    EXPECT_EQ(w.Read(y)[0], -1);
  }
  EXPECT_EQ(w.engine->Wait(), absl::OkStatus());
  EXPECT_EQ(w.backend->live_bytes, 0);
}

}  // namespace
}  // namespace weft::lazy
