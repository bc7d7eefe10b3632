// weft_custom_*: the caller's functions as operations.
#include <dlfcn.h>

#include <algorithm>
#include <map>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "src/c_api/callbacks.h"
#include "src/c_api/function_object.h"
#include "src/c_api/op_call.h"
#include "src/c_api/options.h"
#include "src/ops/call.h"
#include "src/ops/custom/custom_call.h"
#include "src/runtime/library_file.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// Gradients of so many lists of operand types are remembered; a program has a handful.
constexpr size_t kMostGradients = 256;

// Owns what the caller handed over, and ends it on a thread of the caller's, without a lock of ours, when nobody can
// call the function.
struct Handed {
  void* library = nullptr;  // of dlopen
  void* user_data = nullptr;
  weft_release_fn release = nullptr;

  void End() const {
    RunRelease(release, user_data);
    if (library == nullptr) return;
    const CallingOut out;  // destructors of the library
    dlclose(library);
  }
};

class Registered final : public ops::CustomFunction {
 public:
  Registered(weft_context* context, const weft_custom_options& options, std::function<void()> end)
      : context_(context), options_(options), end_(std::move(end)) {}
  ~Registered() override { end_(); }

  absl::StatusOr<ir::Types> ResultTypes(std::span<const ir::Type* const> operands) const override {
    if (options_.shape == nullptr) return CustomFunction::ResultTypes(operands);
    std::vector<weft_tensor_info> inputs;
    for (const ir::Type* operand : operands) inputs.push_back(InfoOf(operand->dtype, operand->dims));
    std::vector<weft_tensor_info> results(signature.results());
    weft_error* error = nullptr;
    {
      const CallingOut out;
      error = options_.shape(options_.user_data, inputs.data(), inputs.size(), results.data(), results.size());
    }
    const auto of_callback = [&](const absl::Status& status) {
      return absl::Status(status.code(),
                          absl::StrCat("the shape callback of the custom operation '", name, "': ", status.message()));
    };
    if (error != nullptr) return of_callback(TakeError(error));
    ir::Types types;
    for (size_t r = 0; r < results.size(); ++r) {
      const weft_tensor_info& info = results[r];
      const auto at = [&](const absl::Status& status) {
        return of_callback(absl::Status(status.code(), absl::StrCat("result ", r, ": ", status.message())));
      };
      const absl::StatusOr<DType> dtype = CheckedDType(info.dtype);
      if (!dtype.ok()) return at(dtype.status());
      if (const auto bytes = CheckedBytes(*dtype, info.dims, info.rank); !bytes.ok()) return at(bytes.status());
      types.push_back(ir::Type::Tensor(*dtype, {info.dims, info.dims + info.rank}));
    }
    absl::StatusOr<ir::Types> checked = signature.Results(operands, types);
    return checked.ok() ? checked : of_callback(checked.status());
  }

  absl::StatusOr<Ref<const ir::Function>> Gradient(std::span<const ir::Type* const> operands,
                                                   std::span<const ir::Type> results) const override {
    if (fixed_gradient != nullptr) {
      WEFT_RETURN_IF_ERROR(ops::CheckCustomGradient(*fixed_gradient, name, operands, results));
      return fixed_gradient;
    }
    if (options_.gradient_trace == nullptr) return Ref<const ir::Function>();
    const std::vector<ir::Type> inputs = ops::CustomGradientInputs(operands, results);
    const std::string key =
        absl::StrJoin(inputs, " ", [](std::string* out, const ir::Type& type) { *out += ToString(type); });
    {
      MutexLock lock(mutex_);
      if (const auto known = gradients_.find(key); known != gradients_.end()) return known->second;
    }
    // Within its own gradient the operation has none: that would never end.
    for (const Tracing* one = t_tracing; one != nullptr; one = one->outer) {
      if (one->function == this && *one->key == key) return Ref<const ir::Function>();
    }
    WEFT_ASSIGN_OR_RETURN(Ref<const ir::Function> traced, Trace(inputs, key));
    WEFT_RETURN_IF_ERROR(ops::CheckCustomGradient(*traced, name, operands, results));
    MutexLock lock(mutex_);
    if (gradients_.size() >= kMostGradients) gradients_.clear();
    return gradients_.try_emplace(key, std::move(traced)).first->second;
  }

  Ref<const ir::Function> fixed_gradient;

 private:
  struct Tracing {
    const Registered* function;
    const std::string* key;
    const Tracing* outer;
  };
  static constinit thread_local const Tracing* t_tracing;

  absl::StatusOr<Ref<const ir::Function>> Trace(const std::vector<ir::Type>& inputs, const std::string& key) const {
    std::vector<weft_tensor_info> infos;
    for (const ir::Type& input : inputs) infos.push_back(InfoOf(input.dtype, input.dims));
    const Tracing tracing{this, &key, t_tracing};
    t_tracing = &tracing;
    const absl::Cleanup restore = [&] { t_tracing = tracing.outer; };
    weft_function* traced = nullptr;
    weft_error* const error =
        weft_function_trace(context_, "gradient", WEFT_STRLEN, infos.data(), infos.size(), options_.gradient_trace,
                            options_.user_data, std::max<size_t>(infos.size(), 1), &traced);
    if (error != nullptr) {
      const absl::Status status = TakeError(error);
      return absl::Status(status.code(),
                          absl::StrCat("the gradient of the custom operation '", name, "': ", status.message()));
    }
    const absl::Cleanup release = [&] { weft_function_release(traced); };
    WEFT_ASSIGN_OR_RETURN(const Pin<FunctionObject> object, Get(traced, "gradient"));
    return WholeGradient(*object, name);
  }

 public:
  // A gradient that is a function of its inputs alone.
  static absl::StatusOr<Ref<const ir::Function>> WholeGradient(const FunctionObject& object, std::string_view of) {
    if (object.captures.empty() && !object.draws) return object.function;
    return UserError("the gradient of the custom operation '", of, "' ",
                     object.draws ? "draws random numbers" : "uses tensors from around it",
                     "; it is a function of its parameters alone");
  }

 private:
  weft_context* const context_;  // a number: it may be gone
  const weft_custom_options options_;
  const std::function<void()> end_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Ref<const ir::Function>> gradients_ ABSL_GUARDED_BY(mutex_);
};
constinit thread_local const Registered::Tracing* Registered::t_tracing = nullptr;

absl::StatusOr<std::string> NameOfCustom(const char* name, size_t length) {
  WEFT_NOT_NULL(name);
  WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(name, length, "name"));
  const auto fits = [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view("_.$@/+-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (text.empty() || text.size() > 200 || !std::ranges::all_of(text, fits)) {
    return UserError("name '", text.substr(0, 200),
                     "': a custom operation's name is 1 to 200 letters, digits and characters of _.$@/+-");
  }
  return std::string(text);
}

absl::StatusOr<ops::CustomKind> KindOf(const weft_custom_options& options) {
  switch (static_cast<int32_t>(options.kind)) {
    case WEFT_CUSTOM_ELEMENTS: return ops::CustomKind::kElements;
    case WEFT_CUSTOM_BUFFERS: return ops::CustomKind::kBuffers;
    default: return UserError("weft_custom_options: kind is ", static_cast<int32_t>(options.kind), "; it is 0 or 1");
  }
}

struct Registration {
  weft_context* ctx;
  const char* name;
  size_t name_length;
  const char* signature;
  size_t signature_length;
  const weft_custom_options* options;
};

// `find` gives the function's address and, in `handed`, the library that must stay for it.
absl::Status Register(const Registration& r, absl::FunctionRef<absl::StatusOr<void*>(Handed* handed)> find) {
  weft_custom_options o = {};
  WEFT_RETURN_IF_ERROR(ReadOptions(r.options, sizeof o, "weft_custom_options", &o));
  Handed handed{nullptr, o.user_data, o.release};
  absl::Cleanup failed = [&] { handed.End(); };
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(r.ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  if (context->frame() != nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "ctx records a function's body; register in the context around it");
  }
  WEFT_ASSIGN_OR_RETURN(std::string name, NameOfCustom(r.name, r.name_length));
  WEFT_NOT_NULL(r.signature);
  WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(r.signature, r.signature_length, "signature"));
  WEFT_ASSIGN_OR_RETURN(const ops::CustomKind kind, KindOf(o));
  WEFT_ASSIGN_OR_RETURN(ops::CustomSignature signature, ops::CustomSignature::Parse(kind, text));
  if (o.shape == nullptr) WEFT_RETURN_IF_ERROR(signature.CheckShapesFollow());
  if (o.shape != nullptr && kind == ops::CustomKind::kElements) {
    return UserError("weft_custom_options: a function of elements has its operands' shape; shape is for buffers");
  }
  if (o.threads != WEFT_CUSTOM_ONE_THREAD && o.threads != WEFT_CUSTOM_MANY_THREADS) {
    return UserError("weft_custom_options: threads is ", static_cast<int32_t>(o.threads), "; it is 0 or 1");
  }
  if (o.gradient != nullptr && o.gradient_trace != nullptr) {
    return UserError("weft_custom_options: gradient and gradient_trace are both there; one of them says it");
  }
  Ref<const ir::Function> gradient;
  if (o.gradient != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const Pin<FunctionObject> object, GetFunction(o.gradient, *context, "gradient"));
    WEFT_ASSIGN_OR_RETURN(gradient, Registered::WholeGradient(*object, name));
  }
  WEFT_ASSIGN_OR_RETURN(void* const address, find(&handed));
  o.struct_size = sizeof o;
  o.gradient = nullptr;  // borrowed
  auto function = MakeRef<Registered>(r.ctx, o, context->engine().services().Later([handed] { handed.End(); }));
  std::move(failed).Cancel();
  function->name = std::move(name);
  function->signature = std::move(signature);
  function->address = address;
  function->many_threads = o.threads == WEFT_CUSTOM_MANY_THREADS;
  function->batches = o.batches != 0 || (o.shape == nullptr && function->signature.BatchesItself());
  function->turn = ops::TurnOf(address);
  function->take_error = TakeError;
  function->fixed_gradient = std::move(gradient);
  return context->custom().Add(std::move(function));
}

// Operands of a function of elements in their common shape.
absl::Status Broadcast(Context& context, std::vector<lazy::Tensor*>* operands, std::vector<lazy::Tensors>* made) {
  Dims dims;
  for (const lazy::Tensor* operand : *operands) {
    WEFT_ASSIGN_OR_RETURN(dims, ops::BroadcastDims(dims, operand->type().dims));
  }
  for (lazy::Tensor*& operand : *operands) {
    const Dims& own = operand->type().dims;
    if (own == dims) continue;
    ir::Ints positions;
    for (size_t i = 0; i < own.size(); ++i) positions.push_back(static_cast<int64_t>(dims.size() - own.size() + i));
    lazy::Tensor* const one[] = {operand};
    lazy::Tensors& result = made->emplace_back();
    WEFT_RETURN_IF_ERROR(context.engine().Record(ops::kOp_broadcast_in_dim, one,
                                                 {ir::Ints(dims.begin(), dims.end()), std::move(positions)},
                                                 CurrentLocation(context.engine()), &result, context.where()));
    operand = result[0].get();
  }
  return absl::OkStatus();
}

absl::Status Apply(Context& context, const ops::CustomFunction& function, std::vector<lazy::Tensor*> operands,
                   lazy::Tensors* results) {
  std::vector<lazy::Tensors> made;
  if (function.signature.kind == ops::CustomKind::kElements) WEFT_RETURN_IF_ERROR(Broadcast(context, &operands, &made));
  std::vector<const ir::Type*> types;
  for (const lazy::Tensor* operand : operands) types.push_back(&operand->type());
  const auto named = [&](const absl::Status& status) {
    if (status.message().find("custom operation") != std::string_view::npos) return status;
    return absl::Status(status.code(), absl::StrCat("custom operation '", function.name, "': ", status.message()));
  };
  const absl::StatusOr<ir::Types> given = function.ResultTypes(types);
  if (!given.ok()) return named(given.status());
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> gradient, function.Gradient(types, *given));
  const ir::RegionSpan regions = gradient != nullptr ? ir::RegionSpan(&gradient, 1) : ir::RegionSpan();
  return context.engine().Record(ops::kOp_custom_call, operands, ops::CustomAttrs(function, *given),
                                 CurrentLocation(context.engine()), results, context.where(), regions);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;         // NOLINT(google-build-using-namespace)
using namespace weft::c_api;  // NOLINT(google-build-using-namespace)

extern "C" {

weft_error* weft_custom_register(weft_context* ctx, const char* name, size_t name_length, void* function,
                                 const char* signature, size_t signature_length,
                                 const weft_custom_options* options) noexcept {
  return Guard([&]() -> absl::Status {
    return Register({ctx, name, name_length, signature, signature_length, options},
                    [&](Handed* handed) -> absl::StatusOr<void*> {
                      WEFT_NOT_NULL(function);
                      // Code that belongs to no library (a binding's thunk, the program itself) stays by the caller's care.
                      Dl_info info;
                      if (dladdr(function, &info) != 0 && info.dli_fname != nullptr) {
                        handed->library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
                        if (handed->library == nullptr) (void)dlerror();
                      }
                      return function;
                    });
  });
}

weft_error* weft_custom_register_symbol(weft_context* ctx, const char* name, size_t name_length, const char* library,
                                        size_t library_length, const char* symbol, size_t symbol_length,
                                        const char* signature, size_t signature_length,
                                        const weft_custom_options* options) noexcept {
  return Guard([&]() -> absl::Status {
    return Register(
        {ctx, name, name_length, signature, signature_length, options}, [&](Handed* handed) -> absl::StatusOr<void*> {
          WEFT_NOT_NULL(symbol);
          WEFT_ASSIGN_OR_RETURN(const std::string_view wanted, Text(symbol, symbol_length, "symbol"));
          std::string path;
          if (library != nullptr) {
            WEFT_ASSIGN_OR_RETURN(path, Path(library, library_length));
          }
          const std::string where = library == nullptr ? "this process" : absl::StrCat("the library '", path, "'");
          if (path.find('/') != std::string::npos) {  // else the loader searches
            FileInfo info;
            const absl::Status file = OpenLibrary(PosixFileSystem(), path, "the library", &info).status();
            if (!file.ok() && !absl::IsNotFound(file)) return file;
          }
          {
            const CallingOut out;  // constructors of the library
            handed->library = dlopen(library == nullptr ? nullptr : path.c_str(), RTLD_NOW | RTLD_LOCAL);
          }
          if (handed->library == nullptr) {
            const char* why = dlerror();
            return UserErrorOf(absl::StatusCode::kNotFound, where,
                               " cannot be loaded: ", why != nullptr ? why : "no reason");
          }
          void* const address = dlsym(handed->library, std::string(wanted).c_str());
          if (address == nullptr) {
            (void)dlerror();
            return UserErrorOf(absl::StatusCode::kNotFound, where, " has no symbol '", wanted, "'");
          }
          return address;
        });
  });
}

weft_error* weft_custom_apply(weft_context* ctx, const char* name, size_t name_length, weft_tensor* const* inputs,
                              size_t input_count, weft_tensor** outputs, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(name);
    WEFT_NOT_NULL(outputs);
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const std::string_view text, Text(name, name_length, "name"));
    WEFT_ASSIGN_OR_RETURN(const Ref<const ops::CustomFunction> function, context->custom().Get(text));
    if (function->signature.results() > capacity) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "custom operation '", function->name, "' has ",
                         function->signature.results(), " results; capacity is ", capacity);
    }
    WEFT_RETURN_IF_ERROR(CheckedLength("inputs", input_count, kMostEntries));
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(inputs, input_count, "inputs", &list));
    const std::span<lazy::Tensor* const> given = list;
    lazy::Tensors results;
    WEFT_RETURN_IF_ERROR(Apply(*context, *function, {given.begin(), given.end()}, &results));
    return GiveOut(std::move(results), outputs, capacity, out_count);
  });
}

}  // extern "C"
