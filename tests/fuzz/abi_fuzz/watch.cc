// Who hangs and where: all threads' stacks, each written by its own thread in a signal handler; and what a crash was doing.
#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

constexpr int kDumpSignal = SIGUSR2;
std::atomic<int> g_dumped{0};

void Say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void DumpOwnStack(int) {
  const int saved = errno;
  void* frames[60];
  const int count = backtrace(frames, 60);
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  g_dumped.fetch_add(1);
  errno = saved;
}

void Crashed(int number) {
  char text[400];
  Say("\nFAILED: the process dies: ");
  Say(strsignal(number));
  if (t_fuzz != nullptr) {
    t_fuzz->Reproduce(text, sizeof text);
    Say(" in ");
    Say(text);
  }
  Say("\n");
  DumpOwnStack(0);
  signal(number, SIG_DFL);
  raise(number);
}

// What the sanitizers call before they end the process.
void Died() {
  char text[400];
  if (t_fuzz == nullptr) return;
  t_fuzz->Reproduce(text, sizeof text);
  Say("\nFAILED: ");
  Say(text);
  Say("\n");
}

}  // namespace

void DumpAllStacks() {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return;
  const pid_t own = static_cast<pid_t>(syscall(SYS_gettid));
  while (const dirent* entry = readdir(tasks)) {
    const pid_t thread = std::atoi(entry->d_name);
    if (thread <= 0 || thread == own) continue;
    char path[80], name[40] = "?", line[120];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
    if (FILE* const file = std::fopen(path, "r")) {
      if (std::fgets(name, sizeof name, file) != nullptr) name[std::strcspn(name, "\n")] = 0;
      std::fclose(file);
    }
    std::snprintf(line, sizeof line, "--- thread %d (%s)\n", thread, name);
    Say(line);
    const int before = g_dumped.load();
    syscall(SYS_tgkill, getpid(), thread, kDumpSignal);
    for (int i = 0; i < 200 && g_dumped.load() == before; ++i) usleep(10000);
    if (g_dumped.load() == before) Say("  does not take signals\n");
  }
  closedir(tasks);
}

}  // namespace weft::fuzz

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace weft::fuzz {

void InstallWatch() {
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs now, not in a handler
  struct sigaction action = {};
  action.sa_handler = DumpOwnStack;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(kDumpSignal, &action, nullptr);
  if (__sanitizer_set_death_callback != nullptr) return __sanitizer_set_death_callback(Died);
  action.sa_handler = Crashed;
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

}  // namespace weft::fuzz
