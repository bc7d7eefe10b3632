/* A library in the place of libweft.so that writes down each call, and the C program whose calls those of C++ are compared with. */
#include <stdint.h>
#include <stdio.h>

#include "weft.h"

static uintptr_t last = 100;

static weft_tensor* made(const char* call) {
  printf("%s -> %d\n", call, (int)++last);
  return (weft_tensor*)last;
}
static int of(const void* handle) { return (int)(uintptr_t)handle; }

weft_error* weft_tensor_constant_like(weft_tensor* like, double value, weft_tensor** out) {
  char text[80];
  snprintf(text, sizeof text, "constant_like %d %g", of(like), value);
  *out = made(text);
  return NULL;
}
static weft_error* binary(const char* name, weft_context* ctx, weft_tensor* x, weft_tensor* y, weft_tensor** out) {
  char text[80];
  snprintf(text, sizeof text, "%s %d %d %d", name, of(ctx), of(x), of(y));
  *out = made(text);
  return NULL;
}
weft_error* weft_mul(weft_context* ctx, weft_tensor* x, weft_tensor* y, weft_tensor** out) {
  return binary("mul", ctx, x, y, out);
}
weft_error* weft_add(weft_context* ctx, weft_tensor* x, weft_tensor* y, weft_tensor** out) {
  return binary("add", ctx, x, y, out);
}
void weft_tensor_release(weft_tensor* tensor) { printf("release %d\n", of(tensor)); }
void weft_tensor_retain(weft_tensor* tensor) { printf("retain %d\n", of(tensor)); }
weft_error* weft_scope_share(weft_scope* scope, weft_tensor* tensor) {
  printf("share %d %d\n", of(scope), of(tensor));
  return NULL;
}
weft_error* weft_scope_begin(weft_context* ctx, weft_scope** out) {
  (void)ctx;
  *out = (weft_scope*)(uintptr_t)50;
  return NULL;
}
weft_error* weft_scope_end(weft_scope* scope) {
  (void)scope;
  return NULL;
}
void weft_error_release(weft_error* error) {
  if (error != NULL) printf("release error\n");
}
void weft_error_retain(weft_error* error) { (void)error; }
weft_code weft_error_code(const weft_error* error) { return error == NULL ? WEFT_OK : WEFT_UNKNOWN; }
const char* weft_error_message(const weft_error* error, size_t* length) {
  (void)error, (void)length;
  return "";
}
const char* weft_error_payload(const weft_error* error, const char* key, size_t key_length, size_t* length) {
  (void)error, (void)key, (void)key_length, (void)length;
  return NULL;
}
void weft_context_retain(weft_context* context) { (void)context; }
void weft_context_release(weft_context* context) { (void)context; }

/* a + b * 2 as one writes it in C without scopes. */
weft_tensor* in_c(weft_context* ctx, weft_tensor* a, weft_tensor* b) {
  weft_tensor *two, *product, *sum;
  if (weft_tensor_constant_like(b, 2, &two) != NULL) return NULL;
  if (weft_mul(ctx, b, two, &product) != NULL) return NULL;
  weft_tensor_release(two);
  if (weft_add(ctx, a, product, &sum) != NULL) return NULL;
  weft_tensor_release(product);
  return sum;
}
