// Replay with several devices: each has steps of its own, and what one computes is as if the others were not there.
#include <thread>

#include "src/lazy/optimizer.h"
#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

constexpr double kRate[] = {0.1};  // of every step

Options Built() {
  Options options;
  options.replay = false;
  return options;
}

// s = sum((a * x)^2), and a step down its gradient, on one device of a world.
struct Loop {
  Loop(World& w, int device) : w(w), device(device), a(w.F32({3}, {1, 2, 3}, device)) {
    EXPECT_TRUE(w.engine->SetRequiresGrad(a.get(), true).ok());
    Tensor* parameters[] = {a.get()};
    OptimizerOptions adam;
    adam.kind = OptimizerOptions::Kind::kAdam;
    optimizer = Optimizer::Create(*w.engine, parameters, {&adam, 1}).value();
  }
  Device* where() { return w.engine->devices()[static_cast<size_t>(device)]; }
  T Record(float scale) {
    const T x = w.F32({3}, {scale, 1, -scale}, device);
    const T h = w.Tmp("mul", {a, x});
    T loss = w.Sum(w.Tmp("mul", {h, h}));
    const std::vector<T> grads = w.Grad(loss, {a});
    w.engine->AdoptByScope(grads[0].get());
    Tensor* raw[] = {grads[0].get()};
    EXPECT_TRUE(optimizer->Step(raw, kRate).ok());
    return loss;
  }
  // Of its own device alone.
  void Sync() { EXPECT_TRUE(w.engine->Sync(where()).ok()); }
  float Step(float scale) {
    const T loss = Record(scale);
    Sync();
    return w.Read(loss)[0];
  }

  World& w;
  const int device;
  T a;
  Ref<Optimizer> optimizer;
};

TEST(ReplayOfMeshes, AStepOnOneDeviceIsReplayedWhateverElseThereIs) {
  World one, four({}, 4);
  Loop alone(one, 0), among(four, 2);
  one.Sync();
  four.Sync();
  for (int i = 0; i < 8; ++i) {
    const auto scale = 0.5f + 0.25f * static_cast<float>(i);
    EXPECT_EQ(alone.Step(scale), among.Step(scale));
    EXPECT_EQ(one.Read(alone.a), four.Read(among.a));
  }
  EXPECT_EQ(one.Count(Counter::kStepsReplayed), 7);
  EXPECT_EQ(four.Count(Counter::kStepsReplayed), 7);
}

TEST(ReplayOfMeshes, ABarrierOfAllDevicesLaunchesEachAsBefore) {
  World w({}, 3), built(Built(), 3);
  Loop x(w, 0), y(w, 2), z(built, 0), u(built, 2);
  w.Sync();
  built.Sync();
  for (int i = 0; i < 6; ++i) {
    const auto scale = 0.5f + static_cast<float>(i);
    // Their calls are mixed; each device's come in one order.
    const T a = x.Record(scale), b = y.Record(2 * scale), c = z.Record(scale), d = u.Record(2 * scale);
    w.Sync();
    built.Sync();
    EXPECT_EQ(w.Read(a), built.Read(c));
    EXPECT_EQ(w.Read(b), built.Read(d));
    EXPECT_EQ(w.Read(x.a), built.Read(z.a));
    EXPECT_EQ(w.Read(y.a), built.Read(u.a));
  }
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 10);  // five of each
  for (Counter counter : {Counter::kOperationsRecorded, Counter::kNodesRecorded, Counter::kGradients, Counter::kLaunches,
                          Counter::kCutBarrier, Counter::kCutOutputs, Counter::kBuffersDonated, Counter::kProgramsCompiled}) {
    EXPECT_EQ(w.Count(counter), built.Count(counter)) << InfoOf(counter).name;
  }
}

// Steps of different lengths and barriers at different times.
TEST(ReplayOfMeshes, ABarrierOfOneLeavesTheOthersStepAsItIs) {
  World w({}, 2);
  Loop x(w, 0), y(w, 1);
  w.Sync();
  for (int i = 0; i < 6; ++i) {
    const auto scale = 1.0f + static_cast<float>(i);
    const T first = y.Record(scale);
    x.Step(scale);
    x.Step(scale);  // two of its steps in one of the other's
    const T second = y.Record(scale);
    y.Sync();
    EXPECT_GT(w.Read(first)[0], 0);
    EXPECT_GT(w.Read(second)[0], 0);
  }
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 11 + 5);
}

TEST(ReplayOfMeshes, AReadOnOneDeviceInterruptsItAlone) {
  World w({}, 2);
  Loop x(w, 0), y(w, 1);
  w.Sync();
  for (int i = 0; i < 4; ++i) {
    const T a = x.Record(1.5f), b = y.Record(2.5f);
    if (i == 3) {
      EXPECT_EQ(w.engine->TakeSnapshot().last_replay_miss, "");
      EXPECT_GT(w.Read(a)[0], 0);  // pending: what was deferred there is built
      EXPECT_EQ(w.engine->TakeSnapshot().last_replay_miss, "a value was read that was pending");
    }
    w.Sync();
    EXPECT_GT(w.Read(b)[0], 0);
  }
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 2 + 3);
}

// What goes from one device to another goes through the host: the source's step is built, the target's is not.
TEST(ReplayOfMeshes, AStepThatTouchesSeveralIsBuiltAndRight) {
  World w({}, 2), built(Built(), 2);
  std::vector<float> found[2];
  for (World* world : {&w, &built}) {
    Loop x(*world, 0), y(*world, 1);
    world->Sync();
    for (int i = 0; i < 5; ++i) {
      const T a = x.Record(1.5f + static_cast<float>(i));
      const T moved = world->F32({}, world->Read(a), 1);
      const T sum = world->Op("add", {world->Sum(y.a), moved});
      const T b = y.Record(0.5f);
      world->Sync();
      for (const T& value : {sum, b, x.a, y.a}) {
        for (const float element : world->Read(value)) found[world == &w ? 0 : 1].push_back(element);
      }
    }
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(built.Count(Counter::kStepsReplayed), 0);
  EXPECT_EQ(w.Count(Counter::kStepsReplayed), 4);  // those of the second device
}

TEST(ReplayOfMeshes, MixedOperandsAreRefusedAsEver) {
  World w({}, 2);
  Loop x(w, 0), y(w, 1);
  w.Sync();
  for (int i = 0; i < 4; ++i) {
    const T a = x.Record(1), b = y.Record(1);
    const absl::Status mixed = w.TryOp("add", {a, b}).status();
    EXPECT_THAT(std::string(mixed.message()), HasSubstr("operands are on fake:0 and fake:1"));
    EXPECT_FALSE(w.engine->Assign(a.get(), b.get()).ok());
    w.Sync();
    EXPECT_EQ(w.Read(a), w.Read(b));
  }
}

TEST(ReplayOfMeshes, RandomNumbersAreThoseOfARecordedStep) {
  World w({}, 2), built(Built(), 2);
  const auto draw = [](World& world, int device) {
    const T like = world.F32({4}, {0, 0, 0, 0}, device);
    return world.Op("dropout", {world.Op("add", {like, world.F32({4}, {1, 1, 1, 1}, device)})});
  };
  for (int i = 0; i < 6; ++i) {
    const T a = draw(w, 0), b = draw(w, 1), c = draw(w, 0);
    const T d = draw(built, 0), e = draw(built, 1), f = draw(built, 0);
    w.Sync();
    built.Sync();
    EXPECT_EQ(w.Read(a), built.Read(d));
    EXPECT_EQ(w.Read(b), built.Read(e));
    EXPECT_EQ(w.Read(c), built.Read(f));
    EXPECT_TRUE(w.engine->generator() == built.engine->generator());
  }
  EXPECT_GT(w.Count(Counter::kStepsReplayed), 0);
}

TEST(ReplayOfMeshes, ThreadsTrainOnDevicesOfTheirOwn) {
  World w({}, 2, true), built(Built(), 2);
  std::vector<float> found[2];
  std::vector<std::thread> threads;
  for (int device : {0, 1}) {
    threads.emplace_back([&, device] {
      Loop loop(w, device);
      loop.Sync();
      for (int i = 0; i < 60; ++i) found[device].push_back(loop.Step(1.0f + static_cast<float>(i % 5)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Loop loop(built, 0);
  for (int i = 0; i < 60; ++i) {
    const float wanted = loop.Step(1.0f + static_cast<float>(i % 5));
    EXPECT_EQ(found[0][static_cast<size_t>(i)], wanted);
    EXPECT_EQ(found[1][static_cast<size_t>(i)], wanted);
  }
}

}  // namespace
}  // namespace weft::lazy
