/* Learns to write like a text, character by character, and writes: a recurrent network (GRU) as the body of a scan. Sampling is one
 * launch, too: the body draws the next character with weft_categorical and carries it into the next run.
 *
 *   cc characters.c $(pkg-config --cflags --libs weft) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o characters
 *   ./characters LICENSE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"
#include "weft_fluent.h"

enum { HIDDEN = 128, BATCH = 32, TIME = 48, PARAMS = 5 };
enum { EMBED, RECUR, BIAS, OUT, OUT_BIAS }; /* [symbols, 3 HIDDEN], [HIDDEN, 3 HIDDEN], …, [HIDDEN, symbols], [symbols] */

typedef struct {
  weft_tensor* p[PARAMS];
  double temperature;
} model;

static void must(weft_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "characters: %s\n", weft_error_message(error, NULL));
  exit(1);
}

/* Cho et al. (2014): h [n, HIDDEN] and symbols i32[n] give the next h. The three parts are reset, update and candidate. */
static weft_tensor* gru(wf_scope* s, const model* m, weft_tensor* h, weft_tensor* symbols) {
  weft_tensor* x = wf_embedding(s, m->p[EMBED], symbols);
  weft_tensor* u = wf_linear(s, h, m->p[RECUR], m->p[BIAS]);
  weft_tensor *part[3][2], *reset, *update, *candidate;
  int i;
  for (i = 0; i < 3; ++i) {
    part[i][0] = wf_slice_in_dim(s, x, 1, .start = i * HIDDEN, .limit = (i + 1) * HIDDEN);
    part[i][1] = wf_slice_in_dim(s, u, 1, .start = i * HIDDEN, .limit = (i + 1) * HIDDEN);
  }
  reset = wf_sigmoid(s, wf_add(s, part[0][0], part[0][1]));
  update = wf_sigmoid(s, wf_add(s, part[1][0], part[1][1]));
  candidate = wf_tanh(s, wf_add(s, part[2][0], wf_mul(s, reset, part[2][1])));
  return wf_add(s, candidate, wf_mul(s, update, wf_sub(s, h, candidate)));
}

/* The body of training: h, the symbols of one moment -> h, h. */
static weft_error* read_one(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                            size_t* out_count) {
  wf_scope* s = wf_begin(body);
  (void)count, (void)capacity;
  out[0] = wf_keep(s, gru(s, data, in[0], in[1]));
  out[1] = wf_keep(s, wf_copy(s, out[0]));
  *out_count = 2;
  return wf_end(s);
}

/* The body of sampling: h, a symbol -> h, the next symbol; and that once more, to be stacked. */
static weft_error* write_one(void* data, weft_context* body, weft_tensor* const* in, size_t count, weft_tensor** out, size_t capacity,
                             size_t* out_count) {
  const model* m = data;
  wf_scope* s = wf_begin(body);
  weft_tensor* logits;
  (void)count, (void)capacity;
  out[0] = wf_keep(s, gru(s, m, in[0], in[1]));
  logits = wf_linear(s, out[0], m->p[OUT], m->p[OUT_BIAS]);
  out[1] = wf_keep(s, wf_categorical(s, wf_div_n(s, logits, m->temperature)));
  out[2] = wf_keep(s, wf_copy(s, out[1]));
  *out_count = 3;
  return wf_end(s);
}

static weft_function* trace(weft_context* ctx, weft_trace_fn body, model* m, int64_t n, size_t results) {
  const weft_tensor_info types[2] = {{WEFT_F32, 2, {n, HIDDEN}}, {WEFT_I32, 1, {n}}};
  weft_function* f = NULL;
  must(weft_function_trace(ctx, NULL, 0, types, 2, body, m, results, &f));
  return f;
}

/* BATCH pieces of the text, TIME + 1 symbols each; gives the cross entropy a symbol. */
static weft_tensor* step(weft_context* ctx, model* m, weft_optimizer* adam, const int32_t* symbols, int64_t length, unsigned* seed) {
  static int32_t from[TIME][BATCH], to[TIME][BATCH];
  weft_function* cell = trace(ctx, read_one, m, BATCH, 2); /* as parameters are now; equal functions compile once */
  wf_scope* s = wf_begin(ctx);
  weft_tensor *h, *xs, *labels, *all[2], *loss, *grads[PARAMS];
  int t, b;
  for (b = 0; b < BATCH; ++b) {
    const int64_t at = (int64_t)((*seed = *seed * 1664525u + 1013904223u) >> 8) % (length - TIME);
    for (t = 0; t < TIME; ++t) from[t][b] = symbols[at + t], to[t][b] = symbols[at + t + 1];
  }
  h = wf_full(s, WF_INTS(BATCH, HIDDEN), 0);
  xs = wf_from_host(s, WEFT_I32, WF_INTS(TIME, BATCH), from, sizeof from);
  labels = wf_from_host(s, WEFT_I32, WF_INTS(TIME * BATCH), to, sizeof to);
  wf_scan(s, cell, WF_TENSORS(h), WF_TENSORS(xs), .outputs = all, .capacity = 2);
  h = wf_reshape(s, all[1], WF_INTS(TIME * BATCH, HIDDEN));
  loss = wf_mean(s, wf_cross_entropy(s, wf_linear(s, h, m->p[OUT], m->p[OUT_BIAS]), labels));
  wf_grad(s, loss, m->p, PARAMS, grads);
  wf_try(s, weft_optimizer_step(adam, grads, PARAMS, 0.005));
  loss = wf_keep(s, loss);
  must(wf_end(s));
  must(weft_sync(ctx, NULL, NULL));
  weft_function_release(cell);
  return loss;
}

static void sample(weft_context* ctx, model* m, int32_t first, int64_t length, const unsigned char* alphabet) {
  weft_function* cell = trace(ctx, write_one, m, 1, 3);
  wf_scope* s = wf_begin(ctx);
  weft_tensor *h = wf_full(s, WF_INTS(1, HIDDEN), 0), *symbol = wf_from_host(s, WEFT_I32, WF_INTS(1), &first, sizeof first), *all[3];
  int32_t* drawn = malloc((size_t)length * sizeof *drawn);
  int64_t i;
  if (drawn == NULL) exit(1);
  wf_scan(s, cell, WF_TENSORS(h, symbol), NULL, 0, .outputs = all, .capacity = 3, .length = length);
  wf_try(s, weft_tensor_to_host(all[2], drawn, (size_t)length * sizeof *drawn));
  must(wf_end(s));
  for (i = 0; i < length; ++i) putchar(alphabet[drawn[i]]);
  putchar('\n');
  free(drawn);
  weft_function_release(cell);
}

static unsigned char* read_text(const char* path, long* size) {
  FILE* f = fopen(path, "rb");
  unsigned char* text = NULL;
  if (f != NULL && fseek(f, 0, SEEK_END) == 0 && (*size = ftell(f)) > 2 * TIME && (text = malloc((size_t)*size)) != NULL) {
    rewind(f);
    if (fread(text, 1, (size_t)*size, f) != (size_t)*size) *size = 0;
  }
  if (text == NULL || *size == 0) {
    fprintf(stderr, "characters: %s cannot be read or is too short\n", path);
    exit(1);
  }
  fclose(f);
  return text;
}

int main(int argc, char** argv) {
  static const char USAGE[] =
      "usage: characters TEXT [--steps N] [--length N] [--temperature T]\n\n"
      "  --steps N        of training (400)\n"
      "  --length N       characters to write (400)\n"
      "  --temperature T  below 1: likelier characters (0.7)\n";
  const char* path = NULL;
  model m = {{NULL}, 0.7};
  long steps = 400, length = 400, size = 0, i;
  unsigned char *text, alphabet[256];
  int32_t *symbols, number[256];
  int64_t kinds = 0;
  unsigned seed = 1;
  weft_context* ctx = NULL;
  weft_optimizer* adam = NULL;
  weft_tensor* loss = NULL;
  wf_scope* s;
  double value = 0;
  int a;
  for (a = 1; a < argc; ++a) {
    char* end = NULL;
    const int more = a + 1 < argc;
    if (strcmp(argv[a], "--steps") == 0 && more && (steps = strtol(argv[++a], &end, 10)) > 0 && *end == 0) continue;
    if (strcmp(argv[a], "--length") == 0 && more && (length = strtol(argv[++a], &end, 10)) > 0 && *end == 0) continue;
    if (strcmp(argv[a], "--temperature") == 0 && more && (m.temperature = strtod(argv[++a], &end)) > 0 && *end == 0) continue;
    if (argv[a][0] != '-' && end == NULL && path == NULL) {
      path = argv[a];
      continue;
    }
    break;
  }
  if (a < argc || path == NULL) {
    const int help = a < argc && strcmp(argv[a], "--help") == 0;
    fputs(USAGE, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  text = read_text(path, &size);
  symbols = malloc((size_t)size * sizeof *symbols);
  if (symbols == NULL) return 1;
  memset(number, -1, sizeof number);
  for (i = 0; i < size; ++i) {
    if (number[text[i]] < 0) number[text[i]] = (int32_t)kinds, alphabet[kinds++] = text[i];
    symbols[i] = number[text[i]];
  }

  must(weft_context_create(NULL, &ctx));
  must(weft_random_seed(ctx, seed));
  s = wf_begin(ctx);
  m.p[EMBED] = wf_keep(s, wf_normal(s, WF_INTS(kinds, 3 * HIDDEN), .deviation = 0.5));
  m.p[RECUR] = wf_keep(s, wf_normal(s, WF_INTS(HIDDEN, 3 * HIDDEN), .deviation = 0.09));
  m.p[BIAS] = wf_keep(s, wf_full(s, WF_INTS(3 * HIDDEN), 0));
  m.p[OUT] = wf_keep(s, wf_normal(s, WF_INTS(HIDDEN, kinds), .deviation = 0.09));
  m.p[OUT_BIAS] = wf_keep(s, wf_full(s, WF_INTS(kinds), 0));
  for (i = 0; i < PARAMS; ++i) wf_try(s, weft_tensor_require_grad(m.p[i], 1));
  must(wf_end(s));
  must(weft_adam_create(ctx, m.p, PARAMS, NULL, &adam));
  for (i = 1; i <= steps; ++i) {
    weft_tensor_release(loss);
    loss = step(ctx, &m, adam, symbols, size, &seed);
    if (i % 50 == 0 || i == steps) {
      must(weft_tensor_item_f64(loss, &value));
      printf("step %ld: %.3f bits a character\n", i, value / 0.69314718);
      fflush(stdout);
    }
  }
  putchar('\n');
  sample(ctx, &m, symbols[0], length, alphabet);
  for (i = 0; i < PARAMS; ++i) weft_tensor_release(m.p[i]);
  weft_tensor_release(loss);
  weft_optimizer_release(adam);
  weft_context_release(ctx);
  free(symbols);
  free(text);
  return 0;
}
