// Reads /proc/meminfo and the limits of control groups.
#include "src/runtime/machine_memory.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// The number behind `key` in a file of "key number …" lines; without a key the file's first word. -1 if there is none,
// as in "max".
int64_t NumberIn(const std::string& path, std::string_view key = {}) {
  std::ifstream file(path);
  std::string word;
  int64_t number = -1;
  if (key.empty()) return file >> word && absl::SimpleAtoi(word, &number) ? number : -1;
  while (file >> word) {
    if (word == key) return file >> number ? number : -1;
    file.ignore(4096, '\n');
  }
  return -1;
}

void Lower(int64_t& value, int64_t to) {
  if (to >= 0 && (value < 0 || to < value)) value = to;
}

struct GroupFiles {
  const char *limit, *usage, *reclaimable;
};

// The group's own limit and those of all around it. Where the group's folder cannot be seen (a container that shows its
// own group as the root), the root's files speak for it.
void LowerToGroup(const std::string& root, std::string group, const GroupFiles& files, MachineMemory& memory) {
  while (true) {
    const std::string folder = absl::StrCat(root, group == "/" ? "" : group, "/");
    const int64_t limit = NumberIn(folder + files.limit), usage = NumberIn(folder + files.usage);
    if (limit >= 0 && usage >= 0) {
      // Pages of files that nobody has touched lately are counted as used, and given up first.
      const int64_t reclaimable = std::max<int64_t>(NumberIn(folder + "memory.stat", files.reclaimable), 0);
      Lower(memory.total, limit);
      Lower(memory.available, std::max<int64_t>(limit - usage + reclaimable, 0));
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

MachineMemory ReadMachineMemory(const std::string& root) {
  MachineMemory memory;
  const std::string meminfo = root + "/proc/meminfo";
  const int64_t total = NumberIn(meminfo, "MemTotal:"), available = NumberIn(meminfo, "MemAvailable:");
  if (total >= 0) memory.total = total * 1024;
  if (available >= 0) memory.available = available * 1024;
  // "4:memory:/user.slice" is version 1, "0::/user.slice" version 2.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    if (parts[0] == "0" && parts[1].empty()) {
      LowerToGroup(root + "/sys/fs/cgroup", parts[2], {"memory.max", "memory.current", "inactive_file"}, memory);
    } else if (parts[1] == "memory") {
      LowerToGroup(root + "/sys/fs/cgroup/memory", parts[2],
                   {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}, memory);
    }
  }
  return memory;
}

bool MachineHas(int64_t bytes) {
  constexpr int64_t kSmall = int64_t{64} << 20;
  if (bytes <= kSmall) return true;
  const int64_t available = ReadMachineMemory().available;
  return available < 0 || bytes <= available;
}

}  // namespace weft
