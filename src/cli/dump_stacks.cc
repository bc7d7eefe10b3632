// `weft dump-stacks`: what every thread of a process is doing, for one that hangs.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "src/cli/command.h"
#include "src/cli/native_stacks.h"
#include "src/cli/python_stacks.h"
#include "src/cli/report.h"
#include "src/cli/thread_words.h"

namespace weft::cli {
namespace {

// Threads with equal stacks, the most threads first.
std::vector<std::vector<const NativeThread*>> Grouped(const NativeStacks& stacks) {
  std::map<std::string, std::vector<const NativeThread*>> by_frames;
  for (const NativeThread& thread : stacks.threads) {
    std::string key = thread.problem;
    for (const auto* frames : {&thread.frames, &thread.python}) {
      for (const NativeFrame& frame : *frames) key += "\n" + frame.function + " " + frame.location;
      key += "\n";
    }
    by_frames[key].push_back(&thread);
  }
  std::vector<std::vector<const NativeThread*>> groups;
  for (auto& [key, threads] : by_frames) groups.push_back(std::move(threads));
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return groups;
}

void PrintText(const std::vector<std::vector<const NativeThread*>>& groups, const std::map<pid_t, std::string>& words) {
  for (const std::vector<const NativeThread*>& group : groups) {
    std::printf("STACK (count=%zu):\n", group.size());
    const NativeThread& first = *group[0];
    for (const NativeFrame& frame : first.frames) std::printf("  %s\n", frame.function.c_str());
    if (!first.problem.empty()) std::printf("  (no frames: %s)\n", first.problem.c_str());
    std::printf("LOCATIONS:\n");
    for (const NativeFrame& frame : first.frames) std::printf("  %s\n", frame.location.c_str());
    if (!first.python.empty()) std::printf("PYTHON:\n");
    for (const NativeFrame& frame : first.python)
      std::printf("  %s (%s)\n", frame.function.c_str(), frame.location.c_str());
    std::printf("THREADS:\n");
    for (const NativeThread* thread : group) {
      const auto word = words.find(thread->id);
      std::printf("  %s (%d)%s%s\n", thread->name.c_str(), static_cast<int>(thread->id),
                  word == words.end() ? "" : ": ", word == words.end() ? "" : word->second.c_str());
    }
    std::printf("\n");
  }
}

// As GDB prints the stacks of all threads: PyTorch/XLA's stack_trace_parse.py and other scripts read that.
void PrintEach(const NativeStacks& stacks) {
  for (size_t i = 0; i < stacks.threads.size(); ++i) {
    const NativeThread& thread = stacks.threads[i];
    std::printf("Thread %zu (LWP %d):\n", i + 1, static_cast<int>(thread.id));
    size_t number = 0;
    for (const NativeFrame& frame : thread.frames)
      std::printf("#%-3zu %s at %s\n", number++, frame.function.c_str(), frame.location.c_str());
    for (const NativeFrame& frame : thread.python)
      std::printf("#%-3zu [Python] %s at %s\n", number++, frame.function.c_str(), frame.location.c_str());
    std::printf("\n");
  }
}

List RowsOf(const std::vector<NativeFrame>& frames) {
  List rows;
  for (const NativeFrame& frame : frames)
    rows.push_back(Fields{{"function", frame.function}, {"location", frame.location}});
  return rows;
}

Fields Json(const std::vector<std::vector<const NativeThread*>>& groups, const std::map<pid_t, std::string>& words) {
  List rows;
  for (const std::vector<const NativeThread*>& group : groups) {
    List threads;
    for (const NativeThread* thread : group) {
      const auto word = words.find(thread->id);
      threads.push_back(Fields{
          {"id", int64_t{thread->id}}, {"name", thread->name}, {"doing", word == words.end() ? "" : word->second}});
    }
    rows.push_back(Fields{{"count", static_cast<int64_t>(group.size())},
                          {"frames", RowsOf(group[0]->frames)},
                          {"python", RowsOf(group[0]->python)},
                          {"threads", std::move(threads)}});
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
  std::string no_python;
  if (stacks.python.runtime != 0) {
    auto frames = PythonFrames(process, stacks.python, &no_python);
    for (NativeThread& thread : stacks.threads) thread.python = std::move(frames[thread.id]);
  }
  if (!no_python.empty()) {
    std::fprintf(stderr, "weft dump-stacks: %s; 'py-spy dump --pid %d' may have them\n", no_python.c_str(), process);
  }
  if (arguments.has("--each")) {
    PrintEach(stacks);
    return kDone;
  }
  const auto groups = Grouped(stacks);
  if (arguments.has("--json")) {
    Print(Json(groups, words), true);
    return kDone;
  }
  PrintText(groups, words);
  return kDone;
}

const Registration kDumpStacks(
    {.name = "dump-stacks",
     .summary =
         "what each thread of a process is doing: equal stacks once, with names, Python's frames and Weft's own word for it",
     .parameter = "PID",
     .flags = {{"--each", "each thread by itself, as GDB prints them, for scripts that read that"},
               {"--json", "as one JSON object"}},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
