// A trace as pictures: a roofline of its kernels, memory over time, and what each thread did in a step.
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
struct ProfiledSpan {
  int64_t thread = 0;
  double begin = 0, took = 0;  // microseconds
  std::string name, kind;
};
struct Profile {
  std::vector<ProfiledKernel> kernels;            // the dearest first
  std::vector<std::pair<double, double>> memory;  // microseconds since the trace began, and bytes in use from then on
  std::vector<double> steps;                      // microseconds at which steps ended
  double end = 0;                                 // microseconds
  std::vector<std::pair<int64_t, std::string>> lanes;  // threads by number, with their names
  std::vector<ProfiledSpan> spans;  // of one thread by their beginnings, those inside others behind them
};
// From Chrome's trace events, as the library writes them; false for another text.
bool ReadProfile(std::string_view trace, Profile* out);

// GF/s and GB/s of each kernel, and their share of what the machine can do at most.
Fields KernelTable(const Profile& profile, const Ceilings& ceilings);
// No label lies over another; axes have units.
std::string RooflineSvg(const Profile& profile, const Ceilings& ceilings);
std::string MemorySvg(const Profile& profile);
// The last whole step, or all where there is none: a lane a thread, a box a span, those inside others below them.
std::string TimelineSvg(const Profile& profile);

}  // namespace weft::cli
