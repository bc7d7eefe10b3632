/* Costs of looking inside (docs/seeing_inside.md): counts, samples, spans and positions by themselves, a training step with each option
 * on beside one with all off, a reason for a compilation, and reports of many tensors. The processor's time of the process counts, of
 * runs in turn; --quick makes fewer, --json prints one array of rows. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "rounds.h"
#include "weft.h"
#include "weft_fluent.h"

enum { ROWS = 128, WIDTH = 256, LAYERS = 4, MOST_ROUNDS = 41 };

static int g_rounds = 21, g_json = 0;

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "seeing_inside: %s\n", weft_error_message(error, NULL));
  exit(1);
}

/* Seconds that the process's threads have computed. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 2];
}

static weft_context* context_with(const char* option, const char* value) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"threads", WEFT_STRLEN, "1", WEFT_STRLEN},
                                   {option, WEFT_STRLEN, value, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = option == NULL ? 2 : 3;
  must(weft_context_create(&options, &ctx));
  return ctx;
}

static void row(const char* what, double value, const char* unit, const char* most) {
  static char name[256] = "";
  if (!g_json) {
    printf("%-62s %10.*f %-6s %s\n", what, value < 0.1 ? 4 : 2, value, unit, most);
    return;
  }
  const char* const before = name[0] == 0 ? "[" : ",\n ";
  if (name[0] == 0) machine(name, sizeof name);
  printf("%s{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"floor\": null, \"ratio\": null, \"peers\": {}, \"machine\": \"%s\"}", before,
         what, value, unit, name);
}

/* --- one call ------------------------------------------------------------------------------------------------------------- */

static void counts_and_spans(void) {
  enum { CALLS = 200000 };
  weft_context* const ctx = context_with(NULL, NULL);
  double took[4][MOST_ROUNDS];
  for (int i = 0; i < g_rounds; ++i) {
    double start = now();
    for (int k = 0; k < CALLS; ++k) must(weft_metric_add(ctx, "mine", WEFT_STRLEN, 1));
    took[0][i] = now() - start, start = now();
    for (int k = 0; k < CALLS; ++k) must(weft_metric_record(ctx, "times", WEFT_STRLEN, WEFT_METRIC_NANOSECONDS, k));
    took[1][i] = now() - start, start = now();
    for (int k = 0; k < CALLS; ++k) weft_span_begin(ctx, "phase", WEFT_STRLEN), weft_span_end(ctx);
    took[2][i] = now() - start;
    must(weft_trace_start(ctx));
    start = now();
    for (int k = 0; k < CALLS; ++k) weft_span_begin(ctx, "phase", WEFT_STRLEN), weft_span_end(ctx);
    took[3][i] = now() - start;
    must(weft_trace_stop(ctx));
  }
  row("weft_metric_add, found by its name", 1e9 * median(took[0], g_rounds) / CALLS, "ns", "");
  row("weft_metric_record, found by its name", 1e9 * median(took[1], g_rounds) / CALLS, "ns", "");
  row("weft_span_begin and _end, nobody traces", 1e9 * median(took[2], g_rounds) / CALLS, "ns", "");
  row("weft_span_begin and _end, traced", 1e9 * median(took[3], g_rounds) / CALLS, "ns", "");
  weft_context_release(ctx);
}

/* An operation that is recorded by itself and never computed. */
static void positions(void) {
  enum { CALLS = 4000, KINDS = 3 };
  static const char* const values[KINDS] = {"off", "call", "stack"};
  weft_context* contexts[KINDS];
  weft_tensor *x[KINDS] = {NULL}, *y = NULL;
  double took[KINDS][MOST_ROUNDS], first[MOST_ROUNDS], second[MOST_ROUNDS];
  const float data[4] = {1, 2, 3, 4};
  const int64_t dims[] = {4};
  for (int k = 0; k < KINDS; ++k) {
    contexts[k] = context_with("positions", values[k]);
    must(weft_tensor_from_host(contexts[k], NULL, WEFT_F32, dims, 1, data, sizeof data, &x[k]));
  }
  for (int i = 0; i < g_rounds; ++i) {
    for (int k = 0; k < KINDS; ++k) {
      const double start = now();
      for (int n = 0; n < CALLS; ++n) {
        must(weft_exp(contexts[k], x[k], &y));
        weft_tensor_release(y);
      }
      took[k][i] = 1e9 * (now() - start) / CALLS;
    }
    first[i] = took[1][i] / took[0][i], second[i] = took[2][i] - took[0][i];
  }
  row("an operation recorded and dropped, positions off", median(took[0], g_rounds), "ns", "");
  row("the same with positions=call, of that", median(first, g_rounds), "times", "1.01");
  row("the same with positions=stack, on top of that", median(second, g_rounds), "ns", "60");
  for (int k = 0; k < KINDS; ++k) weft_tensor_release(x[k]), weft_context_release(contexts[k]);
}

/* --- a training step ------------------------------------------------------------------------------------------------------ */

typedef struct {
  weft_context* ctx;
  weft_tensor *x, *w[LAYERS];
} net;

static void make_net(net* n, const char* option, const char* value) {
  weft_scope* s;
  n->ctx = context_with(option, value);
  s = wf_begin(n->ctx);
  n->x = wf_keep(s, wf_normal(s, WF_INTS(ROWS, WIDTH)));
  for (int i = 0; i < LAYERS; ++i) {
    n->w[i] = wf_keep(s, wf_mul_arg(s, wf_normal(s, WF_INTS(WIDTH, WIDTH)), 0.05));
    wf_try(s, weft_tensor_require_grad(n->w[i], 1));
  }
  wf_try(s, weft_sync(n->ctx, NULL, NULL));
  must(wf_end(s));
}

static void train(net* n, int steps) {
  for (int i = 0; i < steps; ++i) {
    weft_tensor *slopes[LAYERS] = {NULL}, *h = n->x;
    weft_event* done = NULL;
    weft_scope* const s = wf_begin(n->ctx);
    for (int k = 0; k < LAYERS; ++k) h = wf_tanh(s, wf_matmul(s, h, n->w[k]));
    wf_grad(s, wf_mean(s, wf_square(s, h)), n->w, LAYERS, slopes);
    for (int k = 0; k < LAYERS; ++k) wf_try(s, weft_tensor_assign(n->w[k], wf_sub(s, n->w[k], wf_mul_arg(s, slopes[k], 0.01))));
    must(wf_end(s));
    must(weft_sync(n->ctx, NULL, &done));
    must(weft_event_wait(done, -1));
    weft_event_release(done);
  }
}

static void release_net(net* n) {
  for (int i = 0; i < LAYERS; ++i) weft_tensor_release(n->w[i]);
  weft_tensor_release(n->x);
  weft_context_release(n->ctx);
}

static void steps(const char* folder) {
  enum { STEPS = 12, KINDS = 9 };
  static const struct {
    const char *option, *value, *most;
  } kinds[KINDS] = {{"positions", "off", ""},    {"positions", "call", "1.01"},  {"positions", "stack", ""},
                    {"trace_bytes", "1048576", "1.05"}, {"first_bad", "any", "1.15"}, {"explain", "launches", ""},
                    {"perf_map", "map", ""},     {"metrics_file", "/dev/null", ""}, {"save_graphs", "/dev/null", ""}};
  net nets[KINDS];
  double took[KINDS][MOST_ROUNDS];
  char label[100];
  setenv("JITDUMPDIR", folder, 1);
  setenv("WEFT_EXPLAIN_FILE", "/dev/null", 1);
  for (int k = 0; k < KINDS; ++k) {
    make_net(&nets[k], kinds[k].option, kinds[k].value);
    train(&nets[k], 3);
  }
  for (int i = 0; i < g_rounds; ++i) {
    for (int k = 0; k < KINDS; ++k) {
      double start;
      if (k == 3) must(weft_trace_start(nets[k].ctx));
      start = now();
      train(&nets[k], STEPS);
      took[k][i] = (now() - start) / STEPS;
      if (k == 3) must(weft_trace_stop(nets[k].ctx));
    }
    for (int k = 1; k < KINDS; ++k) took[k][i] /= took[0][i];
  }
  row("a step of an MLP, positions off", 1e6 * median(took[0], g_rounds), "us", "");
  for (int k = 1; k < KINDS; ++k) {
    snprintf(label, sizeof label, "a step with %s%s%s, of that", k == 3 ? "a trace" : kinds[k].option, k == 3 ? "" : "=", k == 3 ? "" : kinds[k].value);
    row(label, median(took[k], g_rounds), "times", kinds[k].most);
  }
  for (int k = 0; k < KINDS; ++k) release_net(&nets[k]);
}

/* --- a reason ------------------------------------------------------------------------------------------------------------- */

/* Records a long program with this constant in its middle. */
static weft_tensor* long_program(weft_context* ctx, weft_tensor* x, double constant) {
  enum { NODES = 2000 };
  weft_scope* const s = wf_begin(ctx);
  weft_tensor* y = x;
  for (int k = 0; k < NODES; ++k) y = k == NODES / 2 ? wf_mul_n(s, y, constant) : k % 3 == 0 ? wf_tanh(s, y) : wf_add(s, y, x);
  y = wf_keep(s, y);
  must(wf_end(s));
  return y;
}

/* One that is known is launched, and one that differs from it in the constant is refused: compared and told, not compiled. */
static void reasons(void) {
  weft_context* const ctx = context_with(NULL, NULL);
  const float data[4] = {1, 2, 3, 4};
  const int64_t dims[] = {4};
  weft_tensor* x = NULL;
  double took[MOST_ROUNDS], compiled = 0;
  must(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 1, data, sizeof data, &x));
  weft_tensor* y = long_program(ctx, x, 2);
  compiled = now();
  must(weft_sync(ctx, NULL, NULL));
  compiled = now() - compiled;
  weft_tensor_release(y);
  must(weft_compiles_settled(ctx, 1));
  for (int i = 0; i < g_rounds; ++i) {
    y = long_program(ctx, x, 2);
    double start = now();
    must(weft_sync(ctx, NULL, NULL));
    took[i] = start - now();
    weft_tensor_release(y);
    y = long_program(ctx, x, 3 + i);
    start = now();
    weft_error* const error = weft_sync(ctx, NULL, NULL);
    took[i] += now() - start;
    if (error == NULL || weft_error_code(error) != WEFT_FAILED_PRECONDITION) {
      fprintf(stderr, "seeing_inside: the program was not refused: %s\n", error == NULL ? "" : weft_error_message(error, NULL));
      exit(1);
    }
    weft_error_release(error);
    weft_tensor_release(y);
  }
  const double reason = median(took, g_rounds);
  row("the reason for a program of 2,000 nodes, found and told", 1e3 * reason, "ms", "");
  row("the same, of compiling the program", reason / compiled, "times", "0.01");
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* --- many tensors --------------------------------------------------------------------------------------------------------- */

static void reports(void) {
  enum { TENSORS = 100000 };
  weft_context* const ctx = context_with(NULL, NULL);
  weft_tensor** const all = calloc(TENSORS, sizeof *all);
  weft_device* device = NULL;
  const float data[2] = {1, 2};
  const int64_t dims[] = {2};
  double took[2][MOST_ROUNDS];
  if (all == NULL) exit(1);
  for (int i = 0; i < TENSORS; ++i) must(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 1, data, sizeof data, &all[i]));
  must(weft_device_at(ctx, 0, &device));
  for (int i = 0; i < g_rounds; ++i) {
    weft_blob* blob = NULL;
    double start = now();
    must(weft_memory_report(device, WEFT_MEMORY_TEXT, &blob));
    took[0][i] = 1e3 * (now() - start);
    weft_blob_release(blob);
    start = now();
    must(weft_metrics_render(ctx, WEFT_METRICS_JSON, &blob));
    took[1][i] = 1e3 * (now() - start);
    weft_blob_release(blob);
  }
  row("weft_memory_report of 100,000 tensors", median(took[0], g_rounds), "ms", "50");
  row("weft_metrics_render beside 100,000 tensors", median(took[1], g_rounds), "ms", "50");
  for (int i = 0; i < TENSORS; ++i) weft_tensor_release(all[i]);
  free(all);
  weft_device_release(device);
  weft_context_release(ctx);
}

int main(int argc, char** argv) {
  char folder[] = "/tmp/seeing-inside-XXXXXX", name[sizeof folder + 40];
  for (int i = 1; i < argc; ++i) {
    const int help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (strcmp(argv[i], "--quick") == 0) {
      g_rounds = 5;
    } else if (strcmp(argv[i], "--json") == 0) {
      g_json = 1;
    } else {
      fprintf(help ? stdout : stderr, "usage: seeing_inside [--json] [--quick] [--help]\n");
      return help ? 0 : 2;
    }
  }
  if (mkdtemp(folder) == NULL) return 1;
  if (!g_json) printf("%-62s %10s %-6s %s\n", "medians of the processor's time", "", "", "at most");
  counts_and_spans();
  positions();
  steps(folder);
  reasons();
  reports();
  if (g_json) printf("]\n");
  snprintf(name, sizeof name, "%s/perf-%ld.map", folder, (long)getpid());
  remove(name);
  return rmdir(folder) == 0 ? 0 : 1;
}
