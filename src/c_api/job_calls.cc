// See job_calls.h.
#include "src/c_api/job_calls.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "src/c_api/callbacks.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;

absl::Status RunCall(int64_t job, distributed::Collective call) {
  const Ref<JobObject> object = JobObject::OfNumber(job);
  if (object == nullptr) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                       "the job was released before a program that has its sums ran; read the results first");
  }
  const int64_t now = MonotonicNow();
  const CancelToken cancel = object->cancel();
  distributed::Patience patience = object->PatienceFrom(now);
  patience.cancel = &cancel;
  patience.began_ns = now;
  return object->job->Run(call, patience);
}

template <CollectiveKind kKind, uint32_t kDtype>
weft_error* Call(const void* input, uint64_t count, void* output, int64_t job) noexcept {
  return Guard([&] {
    distributed::Collective call = {.kind = kKind};
    call.dtype = static_cast<DType>(kDtype);
    call.count = static_cast<int64_t>(count);
    call.input = input;
    call.output = output;
    return RunCall(job, call);
  });
}

// An element type that values travel as: its name in C prototypes, and the functions.
struct Carrier {
  using Function = weft_error* (*)(const void*, uint64_t, void*, int64_t);
  DType dtype;
  std::string_view type;
  Function sum, scatter, gather;
};
template <DType kDtype>
constexpr Carrier CarrierOf(std::string_view type) {
  constexpr auto kNumber = static_cast<uint32_t>(kDtype);
  return {kDtype, type, Call<CollectiveKind::kAllReduce, kNumber>, Call<CollectiveKind::kReduceScatter, kNumber>,
          Call<CollectiveKind::kAllGather, kNumber>};
}
constexpr Carrier kCarriers[] = {
    CarrierOf<DType::kF32>("float"),    CarrierOf<DType::kF64>("double"),   CarrierOf<DType::kF16>("f16"),
    CarrierOf<DType::kBF16>("bf16"),    CarrierOf<DType::kI32>("int32_t"),  CarrierOf<DType::kI64>("int64_t"),
    CarrierOf<DType::kU32>("uint32_t"), CarrierOf<DType::kU64>("uint64_t"),
};

absl::StatusOr<const Carrier*> CarrierFor(DType dtype) {
  const auto* const found = std::ranges::find(kCarriers, dtype, &Carrier::dtype);
  if (found != std::end(kCarriers)) return found;
  return UserErrorOf(absl::StatusCode::kUnimplemented, "a tensor is of ", NameOf(dtype),
                     "; f32, f64, f16, bf16 and integers of 32 and 64 bits are added up over processes");
}

// Jobs that come and go take one another's numbers, so a name says the number of processes, too, where shapes have it.
struct Form {
  Carrier::Function function;
  std::string name, input, output;
};
Form FormOf(const Carrier& carrier, CollectiveKind kind, int processes) {
  const std::string rows = absl::StrCat("[", processes, ", n]");
  switch (kind) {
    case CollectiveKind::kReduceScatter: return {carrier.scatter, absl::StrCat("scatter", processes), rows, "[n]"};
    case CollectiveKind::kAllGather: return {carrier.gather, absl::StrCat("gather", processes), "[n]", rows};
    default: return {carrier.sum, "sum", "[n]", "[n]"};
  }
}

}  // namespace

absl::Status CheckCarried(DType dtype, bool mean) {
  WEFT_RETURN_IF_ERROR(CarrierFor(dtype).status());
  if (!mean || IsFloat(dtype)) return absl::OkStatus();
  return UserError("a tensor is of ", NameOf(dtype), ", which has no mean; convert it, or take the sum");
}

absl::StatusOr<Ref<const ops::CustomFunction>> JobFunction(ops::CustomFunctions& registered, const JobObject& job,
                                                           CollectiveKind kind, DType dtype) {
  WEFT_ASSIGN_OR_RETURN(const Carrier* const carrier, CarrierFor(dtype));
  const Form form = FormOf(*carrier, kind, job.job->place().size);
  const std::string name = absl::StrCat("weft.job", job.number(), ".", form.name, ".", NameOf(dtype));
  if (Ref<const ops::CustomFunction> known = registered.Find(name)) return known;
  auto function = MakeRef<ops::CustomFunction>();
  function->name = name;
  WEFT_ASSIGN_OR_RETURN(
      function->signature,
      ops::CustomSignature::Parse(ops::CustomKind::kBuffers,
                                  absl::StrCat("weft_error*(const ", carrier->type, "*", form.input, ", size_t=n, ",
                                               carrier->type, "*", form.output, ", int64_t=", job.number(), ")")));
  function->address = reinterpret_cast<void*>(form.function);
  function->many_threads = true;  // jobs take turns themselves
  function->take_error = TakeError;
  const absl::Status added = registered.Add(function);
  if (absl::IsAlreadyExists(added)) return registered.Get(name);  // another thread was first
  WEFT_RETURN_IF_ERROR(added);
  return Ref<const ops::CustomFunction>(std::move(function));
}

}  // namespace weft::c_api
