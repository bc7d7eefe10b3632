// The engine on the fake plugin that has less than others: no programs for any of its devices, an older table, missing functions.
#include <signal.h>

#include <thread>

#include "tests/pjrt/fake_world.h"
#include "tests/support/temp_dir.h"

namespace weft::pjrt {
namespace {

// --- Programs for one device each ------------------------------------------------------------------------------------------

// Three times x + x, from a thread for each device.
void LaunchOnEach(World& w) {
  std::vector<std::thread> threads;
  const auto count = static_cast<int>(w.engine->devices().size());
  for (int id = 0; id < count; ++id) {
    threads.emplace_back([&w, id] {
      T x = w.F32({2}, {1, 2}, id);
      for (int i = 0; i < 3; ++i) {
        Assign(w, x, w.Tmp("add", {x, x}));
        ASSERT_TRUE(w.engine->Sync(w.engine->devices()[static_cast<size_t>(id)]).ok());
      }
      EXPECT_THAT(w.Read(x), ElementsAre(8, 16)) << id;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PjrtFake, APluginWithoutProgramsForAnyDeviceGetsOneForEach) {
  struct Case {
    const char* faults;
    int64_t compiled, loaded;              // calls of the first start
    int64_t compiled_again, loaded_again;  // of the second
  };
  for (const Case& c : {Case{"devices=4", 1, 0, 0, 1},
                        // The call that is refused, and the first device's; the others load its bytes.
                        Case{"devices=4;portable=0", 2, 3, 0, 4},
                        // It is found out by launches; the first device's program was compiled as if for all.
                        Case{"devices=4;ignores_portable", 1, 4, 0, 5},
                        // Loaded for the first device, which is seen, and compiled for the others.
                        Case{"devices=4;portable=0;keeps_device", 5, 3, 3, 4},
                        Case{"devices=4;ignores_portable;keeps_device", 4, 4, 3, 5},
                        Case{"devices=1", 1, 0, 0, 1},
                        Case{"devices=1;portable=0", 2, 0, 0, 1},
                        Case{"devices=1;ignores_portable", 1, 1, 0, 2}}) {
    lazy::Shelf shelf;
    for (const bool again : {false, true}) {
      const Since compiled("PJRT_Client_Compile"), loaded("PJRT_Executable_DeserializeAndLoad");
      World w({}, Fake(c.faults), std::make_unique<lazy::FakeStore>(&shelf));
      LaunchOnEach(w);
      EXPECT_EQ(compiled(), again ? c.compiled_again : c.compiled) << c.faults;
      EXPECT_EQ(loaded(), again ? c.loaded_again : c.loaded) << c.faults;
      LaunchOnEach(w);
      EXPECT_EQ(compiled() + loaded(), again ? c.compiled_again + c.loaded_again : c.compiled + c.loaded) << c.faults << ": nothing more";
    }
    EXPECT_EQ(shelf.entries.size(), 1u) << c.faults;
    EXPECT_EQ(shelf.rejected, 0) << c.faults;
  }
}

TEST(PjrtFake, ThatAPluginHasNoProgramsForAnyDeviceIsFoundOutOnce) {
  for (const char* faults : {"devices=2;portable=0", "devices=2;ignores_portable"}) {
    World w({}, Fake(faults));
    T x = w.F32({2}, {1, 2}, 1);
    EXPECT_THAT(w.Read(w.Op("add", {x, x})), ElementsAre(2, 4));
    const Since compiled("PJRT_Client_Compile"), launched("PJRT_LoadedExecutable_Execute"), loaded("PJRT_Executable_DeserializeAndLoad");
    EXPECT_THAT(w.Read(w.Op("mul", {x, x})), ElementsAre(1, 4));
    EXPECT_EQ(compiled(), 1) << faults;
    EXPECT_EQ(launched(), 1) << faults;
    EXPECT_EQ(loaded(), 1) << faults;
  }
}

TEST(PjrtFake, WhatIsWrongWithAProgramIsSaidWhereItsDeviceIsAsked) {
  World w({}, Fake("devices=2;portable=0;refuses=stablehlo.tanh"));
  T x = w.F32({2}, {1, 2}, 1);
  EXPECT_THAT(ReadOf(w, w.Op("tanh", {x})).message(), HasSubstr("'stablehlo.tanh' op can't be translated to XLA HLO"));
  Faults("devices=2;portable=0;fail=PJRT_Executable_DeserializeAndLoad:1:13;fail=PJRT_Client_Compile:3:13");
  T y = w.Op("add", {x, x});
  EXPECT_THAT(ReadOf(w, y).message(), HasSubstr("PJRT_Client_Compile: fake: call 3")) << "neither loaded nor compiled for its device";
  EXPECT_THAT(w.Read(y), ElementsAre(2, 4)) << "asked for again";
  // What a launch is refused for need not be its device.
  World other({}, Fake("devices=2"));
  T z = other.F32({2}, {1, 2}, 1);
  Faults("devices=2;fail=PJRT_LoadedExecutable_Execute:1:3;fail=PJRT_LoadedExecutable_Execute:2:13");
  EXPECT_THAT(ReadOf(other, other.Op("add", {z, z})).message(), HasSubstr("PJRT_LoadedExecutable_Execute: fake: call 1"));
  const Since loaded("PJRT_Executable_DeserializeAndLoad");
  EXPECT_THAT(other.Read(other.Op("mul", {z, z})), ElementsAre(1, 4));
  EXPECT_EQ(loaded(), 0) << "for any device as before";
}

TEST(PjrtFake, WhatWasCompiledForATopologyRunsOnEachDeviceOfAPluginWithoutProgramsForAny) {
  lazy::Shelf shelf;
  const auto step = [](World& w, int device) {
    T x = w.F32({2}, {1, 2}, device);
    T y = w.Op("add", {x, x});
    EXPECT_TRUE(w.engine->Sync(w.engine->devices()[static_cast<size_t>(device)]).ok());
    return y;
  };
  {
    Faults("portable=0");
    World ahead({}, NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .topology = "fake:2"}).value(), std::make_unique<lazy::FakeStore>(&shelf));
    step(ahead, 1);
  }
  for (const char* faults : {"devices=2;portable=0", "devices=2;portable=0;keeps_device"}) {
    const Since compiled("PJRT_Client_Compile");
    World there({}, Fake(faults), std::make_unique<lazy::FakeStore>(&shelf));
    for (const int device : {1, 0}) EXPECT_THAT(there.Read(step(there, device)), ElementsAre(2, 4));
    EXPECT_EQ(compiled(), std::string_view(faults).ends_with("keeps_device") ? 1 : 0);
  }
}

// --- Plugins that are less -------------------------------------------------------------------------------------------------

// A library of its own, of which `faults` are said before it is loaded.
struct Other {
  explicit Other(const std::string& faults, const std::string& topology = "") : path(dir / "plugin.so") {
    std::filesystem::copy_file(Path(), path);
    setenv("WEFT_FAKE", faults.c_str(), 1);
    opened = NewPjrtBackend({.plugin = path, .platform = "pjrt", .topology = topology});
    unsetenv("WEFT_FAKE");
  }
  std::string error() const { return std::string(opened.status().message()); }
  ::weft::testing::TempDir dir;
  std::string path;
  absl::StatusOr<std::unique_ptr<Backend>> opened;
};

TEST(PjrtFake, APluginThatIsOlderOrLacksSomethingWorksAsFarAsItGoes) {
  for (const char* faults : {"functions=92;minor=90", "extensions", "missing=PJRT_Device_MemoryStats", "missing=PJRT_Executable_GetCompiledMemoryStats",
                             "missing=PJRT_Executable_Serialize", "missing=PJRT_Event_OnReady", "missing=PJRT_Buffer_IsDeleted",
                             "missing=PJRT_DeviceDescription_Kind", "missing=PJRT_DeviceDescription_Attributes", "missing=PJRT_Plugin_Attributes", "missing=PJRT_Client_TopologyDescription", "missing=PJRT_Executable_GetCostAnalysis", "missing=PJRT_Executable_SizeOfGeneratedCodeInBytes"}) {
    Other other(faults);
    ASSERT_TRUE(other.opened.ok()) << faults << ": " << other.error();
    lazy::Shelf shelf;
    World w({}, *std::move(other.opened), std::make_unique<lazy::FakeStore>(&shelf));
    EXPECT_THAT(Step(w), ElementsAre(6, 12)) << faults;
  }
  for (const char* missing : {"LoadedExecutable_AddressableDevices", "DeviceDescription_Id", "Executable_Serialize", "Executable_DeserializeAndLoad"}) {
    for (const char* faults : {"devices=3;portable=0", "devices=3;ignores_portable"}) {
      Other other(absl::StrCat(faults, ";missing=PJRT_", missing));
      ASSERT_TRUE(other.opened.ok()) << missing << ": " << other.error();
      World w({}, *std::move(other.opened));
      LaunchOnEach(w);
    }
  }
}

TEST(PjrtFake, APluginWithoutCopiesBetweenDevicesLeavesThemToTheHost) {
  Other other("devices=2;missing=PJRT_Buffer_CopyToDevice");
  ASSERT_TRUE(other.opened.ok()) << other.error();
  World w({}, *std::move(other.opened));
  const auto copy = w.engine->CopyOver(w.Vector({1, 2}).get(), w.engine->devices()[1], "");
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*copy, nullptr);
}

TEST(PjrtFake, APluginThatCannotBeUsedSaysWhy) {
  EXPECT_THAT(Other("functions=91;minor=40").error(), HasSubstr("speaks PJRT 0.40, which is too old: it has no PJRT_Executable_OutputDimensions"));
  EXPECT_THAT(Other("major=1").error(), HasSubstr("speaks PJRT 1.115; this library speaks 0.x"));
  EXPECT_THAT(Other("no_initialize").error(), HasSubstr("could not be initialised: PJRT_Plugin_Initialize: fake: told not to start"));
  EXPECT_THAT(Other("devices=0").error(), HasSubstr("(fake) has no device here"));
  EXPECT_THAT(Other("missing=PJRT_TopologyDescription_Create", "fake:1").error(), HasSubstr("(PJRT 0.115) has no PJRT_TopologyDescription_Create"));
  EXPECT_THAT(Other("missing=PJRT_Client_Create").error(), HasSubstr("(PJRT 0.115) has no PJRT_Client_Create"));
  EXPECT_THAT(Other("fail=PJRT_Client_PlatformVersion:1:14").error(), HasSubstr("PJRT_Client_PlatformVersion: fake: call 1"));
  EXPECT_THAT(Other("fail=PJRT_Client_AddressableDevices:1:14").error(), HasSubstr("PJRT_Client_AddressableDevices: fake: call 1"));
}

TEST(PjrtFake, APluginThatIsCutOffIsNotLoaded) {
  const uintmax_t whole = std::filesystem::file_size(Path());
  for (const uintmax_t size : {uintmax_t{4096}, whole / 4, whole / 2}) {
    const ::weft::testing::TempDir dir;
    const std::string path = dir / "plugin.so";
    std::filesystem::copy_file(Path(), path);
    std::filesystem::resize_file(path, size);
    const absl::Status status = NewPjrtBackend({.plugin = path, .platform = "pjrt"}).status();
    if (size > 4096 && status.ok()) continue;  // behind what is mapped: a sanitizer's build has as much again to debug it
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("'", path, "' cannot be loaded: it is cut off: it has ", size, " bytes")));
  }
}

TEST(PjrtFake, AFunctionThatIsNotThereIsNamedWhenItIsNeeded) {
  Other other("missing=PJRT_Client_Compile");
  ASSERT_TRUE(other.opened.ok()) << other.error();
  World w({}, *std::move(other.opened));
  T x = w.Vector({1, 2});
  EXPECT_THAT(ReadOf(w, w.Op("add", {x, x})).message(), HasSubstr("(PJRT 0.115) has no PJRT_Client_Compile"));
}

TEST(PjrtFake, HandlersOfSignalsAreWhatTheyWere) {
  const auto handler = [](int number) {
    struct sigaction now;
    sigaction(number, nullptr, &now);
    return reinterpret_cast<void*>(now.sa_handler);
  };
  void* const before[] = {handler(SIGSEGV), handler(SIGTERM), handler(SIGUSR2)};
  ASSERT_TRUE(Other("signals").opened.ok());
  EXPECT_EQ(before[0], handler(SIGSEGV));
  EXPECT_EQ(before[1], handler(SIGTERM));
  EXPECT_EQ(before[2], handler(SIGUSR2));
}

}  // namespace
}  // namespace weft::pjrt
