/* What no other test calls: second references of every kind, random state, program text, names of operations, IDX files. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "check.h"

static void second_references(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(2));
  weft_tree *tree = NULL, *whole = NULL;
  weft_blob* blob = NULL;
  weft_device* device = NULL;
  weft_event* event = NULL;
  weft_cache* cache = NULL;
  weft_optimizer* opt = NULL;
  weft_checkpoint_reader* reader = NULL;
  char path[300];
  const char* name;
  int32_t happened;
  uint32_t count;
  size_t entries;
  const int64_t bad = metric(ctx, "bad_releases");
  snprintf(path, sizeof path, "%s/weft_c_rest_%ld.ckpt", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "t", WEFT_STRLEN, t, NULL));
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, NULL, NULL));
  MUST(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  MUST(weft_tensor_to_string(t, NULL, &blob));
  MUST(weft_device_at(ctx, 0, &device));
  MUST(weft_sync(ctx, device, &event));
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_tensor_require_grad(t, 1));
  MUST(weft_sgd_create(ctx, &t, 1, NULL, &opt));
  weft_blob_retain(blob), weft_blob_release(blob);
  weft_context_retain(ctx), weft_context_release(ctx);
  weft_device_retain(device), weft_device_release(device);
  weft_event_retain(event), weft_event_release(event);
  weft_optimizer_retain(opt), weft_optimizer_release(opt);
  weft_tree_retain(tree), weft_tree_release(tree);
  weft_checkpoint_reader_retain(reader), weft_checkpoint_reader_release(reader);
  weft_cache_retain(cache), weft_cache_release(cache);
  CHECK(weft_blob_size(blob) > 0);
  OK(weft_device_name(device, &name, NULL));
  OK(weft_event_poll(event, &happened));
  OK(weft_tree_size(tree, WEFT_TREE_ROOT, &count));
  OK(weft_checkpoint_reader_count(reader, &entries));
  MUST(weft_checkpoint_reader_tree(reader, device, &whole));
  OK(weft_tree_size(whole, WEFT_TREE_ROOT, &count));
  CHECK_EQUAL(count, 1);
  weft_blob_release(blob);
  weft_device_release(device);
  weft_event_release(event);
  weft_optimizer_release(opt);
  weft_tree_release(tree);
  weft_tree_release(whole);
  weft_checkpoint_reader_release(reader);
  weft_cache_release(cache);
  weft_tensor_release(t);
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad);
  weft_context_retain(NULL), weft_blob_retain(NULL), weft_tree_release(NULL); /* NULL is ignored */
  weft_context_release(ctx);
  unlink(path);
}

static void random_state(void) {
  weft_context* ctx = new_context();
  uint64_t key = 0, low = 1, high = 1;
  MUST(weft_random_seed(ctx, 42));
  MUST(weft_random_get_state(ctx, &key, &low, &high));
  CHECK(key == 42 && low == 0 && high == 0);
  MUST(weft_random_set_state(ctx, 7, 8, 9));
  MUST(weft_random_get_state(ctx, &key, &low, &high));
  CHECK(key == 7 && low == 8 && high == 9);
  INVALID(weft_random_get_state(ctx, NULL, &low, &high), "weft_random_get_state: out_key is NULL");
  weft_context_release(ctx);
}

static void names_and_text(void) {
  weft_context* ctx = new_context();
  weft_tensor *t = ramp(ctx, DIMS(3)), *sum = NULL;
  weft_blob* text = NULL;
  size_t count = 0, k, found = 0;
  const char** names;
  float host[3];
  MUST(weft_op_list(NULL, 0, &count));
  names = malloc(count * sizeof *names);
  MUST(weft_op_list(names, count, &count));
  for (k = 0; k < count; ++k) {
    char symbol[100];
    snprintf(symbol, sizeof symbol, "weft_%s", names[k]);
    CHECK(weft_get_proc(symbol, WEFT_STRLEN) != NULL);
    found += strcmp(names[k], "add") == 0;
  }
  CHECK_EQUAL(found, 1);
  free((void*)names);
  MUST(weft_add(ctx, t, t, &sum));
  MUST(weft_tensor_keep(sum));
  MUST(weft_program_text(ctx, &sum, 1, WEFT_TEXT_IR, &text));
  CHECK(strstr((const char*)weft_blob_data(text), "add") != NULL);
  weft_blob_release(text);
  {
    weft_tensor* soft;
    MUST(weft_softmax(ctx, t, NULL, &soft)); /* a composite: its expansion */
    MUST(weft_program_text(ctx, &soft, 1, WEFT_TEXT_STABLEHLO, &text));
    CHECK(strncmp((const char*)weft_blob_data(text), "module @weft", 12) == 0);
    CHECK(strstr((const char*)weft_blob_data(text), "\"stablehlo.exponential\"(") != NULL);
    weft_blob_release(text);
    INVALID(weft_program_text(ctx, &soft, 1, (weft_text_format)9, &text), "weft_program_text: format is 9; weft_text_format has 0 to 7");
    weft_tensor_release(soft);
  }
  {
    weft_tensor* out[1] = {NULL};
    weft_tensor* in[2];
    in[0] = t, in[1] = sum;
    MUST(weft_op_apply(ctx, "add", WEFT_STRLEN, in, 2, NULL, 0, out, 1, &count));
    CHECK_EQUAL(count, 1);
    MUST(weft_tensor_to_host(out[0], host, sizeof host));
    CHECK(host[2] == 6);
    weft_tensor_release(out[0]);
  }
  weft_tensor_release(sum);
  weft_tensor_release(t);
  weft_context_release(ctx);
}

static void attributes_by_name(void) {
  weft_context* ctx = new_context();
  weft_tensor *t = ramp(ctx, DIMS(2, 3)), *out[1] = {NULL};
  const int64_t first = 0;
  weft_attr attrs[2];
  size_t count;
  float host[3];
  memset(attrs, 0, sizeof attrs);
  attrs[0].name = "dims", attrs[0].name_length = 4, attrs[0].type = WEFT_VALUE_INTS, attrs[0].data = &first, attrs[0].count = 1;
  attrs[1].name = "keepdims", attrs[1].name_length = WEFT_STRLEN, attrs[1].type = WEFT_VALUE_BOOL, attrs[1].i = 1;
  MUST(weft_op_apply(ctx, "sum", 3, &t, 1, attrs, 2, out, 1, &count));
  MUST(weft_tensor_to_host(out[0], host, sizeof host));
  CHECK(host[0] == 3 && host[2] == 7);
  weft_tensor_release(out[0]);
  weft_tensor_release(t);
  weft_context_release(ctx);
}

static void idx_files(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = NULL;
  const unsigned char file[] = {0, 0, 8, 1, 0, 0, 0, 3, 10, 20, 30};
  unsigned char host[3] = {0};
  char path[300];
  FILE* f;
  snprintf(path, sizeof path, "%s/weft_c_rest_%ld.idx", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
  f = fopen(path, "wb");
  fwrite(file, 1, sizeof file, f);
  fclose(f);
  MUST(weft_idx_read(ctx, path, WEFT_STRLEN, NULL, &t));
  MUST(weft_tensor_to_host(t, host, sizeof host));
  CHECK(host[2] == 30);
  weft_tensor_release(t);
  unlink(path);
  {
    weft_error* e = weft_idx_read(ctx, path, WEFT_STRLEN, NULL, &t);
    CHECK_EQUAL(weft_error_code(e), WEFT_NOT_FOUND);
    weft_error_release(e);
  }
  weft_context_release(ctx);
}

/* 2^39 taps, of which two have an element under them. */
static void windows_over_padding_take_no_time(void) {
  static const weft_setting settings[] = {{"platform", WEFT_STRLEN, "reference", WEFT_STRLEN}, {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  static const int64_t window[] = {(int64_t)1 << 39}, padding[] = {0, (int64_t)1 << 39};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_reduce_window_opts opts = WEFT_REDUCE_WINDOW_OPTS_INIT;
  weft_context* ctx = NULL;
  weft_tensor *x, *y = NULL;
  float sums[3] = {-1, -1, -1};
  const float values[] = {5, 7};
  options.settings = settings;
  options.setting_count = 2;
  MUST(weft_context_create(&options, &ctx));
  x = f32(ctx, DIMS(2), values);
  opts.present = WEFT_REDUCE_WINDOW_HAS_PADDING;
  opts.padding = padding;
  opts.padding_count = 2;
  MUST(weft_reduce_window(ctx, x, window, 1, WEFT_REDUCE_WINDOW_REDUCER_SUM, &opts, &y));
  MUST(weft_tensor_to_host(y, sums, sizeof sums));
  CHECK(sums[0] == 12 && sums[1] == 7 && sums[2] == 0);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_context_release(ctx);
}

int main(void) {
  second_references();
  random_state();
  names_and_text();
  attributes_by_name();
  idx_files();
  windows_over_padding_take_no_time();
  return done("rest");
}
