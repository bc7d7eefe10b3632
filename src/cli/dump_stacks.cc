// `weft dump-stacks`: what every thread of a process is doing, for one that hangs.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "src/cli/command.h"
#include "src/cli/native_stacks.h"
#include "src/cli/report.h"
#include "src/cli/thread_words.h"

namespace weft::cli {
namespace {

// Threads with equal stacks, the most threads first.
std::vector<std::vector<const NativeThread*>> Grouped(const NativeStacks& stacks) {
  std::map<std::string, std::vector<const NativeThread*>> by_frames;
  for (const NativeThread& thread : stacks.threads) {
    std::string key = thread.problem;
    for (const NativeFrame& frame : thread.frames) key += "\n" + frame.function + " " + frame.location;
    by_frames[key].push_back(&thread);
  }
  std::vector<std::vector<const NativeThread*>> groups;
  for (auto& [key, threads] : by_frames) groups.push_back(std::move(threads));
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

bool IsPython(const NativeStacks& stacks) {
  for (const NativeThread& thread : stacks.threads) {
    for (const NativeFrame& frame : thread.frames) {
      if (frame.function.starts_with("_PyEval_") || frame.function.starts_with("Py_RunMain")) return true;
    }
  }
  return false;
}

void PrintText(const std::vector<std::vector<const NativeThread*>>& groups, const std::map<pid_t, std::string>& words) {
  for (const std::vector<const NativeThread*>& group : groups) {
    std::printf("STACK (count=%zu):\n", group.size());
    const NativeThread& first = *group[0];
    for (const NativeFrame& frame : first.frames) std::printf("  %s\n", frame.function.c_str());
    if (!first.problem.empty()) std::printf("  (no frames: %s)\n", first.problem.c_str());
    std::printf("LOCATIONS:\n");
    for (const NativeFrame& frame : first.frames) std::printf("  %s\n", frame.location.c_str());
    std::printf("THREADS:\n");
    for (const NativeThread* thread : group) {
      const auto word = words.find(thread->id);
      std::printf("  %s (%d)%s%s\n", thread->name.c_str(), static_cast<int>(thread->id),
                  word == words.end() ? "" : ": ", word == words.end() ? "" : word->second.c_str());
    }
    std::printf("\n");
  }
}

Fields Json(const std::vector<std::vector<const NativeThread*>>& groups, const std::map<pid_t, std::string>& words) {
  List rows;
  for (const std::vector<const NativeThread*>& group : groups) {
    List frames, threads;
    for (const NativeFrame& frame : group[0]->frames) {
      frames.push_back(Fields{{"function", frame.function}, {"location", frame.location}});
    }
    for (const NativeThread* thread : group) {
      const auto word = words.find(thread->id);
      threads.push_back(Fields{
          {"id", int64_t{thread->id}}, {"name", thread->name}, {"doing", word == words.end() ? "" : word->second}});
    }
    rows.push_back(Fields{
        {"count", static_cast<int64_t>(group.size())}, {"frames", std::move(frames)}, {"threads", std::move(threads)}});
  }
  return {{"stacks", std::move(rows)}};
}

int Execute(const Arguments& arguments) {
  const std::string_view text = arguments.parameter;
  int process = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), process);
  if (error != std::errc() || end != text.data() + text.size() || process <= 0) {
    std::fprintf(stderr, "weft dump-stacks: '%s' is not the number of a process; 'weft dump-stacks --help' says more\n",
                 std::string(text).c_str());
    return kMisused;
  }
  NativeStacks stacks;
  std::string problem;
  if (!ReadStacks(process, &stacks, &problem)) {
    std::fprintf(stderr, "weft dump-stacks: %s\n", problem.c_str());
    return kFailed;
  }
  std::map<pid_t, std::string> words;
  if (stacks.table != 0) words = ThreadWords(process, stacks.table, &problem);
  if (!problem.empty()) std::fprintf(stderr, "weft dump-stacks: %s\n", problem.c_str());
  const auto groups = Grouped(stacks);
  if (arguments.has("--json")) {
    Print(Json(groups, words), true);
    return kDone;
  }
  if (IsPython(stacks)) {
    std::printf(
        "The process runs Python. Frames below are those of its native code; 'py-spy dump --pid %d' has Python's.\n\n",
        process);
  }
  PrintText(groups, words);
  return kDone;
}

const Registration kDumpStacks(
    {.name = "dump-stacks",
     .summary = "what each thread of a process is doing: equal stacks once, with names and Weft's own word for it",
     .parameter = "PID",
     .flags = {{"--json", "as one JSON object"}},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
