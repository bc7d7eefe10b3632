/* The options dump_dir and host_read. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "folder.h"
#include "warnings.h"

static weft_context* context_of(const char* first, const char* one, const char* second, const char* two, const char* cache) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, cache != NULL ? "write" : "off", WEFT_STRLEN},
                                   {"cache_dir", WEFT_STRLEN, cache != NULL ? cache : "", WEFT_STRLEN},
                                   {first, WEFT_STRLEN, one, WEFT_STRLEN},
                                   {second, WEFT_STRLEN, two, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = second != NULL ? 4 : 3;
  options.log = on_log;
  options.min_log_level = WEFT_LOG_WARNING;
  g_warnings = 0;
  g_warning[0] = 0;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static void dumped(weft_context* ctx, weft_tensor* x, weft_tensor* w, float factor, float* out) {
  wf_scope* s = wf_begin(ctx);
  weft_tensor* y = wf_tanh(s, wf_mul_arg(s, wf_matmul(s, x, w), factor));
  wf_try(s, weft_tensor_to_host(y, out, 64 * sizeof(float)));
  OK(wf_end(s));
}

static int count_files(const char* folder, const char* ending) {
  int n = 0;
  struct dirent* entry;
  DIR* const d = opendir(folder);
  while (d != NULL && (entry = readdir(d)) != NULL) {
    const size_t length = strlen(entry->d_name), tail = strlen(ending);
    n += entry->d_name[0] != '.' && length >= tail && strcmp(entry->d_name + length - tail, ending) == 0;
  }
  if (d != NULL) closedir(d);
  return n;
}

static void has(const char* folder, const char* key, const char* ending, const char* word) {
  char path[700];
  snprintf(path, sizeof path, "%s/%.16s.%s", folder, key, ending);
  FILE* const file = fopen(path, "r");
  static char text[1 << 20];
  const size_t size = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  text[size] = 0;
  if (file != NULL) fclose(file);
  if (strstr(text, word) != NULL) return;
  printf("there is no '%s' in %s:\n%s\n", word, path, text);
  ++g_failures;
}

static void texts(void) {
  char folder[400], cache[400], path[700], key[17] = "";
  float want[64], have[64];
  weft_function* f = NULL;
  struct dirent* entry;
  snprintf(folder, sizeof folder, "%s/texts/of_programs", g_dir);
  snprintf(cache, sizeof cache, "%s/cache", g_dir);
  weft_context* ctx = context_of("dump_dir", folder, NULL, NULL, cache);
  weft_tensor *x = ramp(ctx, DIMS(8, 8)), *w = ramp(ctx, DIMS(8, 8)), *factor = NULL;
  dumped(ctx, x, w, 0.001F, want);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 1);
  DIR* const d = opendir(folder);
  while (d != NULL && (entry = readdir(d)) != NULL) {
    if (entry->d_name[0] != '.') memcpy(key, entry->d_name, 16);
  }
  if (d != NULL) closedir(d);
  has(folder, key, "opt.wir", "func @main(");
  has(folder, key, "plan", " entries, code of ");
  has(folder, key, "plan", "dumps.c:");
  has(folder, key, "ll", "define void @weft.");
  has(folder, key, "s", "weft.tile.f32.");
  has(folder, key, "s", "vmulps"), has(folder, key, "s", ".cfi_startproc");
  has(folder, key, "dot", "digraph \"program\"");
  has(folder, key, "why", "nothing like it was known");
  CHECK_EQUAL(count_files(folder, ""), 7);
  CHECK_EQUAL(g_warnings, 0);

  /* The program comes back, and computes the same. */
  snprintf(path, sizeof path, "%s/%s.wir", folder, key);
  MUST(weft_function_load(ctx, path, WEFT_STRLEN, &f));
  {
    weft_tensor* inputs[3];
    weft_tensor_info infos[3];
    size_t n = 0, outputs = 0;
    MUST(weft_function_inputs(f, infos, 3, &n));
    CHECK_EQUAL(n, 3);
    MUST(weft_tensor_from_f64(ctx, WEFT_F32, 0.001F, &factor));
    for (size_t i = 0, matrices = 0; i < 3; ++i) {
      inputs[i] = infos[i].rank == 0 ? factor : matrices++ == 0 ? x : w;
    }
    weft_tensor* results[3] = {NULL}; /* what had handles: the product, the scaled one, and what was read */
    int equal = 0;
    MUST(weft_function_run(ctx, f, inputs, 3, NULL, 0, results, 3, &outputs));
    CHECK_EQUAL(outputs, 3);
    for (size_t i = 0; i < outputs; ++i) {
      MUST(weft_tensor_to_host(results[i], have, sizeof have));
      equal += memcmp(have, want, sizeof want) == 0;
      weft_tensor_release(results[i]);
    }
    CHECK_EQUAL(equal, 1);
  }
  weft_tensor_release(x), weft_tensor_release(w), weft_tensor_release(factor);
  weft_function_release(f);
  weft_context_release(ctx);

  /* From the cache nothing is compiled, and so nothing is written. */
  snprintf(folder, sizeof folder, "%s/none", g_dir);
  ctx = context_of("dump_dir", folder, NULL, NULL, cache);
  x = ramp(ctx, DIMS(8, 8)), w = ramp(ctx, DIMS(8, 8));
  dumped(ctx, x, w, 0.001F, have);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  CHECK_EQUAL(count_files(folder, ""), 0);
  weft_tensor_release(x), weft_tensor_release(w);
  weft_context_release(ctx);
}

/* A limit of bytes, a folder that cannot be, one that went, and a disk that takes no more: a warning each, and results. */
static void without_room(void) {
  char folder[400], file[500];
  float out[64];
  struct stat about;
  snprintf(folder, sizeof folder, "%s/small", g_dir);
  weft_context* ctx = context_of("dump_dir", folder, "dump_max_bytes", "1500", NULL);
  weft_tensor* x = ramp(ctx, DIMS(8, 8));
  for (int i = 0; i < 3; ++i) {
    wf_scope* s = wf_begin(ctx);
    weft_tensor* y = wf_tanh(s, wf_mul_n(s, x, 0.001 * (i + 1)));
    wf_try(s, weft_tensor_to_host(y, out, sizeof out));
    OK(wf_end(s));
  }
  CHECK_EQUAL(g_warnings, 1);
  CHECK(strstr(g_warning, "have reached dump_max_bytes, 1500; what follows is left out") != NULL);
  CHECK(count_files(folder, ".opt.wir") >= 1);
  CHECK_EQUAL(count_files(folder, ".s"), 0);
  weft_tensor_release(x);
  weft_context_release(ctx);

  snprintf(file, sizeof file, "%s/file", g_dir);
  fclose(fopen(file, "w"));
  snprintf(folder, sizeof folder, "%s/file/folder", g_dir);
  ctx = context_of("dump_dir", folder, NULL, NULL, NULL);
  x = ramp(ctx, DIMS(8, 8));
  dumped(ctx, x, x, 0.001F, out);
  CHECK(out[63] > 0);
  CHECK_EQUAL(g_warnings, 1);
  CHECK(strstr(g_warning, "the option dump_dir: ") != NULL && strstr(g_warning, "; texts of programs are lost") != NULL);
  weft_tensor_release(x);
  weft_context_release(ctx);

  snprintf(folder, sizeof folder, "%s/goes", g_dir);
  ctx = context_of("dump_dir", folder, NULL, NULL, NULL);
  x = ramp(ctx, DIMS(8, 8));
  dumped(ctx, x, x, 0.001F, out);
  snprintf(file, sizeof file, "rm -rf '%s'", folder);
  CHECK_EQUAL(system(file), 0);
  {
    weft_tensor* y = NULL;
    MUST(weft_sin(ctx, x, &y));
    MUST(weft_tensor_to_host(y, out, sizeof out));
    weft_tensor_release(y);
  }
  CHECK_EQUAL(stat(folder, &about), 0); /* made again */
  CHECK_EQUAL(g_warnings, 0);
  weft_tensor_release(x);
  weft_context_release(ctx);

  snprintf(folder, sizeof folder, "%s/full", g_dir);
  ctx = context_of("dump_dir", folder, NULL, NULL, NULL);
  x = ramp(ctx, DIMS(8, 8));
  {
    struct rlimit before, none;
    getrlimit(RLIMIT_FSIZE, &before);
    none = before;
    none.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &none);
    dumped(ctx, x, x, 0.001F, out);
    dumped(ctx, x, x, 0.002F, out);
    setrlimit(RLIMIT_FSIZE, &before);
  }
  CHECK(out[63] > 0);
  CHECK_EQUAL(g_warnings, 1);
  CHECK_EQUAL(count_files(folder, ""), 0); /* no half of a file */
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void host_reads(void) {
  weft_context* ctx = context_of("host_read", "forbid", NULL, NULL, NULL);
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = NULL;
  float out[4];
  weft_error* error;
  wf_scope* s = wf_begin(ctx);
  y = wf_keep(s, wf_exp(s, x));
  OK(wf_check(s));
  MUST(weft_position_mark(ctx, "train.c", WEFT_STRLEN, 77));
  error = weft_tensor_to_host(y, out, sizeof out);
  CHECK(error != NULL && weft_error_code(error) == WEFT_FAILED_PRECONDITION);
  if (error != NULL) {
    CHECK(strstr(weft_error_message(error, NULL),
                 "train.c:77: a value f32[4] is read that is to be computed first, which ends the step early; the option host_read "
                 "forbids it. A value can be read once weft_sync or weft_eval has launched its computation") != NULL);
    CHECK_TEXT(weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL), "train.c:77");
  }
  weft_error_release(error);
  MUST(weft_position_mark(ctx, NULL, 0, 0));
  FAILS_WITH(weft_tensor_to_host(y, out, sizeof out), WEFT_FAILED_PRECONDITION, "weft_c_dumps+0x"); /* where the call is */
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 0);
  MUST(weft_sync(ctx, NULL, NULL)); /* nothing was lost */
  MUST(weft_tensor_to_host(y, out, sizeof out));
  CHECK(out[0] == 1);
  OK(wf_end(s));
  weft_tensor_release(x), weft_tensor_release(y);
  weft_context_release(ctx);

  ctx = context_of("host_read", "warn", NULL, NULL, NULL);
  x = ramp(ctx, DIMS(4));
  for (int i = 0; i < 3; ++i) {
    s = wf_begin(ctx);
    y = wf_exp(s, wf_mul_arg(s, x, i));
    OK(wf_check(s));
    wf_try(s, weft_tensor_to_host(y, out, sizeof out));
    OK(wf_end(s));
  }
  CHECK_EQUAL(g_warnings, 1); /* once a place */
  CHECK(strstr(g_warning, "a value f32[4] is read that is to be computed first") != NULL);
  CHECK_EQUAL(metric(ctx, "cut_host_read"), 3);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

int main(void) {
  make_folder();
  signal(SIGXFSZ, SIG_DFL); /* the library's writes raise none */
  texts();
  without_room();
  host_reads();
  remove_folder();
  return done("dumps");
}
