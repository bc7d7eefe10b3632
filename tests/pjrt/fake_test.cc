// The engine on the fake plugin (fake/fake.cc): what the client does when a plugin is slow, short of memory, or broken. fake_hangs_test.cc
// and fake_less_test.cc have more of it.
#include <thread>

#include "serialization/compile_cache.h"
#include "src/backends/reference/reference_backend.h"
#include "src/compiler/disk_store.h"
#include "src/compiler/program_cache.h"
#include "src/ops/call.h"
#include "tests/pjrt/fake_world.h"
#include "tests/support/op_programs.h"
#include "tests/support/run_on_backend.h"
#include "tests/support/temp_dir.h"

namespace weft::pjrt {
namespace {

TEST(PjrtFake, Adds) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  EXPECT_THAT(w.Read(w.Op("add", {x, w.Number(1)})), ElementsAre(2, 3));
}

// --- Failures --------------------------------------------------------------------------------------------------------------

TEST(PjrtFake, ARefusedOperationIsNamedWithThePlaceWhereItWasRecorded) {
  World w({}, Fake("refuses=stablehlo.tanh"));
  const T x = w.Vector({1, 2});
  const auto here = w.TryOp("tanh", {w.Op("add", {x, x})}, {}, {ir::InternFile("model.c"), 7});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_THAT(ReadOf(w, (*here)[0]).message(), HasSubstr("'stablehlo.tanh' op can't be translated to XLA HLO (stablehlo.tanh recorded at model.c:7)"));
  EXPECT_THAT(ReadOf(w, w.Op("tanh", {x})).message(), AllOf(HasSubstr("op can't be translated"), Not(HasSubstr("recorded at"))));
  EXPECT_THAT(w.Read(w.Op("add", {x, x})), ElementsAre(2, 4)) << "everything else stays usable";
  Faults("");
}

TEST(PjrtFake, AFailedLaunchSticksToItsResultsAndToNothingElse) {
  World w({}, Fake("devices=2"));
  T x = w.Vector({1, 2}), other = w.F32({2}, {3, 4}, 1), taken = w.Vector({5, 6});
  w.Sync();
  Faults("devices=2;fail=launch:1:13");
  T y = w.Op("add", {x, x});
  Assign(w, taken, w.Tmp("add", {taken, x}));
  const absl::Status outcome = (*w.engine->Sync())->Wait();
  EXPECT_EQ(outcome.code(), absl::StatusCode::kInternal);
  constexpr char kText[] = "a launch on pjrt:0 that had taken over 1 of 2 buffers: fake: call 1 of launch fails";
  EXPECT_THAT(outcome.message(), HasSubstr(kText));
  EXPECT_THAT(ReadOf(w, y).message(), HasSubstr(kText));
  EXPECT_THAT(ReadOf(w, taken).message(), HasSubstr(kText));
  EXPECT_THAT(ReadOf(w, w.Op("add", {y, y})).message(), HasSubstr(kText)) << "what depends on it";
  EXPECT_THAT(w.Read(w.Op("add", {x, x})), ElementsAre(2, 4)) << "what was not taken over";
  EXPECT_THAT(w.Read(w.Op("add", {other, other})), ElementsAre(6, 8)) << "what is on another device";
  Assign(w, taken, x);
  EXPECT_THAT(w.Read(taken), ElementsAre(1, 2)) << "what was assigned anew";
}

TEST(PjrtFake, ALaunchThatIsRefusedTakesNothingOver) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  w.Sync();
  Faults("fail=PJRT_LoadedExecutable_Execute:1:13");
  Assign(w, x, w.Tmp("add", {x, x}));
  EXPECT_THAT(w.engine->Sync().status().message(), HasSubstr("PJRT_LoadedExecutable_Execute: fake: call 1"));
  EXPECT_THAT(w.Read(x), ElementsAre(2, 4)) << "asked for again";
}

TEST(PjrtFake, ADeviceThatDiesLeavesTheOthers) {
  World w({}, Fake("devices=2;dies=0:2"));
  T x = w.Vector({1, 2}), other = w.F32({2}, {3, 4}, 1);
  std::vector<absl::Status> outcomes;
  for (int i = 0; i < 3; ++i) {
    Assign(w, x, w.Tmp("add", {x, w.Number(1)}));
    const auto event = w.engine->Sync(w.engine->devices()[0]);
    outcomes.push_back(event.ok() ? (*event)->Wait() : event.status());
  }
  EXPECT_TRUE(outcomes[1].ok() || absl::IsUnavailable(outcomes[1])) << outcomes[1];
  EXPECT_THAT(outcomes[2].message(), HasSubstr("fake: device 0 is gone"));
  EXPECT_THAT(ReadOf(w, x).message(), HasSubstr("fake: device 0 is gone"));
  EXPECT_THAT(w.engine->FromHost(w.engine->devices()[0], DType::kF32, Dims{1}, std::as_bytes(std::span("123", 4))).status().message(),
              HasSubstr("fake: device 0 is gone"));
  EXPECT_THAT(w.Read(w.Op("add", {other, other})), ElementsAre(6, 8));
}

TEST(PjrtFake, EveryFunctionMayFailOnce) {
  // An upload, a program compiled and kept, a launch with words, a read; whatever fails says so, and the next time all is well.
  for (const std::string function :
       {"Client_BufferFromHostBuffer", "Buffer_ReadyEvent", "Event_Await", "Event_OnReady", "Client_Compile", "LoadedExecutable_GetExecutable",
        "Executable_NumOutputs", "Executable_SizeOfGeneratedCodeInBytes", "Executable_Serialize", "Executable_GetCompiledMemoryStats",
        "LoadedExecutable_Execute", "Buffer_ToHostBuffer", "Event_Destroy", "Buffer_Destroy", "Executable_Destroy"}) {
    for (int call = 1; call <= 2; ++call) {
      lazy::Shelf shelf;
      World w({}, Fake(), std::make_unique<lazy::FakeStore>(&shelf));
      Faults(absl::StrCat("fail=PJRT_", function, ":", call, ":14"));
      const auto step = [&]() -> absl::StatusOr<std::vector<float>> {
        const float host[] = {1, 2};
        WEFT_ASSIGN_OR_RETURN(T x, w.engine->FromHost(nullptr, DType::kF32, Dims{2}, std::as_bytes(std::span(host))));
        WEFT_ASSIGN_OR_RETURN(const lazy::Tensors y, w.TryOp("add", {x, w.Number(call)}));
        std::vector<float> values(2);
        WEFT_RETURN_IF_ERROR(w.engine->ToHost(y[0].get(), std::as_writable_bytes(std::span(values))));
        return values;
      };
      absl::StatusOr<std::vector<float>> last;
      int failures = 0;
      for (int i = 0; i < 3; ++i) {
        last = step();
        if (last.ok()) continue;
        ++failures;
        EXPECT_THAT(last.status().message(), HasSubstr(absl::StrCat("fake: call ", call, " of PJRT_", function)));
      }
      EXPECT_LE(failures, 1) << function;
      ASSERT_TRUE(last.ok()) << function << ": " << last.status();
      EXPECT_THAT(*last, ElementsAre(1 + call, 2 + call)) << function;
    }
  }
}

// --- Memory ----------------------------------------------------------------------------------------------------------------

TEST(PjrtFake, ALaunchThatFindsNoMemoryIsTriedOnceMore) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  w.Sync();
  Faults("fail=PJRT_LoadedExecutable_Execute:1:8");
  Assign(w, x, w.Tmp("add", {x, x}));
  w.Sync();
  EXPECT_THAT(w.Read(x), ElementsAre(2, 4));
}

TEST(PjrtFake, ALaunchThatFindsNoMemoryTwiceSaysWhatHoldsIt) {
  World w({}, Fake());
  T x = w.Vector({1, 2}), held = w.Vector({3, 4, 5});
  w.Sync();
  ASSERT_TRUE(w.engine->Wait().ok());
  Faults("fail=PJRT_LoadedExecutable_Execute:1:8;fail=PJRT_LoadedExecutable_Execute:2:8");
  Assign(w, x, w.Tmp("add", {x, x}));
  EXPECT_THAT(w.engine->Sync().status().message(),
              AllOf(HasSubstr("no memory for f32[2] (add) of 8 bytes: PJRT_LoadedExecutable_Execute: fake: call 2"), HasSubstr("f32[3] of 12 bytes (from the caller)")));
  EXPECT_THAT(w.Read(x), ElementsAre(2, 4)) << "asked for again";
}

TEST(PjrtFake, WhatFindsNoMemoryNamesTheLargestTensors) {
  constexpr int64_t kCount = 100'000;  // 400,000 bytes
  World w({}, Fake("memory=1000000"));
  T x = w.F32({kCount}, std::vector<float>(kCount, 1));
  T small = w.Vector({1, 2});
  w.Sync();
  T y = w.Op("add", {x, x});
  w.Sync();
  T z = w.Op("mul", {x, x});
  const absl::Status status = w.engine->Sync().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  constexpr char kLargest[] = "; the largest of 3 live tensors, which hold 800008 bytes: f32[100000] of 400000 bytes (from the caller), f32[100000] of";
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no memory for f32[100000] (mul) of 400000 bytes: 400000 bytes are needed at once, 199992 are free on pjrt:0"),
                                      HasSubstr(kLargest)));
  const std::vector<float> host(kCount);
  const absl::Status upload = w.engine->FromHost(nullptr, DType::kF32, Dims{kCount}, std::as_bytes(std::span(host))).status();
  EXPECT_THAT(upload.message(), AllOf(HasSubstr("fake: 400000 bytes wanted, 800008 of 1000000 in use"), HasSubstr("the largest of 3 live tensors")));
  y = nullptr;
  EXPECT_THAT(w.Read(z), Each(1)) << "after a release";
}

TEST(PjrtFake, WaitsForLaunchesThatHoldMemory) {
  constexpr int64_t kCount = 50'000;  // 200,000 bytes
  World w({}, Fake("memory=1000000;slow_ms=5"));
  T x = w.F32({kCount}, std::vector<float>(kCount, 1));
  for (int i = 0; i < 12; ++i) {
    T y = w.Op("add", {x, w.Number(i)});
    const auto event = w.engine->Sync();
    ASSERT_TRUE(event.ok()) << i << ": " << event.status();
  }
  EXPECT_TRUE(w.engine->Wait().ok());
}

TEST(PjrtFake, AnOptionLimitsTheMemoryOfEachDevice) {
  constexpr int64_t kCount = 100'000;  // 400,000 bytes
  World w({}, Fake("devices=2", {.services = {.budget = std::make_shared<MemoryBudget>(1'000'000)}}));
  Backend& backend = *w.engine->devices()[0]->backend;
  EXPECT_EQ(backend.memory_stats(w.engine->devices()[0]).bytes_limit, 1'000'000);
  T x = w.F32({kCount}, std::vector<float>(kCount, 1)), y = w.Op("add", {x, x});
  w.Sync();
  EXPECT_EQ(backend.memory_stats(w.engine->devices()[0]).bytes_in_use, 800'000);
  EXPECT_EQ(backend.bytes_available(w.engine->devices()[0]), 200'000);
  const std::vector<float> host(kCount);
  const auto upload = [&](int id) { return w.engine->FromHost(w.engine->devices()[id], DType::kF32, Dims{kCount}, std::as_bytes(std::span(host))); };
  EXPECT_EQ(upload(0).status().message(), "no memory for a tensor of 400000 bytes: memory_limit is 1000000 bytes, of which 800000 are in use, and 400000 more are needed; "
                                          "the largest of 2 live tensors, which hold 800000 bytes: f32[100000] of 400000 bytes (from the caller), f32[100000] of 400000 bytes (add)");
  ASSERT_TRUE(upload(1).ok()) << "each device has its own";
  T z = w.Op("mul", {x, x});
  EXPECT_THAT(w.engine->Sync().status().message(), AllOf(HasSubstr("no memory for f32[100000] (mul) of 400000 bytes: "), HasSubstr("the largest of 2 live tensors")));
  Assign(w, x, w.Tmp("add", {x, x}));
  EXPECT_THAT(ReadOf(w, x).message(), HasSubstr("400000 bytes are needed at once")) << "z wants the old value";
  z = nullptr;
  w.Sync();
  EXPECT_THAT(w.Read(x), Each(2)) << "the old value was taken over";
  y = nullptr;
  EXPECT_THAT(w.Read(w.Op("mul", {x, x})), Each(4)) << "after a release";
  EXPECT_EQ(backend.memory_stats(w.engine->devices()[0]).bytes_in_use, 400'000);
  EXPECT_EQ(backend.memory_stats(w.engine->devices()[0]).peak_bytes, 800'000);
}

TEST(PjrtFake, SmallLaunchesKeepTheLimitToo) {
  // Below 256 MiB, or an eighth of the limit, nobody asks before a launch.
  World w({}, Fake("", {.services = {.budget = std::make_shared<MemoryBudget>(64)}}));
  std::vector<T> held = {w.F32({4}, {1, 2, 3, 4})};
  absl::Status status;
  while (held.size() < 10 && status.ok()) {
    held.push_back(w.Op("add", {held.back(), held.back()}));
    status = w.engine->Sync().status();
  }
  EXPECT_EQ(held.size(), 5u);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no memory for f32[4] (add) of 16 bytes: "), HasSubstr("the largest of 4 live tensors, which hold 64 bytes")));
  held.erase(held.begin());
  EXPECT_THAT(w.Read(held.back()), ElementsAre(16, 32, 48, 64)) << "asked for again";
}

TEST(PjrtFake, TellsWhatThePluginTellsOfADevice) {
  constexpr char kAll[] = "{\"pjrt_version\": \"0.115\", \"fake\": true, \"coords\": [0, 1], \"say \\\"it\\\"\": \"two\\u000alines\", \"slots\": -7, \"speed\": 0.5}";
  World there({}, Fake()), ahead({}, NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .topology = "fake:1"}).value());
  for (World* w : {&there, &ahead}) {
    EXPECT_EQ(w->engine->devices()[0]->backend->attributes(w->engine->devices()[0]), kAll);
    EXPECT_THAT(JsonOf(w->engine->TakeSnapshot()), HasSubstr(absl::StrCat("\"kind\": \"interpreter\", \"attributes\": ", kAll, "}")));
  }
}

// --- Programs --------------------------------------------------------------------------------------------------------------

TEST(PjrtFake, ASecondStartHandsBackTheBytesThatWereStoredAndCompilesNothing) {
  // The plugin ends the process if it gets other bytes than it gave.
  lazy::Shelf shelf;
  for (int start = 0; start < 2; ++start) {
    const Since compiled("PJRT_Client_Compile"), loaded("PJRT_Executable_DeserializeAndLoad");
    World w({}, Fake(), std::make_unique<lazy::FakeStore>(&shelf));
    EXPECT_THAT(Step(w), ElementsAre(6, 12));
    EXPECT_EQ(compiled(), 1 - start);
    EXPECT_EQ(loaded(), start);
  }
}

TEST(PjrtFake, WhatIsNotLoadedIsCompiledAgain) {
  lazy::Shelf shelf;
  for (const char* faults : {"", "refuses_load", "fail=PJRT_Executable_DeserializeAndLoad:1:15"}) {
    const Since compiled("PJRT_Client_Compile");
    World w({}, Fake(faults), std::make_unique<lazy::FakeStore>(&shelf));
    EXPECT_THAT(Step(w), ElementsAre(6, 12));
    EXPECT_EQ(compiled(), 1);
  }
}

TEST(PjrtFake, ADamagedFileOfTheCacheDoesNotReachThePlugin) {
  ::weft::testing::TempDir dir;
  CompileCacheOptions options;
  options.directory = dir / "cache";
  const auto run = [&] {
    World w({}, Fake(), compiler::MakeDiskStore(CompileCacheStore::Open(options)));
    EXPECT_THAT(Step(w), ElementsAre(6, 12));
    ASSERT_TRUE(w.engine->Close().ok());
  };
  run();
  int damaged = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(options.directory)) {
    if (!file.is_regular_file() || file.file_size() < 200) continue;
    std::FILE* const open = std::fopen(file.path().c_str(), "r+b");
    const long middle = static_cast<long>(file.file_size() / 2);
    std::fseek(open, middle, SEEK_SET);
    const int byte = std::fgetc(open);
    std::fseek(open, middle, SEEK_SET);
    std::fputc(byte ^ 1, open);
    std::fclose(open);
    ++damaged;
  }
  EXPECT_GT(damaged, 0);
  const Since compiled("PJRT_Client_Compile"), loaded("PJRT_Executable_DeserializeAndLoad");
  run();
  EXPECT_EQ(compiled(), 1);
  EXPECT_EQ(loaded(), 0);
}

TEST(PjrtFake, EqualStepsCompileOnceWhateverIsHeldMeanwhile) {
  World w({}, Fake());
  T t = w.Vector({1, 2}), u = w.Vector({10, 20});
  const auto step = [&] {
    Assign(w, t, w.Tmp("add", {t, w.Number(1)}));
    Assign(w, u, w.Tmp("add", {u, t}));
    w.Sync();
  };
  step();
  const Since compiled("PJRT_Client_Compile");
  step();
  T alias = w.engine->Alias(t.get()).value();  // shows t's value as it is now
  step();
  const Ref<Buffer> exported = w.engine->ToBuffer(u.get()).value();
  step();
  step();
  exported->Unhold();
  step();
  EXPECT_EQ(compiled(), 0);
  EXPECT_THAT(w.Read(alias), ElementsAre(3, 4));
  EXPECT_THAT(w.Read(t), ElementsAre(7, 8));
  EXPECT_EQ(exported->device()->name, "pjrt:0");
}

TEST(PjrtFake, AllWordsAreOneCopy) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  const auto step = [&](double value) {
    T y = x;
    for (int i = 0; i < 6; ++i) y = w.Op("add", {y, w.Number(value * i)});
    return w.Read(y);
  };
  EXPECT_THAT(step(1), ElementsAre(16, 17));
  const Since copies("PJRT_Client_BufferFromHostBuffer"), compiled("PJRT_Client_Compile");
  EXPECT_THAT(step(2), ElementsAre(31, 32));
  EXPECT_EQ(copies(), 1);
  EXPECT_EQ(compiled(), 0);
}

TEST(PjrtFake, ATensorReadInPiecesIsFetchedOnce) {
  constexpr int64_t kBytes = 64 << 20, kPiece = 4 << 20;
  World w({}, Fake());
  T x = w.F32({kBytes / 4}, std::vector<float>(kBytes / 4, 7));
  const Since bytes("from_device"), fetched("PJRT_Buffer_ToHostBuffer");
  std::vector<float> piece(kPiece / 4);
  for (int64_t at = 0; at < kBytes; at += kPiece) {
    ASSERT_TRUE(w.engine->ReadBytes(x.get(), at, std::as_writable_bytes(std::span(piece))).ok());
    EXPECT_EQ(piece.front(), 7);
    EXPECT_EQ(piece.back(), 7);
  }
  EXPECT_EQ(bytes(), kBytes);
  EXPECT_EQ(fetched(), 1);
}

TEST(PjrtFake, ACancelEndsTheWaitForASlowCompilerAndItsProgramIsKept) {
  World w({}, Fake());
  T x = w.Vector({1, 2});
  const Since compiled("PJRT_Client_Compile");
  Faults("slow_compile_ms=400");
  T y = w.Op("add", {x, x});
  std::thread other([&] {
    while (compiled() == 0) std::this_thread::yield();
    w.engine->services().Cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(w.engine->Sync().status(), absl::CancelledError("cancelled by weft_cancel"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(350));
  other.join();
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4));
  EXPECT_EQ(compiled(), 1);
}

TEST(PjrtFake, WaitingForASlowCompilerMayHaveADeadline) {
  lazy::Options options;
  options.compile_deadline_ms = 50;
  World w(options, Fake());
  T x = w.Vector({1, 2});
  w.Sync();
  const Since compiled("PJRT_Client_Compile");
  Faults("slow_compile_ms=400");
  T y = w.Op("add", {x, x});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(w.engine->Sync().status(),
            absl::DeadlineExceededError("a program of 1 nodes is not there after 50 ms, the option compile_deadline_ms: it is being compiled "
                                        "by the plugin. Whoever asks again waits on for the same program"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(350));
  absl::Status read;
  int tries = 0;
  do {
    read = ReadOf(w, y);
  } while (absl::IsDeadlineExceeded(read) && ++tries < 100);
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_GT(tries, 1);
  EXPECT_EQ(compiled(), 1);
  EXPECT_EQ(w.engine->metrics().Get(Counter::kTensorsSetAside), 0);
}

// x + x through a cache of its own, as a build of this name would look for it.
void AsBuild(const std::string& build, Backend& backend, compiler::ProgramStore& store) {
  Metrics metrics;
  compiler::ProgramCache cache({.backend = &backend, .build = build, .store = &store, .metrics = &metrics, .warn = [](const std::string&) {}});
  const ir::Value x(ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kF32, {2})}), 0);
  ir::Builder b;
  const ir::Value sum = ops::Call(b, ops::kOp_add, {x, x});
  compiler::Trace trace;
  trace.arguments.push_back({.node = x.node.get()});
  trace.nodes.push_back(sum.node.get());
  trace.operands.assign(2, compiler::Trace::OfArgument(0));
  trace.outputs.push_back(compiler::Trace::OfValue(0));
  trace.values = 1;
  compiler::Wanted wanted;
  ASSERT_EQ(cache.Find(trace, &wanted), nullptr);
  const auto program = cache.Make(std::move(wanted));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(cache.Find(trace, &wanted), *program);
}

TEST(PjrtFake, AnotherBuildOfThisLibraryFindsWhatThePluginCompiled) {
  lazy::Shelf shelf;
  lazy::FakeStore store(&shelf);
  const Since compiled("PJRT_Client_Compile"), loaded("PJRT_Executable_DeserializeAndLoad");
  const auto backend = Fake();
  for (const char* build : {"one", "two"}) AsBuild(build, *backend, store);
  EXPECT_EQ(compiled(), 1);
  EXPECT_EQ(loaded(), 1);
  ASSERT_EQ(shelf.entries.size(), 1u);
  EXPECT_THAT(shelf.entries.begin()->second.canonical, AllOf(HasSubstr("stablehlo.add"), HasSubstr("fake"))) << "text and plugin";
}

TEST(PjrtFake, RandomBitsAreEveryBackends) {
  const ir::OpDef& op = ops::kOp_rng_bit_generator;
  const auto fake = Fake();
  const auto reference = NewReferenceBackend();
  for (const ir::Sample& sample : op.samples) {
    const auto program = test::MakeOpProgram(op, sample, DType::kU64, std::string(sample.call), /*gradients=*/false);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto expected = test::RunOnBackend(*reference, program->module, program->inputs);
    const auto found = test::RunOnBackend(*fake, program->module, program->inputs);
    ASSERT_TRUE(expected.ok() && found.ok()) << sample.call << ": " << expected.status() << found.status();
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_TRUE(std::ranges::equal((*expected)[i].bytes(), (*found)[i].bytes())) << sample.call;
    }
  }
}

// --- Launches and threads --------------------------------------------------------------------------------------------------

TEST(PjrtFake, LaunchesAheadAreBounded) {
  World w({}, Fake("slow_ms=1"));
  T x = w.Vector({0});
  w.Sync();
  const Since asked("PJRT_LoadedExecutable_Execute"), ran("launches");
  int64_t most = 0;
  for (int i = 0; i < 60; ++i) {
    Assign(w, x, w.Tmp("add", {x, w.Number(1)}));
    ASSERT_TRUE(w.engine->Sync().ok());
    most = std::max(most, asked() - ran());
  }
  EXPECT_GT(most, 8) << "asynchronous";
  EXPECT_LE(most, static_cast<int64_t>(lazy::MeshState::kAhead));
  EXPECT_THAT(w.Read(x), ElementsAre(60));
}

TEST(PjrtFake, FourThreadsRunOneProgramOnFourDevicesOfTwoContexts) {
  World one({}, Fake("devices=4")), two({}, Fake("devices=4"));
  for (World* w : {&one, &two}) {
    const Since compiled("PJRT_Client_Compile");
    std::vector<std::thread> threads;
    for (int id = 0; id < 4; ++id) {
      threads.emplace_back([w, id] {
        T x = w->F32({2}, {1, 2}, id), sum = w->F32({2}, {0, 0}, id);
        for (int i = 1; i <= 20; ++i) {
          Assign(*w, sum, w->Tmp("add", {sum, x}));
          ASSERT_TRUE(w->engine->Sync(w->engine->devices()[static_cast<size_t>(id)]).ok());
          if (i % 5 == 0) {
            EXPECT_THAT(w->Read(sum), ElementsAre(i, 2 * i));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(compiled(), 1) << "for all devices";
  }
}

TEST(PjrtFake, TwoContextsRunAtOnce) {
  std::vector<std::thread> threads;
  Faults("devices=2");
  for (int id = 0; id < 2; ++id) {
    threads.emplace_back([id] {
      World w({}, NewPjrtBackend({.plugin = Path(), .platform = "pjrt"}).value());
      T x = w.F32({1}, {1}, id);
      for (int i = 0; i < 20; ++i) {
        Assign(w, x, w.Tmp("add", {x, x}));
        ASSERT_TRUE(w.engine->Sync().ok());
      }
      EXPECT_THAT(w.Read(x), ElementsAre(1 << 20));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PjrtFake, MemoryThatWasLentIsGivenBackOnNoThreadOfThePlugins) {
  World w({}, Fake("slow_ms=20"));
  float host[] = {1, 2};
  std::atomic<int> given_back{0};
  std::thread::id where;
  const auto lent = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, host, [&] {
    where = std::this_thread::get_id();
    ++given_back;
  });
  ASSERT_TRUE(lent.ok()) << lent.status();
  EXPECT_THAT(w.Read(w.Op("add", {*lent, *lent})), ElementsAre(2, 4));
  for (int i = 0; i < 200 && given_back == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    w.Number(1);
  }
  ASSERT_EQ(given_back, 1);
  EXPECT_EQ(where, std::this_thread::get_id());
}

// --- Devices that are not there --------------------------------------------------------------------------------------------

std::unique_ptr<Backend> Absent(const std::string& topology, bool reads_zeros = false) {
  Faults("");
  auto backend = NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .topology = topology, .reads_zeros = reads_zeros});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// Two steps of a loop with a parameter that is assigned, a random number, and a loss that is read.
std::vector<absl::StatusOr<std::vector<float>>> Train(World& w) {
  std::vector<absl::StatusOr<std::vector<float>>> losses;
  T x = w.Vector({1, 2}), weight = w.Vector({3, 4});
  for (int step = 0; step < 2; ++step) {
    T loss = w.Sum(w.Tmp("mul", {x, weight}));
    Assign(w, weight, w.Tmp("sub", {weight, w.Number(0.5 + step)}));
    const auto event = w.engine->Sync();
    EXPECT_TRUE(event.ok()) << event.status();
    std::vector<float> read(1);
    const absl::Status status = w.engine->ToHost(loss.get(), std::as_writable_bytes(std::span(read)));
    losses.push_back(status.ok() ? absl::StatusOr<std::vector<float>>(read) : status);
  }
  return losses;
}

TEST(PjrtFake, WhatWasCompiledForATopologyIsNotCompiledWhereItsDevicesAre) {
  lazy::Shelf shelf;
  const Since clients("PJRT_Client_Create"), ahead("PJRT_Compile"), here("PJRT_Client_Compile"), loaded("PJRT_Executable_DeserializeAndLoad");
  for (int start = 0; start < 2; ++start) {
    World w({}, Absent("fake:2"), std::make_unique<lazy::FakeStore>(&shelf));
    ASSERT_EQ(w.engine->devices().size(), 2u);
    EXPECT_EQ(w.engine->devices()[1]->name, "pjrt:1");
    EXPECT_EQ(w.engine->devices()[1]->kind, "interpreter");
    for (const auto& loss : Train(w)) {
      EXPECT_TRUE(absl::IsFailedPrecondition(loss.status()));
      EXPECT_EQ(loss.status().message(), "there is no device pjrt:0 here: this context compiles for the topology fake:2. The option "
                                         "on_read=zeros lets a program that reads go on, with zeros");
    }
  }
  EXPECT_EQ(ahead(), static_cast<int64_t>(shelf.entries.size())) << "once each";
  EXPECT_GT(ahead(), 0);
  EXPECT_EQ(clients() + here() + loaded(), 0) << "no client was made";
  World w({}, Fake("devices=2"), std::make_unique<lazy::FakeStore>(&shelf));
  const auto losses = Train(w);
  EXPECT_THAT(*losses[0], ElementsAre(11));
  EXPECT_THAT(*losses[1], ElementsAre(9.5));
  EXPECT_EQ(here(), 0);
  EXPECT_EQ(loaded(), static_cast<int64_t>(shelf.entries.size()));
}

TEST(PjrtFake, OtherTopologiesPrecisionsAndFlagsAreOtherPrograms) {
  lazy::Shelf shelf;
  const auto compiled = [&](std::unique_ptr<Backend> backend) {
    const Since here("PJRT_Client_Compile"), ahead("PJRT_Compile");
    World w({}, std::move(backend), std::make_unique<lazy::FakeStore>(&shelf));
    T x = w.F32({2, 2}, {1, 2, 3, 4});
    T y = w.Op("matmul", {x, x});
    w.Sync();
    return here() + ahead();
  };
  const auto rounding = [&] { return NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .matmul_precision = "DEFAULT"}).value(); };
  EXPECT_EQ(compiled(Absent("fake:2")), 1);
  EXPECT_EQ(compiled(Absent("fake:2", /*reads_zeros=*/true)), 0);
  EXPECT_EQ(compiled(Absent("fake:1")), 1);
  EXPECT_EQ(compiled(Fake()), 0);
  EXPECT_EQ(compiled(rounding()), 1);
  EXPECT_EQ(compiled(rounding()), 0);
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    setenv(name, "--faster", 1);
    EXPECT_EQ(compiled(Fake()), 1) << name;
    EXPECT_EQ(compiled(Fake()), 0) << name;
    unsetenv(name);
  }
  EXPECT_EQ(compiled(Fake()), 0);
}

TEST(PjrtFake, ReadsOfDevicesThatAreNotThereMayGiveZeros) {
  World w({}, Absent("fake:1", /*reads_zeros=*/true));
  for (const auto& loss : Train(w)) EXPECT_THAT(*loss, ElementsAre(0));
  std::vector<float> host = {1, 2};
  int given_back = 0;
  const auto lent = w.engine->Adopt(nullptr, DType::kF32, Dims{2}, host.data(), [&] { ++given_back; });
  ASSERT_TRUE(lent.ok()) << lent.status();
  EXPECT_EQ(given_back, 1) << "nobody reads it";
  EXPECT_THAT(w.Read(w.Op("add", {*lent, *lent})), ElementsAre(0, 0));
}

TEST(PjrtFake, ATopologyThatIsNoneIsRefused) {
  const auto error = [](const std::string& faults, std::string_view topology) {
    Faults(faults);
    return std::string(NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .topology = std::string(topology)}).status().message());
  };
  EXPECT_EQ(error("", "moon"), absl::StrCat("plugin '", std::filesystem::canonical(Path()).string(),
                                            "' knows no topology 'moon': PJRT_TopologyDescription_Create: fake: there are no moon"));
  EXPECT_EQ(error("", "fake:0"), "option topology: 'fake:0' has no devices");
  for (const char* function : {"TopologyDescription_PlatformName", "TopologyDescription_PlatformVersion", "TopologyDescription_GetDeviceDescriptions",
                               "DeviceDescription_Kind"}) {
    const std::string text = absl::StrCat("PJRT_", function, ": fake: call 1 of PJRT_", function, " fails");
    EXPECT_EQ(error(absl::StrCat("fail=PJRT_", function, ":1:13"), "fake:1"), text);
  }
  const auto compile = [](const std::string& faults) {
    World w({}, Absent("fake:1"));
    Faults(faults);
    T x = w.Vector({1, 2});
    T y = w.Op("add", {x, x});
    return std::string(w.engine->Sync().status().message());
  };
  EXPECT_THAT(compile("fail=PJRT_Compile:1:13"), HasSubstr("PJRT_Compile: fake: call 1 of PJRT_Compile fails"));
  EXPECT_THAT(compile("fail=PJRT_Executable_Serialize:1:13"), HasSubstr("PJRT_Executable_Serialize: fake: call 1"));
}

TEST(PjrtFake, FiguresOfAProgramAreThePluginsAndAreKept) {
  lazy::Shelf shelf;
  const auto stats = [&](std::unique_ptr<Backend> backend) {
    Backend& of = *backend;
    World w({}, std::move(backend), std::make_unique<lazy::FakeStore>(&shelf));
    T x = w.Vector({1, 2});
    T y = w.Op("add", {x, x});
    w.Sync();
    EXPECT_EQ(shelf.entries.size(), 1u);
    return of.Load(shelf.entries.begin()->second.program).value()->stats();
  };
  for (const bool there : {false, true}) {
    const ExecutableStats figures = stats(there ? Fake() : Absent("fake:1"));
    EXPECT_EQ(figures.flops, 10);
    EXPECT_EQ(figures.bytes_accessed, 1000);
    EXPECT_GT(figures.code_bytes, 0);
    EXPECT_EQ(figures.kernels, 1);
    EXPECT_EQ(figures.kernels_compiled, 0) << "loaded";
  }
}

}  // namespace
}  // namespace weft::pjrt
