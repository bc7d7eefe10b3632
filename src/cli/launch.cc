// `weft launch`: starts the processes of a job on this host.
#include <sched.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/cli/command.h"
#include "src/cli/ranks.h"

namespace weft::cli {
namespace {

constexpr int kMostRanks = 1024;

int Misused(const std::string& text) {
  std::fprintf(stderr, "weft launch: %s; 'weft launch --help' says more\n", text.c_str());
  return kMisused;
}

bool NumberOf(std::string_view text, int least, int most, int* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= least && *out <= most;
}

// A number that nobody guesses, in hexadecimal.
std::string RandomText() {
  unsigned char bytes[16] = {};
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) return "";
  std::string text;
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// The status of a process as a shell tells it.
int StatusOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

std::string EndText(int status) {
  if (WIFEXITED(status)) return "ended with status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return "was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

bool IsSet(const LaunchPlan& plan, const std::string& name) {
  const auto begins = [&](const std::string& text) { return text.starts_with(name + "="); };
  return std::getenv(name.c_str()) != nullptr || std::ranges::any_of(plan.environment, begins);
}

// Processes that each take all cores would wait for one another.
void ShareCores(LaunchPlan& plan) {
  const std::string threads = std::to_string(std::max(1, UsableCores() / plan.count));
  std::string said;
  for (const std::string name : {"WEFT_THREADS", "OMP_NUM_THREADS"}) {
    if (IsSet(plan, name)) continue;
    plan.environment.push_back(name + "=" + threads);
    said += (said.empty() ? "" : ", ") + name + "=" + threads;
  }
  if (!said.empty() && plan.count > 1) {
    std::fprintf(stderr, "weft launch: %s for each of %d processes on %d cores\n", said.c_str(), plan.count,
                 UsableCores());
  }
}

void Report(const LaunchEnd& end) {
  std::fprintf(stderr, "weft launch: rank %d %s\n", end.first, EndText(end.status).c_str());
  if (end.last.empty()) return;
  std::fprintf(stderr, "weft launch: the last lines of rank %d:\n", end.first);
  for (const std::string& line : end.last) std::fprintf(stderr, "  %s\n", line.c_str());
}

int RunAll(LaunchPlan plan, int max_restarts) {
  plan.environment.push_back("WEFT_JOB_TOKEN=" + RandomText());
  plan.job = "launch-" + std::to_string(getpid()) + "-" + RandomText().substr(0, 8);
  ShareCores(plan);
  for (int restart = 0;; ++restart) {
    const LaunchEnd end = RunRanks(plan, restart);
    if (!end.problem.empty()) {
      std::fprintf(stderr, "weft launch: %s\n", end.problem.c_str());
      return kFailed;
    }
    if (end.signal != 0) return 128 + end.signal;
    if (end.first < 0) return kDone;
    Report(end);
    if (restart == max_restarts) return StatusOf(end.status);
    std::fprintf(stderr, "weft launch: starting all ranks again (%d of %d)\n", restart + 1, max_restarts);
  }
}

int Execute(const Arguments& arguments) {
  for (const std::string_view later : {"--hosts", "--tpu", "--docker"}) {
    if (arguments.has(later))
      return Misused(std::string(later) + " is not there yet: processes start on this host alone");
  }
  LaunchPlan plan;
  plan.words.assign(arguments.rest.begin(), arguments.rest.end());
  if (plan.words.empty()) return Misused("which PROGRAM? it stands behind --");
  int max_restarts = 0, grace = 0;
  if (!NumberOf(arguments.value("-n", "1"), 1, kMostRanks, &plan.count)) {
    return Misused("-n is a number of processes, from 1 to " + std::to_string(kMostRanks));
  }
  if (!NumberOf(arguments.value("--max-restarts", "0"), 0, 1 << 20, &max_restarts))
    return Misused("--max-restarts is a number from 0 on");
  if (!NumberOf(arguments.value("--grace", "10"), 0, 1 << 20, &grace)) return Misused("--grace is a number of seconds");
  plan.grace_ms = int64_t{1000} * grace;
  for (const std::string_view variable : arguments.values("--env")) {
    if (variable.find('=') == std::string_view::npos || variable.starts_with("=")) {
      return Misused("--env takes NAME=VALUE, not '" + std::string(variable) + "'");
    }
    plan.environment.emplace_back(variable);
  }
  plan.log_folder = arguments.value("--log-dir", "");
  return RunAll(std::move(plan), max_restarts);
}

const Registration kLaunch(
    {.name = "launch",
     .summary = "starts the processes of a job on this host, and ends all of them when one fails",
     .flags = {{"-n", "how many processes; 1 without it", "N"},
               {"--env", "a variable for all of them; may be given again", "NAME=VALUE"},
               {"--max-restarts", "starts all again so many times when one fails", "N"},
               {"--grace", "seconds between SIGTERM and SIGKILL; 10 without it", "SECONDS"},
               {"--log-dir", "a folder that is there: a file of output for each rank", "FOLDER"},
               {"--hosts", "is not there yet", "HOSTS"},
               {"--tpu", "is not there yet", "NAME"},
               {"--docker", "is not there yet", "IMAGE"}},
     .rest = "PROGRAM [ARGUMENT]...",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
