// What a context can be told about recording, cutting and compiling.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/runtime/held_types.h"

namespace weft::ops {
class CustomFunctions;
}

namespace weft::lazy {

enum class Mode : uint8_t {
  kLazy,   // record, cut at barriers and reads
  kEager,  // cut after each operation, asynchronous
  kDebug,  // eager, waits for each operation, and reports the first one that makes a NaN out of none
};

struct Options {
  Mode mode = Mode::kLazy;
  // Automatic cuts, counted in recorded nodes and in bytes of their results; 0 = never for that reason. A whole training
  // step of a large network has 3,000 nodes.
  int64_t max_pending_nodes = 20'000;
  int64_t max_pending_bytes = int64_t{64} << 30;
  // From so many nodes on, a sequence of operations that repeats itself is cut between two repetitions, so that a loop
  // without a barrier compiles its body once.
  int64_t repetition_nodes = 1'000;
  uint64_t seed = 0;
  std::string isa;                               // "", "avx512", "avx2", "portable": CompileOptions::isa
  bool allow_winograd = false;                   // CompileOptions::allow_winograd
  std::string matmul_precision = "HIGHEST";      // in StableHLO text: ir::StableHloOptions::precision
  std::shared_ptr<ops::CustomFunctions> custom;  // what the engine calls where programs cannot; may be null
  HeldTypes held;                                // what devices hold for the types that callers see
  bool verify_between_passes = false;
  int64_t launch_deadline_ms = 0;   // after which loops of unknown length end; 0: never
  int64_t compile_deadline_ms = 0;  // after which a call no longer waits for a program; 0: never
  int64_t max_programs = 2'048;     // kept in memory, ready to launch
  // Cuts with smaller outputs do not ask how much memory there is: the answer costs 50 µs, as much as writing 1 MiB.
  int64_t large_cut_bytes = int64_t{256} << 20;
  // Test hook: steps that arrive as before are not built.
  bool replay = true;
  // Test hook: bits of the program key that are looked at. Fewer only make the stored canonical form decide more often.
  int hash_bits = 128;
};

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
// Who listens to messages.
struct LogHook {
  LogHook() = default;
  template <std::invocable<LogLevel, std::string_view> Write>
  LogHook(Write write, std::shared_ptr<const std::atomic<int>> least = nullptr)
      : write(std::move(write)), least(std::move(least)) {}
  explicit operator bool() const { return write != nullptr; }
  // Called without any lock held, on the thread whose call gave rise to the message.
  std::function<void(LogLevel level, std::string_view text)> write;
  // The least level that anybody listens to at the moment: texts of others are not made. Null: all.
  std::shared_ptr<const std::atomic<int>> least;
};

}  // namespace weft::lazy
