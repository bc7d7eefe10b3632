/* What every plain-C test uses: checks that say where and what, expectations of error code and exact text, small makers. */
#ifndef WEFT_TESTS_CHECK_H
#define WEFT_TESTS_CHECK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

#if defined(__GNUC__)
#define UNUSED __attribute__((unused))
#else
#define UNUSED
#endif

/* Under a sanitizer the process's allocator cannot be replaced. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_AN_ALLOCATOR_OF_ITS_OWN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_AN_ALLOCATOR_OF_ITS_OWN 1
#endif
#endif

static int g_failures = 0;

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);           \
      ++g_failures;                                                            \
    }                                                                          \
  } while (0)

#define CHECK_EQUAL(have, want)                                                                          \
  do {                                                                                                   \
    const long long have_ = (long long)(have), want_ = (long long)(want);                                \
    if (have_ != want_) {                                                                                \
      printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #have, have_, want_);                  \
      ++g_failures;                                                                                      \
    }                                                                                                    \
  } while (0)

#define CHECK_TEXT(have, want)                                                                           \
  do {                                                                                                   \
    const char* have_ = (have);                                                                          \
    if (have_ == NULL || strcmp(have_, (want)) != 0) {                                                   \
      printf("%s:%d: %s is\n  \"%s\", not\n  \"%s\"\n", __FILE__, __LINE__, #have, have_ ? have_ : "(null)", (want)); \
      ++g_failures;                                                                                      \
    }                                                                                                    \
  } while (0)

/* This code, and a text that says this among other things. */
static UNUSED void fails_with(weft_error* error, weft_code code, const char* text, int line) {
  if (error == NULL || weft_error_code(error) != code || strstr(weft_error_message(error, NULL), text) == NULL) {
    printf("%s:%d: error %d: %s\n  wanted %d: %s\n", __FILE__, line, error ? (int)weft_error_code(error) : 0,
           error ? weft_error_message(error, NULL) : "none", (int)code, text);
    ++g_failures;
  }
  weft_error_release(error);
}
#define FAILS_WITH(call, code, text) fails_with((call), (code), (text), __LINE__)

static UNUSED int ok_at(weft_error* error, const char* file, int line) {
  if (error == NULL) return 1;
  printf("%s:%d: unexpected error %d: %s\n", file, line, (int)weft_error_code(error), weft_error_message(error, NULL));
  weft_error_release(error);
  ++g_failures;
  return 0;
}
/* Success, else the text of the error is printed. */
#define OK(call) ok_at((call), __FILE__, __LINE__)
/* As OK, and the test cannot go on without. */
#define MUST(call)                                      \
  do {                                                  \
    if (!ok_at((call), __FILE__, __LINE__)) exit(1);    \
  } while (0)

static UNUSED void fails_at(weft_error* error, weft_code code, const char* text, const char* file, int line) {
  if (error == NULL) {
    printf("%s:%d: no error; wanted %d: %s\n", file, line, (int)code, text);
    ++g_failures;
    return;
  }
  if (weft_error_code(error) != code || strcmp(weft_error_message(error, NULL), text) != 0) {
    printf("%s:%d: error %d\n  \"%s\", wanted %d\n  \"%s\"\n", file, line, (int)weft_error_code(error),
           weft_error_message(error, NULL), (int)code, text);
    ++g_failures;
  }
  weft_error_release(error);
}
/* Exactly this code and this text. */
#define FAILS(call, code, text) fails_at((call), (code), (text), __FILE__, __LINE__)
#define INVALID(call, text) FAILS(call, WEFT_INVALID_ARGUMENT, text)

/* A context that keeps nothing on disk. */
/* One without a cache and with another setting. */
static UNUSED weft_context* new_context_with(const char* name, const char* value) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {name, WEFT_STRLEN, value, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static UNUSED weft_context* new_context(void) {
  static const weft_setting off = {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = &off;
  options.setting_count = 1;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

/* The same on a platform and in a mode, with one thread. */
static UNUSED weft_context* context_on(const char* platform, weft_mode mode) {
  weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                             {"threads", WEFT_STRLEN, "1", WEFT_STRLEN},
                             {"platform", WEFT_STRLEN, NULL, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  settings[2].value = platform;
  options.settings = settings;
  options.setting_count = 3;
  options.mode = mode;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static UNUSED weft_tensor* scalar(weft_context* ctx, double value) {
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_f64(ctx, WEFT_F32, value, &out));
  return out;
}

static UNUSED weft_tensor* f32(weft_context* ctx, const int64_t* dims, size_t rank, const float* data) {
  weft_tensor* out = NULL;
  size_t i, count = 1;
  for (i = 0; i < rank; ++i) count *= (size_t)dims[i];
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_F32, dims, rank, data, count * sizeof(float), &out));
  return out;
}

/* 0, 1, 2, … in the given shape. */
static UNUSED weft_tensor* ramp(weft_context* ctx, const int64_t* dims, size_t rank) {
  size_t i, count = 1;
  float* data;
  weft_tensor* out;
  for (i = 0; i < rank; ++i) count *= (size_t)dims[i];
  data = malloc((count + 1) * sizeof(float));
  for (i = 0; i < count; ++i) data[i] = (float)i;
  out = f32(ctx, dims, rank, data);
  free(data);
  return out;
}

static UNUSED int64_t metric(weft_context* ctx, const char* name) {
  int64_t value = -1;
  OK(weft_metric_get(ctx, name, WEFT_STRLEN, &value));
  return value;
}

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static UNUSED int done(const char* name) {
  if (g_failures == 0) {
    printf("%s: passed\n", name);
    return 0;
  }
  printf("%s: %d failures\n", name, g_failures);
  return 1;
}

#endif
