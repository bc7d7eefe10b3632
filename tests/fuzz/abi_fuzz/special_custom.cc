// Custom operations: functions that fit their signature, as whatever may happen they are called.
#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

float Half(float x) { return x / 2; }
weft_error* Sums(const float* x, uint64_t n, float* y) {
  *y = 0;
  for (uint64_t i = 0; i < n; ++i) *y += x[i];
  return nullptr;
}

constexpr const char* kNames[] = {"half", "sums", "again", "", "no name", "stablehlo.add"};
constexpr const char* kWrongSignatures[] = {"", "float", "float(float", "void(float)", "float(float[n])", "float(const float*[n...]",
                                            "void(const float*[n/0], float*[n])", "double(double, ...)", "float(float)float", "float(float=n)"};

const char* NameOf(Fuzz& f) { return f.Wrong() ? (f.OneIn(4) ? nullptr : kNames[f.Roll(6)]) : kNames[f.Roll(2)]; }

// Signature, function and options that go together, or something that is refused.
struct Drawn {
  explicit Drawn(Fuzz& f) {
    const bool whole = f.OneIn(2);
    name = NameOf(f);
    function = whole ? reinterpret_cast<void*>(&Sums) : reinterpret_cast<void*>(&Half);
    signature = whole ? "weft_error*(const float*[n...], size_t=n, float*[])" : "float(float)";
    options = f.Options<weft_custom_options>();
    if (options == nullptr) {
      function = reinterpret_cast<void*>(&Half), signature = "float(float)";
      return;
    }
    options->kind = whole ? WEFT_CUSTOM_BUFFERS : WEFT_CUSTOM_ELEMENTS;
    options->threads = f.Wrong() ? static_cast<weft_custom_threads>(f.Integer()) : static_cast<weft_custom_threads>(f.Roll(2));
    if (f.Wrong()) options->gradient = f.Handle<weft_function>(true);
  }
  // What a wrong signature would have called is not registered: it is refused, whatever the function.
  void Spoil(Fuzz& f) {
    if (!f.Wrong()) return;
    if (f.OneIn(3)) function = nullptr;
    else signature = f.OneIn(5) ? nullptr : kWrongSignatures[f.Roll(10)];
  }
  const char* name;
  void* function;
  const char* signature;
  weft_custom_options* options;
};

}  // namespace

void Call_weft_custom_register(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  Drawn drawn(f);
  drawn.Spoil(f);
  f.Enter();
  static_cast<void>(f.Leave(weft_custom_register(ctx, drawn.name, WEFT_STRLEN, drawn.function, drawn.signature, WEFT_STRLEN, drawn.options)));
}

void Call_weft_custom_register_symbol(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const char* const library = f.Wrong() ? "libno.such.so" : "libm.so.6";
  const char* const symbol = f.Wrong() ? f.OneIn(2) ? nullptr : "no_such_symbol" : "tanhf";
  const char* const name = NameOf(f);
  f.Enter();
  static_cast<void>(f.Leave(weft_custom_register_symbol(ctx, name, WEFT_STRLEN, library, WEFT_STRLEN, symbol, WEFT_STRLEN, "float(float)", WEFT_STRLEN, nullptr)));
}

void Call_weft_custom_apply(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor* const input = f.Wrong() ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_F32, {2, 3});
  const size_t count = f.Wrong() ? f.Of<size_t>({0, 2, SIZE_MAX}) : 1;
  weft_tensor* list[2] = {input, input};
  size_t capacity = 0;
  weft_tensor** const outputs = f.OutArray<weft_tensor*>(&capacity);
  size_t* const out_count = f.Out<size_t>(false);
  const char* const name = NameOf(f);
  f.Enter();
  if (!f.Leave(weft_custom_apply(ctx, name, WEFT_STRLEN, list, count, outputs, capacity, out_count))) return;
  for (size_t i = 0; i < *out_count; ++i) f.Keep(&outputs[i]);
}

}  // namespace weft::fuzz
