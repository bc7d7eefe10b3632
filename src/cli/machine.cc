// See machine.h. /proc and sched.h, as Linux has them; what is missing is "unknown" or 0.
#include "src/cli/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weft::cli {
namespace {

// The text after "key   :" in a file of such lines.
std::string Said(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

int64_t Bytes(std::string_view key) { return std::atoll(Said("/proc/meminfo", key).c_str()) * 1024; }

}  // namespace

Fields CpuFields() {
  const std::string model = Said("/proc/cpuinfo", "model name");
  utsname names = {};
  const bool named = uname(&names) == 0;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  const bool masked = sched_getaffinity(0, sizeof(usable), &usable) == 0;
  return {{"model", model.empty() ? "unknown" : model},
          {"architecture", named ? names.machine : "unknown"},
          {"cores", cores},
          {"usable_cores", masked ? int64_t{CPU_COUNT(&usable)} : cores}};
}

Fields MemoryFields() {
  return {{"total_bytes", Bytes("MemTotal")},
          {"available_bytes", Bytes("MemAvailable")},
          {"page_bytes", int64_t{sysconf(_SC_PAGESIZE)}}};
}

CacheFolder LookAt(const std::string& folder) {
  namespace fs = std::filesystem;
  CacheFolder seen;
  std::error_code ignored;  // what cannot be read has no entries
  seen.exists = fs::is_directory(folder, ignored);
  seen.writable = seen.exists && access(folder.c_str(), W_OK | X_OK) == 0;
  for (auto at = fs::recursive_directory_iterator(fs::path(folder) / "v1", ignored), end = fs::end(at);
       !ignored && at != end; at.increment(ignored)) {
    if (at->path().parent_path().filename() == "bad" || at->path().extension() != ".tce") continue;
    const uintmax_t bytes = at->file_size(ignored);
    if (ignored) continue;  // gone meanwhile
    ++seen.entries;
    seen.bytes += static_cast<int64_t>(bytes);
  }
  return seen;
}

}  // namespace weft::cli
