// Values on their way to the host: computed if need be, waited for, copied.
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"
#include "src/lazy/read_as.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/clock.h"

namespace weft::lazy {
namespace {

bool AnyFailed(const Data& data) {
  return std::ranges::any_of(
      data.shards(), [](const Ref<Buffer>& shard) { return shard->ready().done() && !shard->ready().status().ok(); });
}

// Puts the window of a split value together, from byte `offset` on, on the host: one part after the other, of each but one copy.
absl::Status ReadParts(const Placement& placement, const Dims& dims, DType dtype, int64_t offset,
                       std::span<std::byte> window,
                       absl::FunctionRef<absl::Status(size_t i, int64_t from, std::span<std::byte> to)> read) {
  std::vector<std::byte, LargeStdAllocator<std::byte>> part;
  for (size_t i = 0; i < placement.mesh().holders().size(); ++i) {
    if (!placement.IsFirst(i)) continue;
    const ir::Box box = placement.BoxOf(dims, i);
    const ByteRange range = RangeOfPart(box, dims, BytesOf(dtype), offset, static_cast<int64_t>(window.size()));
    if (range.begin == range.end) continue;
    part.resize(static_cast<size_t>(range.end - range.begin));
    WEFT_RETURN_IF_ERROR(read(i, range.begin, part));
    CopyPartOut(part, range, box, dims, BytesOf(dtype), offset, window);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Data*> Engine::Materialize(Lock& lock, const Tensor& tensor, const ir::Value& value, CutReason reason) {
  if (Data* data = DataOf(value); data != nullptr && !IsLost(*data)) return data;
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(tensor.sharding()));
  if (Data* data = DataOf(value)) {
    WEFT_RETURN_IF_ERROR(evaluator_.Restore(lock, *state, *data));
    return data;
  }
  WEFT_RETURN_IF_ERROR(evaluator_.Know(lock, *state, {&value, 1}, reason));
  return DataOf(value);
}

absl::StatusOr<bool> Engine::ReadableAfter(const Tensor& tensor, Data& lost, const absl::Status& outcome) {
  const Ref<Data> kept = Ref<Data>::Share(&lost);
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(tensor.sharding()));
  WEFT_RETURN_IF_ERROR(evaluator_.Settle(lock, *state));
  const Data* const now = tensor.value() ? DataOf(tensor.value()) : nullptr;
  // It shows another value, which was made again or is the one before; the next barrier tells why.
  if (now != &lost) return now != nullptr && !IsLost(*now);
  // Made again in its place; or no launch has lost it, but a copy to the device, which nobody repeats.
  if (!IsLost(lost)) return !AnyFailed(lost);
  // A caller that gets a value here is not told of the failure; the next barrier tells it.
  const Launched* const launched = LostBy(lost);
  const bool over = launched == nullptr || launched->gave_up || launched->results == 1;
  const absl::Status again = over ? outcome : evaluator_.Restore(lock, *state, lost);
  if (again.ok()) return true;
  state->Told();
  return again;
}

absl::Status Engine::Read(Tensor* tensor, int64_t offset, std::span<std::byte> destination, std::string_view what,
                          bool as_held) {
  while (true) {
    Ref<Data> data;
    const absl::Status status = ReadOnce(tensor, offset, destination, what, as_held, &data);
    if (status.ok() || data == nullptr || data->word_count > 0) return status;
    if (!AnyFailed(*data)) return status;
    WEFT_ASSIGN_OR_RETURN(const bool again, ReadableAfter(*tensor, *data, status));
    if (!again) return status;
  }
}

absl::Status Engine::ReadOnce(Tensor* tensor, int64_t offset, std::span<std::byte> destination, std::string_view what,
                              bool as_held, Ref<Data>* read_of) {
  std::optional<Placement> placement;
  Shards shards;
  DType dtype;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, absl::StrCat(what, ": the tensor")));
    dtype = as_held ? options_.held.Of(tensor->dtype()) : tensor->dtype();
    const int64_t bytes = tensor->type().count() * BytesOf(dtype);
    const auto size = static_cast<int64_t>(destination.size());
    if (offset < 0 || size > bytes || offset > bytes - size) {
      return UserError(what, ": bytes ", offset, " to ", offset + size, " of a tensor ", ir::ShortType(tensor->type()),
                       ", which has ", bytes);
    }
    recorder_.MustShow(*tensor, Replay::Miss::kRead);
    const ir::Value value = tensor->value();
    metrics_->AddAlone(Counter::kHostRead);
    if (tensor->type().count() == 1) metrics_->AddAlone(Counter::kHostReadOfOne);
    WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
    if (data->word_count > 0) {
      ReadWordsAs(*data, tensor->type(), dtype, offset, destination);
      return absl::OkStatus();
    }
    *read_of = Ref<Data>::Share(data);
    placement = data->sharding();
    shards.assign(data->shards().begin(), data->shards().end());
    for (const Ref<Buffer>& shard : shards) shard->Hold();
  }
  PartScope part(*metrics_, Part::kCopying);
  const auto read = [&](size_t i, int64_t from, std::span<std::byte> to) -> absl::Status {
    Buffer& shard = *shards[i];
    const absl::Status status = services_.WaitFor(shard.ready(), Part::kResults);
    if (!status.ok() && !shard.ready().done()) return status;
    return ReadAs(shard, dtype, from, to);
  };
  const absl::Status status = placement->split()
                                  ? ReadParts(*placement, tensor->dims(), dtype, offset, destination, read)
                                  : read(placement->whole_at(), offset, destination);
  for (const Ref<Buffer>& shard : shards) shard->Unhold();
  services_.RunReleases();
  const int64_t now = MonotonicNow();
  part.End(now);
  // What left the device, where it holds a shorter type.
  const auto elements = static_cast<int64_t>(destination.size()) / BytesOf(dtype);
  const DType held = shards[placement->whole_at()]->dtype();
  const int64_t bytes = IsHeldAs(dtype, held) ? elements * BytesOf(held) : static_cast<int64_t>(destination.size());
  metrics_->Add(Counter::kBytesFromDevice, bytes);
  metrics_->Add(Sample::kRead, now - part.start(), now);
  metrics_->Add(Sample::kReadBytes, bytes, now);
  return status;
}

absl::StatusOr<int64_t> Engine::Size(Tensor* count, std::string_view what) {
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(count, what));
    metrics_->AddAlone(Counter::kHostExactSize);
    recorder_.MustShow(*count, Replay::Miss::kRead);
    const ir::Value value = count->value();
    WEFT_RETURN_IF_ERROR(Materialize(lock, *count, value, CutReason::kSize).status());
  }
  int32_t size = 0;
  WEFT_RETURN_IF_ERROR(Read(count, 0, std::as_writable_bytes(std::span(&size, 1)), what));
  return size;
}

absl::Status Engine::ToHost(Tensor* tensor, std::span<std::byte> destination) {
  if (tensor != nullptr && static_cast<int64_t>(destination.size()) != tensor->type().bytes()) {
    return UserError("read: ", ir::ShortType(tensor->type()), " has ", tensor->type().bytes(),
                     " bytes, the destination ", destination.size());
  }
  return Read(tensor, 0, destination, "read");
}

absl::Status Engine::ReadBytes(Tensor* tensor, int64_t offset, std::span<std::byte> destination) {
  return Read(tensor, offset, destination, "read");
}

absl::Status Engine::ReadHeld(Tensor* tensor, int64_t offset, std::span<std::byte> destination) {
  return Read(tensor, offset, destination, "read", true);
}

absl::StatusOr<Ref<Buffer>> Engine::BufferOfWords(const Data& data, const ir::Type& type, DType dtype, Device* device) {
  std::byte bytes[sizeof(data.words)];
  const std::span<std::byte> all(bytes, static_cast<size_t>(type.count() * BytesOf(dtype)));
  ReadWordsAs(data, type, dtype, 0, all);
  return device->backend->ToDevice(device, dtype, type.dims, all);
}

absl::StatusOr<Ref<Buffer>> Engine::ToBuffer(Tensor* tensor) {
  Lock lock(recorder_, Lock::To::kNote);
  WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, "export: the tensor"));
  recorder_.MustShow(*tensor, Replay::Miss::kRead);
  const ir::Value value = tensor->value();
  WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
  // A scalar stays an argument; the buffer is a copy for whoever asked.
  Ref<Buffer> buffer;
  if (data->word_count > 0) {
    WEFT_ASSIGN_OR_RETURN(buffer, BufferOfWords(*data, tensor->type(), tensor->dtype(), tensor->device()));
  } else if (data->split()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "export: the tensor ", ir::ShortType(tensor->type()),
                       " is cut over ", data->sharding().mesh().name(),
                       " and is in no device's memory whole; weft_shard it whole before, or read it");
  } else {
    buffer = data->whole();
  }
  buffer->Hold();
  if (!IsHeldAs(tensor->dtype(), buffer->dtype()) || !tensor->device()->is_host()) return buffer;
  // Held as another type: what goes out is a copy in the caller's.
  const absl::StatusOr<Ref<Buffer>> copy = lock.Open([&]() -> absl::StatusOr<Ref<Buffer>> {
    WEFT_RETURN_IF_ERROR(services_.WaitFor(buffer->ready(), Part::kResults));
    std::vector<std::byte, LargeStdAllocator<std::byte>> bytes(static_cast<size_t>(tensor->type().bytes()));
    WEFT_RETURN_IF_ERROR(ReadAs(*buffer, tensor->dtype(), 0, bytes));
    return tensor->device()->backend->ToDevice(tensor->device(), tensor->dtype(), tensor->dims(), bytes);
  });
  buffer->Unhold();
  if (copy.ok()) (*copy)->Hold();
  return copy;
}

}  // namespace weft::lazy
