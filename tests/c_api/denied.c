/* A process that may not make memory executable (seccomp here; SELinux and PR_SET_MDWE do the same): an error that says so, and
 * the platform that works without. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* mprotect with PROT_EXEC fails with EACCES from here on. 0 if the kernel does not let us say so. */
static int deny(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static weft_context* context(const char* platform, const char* cache) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, cache == NULL ? "off" : "write", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"cache_dir", WEFT_STRLEN, cache == NULL ? "" : cache, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = cache == NULL ? 2 : 3;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static weft_error* product(weft_context* ctx, float* out) {
  static const float two[] = {2, 3};
  weft_tensor *x = f32(ctx, DIMS(2), two), *y = NULL;
  weft_error* error;
  MUST(weft_mul(ctx, x, x, &y));
  error = weft_tensor_to_host(y, out, 2 * sizeof(float));
  weft_tensor_release(x);
  weft_tensor_release(y);
  return error;
}

static const char kText[] =
    "weft_tensor_to_host: this process may not have executable memory: mprotect(PROT_READ | PROT_EXEC) says \"Permission "
    "denied\" (a seccomp filter, SELinux's execmem or PR_SET_MDWE denies it). The platform 'cpu' compiles to machine code; the "
    "platform 'reference' works without (option platform, variable WEFT_PLATFORM)";

int main(void) {
  char cache[] = "/tmp/weft-denied-XXXXXX";
  float got[2] = {0, 0};
  weft_context* ctx;
  int status;
  pid_t child;
  CHECK(mkdtemp(cache) != NULL);
  /* What is in the cache is no worse for having been refused: it is still there afterwards. */
  ctx = context("cpu", cache);
  OK(product(ctx, got));
  weft_context_release(ctx);
  fflush(stdout);
  child = fork();
  if (child == 0) {
    if (!deny()) _exit(77);
    ctx = context("cpu", NULL);
    FAILS(product(ctx, got), WEFT_PERMISSION_DENIED, kText);
    FAILS(product(ctx, got), WEFT_PERMISSION_DENIED, kText); /* and again: nothing hangs on the first time */
    weft_context_release(ctx);
    ctx = context("cpu", cache);
    FAILS(product(ctx, got), WEFT_PERMISSION_DENIED, kText);
    CHECK_EQUAL(metric(ctx, "disk_cache_errors"), 0);
    CHECK_EQUAL(metric(ctx, "warnings"), 0);
    weft_context_release(ctx);
    ctx = context("reference", NULL);
    got[0] = got[1] = 0;
    OK(product(ctx, got));
    CHECK(got[0] == 4 && got[1] == 9);
    weft_context_release(ctx);
    fflush(stdout);
    _exit(g_failures != 0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    printf("denied: skipped, this kernel takes no seccomp filter\n");
    return 77;
  }
  CHECK_EQUAL(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), 0);
  ctx = context("cpu", cache);
  OK(product(ctx, got));
  CHECK_EQUAL(metric(ctx, "disk_cache_hits"), 1);
  weft_context_release(ctx);
  return done("denied");
}
