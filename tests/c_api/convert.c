/* Files to files: conversion of types and names, progress and its end, bad options; salvage; what a file is; the disk cache as a tree. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

static char g_from[340], g_to[340];

static const char* at(char* path, const char* name) {
  snprintf(path, 340, "%s/%s", g_dir, name);
  return path;
}

/* model.w: 20,000 numbers, model.n: 3 whole ones, step 5, a text. */
static weft_context* saved(void) {
  weft_context* ctx = new_context();
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  const weft_setting word = {"who", WEFT_STRLEN, "me", WEFT_STRLEN};
  weft_tensor *w = ramp(ctx, DIMS(20000)), *n = NULL;
  weft_tree* tree = NULL;
  uint32_t model = 0;
  const int64_t whole[] = {1, -2, 3};
  MUST(weft_tensor_from_host(ctx, NULL, WEFT_I64, DIMS(3), whole, sizeof whole, &n));
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, &model));
  MUST(weft_tree_add_tensor(tree, model, "w", WEFT_STRLEN, w, NULL));
  MUST(weft_tree_add_tensor(tree, model, "n", WEFT_STRLEN, n, NULL));
  MUST(weft_tree_add_text(tree, WEFT_TREE_ROOT, "text", WEFT_STRLEN, "kept", WEFT_STRLEN, NULL));
  options.step = 5;
  options.metadata = &word;
  options.metadata_count = 1;
  MUST(weft_checkpoint_save(ctx, at(g_from, "a.weft"), WEFT_STRLEN, tree, &options, NULL));
  weft_tree_release(tree);
  weft_tensor_release(w);
  weft_tensor_release(n);
  return ctx;
}

static uint32_t found(weft_tree* tree, const char* path) {
  uint32_t node = 0;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
  return node;
}

static void text_is(weft_tree* tree, const char* path, const char* wanted) {
  const void* data = NULL;
  size_t length = 0;
  MUST(weft_tree_get_data(tree, found(tree, path), &data, &length));
  CHECK(length == strlen(wanted) && memcmp(data, wanted, length) == 0);
}

static uint32_t size_of(weft_tree* tree, const char* path) {
  uint32_t count = 0;
  MUST(weft_tree_size(tree, found(tree, path), &count));
  return count;
}

static void the_tree_stays_and_types_change(void) {
  weft_context* ctx = saved();
  weft_convert_options options = WEFT_CONVERT_OPTIONS_INIT;
  weft_convert_tensor tensors[2];
  weft_checkpoint_reader* reader = NULL;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
  weft_tree *tree = NULL, *words = NULL;
  memset(tensors, 0, sizeof tensors);
  tensors[0].path = "model.w", tensors[0].path_length = WEFT_STRLEN, tensors[0].dtype = WEFT_F16;
  options.tensors = tensors;
  options.tensor_count = 1;
  options.rest = 1;
  MUST(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, at(g_to, "b.weft"), WEFT_STRLEN, &options));
  MUST(weft_checkpoint_reader_open(ctx, g_to, WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_info(reader, &info));
  CHECK(info.step == 5 && info.tensors == 2);
  MUST(weft_checkpoint_reader_entry(reader, 0, &entry));
  CHECK(entry.dtype == WEFT_F16 && entry.dims[0] == 20000);
  MUST(weft_checkpoint_reader_metadata(reader, &words));
  text_is(words, "who", "me");
  MUST(weft_checkpoint_reader_structure(reader, &tree));
  text_is(tree, "text", "kept");
  weft_tree_release(words);
  weft_tree_release(tree);
  weft_checkpoint_reader_release(reader);

  /* The list alone, in its order, under new names. */
  tensors[0].dtype = WEFT_BF16, tensors[0].name = "weight", tensors[0].name_length = WEFT_STRLEN;
  tensors[1].path = "model.n", tensors[1].path_length = WEFT_STRLEN;
  options.tensor_count = 2;
  options.rest = 0;
  options.format = WEFT_FORMAT_SAFETENSORS;
  MUST(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, at(g_to, "b.safetensors"), WEFT_STRLEN, &options));
  MUST(weft_checkpoint_reader_open(ctx, g_to, WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_find(reader, "weight", WEFT_STRLEN, &(size_t){0}));
  MUST(weft_checkpoint_reader_find(reader, "model.n", WEFT_STRLEN, &(size_t){0}));
  weft_checkpoint_reader_release(reader);

  options.rest = 1;
  INVALID(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options),
          "weft_convert_options: with rest = 1 names stay; tensor 'model.w' has another");
  options.rest = 0;
  tensors[1].dtype = WEFT_F32;
  FAILS(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options), WEFT_UNIMPLEMENTED,
        "weft_checkpoint_convert: tensor 'model.n' of i64 cannot become f32: only floats become other floats");
  tensors[1].path = "model.m";
  FAILS(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options), WEFT_NOT_FOUND,
        "weft_checkpoint_convert: the file has no tensor 'model.m'");
  options.tensor_count = 0;
  options.format = WEFT_FORMAT_PYTORCH;
  FAILS(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options), WEFT_UNIMPLEMENTED,
        "weft_checkpoint_convert: Weft reads pytorch files and writes none; safetensors is what PyTorch and others read, too");
  options.format = (weft_file_format)77;
  INVALID(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options),
          "weft_convert_options.format is 77, which no weft_file_format is");
  options.format = WEFT_FORMAT_WEFT;
  options.nest = 2;
  INVALID(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options),
          "weft_convert_options.nest is 2; it is 0 or 1");
  weft_context_release(ctx);
}

typedef struct told {
  int calls, ends;
  uint64_t done, total;
} told;
static int32_t tell(void* data, uint64_t done, uint64_t total) {
  told* t = data;
  ++t->calls;
  CHECK(done >= t->done && done <= total);
  t->done = done;
  t->total = total;
  return t->ends;
}

static void progress_is_told_and_may_end_it(void) {
  weft_context* ctx = saved();
  weft_convert_options options = WEFT_CONVERT_OPTIONS_INIT;
  told t = {0, 0, 0, 0};
  struct stat seen;
  options.progress = tell;
  options.progress_user_data = &t;
  options.format = WEFT_FORMAT_WEFT;
  MUST(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, at(g_to, "c.weft"), WEFT_STRLEN, &options));
  CHECK(t.calls > 0 && t.done == t.total && t.total == 20000 * 4 + 3 * 8);
  t.ends = 1;
  t.done = 0;
  FAILS_WITH(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, at(g_to, "d.weft"), WEFT_STRLEN, &options), WEFT_CANCELLED, "the progress callback asked for an end");
  CHECK(stat(g_to, &seen) != 0);
  /* The old file stays as it was. */
  CHECK(stat(at(g_to, "c.weft"), &seen) == 0);
  t.done = 0;
  FAILS_WITH(weft_checkpoint_convert(ctx, g_from, WEFT_STRLEN, g_to, WEFT_STRLEN, &options), WEFT_CANCELLED, "the progress callback asked for an end");
  {
    struct stat after;
    CHECK(stat(g_to, &after) == 0 && after.st_ino == seen.st_ino);
  }
  weft_context_release(ctx);
}

static void what_is_whole_is_salvaged(void) {
  weft_context* ctx = saved();
  weft_tree* tree = NULL;
  MUST(weft_checkpoint_salvage(ctx, g_from, WEFT_STRLEN, at(g_to, "e.weft"), WEFT_STRLEN, &tree));
  CHECK(size_of(tree, "whole") == 2 && size_of(tree, "lost") == 0);
  text_is(tree, "problem", "");
  text_is(tree, "whole.0", "model.w");
  weft_tree_release(tree);
  MUST(weft_checkpoint_load(ctx, g_to, WEFT_STRLEN, NULL, &tree));
  text_is(tree, "text", "kept");
  weft_tree_release(tree);
  CHECK(truncate(g_from, 2000) == 0);
  FAILS_WITH(weft_checkpoint_salvage(ctx, g_from, WEFT_STRLEN, at(g_to, "f.weft"), WEFT_STRLEN, &tree), WEFT_DATA_LOSS, "no tensor of it is whole");
  weft_context_release(ctx);
}

static void files_say_what_they_are(void) {
  weft_context* ctx = saved();
  weft_tree* tree = NULL;
  MUST(weft_file_describe(g_from, WEFT_STRLEN, &tree));
  text_is(tree, "kind", "checkpoint");
  text_is(tree, "what", "a Weft checkpoint, which weft_checkpoint_load and `weft show` read");
  weft_tree_release(tree);
  FAILS_WITH(weft_file_describe(at(g_to, "none"), WEFT_STRLEN, &tree), WEFT_NOT_FOUND, "No such file");
  FAILS_WITH(weft_file_describe(g_dir, WEFT_STRLEN, &tree), WEFT_INVALID_ARGUMENT, "is a directory, not a regular file");
  weft_context_release(ctx);
}

static void the_cache_as_a_tree(void) {
  weft_setting settings[2];
  weft_context_options o = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  weft_cache* cache = NULL;
  weft_tree* tree = NULL;
  weft_cache_stats stats = WEFT_CACHE_STATS_INIT;
  weft_tensor *x, *y = NULL;
  uint64_t entries = 9, bytes = 0;
  double value = 0;
  settings[0].name = "cache_dir", settings[0].name_length = WEFT_STRLEN, settings[0].value = at(g_to, "cache"), settings[0].value_length = WEFT_STRLEN;
  settings[1].name = "cache_mode", settings[1].name_length = WEFT_STRLEN, settings[1].value = "write", settings[1].value_length = WEFT_STRLEN;
  o.settings = settings;
  o.setting_count = 2;
  MUST(weft_context_create(&o, &ctx));
  x = ramp(ctx, DIMS(5));
  MUST(weft_sum(ctx, x, NULL, &y));
  OK(weft_tensor_item_f64(y, &value));
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_cache_flush(cache));
  MUST(weft_cache_list(cache, 1, &tree));
  text_is(tree, "folders.0.use", "write");
  entries = size_of(tree, "entries");
  weft_tree_release(tree);
  MUST(weft_cache_read_stats(cache, &stats));
  CHECK_EQUAL(entries, stats.published); /* 0 where the backend interprets */
  CHECK((stats.bytes_written > 0) == (stats.published > 0) && stats.refused == 0 && stats.evictions == 0);
  INVALID(weft_cache_list(cache, 2, &tree), "weft_cache_list: verify is 2; it is 0 or 1");
  INVALID(weft_cache_explain(cache, "abc", WEFT_STRLEN, &tree),
          "weft_cache_explain: 'abc' are too few digits of an entry's name; at least 4 are wanted");
  FAILS(weft_cache_explain(cache, "ghij", WEFT_STRLEN, &tree), WEFT_NOT_FOUND,
        "weft_cache_explain: the disk cache has no entry whose name begins with 'ghij'");
  INVALID(weft_cache_prune(cache, 0, -2, NULL, NULL), "weft_cache_prune: unused_ns is -2; it is -1 or more");
  MUST(weft_cache_prune(cache, 0, -1, &entries, &bytes));
  CHECK(entries == stats.published && bytes == stats.bytes_written);
  weft_cache_release(cache);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_context_release(ctx);
  settings[1].value = "off";
  MUST(weft_context_create(&o, &ctx));
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_cache_prune(cache, 0, -1, &entries, NULL));
  CHECK_EQUAL(entries, 0);
  weft_cache_release(cache);
  weft_context_release(ctx);
}

int main(void) {
  make_folder();
  the_tree_stays_and_types_change();
  progress_is_told_and_may_end_it();
  what_is_whole_is_salvaged();
  files_say_what_they_are();
  the_cache_as_a_tree();
  remove_folder();
  return done("convert");
}
