// See location.h.
#include "src/ir/location.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "src/runtime/fork.h"
#include "src/runtime/lasting.h"
#include "src/runtime/mutex.h"

namespace weft::ir {
namespace {

// These values of Location's file mean that it is no file: kAddress marks the upper half of an address, kStack a
// stack's number.
constexpr uint32_t kAddress = 0x80000000, kStack = 0x40000000;

// A frame of a stack: texts of the layer above, or an address in the caller's code.
struct Kept {
  uint32_t function = 0, file = 0, line = 0;
  const void* address = nullptr;
  bool operator==(const Kept&) const = default;
};

uint64_t HashOf(std::span<const Kept> frames) {
  uint64_t hash = frames.size();
  for (const Kept& frame : frames) {
    for (const uint64_t part : {uint64_t{frame.function} << 32 | frame.file, uint64_t{frame.line},
                                uint64_t{reinterpret_cast<uintptr_t>(frame.address)}}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
  }
  return hash;
}

// Process-wide and never torn down: positions outlive contexts in error texts. Files are bounded by the number of source files,
// stacks by kMostStacks.
struct Tables {
  uint32_t TextLocked(std::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (text.empty()) return 0;
    std::string name(text);
    if (const auto known = index.find(name); known != index.end()) return known->second;
    texts.push_back(nullptr);
    try {
      texts.back() = &index.try_emplace(std::move(name), texts.size()).first->first;
    } catch (...) {
      texts.pop_back();
      throw;
    }
    return static_cast<uint32_t>(texts.size());
  }
  std::string NamedLocked(uint32_t text) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return text == 0 ? "" : *texts[text - 1];
  }

  // Nothing if there are too many.
  std::optional<Location> StackLocked(std::span<const Kept> frames) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const uint64_t hash = HashOf(frames);
    const auto [first, last] = stack_index.equal_range(hash);
    for (auto known = first; known != last; ++known) {
      const std::vector<Kept>& stack = stacks[known->second];
      if (std::equal(stack.begin(), stack.end(), frames.begin(), frames.end()))
        return Location{kStack | known->second, frames[0].line};
    }
    if (stacks.size() >= kMostStacks) return std::nullopt;
    const auto number = static_cast<uint32_t>(stacks.size());
    const auto entry = stack_index.emplace(hash, number);
    try {
      stacks.emplace_back(frames.begin(), frames.end());
    } catch (...) {
      stack_index.erase(entry);
      throw;
    }
    return Location{kStack | number, frames[0].line};
  }

  Mutex mutex;
  std::unordered_map<std::string, uint32_t> index ABSL_GUARDED_BY(mutex);
  std::vector<const std::string*> texts ABSL_GUARDED_BY(mutex);
  std::vector<std::vector<Kept>> stacks ABSL_GUARDED_BY(mutex);
  std::unordered_multimap<uint64_t, uint32_t> stack_index ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};
constinit Lasting<Tables> g_tables;

// "train+0x12ab", counted from where the module begins, with the function's name where the module says it; empty if no module has it.
std::string TextOfAddress(const void* address, std::string* function) {
  // A call's return address is behind the call, perhaps in another function.
  const char* const at = static_cast<const char*>(address) - 1;
  Dl_info info{};
  if (dladdr(at, &info) == 0 || info.dli_fname == nullptr) return "";
  std::string_view module = info.dli_fname;
  module.remove_prefix(module.rfind('/') + 1);
  if (info.dli_sname != nullptr && function != nullptr) {
    const std::unique_ptr<char, decltype(&std::free)> plain(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, nullptr), &std::free);
    *function = plain != nullptr ? plain.get() : info.dli_sname;
  }
  return absl::StrCat(module, "+0x", absl::Hex(at + 1 - static_cast<const char*>(info.dli_fbase)));
}

const void* AddressOf(Location location) {
  return reinterpret_cast<const void*>(uintptr_t{location.file & ~kAddress} << 32 | location.line);
}

std::vector<Kept> StackOf(Location location) {
  Tables& tables = g_tables.Get();
  MutexLock lock(tables.mutex);
  return tables.stacks[location.file & ~kStack];
}

std::string TextOf(const Position& position) {
  return position.line == 0 ? position.file : absl::StrCat(position.file, ":", position.line);
}

Position PositionOf(const Kept& frame, std::string* function) {
  if (frame.address != nullptr) return {TextOfAddress(frame.address, function), 0};
  Tables& tables = g_tables.Get();
  MutexLock lock(tables.mutex);
  if (function != nullptr) *function = tables.NamedLocked(frame.function);
  return {tables.NamedLocked(frame.file == 0 ? frame.function : frame.file), frame.line};
}

}  // namespace

uint32_t InternFile(std::string_view file) {
  Tables& tables = g_tables.Get();
  MutexLock lock(tables.mutex);
  return tables.TextLocked(file);
}

Location LocationOf(const void* return_address) {
  const uint64_t address = reinterpret_cast<uintptr_t>(return_address);
  // No caller's code lies in the upper half.
  if (address == 0 || (address >> 62) != 0) return {};
  return {kAddress | static_cast<uint32_t>(address >> 32), static_cast<uint32_t>(address)};
}

std::string_view FileBelow(std::string_view root, std::string_view file) {
  while (root.size() > 1 && root.ends_with('/')) root.remove_suffix(1);
  if (root.empty() || !file.starts_with(root)) return file;
  std::string_view rest = file.substr(root.size());
  if (rest.empty() || (root != "/" && rest[0] != '/')) return file;
  while (rest.starts_with('/')) rest.remove_prefix(1);
  return rest.empty() ? file : rest;
}

Location InternStack(std::span<const StackFrame> frames) {
  if (frames.empty()) return {};
  Tables& tables = g_tables.Get();
  MutexLock lock(tables.mutex);
  std::vector<Kept> kept;
  for (const StackFrame& frame : frames)
    kept.push_back({tables.TextLocked(frame.function), tables.TextLocked(frame.file), frame.line});
  return tables.StackLocked(kept).value_or(Location{kept[0].file, kept[0].line});
}

Location InternAddresses(std::span<const void* const> addresses) {
  if (addresses.empty()) return {};
  std::vector<Kept> kept;
  kept.reserve(addresses.size());
  for (const void* address : addresses) kept.push_back({.address = address});
  Tables& tables = g_tables.Get();
  MutexLock lock(tables.mutex);
  return tables.StackLocked(kept).value_or(LocationOf(addresses[0]));
}

Position PositionOf(Location location) {
  if ((location.file & kAddress) != 0) return {TextOfAddress(AddressOf(location), nullptr), 0};
  if ((location.file & kStack) != 0) return PositionOf(StackOf(location)[0], nullptr);
  return PositionOf(Kept{.file = location.file, .line = location.line}, nullptr);
}

std::string ToString(Location location) {
  if (location.file == 0) return "";
  const Position position = PositionOf(location);
  // A file's line is said even where it is 0, as it was marked.
  const bool file = (location.file & (kAddress | kStack)) == 0;
  return file ? absl::StrCat(position.file, ":", position.line) : TextOf(position);
}

std::vector<std::string> FramesOf(Location location) {
  std::vector<Kept> stack;
  if ((location.file & kAddress) != 0) {
    stack.push_back({.address = AddressOf(location)});
  } else if ((location.file & kStack) != 0) {
    stack = StackOf(location);
  } else if (location.file != 0) {
    stack.push_back({.file = location.file, .line = location.line});
  }
  std::vector<std::string> lines;
  for (const Kept& frame : stack) {
    std::string function;
    const std::string text = TextOf(PositionOf(frame, &function));
    // An address outside known code ends the walk along frame pointers.
    if (frame.address != nullptr && text.empty()) break;
    lines.push_back(function.empty() ? text : absl::StrCat(function, " (", text, ")"));
  }
  return lines;
}

}  // namespace weft::ir
