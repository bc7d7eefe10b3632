// See where_is.h.
#include "src/cli/where_is.h"

#include <algorithm>

#include "src/cli/python_stacks.h"

namespace weft::cli {

std::string WhereIs(pid_t process) {
  constexpr size_t kMost = 6;
  NativeStacks stacks;
  std::string problem, text;
  if (!ReadStacks(process, &stacks, &problem)) return "process " + std::to_string(process) + ": " + problem;
  const auto first = std::ranges::find(stacks.threads, process, &NativeThread::id);
  if (first == stacks.threads.end()) return "process " + std::to_string(process) + ", which has no first thread";
  std::vector<NativeFrame> frames = first->frames;
  if (stacks.python.runtime != 0) {
    auto python = PythonFrames(process, stacks.python, &problem);
    if (!python[process].empty()) frames = std::move(python[process]);
  }
  for (size_t i = 0; i < std::min(kMost, frames.size()); ++i) {
    text += (i == 0 ? "" : ", ") + frames[i].function + " (" + frames[i].location + ")";
  }
  return text.empty() ? "process " + std::to_string(process) + ": " + first->problem : text;
}

}  // namespace weft::cli
