/* Readers of files of tensors: copies and maps, boxes, many at once, values into a tree that there is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "folder.h"

enum { ROWS = 600, COLUMNS = 700 }; /* f32: 1.6 MiB, a payload of its own */

static weft_context* g_ctx;
static float g_values[ROWS * COLUMNS];

static char* file(const char* name) {
  static char paths[4][400];
  static int next;
  char* path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", g_dir, name);
  return path;
}

static weft_tensor* made(weft_dtype dtype, int64_t rows, int64_t columns, const void* data, size_t size) {
  const int64_t dims[] = {rows, columns};
  weft_tensor* out = NULL;
  MUST(weft_tensor_from_host(g_ctx, NULL, dtype, dims, columns < 0 ? 1 : 2, data, size, &out));
  return out;
}

static void add(weft_tree* tree, const char* key, weft_tensor* tensor) {
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, tensor, NULL));
  weft_tensor_release(tensor);
}

/* w f32[600, 700], small f32[3, 2], count i64[4] */
static weft_tree* state(float plus) {
  static float moved[ROWS * COLUMNS];
  const float small[] = {1, 2, 3, 4, 5, 6};
  const int64_t count[] = {1, -2, 300, 70000};
  weft_tree* tree = NULL;
  for (int i = 0; i < ROWS * COLUMNS; ++i) moved[i] = g_values[i] + plus;
  MUST(weft_tree_create(&tree));
  add(tree, "w", made(WEFT_F32, ROWS, COLUMNS, moved, sizeof moved));
  add(tree, "small", made(WEFT_F32, 3, 2, small, sizeof small));
  add(tree, "count", made(WEFT_I64, 4, -1, count, sizeof count));
  return tree;
}

static void save(weft_tree* tree, const char* path, weft_file_format format) {
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  options.format = format;
  options.durable = -1;
  MUST(weft_checkpoint_save(g_ctx, path, WEFT_STRLEN, tree, &options, NULL));
}

static weft_checkpoint_reader* opened(const char* path, weft_open_mode mode, weft_verify verify) {
  weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
  weft_checkpoint_reader* reader = NULL;
  options.mode = mode;
  options.verify = verify;
  MUST(weft_checkpoint_reader_open_with(g_ctx, path, WEFT_STRLEN, &options, &reader));
  return reader;
}

static void is_w(weft_tensor* tensor) {
  static float back[ROWS * COLUMNS];
  MUST(weft_tensor_to_host(tensor, back, sizeof back));
  CHECK(memcmp(back, g_values, sizeof back) == 0);
}

static float first_of(weft_tensor* tensor) {
  static float back[ROWS * COLUMNS];
  MUST(weft_tensor_to_host(tensor, back, sizeof back));
  return back[0];
}

/* As dlpack.h has it. */
struct DLManagedTensor {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor*);
};

static struct DLManagedTensor* lent(weft_tensor* tensor) {
  struct DLManagedTensor* dl = NULL;
  MUST(weft_tensor_to_dlpack_legacy(tensor, &dl));
  return dl;
}

/* Whether its memory is a file's: the list of the process's mappings says so. */
static int is_mapped(weft_tensor* tensor, const char* path) {
  struct DLManagedTensor* dl = lent(tensor);
  const unsigned long at = (unsigned long)(uintptr_t)dl->data;
  char line[600];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin = 0, end = 0;
    if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && at >= begin && at < end) found = strstr(line, path) != NULL;
  }
  if (maps != NULL) fclose(maps);
  dl->deleter(dl);
  return found;
}

static weft_tensor* load(weft_checkpoint_reader* reader, const char* name) {
  weft_tensor* out = NULL;
  MUST(weft_checkpoint_reader_load(reader, name, WEFT_STRLEN, NULL, &out));
  return out;
}

static void mapped_tensors_are_the_file_and_never_change_it(weft_file_format format, const char* name) {
  const char* path = file(name);
  weft_tree* tree = state(0);
  weft_tensor *w, *again, *sum = NULL;
  weft_checkpoint_reader* reader;
  struct DLManagedTensor* dl;
  save(tree, path, format);
  weft_tree_release(tree);
  for (int verify = WEFT_VERIFY_USE; verify <= WEFT_VERIFY_OFF; ++verify) {
    reader = opened(path, WEFT_OPEN_MAP, (weft_verify)verify);
    w = load(reader, "w");
    CHECK(is_mapped(w, path));
    is_w(w);
    dl = lent(w);
    ((float*)dl->data)[0] = 77; /* a copy of the page, not the file */
    again = load(reader, "small");
    CHECK(format != WEFT_FORMAT_WEFT || !is_mapped(again, path));
    weft_tensor_release(again);
    weft_checkpoint_reader_release(reader);
    weft_tensor_release(w);
    CHECK(((float*)dl->data)[1] == g_values[1]); /* the export keeps the mapping */
    dl->deleter(dl);
    reader = opened(path, WEFT_OPEN_AUTO, WEFT_VERIFY_ALL);
    w = load(reader, "w");
    is_w(w);
    MUST(weft_add(g_ctx, w, w, &sum));
    MUST(weft_tensor_assign(w, sum)); /* a step on loaded weights */
    CHECK(first_of(w) == 2 * g_values[0]);
    weft_tensor_release(sum);
    weft_tensor_release(w);
    weft_checkpoint_reader_release(reader);
  }
  reader = opened(path, WEFT_OPEN_COPY, WEFT_VERIFY_USE);
  w = load(reader, "w");
  CHECK(!is_mapped(w, path));
  is_w(w);
  weft_tensor_release(w);
  weft_checkpoint_reader_release(reader);
}

static void damage_is_found_before_a_pointer_leaves(void) {
  const char* path = file("damaged");
  weft_tree* tree = state(0);
  weft_tensor* out = NULL;
  unsigned char byte = 0;
  int fd;
  save(tree, path, WEFT_FORMAT_WEFT);
  weft_tree_release(tree);
  fd = open(path, O_RDWR);
  CHECK(pread(fd, &byte, 1, 65536 + 1000000) == 1);
  byte ^= 4;
  CHECK(pwrite(fd, &byte, 1, 65536 + 1000000) == 1);
  close(fd);
  for (int mode = WEFT_OPEN_COPY; mode <= WEFT_OPEN_AUTO; ++mode) {
    weft_checkpoint_reader* reader = opened(path, (weft_open_mode)mode, WEFT_VERIFY_USE);
    FAILS_WITH(weft_checkpoint_reader_load(reader, "w", WEFT_STRLEN, NULL, &out), WEFT_DATA_LOSS,
               "the checksum of 1680000 bytes of tensor 'w' does not match");
    weft_tensor_release(load(reader, "small"));
    weft_checkpoint_reader_release(reader);
    reader = opened(path, (weft_open_mode)mode, WEFT_VERIFY_OFF);
    weft_tensor_release(load(reader, "w"));
    weft_checkpoint_reader_release(reader);
  }
}

static void boxes_are_parts(weft_file_format format, const char* name) {
  const char* path = file(name);
  weft_tree* tree = state(0);
  weft_checkpoint_reader* reader;
  weft_tensor* out = NULL;
  static float back[ROWS * COLUMNS];
  const int64_t boxes[][4] = {{0, 0, ROWS, COLUMNS}, {17, 0, 3, COLUMNS}, {5, 11, 40, 2}, {599, 699, 1, 1}, {3, 4, 0, 5}, {600, 0, 0, 700}};
  save(tree, path, format);
  weft_tree_release(tree);
  reader = opened(path, WEFT_OPEN_COPY, WEFT_VERIFY_USE);
  for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; ++b) {
    const int64_t *starts = boxes[b], *sizes = boxes[b] + 2;
    int64_t wrong = 0;
    MUST(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, starts, sizes, 2, NULL, &out));
    MUST(weft_tensor_to_host(out, back, (size_t)(sizes[0] * sizes[1]) * sizeof(float)));
    for (int64_t i = 0; i < sizes[0]; ++i) {
      for (int64_t j = 0; j < sizes[1]; ++j) {
        wrong += back[i * sizes[1] + j] != g_values[(starts[0] + i) * COLUMNS + starts[1] + j];
      }
    }
    CHECK_EQUAL(wrong, 0);
    weft_tensor_release(out);
  }
  {
    const int64_t zero[] = {0, 0}, more[] = {601, 1}, far_[] = {INT64_MAX, 0}, negative[] = {-1, 0}, one[] = {1, 1};
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, zero, more, 2, NULL, &out), WEFT_OUT_OF_RANGE,
               "a box from 0 of 601 in dimension 0 of tensor 'w' f32[600, 700]");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, far_, one, 2, NULL, &out), WEFT_OUT_OF_RANGE, "a box from 9223372036854775807 of 1");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, negative, one, 2, NULL, &out), WEFT_OUT_OF_RANGE, "a box from -1 of 1");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, one, far_, 2, NULL, &out), WEFT_OUT_OF_RANGE, "a box from 1 of 9223372036854775807");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, zero, one, 1, NULL, &out), WEFT_INVALID_ARGUMENT,
               "a box of 1 dimensions of tensor 'w' f32[600, 700], which has 2");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, NULL, one, 2, NULL, &out), WEFT_INVALID_ARGUMENT, "starts is NULL");
    FAILS_WITH(weft_checkpoint_reader_load_box(reader, "x", WEFT_STRLEN, zero, one, 2, NULL, &out), WEFT_NOT_FOUND, "no tensor 'x'");
  }
  weft_checkpoint_reader_release(reader);
}

static void many_come_in_the_order_of_the_call(void) {
  const char* path = file("many");
  weft_tree* tree = state(0);
  weft_checkpoint_reader* reader;
  weft_tensor* out[3] = {NULL, NULL, NULL};
  const uint64_t indices[] = {2, 0, 2}, wrong[] = {0, 3};
  int64_t count[4] = {0};
  save(tree, path, WEFT_FORMAT_WEFT);
  weft_tree_release(tree);
  reader = opened(path, WEFT_OPEN_COPY, WEFT_VERIFY_USE);
  MUST(weft_checkpoint_reader_load_many(reader, indices, 3, NULL, out));
  is_w(out[1]);
  MUST(weft_tensor_to_host(out[2], count, sizeof count));
  CHECK_EQUAL(count[3], 70000);
  for (int i = 0; i < 3; ++i) weft_tensor_release(out[i]);
  out[0] = NULL;
  FAILS_WITH(weft_checkpoint_reader_load_many(reader, wrong, 2, NULL, out), WEFT_OUT_OF_RANGE, "entry 3 of a checkpoint with 3 tensors");
  CHECK(out[0] == NULL);
  weft_checkpoint_reader_release(reader);
}

static void a_budget_is_kept(void) {
  const char* path = file("budget");
  weft_tree *tree = state(0), *whole = NULL;
  weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
  weft_checkpoint_reader* reader = NULL;
  weft_tensor* out = NULL;
  const int64_t zero[] = {0, 0}, rows[] = {10, COLUMNS};
  const uint64_t all[] = {0, 1, 2};
  weft_tensor* many[3];
  save(tree, path, WEFT_FORMAT_WEFT);
  weft_tree_release(tree);
  options.memory_budget = 100000;
  MUST(weft_checkpoint_reader_open_with(g_ctx, path, WEFT_STRLEN, &options, &reader));
  FAILS_WITH(weft_checkpoint_reader_load(reader, "w", WEFT_STRLEN, NULL, &out), WEFT_RESOURCE_EXHAUSTED,
             "tensor 'w': 1680000 bytes, and weft_open_options.memory_budget allows 100000");
  FAILS_WITH(weft_checkpoint_reader_tree(reader, NULL, &whole), WEFT_RESOURCE_EXHAUSTED, "3 tensors: 1680056 bytes");
  FAILS_WITH(weft_checkpoint_reader_load_many(reader, all, 3, NULL, many), WEFT_RESOURCE_EXHAUSTED, "3 tensors: 1680056 bytes");
  MUST(weft_checkpoint_reader_load_box(reader, "w", WEFT_STRLEN, zero, rows, 2, NULL, &out));
  weft_tensor_release(out);
  weft_checkpoint_reader_release(reader);
  options.mode = (weft_open_mode)3;
  FAILS_WITH(weft_checkpoint_reader_open_with(g_ctx, path, WEFT_STRLEN, &options, &reader), WEFT_INVALID_ARGUMENT, "mode is 3");
  options.mode = WEFT_OPEN_AUTO;
  options.verify = (weft_verify)9;
  FAILS_WITH(weft_checkpoint_reader_open_with(g_ctx, path, WEFT_STRLEN, &options, &reader), WEFT_INVALID_ARGUMENT, "verify is 9");
}

static weft_tensor* value_of(weft_tree* tree, const char* path) {
  uint32_t node = 0;
  weft_tensor* out = NULL;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
  MUST(weft_tree_get_tensor(tree, node, &out));
  return out;
}

static size_t size_of(weft_tree* tree, const char* path) {
  uint32_t node = 0, size = 0;
  MUST(weft_tree_find(tree, WEFT_TREE_ROOT, path, WEFT_STRLEN, &node));
  MUST(weft_tree_size(tree, node, &size));
  return size;
}

static void values_go_into_a_tree(weft_file_format format, const char* name) {
  const char* path = file(name);
  weft_tree *saved = state(0), *tree = state(1), *report = NULL;
  weft_checkpoint_reader* reader;
  weft_tensor* w = value_of(tree, "w"); /* a handle from before sees the new value */
  save(saved, path, format);
  weft_tree_release(saved);
  reader = opened(path, WEFT_OPEN_AUTO, WEFT_VERIFY_USE);
  MUST(weft_checkpoint_load_into(reader, tree, NULL, NULL));
  is_w(w);
  MUST(weft_checkpoint_load_into(reader, tree, NULL, &report));
  CHECK_EQUAL(size_of(report, "missing") + size_of(report, "unexpected") + size_of(report, "shape_differs"), 0);
  weft_tree_release(report);
  weft_tensor_release(w);
  weft_tree_release(tree);
  weft_checkpoint_reader_release(reader);
}

static void what_does_not_fit_is_said_before_anything_is_loaded(void) {
  const char* path = file("fit");
  weft_tree *saved = state(0), *tree = state(1), *report = NULL, *other = NULL;
  weft_load_options options = WEFT_LOAD_OPTIONS_INIT;
  weft_checkpoint_reader* reader;
  weft_tensor *w = NULL, *x;
  const float six[6] = {0};
  const double doubles[6] = {0};
  const int16_t shorts[4] = {0};
  int16_t got[4];
  double six_back[6];
  add(saved, "extra", made(WEFT_F32, 2, 3, six, sizeof six));
  add(saved, "shape", made(WEFT_F32, 2, 3, six, sizeof six));
  save(saved, path, WEFT_FORMAT_WEFT);
  weft_tree_release(saved);
  reader = opened(path, WEFT_OPEN_COPY, WEFT_VERIFY_USE);
  add(tree, "more", made(WEFT_F32, 2, 3, six, sizeof six));
  add(tree, "shape", made(WEFT_F32, 3, 2, six, sizeof six));
  w = value_of(tree, "w");
  FAILS_WITH(weft_checkpoint_load_into(reader, tree, NULL, &report), WEFT_INVALID_ARGUMENT,
             "tensors of the tree that the file lacks: 1, first 'more'; tensors of the file that the tree lacks: 1, first 'extra'; "
             "tensors of another shape: 1, first 'shape' ([3, 2] in the tree, [2, 3] in the file); nothing was loaded");
  CHECK(first_of(w) == g_values[0] + 1);
  options.partial = 1;
  MUST(weft_checkpoint_load_into(reader, tree, &options, &report));
  is_w(w);
  CHECK_EQUAL(size_of(report, "missing"), 1);
  CHECK_EQUAL(size_of(report, "unexpected"), 1);
  CHECK_EQUAL(size_of(report, "shape_differs"), 1);
  weft_tree_release(report);
  weft_tensor_release(w);
  weft_tree_release(tree);

  MUST(weft_tree_create(&other));
  add(other, "small", made(WEFT_F64, 3, 2, doubles, sizeof doubles));
  FAILS_WITH(weft_checkpoint_load_into(reader, other, &options, NULL), WEFT_INVALID_ARGUMENT,
             "tensor 'small' is f32 in the file and f64 in the tree; weft_load_options.convert converts it");
  options.convert = 1;
  MUST(weft_checkpoint_load_into(reader, other, &options, NULL));
  x = value_of(other, "small");
  MUST(weft_tensor_to_host(x, six_back, sizeof six_back));
  CHECK(six_back[0] == 1 && six_back[5] == 6);
  weft_tensor_release(x);
  add(other, "count", made(WEFT_I16, 4, -1, shorts, sizeof shorts));
  FAILS_WITH(weft_checkpoint_load_into(reader, other, &options, NULL), WEFT_OUT_OF_RANGE,
             "element 3 of tensor 'count' is 70000, which no i16 is; 1 of 2 tensors have their new values");
  x = value_of(other, "count");
  MUST(weft_tensor_to_host(x, got, sizeof got));
  CHECK_EQUAL(got[2], 0);
  weft_tensor_release(x);
  weft_tree_release(other);
  MUST(weft_tree_create(&other));
  add(other, "count", made(WEFT_F32, 2, 3, six, sizeof six));
  FAILS_WITH(weft_checkpoint_load_into(reader, NULL, &options, NULL), WEFT_INVALID_ARGUMENT, "tree is NULL");
  weft_tree_release(other);
  weft_checkpoint_reader_release(reader);
}

static void a_file_that_was_cut_short_is_an_error_where_it_can_be(void) {
  const char* path = file("cut");
  weft_tree* tree = state(0);
  weft_tensor* out = NULL;
  save(tree, path, WEFT_FORMAT_WEFT);
  weft_tree_release(tree);
  for (int mode = WEFT_OPEN_COPY; mode <= WEFT_OPEN_MAP; ++mode) {
    weft_checkpoint_reader* reader = opened(path, (weft_open_mode)mode, WEFT_VERIFY_USE);
    struct stat info;
    weft_error* error;
    CHECK(stat(path, &info) == 0 && truncate(path, 100000) == 0);
    error = weft_checkpoint_reader_load(reader, "w", WEFT_STRLEN, NULL, &out);
    CHECK(error != NULL && weft_error_code(error) == WEFT_DATA_LOSS);
    weft_error_release(error);
    weft_checkpoint_reader_release(reader);
    tree = state(0);
    save(tree, path, WEFT_FORMAT_WEFT);
    weft_tree_release(tree);
  }
}

int main(void) {
  make_folder();
  for (int i = 0; i < ROWS * COLUMNS; ++i) g_values[i] = (float)(i % 8191) - 4000.25f;
  MUST(weft_context_create(NULL, &g_ctx));
  mapped_tensors_are_the_file_and_never_change_it(WEFT_FORMAT_WEFT, "mapped");
  mapped_tensors_are_the_file_and_never_change_it(WEFT_FORMAT_SAFETENSORS, "mapped.safetensors");
  damage_is_found_before_a_pointer_leaves();
  boxes_are_parts(WEFT_FORMAT_WEFT, "boxes");
  boxes_are_parts(WEFT_FORMAT_SAFETENSORS, "boxes.safetensors");
  boxes_are_parts(WEFT_FORMAT_NPZ, "boxes.npz");
  many_come_in_the_order_of_the_call();
  a_budget_is_kept();
  values_go_into_a_tree(WEFT_FORMAT_WEFT, "into");
  values_go_into_a_tree(WEFT_FORMAT_NPZ, "into.npz");
  values_go_into_a_tree(WEFT_FORMAT_SAFETENSORS, "into.safetensors");
  what_does_not_fit_is_said_before_anything_is_loaded();
  a_file_that_was_cut_short_is_an_error_where_it_can_be();
  weft_context_release(g_ctx);
  remove_folder();
  return g_failures != 0;
}
