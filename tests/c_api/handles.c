/* Handles: null, foreign, stale, twice released, of another kind; errors, blobs and options structs. */
#include "check.h"

static void errors_and_blobs(void) {
  weft_error* e = weft_error_new(WEFT_NOT_FOUND, "no such thing", WEFT_STRLEN);
  size_t length = 0;
  CHECK_EQUAL(weft_error_code(e), WEFT_NOT_FOUND);
  CHECK_TEXT(weft_error_message(e, &length), "no such thing");
  CHECK_EQUAL(length, 13);
  CHECK(weft_error_payload(e, "weft.operation", WEFT_STRLEN, NULL) == NULL);
  weft_error_retain(e);
  weft_error_release(e);
  CHECK_EQUAL(weft_error_code(e), WEFT_NOT_FOUND);
  weft_error_release(e);
  CHECK_EQUAL(weft_error_code(e), WEFT_INVALID_ARGUMENT);
  CHECK_TEXT(weft_error_message(e, &length), "this is no live weft_error");
  CHECK_EQUAL(weft_error_code(NULL), WEFT_OK);
  CHECK_TEXT(weft_error_message(NULL, NULL), "");
  weft_error_release(NULL);
  FAILS(weft_error_new((weft_code)99, "odd", 3), WEFT_UNKNOWN, "code 99: odd");
  INVALID(weft_error_new(WEFT_ABORTED, "\xff", 1), "message is not UTF-8");
  INVALID(weft_error_new(WEFT_ABORTED, NULL, 5), "message is NULL");
  CHECK(weft_blob_data(NULL) == NULL);
  CHECK_EQUAL(weft_blob_size(NULL), 0);
}

static void wrong_handles(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(2, 3));
  weft_tensor* stale;
  size_t rank = 77;
  const int64_t bad = metric(ctx, "bad_releases");
  INVALID(weft_tensor_rank(NULL, &rank), "tensor is NULL; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)ctx, &rank), "tensor is a weft_context; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)&rank, &rank), "tensor is no handle of this library; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)(uintptr_t)0x123456789abcdef0u, &rank),
          "tensor is no handle of this library; a weft_tensor is needed");
  INVALID(weft_tensor_rank(t, NULL), "out_rank is NULL");
  CHECK_EQUAL(rank, 77); /* out-parameters are untouched after an error */
  weft_tensor_retain(t);
  weft_tensor_release(t);
  OK(weft_tensor_rank(t, &rank));
  CHECK_EQUAL(rank, 2);
  stale = t;
  weft_tensor_release(t);
  INVALID(weft_tensor_rank(stale, &rank), "tensor is a weft_tensor that has been released");
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad);
  weft_tensor_release(stale); /* twice: counted, ignored */
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad + 1);
  weft_tensor_release((weft_tensor*)ctx); /* another kind: counted, ignored */
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad + 2);
  t = ramp(ctx, DIMS(4)); /* takes the slot of the stale one, which stays stale */
  INVALID(weft_tensor_rank(stale, &rank), "tensor is a weft_tensor that has been released");
  weft_tensor_release(t);
  weft_context_release(ctx);
  INVALID(weft_device_count(ctx, &rank), "ctx is a weft_context that has been released");
}

static void options_structs(void) {
  struct {
    weft_context_options known;
    unsigned char more[16];
  } longer;
  weft_context_options o;
  weft_context* ctx = NULL;
  weft_setting setting = {"mode", WEFT_STRLEN, "sideways", WEFT_STRLEN};
  memset(&o, 0xAB, sizeof o);
  weft_context_options_init(&o, sizeof o);
  CHECK_EQUAL(o.struct_size, sizeof o);
  CHECK(o.next == NULL && o.setting_count == 0 && o.pressure_release == NULL);
  o.struct_size = 0;
  INVALID(weft_context_create(&o, &ctx),
          "weft_context_options.struct_size is 0; start from its _INIT macro or its _init function");
  memset(&longer, 0, sizeof longer);
  longer.known.struct_size = sizeof longer;
  MUST(weft_context_create((weft_context_options*)&longer, &ctx)); /* a newer caller whose new fields are zero */
  weft_context_release(ctx);
  longer.more[3] = 1;
  FAILS(weft_context_create((weft_context_options*)&longer, &ctx), WEFT_UNIMPLEMENTED,
        "weft_context_options of 136 bytes sets something at offset 123; this version of Weft knows the first 120 bytes");
  weft_context_options_init(&o, sizeof o);
  o.struct_size = 24; /* an older caller, who knows the first fields only */
  o.setting_count = 99;
  MUST(weft_context_create(&o, &ctx));
  weft_context_release(ctx);
  weft_context_options_init(&o, sizeof o);
  o.next = &o;
  FAILS(weft_context_create(&o, &ctx), WEFT_UNIMPLEMENTED,
        "weft_context_options.next is not NULL; this version knows no extensions of it");
  weft_context_options_init(&o, sizeof o);
  o.settings = &setting;
  o.setting_count = 1;
  INVALID(weft_context_create(&o, &ctx), "option mode: 'sideways' is not one of lazy, eager, debug");
  setting.name = "speed";
  FAILS(weft_context_create(&o, &ctx), WEFT_NOT_FOUND,
        "there is no option 'speed'; there are mode, platform, seed, isa, threads, max_pending_nodes, max_pending_bytes, "
        "repetition_nodes, cache_mode, cache_dir, cache_max_bytes, verify_between_passes, log, hash_bits");
  setting.name = "seed";
  setting.value = "-3";
  INVALID(weft_context_create(&o, &ctx), "option seed: '-3' is not a number of 0 or more");
  INVALID(weft_context_create(NULL, NULL), "out is NULL");
}

static void doors(void) {
  const weft_api_v1* api = weft_get_api(1);
  weft_proc proc = weft_get_proc("weft_tensor_rank", WEFT_STRLEN);
  CHECK(api != NULL && api->struct_size == sizeof(weft_api_v1));
  CHECK(weft_get_api(2) == NULL && weft_get_api(0) == NULL);
  CHECK_EQUAL(weft_abi_version() >> 16, WEFT_ABI_MAJOR);
  CHECK_EQUAL(weft_abi_version() & 0xFFFF, WEFT_ABI_MINOR);
  CHECK(strlen(weft_release_version()) >= 5);
  CHECK(proc == (weft_proc)weft_tensor_rank);
  CHECK(api->tensor_rank == weft_tensor_rank);
  CHECK(weft_get_proc("weft_add", 8) == (weft_proc)weft_add);
  CHECK(weft_get_proc("weft_addition", 8) == (weft_proc)weft_add); /* the length counts, not the NUL */
  CHECK(weft_get_proc("weft_nothing", WEFT_STRLEN) == NULL && weft_get_proc(NULL, 0) == NULL);
}

int main(void) {
  errors_and_blobs();
  wrong_handles();
  options_structs();
  doors();
  return done("handles");
}
