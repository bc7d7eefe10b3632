// The engine on the fake plugin whose functions answer success and have written nothing, or not all.
#include <set>

#include "tests/pjrt/fake_world.h"

namespace weft::pjrt {
namespace {

// Does what a process does with a plugin, from its start on: an upload, memory that is lent, a program that is compiled or loaded, kept and
// launched with words, a read, and what doctor asks. The first error.
absl::Status Use(lazy::Shelf* shelf, Options options) {
  options.plugin = Path();
  options.platform = "pjrt";
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, NewPjrtBackend(options));
  Backend& its = *backend;
  World w({}, std::move(backend), std::make_unique<lazy::FakeStore>(shelf));
  static float host[] = {1, 2};  // lent: a device that is not waited for reads it later
  for (Device* const device : its.devices()) {
    its.memory_stats(device);
    its.bytes_available(device);
    EXPECT_FALSE(its.attributes(device).empty());
    WEFT_ASSIGN_OR_RETURN(T x, w.engine->FromHost(device, DType::kF32, Dims{2}, std::as_bytes(std::span(host))));
    WEFT_ASSIGN_OR_RETURN(T lent, w.engine->Adopt(device, DType::kF32, Dims{2}, host, [] {}));
    WEFT_ASSIGN_OR_RETURN(T three, w.engine->Scalar(device, DType::kF32, 3));
    WEFT_ASSIGN_OR_RETURN(const lazy::Tensors sum, w.TryOp("add", {x, lent}));
    WEFT_ASSIGN_OR_RETURN(const lazy::Tensors y, w.TryOp("mul", {sum[0], three}));
    WEFT_RETURN_IF_ERROR(w.engine->Assign(x.get(), y[0].get()));
    WEFT_ASSIGN_OR_RETURN(const Ref<Event> launched, w.engine->Sync(device));
    WEFT_RETURN_IF_ERROR(launched->Wait());
    std::vector<float> values(2);
    WEFT_RETURN_IF_ERROR(w.engine->ToHost(x.get(), std::as_writable_bytes(std::span(values))));
    EXPECT_THAT(values, ElementsAre(6, 12));
  }
  return absl::OkStatus();
}

// The same where there are no devices.
absl::Status UseAhead(lazy::Shelf* shelf) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, NewPjrtBackend({.plugin = Path(), .platform = "pjrt", .topology = "fake:2"}));
  EXPECT_FALSE(backend->attributes(backend->devices()[0]).empty());
  World w({}, std::move(backend), std::make_unique<lazy::FakeStore>(shelf));
  WEFT_ASSIGN_OR_RETURN(T three, w.engine->Scalar(nullptr, DType::kF32, 3));
  const float host[] = {1, 2};
  WEFT_ASSIGN_OR_RETURN(T x, w.engine->FromHost(nullptr, DType::kF32, Dims{2}, std::as_bytes(std::span(host))));
  WEFT_ASSIGN_OR_RETURN(const lazy::Tensors y, w.TryOp("mul", {x, three}));
  return w.engine->Sync().status();
}

std::vector<std::string> FunctionsThatAreCalled() {
  std::vector<std::string> names;
  for (size_t i = 0; i < 138; ++i) {
    const std::string_view name = NameOf(static_cast<api::Function>(i));
    if (name.starts_with("PJRT_")) names.emplace_back(name);
  }
  return names;
}

// Faults without which the function is not called at all.
std::string Besides(const std::string& function) {
  if (function == "PJRT_Error_GetCode" || function == "PJRT_Error_Message" || function == "PJRT_Error_Destroy") {
    return ";fail=PJRT_LoadedExecutable_Execute:0:13";
  }
  if (function == "PJRT_LoadedExecutable_AddressableDevices") return ";devices=2;portable=0";
  return "";
}

void Expect(const absl::Status& status, const std::string& function, const std::string& faults) {
  // Lists that nobody has written are as empty as those of a machine without devices.
  const bool no_device = (function == "PJRT_Client_AddressableDevices" && absl::IsNotFound(status)) ||
                         (function == "PJRT_TopologyDescription_GetDeviceDescriptions" && absl::IsInvalidArgument(status));
  if (status.ok() || no_device) return;
  EXPECT_TRUE(absl::IsInternal(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << faults << ": " << status;
  if (absl::IsDeadlineExceeded(status)) {
    EXPECT_EQ(function, "PJRT_Event_OnReady") << faults << ": " << status;
  } else {
    EXPECT_THAT(status.message(), HasSubstr(Besides(function).starts_with(";fail") ? "PJRT_LoadedExecutable_Execute" : function)) << faults;
  }
}

TEST(PjrtFakeSilent, AFunctionThatWritesNothingIsNamedAndEndsNothing) {
  // Functions that nothing can be done without. The plugin's initialisation is over when a text is set.
  const std::set<std::string> needed = {"PJRT_Client_Create", "PJRT_Client_PlatformName", "PJRT_Client_PlatformVersion", "PJRT_Client_AddressableDevices",
                                        "PJRT_Client_Compile", "PJRT_Client_BufferFromHostBuffer", "PJRT_Executable_NumOutputs",
                                        "PJRT_LoadedExecutable_GetExecutable", "PJRT_LoadedExecutable_Execute", "PJRT_Buffer_ToHostBuffer",
                                        "PJRT_Buffer_ReadyEvent", "PJRT_Event_OnReady", "PJRT_Error_GetCode", "PJRT_Error_Message", "PJRT_Error_Destroy"};
  const std::set<std::string> needed_ahead = {"PJRT_TopologyDescription_Create", "PJRT_TopologyDescription_PlatformName", "PJRT_TopologyDescription_PlatformVersion",
                                              "PJRT_DeviceDescription_Kind", "PJRT_Compile", "PJRT_Executable_Serialize"};
  const std::vector<std::string> functions = FunctionsThatAreCalled();
  ASSERT_GE(functions.size(), 45u);
  for (const std::string& function : functions) {
    for (const char* how : {"silent", "last_zero"}) {
      const std::string faults = absl::StrCat(how, "=", function, Besides(function));
      const bool silent = how == std::string_view("silent");
      for (const int64_t deadline_ms : {0, 500}) {
        // Nobody will say that a launch has ended; or somebody has said so who has not waited, and the copy is still to come.
        if (deadline_ms == 0 && silent && (function == "PJRT_Event_OnReady" || function == "PJRT_Event_Await")) continue;
        const bool watched = function.find("Buffer") != function.npos || function.find("Event") != function.npos || function.ends_with("_Execute");
        if (deadline_ms > 0 && !watched) continue;
        // Only one of them has to be waited for in vain; the others are to be in time on a busy machine.
        const Options options{.launch_deadline_ms = function == "PJRT_Event_OnReady" ? deadline_ms : 100 * deadline_ms};
        lazy::Shelf shelf, kept;
        Faults(faults);
        const absl::Status status = Use(&shelf, options);
        Expect(status, function, faults);
        EXPECT_FALSE(silent && needed.contains(function) && status.ok()) << faults;
        Faults(Besides(function).starts_with(";d") ? Besides(function).substr(1) : "");
        EXPECT_EQ(Use(&kept, options), absl::OkStatus()) << "after " << faults;
        Faults(faults);
        Expect(Use(&kept, options), function, "loaded, " + faults);
        Faults("");
      }
      lazy::Shelf shelf;
      Faults(faults);
      const absl::Status ahead = UseAhead(&shelf);
      Expect(ahead, function, "ahead, " + faults);
      EXPECT_FALSE(silent && needed_ahead.contains(function) && ahead.ok()) << faults;
      Faults("");
      EXPECT_EQ(UseAhead(&shelf), absl::OkStatus()) << "after " << faults;
    }
  }
}

TEST(PjrtFakeSilent, ACodeThatCannotBeSaidIsInternal) {
  for (const char* how : {"fail=PJRT_Error_GetCode:0:14", "silent=PJRT_Error_GetCode", "last_zero=PJRT_Error_GetCode"}) {
    lazy::Shelf shelf;
    Faults(absl::StrCat(how, ";fail=PJRT_Client_Compile:1:14"));
    EXPECT_EQ(Use(&shelf, {}), absl::InternalError("PJRT_Client_Compile: fake: call 1 of PJRT_Client_Compile fails")) << how;
    Faults("");
  }
}

TEST(PjrtFakeSilent, WhatIsMissingIsSaid) {
  const auto said = [](const std::string& faults) {
    lazy::Shelf shelf;
    Faults(faults);
    const absl::Status status = Use(&shelf, {});
    Faults("");
    return std::string(status.message());
  };
  EXPECT_THAT(said("silent=PJRT_Client_Create"), HasSubstr("gives no devices: plugin '" + std::filesystem::canonical(Path()).string() +
                                                           "': PJRT_Client_Create answered success and wrote no client"));
  EXPECT_THAT(said("silent=PJRT_Client_Compile"), HasSubstr("PJRT_Client_Compile answered success and wrote no executable"));
  EXPECT_THAT(said("silent=PJRT_LoadedExecutable_Execute"), HasSubstr("PJRT_LoadedExecutable_Execute answered success and wrote no result 0"));
  EXPECT_THAT(said("silent=PJRT_Buffer_ToHostBuffer"), HasSubstr("PJRT_Buffer_ToHostBuffer answered success and wrote no event"));
  EXPECT_THAT(said("silent=PJRT_Error_Message;fail=PJRT_Client_Compile:1:14"), HasSubstr("PJRT_Client_Compile: failed and did not say why"));
}

}  // namespace
}  // namespace weft::pjrt
