// A trace as pictures: a roofline of its kernels, and memory over time.
#pragma once

#include <string>
#include <vector>

#include "src/cli/ceilings.h"
#include "src/cli/report.h"

namespace weft::cli {

struct ProfiledKernel {
  std::string name, implementation, where;
  int64_t calls = 0, flops = -1, bytes = -1;  // of one call
  double nanoseconds = 0;                     // of all
};
struct Profile {
  std::vector<ProfiledKernel> kernels;            // the dearest first
  std::vector<std::pair<double, double>> memory;  // microseconds since the trace began, and bytes in use from then on
  std::vector<double> steps;                      // microseconds at which steps ended
  double end = 0;                                 // microseconds
};
// From Chrome's trace events, as the library writes them; false for another text.
bool ReadProfile(std::string_view trace, Profile* out);

// GF/s and GB/s of each kernel, and their share of what the machine can do at most.
Fields KernelTable(const Profile& profile, const Ceilings& ceilings);
// No label lies over another; axes have units.
std::string RooflineSvg(const Profile& profile, const Ceilings& ceilings);
std::string MemorySvg(const Profile& profile);

}  // namespace weft::cli
