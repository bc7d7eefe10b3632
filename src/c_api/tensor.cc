// weft_tensor_*: making tensors, asking what they are, reading them. DLPack and printing stand beside.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/c_api/context.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/narrow.h"
#include "weft.h"

namespace weft::c_api {

// A tensor that stands for a failure.
class Poison final : public RefCounted {
 public:
  explicit Poison(absl::Status status) : status(std::move(status)) {}
  const absl::Status status;
};

weft_tensor* MakePoison(absl::Status status) {
  return static_cast<weft_tensor*>(NewHandle(HandleType::kPoison, MakeRef<Poison>(std::move(status)).Release()));
}

absl::StatusOr<Pin<lazy::Tensor>> GetTensor(const weft_tensor* tensor, std::string_view parameter) {
  if (Pin<lazy::Tensor> found = Find(tensor)) return found;
  if (const Pin<Poison> poison = FindAs<Poison>(tensor, HandleType::kPoison)) return poison->status;
  return Get(tensor, parameter);
}

absl::Status NoTensor(const weft_tensor* tensor, std::string_view parameter) {
  absl::Status status = GetTensor(tensor, parameter).status();
  // Found after all: a handle that cannot be pinned once more just now.
  return status.ok() ? absl::ResourceExhaustedError(absl::StrCat(parameter, " is in use by too many calls")) : status;
}

absl::Status GetTensors(weft_tensor* const* tensors, size_t count, std::string_view parameter, TensorList* out) {
  if (count > 0 && tensors == nullptr) return NullArgument(parameter);
  WEFT_RETURN_IF_ERROR(CheckedLength(parameter, count, kMostEntries));
  out->Reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Pin<lazy::Tensor> found = Find(tensors[i]);
    if (!found) return NoTensor(tensors[i], absl::StrCat(parameter, "[", i, "]"));
    out->Add(found.Share());
  }
  return absl::OkStatus();
}

absl::Status GetOptionalTensors(weft_tensor* const* tensors, size_t count, std::string_view parameter,
                                TensorList* out) {
  if (count > 0 && tensors == nullptr) return NullArgument(parameter);
  out->Reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Pin<lazy::Tensor> found = Find(tensors[i]);
    if (!found && tensors[i] != nullptr) return NoTensor(tensors[i], absl::StrCat(parameter, "[", i, "]"));
    out->Add(tensors[i] != nullptr ? found.Share() : nullptr);
  }
  return absl::OkStatus();
}

absl::Status MakeTensor(Ref<lazy::Tensor> tensor, weft_tensor** out) {
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tensor>(std::move(tensor)));
  return absl::OkStatus();
}

absl::StatusOr<DType> CheckedDType(uint32_t dtype) {
  if (!IsKnown(dtype)) return UserError("dtype 0x", absl::Hex(dtype), " is not one that Weft knows");
  return static_cast<DType>(dtype);
}

absl::StatusOr<int64_t> CheckedBytes(DType dtype, const int64_t* dims, size_t rank) {
  if (rank > kMaxRank) return UserError("rank ", rank, " is above ", kMaxRank);
  if (rank > 0 && dims == nullptr) return NullArgument("dims");
  const std::span<const int64_t> span(dims, rank);
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return UserError("dimension ", i, " of ", DimsToString(span), " is negative");
  }
  const std::optional<int64_t> count = CheckedCount(span);
  int64_t bytes;
  if (!count || __builtin_mul_overflow(*count, int64_t{BytesOf(dtype)}, &bytes)) {
    return UserError("shape ", DimsToString(span), " of ", NameOf(dtype), " has more bytes than 63 bits can count");
  }
  return bytes;
}

namespace {

// The one element of a tensor, read. `what` names the caller's function.
absl::StatusOr<HostTensor> ReadItem(lazy::Tensor& tensor, std::string_view what) {
  if (CountOf(tensor.dims()) != 1) {
    return UserError(what, ": the tensor has shape ", DimsToString(tensor.dims()),
                     "; it must have exactly one element");
  }
  HostTensor value(tensor.dtype(), {});
  WEFT_RETURN_IF_ERROR(tensor.engine().ToHost(&tensor, value.mutable_bytes()));
  return value;
}

absl::Status NoComplex(std::string_view function, DType dtype) {
  if (!IsComplex(dtype)) return absl::OkStatus();
  return UserError(function, ": dtype ", NameOf(dtype),
                   " takes two numbers; weft_complex makes it of two real tensors, weft_tensor_from_host of its bytes");
}
absl::Status NoComplexItem(std::string_view function, DType dtype) {
  if (!IsComplex(dtype)) return absl::OkStatus();
  return UserError(function, ": the tensor has dtype ", NameOf(dtype),
                   "; read weft_real and weft_imag of it, or its bytes by weft_tensor_to_host");
}

// Sub-byte elements that came from a caller, one a byte or packed, as the engine holds them.
HostTensor FromSubByte(DType dtype, std::span<const int64_t> shape, std::span<const std::byte> given) {
  HostTensor value(dtype, Dims(shape.begin(), shape.end()));
  if (given.size() != value.bytes().size()) {
    Unpack(dtype, given, value.mutable_bytes());
  } else {
    std::ranges::copy(given, value.mutable_bytes().begin());
    Normalize(dtype, value.mutable_bytes());
  }
  return value;
}

// Tells whether that many bytes are the elements in packed form. One element is the same byte in both forms.
bool IsPacked(DType dtype, int64_t count, size_t size) {
  return BitsOf(dtype) < 8 && size == static_cast<uint64_t>(PackedBytes(dtype, count));
}

std::string OrPacked(DType dtype, int64_t count) {
  return BitsOf(dtype) < 8 ? absl::StrCat(", or packed ", PackedBytes(dtype, count)) : std::string();
}

}  // namespace

absl::StatusOr<HostElements> ElementsOf(std::string_view function, weft_dtype dtype, const int64_t* dims, size_t rank,
                                        const void* data, size_t size, HostTensor* unpacked) {
  WEFT_ASSIGN_OR_RETURN(const DType type, CheckedDType(dtype));
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(type, dims, rank));
  const std::span<const int64_t> shape(dims, rank);
  if (size != static_cast<uint64_t>(bytes) && !IsPacked(type, bytes, size)) {
    return UserError(function, ": ", NameOf(type), DimsToString(shape), " has ", bytes, " bytes", OrPacked(type, bytes),
                     "; size is ", size);
  }
  if (bytes > 0) WEFT_NOT_NULL(data);
  std::span<const std::byte> source(static_cast<const std::byte*>(data), size);
  if (BitsOf(type) < 8) {
    *unpacked = FromSubByte(type, shape, source);
    source = unpacked->bytes();
  }
  return HostElements{type, shape, source};
}

namespace {

// Tells whether an integer survives in the dtype. Floats round; only f16 and f8 have less range than int64_t.
bool Fits(DType dtype, int64_t value) {
  if (IsBool(dtype)) return value == 0 || value == 1;
  const int bits = BitsOf(dtype);
  if (IsSigned(dtype)) return bits == 64 || (value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1));
  if (IsUnsigned(dtype)) return value >= 0 && (bits == 64 || value < int64_t{1} << bits);
  if (dtype == DType::kF16) return value > -65520 && value < 65520;  // what rounds to its largest, 65504
  if (!IsNarrow(dtype)) return true;
  HostTensor rounded(dtype, {});
  rounded.SetInt(0, value);
  return std::isfinite(rounded.GetDouble(0));
}

// Makes an element of the dtype: floats round, integers must hold it.
absl::StatusOr<HostTensor> NumberOf(DType dtype, double value) {
  const FloatScope floats;
  HostTensor number(dtype, {});
  if (IsFloat(dtype) || IsComplex(dtype)) {
    number.SetDouble(0, value);
    return number;
  }
  // The ends of the 64-bit ranges are exact as doubles. NaN is in neither.
  const bool negative = value < 0;
  const bool fits = value == std::trunc(value) && value >= -0x1p63 && value < 0x1p64 &&
                    (dtype == DType::kU64 ? !negative : value < 0x1p63 && Fits(dtype, static_cast<int64_t>(value)));
  if (!fits) return UserError(value, " does not fit ", NameOf(dtype));
  if (negative) {
    number.SetInt(0, static_cast<int64_t>(value));
  } else {
    number.SetUnsigned(0, static_cast<uint64_t>(value));
  }
  return number;
}

absl::Status NumberLike(weft_tensor* like, double value, bool constant, weft_tensor** out) {
  WEFT_NOT_NULL(out);
  WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(like, "like"));
  if (!constant) WEFT_RETURN_IF_ERROR(NoComplex("weft_tensor_argument_like", t->dtype()));
  WEFT_ASSIGN_OR_RETURN(const HostTensor number, NumberOf(t->dtype(), value));
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> made,
                        t->engine().ScalarLike(*t, number, constant, CurrentLocation(t->engine())));
  return MakeTensor(std::move(made), out);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_tensor_from_host(weft_context* ctx, weft_device* device, weft_dtype dtype, const int64_t* dims,
                                  size_t rank, const void* data, size_t size, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, WhereOf(*context, device));
    HostTensor unpacked;
    WEFT_ASSIGN_OR_RETURN(const HostElements given,
                          ElementsOf("weft_tensor_from_host", dtype, dims, rank, data, size, &unpacked));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, context->WithPressure(given.bytes.size(), [&] {
      return context->engine().FromHost(place, given.dtype, given.dims, given.bytes,
                                        CurrentLocation(context->engine()));
    }));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_tensor_from_f64(weft_context* ctx, weft_dtype dtype, double value, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(DType type, CheckedDType(dtype));
    WEFT_RETURN_IF_ERROR(NoComplex("weft_tensor_from_f64", type));
    if (!IsFloat(type))
      return UserError("weft_tensor_from_f64: dtype ", NameOf(type), " is no float; use weft_tensor_from_i64");
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor,
                          context->engine().Scalar(context->where(), type, value, CurrentLocation(context->engine())));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_tensor_from_i64(weft_context* ctx, weft_dtype dtype, int64_t value, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(DType type, CheckedDType(dtype));
    WEFT_RETURN_IF_ERROR(NoComplex("weft_tensor_from_i64", type));
    if (!Fits(type, value)) return UserError("weft_tensor_from_i64: ", value, " does not fit ", NameOf(type));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, context->engine().ScalarInt(context->where(), type, value,
                                                                                CurrentLocation(context->engine())));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_tensor_from_u64(weft_context* ctx, weft_dtype dtype, uint64_t value, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(DType type, CheckedDType(dtype));
    WEFT_RETURN_IF_ERROR(NoComplex("weft_tensor_from_u64", type));
    const bool wide = value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const bool fits = wide ? type == DType::kU64 || (IsFloat(type) && type != DType::kF16 &&
                                                     (BytesOf(type) > 1 || type == DType::kF8E8M0FNU))
                           : Fits(type, static_cast<int64_t>(value));
    if (!fits) return UserError("weft_tensor_from_u64: ", value, " does not fit ", NameOf(type));
    const FloatScope floats;
    HostTensor number(type, {});
    number.SetUnsigned(0, value);
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor,
                          IsFloat(type) ? context->engine().Scalar(context->where(), type, number.GetDouble(0),
                                                                   CurrentLocation(context->engine()))
                                        : context->engine().ScalarInt(context->where(), type, number.GetInt(0),
                                                                      CurrentLocation(context->engine())));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_tensor_constant_like(weft_tensor* like, double value, weft_tensor** out) noexcept {
  return Guard([&] { return NumberLike(like, value, true, out); });
}

weft_error* weft_tensor_argument_like(weft_tensor* like, double value, weft_tensor** out) noexcept {
  return Guard([&] { return NumberLike(like, value, false, out); });
}

weft_error* weft_tensor_copy(weft_tensor* tensor, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> copy, t->engine().Alias(t.get()));
    return MakeTensor(std::move(copy), out);
  });
}

weft_error* weft_tensor_copy_to(weft_tensor* tensor, weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    Ref<lazy::Engine> to = Ref<lazy::Engine>::Share(&t->engine());
    Device* place = to->devices()[0];
    if (device != nullptr) {
      WEFT_ASSIGN_OR_RETURN(Pin<DeviceObject> object, Get(device, "device"));
      to = object->engine;
      place = object->device;
    }
    if (place == t->device() && t->sharding().mesh().alone()) {
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> copy, to->Alias(t.get()));
      return MakeTensor(std::move(copy), out);
    }
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> copy, CopyElements(*t, *to, place, ""));
    return MakeTensor(std::move(copy), out);
  });
}

weft_error* weft_tensor_dtype(weft_tensor* tensor, weft_dtype* out_dtype) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_dtype);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    *out_dtype = static_cast<weft_dtype>(t->dtype());
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_rank(weft_tensor* tensor, size_t* out_rank) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_rank);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    *out_rank = t->dims().size();
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_dims(weft_tensor* tensor, int64_t* out_dims, size_t capacity, size_t* out_rank) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_rank);
    if (capacity > 0) WEFT_NOT_NULL(out_dims);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    std::copy_n(t->dims().begin(), std::min(capacity, t->dims().size()), out_dims);
    *out_rank = t->dims().size();
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_count(weft_tensor* tensor, int64_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    *out_count = CountOf(t->dims());
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_size(weft_tensor* tensor, uint64_t* out_bytes) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_bytes);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    *out_bytes = static_cast<uint64_t>(t->type().bytes());
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_device(weft_tensor* tensor, weft_device** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_ASSIGN_OR_RETURN(
        *out, Make<weft_device>(MakeRef<DeviceObject>(Ref<lazy::Engine>::Share(&t->engine()), t->device())));
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_to_host(weft_tensor* tensor, void* data, size_t size) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    const int64_t bytes = t->type().bytes();
    const bool packed = IsPacked(t->dtype(), bytes, size);
    if (size != static_cast<uint64_t>(bytes) && !packed) {
      return UserError("weft_tensor_to_host: the tensor ", ir::ShortType(t->type()), " has ", bytes, " bytes",
                       OrPacked(t->dtype(), bytes), "; size is ", size);
    }
    if (size > 0) WEFT_NOT_NULL(data);
    const std::span<std::byte> destination(static_cast<std::byte*>(data), size);
    if (!packed || bytes <= 1) return t->engine().ToHost(t.get(), destination);
    HostTensor elements(t->dtype(), t->dims());
    WEFT_RETURN_IF_ERROR(t->engine().ToHost(t.get(), elements.mutable_bytes()));
    Pack(t->dtype(), elements.bytes(), destination);
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_item_f64(weft_tensor* tensor, double* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_RETURN_IF_ERROR(NoComplexItem("weft_tensor_item_f64", t->dtype()));
    WEFT_ASSIGN_OR_RETURN(HostTensor value, ReadItem(*t, "weft_tensor_item_f64"));
    *out_value = IsFloat(t->dtype())      ? value.GetDouble(0)
                 : IsUnsigned(t->dtype()) ? static_cast<double>(static_cast<uint64_t>(value.GetInt(0)))
                                          : static_cast<double>(value.GetInt(0));
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_item_i64(weft_tensor* tensor, int64_t* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_RETURN_IF_ERROR(NoComplexItem("weft_tensor_item_i64", t->dtype()));
    if (IsFloat(t->dtype())) {
      return UserError("weft_tensor_item_i64: the tensor has dtype ", NameOf(t->dtype()), "; use weft_tensor_item_f64");
    }
    WEFT_ASSIGN_OR_RETURN(HostTensor value, ReadItem(*t, "weft_tensor_item_i64"));
    if (t->dtype() == DType::kU64 && value.GetInt(0) < 0) {
      return UserErrorOf(absl::StatusCode::kOutOfRange,
                         "weft_tensor_item_i64: ", static_cast<uint64_t>(value.GetInt(0)), " does not fit int64_t");
    }
    *out_value = value.GetInt(0);
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_item_u64(weft_tensor* tensor, uint64_t* out_value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_value);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    WEFT_RETURN_IF_ERROR(NoComplexItem("weft_tensor_item_u64", t->dtype()));
    if (IsFloat(t->dtype())) {
      return UserError("weft_tensor_item_u64: the tensor has dtype ", NameOf(t->dtype()), "; use weft_tensor_item_f64");
    }
    WEFT_ASSIGN_OR_RETURN(HostTensor value, ReadItem(*t, "weft_tensor_item_u64"));
    if (t->dtype() != DType::kU64 && value.GetInt(0) < 0) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "weft_tensor_item_u64: ", value.GetInt(0), " is negative");
    }
    *out_value = static_cast<uint64_t>(value.GetInt(0));
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_require_grad(weft_tensor* tensor, int32_t on) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    return t->engine().SetRequiresGrad(t.get(), on != 0);
  });
}

weft_error* weft_tensor_keep(weft_tensor* tensor) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    t->engine().Keep(t.get());
    return absl::OkStatus();
  });
}

weft_error* weft_tensor_assign(weft_tensor* target, weft_tensor* value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> to, GetTensor(target, "target"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> from, GetTensor(value, "value"));
    return to->engine().Assign(to.get(), from.get(), lazy::Past::kCut, CurrentLocation(to->engine()));
  });
}

weft_error* weft_tensor_copy_from(weft_tensor* target, weft_tensor* value) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> to, GetTensor(target, "target"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> from, GetTensor(value, "value"));
    return to->engine().Assign(to.get(), from.get(), lazy::Past::kKept, CurrentLocation(to->engine()));
  });
}

void weft_tensor_retain(weft_tensor* tensor) noexcept { RetainHandle(tensor, HandleType::kTensor); }
void weft_tensor_release(weft_tensor* tensor) noexcept { ReleaseHandle(tensor, HandleType::kTensor); }

}  // extern "C"
