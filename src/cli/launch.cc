// `weft launch`: starts the processes of a job, on this host or on others.
#include <sched.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

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

std::string EndText(const LaunchEnd& end) {
  const int code = StatusOf(end.status);
  const int signal = WIFSIGNALED(end.status) || (end.by_shell && code > 128 && code < 128 + NSIG) ? code - 128 : 0;
  if (signal == 0) return "ended with status " + std::to_string(code);
  return "was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

bool IsSet(const LaunchPlan& plan, const std::string& name) {
  const auto begins = [&](const std::string& text) { return text.starts_with(name + "="); };
  return std::getenv(name.c_str()) != nullptr || std::ranges::any_of(plan.environment, begins);
}

// Processes that each take all cores would wait for one another.
void ShareCores(LaunchPlan& plan) {
  if (!plan.hosts.empty()) return;  // each host's shell does it
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
  std::fprintf(stderr, "weft launch: rank %d %s\n", end.first, EndText(end).c_str());
  if (end.by_shell && StatusOf(end.status) == 255) {
    std::fprintf(stderr, "weft launch: 255 is ssh's own status where it does not reach a host, or loses it\n");
  }
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
    // Ranks that were told to end, saved and left are no failure.
    if (end.signal == SIGTERM && end.all_well) return kDone;
    if (end.signal != 0) return 128 + end.signal;
    if (end.first < 0) return kDone;
    Report(end);
    if (restart == max_restarts) return StatusOf(end.status);
    std::fprintf(stderr, "weft launch: starting all ranks again (%d of %d)\n", restart + 1, max_restarts);
  }
}

// Where rank 0 listens unless somebody says another place; as src/distributed has it for lists of hosts.
constexpr std::string_view kUsualPort = "29555";

// Where the processes run: hosts, and what they run in there. An empty text, or what is wrong.
std::string ReadPlaces(const Arguments& arguments, LaunchPlan& plan) {
  const bool hosts = arguments.has("--hosts"), tpu = arguments.has("--tpu");
  if (hosts && tpu) return "--hosts and --tpu exclude each other";
  if (arguments.has("--docker") && arguments.has("--conda-env")) return "--docker and --conda-env exclude each other";
  if (arguments.has("--docker-run-flag") && !arguments.has("--docker")) return "--docker-run-flag is for --docker";
  std::vector<std::string> where;
  for (const std::string_view flag : {"--zone", "--project"}) {
    if (!arguments.has(flag)) continue;
    if (!tpu) return std::string(flag) + " is for --tpu";
    where.push_back(std::string(flag) + "=" + std::string(arguments.value(flag, "")));
  }
  plan.room.docker = arguments.value("--docker", "");
  plan.room.conda = arguments.value("--conda-env", "");
  const std::vector<std::string_view> flags = arguments.values("--docker-run-flag");
  plan.room.docker_flags.assign(flags.begin(), flags.end());
  if (tpu) plan.room.docker_flags.insert(plan.room.docker_flags.begin(), "--privileged");  // for the devices
  std::string why;
  if (hosts && !HostsOf(arguments.value("--hosts", ""), &plan.hosts, &why)) return why;
  if (tpu && !HostsOfTpu(std::string(arguments.value("--tpu", "")), where, &plan.hosts, &why)) return why;
  if (arguments.has("--coordinator") && !hosts && !tpu) return "--coordinator is for --hosts and --tpu";
  if (plan.hosts.empty()) {
    if (plan.room.any()) plan.hosts.push_back({});
    return "";
  }
  const std::string usual = plan.hosts[0].address + ":" + std::string(kUsualPort);
  plan.environment.push_back("WEFT_COORDINATOR=" + std::string(arguments.value("--coordinator", usual)));
  std::error_code gone;
  if (plan.room.docker.empty()) plan.folder = std::filesystem::current_path(gone).string();
  if (gone) return "the folder that processes are to run in cannot be told: " + gone.message();
  return "";
}

int Execute(const Arguments& arguments) {
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
  if (arguments.has("--warn-stuck")) {
    std::string_view seconds = arguments.value("--warn-stuck", "");
    int most = 0;
    if (seconds.ends_with('s')) seconds.remove_suffix(1);
    if (!NumberOf(seconds, 1, 1 << 20, &most)) return Misused("--warn-stuck is a number of seconds, as 10s or 10");
    plan.stuck_ms = int64_t{1000} * most;
  }
  if (const std::string wrong = ReadPlaces(arguments, plan); !wrong.empty()) return Misused(wrong);
  if (plan.stuck_ms != 0 && !plan.hosts.empty())
    return Misused("--warn-stuck is for processes that the launcher starts itself");
  if (plan.hosts.size() > 1) {
    if (static_cast<size_t>(plan.count) * plan.hosts.size() > kMostRanks) {
      return Misused("-n " + std::to_string(plan.count) + " on each of " + std::to_string(plan.hosts.size()) +
                     " hosts are more than " + std::to_string(kMostRanks) + " processes");
    }
    plan.count *= static_cast<int>(plan.hosts.size());
  }
  for (const std::string_view variable : arguments.values("--env")) {
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Misused("--env takes NAME=VALUE, not '" + std::string(variable) + "'");
    }
    if (!plan.hosts.empty() && !IsVariableName(variable.substr(0, equals))) {
      return Misused("'" + std::string(variable.substr(0, equals)) + "' is no name of a variable for a shell");
    }
    plan.environment.emplace_back(variable);
  }
  plan.log_folder = arguments.value("--log-dir", "");
  return RunAll(std::move(plan), max_restarts);
}

const Registration kLaunch(
    {.name = "launch",
     .summary = "starts the processes of a job, and ends all of them when one fails",
     .flags = {{"-n", "how many processes, on each host; 1 without it", "N"},
               {"--env", "a variable for all of them; may be given again", "NAME=VALUE"},
               {"--max-restarts", "starts all again so many times when one fails", "N"},
               {"--grace", "seconds between SIGTERM and SIGKILL; 10 without it", "SECONDS"},
               {"--warn-stuck", "says who is behind, and where, when a rank waits so long", "SECONDS"},
               {"--log-dir", "a folder that is there: a file of output for each rank", "FOLDER"},
               {"--hosts", "h1,user@h2, by ssh; or a file with a host in each line", "HOSTS"},
               {"--tpu", "the machines of a TPU, by gcloud", "NAME"},
               {"--zone", "of the TPU", "ZONE"},
               {"--project", "of the TPU", "PROJECT"},
               {"--coordinator", "where rank 0 listens; the first host's port 29555 without it", "HOST:PORT"},
               {"--docker", "an image to run in", "IMAGE"},
               {"--docker-run-flag", "for docker run; may be given again", "FLAG"},
               {"--conda-env", "a conda environment to run in", "ENV"}},
     .rest = "PROGRAM [ARGUMENT]...",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
