// The input of a plugin's compiler, made of a module: StableHLO text with one argument for all words, and the facts
// that must be known when the program comes back from a cache.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "src/backends/backend.h"
#include "src/backends/pjrt/api.h"
#include "src/ir/function.h"
#include "src/runtime/status.h"

namespace weft::pjrt {

struct Program {
  std::vector<ir::Type>
      arguments;              // buffers in order; the words are one more argument, behind them, unless there are none
  std::vector<bool> aliased;  // per buffer: compiled as taken over by a result
  uint32_t words = 0;
  std::vector<ir::Type> results;
  // Where the module has a mesh: that, and how each result lies on it; open until the plugin has said it.
  ir::Mesh mesh;
  std::vector<ir::Sharding> lying;
  ExecutableStats stats = {.kernels = 1};  // as the plugin told when it compiled
  uint32_t replicas = 1, partitions = 1;
  // The id of the device that it was compiled for, where the plugin has no programs for any of its devices; -1: for any.
  int64_t device = -1;
  // The text that it was compiled from, to be compiled for another device; empty where a device is known.
  std::string text;
};

struct TextOptions {
  std::string_view precision = "HIGHEST";  // ir::StableHloOptions::precision
  std::string_view platform = "cpu";       // as the plugin calls it
  bool locations = false;                  // where each operation was recorded; programs are kept under texts without
};

// The text of the module given and what it says of its arguments. Refuses what kills plugins: more bytes than any device
// has, and dimensions that nobody knows. Says of shardings what the module's mesh says, and nothing where it has none.
// Written as the platform's compiler likes it: kernels that a convolution turns around are turned before it, and blocks of
// random bits computed once.
absl::StatusOr<std::string> ToText(const ir::Module& given, Program* program, const TextOptions& options = {});
// Returns a plugin's error about the module's text, with the place where the operation was recorded if the error names
// a line: "-:12:10: error: …".
absl::Status Refused(const absl::Status& status, const ir::Module& given, TextOptions options);
// The text as a plugin takes it; points into it.
api::Program AsArgument(std::string_view text);

// Tells whether the passes leave the composite whole: StableHLO's own operations with functions stay as they are, and
// random bits until ToText writes them. Operations with a name in CHLO alone do not.
bool StaysWhole(const ir::Node& composite);

// CompileProgress::phase, while the plugin compiles.
inline constexpr char kCompiling[] = "being compiled by the plugin";

// The program's description, and the plugin's bytes behind it, as one string; and back.
std::string Pack(const Program& program, std::string_view executable);
absl::StatusOr<std::string_view> Unpack(std::string_view packed, Program* program);

// A serialised CompileOptionsProto: one replica, one partition, no device, so that one executable runs on each.
std::string_view CompileOptionBytes();
// The same for the device of this id alone.
std::string CompileOptionBytes(int64_t device);
// Returns the options for a program of several processes on the devices of these ids, replica by replica; no ids: the plugin
// chooses. Such a program is never portable.
std::string CompileOptionBytes(uint32_t replicas, uint32_t partitions, std::span<const int64_t> devices);
// INVALID_ARGUMENT unless the assignment (CompileOptions) names a device for each process of the program, each once and one
// of `known`; then their ids by `id_of`.
absl::StatusOr<std::vector<int64_t>> AssignedIds(const Program& program, std::span<const uint32_t> assignment,
                                                 size_t known, absl::FunctionRef<int64_t(uint32_t)> id_of);

// Calls `compile` with options for the program's processes on the devices `assigned`, or for any device where it has one.
// Where the plugin has no such programs, which is known or which its error says: with options for the device of this id
// alone, which `program` then names.
absl::Status CompileFor(int64_t id, bool alone, std::span<const int64_t> assigned,
                        absl::FunctionRef<absl::Status(std::string_view options)> compile, Program* program);

}  // namespace weft::pjrt
