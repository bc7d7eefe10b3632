/* Trees and checkpoints: structure, saving, loading, reading entries, damage, background saves; optimizers and their state. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char g_path[300];

static void structure(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(2, 2)), *same = NULL;
  weft_tree *tree = NULL, *outer = NULL;
  uint32_t model = 0, list = 0, node = 0, weight = 0, count = 0;
  weft_node_kind kind;
  int64_t integer = 0;
  double number = 0;
  int32_t truth = 0;
  const char* key;
  const void* data;
  size_t length;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, &model));
  MUST(weft_tree_add_tensor(tree, model, "a.b", WEFT_STRLEN, w, &weight));
  MUST(weft_tree_add_alias(tree, model, "tied", WEFT_STRLEN, weight, NULL));
  MUST(weft_tree_add_list(tree, WEFT_TREE_ROOT, "list", WEFT_STRLEN, &list));
  MUST(weft_tree_add_i64(tree, list, NULL, 0, -7, NULL));
  MUST(weft_tree_add_f64(tree, list, NULL, 0, 0.5, NULL));
  MUST(weft_tree_add_bool(tree, list, NULL, 0, 5, NULL));
  MUST(weft_tree_add_text(tree, list, NULL, 0, "h\xc3\xa9", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_bytes(tree, list, NULL, 0, "\0\xff", 2, NULL));
  MUST(weft_tree_add_none(tree, list, NULL, 0, NULL));
  FAILS(weft_tree_add_i64(tree, model, "tied", WEFT_STRLEN, 1, NULL), WEFT_ALREADY_EXISTS, "weft_tree_add_i64: tree node 'model' has the key 'tied' already");
  INVALID(weft_tree_add_i64(tree, model, NULL, 0, 1, NULL), "weft_tree_add_i64: key is NULL; a child of a dict needs one");
  INVALID(weft_tree_add_text(tree, list, NULL, 0, "\xff", 1, NULL), "weft_tree_add_text: value is not UTF-8");
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, "model.a\\.b", WEFT_STRLEN, &node));
  CHECK_EQUAL(node, weight);
  MUST(weft_tree_find(tree, model, "tied", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(tree, node, &same));
  MUST(weft_tree_find(tree, list, "0", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(tree, node, &integer));
  MUST(weft_tree_get_f64(tree, node, &number));
  CHECK(integer == -7 && number == -7);
  FAILS(weft_tree_get_bool(tree, node, &truth), WEFT_FAILED_PRECONDITION, "weft_tree_get_bool: node 'list.0' is int64, not a bool");
  FAILS(weft_tree_find(tree, list, "9", WEFT_STRLEN, &node), WEFT_NOT_FOUND, "weft_tree_find: the tree has no 'list.9'; did you mean 'list.0'?");
  FAILS(weft_tree_kind(tree, 999, &kind), WEFT_OUT_OF_RANGE, "weft_tree_kind: node 999 of a tree of 11 nodes");
  MUST(weft_tree_size(tree, list, &count));
  CHECK_EQUAL(count, 6);
  MUST(weft_tree_child(tree, list, 3, &node));
  MUST(weft_tree_kind(tree, node, &kind));
  CHECK_EQUAL(kind, WEFT_NODE_TEXT);
  MUST(weft_tree_get_data(tree, node, &data, &length));
  CHECK(length == 3 && memcmp(data, "h\xc3\xa9", 3) == 0);
  FAILS(weft_tree_child(tree, list, 6, &node), WEFT_OUT_OF_RANGE, "weft_tree_child: child 6 of 'list', which has 6");
  MUST(weft_tree_key(tree, weight, &key, &length));
  CHECK_TEXT(key, "a.b");
  MUST(weft_tree_create(&outer));
  MUST(weft_tree_add_tree(outer, WEFT_TREE_ROOT, "inner", WEFT_STRLEN, tree, NULL));
  MUST(weft_tree_find(outer, WEFT_TREE_ROOT, "inner.list.2", WEFT_STRLEN, &node));
  MUST(weft_tree_get_bool(outer, node, &truth));
  CHECK_EQUAL(truth, 1);
  INVALID(weft_tree_add_tree(tree, WEFT_TREE_ROOT, "self", WEFT_STRLEN, tree, NULL), "weft_tree_add_tree: a tree cannot be added to itself");
  weft_tensor_release(same);
  weft_tensor_release(w);
  weft_tree_release(outer);
  weft_tree_release(tree);
  weft_context_release(ctx);
}

/* What stands in a tree twice is stored once and comes back tied; a reader tells everything but values without reading any. */
static void tied_and_unread(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = ramp(ctx, DIMS(200, 100)), *b = ramp(ctx, DIMS(3)), *again = NULL, *head = NULL, *read = NULL;
  weft_tree *tree = NULL, *other = NULL, *loaded = NULL;
  weft_checkpoint_reader* reader = NULL;
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
  weft_node_kind kind;
  uint32_t decoder = 0, encoder = 0, node = 0, first = 0;
  size_t index = 99;
  int64_t epoch = 0;
  double value = 0;
  const void* text;
  size_t length;
  char path[340];
  snprintf(path, sizeof path, "%s.tied", g_path);
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "decoder", WEFT_STRLEN, &decoder));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "encoder", WEFT_STRLEN, &encoder));
  MUST(weft_tree_add_tensor(tree, encoder, "w", WEFT_STRLEN, w, &first)); /* added first, but stands behind the decoder's */
  MUST(weft_tree_get_tensor(tree, first, &again));                       /* another handle of it */
  MUST(weft_tree_add_tensor(tree, decoder, "head", WEFT_STRLEN, again, NULL));
  MUST(weft_tree_add_tensor(tree, decoder, "b", WEFT_STRLEN, b, NULL));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, w, NULL));
  MUST(weft_tree_add_alias(tree, WEFT_TREE_ROOT, "model", WEFT_STRLEN, decoder, NULL));
  MUST(weft_tree_add_i64(tree, WEFT_TREE_ROOT, "epoch", WEFT_STRLEN, 12, NULL));
  MUST(weft_tree_add_text(tree, WEFT_TREE_ROOT, "name", WEFT_STRLEN, "net", WEFT_STRLEN, NULL));
  options.step = 77;
  MUST(weft_checkpoint_save(ctx, path, WEFT_STRLEN, tree, &options, NULL));
  MUST(weft_checkpoint_load(ctx, path, WEFT_STRLEN, NULL, &loaded));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "decoder.head", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &head));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "encoder.w", WEFT_STRLEN, &node));
  MUST(weft_tree_kind(loaded, node, &kind));
  CHECK(kind == WEFT_NODE_ALIAS || kind == WEFT_NODE_TENSOR);
  weft_tensor_release(again);
  MUST(weft_tree_get_tensor(loaded, node, &again));
  { /* seen by both */
    weft_tensor *zero = NULL, *sum = NULL;
    MUST(weft_sub(ctx, head, head, &zero));
    MUST(weft_tensor_assign(head, zero));
    MUST(weft_sum(ctx, again, NULL, &sum));
    OK(weft_tensor_item_f64(sum, &value));
    CHECK(value == 0);
    weft_tensor_release(zero);
    weft_tensor_release(sum);
  }
  weft_tree_release(loaded);

  MUST(weft_checkpoint_reader_open(ctx, path, WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_info(reader, &info));
  CHECK_EQUAL(info.step, 77);
  CHECK_EQUAL(info.tensors, 2);
  CHECK_EQUAL(info.tensor_bytes, 200 * 100 * 4 + 12);
  CHECK(info.file_bytes > info.tensor_bytes && info.created_unix_ns > 1000000000000000000);
  CHECK(info.producer_length > 5 && memcmp(info.producer, "weft ", 5) == 0);
  MUST(weft_checkpoint_reader_structure(reader, &other));
  MUST(weft_tree_find(other, WEFT_TREE_ROOT, "epoch", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(other, node, &epoch));
  CHECK_EQUAL(epoch, 12);
  MUST(weft_tree_find(other, WEFT_TREE_ROOT, "name", WEFT_STRLEN, &node));
  MUST(weft_tree_get_data(other, node, &text, &length));
  CHECK(length == 3 && memcmp(text, "net", 3) == 0);
  MUST(weft_tree_find(other, WEFT_TREE_ROOT, "model.b", WEFT_STRLEN, &node));
  MUST(weft_tree_kind(other, node, &kind));
  CHECK_EQUAL(kind, WEFT_NODE_TENSOR);
  FAILS(weft_tree_get_tensor(other, node, &read), WEFT_FAILED_PRECONDITION,
        "weft_tree_get_tensor: tensor 'decoder.b' has no value: the tree is a checkpoint's structure (weft_checkpoint_reader_load reads a tensor, "
        "weft_checkpoint_reader_tree all)");
  FAILS(weft_checkpoint_save(ctx, path, WEFT_STRLEN, other, NULL, NULL), WEFT_FAILED_PRECONDITION,
        "weft_checkpoint_save: tensor 'decoder.head' has no value: the tree is a checkpoint's structure (weft_checkpoint_reader_load reads a tensor, "
        "weft_checkpoint_reader_tree all)");
  MUST(weft_tree_create(&loaded)); /* copied into another tree it is as empty */
  MUST(weft_tree_add_tree(loaded, WEFT_TREE_ROOT, "all", WEFT_STRLEN, other, NULL));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "all.encoder.w", WEFT_STRLEN, &node));
  FAILS(weft_tree_get_tensor(loaded, node, &read), WEFT_FAILED_PRECONDITION,
        "weft_tree_get_tensor: tensor 'all.encoder.w' has no value: the tree is a checkpoint's structure (weft_checkpoint_reader_load reads a tensor, "
        "weft_checkpoint_reader_tree all)");
  MUST(weft_checkpoint_reader_find(reader, "w", WEFT_STRLEN, &index));
  MUST(weft_checkpoint_reader_entry(reader, index, &entry));
  CHECK_TEXT(entry.path, "decoder.head");
  CHECK(entry.rank == 2 && entry.dims[0] == 200);
  FAILS(weft_checkpoint_reader_find(reader, "epoch", WEFT_STRLEN, &index), WEFT_NOT_FOUND, "weft_checkpoint_reader_find: the checkpoint has no tensor 'epoch'");
  MUST(weft_checkpoint_reader_load(reader, "model.b", WEFT_STRLEN, NULL, &read)); /* through the alias of a dict */
  weft_tensor_release(read);
  MUST(weft_checkpoint_reader_load(reader, "encoder.w", WEFT_STRLEN, NULL, &read));
  weft_tensor_release(read);
  weft_checkpoint_reader_release(reader);
  unlink(path);
  weft_tree_release(loaded);
  weft_tree_release(other);
  weft_tree_release(tree);
  weft_tensor_release(again);
  weft_tensor_release(head);
  weft_tensor_release(b);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* An alias that stands before what it stands for in the order of the tree can be copied, also as a file gives it. */
static void copies_whatever_the_order(void) {
  weft_context* ctx = new_context();
  weft_tree *tree = NULL, *outer = NULL, *loaded = NULL;
  uint32_t early = 0, late = 0, node = 0;
  int64_t value = 0;
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "early", WEFT_STRLEN, &early));
  MUST(weft_tree_add_dict(tree, WEFT_TREE_ROOT, "late", WEFT_STRLEN, &late));
  MUST(weft_tree_add_i64(tree, late, "x", WEFT_STRLEN, 5, &node));
  MUST(weft_tree_add_alias(tree, early, "y", WEFT_STRLEN, node, NULL));
  MUST(weft_tree_create(&outer));
  MUST(weft_tree_add_tree(outer, WEFT_TREE_ROOT, "inner", WEFT_STRLEN, tree, NULL));
  MUST(weft_tree_find(outer, WEFT_TREE_ROOT, "inner.early.y", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(outer, node, &value));
  CHECK_EQUAL(value, 5);
  MUST(weft_checkpoint_save(ctx, g_path, WEFT_STRLEN, tree, NULL, NULL));
  MUST(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded));
  MUST(weft_tree_add_tree(outer, WEFT_TREE_ROOT, "again", WEFT_STRLEN, loaded, NULL));
  MUST(weft_tree_find(outer, WEFT_TREE_ROOT, "again.early.y", WEFT_STRLEN, &node));
  value = 0;
  MUST(weft_tree_get_i64(outer, node, &value));
  CHECK_EQUAL(value, 5);
  weft_tree_release(loaded);
  weft_tree_release(outer);
  weft_tree_release(tree);
  weft_context_release(ctx);
}

static weft_tree* small_state(weft_context* ctx, weft_tensor** w) {
  weft_tree* tree = NULL;
  uint32_t node;
  *w = ramp(ctx, DIMS(3, 100));
  MUST(weft_tree_create(&tree));
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, *w, &node));
  MUST(weft_tree_add_alias(tree, WEFT_TREE_ROOT, "tied", WEFT_STRLEN, node, NULL));
  MUST(weft_tree_add_i64(tree, WEFT_TREE_ROOT, "epoch", WEFT_STRLEN, 3, NULL));
  return tree;
}

static void saved_and_loaded(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = NULL, *back = NULL;
  weft_tree *tree = small_state(ctx, &w), *loaded = NULL, *words = NULL;
  weft_checkpoint_reader* reader = NULL;
  weft_checkpoint_options o = WEFT_CHECKPOINT_OPTIONS_INIT;
  weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
  const weft_setting word[] = {{"dataset", WEFT_STRLEN, "fashion", WEFT_STRLEN}, {"raw", WEFT_STRLEN, "a\0b", 3}};
  weft_event* event = NULL;
  weft_node_kind kind;
  uint32_t node = 0;
  int64_t epoch = 0;
  size_t count = 0, first;
  const void* data;
  int32_t fd = -1, happened = 0;
  float have[300], want[300];
  o.metadata = word;
  o.metadata_count = 2;
  o.durable = -1;
  MUST(weft_checkpoint_save(ctx, g_path, WEFT_STRLEN, tree, &o, &event));
  MUST(weft_event_fd(event, &fd));
  CHECK(fd >= 0);
  MUST(weft_wait_any(&event, 1, WEFT_WAIT_FOREVER, &first));
  MUST(weft_event_wait(event, WEFT_WAIT_FOREVER));
  MUST(weft_event_poll(event, &happened));
  CHECK(first == 0 && happened == 1);
  OK(weft_event_error(event));
  weft_event_release(event);

  MUST(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "epoch", WEFT_STRLEN, &node));
  MUST(weft_tree_get_i64(loaded, node, &epoch));
  CHECK_EQUAL(epoch, 3);
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "tied", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &back));
  MUST(weft_tensor_to_host(back, have, sizeof have));
  MUST(weft_tensor_to_host(w, want, sizeof want));
  CHECK(memcmp(have, want, sizeof have) == 0);
  weft_tensor_release(back);

  MUST(weft_checkpoint_reader_open(ctx, g_path, WEFT_STRLEN, &reader));
  MUST(weft_checkpoint_reader_count(reader, &count));
  CHECK_EQUAL(count, 1);
  MUST(weft_checkpoint_reader_entry(reader, 0, &entry));
  CHECK_TEXT(entry.path, "w");
  CHECK(entry.dtype == WEFT_F32 && entry.rank == 2 && entry.dims[1] == 100 && entry.size_bytes == 1200);
  FAILS(weft_checkpoint_reader_entry(reader, 1, &entry), WEFT_OUT_OF_RANGE, "weft_checkpoint_reader_entry: entry 1 of a checkpoint with 1 tensors");
  FAILS(weft_checkpoint_reader_load(reader, "v", WEFT_STRLEN, NULL, &back), WEFT_NOT_FOUND, "weft_checkpoint_reader_load: the checkpoint has no tensor 'v'");
  MUST(weft_checkpoint_reader_load(reader, "w", WEFT_STRLEN, NULL, &back));
  MUST(weft_checkpoint_reader_metadata(reader, &words));
  MUST(weft_tree_find(words, WEFT_TREE_ROOT, "dataset", WEFT_STRLEN, &node));
  MUST(weft_tree_get_data(words, node, &data, &count));
  CHECK(count == 7 && memcmp(data, "fashion", 7) == 0);
  MUST(weft_tree_find(words, WEFT_TREE_ROOT, "raw", WEFT_STRLEN, &node));
  MUST(weft_tree_kind(words, node, &kind));
  MUST(weft_tree_get_data(words, node, &data, &count));
  CHECK(kind == WEFT_NODE_BYTES && count == 3 && memcmp(data, "a\0b", 3) == 0);
  weft_tensor_release(back);
  weft_tree_release(words);
  weft_tree_release(loaded);
  weft_checkpoint_reader_release(reader);
  weft_tree_release(tree);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* Damage of any kind gives DATA_LOSS (or, at the format's version, UNIMPLEMENTED) and no tree. */
static void damaged_files(void) {
  weft_context* ctx = new_context();
  weft_tensor* w = NULL;
  weft_tree *tree = small_state(ctx, &w), *loaded = NULL;
  char text[600];
  long size, at;
  unsigned char bytes[8192];
  FILE* file;
  MUST(weft_checkpoint_save(ctx, g_path, WEFT_STRLEN, tree, NULL, NULL));
  file = fopen(g_path, "rb");
  size = (long)fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  for (at = 0; at < size; at += 97) {
    weft_error* e;
    file = fopen(g_path, "wb"); /* one byte changed */
    bytes[at] ^= 0x40;
    fwrite(bytes, 1, (size_t)size, file);
    bytes[at] ^= 0x40;
    fclose(file);
    e = weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded);
    CHECK(weft_error_code(e) == WEFT_DATA_LOSS || weft_error_code(e) == WEFT_UNIMPLEMENTED ||
          weft_error_code(e) == WEFT_INVALID_ARGUMENT);
    weft_error_release(e);
    file = fopen(g_path, "wb"); /* cut off */
    fwrite(bytes, 1, (size_t)at, file);
    fclose(file);
    e = weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded);
    CHECK(e != NULL);
    weft_error_release(e);
  }
  CHECK(loaded == NULL);
  file = fopen(g_path, "wb");
  fwrite(bytes, 1, (size_t)size - 1, file);
  fclose(file);
  snprintf(text, sizeof text,
           "weft_checkpoint_load: '%s' is damaged at byte %ld: the trailer is missing; the file is incomplete (%ld bytes), cut off or has bytes added at its end",
           g_path, size - 65, size - 1);
  FAILS(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded), WEFT_DATA_LOSS, text);
  bytes[size - 1] ^= 1;
  file = fopen(g_path, "wb");
  fwrite(bytes, 1, (size_t)size, file);
  fclose(file);
  snprintf(text, sizeof text, "weft_checkpoint_load: '%s' is damaged at byte %ld: the checksum of the trailer does not match", g_path, size - 64);
  FAILS(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded), WEFT_DATA_LOSS, text);
  file = fopen(g_path, "wb");
  fputs("no checkpoint", file);
  fclose(file);
  snprintf(text, sizeof text, "weft_checkpoint_load: '%s' is not a Weft checkpoint: it does not start with the checkpoint magic", g_path);
  FAILS(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded), WEFT_INVALID_ARGUMENT, text);
  CHECK(loaded == NULL);
  unlink(g_path);
  snprintf(text, sizeof text, "%s: open: No such file or directory", g_path);
  {
    weft_error* e = weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded);
    CHECK_EQUAL(weft_error_code(e), WEFT_NOT_FOUND);
    CHECK(e != NULL && strstr(weft_error_message(e, NULL), g_path) != NULL);
    weft_error_release(e);
    CHECK(mkdir(g_path, 0700) == 0);
    snprintf(text, sizeof text, "%s/missing/x.ckpt", g_path);
    e = weft_checkpoint_save(ctx, text, WEFT_STRLEN, tree, NULL, NULL);
    CHECK_EQUAL(weft_error_code(e), WEFT_NOT_FOUND);
    weft_error_release(e);
    CHECK(rmdir(g_path) == 0);
  }
  INVALID(weft_checkpoint_save(ctx, "", 0, tree, NULL, NULL), "weft_checkpoint_save: path is empty or has a NUL inside");
  INVALID(weft_checkpoint_save(ctx, g_path, WEFT_STRLEN, NULL, NULL, NULL), "weft_checkpoint_save: tree is NULL; a weft_tree is needed");
  weft_tree_release(tree);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

/* A save keeps the values it was called with, whatever is assigned while it writes. */
static void values_are_those_of_the_call(void) {
  weft_context* ctx = new_context();
  weft_tensor *w = NULL, *more = NULL, *back = NULL;
  weft_tree *tree = small_state(ctx, &w), *loaded = NULL;
  weft_event* event = NULL;
  uint32_t node;
  float have[300];
  MUST(weft_add(ctx, w, w, &more));
  MUST(weft_checkpoint_save(ctx, g_path, WEFT_STRLEN, tree, NULL, &event));
  MUST(weft_tensor_assign(w, more));
  MUST(weft_sync(ctx, NULL, NULL));
  MUST(weft_event_wait(event, WEFT_WAIT_FOREVER));
  MUST(weft_checkpoint_load(ctx, g_path, WEFT_STRLEN, NULL, &loaded));
  MUST(weft_tree_find(loaded, WEFT_TREE_ROOT, "w", WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(loaded, node, &back));
  MUST(weft_tensor_to_host(back, have, sizeof have));
  CHECK(have[299] == 299);
  weft_tensor_release(back);
  weft_tree_release(loaded);
  weft_event_release(event);
  weft_tensor_release(more);
  weft_tensor_release(w);
  weft_tree_release(tree);
  weft_context_release(ctx);
}

static void one_step(weft_optimizer* opt, weft_context* ctx, weft_tensor* w, double lr) {
  weft_tensor *square = NULL, *loss = NULL, *grad = NULL;
  MUST(weft_square(ctx, w, &square));
  MUST(weft_sum(ctx, square, NULL, &loss));
  MUST(weft_grad(ctx, loss, NULL, &w, 1, &grad));
  MUST(weft_optimizer_step(opt, &grad, 1, lr));
  weft_tensor_release(square);
  weft_tensor_release(loss);
  weft_tensor_release(grad);
  MUST(weft_sync(ctx, NULL, NULL));
}

static void optimizers_go_on_from_their_state(void) {
  weft_context* ctx = new_context();
  weft_sgd_options sgd = WEFT_SGD_OPTIONS_INIT;
  weft_adam_options adam = WEFT_ADAM_OPTIONS_INIT;
  weft_optimizer *opt = NULL, *second = NULL;
  weft_tensor *w = ramp(ctx, DIMS(4)), *v;
  weft_tree* state = NULL;
  float have[4], want[4];
  int64_t compiled;
  MUST(weft_tensor_require_grad(w, 1));
  sgd.momentum = 0.9;
  MUST(weft_sgd_create(ctx, &w, 1, &sgd, &opt));
  one_step(opt, ctx, w, 0.1); /* v = 2w; w -= 0.1 v */
  MUST(weft_tensor_to_host(w, have, sizeof have));
  CHECK(fabs(have[3] - 2.4) < 1e-6);
  one_step(opt, ctx, w, 0.1);
  compiled = metric(ctx, "programs_compiled");
  one_step(opt, ctx, w, 0.0); /* a schedule through 0, 1 and the momentum's value compiles nothing */
  one_step(opt, ctx, w, 1.0);
  one_step(opt, ctx, w, 0.9);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), compiled);
  MUST(weft_tensor_to_host(w, want, sizeof want));

  MUST(weft_optimizer_state(opt, &state));
  v = f32(ctx, DIMS(4), want);
  MUST(weft_tensor_require_grad(v, 1));
  MUST(weft_sgd_create(ctx, &v, 1, &sgd, &second));
  MUST(weft_optimizer_load(second, state, WEFT_TREE_ROOT));
  one_step(opt, ctx, w, 0.05);
  one_step(second, ctx, v, 0.05);
  MUST(weft_tensor_to_host(w, want, sizeof want));
  MUST(weft_tensor_to_host(v, have, sizeof have));
  CHECK(memcmp(have, want, sizeof have) == 0);
  weft_optimizer_release(second);
  MUST(weft_adamw_create(ctx, &v, 1, &adam, &second));
  INVALID(weft_optimizer_load(second, state, WEFT_TREE_ROOT), "weft_optimizer_load: the state is of optimizer 'sgd', not 'adamw'");
  one_step(second, ctx, v, 0.001);
  INVALID(weft_optimizer_step(second, &v, 2, 0.1), "weft_optimizer_step: 2 gradients for 1 parameters");
  INVALID(weft_optimizer_step(second, &v, 1, NAN), "weft_optimizer_step: lr is nan; it must be finite");
  weft_optimizer_release(second);
  weft_tree_release(state);
  MUST(weft_tree_create(&state));
  FAILS(weft_optimizer_load(opt, state, WEFT_TREE_ROOT), WEFT_NOT_FOUND, "weft_optimizer_load: optimizer state has no 'kind'");
  MUST(weft_tree_add_text(state, WEFT_TREE_ROOT, "kind", WEFT_STRLEN, "sgd", WEFT_STRLEN, NULL));
  MUST(weft_tree_add_i64(state, WEFT_TREE_ROOT, "step", WEFT_STRLEN, -1, NULL));
  MUST(weft_tree_add_dict(state, WEFT_TREE_ROOT, "slots", WEFT_STRLEN, NULL));
  INVALID(weft_optimizer_load(opt, state, WEFT_TREE_ROOT), "weft_optimizer_load: the state's 'step' is -1; it must be an integer of 0 or more");
  weft_tree_release(state);
  adam.beta1 = 1;
  INVALID(weft_adam_create(ctx, &v, 1, &adam, &second), "weft_adam_options.beta1 is 1; it must be in [0, 1)");
  sgd.momentum = 0;
  sgd.nesterov = 1;
  INVALID(weft_sgd_create(ctx, &v, 1, &sgd, &second), "weft_sgd_options: nesterov needs a momentum above 0");
  INVALID(weft_sgd_create(ctx, NULL, 0, NULL, &second), "weft_sgd_create: an optimizer needs at least one parameter");
  weft_optimizer_release(opt);
  weft_tensor_release(v);
  weft_tensor_release(w);
  weft_context_release(ctx);
}

int main(void) {
  const char* folder = getenv("TMPDIR");
  snprintf(g_path, sizeof g_path, "%s/weft_c_trees_%ld.ckpt", folder != NULL ? folder : "/tmp", (long)getpid());
  structure();
  saved_and_loaded();
  tied_and_unread();
  copies_whatever_the_order();
  damaged_files();
  values_are_those_of_the_call();
  optimizers_go_on_from_their_state();
  unlink(g_path);
  return done("trees");
}
