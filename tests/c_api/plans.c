/* Texts of programs: the graph for Graphviz, what the passes make of it, and the plan of what runs, of tensors and of a barrier. */
#include "check.h"

static char* text_of(weft_context* ctx, weft_tensor** y, size_t count, weft_text_format format) {
  weft_blob* blob = NULL;
  char* text;
  MUST(weft_program_text(ctx, y, count, format, &blob));
  text = malloc(weft_blob_size(blob) + 1);
  memcpy(text, weft_blob_data(blob), weft_blob_size(blob));
  text[weft_blob_size(blob)] = 0;
  weft_blob_release(blob);
  return text;
}

static int count_of(const char* text, const char* word) {
  int n = 0;
  for (text = strstr(text, word); text != NULL; text = strstr(text + 1, word)) ++n;
  return n;
}

/* relu(x w) + b, whose product takes the rest as its epilogue. */
static weft_tensor* layer(wf_scope* s) {
  weft_tensor* x = wf_full(s, WF_INTS(64, 128), 0.5);
  weft_tensor* w = wf_full(s, WF_INTS(128, 256), 0.25);
  weft_tensor* b = wf_full(s, WF_INTS(256), 1.0);
  return wf_add(s, wf_relu(s, wf_matmul(s, x, w)), b);
}

static void has(const char* text, const char* word, int line) {
  if (strstr(text, word) != NULL) return;
  printf("%s:%d: there is no '%s' in\n%s\n", __FILE__, line, word, text);
  ++g_failures;
}
#define HAS(text, word) has((text), (word), __LINE__)

static void of_tensors(void) {
  weft_context* ctx = new_context();
  wf_scope* s = wf_begin(ctx);
  weft_tensor *x = wf_normal(s, WF_INTS(64, 128)), *w = wf_normal(s, WF_INTS(128, 256)), *y;
  char *text, *again;
  wf_try(s, weft_eval(ctx, (weft_tensor*[]){x, w}, 2, NULL)); /* operands are buffers from here on */
  y = wf_relu(s, wf_matmul(s, x, w));
  OK(wf_check(s));
  text = text_of(ctx, &y, 1, WEFT_TEXT_DOT);
  CHECK(strncmp(text, "digraph \"program\" {\n", 20) == 0);
  HAS(text, "relu");
  HAS(text, "plans.c:");
  HAS(text, " -> ");
  CHECK_EQUAL(count_of(text, "peripheries=2"), 1);
  free(text);

  text = text_of(ctx, &y, 1, WEFT_TEXT_IR);
  again = text_of(ctx, &y, 1, WEFT_TEXT_OPTIMISED);
  HAS(text, "func @main(");
  HAS(again, "func @main(");
  HAS(again, "dot_general(");
  free(text);
  free(again);

  text = text_of(ctx, &y, 1, WEFT_TEXT_PLAN);
  HAS(text, " entries, code of ");
  HAS(text, "implementation");
  HAS(text, "gemm");
  HAS(text, " 4194304 "); /* 2 x 64 x 128 x 256 */
  HAS(text, "dot_general");
  HAS(text, "plans.c:");
  HAS(text, "argument 0");
  again = text_of(ctx, &y, 1, WEFT_TEXT_PLAN);
  CHECK_TEXT(again, text); /* the program is there by now */
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 2);
  free(again);
  free(text);
  text = text_of(ctx, &y, 1, WEFT_TEXT_LOOPS);
  HAS(text, "func @main(");
  HAS(text, "gemm");
  HAS(text, "loop 0, weft.dot_general_relu.f32.");
  free(text);
  text = text_of(ctx, &y, 1, WEFT_TEXT_LLVM);
  again = text_of(ctx, &y, 1, WEFT_TEXT_ASSEMBLY);
  HAS(text, "define void @weft.dot_general_relu.f32.");
  HAS(text, "define void @weft.tile.f32.");
  HAS(again, "\nweft.dot_general_relu.f32.");
  HAS(again, "\nweft.tile.f32.");
  HAS(again, ".cfi_startproc");
  HAS(again, "retq");
  free(again);
  free(text);
  CHECK_EQUAL(metric(ctx, "programs_compiled"), 2);
  { /* and is what runs */
    const int64_t before = metric(ctx, "programs_compiled");
    float* host = malloc(64 * 256 * sizeof(float));
    MUST(weft_tensor_to_host(y, host, 64 * 256 * sizeof(float)));
    CHECK_EQUAL(metric(ctx, "programs_compiled"), before);
    free(host);
  }
  OK(wf_end(s));
  weft_context_release(ctx);
}

static void of_the_barrier(void) {
  weft_context* ctx = new_context();
  wf_scope* s;
  weft_tensor* y;
  char* text = text_of(ctx, NULL, 0, WEFT_TEXT_PLAN);
  CHECK_TEXT(text, "nothing is to be computed\n");
  free(text);
  s = wf_begin(ctx);
  y = wf_keep(s, layer(s));
  text = text_of(ctx, NULL, 0, WEFT_TEXT_PLAN);
  HAS(text, "result 0");
  free(text);
  text = text_of(ctx, NULL, 0, WEFT_TEXT_DOT);
  HAS(text, "digraph");
  free(text);
  OK(wf_end(s));
  MUST(weft_sync(ctx, NULL, NULL));
  weft_tensor_release(y);
  weft_context_release(ctx);
}

/* A loop's entries stand below it. */
static weft_error* halves(void* user, weft_context* in, weft_tensor* const* x, size_t count, weft_tensor** out, size_t capacity, size_t* used) {
  wf_scope* s = wf_begin(in);
  (void)user, (void)capacity;
  out[0] = wf_keep(s, wf_tanh(s, wf_matmul(s, x[count - 1], x[count - 1])));
  *used = 1;
  return wf_end(s);
}

static void of_a_loop(void) {
  weft_context* ctx = new_context();
  const weft_tensor_info square = {WEFT_F32, 2, {16, 16}};
  weft_function* f = NULL;
  wf_scope* s = wf_begin(ctx);
  weft_tensor *x = wf_normal(s, WF_INTS(16, 16)), *y;
  char* text;
  MUST(weft_function_trace(ctx, "f", WEFT_STRLEN, &square, 1, halves, NULL, 1, &f));
  y = wf_scan(s, f, WF_TENSORS(x), NULL, 0, .length = 5);
  text = text_of(ctx, &y, 1, WEFT_TEXT_PLAN);
  HAS(text, "repeat ");
  HAS(text, "  body: ");
  free(text);
  OK(wf_end(s));
  weft_function_release(f);
  weft_context_release(ctx);
}

static void what_cannot_be(void) {
  weft_context *ctx = new_context(), *other = new_context_with("platform", "reference");
  weft_tensor *x = ramp(ctx, DIMS(4)), *y = ramp(other, DIMS(4)), *z = NULL;
  weft_blob* blob = NULL;
  INVALID(weft_program_text(ctx, &x, 1, (weft_text_format)8, &blob), "weft_program_text: format is 8; weft_text_format has 0 to 7");
  MUST(weft_relu(other, y, &z));
  FAILS_WITH(weft_program_text(other, &z, 1, WEFT_TEXT_PLAN, &blob), WEFT_UNIMPLEMENTED, "does not say what it runs; WEFT_TEXT_PLAN is of the platform cpu");
  FAILS_WITH(weft_program_text(other, &z, 1, WEFT_TEXT_LLVM, &blob), WEFT_UNIMPLEMENTED, "the platform 'reference' does not show the code of programs; WEFT_TEXT_LOOPS, WEFT_TEXT_LLVM and WEFT_TEXT_ASSEMBLY are of the platform cpu");
  CHECK(blob == NULL);
  weft_tensor_release(x);
  weft_tensor_release(y);
  weft_tensor_release(z);
  weft_context_release(ctx);
  weft_context_release(other);
}

int main(void) {
  of_tensors();
  of_the_barrier();
  of_a_loop();
  what_cannot_be();
  return done("plans");
}
