// Functions and control flow: callbacks that record bodies, functions that fit their operands, loops that end.
#include <algorithm>

#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

struct DrawnInputs {
  weft_tensor_info* infos;
  size_t count;
};

DrawnInputs DrawInputs(Fuzz& f) {
  DrawnInputs drawn{nullptr, static_cast<size_t>(f.Roll(4))};
  drawn.infos = static_cast<weft_tensor_info*>(f.Block(drawn.count * sizeof(weft_tensor_info)));
  for (size_t i = 0; i < drawn.count; ++i) {
    weft_tensor_info& info = drawn.infos[i];
    info.dtype = f.Wrong() ? static_cast<weft_dtype>(f.DTypeNumber()) : WEFT_F32;
    info.rank = f.Wrong() ? static_cast<uint32_t>(f.Of({33, 3, -1})) : 2;
    info.dims[0] = f.Wrong() ? f.Integer() : 2, info.dims[1] = 3;
  }
  if (f.Wrong() && f.OneIn(3)) drawn = {nullptr, f.Of<size_t>({0, 1, SIZE_MAX})};
  return drawn;
}

// Without memory of its own: a callback runs where none may be left.
struct Made {
  weft_tensor* list[16] = {};
  size_t count = 0;
  void Add(weft_tensor* tensor) {
    if (count < 16) {
      list[count++] = tensor;
    } else {
      weft_tensor_release(tensor);
    }
  }
};

// A few operations in a body, on its parameters and on what lies outside. Results that are the caller's.
Made FillBody(Fuzz& f, weft_context* body, weft_tensor* const* parameters, size_t count) {
  Made made;
  for (size_t i = 0; i < count; ++i) {
    weft_tensor* const other = f.Wrong() ? f.Handle<weft_tensor>(true) : parameters[f.Roll(static_cast<int>(count))];
    weft_tensor* sum = nullptr;
    if (f.Helped(weft_add(body, parameters[i], other, &sum))) made.Add(sum);
    if (f.OneIn(4) && f.Helped(weft_tensor_from_f64(body, WEFT_F32, 2.5, &sum))) made.Add(sum);
    if (f.OneIn(4) && f.Helped(weft_mul(body, parameters[i], f.Handle<weft_tensor>(true), &sum))) made.Add(sum);
  }
  return made;
}

weft_function* MakeFunction(Fuzz& f, size_t inputs) {
  weft_tensor_info infos[3] = {};
  for (weft_tensor_info& info : infos) info.dtype = WEFT_F32, info.rank = 2, info.dims[0] = 2, info.dims[1] = 3;
  weft_context* body = nullptr;
  weft_tensor* parameters[3] = {};
  weft_function* made = nullptr;
  if (!f.Helped(weft_function_begin(f.Context(), nullptr, 0, infos, inputs, &body, parameters))) return nullptr;
  const Made results = FillBody(f, body, parameters, inputs);
  static_cast<void>(f.Helped(weft_function_end(body, results.list, std::min(results.count, inputs), &made)));
  for (weft_tensor* tensor : results.list) weft_tensor_release(tensor);
  for (weft_tensor* tensor : parameters) weft_tensor_release(tensor);
  weft_context_release(body);
  return made;
}

// Of the pool, or made for so many inputs and given back after the call.
struct DrawnFunction {
  DrawnFunction(Fuzz& f, size_t inputs) : own(f.OneIn(2) ? MakeFunction(f, inputs) : nullptr) {
    handle = own != nullptr && !f.Wrong() ? own : f.Handle<weft_function>(false);
  }
  ~DrawnFunction() { weft_function_release(own); }
  DrawnFunction(const DrawnFunction&) = delete;
  weft_function* own;
  weft_function* handle;
};

struct DrawnTensors {
  DrawnTensors(Fuzz& f, size_t wanted) : count(wanted) {
    list = static_cast<weft_tensor**>(f.Block(count * sizeof(weft_tensor*)));
    for (size_t i = 0; i < count; ++i) list[i] = f.Wrong() ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_F32, {2, 3});
    if (f.Wrong() && f.OneIn(4)) list = nullptr, count = f.Of<size_t>({0, 1, SIZE_MAX});
  }
  weft_tensor** list;
  size_t count;
};

// Some of so many inputs.
struct DrawnIndices {
  DrawnIndices(Fuzz& f, size_t inputs) {
    for (size_t i = 0; i < inputs; ++i) {
      if (f.OneIn(3)) values[count++] = f.Wrong() ? f.Integer() : static_cast<int64_t>(i);
    }
    list = values;
    if (f.Wrong() && f.OneIn(4)) list = nullptr, count = f.Of<size_t>({0, 1, SIZE_MAX});
  }
  int64_t values[3] = {};
  const int64_t* list;
  size_t count = 0;
};

struct Outputs {
  explicit Outputs(Fuzz& f) { list = f.OutArray<weft_tensor*>(&capacity), count = f.Out<size_t>(false); }
  void Keep(Fuzz& f) const {
    for (size_t i = 0; i < *count; ++i) f.KeepHandle(Kind::kTensor, list[i]);
  }
  size_t capacity = 0;
  weft_tensor** list;
  size_t* count;
};

struct Tracing {
  Fuzz& f;
  bool fails, lies, again;
};

weft_error* Trace(void* data, weft_context* body, weft_tensor* const* parameters, size_t count, weft_tensor** results, size_t capacity,
                  size_t* out_count) {
  Tracing& tracing = *static_cast<Tracing*>(data);
  const Made made = FillBody(tracing.f, body, parameters, count);
  if (tracing.f.OneIn(8)) tracing.f.CallInside(body, parameters, count);
  if (tracing.again) static_cast<void>(tracing.f.Helped(weft_function_abandon(body)));
  size_t given = 0;
  for (size_t i = 0; i < made.count; ++i) {
    if (given < capacity && !tracing.fails) {
      results[given++] = made.list[i];
    } else {
      weft_tensor_release(made.list[i]);
    }
  }
  *out_count = tracing.lies ? capacity + 1 : given;  // what it has given is taken in any case
  return tracing.fails ? weft_error_new(WEFT_ABORTED, "no fault of Weft's", WEFT_STRLEN) : nullptr;
}

}  // namespace

void Call_weft_function_begin(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const Text name = f.OneIn(2) ? Text{nullptr, 0} : f.DrawText(Words::kKeys);
  const DrawnInputs inputs = DrawInputs(f);
  weft_context** const body = f.Out<weft_context*>(false);
  auto** parameters = f.Wrong() && f.OneIn(3) ? nullptr : static_cast<weft_tensor**>(f.Block((inputs.count & 7) * sizeof(weft_tensor*)));
  f.Enter();
  if (!f.Leave(weft_function_begin(ctx, name.data, name.length, inputs.infos, inputs.count, body, parameters))) return;
  f.Keep(body);
  for (size_t i = 0; i < inputs.count; ++i) f.KeepHandle(Kind::kTensor, parameters[i]);
}

void Call_weft_function_abandon(Fuzz& f) {
  weft_context* body = f.Wrong() ? nullptr : f.PickBody();
  if (body == nullptr) body = f.Handle<weft_context>(false);
  f.Enter();
  f.Leave(weft_function_abandon(body));
}

void Call_weft_function_end(Fuzz& f) {
  weft_tensor_info infos[2] = {};
  for (weft_tensor_info& info : infos) info.dtype = WEFT_F32, info.rank = 2, info.dims[0] = 2, info.dims[1] = 3;
  weft_context* own = nullptr;
  weft_tensor* parameters[2] = {};
  weft_context* around = f.OneIn(4) ? f.PickBody() : nullptr;
  if (around == nullptr) around = f.Context();
  static_cast<void>(f.Helped(weft_function_begin(around, "f", WEFT_STRLEN, infos, 2, &own, parameters)));
  Made made = FillBody(f, own, parameters, 2);
  weft_context* const body = f.Wrong() ? f.Handle<weft_context>(false) : own;
  weft_tensor* results[17];
  std::copy_n(made.list, made.count, results);
  size_t count = made.count;
  if (f.Wrong()) results[count++] = f.Handle<weft_tensor>(false);
  if (f.Wrong() && f.OneIn(4)) count = SIZE_MAX;
  weft_function** const out = f.Out<weft_function*>(false);
  f.Enter();
  if (f.Leave(weft_function_end(body, count > 100 ? nullptr : results, count, out))) f.Keep(out);
  for (size_t i = 0; i < made.count; ++i) f.Bury(Kind::kTensor, made.list[i]), weft_tensor_release(made.list[i]);
  for (weft_tensor* tensor : parameters) weft_tensor_release(tensor);
  weft_context_release(own);
}

void Call_weft_function_trace(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const DrawnInputs inputs = DrawInputs(f);
  Tracing tracing{f, f.Wrong(), f.Wrong(), f.Wrong()};
  const weft_trace_fn trace = f.Wrong() && f.OneIn(3) ? nullptr : Trace;
  const size_t capacity = f.Wrong() ? f.Of<size_t>({0, 1, SIZE_MAX}) : 16;
  weft_function** const out = f.Out<weft_function*>(false);
  f.Enter();
  if (f.Leave(weft_function_trace(ctx, nullptr, 0, inputs.infos, inputs.count, trace, &tracing, capacity, out))) f.Keep(out);
}

void Call_weft_function_call(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  const DrawnTensors inputs(f, count);
  const Outputs outputs(f);
  f.Enter();
  if (f.Leave(weft_function_call(ctx, function.handle, inputs.list, inputs.count, outputs.list, outputs.capacity, outputs.count))) outputs.Keep(f);
}

void Call_weft_per_device(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const DrawnFunction function(f, 1);
  Text input_specs = f.DrawText(Words::kSpecs), output_specs = f.DrawText(Words::kSpecs);
  size_t count = 0;
  weft_tensor* const* inputs = f.Handles<weft_tensor>(&count);
  // Now and then what a function of one input is for: a tensor on a mesh, of which each device has all.
  weft_mesh* mesh = nullptr;
  weft_tensor* whole = nullptr;
  if (f.OneIn(2) && f.Helped(weft_mesh_create(f.Context(), nullptr, 0, "x=1", WEFT_STRLEN, &mesh))) {
    const float data[6] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {2, 3};
    if (f.Helped(weft_tensor_from_host_sharded(mesh, "-,-", WEFT_STRLEN, WEFT_F32, dims, 2, data, sizeof data, &whole))) {
      inputs = &whole, count = 1;
      input_specs = output_specs = {"-,-", WEFT_STRLEN};
    }
  }
  const Outputs outputs(f);
  f.Enter();
  if (f.Leave(weft_per_device(ctx, function.handle, input_specs.data, input_specs.length, output_specs.data, output_specs.length, inputs, count,
                              outputs.list, outputs.capacity, outputs.count)))
    outputs.Keep(f);
  weft_tensor_release(whole);
  weft_mesh_release(mesh);
}

void Call_weft_function_run(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  const DrawnTensors inputs(f, count);
  const DrawnIndices donated(f, count);
  const Outputs outputs(f);
  f.Enter();
  if (f.Leave(weft_function_run(ctx, function.handle, inputs.list, inputs.count, donated.list, donated.count, outputs.list, outputs.capacity, outputs.count))) outputs.Keep(f);
}

void Call_weft_function_compile(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  weft_device* const device = f.Handle<weft_device>(true);
  const Text isa = f.Wrong() ? f.DrawText(Words::kKeys) : Text{nullptr, 0};
  const DrawnIndices donated(f, count);
  weft_event** const event = f.Out<weft_event*>(true);
  f.Enter();
  if (f.Leave(weft_function_compile(ctx, function.handle, device, isa.data, isa.length, donated.list, donated.count, event))) f.Keep(event);
}

void Call_weft_function_stats(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  weft_device* const device = f.Handle<weft_device>(true);
  const DrawnIndices donated(f, count);
  auto* const out = f.OutStruct<weft_program_stats>();
  f.Enter();
  f.Leave(weft_function_stats(ctx, function.handle, device, donated.list, donated.count, out));
}

void Call_weft_function_vmap(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  const int64_t size = f.Wrong() ? f.Integer() : f.Roll(4) + 1;
  int64_t axes[2][4] = {};
  for (auto& list : axes) {
    for (int64_t& axis : list) axis = f.Wrong() ? f.Integer() : f.OneIn(3) ? WEFT_NOT_MAPPED : f.Of<int64_t>({0, 0, 1, -1});
  }
  const size_t in_count = f.Wrong() ? f.Of<size_t>({0, 1, 4}) : count, out_count = f.OneIn(2) ? 0 : f.Roll(4);
  auto* const options = f.Options<weft_vmap_options>();
  if (options != nullptr) options->randomness = static_cast<weft_randomness>(f.Wrong() ? f.Integer() : f.Roll(3));
  auto* const out = f.Out<weft_function*>(false);
  f.Enter();
  if (f.Leave(weft_function_vmap(ctx, function.handle, size, f.OneIn(4) ? nullptr : axes[0], in_count, f.OneIn(2) ? nullptr : axes[1],
                                 out_count, options, out))) {
    f.KeepHandle(Kind::kFunction, *out);
  }
}

void CallDerivative(Fuzz& f, decltype(&weft_function_grad) make) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(4));
  const DrawnFunction function(f, count);
  const DrawnIndices wrt(f, count);
  auto* const options = f.Options<weft_derivative_options>();
  if (options != nullptr) options->values = f.Wrong() ? static_cast<int32_t>(f.Integer()) : static_cast<int32_t>(f.Roll(2));
  auto* const out = f.Out<weft_function*>(false);
  f.Enter();
  if (f.Leave(make(ctx, function.handle, wrt.count == 0 ? nullptr : wrt.list, wrt.count, options, out))) f.KeepHandle(Kind::kFunction, *out);
}
void Call_weft_function_grad(Fuzz& f) { CallDerivative(f, weft_function_grad); }
void Call_weft_function_vjp(Fuzz& f) { CallDerivative(f, weft_function_vjp); }
void Call_weft_function_jvp(Fuzz& f) { CallDerivative(f, weft_function_jvp); }

void Call_weft_function_custom_gradient(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const DrawnFunction function(f, 1), forward(f, 1), backward(f, 1);  // one result each: no residuals
  auto* const out = f.Out<weft_function*>(false);
  f.Enter();
  if (f.Leave(weft_function_custom_gradient(ctx, function.handle, forward.handle, backward.handle, out))) f.KeepHandle(Kind::kFunction, *out);
}

void Call_weft_while(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  // Endless loops are other tests' business: this condition never holds.
  weft_tensor_info info = {};
  info.dtype = WEFT_F32, info.rank = 2, info.dims[0] = 2, info.dims[1] = 3;
  weft_function* never = nullptr;
  const auto says_no = [](void*, weft_context* body, weft_tensor* const*, size_t, weft_tensor** results, size_t, size_t* out_count) {
    weft_error* const error = weft_tensor_from_i64(body, WEFT_BOOL, 0, results);
    *out_count = error == nullptr ? 1 : 0;
    return error;
  };
  static_cast<void>(f.Helped(weft_function_trace(f.Context(), "never", WEFT_STRLEN, &info, 1, says_no, nullptr, 1, &never)));
  const DrawnFunction body(f, 1);
  const DrawnTensors carried(f, 1);
  auto** const out = f.Wrong() && f.OneIn(3) ? nullptr : static_cast<weft_tensor**>(f.Block(4 * sizeof(weft_tensor*)));
  f.Enter();
  if (f.Leave(weft_while(ctx, f.Wrong() ? f.Handle<weft_function>(true) : never, body.handle, carried.list, carried.count, out))) {
    for (size_t i = 0; i < carried.count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
  }
  weft_function_release(never);
}

void Call_weft_for(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor* count = f.Wrong() ? f.Handle<weft_tensor>(true) : nullptr;
  weft_tensor* few = nullptr;
  if (count == nullptr && f.Helped(weft_tensor_from_i64(f.Context(), WEFT_I32, f.Roll(4), &few))) count = few;
  weft_tensor_info infos[2] = {};
  infos[0].dtype = WEFT_I32;
  infos[1].dtype = WEFT_F32, infos[1].rank = 2, infos[1].dims[0] = 2, infos[1].dims[1] = 3;
  const auto twice = [](void*, weft_context* body, weft_tensor* const* parameters, size_t n, weft_tensor** results, size_t, size_t* out_count) {
    weft_error* const error = weft_add(body, parameters[n - 1], parameters[n - 1], results);
    *out_count = error == nullptr ? 1 : 0;
    return error;
  };
  weft_function* body = nullptr;
  static_cast<void>(f.Helped(weft_function_trace(f.Context(), "twice", WEFT_STRLEN, infos, 2, twice, nullptr, 1, &body)));
  auto* const options = f.Options<weft_for_options>();
  if (options != nullptr) {
    options->max_count = f.Wrong() ? f.Integer() : f.Roll(5);
    options->keep_every = f.Wrong() ? f.Integer() : options->max_count > 0 ? f.Roll(4) - 1 : 0;
  }
  const DrawnTensors carried(f, 1);
  auto** const out = f.Wrong() && f.OneIn(3) ? nullptr : static_cast<weft_tensor**>(f.Block(4 * sizeof(weft_tensor*)));
  weft_function* const given = f.Wrong() ? f.Handle<weft_function>(true) : body;
  f.Enter();
  if (f.Leave(weft_for(ctx, count, given, carried.list, carried.count, options, out))) {
    for (size_t i = 0; i < carried.count; ++i) f.KeepHandle(Kind::kTensor, out[i]);
  }
  weft_function_release(body);
  weft_tensor_release(few);
}

void Call_weft_scan(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_tensor_info infos[2] = {};
  infos[0].dtype = infos[1].dtype = WEFT_F32, infos[0].rank = 2, infos[0].dims[0] = 2, infos[0].dims[1] = 3;
  infos[1].rank = 1, infos[1].dims[0] = 3;
  const auto add = [](void*, weft_context* body, weft_tensor* const* parameters, size_t n, weft_tensor** results, size_t, size_t* out_count) {
    *out_count = 0;
    for (size_t i = 0; i < 2; ++i) {
      weft_error* const error = weft_add(body, parameters[0], parameters[n - 1], &results[i]);
      if (error != nullptr) return error;
      ++*out_count;
    }
    return static_cast<weft_error*>(nullptr);
  };
  weft_function* body = nullptr;
  static_cast<void>(f.Helped(weft_function_trace(f.Context(), "add", WEFT_STRLEN, infos, 2, add, nullptr, 2, &body)));
  auto* const options = f.Options<weft_scan_options>();
  if (options != nullptr) {
    options->length = f.Wrong() ? f.Integer() : f.Of<int64_t>({0, 2}), options->unroll = f.Wrong() ? f.Integer() : f.Roll(4);
    options->reverse = f.Roll(2), options->keep_every = f.Wrong() ? f.Integer() : f.Roll(4) - 1;
  }
  const DrawnTensors carried(f, 1), scanned(f, 1);
  const Outputs outputs(f);
  weft_function* const given = f.Wrong() ? f.Handle<weft_function>(true) : body;
  f.Enter();
  if (f.Leave(weft_scan(ctx, given, carried.list, carried.count, scanned.list, scanned.count, options, outputs.list, outputs.capacity, outputs.count))) outputs.Keep(f);
  weft_function_release(body);
}

void Call_weft_if(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(3));
  weft_tensor* const pred = f.Wrong() ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_BOOL, {});
  const DrawnFunction one(f, count), other(f, count);
  const DrawnTensors inputs(f, count);
  const Outputs outputs(f);
  f.Enter();
  if (f.Leave(weft_if(ctx, pred, one.handle, other.handle, inputs.list, inputs.count, outputs.list, outputs.capacity, outputs.count))) outputs.Keep(f);
}

void Call_weft_case(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  const size_t count = static_cast<size_t>(f.Roll(3));
  weft_tensor* const index = f.Wrong() ? f.Handle<weft_tensor>(true) : f.MakeTensor(WEFT_I32, {});
  const DrawnFunction one(f, count), other(f, count);
  weft_function* branches[] = {one.handle, other.handle, one.handle};
  const size_t branch_count = f.Wrong() ? f.Of<size_t>({0, 1}) : 3;
  const DrawnTensors inputs(f, count);
  const Outputs outputs(f);
  f.Enter();
  if (f.Leave(weft_case(ctx, index, branches, branch_count, inputs.list, inputs.count, outputs.list, outputs.capacity, outputs.count))) outputs.Keep(f);
}

}  // namespace weft::fuzz
