/* What a sum over four devices costs inside a program: 1,000 of them, of 4 MiB on each device and of one number, on the platform cpu and,
 * with --plugin, on a plugin in turn with it. Prints the microseconds of one and how many times the plugin's they are. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"
#include "rounds.h"
#include "weft.h"

enum { DEVICES = 4, MOST_ROUNDS = 5 };

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "collectives: %s\n", weft_error_message(error, NULL));
  exit(1);
}

/* One device's part of a run: `times` sums over the devices, each of a quarter of the one before. */
typedef struct {
  int64_t count;
  int times;
} work;

static weft_error* one_sum(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* made) {
  weft_tensor *sum = NULL, *quarter = NULL;
  weft_error* error = weft_all_reduce(body, in[1], "d", WEFT_STRLEN, WEFT_COLLECTIVE_SUM, &sum);
  (void)user, (void)n, (void)capacity;
  if (error == NULL) error = weft_tensor_constant_like(in[1], 0.25, &quarter);
  if (error == NULL) error = weft_mul(body, sum, quarter, out);
  weft_tensor_release(sum), weft_tensor_release(quarter);
  *made = 1;
  return error;
}

static weft_error* all_sums(void* user, weft_context* body, weft_tensor* const* in, size_t n, weft_tensor** out, size_t capacity, size_t* made) {
  const work* const w = user;
  const weft_tensor_info types[2] = {{.dtype = WEFT_I32}, {.dtype = WEFT_F32, .rank = 1, .dims = {w->count}}};
  weft_function* step = NULL;
  weft_tensor* times = NULL;
  weft_error* error = weft_function_trace(body, "one_sum", WEFT_STRLEN, types, 2, one_sum, NULL, 1, &step);
  (void)n, (void)capacity;
  if (error == NULL) error = weft_tensor_from_i64(body, WEFT_I32, w->times, &times);
  if (error == NULL) error = weft_for(body, times, step, in, 1, NULL, out);
  weft_tensor_release(times), weft_function_release(step);
  *made = 1;
  return error;
}

/* A platform with a function for each size. */
typedef struct {
  weft_context* ctx;
  weft_mesh* mesh;
  weft_function* function;
  weft_tensor* x;
  work work;
} side;

static side side_of(const char* platform, const char* plugin, const char* options_text, int64_t count, int times) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},     {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"devices", WEFT_STRLEN, "4", WEFT_STRLEN},          {"plugin", WEFT_STRLEN, plugin, WEFT_STRLEN},
                                   {"plugin_options", WEFT_STRLEN, options_text, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  side s = {.work = {count, times}};
  weft_tensor_info type = {.dtype = WEFT_F32, .rank = 1};
  float* const ones = malloc(DEVICES * (size_t)count * sizeof *ones);
  int64_t i;
  if (ones == NULL) exit(1);
  type.dims[0] = count;
  options.settings = settings, options.setting_count = 5;
  must(weft_context_create(&options, &s.ctx));
  must(weft_mesh_create(s.ctx, NULL, 0, "d=4", WEFT_STRLEN, &s.mesh));
  must(weft_context_set_mesh(s.ctx, s.mesh));
  must(weft_function_trace(s.ctx, "all_sums", WEFT_STRLEN, &type, 1, all_sums, &s.work, 1, &s.function));
  for (i = 0; i < DEVICES * count; ++i) ones[i] = (float)(1 + i / count);
  must(weft_tensor_from_host_sharded(s.mesh, "d", WEFT_STRLEN, WEFT_F32, &(int64_t){DEVICES * count}, 1, ones, DEVICES * (size_t)count * sizeof *ones, &s.x));
  free(ones);
  return s;
}

/* The seconds of one run; its result is the mean of the devices' numbers. */
static double run(const side* s) {
  weft_tensor* y = NULL;
  size_t made = 0;
  float last = 0;
  const int64_t at = DEVICES * s->work.count - 1, one = 1;
  double start;
  start = wall_seconds();
  must(weft_per_device(s->ctx, s->function, "d", WEFT_STRLEN, "d", WEFT_STRLEN, &s->x, 1, &y, 1, &made));
  must(weft_tensor_to_host_box(y, &at, &one, 1, &last, sizeof last));
  start = wall_seconds() - start;
  weft_tensor_release(y);
  if (last != 2.5f) fprintf(stderr, "collectives: the result is %g, not 2.5\n", (double)last), exit(1);
  return start;
}

static void release(side* s) {
  weft_tensor_release(s->x), weft_function_release(s->function), weft_mesh_release(s->mesh), weft_context_release(s->ctx);
}

/* `json`: one row of the array, the first or not. */
static void compare(int64_t count, int times, int rounds, const char* plugin, const char* options, int json, int first) {
  side cpu = side_of("cpu", "", "", count, times), other = {NULL};
  double ours[MOST_ROUNDS], theirs[MOST_ROUNDS], one, its;
  int i;
  if (plugin != NULL) other = side_of("pjrt", plugin, options, count, times);
  run(&cpu);
  if (plugin != NULL) run(&other);
  for (i = 0; i < rounds; ++i) {
    ours[i] = run(&cpu);
    if (plugin != NULL) theirs[i] = run(&other);
  }
  qsort(ours, (size_t)rounds, sizeof *ours, by_value), qsort(theirs, plugin != NULL ? (size_t)rounds : 0, sizeof *theirs, by_value);
  one = 1e6 * ours[rounds / 2] / times, its = plugin != NULL ? 1e6 * theirs[rounds / 2] / times : 0;
  if (json) {
    char name[300];
    machine(name, sizeof name);
    printf("%s{\"name\": \"sum of %lld bytes over four devices\", \"value\": %.3f, \"unit\": \"us\", \"floor\": null, \"ratio\": null, \"peers\": {", first ? "[" : ",\n ",
           (long long)(4 * count), one);
    if (plugin != NULL) printf("\"plugin\": %.3f", its);
    printf("}, \"machine\": \"%s\"}", name);
  } else {
    printf("%lld bytes on each of %d devices, %d sums in a program: %.2f us each (best %.2f)", (long long)(4 * count), DEVICES, times, one, 1e6 * ours[0] / times);
    if (plugin != NULL) printf(", the plugin %.2f (best %.2f): %.2f times it", its, 1e6 * theirs[0] / times, one / its);
    printf("\n");
  }
  release(&cpu);
  if (plugin != NULL) release(&other);
}

int main(int argc, char** argv) {
  const char *plugin = NULL, *options = "cpu_device_count=4";
  int i, rounds = 5, times = 1000, json = 0;
  for (i = 1; i < argc; ++i) {
    const int more = i + 1 < argc;
    if (strcmp(argv[i], "--json") == 0) {
      json = 1;
    } else if (strcmp(argv[i], "--quick") == 0) {
      rounds = 1, times = 50;
    } else if (strcmp(argv[i], "--plugin") == 0 && more) {
      plugin = argv[++i];
    } else if (strcmp(argv[i], "--options") == 0 && more) {
      options = argv[++i];
    } else {
      const int help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
      fprintf(help ? stdout : stderr, "usage: collectives [--json] [--quick] [--plugin PATH] [--options TEXT] [--help]\n"
                                      "  --plugin PATH   an XLA:CPU plugin, measured in turn\n"
                                      "  --options TEXT  the plugin's; cpu_device_count=4\n");
      return help ? 0 : 2;
    }
  }
  compare(1, times, rounds, plugin, options, json, 1);
  compare(1 << 20, times, rounds, plugin, options, json, 0);
  if (json) printf("]\n");
  return 0;
}
