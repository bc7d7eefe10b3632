// What the call of a custom operation costs beside libffi's own, turn by turn: a function of elements over a million of them, and one
// of buffers in every run of a loop, less the same loop with an operation of Weft's. The limit is 0.2 us a call.
#include <dlfcn.h>
#include <ffi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bench_util.h"
#include "weft.h"

namespace {

constexpr int kRounds = 9;
constexpr char kHelp[] =
    "usage: custom_call [--json] [--quick] [--help]\n"
    "  --json           one JSON array instead of lines\n"
    "  --quick          20,000 calls a round instead of a million\n";

void Must(weft_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "custom_call: %s\n", weft_error_message(error, nullptr));
  std::exit(1);
}

double Element(double x, int* sign) {
  *sign = x < 0;
  return -x;
}
void Buffer(const double* x, size_t n, double* y) {
  for (size_t i = 0; i < n; ++i) y[i] = -x[i];
}

// libffi as this process finds it: what is in libweft.so is nobody else's.
struct Ffi {
  decltype(&ffi_prep_cif) prep;
  decltype(&ffi_call) call;
  ffi_type *real, *pointer, *size, *nothing;
};
Ffi g_ffi;

template <typename T>
void Find(void* library, const char* name, T** out) {
  *out = reinterpret_cast<T*>(dlsym(library, name));
  if (*out == nullptr) std::fprintf(stderr, "custom_call: libffi.so.8 has no %s\n", name), std::exit(1);
}
void LoadFfi() {
  void* const library = dlopen("libffi.so.8", RTLD_NOW);
  if (library == nullptr) std::fprintf(stderr, "custom_call: libffi.so.8 is not installed\n"), std::exit(1);
  Find(library, "ffi_prep_cif", &g_ffi.prep);
  Find(library, "ffi_call", &g_ffi.call);
  Find(library, "ffi_type_double", &g_ffi.real);
  Find(library, "ffi_type_pointer", &g_ffi.pointer);
  Find(library, "ffi_type_uint64", &g_ffi.size);
  Find(library, "ffi_type_void", &g_ffi.nothing);
}

double FfiElements(const std::vector<double>& x, std::vector<double>& y, std::vector<int>& signs) {
  ffi_type* types[] = {g_ffi.real, g_ffi.pointer};
  ffi_cif cif;
  g_ffi.prep(&cif, FFI_DEFAULT_ABI, 2, g_ffi.real, types);
  const auto start = bench::Clock::now();
  for (size_t i = 0; i < x.size(); ++i) {
    int* sign = &signs[i];
    void* values[] = {const_cast<double*>(&x[i]), &sign};
    g_ffi.call(&cif, FFI_FN(&Element), &y[i], values);
  }
  return bench::Since(start);
}
double FfiBuffers(size_t count) {
  ffi_type* types[] = {g_ffi.pointer, g_ffi.size, g_ffi.pointer};
  double x[2] = {1, 2}, y[2], *in = x, *out = y;
  uint64_t n = 2, nothing = 0;
  void* values[] = {&in, &n, &out};
  ffi_cif cif;
  g_ffi.prep(&cif, FFI_DEFAULT_ABI, 3, g_ffi.nothing, types);
  const auto start = bench::Clock::now();
  for (size_t i = 0; i < count; ++i) g_ffi.call(&cif, FFI_FN(&Buffer), &nothing, values);
  return bench::Since(start);
}

double Eval(weft_context* ctx, weft_tensor** outputs, size_t count) {
  weft_event* event = nullptr;
  const auto start = bench::Clock::now();
  Must(weft_eval(ctx, outputs, count, &event));
  Must(weft_event_wait(event, WEFT_WAIT_FOREVER));
  const double took = bench::Since(start);
  weft_event_release(event);
  for (size_t i = 0; i < count; ++i) weft_tensor_release(outputs[i]);
  return took;
}
double WeftElements(weft_context* ctx, weft_tensor* x) {
  weft_tensor* out[2];
  size_t count = 0;
  Must(weft_custom_apply(ctx, "element", WEFT_STRLEN, &x, 1, out, 2, &count));
  return Eval(ctx, out, 2);
}
double Loop(weft_context* ctx, weft_function* body, weft_tensor* times, weft_tensor* x) {
  weft_tensor* out = nullptr;
  Must(weft_for(ctx, times, body, &x, 1, nullptr, &out));
  return Eval(ctx, &out, 1);
}

weft_error* CustomBody(void*, weft_context* body, weft_tensor* const* in, size_t, weft_tensor** out, size_t, size_t* count) {
  *count = 1;
  return weft_custom_apply(body, "buffer", WEFT_STRLEN, &in[1], 1, out, 1, count);
}
weft_error* OwnBody(void*, weft_context* body, weft_tensor* const* in, size_t, weft_tensor** out, size_t, size_t* count) {
  *count = 1;
  return weft_neg(body, in[1], &out[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  if (options.help || !options.rest.empty()) {
    std::fputs(kHelp, options.help ? stdout : stderr);
    return options.help ? 0 : 2;
  }
  LoadFfi();
  const size_t count = options.quick ? 20'000 : 1'000'000;
  std::vector<double> x(count), y(count);
  std::vector<int> signs(count);
  for (size_t i = 0; i < count; ++i) x[i] = static_cast<double>(i);
  const int64_t dims[] = {static_cast<int64_t>(count)}, two[] = {2};
  weft_custom_options whole = WEFT_CUSTOM_OPTIONS_INIT;
  whole.kind = WEFT_CUSTOM_BUFFERS;
  weft_tensor_info types[2] = {};
  types[0].dtype = WEFT_I32;
  types[1].dtype = WEFT_F64, types[1].rank = 1, types[1].dims[0] = 2;
  weft_context* ctx = nullptr;
  weft_tensor *input = nullptr, *small = nullptr, *times = nullptr;
  weft_function *custom = nullptr, *own = nullptr;
  Must(weft_context_create(nullptr, &ctx));
  Must(weft_custom_register(ctx, "element", WEFT_STRLEN, reinterpret_cast<void*>(&Element), "double(double, int*)", WEFT_STRLEN, nullptr));
  Must(weft_custom_register(ctx, "buffer", WEFT_STRLEN, reinterpret_cast<void*>(&Buffer),
                            "void(const double*[n], size_t=n, double*[n])", WEFT_STRLEN, &whole));
  Must(weft_tensor_from_host(ctx, nullptr, WEFT_F64, dims, 1, x.data(), count * sizeof(double), &input));
  Must(weft_tensor_from_host(ctx, nullptr, WEFT_F64, two, 1, x.data(), 2 * sizeof(double), &small));
  Must(weft_tensor_from_i64(ctx, WEFT_I32, static_cast<int64_t>(count), &times));
  Must(weft_function_trace(ctx, "custom", WEFT_STRLEN, types, 2, CustomBody, nullptr, 1, &custom));
  Must(weft_function_trace(ctx, "own", WEFT_STRLEN, types, 2, OwnBody, nullptr, 1, &own));
  std::vector<double> raw, ours, raw_buffer, custom_loop, own_loop;
  for (int round = -1; round < kRounds; ++round) {
    if (round == 0) {  // the first has compiled
      for (auto* all : {&raw, &ours, &raw_buffer, &custom_loop, &own_loop}) all->clear();
    }
    raw.push_back(FfiElements(x, y, signs));
    ours.push_back(WeftElements(ctx, input));
    raw_buffer.push_back(FfiBuffers(count));
    custom_loop.push_back(Loop(ctx, custom, times, small));
    own_loop.push_back(Loop(ctx, own, times, small));
  }
  const auto ns = [&](const std::vector<double>& seconds) { return bench::Median(seconds) * 1e9 / static_cast<double>(count); };
  const double element = ns(ours), alone = ns(raw), loop = ns(custom_loop), empty = ns(own_loop), buffer = ns(raw_buffer);
  bench::Print({{"a call for an element, floor libffi alone", element, "ns", alone, element / alone, {}},
                {"a call for a buffer, floor libffi alone", loop - empty, "ns", buffer, (loop - empty) / buffer, {}},
                {"that loop, floor with weft_neg in its place", loop, "ns", empty, loop / empty, {}}},
               options);
  weft_function_release(custom);
  weft_function_release(own);
  weft_tensor_release(input);
  weft_tensor_release(small);
  weft_tensor_release(times);
  weft_context_release(ctx);
  return element - alone < 200 && loop - empty - buffer < 200 ? 0 : 1;
}
