// Members that are processes: this test program once more, told by variables which part to play.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace weft::distributed::test {

// In the file that knows the part: `const Part kDies("dies", [] { …; return 0; });`. Runs before main where it is asked for, and
// ends the process with what it returns.
struct Part {
  Part(const char* name, int (*act)()) {
    const char* const wanted = std::getenv("WEFT_TEST_PART");
    if (wanted != nullptr && std::string(wanted) == name) _exit(act());
  }
};

inline std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Writes text that the test reads from the part's output.
inline void Say(const std::string& text) { (void)!write(STDOUT_FILENO, text.data(), text.size()); }

struct Ended {
  int status = -1;  // as waitpid gives it
  std::string said;
  int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
};

class Process {
 public:
  explicit Process(const std::map<std::string, std::string>& variables) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    std::vector<std::string> texts;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      if (variables.count(text.substr(0, text.find('='))) == 0) texts.push_back(text);
    }
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    char name[] = "part";
    char* const words[] = {name, nullptr};
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execve("/proc/self/exe", words, environment.data());
      _exit(127);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  Process(Process&& other) noexcept : pid_(other.pid_), from_(other.from_) { other.from_ = -1; }
  ~Process() {
    if (from_ >= 0) (void)Wait(SIGKILL);
  }

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { kill(pid_, signal); }
  // Until it has ended; of a stopped one: after this signal.
  Ended Wait(int signal = 0) {
    Ended ended;
    if (signal != 0) kill(pid_, signal);
    char buffer[4096];
    for (ssize_t got; (got = read(from_, buffer, sizeof buffer)) > 0;) ended.said.append(buffer, static_cast<size_t>(got));
    close(from_);
    from_ = -1;
    waitpid(pid_, &ended.status, 0);
    return ended;
  }

 private:
  pid_t pid_;
  int from_;
};

}  // namespace weft::distributed::test
