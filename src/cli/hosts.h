// The hosts of a job that `weft launch` starts: who they are, and how a process is started and ended on one of them. A shell on the host
// reads from its standard input what to run, then signals; where the input ends, so does what it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct LaunchHost {
  std::string name;                // as lines of output have it
  std::string address;             // by which the other hosts reach it
  std::vector<std::string> reach;  // words before the shell's command; empty: this host
};

// Where a process runs on its host; at most one of them.
struct LaunchRoom {
  std::string docker;                     // an image
  std::vector<std::string> docker_flags;  // of `docker run`
  std::string conda;                      // an environment
  bool any() const { return !docker.empty() || !conda.empty(); }
};

// False, with a reason, where the text names no hosts: "h1,user@h2", or a file with one in each line ("@FILE", or a path).
bool HostsOf(std::string_view text, std::vector<LaunchHost>* out, std::string* why);
// The same of a TPU, whose machines gcloud tells. `where`: gcloud's flags for zone and project.
bool HostsOfTpu(const std::string& name, const std::vector<std::string>& where, std::vector<LaunchHost>* out,
                std::string* why);

struct HostRun {
  std::vector<std::string> words;      // the program and its arguments
  std::vector<std::string> variables;  // NAME=VALUE
  std::string folder;                  // to run in; empty: where the shell begins
  LaunchRoom room;
  std::string name;  // of a container
  int count = 1;     // of processes on the host, which share its cores
  int64_t grace_ms = 10'000;
};
// The words that start the shell on a host; it takes a script that `end` ends.
std::vector<std::string> ShellOn(const LaunchHost& host, std::string_view end);
// The shell's script, with `end` behind it.
std::string ScriptOf(const HostRun& run, std::string_view end);

// The word as a shell of POSIX takes it for itself, whatever is in it.
std::string Quoted(std::string_view word);
// True for what can be the name of a variable of such a shell.
bool IsVariableName(std::string_view name);

}  // namespace weft::cli
