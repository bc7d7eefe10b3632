// The operating system's facts about this machine and about a folder.
#pragma once

#include <cstdint>
#include <string>

#include "src/cli/report.h"

namespace weft::cli {

// model, architecture, cores (of the machine), usable_cores (of this process).
Fields CpuFields();
// total_bytes, available_bytes, page_bytes.
Fields MemoryFields();

// Entries of a compile cache as docs/formats.md lays them out.
struct CacheFolder {
  bool exists = false, writable = false;
  int64_t entries = 0, bytes = 0;
};
CacheFolder LookAt(const std::string& folder);

}  // namespace weft::cli
