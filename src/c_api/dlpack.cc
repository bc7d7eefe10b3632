// DLPack in and out, both forms.
#include "src/c_api/dlpack.h"

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/context.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/mutex.h"
#include "weft.h"

namespace weft::c_api {
namespace {

uint32_t NumberOf(const DLDataType& type) {
  return type.code | static_cast<uint32_t>(type.bits) << 8 | static_cast<uint32_t>(type.lanes) << 16;
}
DLDataType TypeFrom(DType dtype) {
  const auto number = static_cast<uint32_t>(dtype);
  return {static_cast<uint8_t>(number), static_cast<uint8_t>(number >> 8), static_cast<uint16_t>(number >> 16)};
}

// The foreign tensor's end, which must come exactly once if the import succeeds and never if it fails; the engine runs its
// release in both cases, and perhaps before the import returns.
class ForeignOwner {
 public:
  explicit ForeignOwner(std::function<void()> finish) : finish_(std::move(finish)) {}
  void Released() { Step(&ForeignOwner::released_); }
  void Succeeded() { Step(&ForeignOwner::succeeded_); }

 private:
  void Step(bool ForeignOwner::* flag) {
    bool both;
    {
      MutexLock lock(mutex_);
      this->*flag = true;
      both = released_ && succeeded_;
    }
    if (both) finish_();
  }
  Mutex mutex_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  bool succeeded_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> finish_;
};

bool IsCompact(const DLTensor& t) {
  if (t.strides == nullptr) return true;
  int64_t expected = 1;
  for (int32_t d = t.ndim; d-- > 0;) {
    if (t.shape[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.shape[d];
  }
  return true;
}

// Checks that the tensor's elements can lie in memory, from the first byte to the last: strides may lead either way.
absl::Status CheckExtent(const DLTensor& t, size_t size) {
  const auto refused = [&](std::string_view what) {
    return UserError("DLPack tensor ", DimsToString({t.shape, static_cast<size_t>(t.ndim)}), " of ", size,
                     "-byte elements: ", what);
  };
  const auto most = static_cast<int64_t>(kMostBytes);
  if (t.byte_offset > kMostBytes) return refused(absl::StrCat("byte_offset is ", t.byte_offset, ", past all memory"));
  int64_t first = 0, last = 0;  // elements
  if (t.strides == nullptr) {
    last = CountOf({t.shape, static_cast<size_t>(t.ndim)}) - 1;
  } else {
    for (int32_t d = 0; d < t.ndim; ++d) {
      int64_t reach = 0;
      int64_t& end = t.strides[d] < 0 ? first : last;
      if (t.shape[d] == 1) continue;
      if (__builtin_mul_overflow(t.shape[d] - 1, t.strides[d], &reach) || __builtin_add_overflow(end, reach, &end)) {
        return refused(absl::StrCat("strides[", d, "] is ", t.strides[d], ", which leads past all memory"));
      }
    }
  }
  int64_t low = 0, high = 0;  // bytes
  const bool fits = !__builtin_mul_overflow(first, static_cast<int64_t>(size), &low) &&
                    !__builtin_mul_overflow(last, static_cast<int64_t>(size), &high) && low >= -most && high <= most;
  const auto begin = static_cast<__int128>(reinterpret_cast<uintptr_t>(t.data)) + t.byte_offset;
  if (!fits || begin + low < 0 || begin + high + static_cast<int64_t>(size) > static_cast<__int128>(UINTPTR_MAX)) {
    return refused(absl::StrCat("its strides and byte_offset ", t.byte_offset, " lead past all memory"));
  }
  return absl::OkStatus();
}

using Bytes = std::vector<std::byte, LargeStdAllocator<std::byte>>;

// Row-major copy of a strided tensor.
Bytes Gather(const DLTensor& t, const std::byte* data, int64_t count, size_t size) {
  Bytes dense(static_cast<size_t>(count) * size);
  std::vector<int64_t> index(static_cast<size_t>(t.ndim), 0);
  int64_t at = 0;
  for (int64_t k = 0; k < count; ++k) {
    std::memcpy(dense.data() + static_cast<size_t>(k) * size, data + at * static_cast<int64_t>(size), size);
    for (int32_t d = t.ndim; d-- > 0;) {
      if (t.shape[d] == 1) continue;
      at += t.strides[d];
      if (++index[d] < t.shape[d]) break;
      at -= index[d] * t.strides[d];
      index[d] = 0;
    }
  }
  return dense;
}

// DLPack's sub-byte elements are packed unless a flag of its newest form says otherwise; here each has a byte.
absl::Status NoSubByte(DType dtype) {
  if (BitsOf(dtype) >= 8) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented, "DLPack tensors of ", NameOf(dtype),
                     " are not exchanged; weft_tensor_from_host and weft_tensor_to_host take packed elements");
}

absl::Status Import(weft_context* ctx, const DLTensor& t, std::function<void()> finish, weft_tensor** out) {
  WEFT_NOT_NULL(out);
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->BeforeWork());
  if (t.device.device_type != kDLCpu) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "DLPack tensor on device type ", t.device.device_type,
                       "; only host memory (1) can be imported");
  }
  if (t.ndim < 0) return UserError("DLPack tensor with ndim ", t.ndim);
  WEFT_ASSIGN_OR_RETURN(DType dtype, CheckedDType(NumberOf(t.dtype)));
  WEFT_RETURN_IF_ERROR(NoSubByte(dtype));
  WEFT_ASSIGN_OR_RETURN(int64_t bytes, CheckedBytes(dtype, t.shape, static_cast<size_t>(t.ndim)));
  if (bytes > 0 && t.data == nullptr) return UserError("DLPack tensor with ", bytes, " bytes and no data");
  const std::span<const int64_t> dims(t.shape, static_cast<size_t>(t.ndim));
  auto* data = static_cast<std::byte*>(t.data);
  const size_t size = static_cast<size_t>(BytesOf(dtype));
  if (bytes > 0) {  // an empty tensor may have no data
    WEFT_RETURN_IF_ERROR(CheckExtent(t, size));
    data += t.byte_offset;
  }
  lazy::Engine& engine = context->engine();
  finish = engine.services().Later(std::move(finish));
  const bool aligned = reinterpret_cast<uintptr_t>(data) % size == 0;
  Ref<lazy::Tensor> tensor;
  // In a function's body it becomes a literal.
  if (bytes > 0 && aligned && IsCompact(t) && context->frame() == nullptr) {
    auto owner = std::make_shared<ForeignOwner>(std::move(finish));
    WEFT_ASSIGN_OR_RETURN(
        tensor,
        engine.Adopt(context->where(), dtype, dims, data, [owner] { owner->Released(); }, CurrentLocation(engine)));
    WEFT_RETURN_IF_ERROR(MakeTensor(std::move(tensor), out));
    owner->Succeeded();
    return absl::OkStatus();
  }
  Bytes dense;
  std::span<const std::byte> source(data, static_cast<size_t>(bytes));
  if (!IsCompact(t)) {
    // A stride of 0 makes terabytes of one element.
    if (!MachineHas(bytes)) {
      return NoLargeMemory(
          absl::StrCat("the dense form of a DLPack tensor ", NameOf(dtype), DimsToString(dims), ": ", bytes, " bytes"));
    }
    dense = Gather(t, data, bytes / static_cast<int64_t>(size), size);
    source = dense;
  }
  WEFT_ASSIGN_OR_RETURN(tensor, context->WithPressure(bytes, [&] {
    return engine.FromHost(context->where(), dtype, dims, source, CurrentLocation(engine));
  }));
  WEFT_RETURN_IF_ERROR(MakeTensor(std::move(tensor), out));
  finish();
  return absl::OkStatus();
}

// Keeps alive what an exported tensor needs. One allocation holds the DLPack struct, its shape and strides.
template <typename Managed>
struct Export {
  Managed managed;
  Dims shape, strides;
  Ref<lazy::Engine> engine;  // devices outlive their buffers
  Ref<Buffer> buffer;
};

template <typename Managed>
absl::Status ExportTensor(weft_tensor* tensor, Managed** out) {
  WEFT_NOT_NULL(out);
  WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
  WEFT_RETURN_IF_ERROR(NoSubByte(t->dtype()));
  WEFT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, t->engine().ToBuffer(t.get()));
  // The buffer comes held; the export takes that hold over, and every way out before gives it back.
  absl::Cleanup unhold = [&] { buffer->Unhold(); };
  WEFT_RETURN_IF_ERROR(t->engine().services().WaitFor(buffer->ready(), Part::kResults));
  void* data = buffer->host_data();
  if (data == nullptr && buffer->count() > 0) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "memory of ", buffer->device()->name,
                       " cannot be lent as DLPack; copy it with weft_tensor_to_host");
  }
  auto* held = new Export<Managed>{};
  held->shape = t->dims();
  held->strides = StridesOf(t->dims());
  held->engine = Ref<lazy::Engine>::Share(&t->engine());
  std::move(unhold).Cancel();
  held->buffer = std::move(buffer);
  DLTensor& dl = held->managed.dl_tensor;
  dl.data = data;
  dl.device = {held->buffer->device()->type, held->buffer->device()->id};
  dl.ndim = static_cast<int32_t>(held->shape.size());
  dl.dtype = TypeFrom(t->dtype());
  dl.shape = held->shape.data();
  dl.strides = held->strides.data();
  dl.byte_offset = 0;
  held->managed.manager_ctx = held;
  held->managed.deleter = [](Managed* self) {
    if (self == nullptr) return;
    auto* mine = static_cast<Export<Managed>*>(self->manager_ctx);
    // In the child of a fork somebody may hold locks of the memory's who is not here: it goes with the process.
    if (mine->engine->services().fork().Forked()) return;
    mine->buffer->Unhold();
    delete mine;
  };
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    held->managed.version = {1, 1};
    held->managed.flags = kDLReadOnly;
  }
  *out = &held->managed;
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_tensor_from_dlpack(weft_context* ctx, DLManagedTensorVersioned* managed, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(managed);
    // A struct of another major version has only a deleter that may be touched.
    if (managed->version.major != 1) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "DLPack version ", managed->version.major, ".",
                         managed->version.minor, "; Weft speaks version 1");
    }
    return Import(
        ctx, managed->dl_tensor,
        [managed] {
          const CallingOut calling;
          if (managed->deleter != nullptr) managed->deleter(managed);
        },
        out);
  });
}

weft_error* weft_tensor_from_dlpack_legacy(weft_context* ctx, DLManagedTensor* managed, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(managed);
    return Import(
        ctx, managed->dl_tensor,
        [managed] {
          const CallingOut calling;
          if (managed->deleter != nullptr) managed->deleter(managed);
        },
        out);
  });
}

weft_error* weft_tensor_to_dlpack(weft_tensor* tensor, DLManagedTensorVersioned** out) noexcept {
  return Guard([&] { return ExportTensor(tensor, out); });
}

weft_error* weft_tensor_to_dlpack_legacy(weft_tensor* tensor, DLManagedTensor** out) noexcept {
  return Guard([&] { return ExportTensor(tensor, out); });
}

}  // extern "C"
