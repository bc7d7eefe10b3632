// Calls whose arguments must fit each other, hand something over, or go through files: what types do not tell.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "src/c_api/dlpack.h"
#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

// --- Callbacks -----------------------------------------------------------------------------------------------------------

void Ended(void* data) {
  if (data != &g_owed) std::abort();
  g_ended.fetch_add(1);
}
}  // namespace

// For the watchdog's own test; by name in the stacks.
void SleepForEver(void*) {
  while (true) pause();
}

namespace {

// Counts as owed what is handed over.
weft_release_fn Owed(Fuzz& f) {
  if (f.OneIn(3)) return nullptr;
  g_owed.fetch_add(1);
  return Ended;
}

std::atomic<uint64_t> g_logged{0};
void Log(void* data, weft_log_level level, const char* text, size_t length) {
  if (data != &g_owed || level < WEFT_LOG_DEBUG || level > WEFT_LOG_ERROR) std::abort();
  uint64_t sum = 0;
  for (size_t i = 0; i < length; ++i) sum += static_cast<unsigned char>(text[i]);
  g_logged.fetch_add(sum, std::memory_order_relaxed);
}
int32_t Pressure(void*, uint64_t) { return 0; }
void* Allocate(void*, size_t size, size_t alignment) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size == 0 ? 1 : size) == 0 ? memory : nullptr;
}
void Free(void*, void* memory, size_t) { std::free(memory); }

// --- DLPack --------------------------------------------------------------------------------------------------------------

template <typename Managed>
struct Lent {
  Managed managed;
  int64_t dims[4], strides[4];
  void* data;
};

template <typename Managed>
void EndLent(Managed* managed) {
  auto* const lent = static_cast<Lent<Managed>*>(managed->manager_ctx);
  std::free(lent->data);
  delete lent;
  g_ended.fetch_add(1);
}

template <typename Managed>
void Import(Fuzz& f, weft_error* (*import)(weft_context*, Managed*, weft_tensor**)) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  auto* const lent = new Lent<Managed>();
  Managed* const managed = &lent->managed;
  DLTensor& t = managed->dl_tensor;
  const uint32_t dtype = f.DTypeNumber();
  const int rank = f.Roll(4);
  int64_t count = 1, room = 1, stride = 1;  // room: an empty dimension may become terabytes of one element
  for (int i = 0; i < rank; ++i) {
    count *= lent->dims[i] = f.Roll(5);
    room *= std::max<int64_t>(lent->dims[i], 1);
  }
  for (int i = rank; i-- > 0; stride *= lent->dims[i]) lent->strides[i] = stride;
  const int64_t bytes = std::max<int64_t>(BytesOf(dtype, 1), 1);
  // Not always at a multiple of what kernels want.
  lent->data = std::calloc(1, static_cast<size_t>(room * bytes) + 64);
  f.Fill(lent->data, BytesOf(dtype, 1) == 0 ? static_cast<uint32_t>(WEFT_U8) : dtype, count, 0, 0);
  t = {lent->data, {f.Wrong() ? f.Integer() > 1 ? 2 : -1 : c_api::kDLCpu, 0}, rank, {}, lent->dims, f.OneIn(2) ? lent->strides : nullptr, 0};
  t.dtype = {static_cast<uint8_t>(dtype), static_cast<uint8_t>(dtype >> 8), static_cast<uint16_t>(dtype >> 16)};
  if (f.OneIn(4)) t.byte_offset = static_cast<uint64_t>(f.Of({4, 8, 64}));
  managed->manager_ctx = lent;
  managed->deleter = EndLent<Managed>;
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    managed->version = {f.Wrong() ? static_cast<uint32_t>(f.Roll(3)) : 1, 0};
    managed->flags = static_cast<uint64_t>(f.Roll(2));
  }
  if (f.Wrong()) t.ndim = f.Of({-1, 33, INT32_MAX, INT32_MIN});
  if (f.Wrong() && rank > 0) lent->dims[0] = f.Of<int64_t>({-1, INT64_MAX, int64_t{1} << 62});
  if (f.Wrong() && rank > 0 && t.strides != nullptr) {  // terabytes of one element
    lent->dims[0] = int64_t{1} << f.Of({20, 40, 50});
    lent->strides[0] = 0;
  }
  if (f.Wrong()) t.data = nullptr;
  if (f.Wrong()) t.shape = nullptr;
  const bool none = f.Wrong() && f.OneIn(4);
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  g_owed.fetch_add(1);
  const bool ok = f.Leave(import(ctx, none ? nullptr : managed, out));
  if (ok) return f.Keep(out);
  // It stays ours.
  EndLent(managed);
}

template <typename Managed>
void Export(Fuzz& f, weft_error* (*lend)(weft_tensor*, Managed**)) {
  weft_tensor* const tensor = f.Handle<weft_tensor>(false);
  Managed** const out = f.Out<Managed*>(false);
  f.Enter();
  if (!f.Leave(lend(tensor, out))) return;
  Managed* const managed = *out;
  const DLTensor& t = managed->dl_tensor;
  int64_t count = 1;
  for (int32_t i = 0; i < t.ndim; ++i) count *= t.shape[i];
  if (count > 0) {  // the whole of it can be read
    const auto* const bytes = static_cast<const unsigned char*>(t.data) + t.byte_offset;
    const int64_t size = BytesOf(t.dtype.code | static_cast<uint32_t>(t.dtype.bits) << 8 | static_cast<uint32_t>(t.dtype.lanes) << 16, count);
    g_logged.fetch_add(bytes[0] + uint64_t{bytes[size - 1]}, std::memory_order_relaxed);
  }
  if (managed->deleter != nullptr) managed->deleter(managed);
}

}  // namespace

weft_context* MakeContext(Role role, uint64_t dice) {
  const std::string cache = g_settings.folder + "/cache";
  const auto setting = [](const char* name, const char* value) { return weft_setting{name, WEFT_STRLEN, value, WEFT_STRLEN}; };
  const bool cuts = role != Role::kReference && role != Role::kCpu;
  weft_setting all[12] = {setting("threads", "2"), setting("seed", "7")};
  size_t count = 2;
  all[count++] = setting("platform", role == Role::kCpu || (role == Role::kAny && dice % 16 == 0) ? "cpu" : "reference");
  all[count++] = setting("max_pending_nodes", !cuts ? "0" : dice % 2 == 0 ? "30" : "3");
  all[count++] = setting("max_pending_bytes", !cuts ? "0" : "65536");
  all[count++] = setting("repetition_nodes", !cuts ? "0" : "20");
  all[count++] = setting("mode", role == Role::kEager ? "eager" : role == Role::kDebug ? "debug" : "lazy");
  all[count++] = setting("cache_mode", role == Role::kCpu ? "write" : dice % 4 == 1 ? "read" : "off");
  all[count++] = setting("cache_dir", cache.c_str());
  if (role == Role::kAny && dice % 7 == 1) all[count++] = setting(dice % 2 == 0 ? "use_bf16" : "use_32bit_long", "1");
  if (role == Role::kCuts && dice % 2 == 0) all[count++] = setting("callbacks", "queued");
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = all;
  options.setting_count = count;
  if (dice % 3 == 0) {
    g_owed.fetch_add(1);
    options.log = Log, options.log_user_data = &g_owed, options.log_release = Ended;
    options.min_log_level = static_cast<int32_t>(dice / 3 % 4);
  }
  if (dice % 5 == 0) {
    g_owed.fetch_add(1);
    options.pressure = Pressure, options.pressure_user_data = &g_owed, options.pressure_release = Ended;
  }
  weft_context* made = nullptr;
  weft_error* const error = weft_context_create(&options, &made);
  if (error != nullptr) {
    std::printf("FAILED: no context: %s\n", weft_error_message(error, nullptr));
    std::abort();
  }
  return made;
}

namespace {

template <typename New>
void NewError(Fuzz& f, New make) {
  const auto code = static_cast<weft_code>(f.OneOf({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0}));
  const Text wrong = f.DrawText(Words::kKeys);
  const Text text = f.Wrong() ? wrong : Text{"no fault of Weft's", WEFT_STRLEN};
  f.Enter();
  weft_error* const error = make(code, text);
  f.LeaveWith(error != nullptr);
  weft_error_message(error, nullptr);
  weft_error_release(error);
}

}  // namespace

void Call_weft_error_new(Fuzz& f) {
  NewError(f, [](weft_code code, const Text& text) { return weft_error_new(code, text.data, text.length); });
}
void Call_weft_error_new_with_data(Fuzz& f) {
  const auto data = static_cast<uint64_t>(f.Integer());
  NewError(f, [&](weft_code code, const Text& text) {
    weft_error* const error = weft_error_new_with_data(code, text.data, text.length, data);
    uint64_t back = ~data;
    if (weft_error_data(error, &back) != 0 && back != data) f.Complain("weft_error_data gave another number", "");
    return error;
  });
}

void Call_weft_context_create(Fuzz& f) {
  auto* const options = f.Options<weft_context_options>();
  if (options != nullptr) {
    options->mode = static_cast<weft_mode>(f.OneOf({0, 1, 2, 3}));
    options->settings = f.Settings(Words::kOptions, &options->setting_count);
    if (!f.Wrong() || f.OneIn(2)) {
      auto* const valid = static_cast<weft_setting*>(f.Block(2 * sizeof(weft_setting)));
      valid[0] = {"platform", WEFT_STRLEN, "reference", WEFT_STRLEN};
      valid[1] = {"devices", WEFT_STRLEN, f.OneIn(2) ? "4" : "1", WEFT_STRLEN};
      options->settings = valid, options->setting_count = 2;
    }
    const bool readable = options->struct_size >= 16 && options->struct_size <= 65536;
    if (f.OneIn(2)) options->log = Log, options->log_user_data = &g_owed;
    if (f.OneIn(4)) options->pressure = Pressure, options->pressure_user_data = &g_owed;
    if (f.OneIn(6)) options->allocate = Allocate, options->free = f.Wrong() ? nullptr : Free;
    options->log_user_data = options->pressure_user_data = &g_owed;
    // What the library is not told of, it does not end.
    if (readable && options->struct_size >= sizeof *options) options->log_release = Owed(f), options->pressure_release = Owed(f);
  }
  weft_context** const out = f.Out<weft_context*>(false);
  f.Enter();
  if (!f.Leave(weft_context_create(options, out))) return;
  weft_context_release(*out);
}

void Call_weft_context_release(Fuzz& f) {
  weft_context* ctx = f.Handle<weft_context>(true);
  if (!f.IsWhole(ctx)) {
    f.Enter();
    weft_context_release(ctx);
    return f.LeaveVoid();
  }
  f.Enter();
  weft_context_release(ctx);
  f.LeaveVoid();
  f.ReplaceContext();
}

void Call_weft_context_set_log(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const auto level = static_cast<weft_log_level>(f.OneOf({0, 1, 2, 3, 4}));
  const weft_log_fn log = f.OneIn(2) ? Log : nullptr;
  const weft_release_fn release = g_settings.test_hang ? SleepForEver : Owed(f);
  f.Enter();
  f.Leave(weft_context_set_log(ctx, level, log, &g_owed, release));
}

// Elements of a caller's, now and then with something wrong.
struct Elements {
  explicit Elements(Fuzz& f) : dtype(static_cast<weft_dtype>(f.DTypeNumber())), rank(static_cast<size_t>(f.Roll(4))) {
    const int64_t shapes[][3] = {{2, 3, 1}, {4, 2, 2}, {5, 1, 4}, {1, 1, 1}, {0, 3, 2}};
    dims = static_cast<int64_t*>(f.Block(rank * sizeof(int64_t)));
    int64_t count = 1;
    const int64_t* const shape = shapes[f.Roll(5)];
    for (size_t i = 0; i < rank; ++i) count *= dims[i] = shape[i];
    size = static_cast<size_t>(BytesOf(dtype, count));
    data = f.Block(size);
    if (BytesOf(dtype, 1) != 0) f.Fill(data, dtype, count, 0, 0);
    if (f.Wrong() && rank > 0) dims[f.Roll(static_cast<int>(rank))] = f.Of<int64_t>({-1, INT64_MAX, int64_t{1} << 62, INT64_MIN});
    if (f.Wrong()) size = f.Of<size_t>({0, 1, SIZE_MAX, size + 1, size_t{1} << 62});
    if (f.Wrong()) data = nullptr;
    if (f.Wrong()) dims = nullptr;
    if (f.Wrong()) rank = f.Of<size_t>({33, SIZE_MAX, size_t{1} << 62});
  }
  weft_dtype dtype;
  size_t rank, size = 0;
  int64_t* dims = nullptr;
  void* data = nullptr;
};

void Call_weft_tensor_from_host(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_device* const device = f.Handle<weft_device>(true);
  const Elements given(f);
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  if (f.Leave(weft_tensor_from_host(ctx, device, given.dtype, given.dims, given.rank, given.data, given.size, out))) f.Keep(out);
}

void Call_weft_tensor_from_host_sharded(Fuzz& f) {
  weft_mesh* const mesh = f.Handle<weft_mesh>(false);
  const Text spec = f.DrawText(Words::kSpecs);
  const Elements given(f);
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  if (f.Leave(weft_tensor_from_host_sharded(mesh, spec.data, spec.length, given.dtype, given.dims, given.rank, given.data, given.size, out)))
    f.Keep(out);
}

void Call_weft_collective_permute(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor* const x = f.Handle<weft_tensor>(false);
  const Text axis = f.DrawText(Words::kSpecs);
  size_t count = 2 * static_cast<size_t>(f.Roll(4));
  auto* pairs = static_cast<int64_t*>(f.Block(count * sizeof(int64_t)));
  for (size_t i = 0; i < count; ++i) pairs[i] = f.Roll(3);
  if (f.Wrong() && count > 0) pairs[0] = f.Of<int64_t>({-1, INT64_MAX, INT64_MIN, 99});
  if (f.Wrong()) count = f.Of<size_t>({1, SIZE_MAX, size_t{1} << 62});
  if (f.Wrong()) pairs = nullptr;
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  if (f.Leave(weft_collective_permute(ctx, x, axis.data, axis.length, pairs, count, out))) f.Keep(out);
}

void Call_weft_checkpoint_reader_load_box(Fuzz& f) {
  weft_checkpoint_reader* const reader = f.Handle<weft_checkpoint_reader>(false);
  const Text path = f.DrawText(Words::kKeys);
  size_t rank = static_cast<size_t>(f.Roll(4));
  auto* starts = static_cast<int64_t*>(f.Block(rank * sizeof(int64_t)));
  auto* sizes = static_cast<int64_t*>(f.Block(rank * sizeof(int64_t)));
  for (size_t d = 0; d < rank; ++d) starts[d] = f.Roll(2), sizes[d] = f.Roll(3);
  if (f.Wrong() && rank > 0) (f.OneIn(2) ? starts : sizes)[0] = f.Of<int64_t>({-1, INT64_MAX, INT64_MIN, 99});
  if (f.Wrong()) rank = f.Of<size_t>({33, SIZE_MAX, size_t{1} << 62});
  if (f.Wrong()) starts = nullptr;
  if (f.Wrong()) sizes = nullptr;
  weft_device* const device = f.Handle<weft_device>(true);
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  if (f.Leave(weft_checkpoint_reader_load_box(reader, path.data, path.length, starts, sizes, rank, device, out))) f.Keep(out);
}

void Call_weft_checkpoint_reader_load_many(Fuzz& f) {
  weft_checkpoint_reader* const reader = f.Handle<weft_checkpoint_reader>(false);
  const size_t given = static_cast<size_t>(f.Roll(4));
  size_t count = given;
  auto* indices = static_cast<uint64_t*>(f.Block(count * sizeof(uint64_t)));
  for (size_t i = 0; i < count; ++i) indices[i] = static_cast<uint64_t>(f.Roll(2));
  if (f.Wrong() && count > 0) indices[0] = f.Of<uint64_t>({99, UINT64_MAX, uint64_t{1} << 32});
  if (f.Wrong()) count = f.Of<size_t>({SIZE_MAX, size_t{1} << 62});
  if (f.Wrong()) indices = nullptr;
  weft_device* const device = f.Handle<weft_device>(true);
  weft_tensor** out = static_cast<weft_tensor**>(f.Block(std::max<size_t>(1, given) * sizeof(weft_tensor*)));
  if (f.Wrong()) out = nullptr;
  f.Enter();
  if (f.Leave(weft_checkpoint_reader_load_many(reader, indices, count, device, out))) {
    for (size_t i = 0; i < count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
  }
}

void Call_weft_tensor_to_host(Fuzz& f) {
  weft_tensor* const tensor = f.Handle<weft_tensor>(false);
  uint64_t bytes = 0;
  static_cast<void>(f.Helped(weft_tensor_size(tensor, &bytes)));
  size_t size = bytes > (1 << 20) ? 0 : static_cast<size_t>(bytes);
  void* data = f.Block(std::max<size_t>(size, 128));
  if (f.Wrong()) size = f.Of<size_t>({0, 1, 64, 128, SIZE_MAX, size_t{1} << 62});
  if (f.Wrong()) data = nullptr;
  f.Enter();
  f.Leave(weft_tensor_to_host(tensor, data, size));
}

void Call_weft_tensor_to_host_box(Fuzz& f) {
  weft_tensor* const tensor = f.Handle<weft_tensor>(false);
  size_t rank = static_cast<size_t>(f.Roll(4)), size = static_cast<size_t>(4 * f.Roll(4));
  auto *starts = static_cast<int64_t*>(f.Block(4 * sizeof(int64_t))), *sizes = static_cast<int64_t*>(f.Block(4 * sizeof(int64_t)));
  for (size_t i = 0; i < 4; ++i) starts[i] = f.Roll(2), sizes[i] = f.Roll(3);
  void* data = f.Block(128);
  if (f.Wrong()) starts[0] = f.Of<int64_t>({-1, INT64_MAX, INT64_MIN, 99});
  if (f.Wrong()) sizes[0] = f.Of<int64_t>({-1, INT64_MAX, INT64_MIN, 99});
  if (f.Wrong()) rank = f.Of<size_t>({9, SIZE_MAX});
  if (f.Wrong()) size = f.Of<size_t>({1, 128, SIZE_MAX, size_t{1} << 62});
  if (f.Wrong()) f.OneIn(2) ? starts = nullptr : sizes = nullptr;
  if (f.Wrong()) data = nullptr;
  f.Enter();
  f.Leave(weft_tensor_to_host_box(tensor, starts, sizes, rank, data, size));
}

void Call_weft_tensor_from_dlpack(Fuzz& f) { Import<DLManagedTensorVersioned>(f, weft_tensor_from_dlpack); }
void Call_weft_tensor_from_dlpack_legacy(Fuzz& f) { Import<DLManagedTensor>(f, weft_tensor_from_dlpack_legacy); }
void Call_weft_tensor_to_dlpack(Fuzz& f) { Export<DLManagedTensorVersioned>(f, weft_tensor_to_dlpack); }
void Call_weft_tensor_to_dlpack_legacy(Fuzz& f) { Export<DLManagedTensor>(f, weft_tensor_to_dlpack_legacy); }

void Call_weft_scope_mark(Fuzz& f) {
  weft_scope* const scope = f.Handle<weft_scope>(false);
  const char* const file = f.Of<const char*>({"one.c", "two.c", nullptr});  // stays valid
  const auto line = static_cast<int32_t>(f.Integer());
  f.Enter();
  weft_context* const ctx = weft_scope_mark(scope, file, line);
  f.LeaveWith(ctx != nullptr);
  if (ctx == nullptr) return;
  // What it is for: an operation, whose outcome the scope takes.
  weft_tensor* const x = f.Handle<weft_tensor>(false);
  weft_tensor* y = nullptr;
  weft_error* const error = weft_abs(ctx, x, &y);
  weft_tensor* const kept = weft_scope_adopt(scope, error, y);
  if (kept == nullptr) return f.Complain("weft_scope_adopt gave NULL", "");
  if (kept != y) f.KeepPoison(kept);
}

void Call_weft_scope_adopt(Fuzz& f) {
  weft_scope* const scope = f.Handle<weft_scope>(false);
  weft_error* const error = f.OneIn(8) ? weft_error_new(static_cast<weft_code>(1 + f.Roll(16)), "no fault of Weft's", WEFT_STRLEN)
                            : f.Wrong() ? f.Handle<weft_error>(true)
                                        : nullptr;
  weft_tensor* const tensor = f.Wrong() ? f.Handle<weft_tensor>(true) : static_cast<weft_tensor*>(f.Take(Kind::kTensor));
  f.Enter();
  weft_tensor* const kept = weft_scope_adopt(scope, error, tensor);
  f.LeaveWith(kept == tensor);
  if (kept == nullptr && !t_hooks.counts && g_settings.starve == 0) f.Complain("weft_scope_adopt gave NULL", "");
  if (kept != nullptr && kept != tensor) f.KeepPoison(kept);
}

void Call_weft_scope_keep(Fuzz& f) {
  weft_scope* const scope = f.Handle<weft_scope>(false);
  weft_tensor* tensor = f.Handle<weft_tensor>(false);
  if (!f.Wrong() && scope != nullptr) {
    weft_tensor* const made = f.MakeTensor(WEFT_F32, {2, 3});
    weft_tensor_retain(made);
    tensor = weft_scope_adopt(scope, nullptr, made);
    if (tensor != made) f.KeepPoison(tensor);
  }
  weft_tensor** const out = f.Out<weft_tensor*>(false);
  f.Enter();
  if (f.Leave(weft_scope_keep(scope, tensor, out))) f.Keep(out);
}

void Call_weft_scope_end(Fuzz& f) {
  auto* const scope = f.Wrong() ? f.Handle<weft_scope>(true) : static_cast<weft_scope*>(f.Take(Kind::kScope));
  f.Enter();
  f.Leave(weft_scope_end(scope));
  f.Bury(Kind::kScope, scope);
}

// One attribute as weft_op_apply takes it, perhaps in another type.
static weft_attr AttrOf(Fuzz& f, const OpInfo& op, int i) {
  weft_attr a = {};
  a.name = f.Wrong() ? "no_attribute" : op.attr_names[i];
  a.name_length = WEFT_STRLEN;
  switch (op.kinds[i]) {
    case AttrKind::kInt: a.type = WEFT_VALUE_INT, a.i = f.IntAttr(i); break;
    case AttrKind::kDouble: a.type = WEFT_VALUE_DOUBLE, a.d = f.DoubleAttr(i); break;
    case AttrKind::kBool: a.type = WEFT_VALUE_BOOL, a.i = f.BoolAttr(i); break;
    case AttrKind::kDtype: a.type = WEFT_VALUE_DTYPE, a.i = f.DTypeAttr(i); break;
    case AttrKind::kEnum: a.type = WEFT_VALUE_ENUM, a.i = f.EnumAttr(i); break;
    case AttrKind::kInts: {
      const int64_t* data = nullptr;
      f.Ints(i, &data, &a.count);
      a.type = WEFT_VALUE_INTS, a.data = data;
      break;
    }
    case AttrKind::kDoubles: {
      const double* data = nullptr;
      f.Doubles(i, &data, &a.count);
      a.type = WEFT_VALUE_DOUBLES, a.data = data;
      break;
    }
    case AttrKind::kString: {
      const char* data = nullptr;
      f.TextAttr(i, &data, &a.count);
      a.type = WEFT_VALUE_TEXT, a.data = data;
      break;
    }
    default: a.type = WEFT_VALUE_NONE;
  }
  // Another type has no data that it could be read as.
  if (f.Wrong()) a.type = static_cast<weft_value_type>(f.Of({0, 1, 2, 3, 4, 5, 9, -1, INT32_MAX})), a.data = nullptr;
  return a;
}

namespace {

// A call of some operation by name.
struct Applied {
  const OpInfo* op = nullptr;
  Text name = {};
  weft_tensor** inputs = nullptr;  // null where the count lies
  size_t input_count = 0;
  weft_attr* attrs = nullptr;
  size_t attr_count = 0;
};

Applied DrawApplied(Fuzz& f) {
  Applied a;
  a.op = &kOps[f.Roll(static_cast<int>(kOpCount))];
  f.BeginOp(*a.op);
  a.input_count = static_cast<size_t>(f.sample_ != nullptr ? f.sample_->operand_count : a.op->operand_count);
  a.inputs = static_cast<weft_tensor**>(f.Block(a.input_count * sizeof(weft_tensor*)));
  for (size_t i = 0; i < a.input_count; ++i) a.inputs[i] = f.Operand(static_cast<int>(i));
  if (f.Wrong() && f.OneIn(3)) a.inputs = nullptr, a.input_count = f.Of<size_t>({1, SIZE_MAX});
  a.attrs = static_cast<weft_attr*>(f.Block(static_cast<size_t>(a.op->attr_count + 1) * sizeof(weft_attr)));
  for (int i = 0; i < a.op->attr_count; ++i) {
    if (f.Given(i) || !f.OneIn(3)) a.attrs[a.attr_count++] = AttrOf(f, *a.op, i);
  }
  if (a.attr_count > 0 && f.Wrong()) a.attrs[a.attr_count] = a.attrs[0], ++a.attr_count;  // twice
  a.name = {f.OneIn(2) ? a.op->c_name : a.op->name, WEFT_STRLEN};
  if (f.Wrong() && f.OneIn(3)) a.name = f.DrawText(Words::kKeys);
  if (f.Wrong() && f.OneIn(3)) a.attrs = nullptr, a.attr_count = f.Of<size_t>({1, SIZE_MAX});
  return a;
}

}  // namespace

void Call_weft_op_apply(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const Applied a = DrawApplied(f);
  size_t capacity = 0;
  weft_tensor** outputs = f.OutArray<weft_tensor*>(&capacity);
  size_t* const count = f.Out<size_t>(false);
  f.Enter();
  if (!f.Leave(weft_op_apply(ctx, a.name.data, a.name.length, a.inputs, a.input_count, a.attrs, a.attr_count, outputs, capacity,
                             count)))
    return;
  for (size_t i = 0; i < *count; ++i) f.KeepHandle(Kind::kTensor, outputs[i]);
}

void Call_weft_op_apply_on(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_device* const device = f.Handle<weft_device>(true);
  const Applied a = DrawApplied(f);
  size_t capacity = 0;
  weft_tensor** outputs = f.OutArray<weft_tensor*>(&capacity);
  auto* const infos = f.OneIn(2) ? static_cast<weft_tensor_info*>(f.Block(capacity * sizeof(weft_tensor_info))) : nullptr;
  size_t* const count = f.Out<size_t>(false);
  f.Enter();
  if (!f.Leave(weft_op_apply_on(ctx, device, a.name.data, a.name.length, a.inputs, a.input_count, a.attrs, a.attr_count, outputs,
                                infos, capacity, count)))
    return;
  for (size_t i = 0; i < *count; ++i) f.KeepHandle(Kind::kTensor, outputs[i]);
}

void Call_weft_op_apply_in(Fuzz& f) {
  weft_scope* const scope = f.Handle<weft_scope>(false);
  const char* const file = f.Of<const char*>({"one.c", "two.c", nullptr});  // stays valid
  const auto line = static_cast<int32_t>(f.Integer());
  weft_device* const device = f.Handle<weft_device>(true);
  const Applied a = DrawApplied(f);
  size_t capacity = 0;
  weft_tensor** outputs = f.OutArray<weft_tensor*>(&capacity);
  auto* const infos = f.OneIn(2) ? static_cast<weft_tensor_info*>(f.Block(capacity * sizeof(weft_tensor_info))) : nullptr;
  size_t* const count = f.Out<size_t>(false);
  f.Enter();
  if (!f.Leave(weft_op_apply_in(scope, file, line, device, a.name.data, a.name.length, a.inputs, a.input_count, a.attrs,
                                a.attr_count, outputs, infos, capacity, count)))
    return;
  for (size_t i = 0; i < *count; ++i) f.KeepHandle(Kind::kTensor, outputs[i]);
}

// One drawn operation, and others on its results.
void Call_weft_op_apply_many(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const Applied a = DrawApplied(f);
  const size_t call_count = static_cast<size_t>(1 + f.Roll(3));
  auto* calls = static_cast<weft_op_call*>(f.Block(call_count * sizeof(weft_op_call)));
  const size_t shown = a.inputs != nullptr ? a.input_count : 0;
  auto* first = static_cast<weft_op_input*>(f.Block((shown + 1) * sizeof(weft_op_input)));
  for (size_t i = 0; i < shown; ++i) first[i].tensor = a.inputs[i];
  for (size_t c = 0; c < call_count; ++c) {
    weft_op_call& call = calls[c];
    if (f.Wrong() && f.OneIn(3)) call.reserved = 1;
    call.drop = f.Of<int32_t>({0, 0, 1});
    if (f.Wrong()) call.device = f.Handle<weft_device>(true);
    if (c == 0) {
      call.name = a.name.data, call.name_length = a.name.length;
      call.inputs = a.inputs != nullptr ? first : nullptr, call.input_count = a.input_count;
      call.attrs = a.attrs, call.attr_count = a.attr_count;
      continue;
    }
    auto* inputs = static_cast<weft_op_input*>(f.Block(2 * sizeof(weft_op_input)));
    for (size_t i = 0; i < 2; ++i) {
      inputs[i].is_result = 1;
      inputs[i].call = f.Wrong() ? static_cast<uint64_t>(f.Integer()) : c - 1;
      inputs[i].result = f.Wrong() ? static_cast<uint32_t>(f.Integer()) : 0;
      if (f.Wrong() && f.OneIn(3)) inputs[i].tensor = f.Handle<weft_tensor>(false);
    }
    call.name = f.OneIn(2) ? "maximum" : "stop_gradient", call.name_length = WEFT_STRLEN;
    call.inputs = inputs, call.input_count = call.name[0] == 'm' ? 2 : 1;
  }
  const size_t count_said = f.Wrong() && f.OneIn(3) ? 0 : call_count;
  if (f.Wrong() && f.OneIn(3)) calls = nullptr;
  size_t capacity = 0;
  weft_tensor** outputs = f.OutArray<weft_tensor*>(&capacity);
  auto* const infos = f.OneIn(2) ? static_cast<weft_tensor_info*>(f.Block(capacity * sizeof(weft_tensor_info))) : nullptr;
  size_t* const count = f.Out<size_t>(false);
  f.Enter();
  if (!f.Leave(weft_op_apply_many(ctx, calls, count_said, outputs, infos, capacity, count))) return;
  for (size_t i = 0; i < *count; ++i) f.KeepHandle(Kind::kTensor, outputs[i]);
}

// With the operation's own result as cotangent, whose type is right, or with none that flows.
void Call_weft_op_vjp(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const Applied a = DrawApplied(f);
  weft_tensor* made[4] = {};
  size_t made_count = 0;
  static_cast<void>(f.Helped(weft_op_apply(f.Context(), a.op->c_name, WEFT_STRLEN, a.inputs, a.inputs != nullptr ? a.input_count : 0,
                                           a.attrs, a.attrs != nullptr ? a.attr_count : 0, made, 4, &made_count)));
  size_t result_count = made_count;
  weft_tensor** results = f.OneIn(2) ? made : nullptr;
  weft_tensor** cotangents = static_cast<weft_tensor**>(f.Block(4 * sizeof(weft_tensor*)));
  for (size_t i = 0; i < made_count; ++i) cotangents[i] = f.Wrong() ? f.Handle<weft_tensor>(true) : made[i];
  if (f.Wrong() && f.OneIn(3)) result_count = static_cast<size_t>(f.Roll(5));
  if (f.Wrong() && f.OneIn(3)) cotangents = nullptr;
  const size_t shown = a.inputs != nullptr ? a.input_count : 0;
  auto* const wanted = f.OneIn(2) ? static_cast<int32_t*>(f.Block(shown * sizeof(int32_t))) : nullptr;
  for (size_t i = 0; wanted != nullptr && i < shown; ++i) wanted[i] = f.Of<int32_t>({0, 1, 1});
  auto** out = f.Wrong() && f.OneIn(3) ? nullptr : static_cast<weft_tensor**>(f.Block((shown + 1) * sizeof(weft_tensor*)));
  f.Enter();
  if (f.Leave(weft_op_vjp(ctx, a.name.data, a.name.length, a.inputs, a.input_count, a.attrs, a.attr_count, results, cotangents,
                          result_count, shown == a.input_count ? wanted : nullptr, out))) {
    for (size_t i = 0; i < shown; ++i) {
      if (out[i] != nullptr) f.KeepHandle(Kind::kTensor, out[i]);
    }
  }
  for (weft_tensor* tensor : made) weft_tensor_release(tensor);
}

namespace {

weft_tensor* DrawCut(Fuzz& f) { return f.Wrong() ? f.Handle<weft_tensor>(false) : f.MakeTensor(WEFT_F32, {2, 3}); }

}  // namespace

void Call_weft_split(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor* const x = DrawCut(f);
  size_t count = 2;
  auto* sizes = static_cast<int64_t*>(f.Block(2 * sizeof(int64_t)));
  const int64_t axis = f.Wrong() ? f.Integer() : 1;
  sizes[0] = f.Wrong() ? f.Integer() : f.Roll(4);
  sizes[1] = 3 - (sizes[0] & 3);
  if (f.Wrong() && f.OneIn(3)) sizes = nullptr, count = f.Of<size_t>({1, SIZE_MAX});
  auto** const out = f.Wrong() && f.OneIn(3) ? nullptr : static_cast<weft_tensor**>(f.Block(2 * sizeof(weft_tensor*)));
  f.Enter();
  if (!f.Leave(weft_split(ctx, x, sizes, count, axis, out))) return;
  for (size_t i = 0; i < count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
}

void Call_weft_position_mark_stack(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  size_t count = f.OneIn(3) ? 0 : static_cast<size_t>(f.Roll(4));
  weft_frame* frames = nullptr;
  if (f.Wrong() && f.OneIn(3)) {
    count = f.Of<size_t>({1, SIZE_MAX, size_t{1} << 60});
  } else if (count > 0) {
    frames = static_cast<weft_frame*>(f.Block(count * sizeof(weft_frame)));
    for (size_t i = 0; i < count; ++i) {
      const Text function = f.DrawText(Words::kKeys), file = f.DrawText(Words::kFiles);
      frames[i] = {function.data, function.length, file.data, file.length, static_cast<int32_t>(f.Integer()), 0};
    }
  }
  f.Enter();
  f.Leave(weft_position_mark_stack(ctx, frames, count));
}

// The key of a program that the context has in memory, mostly: by chance none is right.
void Call_weft_program_report(Fuzz& f) {
  auto* const ctx = f.Handle<weft_context>(false);
  const Text drawn = f.DrawText(Words::kKeys);
  char key[16];
  weft_blob* list = nullptr;
  bool known = false;
  if (!f.Wrong() && f.Helped(weft_program_list(ctx, &list))) {
    const std::string_view text(static_cast<const char*>(weft_blob_data(list)), weft_blob_size(list));
    constexpr std::string_view kBefore = "\"key\": \"";
    const size_t at = text.find(kBefore);
    known = at != std::string_view::npos && at + kBefore.size() + sizeof key <= text.size();
    if (known) std::memcpy(key, text.data() + at + kBefore.size(), sizeof key);
    weft_blob_release(list);
  }
  const auto format = static_cast<weft_text_format>(f.OneOf({0, 1, 2, 3, 4, 5, 6, 7}));
  auto* const out = f.Out<weft_blob*>(false);
  f.Enter();
  if (f.Leave(weft_program_report(ctx, known ? key : drawn.data, known ? sizeof key : drawn.length, format, out))) f.Keep(out);
}

// Jobs of one, or of numbers that make none: of others it would wait for processes that never come.
weft_job_options* DrawnJob(Fuzz& f) {
  auto* const options = f.Options<weft_job_options>();
  if (options == nullptr) return nullptr;
  options->size = f.Wrong() ? f.Of<int32_t>({-1, 1, INT32_MIN}) : 1;
  options->rank = f.Wrong() ? f.Of<int32_t>({-1, 1, INT32_MAX}) : 0;
  options->local_size = f.Wrong() ? static_cast<int32_t>(f.Integer()) : 0;
  options->timeout_ms = f.Wrong() ? f.Integer() : f.Roll(1000);
  const Text id = f.DrawText(Words::kKeys), token = f.DrawText(Words::kKeys);
  options->id = id.data, options->id_length = id.length;
  options->token = token.data, options->token_length = token.length;
  return options;
}

void Call_weft_job_join(Fuzz& f) {
  auto* const options = DrawnJob(f);
  auto* const out = f.Out<weft_job*>(false);
  f.Enter();
  if (f.Leave(weft_job_join(options, out))) f.KeepHandle(Kind::kJob, *out);
}

void Call_weft_job_find(Fuzz& f) {
  auto* const options = DrawnJob(f);
  auto* const out = f.Out<weft_blob*>(false);
  f.Enter();
  if (f.Leave(weft_job_find(options, out))) f.KeepHandle(Kind::kBlob, *out);
}

}  // namespace weft::fuzz
