// The engine on the fake plugin whose functions do not return: they are left behind, with all that they use.
#include <chrono>
#include <thread>

#include "src/backends/pjrt/aside.h"
#include "tests/pjrt/fake_world.h"
#include "tests/support/temp_dir.h"

namespace weft::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

int64_t MsSince(Clock::time_point start) { return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count(); }

// Lets what was left behind go on, with what the test has let go of. For sanitizers to see.
void GoOn() {
  Faults("");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

// An upload, a launch that takes over what it was given, a read: the first error.
absl::Status Use(World& w) {
  const std::vector<float> host(1000, 1);
  WEFT_ASSIGN_OR_RETURN(T x, w.engine->FromHost(nullptr, DType::kF32, Dims{1000}, std::as_bytes(std::span(host))));
  WEFT_ASSIGN_OR_RETURN(const lazy::Tensors y, w.TryOp("add", {x, w.Number(2)}));
  WEFT_RETURN_IF_ERROR(w.engine->Assign(x.get(), y[0].get()));
  WEFT_RETURN_IF_ERROR(w.engine->Sync().status());
  return ReadOf(w, x);
}

TEST(PjrtFakeBlocks, WhatDoesNotReturnIsGivenUp) {
  for (const std::string function : {"LoadedExecutable_Execute", "Client_BufferFromHostBuffer", "Buffer_ToHostBuffer", "Event_OnReady", "Buffer_ReadyEvent", "Event_Await"}) {
    for (const char* how : {"blocks", "blocks_after"}) {
      const std::string faults = absl::StrCat(how, "=PJRT_", function);
      {
        World w({}, Fake("", {.launch_deadline_ms = 500}));
        ASSERT_EQ(Use(w), absl::OkStatus());
        Faults(faults);
        const auto start = Clock::now();
        const absl::Status status = Use(w);
        EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << faults << ": " << status;
        EXPECT_THAT(status.message(), AllOf(HasSubstr("pjrt:0"), HasSubstr("had not ended after 500 ms, the option launch_deadline_ms"))) << faults;
        EXPECT_GE(MsSince(start), 500) << faults;
      }
      GoOn();
      World again({}, Fake());
      EXPECT_EQ(Use(again), absl::OkStatus()) << "after " << faults;
    }
  }
}

TEST(PjrtFakeBlocks, AContextWorksOnAfterwards) {
  World w({}, Fake("devices=2", {.launch_deadline_ms = 500}));
  T x = w.Vector({1, 2}), taken = w.Vector({5, 6}), other = w.F32({2}, {3, 4}, 1);
  EXPECT_THAT(w.Read(taken), ElementsAre(5, 6)) << "all is there";
  Faults("devices=2;blocks=PJRT_LoadedExecutable_Execute");
  T y = w.Op("add", {x, x});
  Assign(w, taken, w.Tmp("add", {taken, x}));
  constexpr char kText[] = "a launch on pjrt:0 that had taken over 1 of 2 buffers had not ended after 500 ms, the option launch_deadline_ms";
  EXPECT_EQ((*w.engine->Sync())->Wait(), absl::DeadlineExceededError(kText)) << "as one that the device does not end";
  EXPECT_EQ(ReadOf(w, y).message(), kText);
  EXPECT_EQ(ReadOf(w, taken).message(), kText);
  EXPECT_EQ(ReadOf(w, w.Op("mul", {y, y})).message(), kText) << "what depends on it";
  Faults("devices=2");
  EXPECT_THAT(w.Read(w.Op("add", {other, other})), ElementsAre(6, 8)) << "what is on another device";
  EXPECT_THAT(w.Read(w.Op("mul", {x, x})), ElementsAre(1, 4)) << "what was not taken over";
  EXPECT_EQ(ReadOf(w, y).message(), kText) << "nobody takes the outcome back";
  Assign(w, taken, x);
  EXPECT_THAT(w.Read(taken), ElementsAre(1, 2)) << "what was assigned anew";
  GoOn();
}

TEST(PjrtFakeBlocks, MemoryThatIsLentIsCopiedWithinADeadline) {
  int released = 0;
  std::vector<float> lent = {1, 2};
  {
    World w({}, Fake("", {.launch_deadline_ms = 500}));
    T x = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, lent.data(), [&] { ++released; }).value();
    w.engine->services().RunReleases();
    EXPECT_EQ(released, 1);
    lent = {7, 7};
    EXPECT_THAT(w.Read(x), ElementsAre(1, 2));
    Faults("blocks=PJRT_Client_BufferFromHostBuffer");
    const absl::Status status = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, lent.data(), [&] { ++released; }).status();
    EXPECT_EQ(status, absl::DeadlineExceededError("a copy to pjrt:0 had not ended after 500 ms, the option launch_deadline_ms"));
    EXPECT_EQ(released, 1) << "it is still the caller's";
  }
  GoOn();
}

// --- Starts ----------------------------------------------------------------------------------------------------------------

TEST(PjrtFakeBlocks, AStartThatDoesNotEndIsGivenUpAndMayBeTriedAgain) {
  for (const std::string function : {"PJRT_Client_Create", "PJRT_Client_PlatformName", "PJRT_TopologyDescription_Create"}) {
    Options options{.plugin = Path(), .platform = "pjrt", .start_deadline_ms = 1000};
    if (function == "PJRT_TopologyDescription_Create") options.topology = "fake:1";
    Faults("blocks=" + function);
    const absl::Status status = NewPjrtBackend(options).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("(PJRT 0.115) had not started after 1000 ms, the option start_deadline_ms; it was in " + function));
    GoOn();
    EXPECT_TRUE(NewPjrtBackend(options).ok()) << function;
  }
}

TEST(PjrtFakeBlocks, AnInitialisationThatDoesNotEndIsWaitedForByTheNextOne) {
  const ::weft::testing::TempDir dir;
  const std::string path = dir / "plugin.so";
  std::filesystem::copy_file(Path(), path);
  Options options{.plugin = path, .platform = "pjrt", .start_deadline_ms = 2000};
  setenv("WEFT_FAKE", "blocks=PJRT_Plugin_Initialize", 1);
  const auto refused = [&](const char* text) {
    const absl::Status status = NewPjrtBackend(options).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr(text)));
  };
  refused("had not started after 2000 ms, the option start_deadline_ms; it was in PJRT_Plugin_Initialize");
  refused("had not started after 2000 ms, the option start_deadline_ms");
  unsetenv("WEFT_FAKE");
  World other({}, Fake("", {.start_deadline_ms = 60000}));
  EXPECT_THAT(Step(other), ElementsAre(6, 12)) << "another plugin";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  std::thread goes_on([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    reinterpret_cast<int (*)(const char*)>(dlsym(library, "WeftFakeSet"))("");
  });
  options.start_deadline_ms = 0;
  auto backend = NewPjrtBackend(options);
  goes_on.join();
  ASSERT_TRUE(backend.ok()) << backend.status();
  World w({}, *std::move(backend));
  EXPECT_THAT(Step(w), ElementsAre(6, 12));
}

// --- Threads ---------------------------------------------------------------------------------------------------------------

TEST(Aside, KeepsAThreadForTheNextCallAndStartsOneBesideABusyOne) {
  const auto wait = [](const Ref<Event>& returned) { return returned->WaitDone(-1); };
  Aside aside;
  std::thread::id first, second, inner;
  EXPECT_TRUE(aside.Run([&] { first = std::this_thread::get_id(); }, wait));
  EXPECT_TRUE(aside.Run(
      [&] {
        second = std::this_thread::get_id();
        EXPECT_TRUE(aside.Run([&] { inner = std::this_thread::get_id(); }, wait));
      },
      wait));
  EXPECT_EQ(first, second);
  EXPECT_NE(inner, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(Aside, LeavesBehindWhatDoesNotReturnAndLetsGoOfItInTheEnd) {
  const auto held = std::make_shared<std::atomic<bool>>(false);
  const Ref<Event> gone = MakeRef<Event>();
  {
    Aside aside;
    const auto work = [held] {
      while (!*held) std::this_thread::yield();
    };
    EXPECT_FALSE(aside.Run(work, [&](const Ref<Event>& returned) {
      returned->OnDone([gone](const absl::Status&) { gone->Complete(absl::OkStatus()); });
      return returned->WaitDone(1'000'000);
    }));
    EXPECT_TRUE(aside.Run([] {}, [](const Ref<Event>& returned) { return returned->WaitDone(-1); })) << "others go on";
  }
  *held = true;
  EXPECT_TRUE(gone->Wait().ok());
}

TEST(Aside, WhatIsThrownReachesTheCaller) {
  Aside aside;
  const auto wait = [](const Ref<Event>& returned) { return returned->WaitDone(-1); };
  EXPECT_THROW(aside.Run([] { throw std::bad_alloc(); }, wait), std::bad_alloc);
  EXPECT_TRUE(aside.Run([] {}, wait));
}

}  // namespace
}  // namespace weft::pjrt
