/* A host's allocator that breaks its word, and one with a limit: what it gives is looked at, and both platforms ask it. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

typedef struct {
  size_t shift, limit, live, most;
  size_t only; /* the one alignment at which it breaks its word; 0: all */
} host;

static void* allocate(void* user, size_t size, size_t alignment) {
  host* h = user;
  void* memory = NULL;
  if (h->live + size > h->limit || posix_memalign(&memory, alignment, size + alignment) != 0) return NULL;
  h->live += size;
  if (h->live > h->most) h->most = h->live;
  return (char*)memory + (h->only == 0 || h->only == alignment ? h->shift : 0);
}
static void deallocate(void* user, void* memory, size_t size) {
  host* h = user;
  h->live -= size;
  free((char*)memory - (size_t)memory % 64);
}

static weft_context* context(const char* platform, host* h) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 2;
  options.allocate = allocate;
  options.free = deallocate;
  options.allocator_user_data = h;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}

static void misaligned(const char* platform) {
  static const float values[] = {1, 2};
  host h = {8, SIZE_MAX / 2, 0, 0, 0};
  weft_context* ctx = context(platform, &h);
  weft_tensor* x = NULL;
  weft_error* error = weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), values, sizeof(values), &x);
  const char* text = weft_error_message(error, NULL);
  CHECK_EQUAL(weft_error_code(error), WEFT_FAILED_PRECONDITION);
  CHECK(strstr(text, "weft_tensor_from_host: no memory for ") == text);
  CHECK(strstr(text, ": weft_context_options.allocate was asked for ") != NULL);
  CHECK(strstr(text, " bytes aligned to 64 and gave 0x") != NULL);
  CHECK(strstr(text, "8, which is aligned to 8") != NULL);
  if (g_failures != 0) printf("%s\n", text);
  CHECK(x == NULL);
  CHECK_EQUAL(h.live, 0); /* given back */
  weft_error_release(error);
  h.shift = 0; /* mended: everything goes on */
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(2), values, sizeof(values), &x));
  weft_tensor_release(x);
  weft_context_release(ctx);
  CHECK_EQUAL(h.live, 0);
}

/* A checkpoint's blocks, which are page aligned. */
static void misaligned_for_a_checkpoint(const char* platform) {
  static const float values[] = {1, 2};
  host h = {8, SIZE_MAX / 2, 0, 0, 4096};
  weft_context* ctx = context(platform, &h);
  weft_tensor* x = f32(ctx, DIMS(2), values);
  weft_tree* tree = NULL;
  weft_error* error;
  const char* text;
  char path[64];
  snprintf(path, sizeof path, "/tmp/weft-misaligned-%ld.weft", (long)getpid());
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, 0, "x", 1, x, NULL));
  error = weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL);
  text = weft_error_message(error, NULL);
  CHECK_EQUAL(weft_error_code(error), WEFT_FAILED_PRECONDITION);
  CHECK(strstr(text, ": weft_context_options.allocate was asked for ") != NULL);
  CHECK(strstr(text, " bytes aligned to 4096 and gave 0x") != NULL);
  if (g_failures != 0) printf("%s\n", text);
  weft_error_release(error);
  h.shift = 0;
  OK(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  CHECK(unlink(path) == 0);
  weft_tree_release(tree);
  weft_tensor_release(x);
  weft_context_release(ctx);
}

/* 4 MiB on the way to 8 bytes, where 1 MiB is the limit. */
static void limited(const char* platform) {
  host h = {0, 1 << 20, 0, 0, 0};
  weft_context* ctx = context(platform, &h);
  static const float row[] = {1, 2};
  weft_tensor *x = f32(ctx, DIMS(2), row), *wide = NULL, *sorted = NULL;
  float got[2] = {0, 0};
  weft_error* error;
  OK(weft_broadcast_to(ctx, x, DIMS(1 << 19, 2), &wide));
  OK(weft_reshape(ctx, wide, DIMS(-1), &sorted));
  error = weft_tensor_to_host(sorted, got, 0);
  weft_error_release(error); /* a wrong size computes nothing */
  {
    float* all = malloc(sizeof(float) << 20);
    error = weft_tensor_to_host(sorted, all, sizeof(float) << 20);
    CHECK_EQUAL(weft_error_code(error), WEFT_RESOURCE_EXHAUSTED);
    if (strstr(weft_error_message(error, NULL), "no memory for ") == NULL) {
      printf("%s\n", weft_error_message(error, NULL));
      ++g_failures;
    }
    weft_error_release(error);
    h.limit = SIZE_MAX / 2;
    OK(weft_tensor_to_host(sorted, all, sizeof(float) << 20));
    CHECK(all[0] == 1 && all[1] == 2 && all[(1 << 20) - 1] == 2);
    CHECK(h.most >= sizeof(float) << 20);
    free(all);
  }
  weft_tensor_release(x);
  weft_tensor_release(wide);
  weft_tensor_release(sorted);
  weft_context_release(ctx);
}

/* Where nothing is in use another one may follow, again and again; in this process, whose leaks are looked for when it ends. */
static void one_after_the_other(void) {
  static host hosts[2]; /* the last one stays for the rest of the process */
  static const float values[] = {1, 2};
  int i;
  for (i = 0; i < 6; ++i) {
    host* const h = &hosts[i % 2];
    weft_context* ctx;
    weft_tensor* x;
    h->limit = SIZE_MAX / 2;
    h->most = 0;
    ctx = context("reference", h);
    x = f32(ctx, DIMS(2), values);
    CHECK(h->most > 0);
    CHECK_EQUAL(hosts[1 - i % 2].live, 0);
    weft_tensor_release(x);
    weft_context_release(ctx);
    CHECK_EQUAL(h->live, 0);
  }
}

/* In children: the allocator is the process's. */
static void in_child(void (*test)(const char*), const char* platform) {
  int status = 0;
  pid_t child;
  fflush(stdout);
  child = fork();
  if (child == 0) {
    test(platform);
    fflush(stdout);
    _exit(g_failures != 0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    printf("platform %s: status %x\n", platform, status);
    ++g_failures;
  }
}

int main(void) {
  in_child(misaligned, "cpu");
  in_child(misaligned, "reference");
  in_child(misaligned_for_a_checkpoint, "cpu");
  in_child(limited, "cpu");
  in_child(limited, "reference");
  one_after_the_other();
  return done("allocator");
}
