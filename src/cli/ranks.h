// The processes that `weft launch` starts: their output, their end, and the end of whatever they started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/hosts.h"

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

// Text that a shell on a host is still to read: the script, and signals by name.
class Orders {
 public:
  explicit Orders(int to) : to_(to) {}
  ~Orders();
  Orders(const Orders&) = delete;

  int to() const { return to_; }
  bool waits() const { return !text_.empty(); }  // for room
  void Give(std::string_view text);

 private:
  const int to_;
  std::string text_;
};

struct Rank {
  pid_t pid = -1;  // of the process, or of what reaches its host
  bool ended = false;
  int status = 0;  // as waitpid gives it
  std::vector<Output*> outputs;
  std::unique_ptr<Orders> orders;  // null: a process of the launcher's own
  std::deque<std::string> last;    // lines
};

struct LaunchPlan {
  int count = 1;                         // of all processes
  std::vector<LaunchHost> hosts;         // each gets equally many, by a shell; empty: the launcher starts them itself
  LaunchRoom room;                       // with hosts
  std::string folder;                    // to run in on hosts
  std::vector<std::string> words;        // the program and its arguments
  std::vector<std::string> environment;  // NAME=VALUE of every rank, besides the launcher's own
  std::string job;
  std::string log_folder;  // empty: no logs
  int64_t grace_ms = 10'000;
  int64_t stuck_ms = 0;  // a wait of so long for other ranks is told; 0: none
};

struct LaunchEnd {
  int first = -1;                 // the rank that failed first; -1: none
  int status = 0;                 // its, or 0
  bool by_shell = false;          // the status is a shell's, which says signals as 128 and more
  int signal = 0;                 // that the launcher got
  bool all_well = false;          // every rank ended with status 0
  std::string problem;            // why nothing could be started
  std::vector<std::string> last;  // lines of the first
};

// Starts `count` processes, each the leader of a process group, passes on what they write, and returns when all have ended. When one
// fails, or the launcher gets SIGINT, SIGTERM or SIGHUP, the groups of the others get SIGTERM and, after the grace, SIGKILL. Nothing
// that they started stays in their groups. On hosts the shells there do it. Ranks that wait long for others say so, and where these are.
LaunchEnd RunRanks(const LaunchPlan& plan, int restart);

}  // namespace weft::cli
