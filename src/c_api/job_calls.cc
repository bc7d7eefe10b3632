// See job_calls.h.
#include "src/c_api/job_calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "src/c_api/callbacks.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;

// A call as one number, which the function gets behind the job's: the signature has both.
int64_t NumberOf(const JobCall& call) {
  return static_cast<int64_t>(call.kind) | static_cast<int64_t>(call.reduction) << 4 | int64_t{call.only_root} << 8 |
         int64_t{call.root} << 9 | static_cast<int64_t>(call.dtype) << 32;
}
JobCall CallOf(int64_t number) {
  return {.kind = static_cast<CollectiveKind>(number & 15),
          .dtype = static_cast<DType>(number >> 32),
          .reduction = static_cast<distributed::Reduction>(number >> 4 & 15),
          .root = static_cast<int>(number >> 9 & 0x7FFFFF),
          .only_root = (number >> 8 & 1) != 0};
}

absl::Status RunCall(int64_t job, distributed::Collective call, const JobCall& said) {
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
  WEFT_RETURN_IF_ERROR(object->job->Run(call, patience));
  const distributed::JobPlace& place = object->job->place();
  if (said.only_root && said.root != place.rank) {
    std::memset(call.output, 0, static_cast<size_t>(OutputCount(call, place.size) * BytesOf(call.dtype)));
  }
  return absl::OkStatus();
}

// The function of every call.
weft_error* Call(const void* input, uint64_t count, void* output, int64_t job, int64_t number) noexcept {
  return Guard([&] {
    const JobCall said = CallOf(number);
    distributed::Collective call = {.kind = said.kind, .reduction = said.reduction};
    call.dtype = said.dtype;
    call.count = static_cast<int64_t>(count);
    if (call.kind == CollectiveKind::kBroadcast) call.root = said.root;
    call.input = input;
    call.output = output;
    return RunCall(job, call, said);
  });
}

// An element type that values travel as, and its name in C prototypes.
struct Carrier {
  DType dtype;
  std::string_view type;
};
constexpr Carrier kCarriers[] = {
    {DType::kF32, "float"},   {DType::kF64, "double"},  {DType::kF16, "f16"},      {DType::kBF16, "bf16"},
    {DType::kI32, "int32_t"}, {DType::kI64, "int64_t"}, {DType::kU32, "uint32_t"}, {DType::kU64, "uint64_t"},
    {DType::kI8, "int8_t"},   {DType::kI16, "int16_t"}, {DType::kU8, "uint8_t"},   {DType::kU16, "uint16_t"},
    {DType::kBool, "bool"},
};

absl::StatusOr<const Carrier*> CarrierFor(DType dtype) {
  const auto* const found = std::ranges::find(kCarriers, dtype, &Carrier::dtype);
  if (found != std::end(kCarriers)) return found;
  return UserErrorOf(absl::StatusCode::kUnimplemented, "a tensor is of ", NameOf(dtype),
                     "; f32, f64, f16, bf16, bool and integers of 8 to 64 bits are added up over processes");
}

}  // namespace

absl::Status CheckCarried(DType dtype, bool mean) {
  WEFT_RETURN_IF_ERROR(CarrierFor(dtype).status());
  if (!mean || IsFloat(dtype)) return absl::OkStatus();
  return UserError("a tensor is of ", NameOf(dtype), ", which has no mean; convert it, or take the sum");
}

absl::Status CheckJobRecords(const Context& context) {
  WEFT_RETURN_IF_ERROR(context.Usable());
  if (context.frame() == nullptr) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented,
                     "ctx records the body of a function; sums over processes are for the program");
}

absl::Status CheckAlone(const lazy::Tensor& tensor, std::string_view what) {
  if (tensor.sharding().mesh().alone()) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented, what, " is on ", tensor.sharding().mesh().name(),
                     "; tensors on a mesh are not added up over processes yet");
}

absl::StatusOr<Ref<const ops::CustomFunction>> JobFunction(ops::CustomFunctions& registered, const JobObject& job,
                                                           const JobCall& call) {
  WEFT_ASSIGN_OR_RETURN(const Carrier* const carrier, CarrierFor(call.dtype));
  // Jobs that come and go take one another's numbers, so a name says the number of processes, too, which shapes have.
  const int processes = job.job->place().size;
  const int64_t number = NumberOf(call);
  const std::string name = absl::StrCat("weft.job", job.number(), ".", distributed::NameOf(call.kind), processes, ".",
                                        NameOf(call.dtype), ".", number & 0xFFFFFFFF);
  if (Ref<const ops::CustomFunction> known = registered.Find(name)) return known;
  const std::string one = "[n]", rows = absl::StrCat("[", processes, ", n]");
  const bool spreads = call.kind == CollectiveKind::kReduceScatter || call.kind == CollectiveKind::kAllToAll;
  const bool gathers = call.kind == CollectiveKind::kAllGather || call.kind == CollectiveKind::kAllToAll;
  auto function = MakeRef<ops::CustomFunction>();
  function->name = name;
  WEFT_ASSIGN_OR_RETURN(
      function->signature,
      ops::CustomSignature::Parse(
          ops::CustomKind::kBuffers,
          absl::StrCat("weft_error*(const ", carrier->type, "*", spreads ? rows : one, ", size_t=n, ", carrier->type,
                       "*", gathers ? rows : one, ", int64_t=", job.number(), ", int64_t=", number, ")")));
  function->address = reinterpret_cast<void*>(Call);
  function->many_threads = true;  // jobs take turns themselves
  function->take_error = TakeError;
  const absl::Status added = registered.Add(function);
  if (absl::IsAlreadyExists(added)) return registered.Get(name);  // another thread was first
  WEFT_RETURN_IF_ERROR(added);
  return Ref<const ops::CustomFunction>(std::move(function));
}

}  // namespace weft::c_api
