/* Functions out of StableHLO text, and as files. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

/* x -> 3 x^2, by a function that is called, and x; the module has names, attributes and locations. */
static const char kSquare[] =
    "#loc = loc(\"f.py\":3:0)\n"
    "module @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n"
    "  func.func public @main(%arg0: tensor<f32> loc(#loc)) -> (tensor<f32> {jax.result_info = \"\"}, tensor<f32>) {\n"
    "    %0 = call @triple(%arg0) : (tensor<f32>) -> tensor<f32>\n"
    "    %1 = stablehlo.multiply %0, %arg0 : tensor<f32> loc(#loc)\n"
    "    return %1, %arg0 : tensor<f32>, tensor<f32>\n"
    "  }\n"
    "  func.func private @triple(%arg0: tensor<f32>) -> tensor<f32> {\n"
    "    %cst = stablehlo.constant dense<3.0> : tensor<f32>\n"
    "    %0 = stablehlo.multiply %cst, %arg0 : tensor<f32>\n"
    "    return %0 : tensor<f32>\n"
    "  }\n"
    "}\n";

static weft_function* read_text(weft_context* ctx, const char* text) {
  weft_function* f = NULL;
  OK(weft_function_from_stablehlo(ctx, text, WEFT_STRLEN, &f));
  return f;
}
static double item(weft_tensor* tensor) {
  double value = -12345;
  OK(weft_tensor_item_f64(tensor, &value));
  return value;
}

static void is_a_function_like_any(weft_context* ctx) {
  weft_function *f = read_text(ctx, kSquare), *again = NULL, *around = NULL;
  weft_context* body = NULL;
  weft_tensor *x = NULL, *y[2] = {NULL, NULL}, *dx = NULL, *ddx = NULL, *parameter = NULL;
  weft_tensor_info info;
  weft_blob* text = NULL;
  size_t n = 0;
  OK(weft_function_name(f, &text));
  CHECK(strcmp((const char*)weft_blob_data(text), "main") == 0);
  weft_blob_release(text);
  OK(weft_function_inputs(f, &info, 1, &n));
  CHECK(n == 1 && info.dtype == WEFT_F32 && info.rank == 0);
  OK(weft_function_results(f, NULL, 0, &n));
  CHECK_EQUAL(n, 2);
  OK(weft_function_captures(f, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 5, &x));
  OK(weft_tensor_require_grad(x, 1));
  OK(weft_function_call(ctx, f, &x, 1, y, 2, &n));
  CHECK(n == 2 && item(y[0]) == 75 && item(y[1]) == 5);
  OK(weft_grad(ctx, y[0], NULL, &x, 1, &dx));
  OK(weft_grad(ctx, dx, NULL, &x, 1, &ddx));
  CHECK(item(dx) == 30 && item(ddx) == 6);
  /* What it writes it reads. */
  OK(weft_function_text(f, WEFT_TEXT_STABLEHLO, &text));
  again = read_text(ctx, (const char*)weft_blob_data(text));
  weft_blob_release(text);
  weft_tensor_release(y[0]);
  weft_tensor_release(y[1]);
  OK(weft_function_call(ctx, again, &x, 1, y, 2, &n));
  CHECK(item(y[0]) == 75 && item(y[1]) == 5);
  weft_tensor_release(y[0]);
  weft_tensor_release(y[1]);
  weft_tensor_release(dx);
  weft_tensor_release(ddx);
  /* In a body, whose context reads text as well. */
  OK(weft_function_begin(ctx, "around", WEFT_STRLEN, &info, 1, &body, &parameter));
  weft_function_release(again);
  again = read_text(body, kSquare);
  OK(weft_function_call(body, again, &parameter, 1, y, 2, &n));
  OK(weft_function_end(body, y, 1, &around));
  weft_tensor_release(y[0]);
  weft_tensor_release(y[1]);
  weft_tensor_release(parameter);
  weft_context_release(body);
  OK(weft_function_call(ctx, around, &x, 1, y, 1, &n));
  CHECK(item(y[0]) == 75);
  weft_tensor_release(y[0]);
  weft_tensor_release(x);
  weft_function_release(around);
  weft_function_release(again);
  weft_function_release(f);
}

static void is_refused(weft_context* ctx) {
  weft_function* f = NULL;
  const char bytes[] = {'m', '\xff', 0};
  FAILS_WITH(weft_function_from_stablehlo(ctx, NULL, 1, &f), WEFT_INVALID_ARGUMENT, "weft_function_from_stablehlo: text is NULL");
  FAILS_WITH(weft_function_from_stablehlo(ctx, bytes, 2, &f), WEFT_INVALID_ARGUMENT, "text is not UTF-8");
  FAILS_WITH(weft_function_from_stablehlo(ctx, kSquare, WEFT_STRLEN, NULL), WEFT_INVALID_ARGUMENT, "out is NULL");
  FAILS_WITH(weft_function_from_stablehlo(ctx, "", 0, &f), WEFT_INVALID_ARGUMENT, "the text has no function");
  FAILS_WITH(weft_function_from_stablehlo(ctx, kSquare, sizeof kSquare - 4, &f), WEFT_INVALID_ARGUMENT, "line 12, column 4: expected an operation, found the end of the text");
  FAILS_WITH(weft_function_from_stablehlo(ctx, "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
                                               "  %0 = stablehlo.sparkle %a : tensor<2xf32>\n"
                                               "  %1 = stablehlo.glitter %0 : tensor<2xf32>\n"
                                               "  return %1 : tensor<2xf32>\n}\n", WEFT_STRLEN, &f),
             WEFT_UNIMPLEMENTED, "stablehlo.glitter");
  FAILS_WITH(weft_function_from_stablehlo(ctx, "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
                                               "  %0 = stablehlo.sparkle %a : tensor<2xf32>\n"
                                               "  %1 = stablehlo.glitter %0 : tensor<2xf32>\n"
                                               "  return %1 : tensor<2xf32>\n}\n", WEFT_STRLEN, &f),
             WEFT_UNIMPLEMENTED, "stablehlo.sparkle");
  FAILS_WITH(weft_function_from_stablehlo(ctx, "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n"
                                               "  return %a : tensor<2xf32>\n}\n", WEFT_STRLEN, &f),
             WEFT_INVALID_ARGUMENT, "line 1, column 1: @main returns 1 values");
  CHECK(f == NULL);
}

static void key_is(weft_function* f, char out[33]) {
  weft_blob* text = NULL;
  OK(weft_function_key(f, &text));
  CHECK_EQUAL(weft_blob_size(text), 32);
  snprintf(out, 33, "%s", (const char*)weft_blob_data(text));
  weft_blob_release(text);
}

static void place_of_a_file(char path[400]) {
  const char* const folder = getenv("TMPDIR");
  snprintf(path, 400, "%s/weft_c_programs_%ld", folder != NULL ? folder : "/tmp", (long)getpid());
}

static void overwrite(const char* path, const char* bytes, size_t size) {
  FILE* const file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* x -> tanh(x) * table + w: a literal of many elements, a composite, a capture. */
static weft_function* with_a_capture(weft_context* ctx, weft_tensor* w) {
  float table[100];
  weft_context* body = NULL;
  weft_tensor *x = NULL, *t = NULL, *made[3] = {NULL, NULL, NULL};
  weft_function* f = NULL;
  const weft_tensor_info type = {.dtype = WEFT_F32, .rank = 1, .dims = {100}};
  for (int i = 0; i < 100; ++i) table[i] = 1.0f / (float)(i + 1);
  OK(weft_function_begin(ctx, "with_a_capture", WEFT_STRLEN, &type, 1, &body, &x));
  OK(weft_tensor_from_host(body, NULL, WEFT_F32, DIMS(100), table, sizeof table, &t));
  OK(weft_softmax(body, x, NULL, &made[0]));
  OK(weft_mul(body, made[0], t, &made[1]));
  OK(weft_add(body, made[1], w, &made[2]));
  OK(weft_function_end(body, &made[2], 1, &f));
  for (int i = 0; i < 3; ++i) weft_tensor_release(made[i]);
  weft_tensor_release(t);
  weft_tensor_release(x);
  weft_context_release(body);
  return f;
}

/* Weft's own text is a function again, whatever its arguments were. */
static void own_text_is_read(weft_context* ctx) {
  static const char kAdds[] =
      "module {words = 1}\n"
      "func @main(%0: tensor<f32>, %1: tensor<f32> {word = 0}) -> (tensor<f32>) {\n"
      "  %2 = add(%0, %1) : tensor<f32> loc(\"train.c:9\")\n"
      "  return %2\n}\n";
  weft_function *f = NULL, *g = NULL, *square = read_text(ctx, kSquare);
  weft_tensor *in[2] = {NULL, NULL}, *y[2] = {NULL, NULL};
  weft_blob* text = NULL;
  size_t n = 0;
  OK(weft_function_from_text(ctx, kAdds, WEFT_STRLEN, &f));
  OK(weft_function_inputs(f, NULL, 0, &n));
  CHECK_EQUAL(n, 2);
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 4, &in[0]));
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 3, &in[1]));
  OK(weft_function_call(ctx, f, in, 2, y, 1, &n));
  CHECK_EQUAL(item(y[0]), 7);
  weft_tensor_release(y[0]);
  OK(weft_function_text(square, WEFT_TEXT_IR, &text));
  OK(weft_function_from_text(ctx, weft_blob_data(text), weft_blob_size(text), &g));
  OK(weft_function_call(ctx, g, in, 1, y, 2, &n));
  CHECK_EQUAL(item(y[0]), 48);
  weft_tensor_release(y[0]);
  weft_tensor_release(y[1]);
  weft_tensor_release(in[0]);
  weft_tensor_release(in[1]);
  weft_blob_release(text);
  weft_function_release(f);
  weft_function_release(g);
  weft_function_release(square);
  f = NULL;
  FAILS_WITH(weft_function_from_text(ctx, NULL, 3, &f), WEFT_INVALID_ARGUMENT, "text is NULL");
  FAILS_WITH(weft_function_from_text(ctx, "", 0, &f), WEFT_INVALID_ARGUMENT, "line 1, column 1: expected func, found the end of the text");
  FAILS_WITH(weft_function_from_text(ctx, "func @main() -> () {\n  %0 = nonsense()\n", WEFT_STRLEN, &f), WEFT_INVALID_ARGUMENT,
             "line 2, column 8: expected the name of an operation");
  FAILS_WITH(weft_function_from_text(ctx, "module {partitions = 2}\nfunc @main(%0: tensor<f32>) -> (tensor<f32>) {\n  return %0\n}\n", WEFT_STRLEN, &f),
             WEFT_UNIMPLEMENTED, "the program is of several devices");
  FAILS_WITH(weft_function_from_text(ctx, "func @a(%0: tensor<f32>) -> (tensor<f32>) {\n  return %0\n}\n"
                                          "func @b(%0: tensor<f32>) -> (tensor<f32>) {\n  return %0\n}\n", WEFT_STRLEN, &f),
             WEFT_INVALID_ARGUMENT, "a program of 2 functions");
}

static void text_in(weft_tree* tree, const char* key, const char* want) {
  uint32_t node = 0;
  const void* data = NULL;
  size_t size = 0;
  OK(weft_tree_find(tree, WEFT_TREE_ROOT, key, WEFT_STRLEN, &node));
  OK(weft_tree_get_data(tree, node, &data, &size));
  CHECK(size == strlen(want) && memcmp(data, want, size) == 0);
}

/* The difference of two files, of a function and of text; neither needs to be the other's kind. */
static void two_files_are_compared(weft_context* ctx) {
  char path[400], other[410];
  weft_function* square = read_text(ctx, kSquare);
  weft_tree* tree = NULL;
  weft_blob* text = NULL;
  char changed[2000];
  char* at = NULL;
  uint32_t node = 0;
  int32_t truth = -1;
  place_of_a_file(path);
  snprintf(other, sizeof other, "%s.wir", path);
  OK(weft_function_save(square, path, WEFT_STRLEN));
  OK(weft_function_text(square, WEFT_TEXT_IR, &text));
  CHECK(weft_blob_size(text) < sizeof changed);
  memcpy(changed, weft_blob_data(text), weft_blob_size(text));
  changed[weft_blob_size(text)] = 0;
  overwrite(other, changed, strlen(changed));
  OK(weft_program_compare(ctx, path, WEFT_STRLEN, other, WEFT_STRLEN, &tree));
  OK(weft_tree_find(tree, WEFT_TREE_ROOT, "equal", WEFT_STRLEN, &node));
  OK(weft_tree_get_bool(tree, node, &truth));
  CHECK_EQUAL(truth, 1);
  text_in(tree, "reason", "");
  weft_tree_release(tree);
  at = strstr(changed, "[3.0]");
  CHECK(at != NULL);
  if (at != NULL) memcpy(at, "[5.0]", 5);
  overwrite(other, changed, strlen(changed));
  OK(weft_program_compare(ctx, path, WEFT_STRLEN, other, WEFT_STRLEN, &tree));
  text_in(tree, "reason", "constant");
  text_in(tree, "text", "constant is 5.0, was 3.0; all else equal (3 nodes)");
  weft_tree_release(tree);
  tree = NULL;
  FAILS_WITH(weft_program_compare(ctx, path, WEFT_STRLEN, "/tmp/weft_no_such_file", WEFT_STRLEN, &tree), WEFT_NOT_FOUND, "weft_no_such_file");
  overwrite(other, "GGUF\3\0\0\0 and more of it", 24);
  FAILS_WITH(weft_program_compare(ctx, path, WEFT_STRLEN, other, WEFT_STRLEN, &tree), WEFT_INVALID_ARGUMENT, "holds no program: it is a GGUF file");
  overwrite(other, "", 0);
  FAILS_WITH(weft_program_compare(ctx, path, WEFT_STRLEN, other, WEFT_STRLEN, &tree), WEFT_INVALID_ARGUMENT, "line 1, column 1: expected func");
  remove(other);
  remove(path);
  weft_blob_release(text);
  weft_function_release(square);
}

static void is_saved_and_loaded(weft_context* ctx) {
  char path[400], key[33], other[33], bytes[8192];
  float have[100], want[100], data[100];
  weft_tensor *w = NULL, *x = NULL, *y = NULL, *in[2];
  weft_function *f = NULL, *g = NULL, *square = read_text(ctx, kSquare);
  weft_blob *text = NULL, *again = NULL;
  size_t n = 0, size = 0;
  FILE* file = NULL;
  place_of_a_file(path);
  for (int i = 0; i < 100; ++i) data[i] = (float)(i % 7);
  OK(weft_tensor_from_f64(ctx, WEFT_F32, 4, &w));
  OK(weft_tensor_from_host(ctx, NULL, WEFT_F32, DIMS(100), data, sizeof data, &x));
  f = with_a_capture(ctx, w);
  OK(weft_function_save(f, path, WEFT_STRLEN));
  OK(weft_function_load(ctx, path, WEFT_STRLEN, &g));
  key_is(f, key);
  key_is(g, other);
  CHECK(strcmp(key, other) == 0);
  key_is(square, other);
  CHECK(strcmp(key, other) != 0);
  OK(weft_function_text(f, WEFT_TEXT_IR, &text));
  OK(weft_function_text(g, WEFT_TEXT_IR, &again));
  CHECK(strcmp((const char*)weft_blob_data(text), (const char*)weft_blob_data(again)) == 0);
  weft_blob_release(text);
  weft_blob_release(again);
  /* The capture has become an input. */
  OK(weft_function_inputs(g, NULL, 0, &n));
  CHECK_EQUAL(n, 2);
  OK(weft_function_captures(g, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  OK(weft_function_call(ctx, f, &x, 1, &y, 1, &n));
  OK(weft_tensor_to_host(y, want, sizeof want));
  weft_tensor_release(y);
  in[0] = x, in[1] = w;
  OK(weft_function_call(ctx, g, in, 2, &y, 1, &n));
  OK(weft_tensor_to_host(y, have, sizeof have));
  weft_tensor_release(y);
  CHECK(memcmp(have, want, sizeof want) == 0);
  weft_function_release(g);
  g = NULL;
  /* A save that cannot be leaves what was there. */
  FAILS_WITH(weft_function_save(f, "/tmp/weft_no_such_folder/f", WEFT_STRLEN), WEFT_NOT_FOUND, "weft_no_such_folder");
  FAILS_WITH(weft_function_save(f, "", 0), WEFT_INVALID_ARGUMENT, "path is empty");
  FAILS_WITH(weft_function_load(ctx, "/tmp/weft_no_such_file", WEFT_STRLEN, &g), WEFT_NOT_FOUND, "weft_no_such_file");
  FAILS_WITH(weft_function_load(ctx, "/tmp", WEFT_STRLEN, &g), WEFT_INVALID_ARGUMENT, "'/tmp' is a directory, not a regular file");
  /* Each byte of the file counts. */
  file = fopen(path, "rb");
  size = fread(bytes, 1, sizeof bytes, file);
  CHECK(fclose(file) == 0 && size > 128 && size < sizeof bytes);
  for (size_t at = 0; at < size; ++at) {
    weft_error* error = NULL;
    bytes[at] ^= 0x40;
    overwrite(path, bytes, size);
    error = weft_function_load(ctx, path, WEFT_STRLEN, &g);
    CHECK(weft_error_code(error) == WEFT_DATA_LOSS);
    weft_error_release(error);
    bytes[at] ^= 0x40;
  }
  overwrite(path, bytes, size - 1);
  FAILS_WITH(weft_function_load(ctx, path, WEFT_STRLEN, &g), WEFT_DATA_LOSS, "function file is damaged: it has ");
  overwrite(path, "", 0);
  FAILS_WITH(weft_function_load(ctx, path, WEFT_STRLEN, &g), WEFT_DATA_LOSS, "it has 0 bytes, fewer than its header");
  remove(path);
  weft_function_release(square);
  weft_function_release(f);
  weft_tensor_release(x);
  weft_tensor_release(w);
}

/* One that draws takes the state of its generator as its last input. */
static void is_saved_with_its_stream(weft_context* ctx) {
  const uint64_t words[3] = {7, 0, 0};
  char path[400];
  float have[2][4];
  weft_tensor_info info;
  weft_context* body = NULL;
  weft_tensor *drawn = NULL, *state = NULL, *y = NULL;
  weft_function *f = NULL, *g = NULL;
  wf_scope* s = NULL;
  size_t n = 0;
  place_of_a_file(path);
  OK(weft_function_begin(ctx, "noisy", WEFT_STRLEN, NULL, 0, &body, NULL));
  s = wf_begin(body);
  drawn = wf_keep(s, wf_uniform(s, WF_INTS(4)));
  OK(wf_end(s));
  OK(weft_function_end(body, &drawn, 1, &f));
  weft_tensor_release(drawn);
  weft_context_release(body);
  OK(weft_function_inputs(f, NULL, 0, &n));
  CHECK_EQUAL(n, 0);
  OK(weft_function_save(f, path, WEFT_STRLEN));
  OK(weft_function_load(ctx, path, WEFT_STRLEN, &g));
  remove(path);
  OK(weft_function_inputs(g, &info, 1, &n));
  CHECK(n == 1 && info.dtype == WEFT_U64 && info.rank == 1 && info.dims[0] == 3);
  OK(weft_tensor_from_host(ctx, NULL, WEFT_U64, DIMS(3), words, sizeof words, &state));
  for (int i = 0; i < 2; ++i) {
    OK(weft_function_call(ctx, g, &state, 1, &y, 1, &n));
    OK(weft_tensor_to_host(y, have[i], sizeof have[i]));
    weft_tensor_release(y);
  }
  CHECK(memcmp(have[0], have[1], sizeof have[0]) == 0 && have[0][0] != have[0][1]);
  weft_tensor_release(state);
  weft_function_release(g);
  weft_function_release(f);
}

static void belongs_to_its_context(weft_context* ctx) {
  weft_context* other = NULL;
  weft_function* f = read_text(ctx, kSquare);
  weft_tensor *x = NULL, *y[2];
  size_t n = 0;
  OK(weft_context_create(NULL, &other));
  OK(weft_tensor_from_f64(other, WEFT_F32, 5, &x));
  FAILS_WITH(weft_function_call(other, f, &x, 1, y, 2, &n), WEFT_INVALID_ARGUMENT, "the function @main belongs to another context");
  weft_tensor_release(x);
  weft_context_release(other);
  weft_function_release(f);
}

int main(void) {
  const char* const platforms[] = {"cpu", "reference"};
  for (int i = 0; i < 2; ++i) {
    const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN},
                                     {"platform", WEFT_STRLEN, platforms[i], WEFT_STRLEN}};
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    weft_context* ctx = NULL;
    options.settings = settings;
    options.setting_count = 2;
    MUST(weft_context_create(&options, &ctx));
    is_a_function_like_any(ctx);
    is_refused(ctx);
    is_saved_and_loaded(ctx);
    own_text_is_read(ctx);
    two_files_are_compared(ctx);
    is_saved_with_its_stream(ctx);
    belongs_to_its_context(ctx);
    weft_context_release(ctx);
  }
  return done("programs");
}
