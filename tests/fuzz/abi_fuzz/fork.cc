// fork, now and then, while the other threads are in calls: the child makes calls of its own with what it has of the parent, whose
// locks may be held by threads that it does not have. Nothing hangs or dies, and codes are those that functions declare.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

constexpr int kCallsOfAChild = 300, kSecondsOfAChild = 60;

void Hangs(int) {
  char text[400];
  t_fuzz->Reproduce(text, sizeof text);
  std::fprintf(stderr, "FAILED: a call in the child of a fork hangs: %s\n", text);
  DumpAllStacks();
  _exit(3);
}

}  // namespace

void Fuzz::CallInAChild() {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int64_t before = g_failures.load();
    g_settings.fork = 0;
    for (Seen& seen : seen_) seen = {};
    signal(SIGALRM, Hangs);
    alarm(kSecondsOfAChild);
    for (int i = 0; i < kCallsOfAChild; ++i) OneCall();
    for (size_t i = 0; i < kFunctionCount; ++i) {
      for (int c = 1; c < 17; ++c) {
        const bool declared = (kFunctions[i].errors & ~(1u << WEFT_INTERNAL | 1u << WEFT_UNKNOWN)) >> c & 1;
        if (seen_[i].codes[c] != 0 && !declared) Complain("a code that is not declared, in the child of a fork", kFunctions[i].name + (": " + seen_[i].texts[c]));
      }
    }
    std::fflush(stdout);
    _exit(g_failures.load() == before ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
  Complain("the child of a fork failed", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
}

}  // namespace weft::fuzz
