// See loop_names.h.
#include "src/backends/cpu/loop_names.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "src/runtime/dtype.h"

namespace weft::cpu {
namespace {

constexpr uint64_t kDigits = 0xffff;
constexpr size_t kMostOperations = 5;

// FNV-1a: equal in every process, which absl::Hash is not.
uint64_t HashOf(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string Operations(const Program& program, const Entry* entry) {
  std::vector<std::string> operations;
  for (const uint32_t at : entry != nullptr ? std::span(entry->origins) : std::span<const uint32_t>()) {
    std::string op(absl::StripPrefix(program.origins[at].op, "weft."));
    std::ranges::replace_if(op, [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); }, '_');
    if (std::ranges::find(operations, op) == operations.end()) operations.push_back(std::move(op));
  }
  if (operations.empty()) return "loop";
  const size_t more = operations.size() > kMostOperations ? operations.size() - kMostOperations : 0;
  operations.resize(operations.size() - more);
  return absl::StrCat(absl::StrJoin(operations, "_"), more > 0 ? absl::StrCat("_and_", more) : "");
}

}  // namespace

std::vector<std::string> LoopNames(const LoweredModule& lowered) {
  const Program& program = lowered.program;
  std::vector<const Entry*> first(program.loops.size());
  ForEachKernel(program, [&](const Entry& entry) {
    const int64_t loop = entry.type == Entry::Type::kLoop ? static_cast<int64_t>(entry.code) : entry.epilogue;
    if (loop >= 0 && first[loop] == nullptr) first[loop] = &entry;
  });
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (size_t i = 0; i < program.loops.size(); ++i) {
    const std::vector<Store>& stores = lowered.loops[i]->stores;
    std::string name = absl::StrCat("weft.", Operations(program, first[i]));
    if (!stores.empty()) absl::StrAppend(&name, ".", weft::NameOf(stores.front().access.dtype));
    absl::StrAppend(&name, ".", absl::Hex(HashOf(program.loops[i]) & kDigits, absl::kZeroPad4));
    if (!taken.insert(name).second) absl::StrAppend(&name, ".", i);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace weft::cpu
