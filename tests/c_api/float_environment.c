/* Hosts change the floating-point environment: traps, rounding, flushing, x87 precision. Every child here sets one of them before
 * it touches Weft, computes the same things on both platforms, and must live, give the same bits, find its environment as it
 * left it after each call, and have its callbacks run in it. */
#define _GNU_SOURCE
#include <fenv.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "check.h"

enum { kResults = 8, kWords = 4096 };
typedef struct {
  size_t used;
  float data[kWords];
} record;

static unsigned g_word;     /* SSE control word that the host set */
static unsigned short g_x87;
static float g_many[1 << 20];  /* made in the default environment */
static int g_callbacks, g_foreign_callbacks;

static unsigned word(void) {
#if defined(__x86_64__)
  return _mm_getcsr();
#else
  return 0;
#endif
}
static unsigned short x87(void) {
  unsigned short control = 0;
#if defined(__x86_64__)
  __asm__ volatile("fnstcw %0" : "=m"(control));
#endif
  return control;
}
/* Control bits, and the flags of what every computation below raises; recording may round (and says so in the flag). */
static void here(const char* what) {
  const unsigned rounding = 0x32; /* inexact, underflow, denormal */
  if ((word() & ~rounding) == (g_word & ~rounding) && x87() == g_x87) return;
  printf("after %s: MXCSR is %04x, not %04x; the x87 word is %04x, not %04x\n", what, word(), g_word, x87(), g_x87);
  ++g_failures;
}

static void logged(void* user, weft_log_level level, const char* text, size_t length) {
  (void)user;
  (void)level;
  (void)text;
  (void)length;
  ++g_callbacks;
  if ((word() & ~0x3Fu) != (g_word & ~0x3Fu) || x87() != g_x87) ++g_foreign_callbacks;
}

static void keep(record* r, weft_tensor* x, const char* what) {
  uint64_t size = 0;
  MUST(weft_tensor_size(x, &size));
  if (r->used + size / 4 > kWords) exit(3);
  MUST(weft_tensor_to_host(x, r->data + r->used, size));
  here(what);
  r->used += size / 4;
  weft_tensor_release(x);
}

/* Everything where an environment could show: what is small, what rounds, what divides by zero, literals, scalars. */
static void compute(const char* platform, record* r) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN}};
  static const float values[] = {0, 1e-40f, 3e-39f, 0.1f, 1, 3, -2, 1e38f, 1.1754944e-38f};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *x, *y, *z, *wide = NULL, *third = NULL;
  weft_elu_opts elu = WEFT_ELU_OPTS_INIT;
  options.settings = settings;
  options.setting_count = 2;
  options.log = logged;
  options.min_log_level = WEFT_LOG_DEBUG;
  MUST(weft_context_create(&options, &ctx));
  here("weft_context_create");
  x = f32(ctx, DIMS(9), values);
  MUST(weft_log(ctx, x, &y));
  here("weft_log");
  keep(r, y, "reading log");
  MUST(weft_div(ctx, x, x, &y));
  keep(r, y, "reading 0 / 0");
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1.0 / 3, &third));
  here("weft_tensor_from_f64");
  MUST(weft_mul(ctx, x, third, &y));
  keep(r, y, "reading products");
  elu.present = WEFT_ELU_HAS_ALPHA;
  elu.alpha = 0.1;
  MUST(weft_elu(ctx, x, &elu, &y));
  keep(r, y, "reading elu");
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, 1e-40, &y));
  keep(r, y, "reading a denormal scalar");
  MUST(weft_convert(ctx, x, WEFT_F64, &wide));
  MUST(weft_tanh(ctx, wide, &y));
  keep(r, y, "reading tanh in f64");
  MUST(weft_erf(ctx, wide, &y));
  keep(r, y, "reading erf in f64");
  /* Large enough for the library's threads. */
  z = f32(ctx, DIMS(1 << 20), g_many);
  MUST(weft_mul(ctx, z, third, &y));
  weft_tensor_release(z);
  MUST(weft_reshape(ctx, y, DIMS(256, 4096), &z));
  weft_tensor_release(y);
  {
    weft_max_opts max = WEFT_MAX_OPTS_INIT;
    static const int64_t dims[] = {0};
    max.present = WEFT_MAX_HAS_DIMS;
    max.dims = dims;
    max.dims_count = 1;
    MUST(weft_max(ctx, z, &max, &y));
    weft_tensor_release(z);
    z = y;
  }
  MUST(weft_slice(ctx, z, DIMS(0), DIMS(64), DIMS(1), &y));
  weft_tensor_release(z);
  keep(r, y, "reading what threads computed");
  weft_tensor_release(x);
  weft_tensor_release(wide);
  weft_tensor_release(third);
  weft_context_release(ctx);
  here("weft_context_release");
}

typedef struct {
  const char* name;
  void (*set)(void);
} environment;

static void plain(void) {}
static void traps(void) { feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW); }
static void all_traps(void) { feenableexcept(FE_ALL_EXCEPT); }
static void upward(void) { fesetround(FE_UPWARD); }
static void towards_zero(void) { fesetround(FE_TOWARDZERO); }
#if defined(__x86_64__)
static void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
static void sse_traps(void) { _mm_setcsr(_mm_getcsr() & ~0x0E80u); } /* invalid, zero, overflow; not x87's */
static void short_x87(void) {
  const unsigned short control = 0x027F; /* 53 bits */
  __asm__ volatile("fldcw %0" : : "m"(control));
}
#endif

static const environment kEnvironments[] = {
    {"the default", plain},      {"traps", traps},           {"all traps", all_traps}, {"upward", upward},
    {"towards zero", towards_zero},
#if defined(__x86_64__)
    {"FTZ and DAZ", flush},      {"SSE traps", sse_traps},   {"53 bits of x87", short_x87},
#endif
};

/* In a child: threads inherit what their maker had, so Weft must not have started any before. */
static int run(const environment* e, const char* platform, record* r) {
  int ends[2], status = 0;
  pid_t child;
  size_t have = 0;
  if (pipe(ends) != 0) return 0;
  fflush(stdout);
  child = fork();
  if (child == 0) {
    record* mine = calloc(1, sizeof(record));
    const char* from = (const char*)mine;
    size_t left = sizeof(record);
    e->set();
    g_word = word();
    g_x87 = x87();
    compute(platform, mine);
    if (g_foreign_callbacks != 0 || g_callbacks == 0) {
      printf("%d of %d callbacks saw another environment\n", g_foreign_callbacks, g_callbacks);
      ++g_failures;
    }
    fflush(stdout);
    while (left > 0) {
      const ssize_t wrote = write(ends[1], from, left);
      if (wrote <= 0) _exit(4);
      from += wrote;
      left -= (size_t)wrote;
    }
    _exit(g_failures != 0);
  }
  close(ends[1]);
  while (have < sizeof(record)) {
    const ssize_t got = read(ends[0], (char*)r + have, sizeof(record) - have);
    if (got <= 0) break;
    have += (size_t)got;
  }
  close(ends[0]);
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && have == sizeof(record)) return 1;
  printf("platform %s under %s: %s %d\n", platform, e->name, WIFSIGNALED(status) ? "killed by signal" : "exit code",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  ++g_failures;
  return 0;
}

int main(void) {
  static const char* const platforms[] = {"cpu", "reference"};
  static record want, have;
  size_t p, e, i;
  for (i = 0; i < sizeof(g_many) / sizeof(g_many[0]); ++i) {
    g_many[i] = i % 3 == 0 ? 1e-39f * (float)(i % 7) : 0.1f * (float)(i % 1000);
  }
  for (p = 0; p < 2; ++p) {
    for (e = 0; e < sizeof(kEnvironments) / sizeof(kEnvironments[0]); ++e) {
      if (!run(&kEnvironments[e], platforms[p], e == 0 ? &want : &have) || e == 0) continue;
      for (i = 0; i < want.used && i < have.used; ++i) {
        uint32_t a, b;
        memcpy(&a, &want.data[i], 4);
        memcpy(&b, &have.data[i], 4);
        if (a == b) continue;
        printf("platform %s under %s: word %zu is %08x, not %08x\n", platforms[p], kEnvironments[e].name, i, b, a);
        ++g_failures;
        break;
      }
      CHECK_EQUAL(have.used, want.used);
    }
  }
  return done("float_environment");
}
