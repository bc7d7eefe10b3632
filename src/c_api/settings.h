// Options by name: the one table of them, and the values a context was made with. Precedence: the caller's settings, then
// the environment, then the default.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/runtime/status.h"
#include "weft_base.h"

namespace weft::c_api {

enum class Option : uint8_t {
  kMode,
  kPlatform,
  kSeed,
  kIsa,
  kThreads,
  kMaxPendingNodes,
  kMaxPendingBytes,
  kRepetitionNodes,
  kCacheMode,
  kCacheDir,
  kCacheMaxBytes,
  kVerifyBetweenPasses,
  kLog,
  kHashBits,
  kCount,
};

std::span<const weft_option_info> AllOptions();
// Position in the table, or nothing.
std::optional<size_t> FindOption(std::string_view name);

// Immutable once a context has it.
class Settings {
 public:
  // Reads the environment, then the caller's list. An unknown name or a value of the wrong type is an error.
  static absl::StatusOr<Settings> Read(const weft_setting* settings, size_t count);

  const std::string& text(Option option) const { return values_[static_cast<size_t>(option)]; }
  const std::string& text(size_t option) const { return values_[option]; }
  int64_t integer(Option option) const;
  bool truth(Option option) const { return text(option) == "1"; }
  void set(Option option, std::string value) { values_[static_cast<size_t>(option)] = std::move(value); }

 private:
  std::array<std::string, static_cast<size_t>(Option::kCount)> values_;
};

}  // namespace weft::c_api
