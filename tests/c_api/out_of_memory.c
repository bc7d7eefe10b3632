/* Fails the N-th allocation, for every N, of saving, loading, reading, keeping on disk, recording and launching; once, and all
 * that follow. Of compiling and publishing, which allocate a hundred thousand times, for so many N spread over all of them as
 * WEFT_MEMORY_POINTS says (40 each; 0: every N), or for the k-th of m parts of these, for m processes: WEFT_MEMORY_SHARE=k/m.
 * Whatever comes back is a result or RESOURCE_EXHAUSTED; the file on disk is the old one or the new one, whole; everything works
 * as soon as there is memory again. The process's allocator is replaced by one that counts, so that the standard library's and
 * other libraries' allocations count as well. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "folder.h"

#if defined(HAS_AN_ALLOCATOR_OF_ITS_OWN) || !defined(__GLIBC__)
int main(void) {
  printf("SKIPPED: the allocator cannot be replaced here; the other presets do it\n");
  return 77;
}
#else

/* Allocations that still succeed; armed only while above LONG_MIN / 2. */
static atomic_long g_left = LONG_MIN;
static atomic_int g_for_ever, g_hit;

static int fails_now(void) {
  long left;
  if (atomic_load_explicit(&g_left, memory_order_relaxed) < LONG_MIN / 2) return 0;
  left = atomic_fetch_sub_explicit(&g_left, 1, memory_order_relaxed);
  if (left > 0 || (left < 0 && !atomic_load_explicit(&g_for_ever, memory_order_relaxed))) return 0;
  atomic_store_explicit(&g_hit, 1, memory_order_relaxed);
  errno = ENOMEM;
  return 1;
}
static void arm(long n, int for_ever) {
  atomic_store(&g_for_ever, for_ever);
  atomic_store(&g_hit, 0);
  atomic_store(&g_left, n);
}
static int disarm(void) {
  atomic_store(&g_left, LONG_MIN);
  return atomic_load(&g_hit);
}

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* malloc(size_t size) { return fails_now() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails_now() ? NULL : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return size != 0 && fails_now() ? NULL : __libc_realloc(memory, size); }
void* memalign(size_t align, size_t size) { return fails_now() ? NULL : __libc_memalign(align, size); }
void* aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void** out, size_t align, size_t size) {
  void* memory = memalign(align, size);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_ANONYMOUS) != 0 && fails_now()) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

static char g_path[340];
static weft_context* g_ctx;
static weft_tree *g_old, *g_new;
static weft_tensor *g_x, *g_y;
static const char* g_what;
static long g_n, g_share = 1, g_shares = 1;

/* 1 if this went well, 0 if it failed for want of memory. */
static int well(weft_error* error) {
  if (error == NULL) return 1;
  if (weft_error_code(error) != WEFT_RESOURCE_EXHAUSTED) {
    printf("%s, allocation %ld: error %d: %s\n", g_what, g_n, (int)weft_error_code(error), weft_error_message(error, NULL));
    ++g_failures;
  }
  weft_error_release(error);
  return 0;
}

/* Of the tensor "w" of a tree: its first element. */
static double first_of(weft_tree* tree) {
  uint32_t node = 0;
  weft_tensor* w = NULL;
  uint64_t bytes = 0;
  float* data;
  double first;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(tree, node, &w));
  MUST(weft_tensor_size(w, &bytes));
  data = malloc((size_t)bytes);
  MUST(weft_tensor_to_host(w, data, (size_t)bytes));
  first = data[0];
  free(data);
  weft_tensor_release(w);
  return first;
}

static weft_tree* state_of(float value) {
  enum { kCount = 300000 };
  weft_tree* tree = NULL;
  uint32_t list = 0;
  weft_tensor* w;
  float* data = malloc(kCount * sizeof(float));
  int i;
  for (i = 0; i < kCount; ++i) data[i] = value;
  w = f32(g_ctx, DIMS(kCount), data);
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, w, NULL));
  MUST(weft_tree_add_list(tree, WEFT_TREE_ROOT, "list", WEFT_STRLEN, &list));
  for (i = 0; i < 5; ++i) {
    weft_tensor* t = f32(g_ctx, DIMS(100 * i + 1), data);
    MUST(weft_tree_add_tensor(tree, list, NULL, 0, t, NULL));
    weft_tensor_release(t);
  }
  MUST(weft_tree_add_text(tree, WEFT_TREE_ROOT, "a text that is longer than short ones are", WEFT_STRLEN, "and a value that is longer", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "tied", WEFT_STRLEN, w, NULL));
  weft_tensor_release(w);
  free(data);
  return tree;
}

static void save(void) {
  static const weft_setting note = {"note of the user's, longer than short ones", WEFT_STRLEN, "yes", WEFT_STRLEN};
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  options.durable = -1;
  options.metadata = &note;
  options.metadata_count = 1;
  well(weft_checkpoint_save(g_ctx, g_path, WEFT_STRLEN, g_new, &options, NULL));
}
static void save_behind(void) {
  weft_event* event = NULL;
  if (!well(weft_checkpoint_save(g_ctx, g_path, WEFT_STRLEN, g_new, NULL, &event))) return;
  while (!well(weft_event_wait(event, -1))) {
    int32_t over = 0;
    well(weft_event_poll(event, &over));
    if (over) break;
  }
  weft_event_release(event);
}
/* Old or new, and nothing beside it. */
static void saved_is_whole(void) {
  weft_tree* tree = NULL;
  double value;
  if (!OK(weft_checkpoint_load(g_ctx, g_path, WEFT_STRLEN, NULL, &tree))) return;
  value = first_of(tree);
  CHECK(value == 1 || value == 2);
  weft_tree_release(tree);
  if (value == 2) MUST(weft_checkpoint_save(g_ctx, g_path, WEFT_STRLEN, g_old, NULL, NULL));
}

static void load(void) {
  weft_tree* tree = NULL;
  if (well(weft_checkpoint_load(g_ctx, g_path, WEFT_STRLEN, NULL, &tree))) weft_tree_release(tree);
}
static void read_entries(void) {
  weft_checkpoint_reader* reader = NULL;
  weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_tensor* w = NULL;
  weft_tree* tree = NULL;
  size_t count = 0, i;
  if (!well(weft_checkpoint_reader_open(g_ctx, g_path, WEFT_STRLEN, &reader))) return;
  well(weft_checkpoint_reader_info(reader, &info));
  well(weft_checkpoint_reader_count(reader, &count));
  for (i = 0; i < count; ++i) well(weft_checkpoint_reader_entry(reader, i, &entry));
  if (well(weft_checkpoint_reader_find(reader, "tied", WEFT_STRLEN, &i)) &&
      well(weft_checkpoint_reader_load(reader, "tied", WEFT_STRLEN, NULL, &w))) {
    weft_tensor_release(w);
  }
  if (well(weft_checkpoint_reader_metadata(reader, &tree))) weft_tree_release(tree);
  if (well(weft_checkpoint_reader_structure(reader, &tree))) weft_tree_release(tree);
  if (well(weft_checkpoint_reader_tree(reader, NULL, &tree))) weft_tree_release(tree);
  weft_checkpoint_reader_release(reader);
}

static void grow_a_tree(void) {
  weft_tree *tree = NULL, *copy = NULL;
  uint32_t node = 0;
  if (!well(weft_tree_create(&tree))) return;
  if (well(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "a key that is longer than short ones", WEFT_STRLEN, &node))) {
    well(weft_tree_add_tensor(tree, node, "w", WEFT_STRLEN, g_x, NULL));
    well(weft_tree_add_i64(tree, node, "i", WEFT_STRLEN, 1, NULL));
    well(weft_tree_add_alias(tree, WEFT_TREE_ROOT, "again", WEFT_STRLEN, node, NULL));
  }
  if (well(weft_tree_create(&copy))) {
    uint32_t count = 0;
    const int added = well(weft_tree_add_tree(copy, WEFT_TREE_ROOT, "copy", WEFT_STRLEN, tree, NULL));
    if (well(weft_tree_size(copy, WEFT_TREE_ROOT, &count))) CHECK_EQUAL(count, added); /* all of it or nothing */
    weft_tree_release(copy);
  }
  weft_tree_release(tree);
}

/* Known programs: recorded, launched, read. */
static void record_and_launch(void) {
  weft_tensor *sum = NULL, *product = NULL, *result = NULL;
  double value = -1;
  if (well(weft_add(g_ctx, g_x, g_y, &sum))) {
    if (well(weft_matmul(g_ctx, sum, g_y, NULL, &product))) {
      if (well(weft_sum(g_ctx, product, NULL, &result))) {
        if (well(weft_sync(g_ctx, NULL, NULL)) && well(weft_tensor_item_f64(result, &value))) CHECK(value == 128);
        weft_tensor_release(result);
      }
      weft_tensor_release(product);
    }
    weft_tensor_release(sum);
  }
}
static void copy_in_and_out(void) {
  static const float data[4] = {1, 2, 3, 4};
  float back[4] = {0, 0, 0, 0};
  weft_tensor* t = NULL;
  if (!well(weft_tensor_from_host(g_ctx, NULL, WEFT_F32, DIMS(4), data, sizeof data, &t))) return;
  if (well(weft_tensor_to_host(t, back, sizeof back))) CHECK(back[3] == 4);
  weft_tensor_release(t);
}

/* What is handed over is ended once, and no reference of the context stays behind. */
static int g_ended;
static void ended(void* data) { ++*(int*)data; }
static void scopes_and_hooks(void) {
  static const weft_setting settings[] = {{"threads", WEFT_STRLEN, "1", WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  static const float one[1] = {1};
  weft_context* ctx = NULL;
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_scope* scope = NULL;
  weft_tensor *t = NULL, *kept = NULL;
  size_t count;
  int handed = 0;
  g_ended = 0;
  options.settings = settings;
  options.setting_count = 2;
  options.log_release = options.pressure_release = ended;
  options.log_user_data = options.pressure_user_data = &g_ended;
  options.mode = WEFT_MODE_LAZY;
  ++handed, ++handed;
  if (well(weft_context_create(&options, &ctx))) {
    ++handed;
    well(weft_context_set_log(ctx, WEFT_LOG_OFF, NULL, &g_ended, ended));
    if (well(weft_scope_begin(ctx, &scope))) {
      if (well(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(1), one, sizeof one, &t))) {
        /* Takes the tensor over or ends it. */
        if (weft_scope_adopt(scope, NULL, t) == t && well(weft_scope_keep(scope, t, &kept))) weft_tensor_release(kept);
      }
      well(weft_scope_end(scope));
    }
    weft_context_release(ctx);
    weft_error_release(weft_device_count(ctx, &count)); /* gone */
  }
  CHECK_EQUAL(g_ended, handed);
}
static void make_optimizers(void) {
  weft_optimizer* optimizer = NULL;
  weft_tensor* both[2];
  both[0] = g_x, both[1] = g_y;
  if (well(weft_adam_create(g_ctx, both, 2, NULL, &optimizer))) weft_optimizer_release(optimizer);
}
/* The error that says what was wrong may itself find no memory. */
static void ask_wrongly(void) {
  weft_error* errors[4];
  int i;
  errors[0] = weft_tree_get_bool(g_old, WEFT_TREE_ROOT, NULL);
  errors[1] = weft_tree_get_data(g_old, WEFT_TREE_ROOT, NULL, NULL);
  errors[2] = weft_tensor_rank(g_x, NULL);
  errors[3] = weft_add(g_ctx, g_x, NULL, NULL);
  for (i = 0; i < 4; ++i) {
    if (weft_error_code(errors[i]) == WEFT_INVALID_ARGUMENT) {
      weft_error_release(errors[i]);
    } else {
      CHECK(!well(errors[i]));
    }
  }
}

/* The same where the error gets the caller's line as a detail while the recorder holds it, too. */
static weft_scope* g_scope;
static void refuse_at_a_line(void) {
  weft_tensor* out = NULL;
  weft_error* const error = weft_reshape(weft_scope_mark(g_scope, "train.c", 9), g_x, DIMS(5), &out);
  if (weft_error_code(error) != WEFT_INVALID_ARGUMENT) {
    CHECK(!well(error));
    return;
  }
  CHECK_TEXT(weft_error_payload(error, "weft.position", WEFT_STRLEN, NULL), "train.c:9");
  weft_error_release(error);
}
/* What was freed twice or written to after it was freed lies in one of these lists of the C library. */
static void heap_is_whole(void) {
  enum { kBlocks = 8, kMost = 256 };
  void* blocks[kBlocks];
  size_t size;
  int i;
  for (size = 16; size <= kMost; size += 16) {
    for (i = 0; i < kBlocks; ++i) memset(blocks[i] = malloc(size), 1, size);
    for (i = 0; i < kBlocks; ++i) free(blocks[i]);
  }
}

static void nothing(void) {}
/* Nothing of the failure stays: the same calls succeed now. */
static void sweep(const char* what, void (*run)(void), void (*check)(void)) {
  int for_ever;
  long cases = 0;
  g_what = what;
  run(); /* warm */
  for (for_ever = 0; for_ever < 2; ++for_ever) {
    for (g_n = 0;; ++g_n) {
      int hit;
      arm(g_n, for_ever);
      run();
      hit = disarm();
      check();
      if (!hit) break;
      ++cases;
      if (g_n > 20000 || g_failures > 20) break;
    }
  }
  run();
  printf("%s: %ld allocations failed\n", what, cases);
  fflush(stdout);
}

/* A context, and a program that it does not know: products, loops, a control list. */
static weft_context* fresh(const char* cache) {
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_setting settings[2] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"cache_dir", WEFT_STRLEN, "", WEFT_STRLEN}};
  weft_context* ctx = NULL;
  if (cache != NULL) {
    settings[0].value = "write";
    settings[1].value = cache;
  }
  options.settings = settings;
  options.setting_count = cache != NULL ? 2 : 1;
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}
static weft_tensor* unknown_program(weft_context* ctx) {
  weft_tensor *x = ramp(ctx, DIMS(3, 5)), *y = ramp(ctx, DIMS(5, 2)), *product = NULL, *sine = NULL, *total = NULL;
  MUST(weft_matmul(ctx, x, y, NULL, &product));
  MUST(weft_sin(ctx, product, &sine));
  MUST(weft_sum(ctx, sine, NULL, &total));
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(product);
  weft_tensor_release(sine);
  return total;
}
static int right(weft_tensor* total) {
  double value = -1;
  if (!OK(weft_tensor_item_f64(total, &value))) return 0;
  CHECK(fabs(value - (1.163044263)) < 1e-4); /* of Python's math.sin */
  return 1;
}

/* The N-th allocation of compiling, launching and, where there is a cache, publishing. */
static int compile_with_failure(long n, int for_ever, const char* cache) {
  weft_context* ctx = fresh(cache);
  weft_tensor* total = unknown_program(ctx);
  weft_cache* store = NULL;
  int hit;
  if (cache != NULL) MUST(weft_context_cache(ctx, &store));
  arm(n, for_ever);
  well(weft_sync(ctx, NULL, NULL));
  if (store != NULL) well(weft_cache_flush(store));
  hit = disarm();
  right(total); /* the same context, as soon as there is memory */
  weft_tensor_release(total);
  weft_cache_release(store);
  weft_context_release(ctx);
  if (store != NULL) { /* what is on disk is whole, or not there */
    weft_cache_stats stats = WEFT_CACHE_STATS_INIT;
    ctx = fresh(cache);
    total = unknown_program(ctx);
    right(total);
    MUST(weft_context_cache(ctx, &store));
    MUST(weft_cache_read_stats(store, &stats));
    CHECK_EQUAL(stats.failures, 0);
    weft_cache_release(store);
    weft_tensor_release(total);
    weft_context_release(ctx);
  }
  return hit;
}

/* Allocations of one run. */
static long count_allocations(const char* cache) {
  const long most = LONG_MAX / 2;
  long left;
  arm(most, 0);
  {
    weft_context* ctx = fresh(cache);
    weft_tensor* total = unknown_program(ctx);
    weft_cache* store = NULL;
    arm(most, 0);
    MUST(weft_sync(ctx, NULL, NULL));
    if (cache != NULL) {
      MUST(weft_context_cache(ctx, &store));
      MUST(weft_cache_flush(store));
      weft_cache_release(store);
    }
    left = atomic_load(&g_left);
    disarm();
    weft_tensor_release(total);
    weft_context_release(ctx);
  }
  return most - left;
}

/* From `from` on, as many points as were asked for. */
static void sweep_compiling(const char* what, int with_cache, long from, long points) {
  char cache[400];
  int for_ever;
  long cases = 0, all;
  snprintf(cache, sizeof cache, "%s/cache", g_dir);
  g_what = what;
  all = count_allocations(with_cache ? cache : NULL);
  for (for_ever = 0; for_ever < 2; ++for_ever) {
    const long step = points > 0 && all - from > points ? (all - from) / points : 1;
    for (g_n = from + (g_share - 1) * step;; g_n += g_shares * step) {
      char command[450];
      snprintf(command, sizeof command, "rm -rf '%s'", cache);
      if (with_cache && system(command) != 0) printf("could not remove %s\n", cache);
      if (!compile_with_failure(g_n, for_ever, with_cache ? cache : NULL) || g_failures > 20) break;
      ++cases;
    }
  }
  printf("%s: %ld of %ld allocations failed\n", what, cases, 2 * (all - from));
  fflush(stdout);
}

static void compile_and_publish(void) {
  const char* asked = getenv("WEFT_MEMORY_POINTS");
  const long points = asked != NULL ? atol(asked) : 40;
  long compiling;
  weft_context* ctx = fresh(NULL); /* LLVM's own first steps */
  weft_tensor* total = unknown_program(ctx);
  right(total);
  weft_tensor_release(total);
  weft_context_release(ctx);
  compiling = count_allocations(NULL);
  sweep_compiling("compiling", 0, 0, points);
  sweep_compiling("publishing", 1, compiling - compiling / 200, points);
}

static void sweep_the_rest(void) {
  sweep("copying", copy_in_and_out, nothing);
  sweep("growing a tree", grow_a_tree, nothing);
  sweep("saving", save, saved_is_whole);
  sweep("saving behind", save_behind, saved_is_whole);
  sweep("loading", load, nothing);
  sweep("reading entries", read_entries, nothing);
  sweep("recording and launching", record_and_launch, nothing);
  sweep("scopes and hooks", scopes_and_hooks, nothing);
  sweep("making optimizers", make_optimizers, nothing);
  sweep("asking wrongly", ask_wrongly, heap_is_whole);
  MUST(weft_scope_begin(g_ctx, &g_scope));
  sweep("refusing at a line", refuse_at_a_line, heap_is_whole);
  MUST(weft_scope_end(g_scope));
}

int main(void) {
  const char* share = getenv("WEFT_MEMORY_SHARE");
  const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  if (share != NULL && (sscanf(share, "%ld/%ld", &g_share, &g_shares) != 2 || g_share < 1 || g_share > g_shares)) {
    printf("WEFT_MEMORY_SHARE is \"%s\"; k/m with 1 <= k <= m was expected\n", share);
    return 1;
  }
  make_folder();
  snprintf(g_path, sizeof g_path, "%s/state", g_dir);
  g_ctx = new_context();
  g_old = state_of(1);
  g_new = state_of(2);
  g_x = f32(g_ctx, DIMS(4, 4), ones);
  g_y = f32(g_ctx, DIMS(4, 4), ones);
  MUST(weft_checkpoint_save(g_ctx, g_path, WEFT_STRLEN, g_old, NULL, NULL));
  if (g_share == 1) sweep_the_rest();
  compile_and_publish();
  weft_tensor_release(g_x);
  weft_tensor_release(g_y);
  weft_tree_release(g_old);
  weft_tree_release(g_new);
  weft_context_release(g_ctx);
  remove_folder();
  return done("out_of_memory");
}
#endif
