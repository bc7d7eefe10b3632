/* The option memory_limit: what does not fit is refused by name, whoever holds the memory is named too, nothing is lost, and
 * launches ahead of the device wait for the memory of earlier ones. */
#include "check.h"

enum { kMiB = 1 << 20 };

static weft_context* limited(const char* bytes, const char* platform) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"threads", WEFT_STRLEN, "1", WEFT_STRLEN},
                                   {"memory_limit", WEFT_STRLEN, bytes, WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 4;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}
static weft_tensor* host_mib(weft_context* ctx, int mib) {
  const int64_t dims[] = {mib, kMiB / 4};
  float* data = calloc((size_t)mib, kMiB);
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, 2, data, (size_t)mib * kMiB, &out));
  free(data);
  return out;
}
/* RESOURCE_EXHAUSTED with all of these in its text. */
static void exhausted(weft_error* error, const char* const* texts, int line) {
  if (error == NULL || weft_error_code(error) != WEFT_RESOURCE_EXHAUSTED) {
    printf("%s:%d: not RESOURCE_EXHAUSTED: %s\n", __FILE__, line, error ? weft_error_message(error, NULL) : "no error");
    ++g_failures;
  }
  for (; error != NULL && *texts != NULL; ++texts) {
    if (strstr(weft_error_message(error, NULL), *texts) != NULL) continue;
    printf("%s:%d: \"%s\" does not say \"%s\"\n", __FILE__, line, weft_error_message(error, NULL), *texts);
    ++g_failures;
  }
  CHECK_TEXT(weft_error_payload(error, "weft.retry_after_release", WEFT_STRLEN, NULL), "1");
  weft_error_release(error);
}
#define EXHAUSTED(call, ...) exhausted((call), (const char* const[]){__VA_ARGS__, NULL}, __LINE__)

static void host_tensors(void) {
  weft_context* ctx = limited("67108864", "cpu");
  weft_tensor *a = host_mib(ctx, 30), *b = NULL, *small = host_mib(ctx, 1);
  float* data = calloc(65, kMiB);
  weft_error* never;
  weft_device* device = NULL;
  weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
  OK(weft_device_at(ctx, 0, &device));
  OK(weft_device_memory(device, &stats));
  CHECK_EQUAL(stats.bytes_limit, 64 * kMiB);
  CHECK(stats.bytes_in_use >= 31u * kMiB && stats.bytes_in_use <= 64u * kMiB);
  EXHAUSTED(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(40, kMiB / 4), data, (size_t)40 * kMiB, &b),
            "weft_tensor_from_host: no memory for a tensor of 41943040 bytes: memory_limit is 67108864 bytes",
            "the largest of 2 live tensors, which hold 32505856 bytes: f32[30, 262144] of 31457280 bytes (from the caller");
  CHECK(b == NULL);
  weft_tensor_release(a);
  never = weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(65, kMiB / 4), data, (size_t)65 * kMiB, &b);
  CHECK_EQUAL(weft_error_code(never), WEFT_RESOURCE_EXHAUSTED);
  CHECK(weft_error_payload(never, "weft.retry_after_release", WEFT_STRLEN, NULL) == NULL); /* no release makes it fit */
  weft_error_release(never);
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(40, kMiB / 4), data, (size_t)40 * kMiB, &b));
  free(data);
  weft_tensor_release(b);
  weft_tensor_release(small);
  weft_device_release(device);
  weft_context_release(ctx);
}

static void results_and_temporaries(void) {
  weft_context* ctx = limited("67108864", "cpu");
  weft_tensor *a = host_mib(ctx, 24), *b, *c, *d;
  float first = -1;
  OK(weft_exp(ctx, a, &b));
  OK(weft_eval(ctx, &b, 1, NULL));
  OK(weft_cos(ctx, b, &c));
  EXHAUSTED(weft_eval(ctx, &c, 1, NULL), "weft_eval: no memory for f32[24, 262144] (cos", " of 25165824 bytes: ",
            "the largest of 2 live tensors, which hold 50331648 bytes: ", "f32[24, 262144] of 25165824 bytes (exp");
  EXHAUSTED(weft_sync(ctx, NULL, NULL), "weft_sync: no memory for f32[24, 262144] (cos");
  /* Nothing is lost: with room, the same value is computed. */
  weft_tensor_release(b);
  OK(weft_slice(ctx, c, (const int64_t[]){0, 0}, 2, (const int64_t[]){1, 1}, 2, (const int64_t[]){1, 1}, 2, &d));
  weft_tensor_release(c);
  OK(weft_tensor_to_host(d, &first, sizeof first));
  CHECK(fabsf(first - 0.5403023f) < 1e-6f);
  weft_tensor_release(a);
  weft_tensor_release(d);
  weft_context_release(ctx);
}

/* 200 launches whose results together are 25 times the limit, each let go of at once. */
static void launches_ahead_wait_for_memory(void) {
  weft_context* ctx = limited("67108864", "cpu");
  weft_tensor* x = host_mib(ctx, 8);
  int i;
  for (i = 0; i < 200; ++i) {
    weft_tensor* y = NULL;
    OK(weft_tanh(ctx, x, &y));
    OK(weft_eval(ctx, &y, 1, NULL));
    weft_tensor_release(y);
  }
  weft_tensor_release(x);
  weft_context_release(ctx);
}

static void the_reference_keeps_it(void) {
  weft_context* ctx = limited("67108864", "reference");
  weft_tensor *a = host_mib(ctx, 10), *b = NULL, *c = NULL;
  float first = -1;
  weft_device* device = NULL;
  weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
  OK(weft_device_at(ctx, 0, &device));
  OK(weft_device_memory(device, &stats));
  CHECK_EQUAL(stats.bytes_limit, 64 * kMiB);
  CHECK_EQUAL(stats.bytes_in_use, 10 * kMiB);
  {
    float* data = calloc(60, kMiB);
    EXHAUSTED(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(60, kMiB / 4), data, (size_t)60 * kMiB, &b),
              "no memory for f32[60, 262144] of 62914560 bytes on the platform 'reference': memory_limit is 67108864 bytes");
    free(data);
  }
  /* Copies of the argument and the value: 50 MiB, and the result. */
  OK(weft_concatenate(ctx, (weft_tensor* const[]){a, a, a}, 3, NULL, &b));
  EXHAUSTED(weft_eval(ctx, &b, 1, NULL), "weft_eval: no memory for f32[30, 262144] (concatenate");
  weft_tensor_release(b);
  OK(weft_slice(ctx, a, (const int64_t[]){0, 0}, 2, (const int64_t[]){1, 1}, 2, (const int64_t[]){1, 1}, 2, &c));
  OK(weft_tensor_to_host(c, &first, sizeof first));
  CHECK(first == 0);
  weft_tensor_release(c);
  weft_tensor_release(a);
  weft_device_release(device);
  weft_context_release(ctx);
}

int main(void) {
  host_tensors();
  results_and_temporaries();
  launches_ahead_wait_for_memory();
  the_reference_keeps_it();
  return done("limits");
}
