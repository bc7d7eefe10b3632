// See programs.h.
#include "tests/pjrt/fake/programs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "serialization/checksum.h"
#include "src/passes/passes.h"
#include "src/stablehlo/read.h"
#include "tests/pjrt/fake/faults.h"
#include "tests/pjrt/fake/objects.h"

namespace weft::pjrt::fake {
namespace {

absl::StatusOr<std::shared_ptr<const Compiled>> Read(std::string_view text) {
  auto compiled = std::make_shared<Compiled>();
  compiled->text = text;
  WEFT_ASSIGN_OR_RETURN(compiled->module, stablehlo::ReadStableHlo(compiled->text, {.alone = false}));
  ir::Module together = compiled->module;
  together.participants = {};
  if (!compiled->module.participants.mesh.none()) {
    WEFT_ASSIGN_OR_RETURN(together, passes::UnfoldDevices(together, {}));
  }
  compiled->run = Ref<const ir::Function>::Share(&together.main());
  if (compiled->module.draws) return absl::UnimplementedError("fake: stablehlo.rng has no state here");
  for (const ir::Value& result : compiled->module.main().results()) {
    compiled->types.push_back(ElementTypeOf(result.dtype()));
    compiled->ranks.push_back(result.dims().size());
    compiled->dims.insert(compiled->dims.end(), result.dims().begin(), result.dims().end());
  }
  return compiled;
}

absl::StatusOr<std::shared_ptr<const Compiled>> CompiledOf(const api::Program& program) {
  const std::string_view format(program.format, program.format_size);
  if (format != "mlir") return absl::InvalidArgumentError(absl::StrCat("fake: format ", format));
  const auto faults = Current();
  std::this_thread::sleep_for(std::chrono::milliseconds(faults->slow_compile_ms));
  const std::string_view text(program.code, program.code_size);
  const std::string& refused = faults->refused;
  if (const size_t at = refused.empty() ? text.npos : text.find(refused); at != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("-:", std::ranges::count(text.substr(0, at), '\n') + 1, ":10: error: '", refused,
                                                   "' op can't be translated to XLA HLO"));
  }
  return Read(text);
}

// A field of a protocol buffer: a number, or bytes.
struct Field {
  uint64_t number = 0, value = 0;
  std::string_view bytes;
};
uint64_t TakeNumber(std::string_view* message) {
  uint64_t number = 0;
  for (int shift = 0; !message->empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(message->front());
    message->remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return number;
}
// All fields of that number; of numbers and messages alone, which is all that clients send.
std::vector<Field> All(std::string_view message, uint64_t number) {
  std::vector<Field> found;
  while (!message.empty()) {
    const uint64_t tag = TakeNumber(&message);
    Field field{.number = tag >> 3, .value = TakeNumber(&message)};
    if ((tag & 7) == 2) {
      field.bytes = message.substr(0, field.value);
      message.remove_prefix(field.bytes.size());
    }
    if (field.number == number) found.push_back(field);
  }
  return found;
}
Field Last(std::string_view message, uint64_t number) {
  const std::vector<Field> all = All(message, number);
  return all.empty() ? Field() : all.back();
}

// The device of each partition that serialised CompileOptions say; none where they are for one.
std::vector<int64_t> AllDevicesOf(std::string_view options) {
  const std::string_view build = Last(options, 3).bytes;
  std::vector<int64_t> devices;
  if (Last(build, 5).value < 2) return devices;
  for (const Field& partition : All(Last(build, 9).bytes, 3)) {
    std::string_view ids = Last(partition.bytes, 1).bytes;
    devices.push_back(static_cast<int64_t>(TakeNumber(&ids)));
  }
  return devices;
}

// Which device serialised CompileOptions say; -1: any.
absl::StatusOr<int64_t> DeviceOf(std::string_view options) {
  const auto faults = Current();
  if (Last(options, 4).value != 0) {
    if (faults->portable == 0) return absl::UnimplementedError("fake: compile_portable_executable is not supported");
    return faults->ignores_portable ? 0 : -1;
  }
  // executable_build_options, device_assignment, computation_devices, replica_device_ids
  const std::string_view assignment = Last(Last(options, 3).bytes, 9).bytes;
  std::string_view ids = Last(Last(assignment, 3).bytes, 1).bytes;
  return ids.empty() ? -1 : static_cast<int64_t>(TakeNumber(&ids));
}

std::string Sum(std::string_view text) {
  const Hash128 sum = Checksum128(std::as_bytes(std::span(text)));
  return absl::StrCat("weft fake ", absl::Hex(sum.high, absl::kZeroPad16), absl::Hex(sum.low, absl::kZeroPad16), "\n");
}

}  // namespace

absl::Status ClientCompile(api::ClientCompile& args) {
  WEFT_ASSIGN_OR_RETURN(const int64_t device, DeviceOf({args.options, args.options_size}));
  if (device >= static_cast<int64_t>(args.client->devices.size())) return absl::InvalidArgumentError(absl::StrCat("fake: there is no device ", device));
  WEFT_ASSIGN_OR_RETURN(auto compiled, CompiledOf(*args.program));
  args.executable = new api::LoadedExecutable{args.client, std::move(compiled), device, AllDevicesOf({args.options, args.options_size})};
  return absl::OkStatus();
}
absl::Status Compile(api::Compile& args) {
  WEFT_ASSIGN_OR_RETURN(const int64_t device, DeviceOf({args.options, args.options_size}));
  WEFT_ASSIGN_OR_RETURN(auto compiled, CompiledOf(*args.program));
  args.executable = new api::Executable{std::move(compiled), device, AllDevicesOf({args.options, args.options_size})};
  return absl::OkStatus();
}

absl::Status ExecutableSerialize(api::ExecutableSerialize& args) {
  const std::string devices = args.executable->all.empty() ? absl::StrCat(args.executable->device) : absl::StrJoin(args.executable->all, ",");
  const std::string all = absl::StrCat(devices, "\n", args.executable->compiled->text);
  args.owner = new api::SerializedExecutable{Sum(all) + all};
  args.bytes = args.owner->bytes.data();
  args.size = args.owner->bytes.size();
  args.destroy = [](api::SerializedExecutable* owner) { delete owner; };
  if (Faults::Names(Current()->last_zero, "PJRT_Executable_Serialize")) {
    // Who is not told how cannot destroy it: what was kept before goes here.
    static Mutex mutex;
    static std::unique_ptr<api::SerializedExecutable> kept;
    MutexLock lock(mutex);
    kept.reset(args.owner);
  }
  return absl::OkStatus();
}

absl::Status DeserializeAndLoad(api::DeserializeAndLoad& args) {
  const std::string_view bytes(args.bytes, args.size);
  const size_t line = bytes.find('\n');
  if (Current()->refuses_load) return absl::FailedPreconditionError("fake: told to load nothing");
  if (line == bytes.npos || bytes.substr(0, line + 1) != Sum(bytes.substr(line + 1))) {
    std::fputs("fake: other bytes than those that were serialised\n", stderr);
    std::abort();  // as real plugins may
  }
  const std::string_view all = bytes.substr(line + 1);
  const size_t text = all.find('\n');
  int64_t device = -1;
  std::vector<int64_t> devices;
  for (const std::string_view id : absl::StrSplit(all.substr(0, text), ',')) {
    if (!absl::SimpleAtoi(id, &devices.emplace_back())) return absl::InternalError("fake: bytes without a device");
  }
  device = devices[0];
  if (devices.size() == 1) devices.clear();
  if (args.options_size > 0 && !Current()->keeps_device) {
    WEFT_ASSIGN_OR_RETURN(device, DeviceOf({args.options, args.options_size}));
  }
  if (device >= static_cast<int64_t>(args.client->devices.size())) return absl::InvalidArgumentError(absl::StrCat("fake: there is no device ", device));
  WEFT_ASSIGN_OR_RETURN(auto compiled, Read(all.substr(text + 1)));
  args.executable = new api::LoadedExecutable{args.client, std::move(compiled), device, std::move(devices)};
  return absl::OkStatus();
}

absl::Status ExecutableDestroy(api::OfExecutable& args) {
  delete args.executable;
  return absl::OkStatus();
}
absl::Status LoadedExecutableDestroy(api::OfLoadedExecutable& args) {
  delete args.executable;
  return absl::OkStatus();
}
absl::Status LoadedExecutableGetExecutable(api::GetExecutable& args) {
  args.executable = new api::Executable{args.loaded->compiled, args.loaded->device, args.loaded->all};
  return absl::OkStatus();
}
absl::Status LoadedExecutableAddressableDevices(api::LoadedDevices& args) {
  args.devices = args.executable->client->devices.data() + std::max<int64_t>(0, args.executable->device);
  args.num_devices = 1;
  return absl::OkStatus();
}
absl::Status ExecutableName(api::ExecutableText& args) {
  args.text = "main";
  args.size = 4;
  return absl::OkStatus();
}
absl::Status ExecutableOne(api::ExecutableNumber& args) {
  args.number = 1;
  return absl::OkStatus();
}
absl::Status ExecutableNumOutputs(api::ExecutableNumber& args) {
  args.number = static_cast<int64_t>(args.executable->compiled->types.size());
  return absl::OkStatus();
}
absl::Status ExecutableSizeOfGeneratedCode(api::ExecutableNumber& args) {
  args.number = static_cast<int64_t>(args.executable->compiled->text.size());
  return absl::OkStatus();
}
absl::Status ExecutableOutputElementTypes(api::OutputElementTypes& args) {
  args.types = const_cast<api::ElementType*>(args.executable->compiled->types.data());
  args.num_types = args.executable->compiled->types.size();
  return absl::OkStatus();
}
absl::Status ExecutableOutputDimensions(api::OutputDimensions& args) {
  args.num_outputs = args.executable->compiled->ranks.size();
  args.dims = args.executable->compiled->dims.data();
  args.ranks = args.executable->compiled->ranks.data();
  return absl::OkStatus();
}
absl::Status ExecutableGetCompiledMemoryStats(api::CompiledMemoryStats& args) {
  const ir::Function& main = args.executable->compiled->module.main();
  for (const ir::Value& parameter : main.parameters()) args.arguments += parameter.type().bytes();
  for (const ir::Value& result : main.results()) args.outputs += result.type().bytes();
  args.peak = args.arguments + args.outputs;
  return absl::OkStatus();
}
absl::Status ExecutableGetCostAnalysis(api::CostAnalysis& args) {
  using Kind = api::NamedValue::Kind;
  static const api::NamedValue kKnown[] = {{.name = "flops", .name_size = 5, .kind = Kind::kFloat, .number = 10, .value_size = 1},
                                           {.name = "bytes accessed", .name_size = 14, .kind = Kind::kFloat, .number = 1000, .value_size = 1}};
  args.properties = kKnown;
  args.num_properties = std::size(kKnown);
  return absl::OkStatus();
}

}  // namespace weft::pjrt::fake
