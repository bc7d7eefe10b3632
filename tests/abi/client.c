/* A client of ABI 1.0. tests/abi/client_1_0.xz is this file compiled with the headers of that version and never again: it must run
 * with every library of ABI 1.y. Everything that it touches was in 1.0: options structs of their length then, the table as it
 * was, the inline functions of the fluent layer as they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

static void must(weft_error* error) {
  if (error == NULL) return;
  printf("unexpected: %s\n", weft_error_message(error, NULL));
  exit(1);
}
static void check(int truth, const char* what) {
  if (truth) return;
  printf("failed: %s\n", what);
  exit(1);
}

static int32_t logged;
static void on_log(void* user, weft_log_level level, const char* text, size_t length) {
  (void)user, (void)level, (void)text, (void)length;
  ++logged;
}

static weft_context* open_context(void) {
  const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}, {"threads", WEFT_STRLEN, "2", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings;
  options.setting_count = 2;
  options.log = on_log;
  options.min_log_level = WEFT_LOG_DEBUG;
  must(weft_context_create(&options, &ctx));
  return ctx;
}

static void operations(weft_context* ctx) {
  const float data[] = {1, -2, 3, 4, -5, 6};
  float back[6];
  int64_t dims[32];
  size_t rank = 0;
  weft_tensor *rows, *normed;
  wf_scope* s = wf_begin(ctx);
  weft_tensor* x = wf_from_host(s, WEFT_F32, WF_INTS(2, 3), data, sizeof data);
  rows = wf_sum(s, wf_relu(s, x), .dims = WF_INTS(-1), .keepdims = 1);
  normed = wf_layer_norm(s, wf_mul_n(s, x, 0.5), wf_full(s, WF_INTS(3), 1.0), wf_full(s, WF_INTS(3), 0.0));
  must(weft_tensor_dims(rows, dims, 32, &rank));
  check(rank == 2 && dims[0] == 2 && dims[1] == 1, "dims");
  must(weft_tensor_to_host(rows, back, 2 * sizeof *back));
  check(back[0] == 4 && back[1] == 10, "sum of relu");
  check(wf_item(s, wf_sum(s, normed)) < 1e-5, "layer_norm");
  must(wf_end(s));
}

static void training(weft_context* ctx) {
  weft_adam_options options = WEFT_ADAM_OPTIONS_INIT;
  weft_optimizer* adam = NULL;
  weft_tensor* w = NULL;
  double value = 0;
  int i;
  must(weft_tensor_from_f64(ctx, WEFT_F32, 4, &w));
  must(weft_tensor_require_grad(w, 1));
  options.beta1 = 0.8;
  must(weft_adam_create(ctx, &w, 1, &options, &adam));
  for (i = 0; i < 200; ++i) {
    weft_tensor* gradient = NULL;
    wf_scope* s = wf_begin(ctx);
    wf_grad(s, wf_square(s, wf_sub(s, w, wf_scalar(s, WEFT_F32, 3))), &w, 1, &gradient);
    wf_try(s, weft_optimizer_step(adam, &gradient, 1, 0.05));
    must(wf_end(s));
    must(weft_sync(ctx, NULL, NULL));
  }
  must(weft_tensor_item_f64(w, &value));
  check(value > 2.9 && value < 3.1, "Adam");
  weft_optimizer_release(adam);
  weft_tensor_release(w);
}

static void checkpoints(weft_context* ctx, const char* path) {
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
  weft_checkpoint_reader* reader = NULL;
  weft_tree *tree = NULL, *loaded = NULL;
  weft_tensor *t = NULL, *again = NULL;
  uint32_t node = 0;
  double value = 0;
  options.step = 12;
  options.durable = -1;
  must(weft_tensor_from_f64(ctx, WEFT_F64, 0.1, &t));
  must(weft_tree_create(&tree));
  must(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "t", WEFT_STRLEN, t, &node));
  must(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &options, NULL));
  must(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &loaded));
  must(weft_tree_find(loaded, WEFT_TREE_ROOT, "t", WEFT_STRLEN, &node));
  must(weft_tree_get_tensor(loaded, node, &again));
  must(weft_tensor_item_f64(again, &value));
  check(value == 0.1, "a checkpoint's value");
  must(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  must(weft_checkpoint_reader_info(reader, &info));
  must(weft_checkpoint_reader_entry(reader, 0, &entry));
  check(info.step == 12 && info.tensors == 1 && entry.dtype == WEFT_F64 && entry.size_bytes == 8, "a checkpoint's own words");
  weft_checkpoint_reader_release(reader);
  weft_tensor_release(again);
  weft_tensor_release(t);
  weft_tree_release(loaded);
  weft_tree_release(tree);
}

static void through_the_table(void) {
  const weft_api_v1* api = weft_get_api(WEFT_ABI_MAJOR);
  weft_context* ctx = NULL;
  weft_tensor* t = NULL;
  double value = 0;
  check(api != NULL && api->struct_size >= sizeof *api, "the table is as long as it was");
  must(api->context_create(NULL, &ctx));
  must(api->tensor_from_f64(ctx, WEFT_F64, 2.5, &t));
  must(api->tensor_item_f64(t, &value));
  check(value == 2.5, "through the table");
  api->tensor_release(t);
  api->context_release(ctx);
}

int main(int argc, char** argv) {
  weft_context* ctx = open_context();
  weft_error* wrong;
  operations(ctx);
  training(ctx);
  checkpoints(ctx, argc > 1 ? argv[1] : "client.weft");
  through_the_table();
  wrong = weft_relu(ctx, NULL, NULL);
  check(weft_error_code(wrong) == WEFT_INVALID_ARGUMENT, "a wrong call");
  weft_error_release(wrong);
  check(logged > 0, "log records");
  weft_context_release(ctx);
  printf("client of %u.%u: ok\n", WEFT_ABI_MAJOR, WEFT_ABI_MINOR);
  return 0;
}
