// Levels of messages, and who listens to them.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace weft {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
struct LogHook {
  LogHook() = default;
  template <std::invocable<LogLevel, std::string_view> Write>
  LogHook(Write write, std::shared_ptr<const std::atomic<int>> least = nullptr)
      : write(std::move(write)), least(std::move(least)) {}
  explicit operator bool() const { return write != nullptr; }
  bool Wants(LogLevel level) const {
    return write != nullptr && (least == nullptr || static_cast<int>(level) >= least->load(std::memory_order_relaxed));
  }
  // Called without any lock held, on the thread whose call gave rise to the message; with `anywhere` on any thread at once.
  std::function<void(LogLevel level, std::string_view text)> write;
  bool anywhere = false;
  // The least level that anybody listens to at the moment: texts of others are not made. Null: all.
  std::shared_ptr<const std::atomic<int>> least;
};

}  // namespace weft
