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
  INVALID(weft_error_new(WEFT_ABORTED, "\xff", 1), "weft_error_new: message is not UTF-8");
  INVALID(weft_error_new(WEFT_ABORTED, NULL, 5), "weft_error_new: message is NULL");
  CHECK(weft_blob_data(NULL) == NULL);
  CHECK_EQUAL(weft_blob_size(NULL), 0);
}

static void wrong_handles(void) {
  weft_context* ctx = new_context();
  weft_tensor* t = ramp(ctx, DIMS(2, 3));
  weft_tensor* stale;
  size_t rank = 77;
  const int64_t bad = metric(ctx, "bad_releases");
  INVALID(weft_tensor_rank(NULL, &rank), "weft_tensor_rank: tensor is NULL; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)ctx, &rank), "weft_tensor_rank: tensor is a weft_context; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)&rank, &rank), "weft_tensor_rank: tensor is no handle of this library; a weft_tensor is needed");
  INVALID(weft_tensor_rank((weft_tensor*)(uintptr_t)0x123456789abcdef0u, &rank),
          "weft_tensor_rank: tensor is no handle of this library; a weft_tensor is needed");
  INVALID(weft_tensor_rank(t, NULL), "weft_tensor_rank: out_rank is NULL");
  CHECK_EQUAL(rank, 77); /* out-parameters are untouched after an error */
  weft_tensor_retain(t);
  weft_tensor_release(t);
  OK(weft_tensor_rank(t, &rank));
  CHECK_EQUAL(rank, 2);
  stale = t;
  weft_tensor_release(t);
  INVALID(weft_tensor_rank(stale, &rank), "weft_tensor_rank: tensor is a weft_tensor that has been released");
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad);
  weft_tensor_release(stale); /* twice: counted, ignored */
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad + 1);
  weft_tensor_release((weft_tensor*)ctx); /* another kind: counted, ignored */
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad + 2);
  t = ramp(ctx, DIMS(4)); /* takes the slot of the stale one, which stays stale */
  INVALID(weft_tensor_rank(stale, &rank), "weft_tensor_rank: tensor is a weft_tensor that has been released");
  weft_tensor_release(t);
  weft_context_release(ctx);
  INVALID(weft_device_count(ctx, &rank), "weft_device_count: ctx is a weft_context that has been released");
}

/* Every kind: NULL, released, of another kind, of another context; releasing twice is counted and harms nothing. */
static void every_kind_of_handle(void) {
  weft_context *ctx = new_context(), *other = new_context();
  weft_tensor *t = ramp(ctx, DIMS(2)), *theirs = ramp(other, DIMS(2)), *out = NULL;
  weft_device *device = NULL, *foreign = NULL;
  weft_event* event = NULL;
  weft_blob* blob = NULL;
  weft_tree* tree = NULL;
  weft_optimizer* opt = NULL;
  weft_cache* cache = NULL;
  weft_scope* scope = NULL;
  const char* name = NULL;
  size_t length = 0;
  uint32_t node = 0;
  int32_t happened = 0;
  char text[200];
  const int64_t bad = metric(ctx, "bad_releases");
  MUST(weft_device_at(ctx, 0, &device));
  MUST(weft_device_at(other, 0, &foreign));
  MUST(weft_sync(ctx, NULL, &event));
  MUST(weft_tensor_to_string(t, NULL, &blob));
  MUST(weft_tree_create(&tree));
  MUST(weft_tensor_require_grad(t, 1));
  MUST(weft_sgd_create(ctx, &t, 1, NULL, &opt));
  MUST(weft_context_cache(ctx, &cache));
  MUST(weft_scope_begin(ctx, &scope));

  INVALID(weft_device_name(NULL, &name, NULL), "weft_device_name: device is NULL; a weft_device is needed");
  INVALID(weft_event_poll(NULL, &happened), "weft_event_poll: event is NULL; a weft_event is needed");
  INVALID(weft_tree_size(NULL, 0, &node), "weft_tree_size: tree is NULL; a weft_tree is needed");
  INVALID(weft_optimizer_step(NULL, &t, 1, 0.1), "weft_optimizer_step: optimizer is NULL; a weft_optimizer is needed");
  INVALID(weft_cache_flush(NULL), "weft_cache_flush: cache is NULL; a weft_cache is needed");
  INVALID(weft_scope_check(NULL), "weft_scope_check: scope is NULL; a weft_scope is needed");
  INVALID(weft_device_name((weft_device*)event, &name, NULL), "weft_device_name: device is a weft_event; a weft_device is needed");
  INVALID(weft_event_poll((weft_event*)tree, &happened), "weft_event_poll: event is a weft_tree; a weft_event is needed");
  INVALID(weft_tree_size((weft_tree*)t, 0, &node), "weft_tree_size: tree is a weft_tensor; a weft_tree is needed");
  INVALID(weft_optimizer_step((weft_optimizer*)cache, &t, 1, 0.1), "weft_optimizer_step: optimizer is a weft_cache; a weft_optimizer is needed");
  INVALID(weft_cache_flush((weft_cache*)opt), "weft_cache_flush: cache is a weft_optimizer; a weft_cache is needed");
  INVALID(weft_scope_check((weft_scope*)blob), "weft_scope_check: scope is a weft_blob; a weft_scope is needed");

  MUST(weft_device_name(foreign, &name, NULL));
  snprintf(text, sizeof text, "weft_sync: device %s belongs to another context", name);
  INVALID(weft_sync(ctx, foreign, NULL), text);
  snprintf(text, sizeof text, "weft_idx_read: device %s belongs to another context", name);
  INVALID(weft_idx_read(ctx, "/nonexistent", WEFT_STRLEN, foreign, &out), text);
  snprintf(text, sizeof text, "weft_checkpoint_load: device %s belongs to another context", name);
  INVALID(weft_checkpoint_load(ctx, "/nonexistent", WEFT_STRLEN, foreign, &tree), text);
  INVALID(weft_sgd_create(ctx, &theirs, 1, NULL, &opt), "weft_sgd_create: params[0] belongs to another context");
  INVALID(weft_optimizer_step(opt, &theirs, 1, 0.1), "weft_optimizer_step: grads[0] belongs to another context");
  INVALID(weft_scope_keep(scope, theirs, &out), "weft_scope_keep: the scope does not own this tensor");
  INVALID(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, NULL, &node), "weft_tree_add_tensor: value is NULL; a weft_tensor is needed");
  MUST(weft_tree_add_tensor(tree, WEFT_TREE_ROOT, "w", WEFT_STRLEN, theirs, &node));
  INVALID(weft_checkpoint_save(ctx, "/nonexistent/x.ckpt", WEFT_STRLEN, tree, NULL, NULL), "weft_checkpoint_save: tensor 'w' of the tree belongs to another context");

  weft_device_release(foreign), weft_device_release(foreign);
  weft_device_release(device), weft_device_release(device);
  weft_event_release(event), weft_event_release(event);
  weft_blob_release(blob), weft_blob_release(blob);
  weft_tree_release(tree), weft_tree_release(tree);
  weft_optimizer_release(opt), weft_optimizer_release(opt);
  weft_cache_release(cache), weft_cache_release(cache);
  OK(weft_scope_end(scope));
  CHECK_EQUAL(metric(ctx, "bad_releases"), bad + 7);
  INVALID(weft_device_name(device, &name, &length), "weft_device_name: device is a weft_device that has been released");
  INVALID(weft_event_poll(event, &happened), "weft_event_poll: event is a weft_event that has been released");
  CHECK(weft_blob_data(blob) == NULL);
  INVALID(weft_tree_size(tree, 0, &node), "weft_tree_size: tree is a weft_tree that has been released");
  INVALID(weft_optimizer_step(opt, &t, 1, 0.1), "weft_optimizer_step: optimizer is a weft_optimizer that has been released");
  INVALID(weft_cache_flush(cache), "weft_cache_flush: cache is a weft_cache that has been released");
  INVALID(weft_scope_check(scope), "weft_scope_check: scope is a weft_scope that has been released");
  CHECK(out == NULL);
  weft_tensor_release(theirs);
  weft_context_release(other);
  weft_context_release(ctx);
  weft_tensor_release(t);
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
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option mode: 'sideways' is not one of lazy, eager, debug");
  setting.name = "speed";
  FAILS(weft_context_create(&o, &ctx), WEFT_NOT_FOUND,
        "weft_context_create: there is no option 'speed'; did you mean 'seed'? weft_option_list names all");
  setting.name = "cache_dir";
  setting.value = "/tmp/a\0b";
  setting.value_length = 8;
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option cache_dir: '/tmp/a\\0b' has a NUL inside");
  setting.value_length = WEFT_STRLEN;
  setting.name = "seed";
  setting.value = "-3";
  INVALID(weft_context_create(&o, &ctx), "weft_context_create: option seed: '-3' is not a number of 0 or more");
  INVALID(weft_context_create(NULL, NULL), "weft_context_create: out is NULL");
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
  {
    static char one[1] = {'z'}; /* a length that nobody can mean is not read: AddressSanitizer says */
    CHECK(weft_get_proc(one, (size_t)-2) == NULL && weft_get_proc(one, (size_t)1 << 62) == NULL);
  }
}

int main(void) {
  errors_and_blobs();
  wrong_handles();
  every_kind_of_handle();
  options_structs();
  doors();
  return done("handles");
}
