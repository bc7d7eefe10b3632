// What goes wrong in the fake plugin, and what it has counted. Both are the process's, not a client's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/runtime/status.h"

namespace weft::pjrt::fake {

constexpr size_t kFunctions = 138;

// Read from a text once and never changed; fake.cc says what the text may hold.
struct Faults {
  struct Failure {
    std::string function;  // "PJRT_Client_Compile", or "launch": the launch's event, not the call
    int64_t call = 0;      // counted from 1, from when this text was set; 0: each
    absl::StatusCode code = absl::StatusCode::kInternal;
    mutable std::atomic<int64_t> calls{0};
  };

  int64_t devices = 1;
  int64_t memory = 0;  // bytes a device; 0: as many as there are
  int64_t slow_ms = 0, slow_compile_ms = 0;
  int64_t dying_device = -1, hanging_device = -1;
  int64_t last_launch = 0;  // of that device
  int64_t portable = 1;
  int64_t functions = kFunctions, major = 0, minor = 115;
  bool extensions = false, initializes = true, signals = false, refuses_load = false;
  bool ignores_portable = false, keeps_device = false, turned = false;
  std::vector<std::string> missing, silent, last_zero, blocking, blocking_after;  // functions
  std::string refused;  // an operation's name in the text
  std::vector<std::unique_ptr<Failure>> failures;

  // Whether the list holds the function.
  static bool Names(const std::vector<std::string>& functions, std::string_view function);
  // What the text says about this call of the function, which is counted.
  absl::Status Call(std::string_view function) const;

  static absl::StatusOr<std::shared_ptr<const Faults>> Parse(std::string_view text);
};

// The text that holds now. Thread rule: any thread.
std::shared_ptr<const Faults> Current();
void Set(std::shared_ptr<const Faults> faults);

// Calls of functions by number, and what was copied.
struct Counts {
  std::array<std::atomic<int64_t>, kFunctions> calls{};
  std::atomic<int64_t> to_device{0}, from_device{0}, launches{0};  // bytes, bytes, launches that were run
};
extern Counts counts;

}  // namespace weft::pjrt::fake
