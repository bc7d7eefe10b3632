// Steps that arrive as before: they are launched without being built, what they compute is theirs, and whatever differs from
// the step before is as if nothing had been left out.
#include <thread>

#include "src/backends/cpu/cpu_backend.h"
#include "src/lazy/optimizer.h"
#include "tests/lazy/world.h"
#include "tests/support/cpu_under_test.h"

namespace weft::lazy {
namespace {

constexpr double kRate[] = {0.1};  // of every step

// y = sum((a * x + b)^2) with its gradients and an update of a and b.
struct Training {
  explicit Training(Options options = {}, bool cpu = false)
      : world(cpu ? std::make_unique<World>(options, test::NewCpuBackend({.threads = 2}).value())
                  : std::make_unique<World>(options)),
        w(*world),
        a(w.Vector({1, 2, 3})),
        b(w.Vector({0, 1, 0})) {
    Tensor* parameters[] = {a.get(), b.get()};
    for (Tensor* parameter : parameters) EXPECT_TRUE(w.engine->SetRequiresGrad(parameter, true).ok());
    OptimizerOptions adam;
    adam.kind = OptimizerOptions::Kind::kAdam;
    optimizer = Optimizer::Create(*w.engine, parameters, {&adam, 1}).value();
    w.Sync();
  }
  // Up to the barrier. What is kept is an output.
  T Record(const T& x, bool keep_loss = true) {
    T h = w.Tmp("add", {w.Tmp("mul", {a, x}), b});
    T loss = w.Sum(w.Tmp("mul", {h, h}));
    if (!keep_loss) w.engine->AdoptByScope(loss.get());
    std::vector<T> grads = w.Grad(loss, {a, b});
    for (const T& grad : grads) w.engine->AdoptByScope(grad.get());
    Tensor* raw[] = {grads[0].get(), grads[1].get()};
    EXPECT_TRUE(optimizer->Step(raw, kRate).ok());
    return loss;
  }
  float Step(float scale) {
    const T loss = Record(w.Vector({scale, 1, -scale}));
    w.Sync();
    return w.Read(loss)[0];
  }
  int64_t replayed() { return w.Count(Counter::kStepsReplayed); }

  std::unique_ptr<World> world;
  World& w;
  T a, b;
  Ref<Optimizer> optimizer;
};

Options Built() {
  Options options;
  options.replay = false;
  return options;
}

TEST(Replay, OfASteadyStepBuildsNothingAndComputesTheSame) {
  Training replayed, built(Built());
  for (int i = 0; i < 8; ++i) {
    const auto scale = 0.5f + 0.25f * static_cast<float>(i);
    EXPECT_EQ(replayed.Step(scale), built.Step(scale));
    EXPECT_EQ(replayed.w.Read(replayed.a), built.w.Read(built.a));
    EXPECT_EQ(replayed.w.Read(replayed.b), built.w.Read(built.b));
  }
  EXPECT_EQ(replayed.replayed(), 7);
  EXPECT_EQ(built.replayed(), 0);
  for (Counter counter : {Counter::kOperationsRecorded, Counter::kNodesRecorded, Counter::kGradients, Counter::kCuts,
                          Counter::kCutBarrier, Counter::kCutOutputs, Counter::kCutNodesComputed, Counter::kLaunches,
                          Counter::kBuffersDonated, Counter::kTemporariesExpired, Counter::kProgramsCompiled,
                          Counter::kMemoryCacheHits}) {
    EXPECT_EQ(replayed.w.Count(counter), built.w.Count(counter)) << InfoOf(counter).name;
  }
}

TEST(Replay, EndsWhereAStepDiffers) {
  Training replayed, built(Built());
  const auto both = [&](auto&& does) {
    does(replayed);
    does(built);
    EXPECT_EQ(replayed.w.Read(replayed.a), built.w.Read(built.a));
    EXPECT_EQ(replayed.w.Read(replayed.b), built.w.Read(built.b));
  };
  const auto steady = [&] {
    const int64_t before = replayed.replayed();
    for (int i = 0; i < 3; ++i) both([&](Training& t) { t.Step(1.5f); });
    EXPECT_GT(replayed.replayed(), before);
  };
  steady();
  // Another operation after the first two.
  both([](Training& t) {
    T h = t.w.Tmp("sub", {t.w.Tmp("mul", {t.a, t.w.Vector({1, 2, 3})}), t.b});
    T kept = t.w.Op("exp", {h});
    t.w.Sync();
    EXPECT_EQ(t.w.Read(kept).size(), 3u);
  });
  steady();
  // Another attribute, another shape, another order of operands.
  both([](Training& t) { t.w.Read(t.Record(t.w.F32({2, 3}, {1, 2, 3, 4, 5, 6}))); });
  steady();
  // Less than a step, then the barrier.
  both([](Training& t) {
    T h = t.w.Op("mul", {t.a, t.w.Vector({1, 2, 3})});
    t.w.Sync();
    EXPECT_THAT(t.w.Read(h).size(), 3u);
  });
  steady();
  // More than a step.
  both([](Training& t) {
    const T loss = t.Record(t.w.Vector({1, 1, 1}));
    const T more = t.w.Op("exp", {t.w.Op("neg", {loss})});
    t.w.Sync();
    t.w.Read(more);
  });
  steady();
  // Its result is wanted or is not: an output more or less.
  std::vector<float> losses;
  both([&](Training& t) {
    const T loss = t.Record(t.w.Vector({1, 1, 1}), false);
    t.w.Sync();
    EXPECT_FALSE(t.w.TryOp("neg", {loss}).ok());
  });
  steady();
  both([&](Training& t) { (void)t.Record(t.w.Vector({1, 1, 1})), t.w.Sync(); });
  steady();
}

TEST(Replay, ShowsValuesInTheMiddleOfAStep) {
  Training t, built(Built());
  for (Training* one : {&t, &built}) {
    for (int i = 0; i < 4; ++i) one->Step(1.5f);
  }
  ASSERT_GT(t.replayed(), 0);
  std::vector<float> read[2];
  for (Training* one : {&t, &built}) {
    World& w = one->w;
    const T loss = one->Record(w.Vector({2, 1, -2}));
    // Everything that looks: a read, a text, an alias, an evaluation, a gradient of something else.
    std::vector<float>& values = read[one == &t ? 0 : 1];
    values = w.Read(loss);
    for (float value : w.Read(one->a)) values.push_back(value);
    Tensor* raw = loss.get();
    EXPECT_TRUE(w.engine->GraphText({&raw, 1}).ok());
    const T again = w.engine->Alias(loss.get()).value();
    w.Sync();
    for (float value : w.Read(again)) values.push_back(value);
  }
  EXPECT_EQ(read[0], read[1]);
  for (Training* one : {&t, &built}) {
    const T loss = one->Record(one->w.Vector({2, 1, -2}));
    Tensor* raw = loss.get();
    EXPECT_TRUE(one->w.engine->GraphText({&raw, 1}).ok());
    EXPECT_TRUE(one->w.engine->Eval({&raw, 1}).ok());
  }
  EXPECT_EQ(t.w.Read(t.a), built.w.Read(built.a));
}

TEST(Replay, TakesNoLeafForAnother) {
  World w;
  const T x = w.Vector({1, 2}), y = w.Vector({3, 4});
  w.Sync();
  const auto step = [&](const T& p, const T& q, const T& r) {
    const T out = w.Op("add", {w.Tmp("mul", {p, q}), r});
    w.Sync();
    return w.Read(out);
  };
  for (int i = 0; i < 4; ++i) EXPECT_THAT(step(x, y, x), ElementsAre(4, 10));
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 3);
  EXPECT_THAT(step(x, y, y), ElementsAre(6, 12));
  EXPECT_THAT(step(y, x, y), ElementsAre(6, 12));  // the first again, of others
  EXPECT_THAT(step(x, x, x), ElementsAre(2, 6));
  // Two handles of one value are one argument; of two values two.
  const T alias = w.engine->Alias(x.get()).value();
  EXPECT_THAT(step(x, alias, x), ElementsAre(2, 6));
  EXPECT_THAT(step(x, y, alias), ElementsAre(4, 10));
}

TEST(Replay, TellsNumbersFromConstants) {
  World w;
  const T x = w.Vector({1, 2});
  w.Sync();
  const auto step = [&](const T& p, const T& q, const T& r) {
    const T out = w.Op("add", {w.Tmp("mul", {p, q}), r});
    w.Sync();
    return w.Read(out);
  };
  // A number of the caller's is a run-time argument, a tensor of one element another kind of one.
  for (double number : {2.0, 3.0, 4.0}) {
    const auto n = static_cast<float>(number);
    const int64_t before = w.Count(Counter::kStepsReplayed);
    EXPECT_THAT(step(x, w.Number(number), x), ElementsAre(n + 1, 2 * n + 2));
    EXPECT_EQ(w.Count(Counter::kStepsReplayed), number > 2 ? before + 1 : before);
  }
  EXPECT_THAT(step(x, w.F32({}, {5}), x), ElementsAre(6, 12));
  // A constant is part of the step: another is another.
  const auto constant = [&](double number) {
    HostTensor host(DType::kF32, {});
    host.SetDouble(0, number);
    return w.engine->ScalarLike(*x, host, true).value();
  };
  for (int i = 0; i < 3; ++i) EXPECT_THAT(step(x, constant(2), x), ElementsAre(3, 6));
  const int64_t before = w.Count(Counter::kStepsReplayed);
  EXPECT_THAT(step(x, constant(2), x), ElementsAre(3, 6));
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), before + 1);
  EXPECT_THAT(step(x, constant(3), x), ElementsAre(4, 8));
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), before + 1);
}

TEST(Replay, LeavesMemoryAloneThatOthersSee) {
  Training t, built(Built());
  for (Training* one : {&t, &built}) {
    for (int i = 0; i < 4; ++i) one->Step(1.5f);
    const std::vector<float> before = one->w.Read(one->a);
    const T kept = one->w.engine->Alias(one->a.get()).value();
    const auto held = one->w.engine->ToBuffer(one->b.get()).value();
    one->Step(1.5f);  // may not take the old value over: the alias shows it
    EXPECT_EQ(one->w.Read(kept), before);
    held->Unhold();
    one->Step(1.5f);
  }
  EXPECT_EQ(t.w.Read(t.a), built.w.Read(built.a));
  EXPECT_EQ(t.w.Count(Counter::kBuffersDonated), built.w.Count(Counter::kBuffersDonated));
}

// A scope's temporary stays where another tensor shows its value; gradients of a sum are one value.
TEST(Replay, LetsTemporariesStayThatAreOutputs) {
  World replayed, built(Built());
  std::vector<bool> stays[2];
  for (World* w : {&replayed, &built}) {
    const T x = w->Vector({1, 2}), y = w->Vector({3, 4}), copy = w->Vector({0, 0});
    for (const T& leaf : {x, y}) EXPECT_TRUE(w->engine->SetRequiresGrad(leaf.get(), true).ok());
    w->Sync();
    for (int i = 0; i < 6; ++i) {
      const T shown = w->Tmp("exp", {copy}), hidden = w->Tmp("neg", {copy});
      EXPECT_TRUE(w->engine->Assign(copy.get(), shown.get()).ok());
      const std::vector<T> grads = w->Grad(w->Op("sum", {w->Tmp("add", {x, y})}), {x, y});
      w->engine->AdoptByScope(grads[1].get());
      w->Sync();
      EXPECT_EQ(w->Read(shown), w->Read(copy));
      EXPECT_THAT(w->Read(grads[0]), ElementsAre(1, 1));
      EXPECT_EQ(w->TryOp("neg", {hidden}).status().code(), absl::StatusCode::kFailedPrecondition);
      stays[w == &replayed ? 0 : 1].push_back(w->TryOp("neg", {grads[1]}).ok());
      w->Sync();
    }
  }
  EXPECT_EQ(stays[0], stays[1]);
  EXPECT_GE(replayed.Count(Counter::kStepsReplayed), 4);
  EXPECT_EQ(replayed.Count(Counter::kTemporariesExpired), built.Count(Counter::kTemporariesExpired));
}

TEST(Replay, FailsAsARecordedStepDoes) {
  Training t;
  for (int i = 0; i < 4; ++i) t.Step(1.5f);
  const std::vector<float> before = t.w.Read(t.a);
  const int64_t replayed = t.replayed();
  const T loss = t.Record(t.w.Vector({2, 1, -2}));
  t.w.backend->fail_executes = 2;  // once more when it has been recorded
  EXPECT_FALSE(t.w.engine->Sync().ok());
  t.w.Sync();
  EXPECT_EQ(t.replayed(), replayed);
  EXPECT_NE(t.w.Read(t.a), before);
  t.Step(1.5f);
  EXPECT_EQ(t.replayed(), replayed + 1);
  // Mistakes are named when they are made.
  (void)t.w.Tmp("mul", {t.a, t.w.Vector({1, 2, 3})});
  const auto wrong = t.w.TryOp("add", {t.a, t.w.Vector({1, 2})});
  EXPECT_THAT(wrong.status().message(), HasSubstr("do not broadcast"));
  t.w.Sync();
  EXPECT_TRUE(t.w.engine->Close().ok());
  EXPECT_EQ(t.w.TryOp("neg", {t.a}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Replay, GoesOnWithSeveralKindsOfSteps) {
  Training t;
  const T x = t.w.Vector({1, 2, 3});
  for (int i = 0; i < 6; ++i) {
    t.Step(1.5f);
    const T y = t.w.Op("mul", {t.a, x});  // another first operand
    t.w.Sync();
    const T z = t.w.Op("neg", {t.w.Tmp("add", {t.w.Tmp("mul", {t.a, x}), t.b})});  // and the same two
    t.w.Sync();
    EXPECT_EQ(t.w.Read(z)[0], -(t.w.Read(t.a)[0] + t.w.Read(t.b)[0]));
  }
  EXPECT_GE(t.replayed(), 9);
}

TEST(Replay, DrawsTheNumbersThatARecordedStepDraws) {
  World replayed, built(Built());
  std::vector<float> drawn[2];
  for (World* w : {&replayed, &built}) {
    const T x = w->Vector({1, 2, 3});
    w->Sync();
    for (int i = 0; i < 8; ++i) {
      const T noise = w->Tmp("uniform", {}, {ir::Ints{3}});
      T sum = w->Op("add", {x, noise});
      if (i == 5) sum = w->Op("neg", {sum});  // after a draw that was deferred
      const T more = w->Op("uniform", {}, {ir::Ints{5}});
      w->Sync();
      for (const T& values : {sum, more}) {
        for (float value : w->Read(values)) drawn[w == &replayed ? 0 : 1].push_back(value);
      }
    }
    EXPECT_EQ(w->engine->generator(), replayed.engine->generator());
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_GE(replayed.Count(Counter::kStepsReplayed), 4);
}

// What a function is recorded from comes as ever.
TEST(Replay, IsInterruptedByWhatItDoesNotNote) {
  Training t, built(Built());
  for (Training* one : {&t, &built}) {
    World& w = one->w;
    for (int i = 0; i < 4; ++i) one->Step(1.5f);
    const T h = w.Op("mul", {one->a, w.Vector({1.5f, 1, -1.5f})});
    Tensors parameters;
    const ir::Type type = ir::Type::Tensor(DType::kF32, {3});
    const Ref<Frame> frame = w.engine->BeginFunction(nullptr, "f", {&type, 1}, &parameters).value();
    const T inside = w.Op("add", {parameters[0], h});  // captures
    Tensor* output = inside.get();
    EXPECT_TRUE(w.engine->FinishFunction(*frame, {&output, 1}).ok());
    const T drawn = w.Op("uniform", {}, {ir::Ints{3}});
    const T sum = w.Op("add", {h, drawn});
    w.Sync();
    EXPECT_EQ(w.Read(sum).size(), 3u);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(t.Step(1.5f), built.Step(1.5f));
}

TEST(Replay, OfThreadsThatShareAContext) {
  Training t({}, true);
  std::atomic<bool> stop{false};
  for (int i = 0; i < 4; ++i) t.Step(1.5f);
  std::thread other([&] {
    const T x = t.w.Vector({1, 2, 3});
    for (int i = 0; !stop; ++i) {
      const T y = t.w.Op("add", {x, t.w.Number(i)});
      if (i % 3 == 0) {
        EXPECT_TRUE(t.w.engine->Sync().ok());
      }
      if (i % 2 == 0) {
        EXPECT_EQ(t.w.Read(y)[1], 2 + static_cast<float>(i));
      }
    }
  });
  for (int i = 0; i < 200; ++i) {
    T x = t.w.Vector({1, 2, 3});
    const T y = t.w.Op("mul", {t.w.Op("add", {x, t.w.Number(i)}), x});
    t.w.Sync();
    EXPECT_EQ(t.w.Read(y)[2], 3 * (3 + static_cast<float>(i)));
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace weft::lazy
