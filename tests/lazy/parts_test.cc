// The engine's parts by themselves: the planner on graphs made by hand, the compile queue, the services, the uses of nodes.
#include <thread>

#include "src/compiler/compile_queue.h"
#include "src/lazy/cut/cut_planner.h"
#include "src/lazy/run/launcher.h"
#include "src/lazy/record/recorder.h"
#include "src/ops/call.h"
#include "tests/lazy/world.h"

namespace weft::lazy {
namespace {

using ir::Value;

struct Planner : ::testing::Test {
  Value Leaf(Dims dims) {
    const ir::Type type = ir::Type::Tensor(DType::kF32, dims);
    Ref<Buffer> buffer = backend.ToDevice(backend.devices()[0], DType::kF32, dims, HostTensor(DType::kF32, dims).bytes()).value();
    return Recorder::NewLeaf(type, MakeRef<Data>(Placement::Whole(mesh), Shards{std::move(buffer)}));
  }
  Value Op(const ir::OpDef& op, ir::Values operands) { return ops::Call(b, op, std::move(operands)); }

  testing::FakeBackend backend;
  const DeviceMesh mesh{{backend.devices()[0]}};
  ir::Builder b;
  CutPlanner planner;
  Cut cut;
};

// Gives each device, as its result, the argument that it got, and keeps the lists.
struct Echo final : Executable {
  explicit Echo(std::vector<std::vector<Ref<Buffer>>>* got) : got(got) {}
  absl::StatusOr<std::vector<DeviceResults>> Execute(std::span<const DeviceArguments> devices) override {
    std::vector<DeviceResults> all;
    for (const DeviceArguments& device : devices.first(devices.size() - lost)) {
      got->emplace_back(device.buffers.begin(), device.buffers.end());
      words.assign(device.words.begin(), device.words.end());
      DeviceResults& results = all.emplace_back();
      results.buffers.push_back(device.buffers[0]);
      results.done = done.emplace_back(MakeRef<Event>());
    }
    return all;
  }
  absl::StatusOr<std::string> Serialize() const override { return std::string(); }
  ExecutableStats stats() const override { return {}; }
  std::vector<std::vector<Ref<Buffer>>>* got;
  std::vector<uint32_t> words;
  std::vector<Ref<Event>> done;
  size_t lost = 0;
};

TEST(Launcher, BindsAListOfArgumentsAndOneOfResultsForEachDeviceOfAMesh) {
  testing::FakeBackend backend(2);
  MeshState state({backend.devices().begin(), backend.devices().end()}, {}, nullptr);
  const Dims dims{2};
  Shards shards;
  for (Device* device : backend.devices()) {
    shards.push_back(backend.ToDevice(device, DType::kF32, dims, HostTensor(DType::kF32, dims).bytes()).value());
  }
  const Value x = Recorder::NewLeaf(ir::Type::Tensor(DType::kF32, dims), MakeRef<Data>(state.whole(), shards));
  const Value scale = Recorder::NewLeaf(ir::Type::Scalar(DType::kF32), MakeRef<Data>(std::vector<uint32_t>{7}));
  ir::Builder b;
  const Value y = ops::Call(b, ops::kOp_mul, {x, scale});
  CutPlanner planner;
  Cut cut;
  planner.These({&y, 1}, &cut);
  ASSERT_TRUE(planner.Trace(&cut).ok());
  std::vector<std::vector<Ref<Buffer>>> got;
  const auto program = std::make_shared<compiler::Program>();
  program->executable = std::make_unique<Echo>(&got);
  Echo& echo = static_cast<Echo&>(*program->executable);
  Metrics metrics;
  Launcher launcher(metrics);
  echo.lost = 1;
  EXPECT_THAT(std::string(launcher.Launch(state, program, CutReason::kEval, {}, &cut).message()),
              HasSubstr("a launch on 2 devices gave 1 lists of results"));
  EXPECT_EQ(DataOf(y), nullptr);
  echo.lost = 0;
  got.clear();
  echo.done.clear();
  ASSERT_TRUE(launcher.Launch(state, program, CutReason::kEval, {}, &cut).ok());
  EXPECT_THAT(got, ElementsAre(ElementsAre(shards[0]), ElementsAre(shards[1])));
  EXPECT_THAT(echo.words, ElementsAre(7));
  const Data* data = DataOf(y);
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(data->sharding() == state.whole());
  EXPECT_THAT(data->shards(), ElementsAre(shards[0], shards[1]));
  EXPECT_EQ(data->whole(), shards[0]);
  EXPECT_EQ(data->bytes(), 8);
  shards[1]->Hold();
  EXPECT_TRUE(data->held());
  shards[1]->Unhold();
  // Done when both are; the first failure is the launch's.
  echo.done[1]->Complete(absl::InternalError("device 1"));
  EXPECT_FALSE(state.last_event()->done());
  echo.done[0]->Complete(absl::OkStatus());
  ASSERT_TRUE(state.last_event()->done());
  EXPECT_EQ(state.last_event()->status().message(), "device 1");
}

TEST_F(Planner, ComputesWhatIsSharedOnceAndLeavesTheRestToItsUser) {
  const Value x = Leaf({4});
  const Value h = Op(ops::kOp_exp, {x});
  const Value asked = Op(ops::kOp_neg, {h});
  planner.Shared({&asked, 1}, &cut);
  EXPECT_THAT(cut.outputs, ElementsAre(asked));  // nobody else wants h
  {
    const Value other = Op(ops::kOp_tanh, {h});
    planner.Shared({&asked, 1}, &cut);
    EXPECT_THAT(cut.outputs, ElementsAre(asked, h));  // a pending user
    EXPECT_EQ(cut.asked, 1u);
  }
  const Value copy = h;  // references mean lifetime and nothing else
  planner.Shared({&asked, 1}, &cut);
  EXPECT_THAT(cut.outputs, ElementsAre(asked));
  h.node->Show();
  planner.Shared({&asked, 1}, &cut);
  EXPECT_THAT(cut.outputs, ElementsAre(asked, h));  // a tensor
  h.node->Hide();
}

TEST_F(Planner, TracesOperandsFirstAndEveryLeafOnce) {
  const Value x = Leaf({4}), y = Leaf({4});
  const Value sum = Op(ops::kOp_add, {x, y});
  const Value outputs[] = {Op(ops::kOp_mul, {sum, x}), sum};
  planner.These(outputs, &cut);
  ASSERT_TRUE(planner.Trace(&cut).ok());
  EXPECT_THAT(cut.trace.nodes, ElementsAre(sum.node.get(), outputs[0].node.get()));
  EXPECT_THAT(cut.arguments, ElementsAre(Ref<Data>::Share(DataOf(x)), Ref<Data>::Share(DataOf(y))));
  EXPECT_THAT(cut.trace.outputs, ElementsAre(compiler::Trace::OfValue(1), compiler::Trace::OfValue(0)));
  EXPECT_EQ(CutPlanner::LeafBytes(cut), 32);
  EXPECT_EQ(planner.OutputBytes(cut), 32);
}

TEST_F(Planner, OffersAnArgumentOnceAndByType) {
  const Value x = Leaf({4}), y = Leaf({2});
  const Value outputs[] = {Op(ops::kOp_exp, {x}), Op(ops::kOp_neg, {x}), Op(ops::kOp_neg, {y})};
  planner.These(outputs, &cut);
  for (size_t i = 0; i < 3; ++i) cut.offered[i] = Ref<Data>::Share(DataOf(x));
  ASSERT_TRUE(planner.Trace(&cut).ok());
  planner.Offer(&cut);
  EXPECT_EQ(cut.trace.arguments[0].donated_to, 0);
  EXPECT_EQ(cut.trace.arguments[1].donated_to, -1);
}

TEST_F(Planner, ShrinksToWhatTheLargestAreMadeOf) {
  const Value x = Leaf({100, 1}), y = Leaf({1, 100});
  const Value h = Op(ops::kOp_exp, {x});
  const Value large = Op(ops::kOp_sub, {h, y});
  planner.These({&large, 1}, &cut);
  cut.asked = 0;
  EXPECT_TRUE(planner.Shrink(1000, 0, &cut));
  EXPECT_EQ(cut.outputs.size(), 1u);
  EXPECT_EQ(planner.OutputBytes(cut), 400);
  planner.These({&large, 1}, &cut);
  EXPECT_FALSE(planner.Shrink(1000, 0, &cut));  // asked for
  cut.asked = 0;
  EXPECT_FALSE(planner.Shrink(1000, 50'000, &cut));  // not that much larger than its leaves
}

TEST(Uses, AreCountedWhileTheUserLives) {
  ir::Builder b;
  const Value x = Recorder::NewLeaf(ir::Type::Scalar(DType::kF32), nullptr);
  EXPECT_EQ(x.node->users(), 0u);
  {
    const Value twice = ops::Call(b, ops::kOp_add, {x, x});
    EXPECT_EQ(x.node->users(), 2u);
    const Value one = ops::Call(b, ops::kOp_neg, {x});
    EXPECT_EQ(x.node->users(), 3u);
    one.node->ForgetOperands();
    EXPECT_EQ(x.node->users(), 2u);
  }
  EXPECT_EQ(x.node->users(), 0u);
}

TEST(CompileQueue, MakesOneProgramForAllAndDropsWhatWaitsWhenItEnds) {
  testing::FakeBackend backend;
  Metrics metrics;
  compiler::ProgramCache::Config config;
  config.backend = &backend;
  config.metrics = &metrics;
  config.warn = [](std::string) {};
  compiler::ProgramCache cache(std::move(config));
  Ref<Event> gate = MakeRef<Event>();
  std::atomic<bool> started{false};
  backend.on_compile = [&] {
    started = true;
    started.notify_all();
    (void)gate->Wait();
  };
  ir::Builder b;
  CutPlanner planner;
  const Value x = Recorder::NewLeaf(ir::Type::Scalar(DType::kF32), MakeRef<Data>(std::vector<uint32_t>{0}));
  const auto wanted = [&](const ir::OpDef& op) {
    const Value output = ops::Call(b, op, {x});
    Cut cut;
    planner.These({&output, 1}, &cut);
    EXPECT_TRUE(planner.Trace(&cut).ok());
    compiler::Wanted made;
    EXPECT_EQ(cache.Find(cut.trace, &made), nullptr);
    return made;
  };
  Ref<compiler::CompileQueue::Job> first, dropped;
  std::thread later;
  {
    compiler::CompileQueue queue;
    first = queue.Enter(cache, wanted(ops::kOp_exp));
    EXPECT_EQ(queue.Enter(cache, wanted(ops::kOp_exp)), first);
    dropped = queue.Enter(cache, wanted(ops::kOp_neg));
    EXPECT_NE(dropped, first);
    started.wait(false);
    later = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      gate->Complete(absl::OkStatus());
    });
  }
  later.join();
  EXPECT_TRUE(first->done()->done());
  ASSERT_TRUE(first->result().ok());
  EXPECT_EQ(dropped->result().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(backend.compiles, 1);
  EXPECT_EQ(metrics.Get(Counter::kProgramsCompiled), 1);
}

bool NoHelp() { return false; }

TEST(Services, DoWhatOwnersWantOnlyWhereNoLockIsHeld) {
  Metrics metrics;
  Services services(LogHook(), &metrics, NoHelp);
  int released = 0;
  Services::Locked() = true;
  services.Later([&] { ++released; })();
  services.RunReleases();
  EXPECT_EQ(released, 0);
  Services::Locked() = false;
  services.RunReleases();
  EXPECT_EQ(released, 1);
  services.Later([&] { ++released; })();
  EXPECT_EQ(released, 2);
  services.Later(nullptr)();
}

TEST(Services, DeliverMessagesOnceAndKeepTheNewestWarnings) {
  Metrics metrics;
  std::vector<std::string> seen;
  Services services([&](LogLevel, std::string_view text) { seen.emplace_back(text); }, &metrics, NoHelp);
  services.Log(LogLevel::kInfo, "note");
  for (int i = 0; i < 20; ++i) services.Log(LogLevel::kWarning, std::to_string(i));
  EXPECT_TRUE(seen.empty());
  services.FlushLog();
  services.FlushLog();
  EXPECT_EQ(seen.size(), 21u);
  EXPECT_EQ(services.LastWarnings().size(), 16u);
  EXPECT_EQ(services.LastWarnings().front(), "4");
  EXPECT_EQ(metrics.Get(Counter::kWarnings), 20);
}

}  // namespace
}  // namespace weft::lazy
