// The processes that `weft launch` starts: their output, their end, and the end of whatever they started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

namespace weft::cli {

// Holds what a rank writes to one of its two outputs, a line at a time.
class Output {
 public:
  // Takes over both descriptors; `to` is stdout or stderr, `log` the rank's file or null.
  Output(int from, std::FILE* to, std::FILE* log, std::string prefix);
  ~Output();
  Output(const Output&) = delete;

  int from() const { return from_; }  // -1: at its end
  // Passes on what has come; lines go to `last`, too.
  void Read(std::deque<std::string>* last);

 private:
  void PassOn(std::string_view line, std::deque<std::string>* last);

  int from_;
  std::FILE* const to_;
  std::FILE* const log_;
  const std::string prefix_;
  std::string rest_;  // of a line
};

struct Rank {
  pid_t pid = -1;
  bool ended = false;
  int status = 0;  // as waitpid gives it
  std::vector<Output*> outputs;
  std::deque<std::string> last;  // lines
};

struct LaunchPlan {
  int count = 1;
  std::vector<std::string> words;        // the program and its arguments
  std::vector<std::string> environment;  // NAME=VALUE of every rank, besides the launcher's own
  std::string job;
  std::string log_folder;  // empty: no logs
  int64_t grace_ms = 10'000;
};

struct LaunchEnd {
  int first = -1;                 // the rank that failed first; -1: none
  int status = 0;                 // its, or 0
  int signal = 0;                 // that the launcher got
  std::string problem;            // why nothing could be started
  std::vector<std::string> last;  // lines of the first
};

// Starts `count` processes, each the leader of a process group, passes on what they write, and returns when all have ended. When one
// fails, or the launcher gets SIGINT, SIGTERM or SIGHUP, the groups of the others get SIGTERM and, after the grace, SIGKILL. Nothing
// that they started stays in their groups.
LaunchEnd RunRanks(const LaunchPlan& plan, int restart);

}  // namespace weft::cli
