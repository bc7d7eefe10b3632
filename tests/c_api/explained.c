/* These tests check what is told without being asked for: why each launch was made, why a second start compiles, and positions that
 * are told from a folder; and that nothing of it changes what is computed. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

#include "folder.h"

static char g_all[1 << 16];

/* The whole file, which goes. */
static const char* contents(const char* path) {
  FILE* const file = fopen(path, "r");
  const size_t size = file != NULL ? fread(g_all, 1, sizeof g_all - 1, file) : 0;
  if (file != NULL) fclose(file);
  remove(path);
  g_all[size] = 0;
  return g_all;
}

static size_t times(const char* text, const char* what) {
  size_t n = 0;
  for (const char* at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) ++n;
  return n;
}

static weft_context* explaining(const char* cache, const char* explain, const char* file, const char* more, const char* value) {
  const weft_setting settings[] = {{cache != NULL ? "cache_dir" : "cache_mode", WEFT_STRLEN, cache != NULL ? cache : "off", WEFT_STRLEN},
                                   {"explain", WEFT_STRLEN, explain, WEFT_STRLEN},
                                   {"explain_file", WEFT_STRLEN, file, WEFT_STRLEN},
                                   {more, WEFT_STRLEN, value, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = more != NULL ? 4 : 3;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* y = tanh(x * number), summed along an axis. */
static void step(weft_context* ctx, weft_tensor* x, double number, int64_t axis) {
  wf_scope* const s = wf_begin(ctx);
  const int64_t dims[] = {axis};
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  weft_tensor* const y = wf_tanh(s, wf_mul_n(s, x, number));
  weft_tensor* const out = wf_keep(s, wf_sum(s, y, .dims = dims, .dims_count = 1));
  MUST(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(out);
}

/* --- Launches ------------------------------------------------------------------------------------------------------------- */

static void launches(void) {
  char path[400], key[64];
  weft_context* ctx;
  weft_tensor *x, *y = NULL;
  const char *all, *line;
  float out[16];
  snprintf(path, sizeof path, "%s/launches.txt", g_dir);
  ctx = explaining(NULL, "launches", path, NULL, NULL);
  x = ramp(ctx, DIMS(4, 4));
  MUST(weft_sync(ctx, NULL, NULL));
  for (int i = 0; i < 8; ++i) step(ctx, x, 2, 0); /* the last ones as before */
  CHECK(metric(ctx, "steps_replayed") >= 3);
  MUST(weft_position_mark(ctx, "read.c", WEFT_STRLEN, 7));
  MUST(weft_exp(ctx, x, &y));
  MUST(weft_tensor_to_host(y, out, sizeof out));
  CHECK_EQUAL(metric(ctx, "launches"), 9);
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);
  all = contents(path);
  CHECK_EQUAL(times(all, "weft explain: launched "), 9);
  CHECK_EQUAL(times(all, "weft explain: launched by a barrier"), 8);
  CHECK(times(all, ", 1 arguments, 0 taken over, 1 results, as before\n") >= 3);
  CHECK_EQUAL(times(all, "weft explain: launched because a value was read at read.c:7: program "), 1);
  CHECK(strstr(all, "weft explain: programs made: 2\n") != NULL);
  CHECK(strstr(all, "  launched because a value was read: 1\n  launched by a barrier: 8\n") != NULL);
  /* All barriers launch one program, whose key is said. */
  line = strstr(all, ": program ");
  CHECK(line != NULL);
  if (line != NULL) {
    snprintf(key, sizeof key, "%.27s", line); /* ": program " and 16 digits */
    CHECK_EQUAL(times(all, key), 8);
  }
  /* compiles says none of it. */
  ctx = explaining(NULL, "compiles", path, NULL, NULL);
  x = ramp(ctx, DIMS(4, 4));
  step(ctx, x, 2, 0);
  weft_tensor_release(x);
  weft_context_release(ctx);
  CHECK_EQUAL(times(contents(path), "launched"), 0);
}

/* --- A second start ------------------------------------------------------------------------------------------------------- */

static weft_error* body(void* user, weft_context* in, weft_tensor* const* x, size_t count, weft_tensor** out, size_t capacity, size_t* used) {
  wf_scope* const s = wf_begin(in);
  (void)capacity;
  out[0] = wf_keep(s, wf_mul_n(s, x[count - 1], (double)(uintptr_t)user / 2));
  *used = 1;
  return wf_end(s);
}

/* One process after the other, as far as the cache can tell: each context begins with an empty memory and the same folder. */
static void start(const char* cache, const char* path, int64_t rows, double number, int64_t axis, uintptr_t inside) {
  const weft_tensor_info info = {.dtype = WEFT_F32};
  weft_context* const ctx = explaining(cache, "compiles", path, NULL, NULL);
  weft_tensor *x = ramp(ctx, DIMS(rows, 16)), *one = scalar(ctx, 1), *y = NULL;
  weft_function* f = NULL;
  MUST(weft_sync(ctx, NULL, NULL));
  if (inside == 0) {
    step(ctx, x, number, axis);
  } else {
    wf_scope* const s = wf_begin(ctx);
    MUST(weft_function_trace(ctx, "cell", WEFT_STRLEN, &info, 1, body, (void*)inside, 1, &f));
    y = wf_keep(s, wf_scan(s, f, WF_TENSORS(one), NULL, 0, .length = 5));
    OK(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
  }
  weft_tensor_release(x), weft_tensor_release(one), weft_tensor_release(y);
  weft_function_release(f);
  weft_context_release(ctx);
}

static void says(const char* path, const char* what, int line) {
  const char* const all = contents(path);
  if (strstr(all, what) == NULL || strstr(all, "; compared with what an earlier process left in the disk cache") == NULL) {
    printf("%s:%d: '%s' is not in: %s\n", __FILE__, line, what, all);
    ++g_failures;
  }
}
#define SAYS(what) says(path, what, __LINE__)

static void second_starts(void) {
  char path[400], cache[400];
  snprintf(path, sizeof path, "%s/second.txt", g_dir);
  snprintf(cache, sizeof cache, "%s/cache", g_dir);
  start(cache, path, 8, 1.1, 0, 0);
  CHECK(strstr(contents(path), "again") == NULL); /* nothing is like it */
  start(cache, path, 8, 1.1, 0, 0);
  CHECK(strstr(contents(path), "again") == NULL); /* found */
  start(cache, path, 8, 1.2, 0, 0);
  SAYS(" is 1.2, was 1.1; all else equal (");
  start(cache, path, 7, 1.2, 0, 0);
  SAYS(" is f32[7, 16], was f32[8, 16]; ");
  start(cache, path, 7, 1.2, 1, 0);
  SAYS(" is [1], was [0]");
  start(cache, path, 7, 1.2, 1, 1);
  CHECK(strstr(contents(path), "again") == NULL);
  start(cache, path, 7, 1.2, 1, 3);
  SAYS("in the function of scan at ");
}

/* The same operations for another processor: the program is there, and is another machine's. */
static void another_target(void) {
  char path[400], cache[400];
  weft_tensor* x;
  weft_context* ctx;
  snprintf(path, sizeof path, "%s/target.txt", g_dir);
  snprintf(cache, sizeof cache, "%s/cache_target", g_dir);
  for (int i = 0; i < 2; ++i) {
    ctx = explaining(cache, "compiles", path, i == 0 ? "isa" : NULL, "portable");
    x = ramp(ctx, DIMS(4, 4));
    step(ctx, x, 1, 0);
    weft_tensor_release(x);
    if (i == 1 && metric(ctx, "programs_compiled") == 0) i = 2; /* this machine has no more than what is portable */
    weft_context_release(ctx);
    if (i == 1) CHECK(strstr(contents(path), ": an earlier process made a program of these operations for another processor: ") != NULL);
    if (i == 0) CHECK(strstr(contents(path), "again") == NULL);
  }
}

/* --- Positions ------------------------------------------------------------------------------------------------------------ */

static void rooted(void) {
  static const struct {
    const char *root, *file, *said;
  } rows[] = {{"/home/me/project", "/home/me/project/src/train.c", "src/train.c:5"},
              {"/home/me/project/", "/home/me/project//train.c", "train.c:5"},
              {"/home/me/project", "/home/me/projects/train.c", "/home/me/projects/train.c:5"},
              {"/home/me/project", "/home/me/project", "/home/me/project:5"},
              {"/home/me/project", "train.c", "train.c:5"},
              {"/", "/train.c", "train.c:5"},
              {"", "/home/me/project/train.c", "/home/me/project/train.c:5"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    weft_context* const ctx = new_context_with("positions_root", rows[i].root);
    const weft_frame frame = {"step", WEFT_STRLEN, rows[i].file, WEFT_STRLEN, 5, 0};
    for (int how = 0; how < 3; ++how) {
      weft_scope* scope = NULL;
      weft_tensor *x, *y = NULL, *z = NULL;
      weft_error* error;
      const char* said;
      if (how == 0) MUST(weft_position_mark(ctx, rows[i].file, WEFT_STRLEN, 5));
      if (how == 1) MUST(weft_position_mark_stack(ctx, &frame, 1));
      if (how == 2) {
        MUST(weft_position_mark(ctx, NULL, 0, 0));
        MUST(weft_scope_begin(ctx, &scope));
        weft_scope_mark(scope, rows[i].file, 5);
      }
      x = ramp(ctx, DIMS(2)), y = ramp(ctx, DIMS(3));
      error = weft_add(ctx, x, y, &z);
      said = error != NULL ? weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL) : NULL;
      if (said == NULL || strstr(said, rows[i].said) == NULL || (rows[i].said[0] != '/' && strstr(said, "/home") != NULL)) {
        printf("%s:%d: row %d, way %d: %s\n", __FILE__, __LINE__, (int)i, how, said ? said : "no position");
        ++g_failures;
      }
      weft_error_release(error);
      weft_tensor_release(x), weft_tensor_release(y);
      if (scope != NULL) {
        weft_scope_mark(scope, NULL, 0);
        MUST(weft_scope_end(scope));
      }
    }
    MUST(weft_position_mark(ctx, NULL, 0, 0));
    weft_context_release(ctx);
  }
}

/* --- Everything at once --------------------------------------------------------------------------------------------------- */

/* Some steps of w <- w - 100 * d mean(tanh(x @ w)^2) / dw; `out` gets w and the losses. */
static void train(weft_context* ctx, float* out) {
  weft_tensor *x = ramp(ctx, DIMS(16, 8)), *w = ramp(ctx, DIMS(8, 8));
  MUST(weft_tensor_require_grad(w, 1));
  for (int i = 0; i < 5; ++i) {
    weft_tensor *grad = NULL, *loss;
    wf_scope* const s = wf_begin(ctx);
    weft_tensor* const y = wf_tanh(s, wf_mul_n(s, wf_matmul(s, x, w), 1e-4));
    loss = wf_mean(s, wf_mul(s, y, y));
    wf_grad(s, loss, &w, 1, &grad);
    wf_try(s, weft_tensor_assign(w, wf_sub(s, w, wf_mul_n(s, grad, 100))));
    loss = wf_keep(s, loss);
    MUST(wf_end(s));
    MUST(weft_sync(ctx, NULL, NULL));
    MUST(weft_tensor_to_host(loss, out + 64 + i, sizeof(float)));
    weft_tensor_release(loss);
  }
  MUST(weft_tensor_to_host(w, out, 64 * sizeof(float)));
  weft_tensor_release(x), weft_tensor_release(w);
}

/* Options that watch a training run change no bit of it. */
static void everything(const char* platform, weft_mode mode) {
  char files[5][420];
  const char* const names[] = {"metrics", "graphs", "explain", "trace.json.gz", "dumps"};
  float plain[69] = {0}, watched[69] = {1};
  for (int on = 0; on < 2; ++on) {
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    weft_context* ctx = NULL;
    for (int i = 0; i < 5; ++i) snprintf(files[i], sizeof files[i], "%s/%s", g_dir, names[i]);
    const char* const plugin = strcmp(platform, "pjrt") == 0 ? getenv("WEFT_PJRT_FAKE") : "";
    const weft_setting settings[] = {{"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                     {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                     {"plugin", WEFT_STRLEN, plugin, WEFT_STRLEN},
                                     {"metrics_file", WEFT_STRLEN, files[0], WEFT_STRLEN},
                                     {"metrics_format", WEFT_STRLEN, "openmetrics", WEFT_STRLEN},
                                     {"save_graphs", WEFT_STRLEN, files[1], WEFT_STRLEN},
                                     {"save_graphs_format", WEFT_STRLEN, mode == WEFT_MODE_LAZY ? "hlo" : "dot", WEFT_STRLEN},
                                     {"explain", WEFT_STRLEN, "launches", WEFT_STRLEN},
                                     {"explain_file", WEFT_STRLEN, files[2], WEFT_STRLEN},
                                     {"trace_file", WEFT_STRLEN, files[3], WEFT_STRLEN},
                                     {"dump_dir", WEFT_STRLEN, files[4], WEFT_STRLEN},
                                     {"positions", WEFT_STRLEN, "stack", WEFT_STRLEN},
                                     {"positions_root", WEFT_STRLEN, g_dir, WEFT_STRLEN},
                                     {"first_bad", WEFT_STRLEN, "any", WEFT_STRLEN},
                                     {"sync_wait", WEFT_STRLEN, "1", WEFT_STRLEN},
                                     {"perf_map", WEFT_STRLEN, "jitdump", WEFT_STRLEN},
                                     {"gdb", WEFT_STRLEN, "1", WEFT_STRLEN},
                                     {"host_read", WEFT_STRLEN, "warn", WEFT_STRLEN},
                                     {"op_by_op", WEFT_STRLEN, "both", WEFT_STRLEN},
                                     {"compile_limit", WEFT_STRLEN, "1000", WEFT_STRLEN}};
    options.settings = settings;
    options.setting_count = on ? sizeof settings / sizeof *settings : 3;
    options.mode = mode;
    MUST(weft_context_create(&options, &ctx));
    train(ctx, on ? watched : plain);
    weft_context_release(ctx);
  }
  CHECK(plain[9] != 0 && plain[64] != 0 && plain[64] != plain[68]);
  CHECK(memcmp(plain, watched, sizeof plain) == 0);
  for (int i = 0; i < 4; ++i) {
    CHECK(access(files[i], R_OK) == 0);
    CHECK(remove(files[i]) == 0);
  }
}

int main(void) {
  make_folder();
  setenv("JITDUMPDIR", g_dir, 1);
  launches();
  second_starts();
  another_target();
  rooted();
  for (int mode = WEFT_MODE_LAZY; mode <= WEFT_MODE_DEBUG; ++mode) {
    everything("cpu", (weft_mode)mode);
    everything("reference", (weft_mode)mode);
    if (getenv("WEFT_PJRT_FAKE") != NULL) everything("pjrt", (weft_mode)mode);
  }
  remove_folder();
  return done("explained");
}
