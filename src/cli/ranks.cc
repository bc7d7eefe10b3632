// See ranks.h. One thread: it waits for outputs, signals and the end of the grace in one place.
#include "src/cli/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "src/cli/where_is.h"

extern char** environ;

namespace weft::cli {
namespace {

constexpr size_t kKeptLines = 50;
constexpr size_t kLongestLine = 64 << 10;
constexpr int kNoProgram = 127;
constexpr int64_t kHostAnswersMs = 5000;  // SIGKILL on a host, and the end of what reaches it

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

// In the new process. Only what may be called between fork and exec.
[[noreturn]] void Become(char* const* words, char** environment, int in, int out, int err, const sigset_t& mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher may be killed itself
  if (in >= 0) dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  environ = environment;
  execvp(words[0], words);
  const char* const why = std::strerror(errno);
  for (const char* part : {static_cast<const char*>(words[0]), ": ", why, "\n"})
    (void)!write(STDERR_FILENO, part, std::strlen(part));
  _exit(kNoProgram);
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.size(), text.find(' ', at));
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

class Launch {
 public:
  Launch(const LaunchPlan& plan, int restart)
      : plan_(plan),
        restart_(restart),
        host_(HostName()),
        each_(plan.hosts.empty() ? plan.count : plan.count / static_cast<int>(plan.hosts.size())) {}
  ~Launch();

  LaunchEnd Run();

 private:
  bool StartAll();
  bool Start(int rank);
  std::string WatchName() const { return "watch-" + plan_.job + "-" + std::to_string(restart_); }
  std::vector<std::string> VariablesOf(int rank) const;
  std::vector<std::string> EnvironmentOf(int rank) const;
  bool OpenOutputs(int rank, int* out, int* err);
  bool Fork(Rank& own, std::vector<std::string> words, std::vector<std::string> variables, int in, int out, int err);
  bool StartOn(const LaunchHost& host, int rank, int out, int err);
  const LaunchHost& HostOf(int rank) const { return plan_.hosts[static_cast<size_t>(rank / each_)]; }
  void Step();
  void TakeSignals();
  void Collect();
  void EndOthers();
  void SignalAll(int signal);
  bool OpenWatch();
  void ReadWatch();
  bool AllEnded() const { return std::ranges::all_of(ranks_, &Rank::ended); }
  void DrainOutputs();

  const LaunchPlan& plan_;
  const int restart_;
  const std::string host_;
  const int each_;  // processes of a host
  sigset_t before_ = {};
  int signals_ = -1;
  int watch_ = -1;  // a socket to which ranks say that they wait; -1: none
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Output>> outputs_;
  std::vector<std::FILE*> logs_;
  int64_t kill_at_ms_ = -1;         // -1: nobody is to end
  int64_t give_up_ms_ = INT64_MAX;  // then a host that does not answer is left to itself
  LaunchEnd end_;
};

Launch::~Launch() {
  outputs_.clear();
  for (std::FILE* log : logs_) std::fclose(log);
  if (watch_ >= 0) close(watch_);
  if (signals_ >= 0) {
    close(signals_);
    // A signal that came twice must not end the launcher now that its work is done.
    const timespec none = {};
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&taken, signal);
    while (sigtimedwait(&taken, nullptr, &none) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
}

std::vector<std::string> Launch::VariablesOf(int rank) const {
  std::vector<std::string> own = plan_.environment;
  for (const std::string& text :
       {"WEFT_RANK=" + std::to_string(rank), "WEFT_WORLD_SIZE=" + std::to_string(plan_.count),
        "WEFT_LOCAL_RANK=" + std::to_string(rank % each_), "WEFT_LOCAL_SIZE=" + std::to_string(each_),
        "WEFT_RESTART=" + std::to_string(restart_), "WEFT_JOB=" + plan_.job}) {
    own.push_back(text);
  }
  if (watch_ >= 0) own.push_back("WEFT_JOB_WATCH=" + std::to_string(plan_.stuck_ms) + " " + WatchName());
  return own;
}

// As src/distributed/watch.cc has it: an abstract address.
bool Launch::OpenWatch() {
  if (plan_.stuck_ms == 0) return true;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = "weft/" + WatchName();
  path.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  watch_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (watch_ >= 0 && bind(watch_, reinterpret_cast<const sockaddr*>(&address),
                          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size())) == 0) {
    return true;
  }
  end_.problem = std::string("no socket can be made for --warn-stuck: ") + std::strerror(errno);
  return false;
}

// A message: the ranks that are behind, and who waits for them in which call.
void Launch::ReadWatch() {
  char message[4096];
  for (ssize_t got; (got = recv(watch_, message, sizeof message, 0)) > 0;) {
    const std::string_view text(message, static_cast<size_t>(got));
    const size_t line = text.find('\n');
    if (line == std::string_view::npos) continue;
    std::fprintf(stderr, "weft launch: %.*s\n", static_cast<int>(text.size() - line - 1), text.data() + line + 1);
    for (const std::string& word : WordsOf(text.substr(0, line))) {
      size_t rank = ranks_.size();
      (void)std::from_chars(word.data(), word.data() + word.size(), rank);
      if (rank < ranks_.size() && !ranks_[rank].ended)
        std::fprintf(stderr, "weft launch: rank %s is in %s\n", word.c_str(), WhereIs(ranks_[rank].pid).c_str());
    }
  }
}

std::vector<std::string> Launch::EnvironmentOf(int rank) const {
  std::vector<std::string> own = VariablesOf(rank);
  const auto name_of = [](std::string_view text) { return text.substr(0, text.find('=')); };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view name = name_of(*variable);
    if (std::ranges::none_of(own, [&](const std::string& text) { return name_of(text) == name; }))
      own.push_back(*variable);
  }
  return own;
}

// The pipes and the log of a rank; its own ends are given, also where there is a problem.
bool Launch::OpenOutputs(int rank, int* out_end, int* err_end) {
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    end_.problem = std::string("no pipe can be made: ") + std::strerror(errno);
    if (out[0] >= 0) close(out[0]);
    *out_end = out[1];
    return false;
  }
  std::FILE* log = nullptr;
  if (!plan_.log_folder.empty()) {
    const std::string path = plan_.log_folder + "/rank-" + std::to_string(rank) + ".log";
    log = std::fopen(path.c_str(), restart_ == 0 ? "we" : "ae");
    if (log == nullptr) end_.problem = path + ": " + std::strerror(errno);
    if (log != nullptr) logs_.push_back(log);
  }
  const std::string host = plan_.hosts.empty() || HostOf(rank).name.empty() ? host_ : HostOf(rank).name;
  const std::string prefix = "[" + std::to_string(rank) + " " + host + "] ";
  for (const auto& [from, to] : {std::pair(out[0], stdout), std::pair(err[0], stderr)}) {
    fcntl(from, F_SETFL, O_NONBLOCK);
    outputs_.push_back(std::make_unique<Output>(from, to, log, prefix));
    ranks_[static_cast<size_t>(rank)].outputs.push_back(outputs_.back().get());
  }
  *out_end = out[1];
  *err_end = err[1];
  return end_.problem.empty();
}

bool Launch::Fork(Rank& own, std::vector<std::string> words, std::vector<std::string> variables, int in, int out,
                  int err) {
  std::vector<char*> word_list, variable_list;
  for (std::string& word : words) word_list.push_back(word.data());
  for (std::string& variable : variables) variable_list.push_back(variable.data());
  word_list.push_back(nullptr);
  variable_list.push_back(nullptr);
  own.pid = fork();
  if (own.pid == 0) Become(word_list.data(), variable_list.data(), in, out, err, before_);
  if (own.pid < 0) end_.problem = std::string("no process can be made: ") + std::strerror(errno);
  if (own.pid > 0) setpgid(own.pid, own.pid);  // as the child does: whoever is first
  return own.pid > 0;
}

bool Launch::StartOn(const LaunchHost& host, int rank, int out, int err) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    end_.problem = std::string("no socket can be made: ") + std::strerror(errno);
    return false;
  }
  Rank& own = ranks_[static_cast<size_t>(rank)];
  own.orders = std::make_unique<Orders>(ends[0]);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  const std::string end = "#" + plan_.job;
  const bool started = Fork(own, ShellOn(host, end), std::move(variables), ends[1], out, err);
  close(ends[1]);
  own.orders->Give(ScriptOf({.words = plan_.words,
                             .variables = VariablesOf(rank),
                             .folder = plan_.folder,
                             .room = plan_.room,
                             .name = "weft-" + plan_.job + "-" + std::to_string(rank) + "-" + std::to_string(restart_),
                             .count = each_,
                             .grace_ms = plan_.grace_ms},
                            end));
  return started;
}

bool Launch::Start(int rank) {
  int out = -1, err = -1;
  bool started = OpenOutputs(rank, &out, &err);
  if (started && plan_.hosts.empty()) {
    started = Fork(ranks_[static_cast<size_t>(rank)], plan_.words, EnvironmentOf(rank), -1, out, err);
  } else if (started) {
    started = StartOn(HostOf(rank), rank, out, err);
  }
  for (const int end : {out, err}) {
    if (end >= 0) close(end);
  }
  return started;
}

bool Launch::StartAll() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, &before_);
  signals_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) {
    end_.problem = std::string("signals cannot be watched: ") + std::strerror(errno);
    return false;
  }
  if (!OpenWatch()) return false;
  ranks_.resize(static_cast<size_t>(plan_.count));
  for (Rank& rank : ranks_) rank.ended = true;
  for (int rank = 0; rank < plan_.count; ++rank) {
    if (!Start(rank)) return false;
    ranks_[static_cast<size_t>(rank)].ended = false;
  }
  return true;
}

void Launch::SignalAll(int signal) {
  const char* const order = signal == SIGTERM ? "TERM\n" : signal == SIGCONT ? "CONT\n" : "KILL\n";
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    if (rank.orders != nullptr) rank.orders->Give(order);
    if (rank.orders == nullptr || NowMs() >= give_up_ms_) kill(-rank.pid, signal);
  }
}

void Launch::EndOthers() {
  if (kill_at_ms_ >= 0) return;
  kill_at_ms_ = NowMs() + plan_.grace_ms;
  give_up_ms_ = kill_at_ms_ + kHostAnswersMs;
  SignalAll(SIGTERM);
  SignalAll(SIGCONT);  // one that is stopped ends, too
}

void Launch::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    end_.signal = static_cast<int>(info.ssi_signo);
    EndOthers();
  }
}

// A rank that has ended keeps its number until its group is gone, so that no other process gets the signal.
void Launch::Collect() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    siginfo_t info = {};
    if (rank.ended || waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    kill(-rank.pid, SIGKILL);
    waitpid(rank.pid, &rank.status, 0);
    rank.ended = true;
    if (rank.status == 0 || end_.first >= 0 || kill_at_ms_ >= 0) continue;
    end_.first = static_cast<int>(i);
    end_.status = rank.status;
    end_.by_shell = rank.orders != nullptr;
    EndOthers();
  }
}

void Launch::Step() {
  std::vector<pollfd> watched = {{signals_, POLLIN, 0}, {watch_, POLLIN, 0}};
  for (const auto& output : outputs_) watched.push_back({output->from(), POLLIN, 0});  // -1 is ignored
  for (const Rank& rank : ranks_) {
    if (rank.orders != nullptr && rank.orders->waits()) watched.push_back({rank.orders->to(), POLLOUT, 0});
  }
  int timeout = 1000;
  if (kill_at_ms_ >= 0) timeout = static_cast<int>(std::clamp<int64_t>(kill_at_ms_ - NowMs(), 10, 1000));
  poll(watched.data(), watched.size(), timeout);
  for (Rank& rank : ranks_) {
    for (Output* output : rank.outputs) output->Read(&rank.last);
    if (rank.orders != nullptr) rank.orders->Give("");
  }
  if (watch_ >= 0) ReadWatch();
  TakeSignals();
  Collect();
  if (kill_at_ms_ >= 0 && NowMs() >= kill_at_ms_) SignalAll(SIGKILL);
}

// Reads what is in the pipes; a process that left its group may hold them open, and is not waited for.
void Launch::DrainOutputs() {
  for (Rank& rank : ranks_) {
    for (Output* output : rank.outputs) output->Read(&rank.last);
  }
}

LaunchEnd Launch::Run() {
  if (!StartAll()) EndOthers();
  while (!AllEnded()) Step();
  DrainOutputs();
  end_.all_well = std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.status == 0; });
  if (end_.first >= 0) {
    const std::deque<std::string>& last = ranks_[static_cast<size_t>(end_.first)].last;
    end_.last.assign(last.begin(), last.end());
  }
  return end_;
}

}  // namespace

Orders::~Orders() { close(to_); }

void Orders::Give(std::string_view text) {
  text_ += text;
  while (!text_.empty()) {
    const ssize_t sent = send(to_, text_.data(), text_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) text_.clear();  // nobody reads any more
    if (sent > 0) text_.erase(0, static_cast<size_t>(sent));
  }
}

Output::Output(int from, std::FILE* to, std::FILE* log, std::string prefix)
    : from_(from), to_(to), log_(log), prefix_(std::move(prefix)) {}

Output::~Output() {
  if (from_ >= 0) close(from_);
}

void Output::PassOn(std::string_view line, std::deque<std::string>* last) {
  std::fwrite(prefix_.data(), 1, prefix_.size(), to_);
  std::fwrite(line.data(), 1, line.size(), to_);
  std::fputc('\n', to_);
  if (log_ != nullptr) {
    std::fwrite(line.data(), 1, line.size(), log_);
    std::fputc('\n', log_);
  }
  last->emplace_back(line);
  if (last->size() > kKeptLines) last->pop_front();
}

void Output::Read(std::deque<std::string>* last) {
  char buffer[16 << 10];
  while (from_ >= 0) {
    const ssize_t got = read(from_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      if (!rest_.empty()) PassOn(rest_, last);
      rest_.clear();
      close(from_);
      from_ = -1;
      break;
    }
    rest_.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) {
      PassOn(std::string_view(rest_).substr(0, end), last);
    }
    if (rest_.size() > kLongestLine) {
      PassOn(rest_, last);
      rest_.clear();
    }
  }
  std::fflush(to_);
  if (log_ != nullptr) std::fflush(log_);
}

LaunchEnd RunRanks(const LaunchPlan& plan, int restart) { return Launch(plan, restart).Run(); }

}  // namespace weft::cli
