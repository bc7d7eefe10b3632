// Values on their way to the host: computed if need be, waited for, copied.
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"
#include "src/lazy/value/read_as.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/clock.h"

namespace weft::lazy {
namespace {

// Reads a window of a value's bytes, or a box of it.
absl::Status ReadWindow(const Placement& placement, const Dims& dims, int64_t element, int64_t offset,
                        const ir::Box* box, std::span<std::byte> destination, ReadPart read) {
  if (box != nullptr) return ReadBoxOfParts(placement, dims, element, *box, destination, read);
  if (placement.split()) return ReadParts(placement, dims, element, offset, destination, read);
  return read(placement.whole_at(), offset, destination);
}

bool AnyFailed(const Data& data) {
  return std::ranges::any_of(
      data.shards(), [](const Ref<Buffer>& shard) { return shard->ready().done() && !shard->ready().status().ok(); });
}

}  // namespace

absl::StatusOr<Data*> Engine::Materialize(Lock& lock, const Tensor& tensor, const ir::Value& value, CutReason reason) {
  if (Data* data = DataOf(value); data != nullptr && !IsLost(*data)) return data;
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(tensor.sharding()));
  if (Data* data = DataOf(value)) {
    WEFT_RETURN_IF_ERROR(evaluator_.Restore(lock, *state, *data));
    return data;
  }
  if (options_.host_read != HostReads::kAllow) WEFT_RETURN_IF_ERROR(MayRead(tensor));
  WEFT_RETURN_IF_ERROR(evaluator_.Know(lock, *state, {&value, 1}, reason));
  return DataOf(value);
}

absl::Status Engine::MayRead(const Tensor& tensor) {
  const ir::Location at = options_.caller ? options_.caller() : ir::Location();
  const std::string where = ir::ToString(at);
  const std::string text =
      absl::StrCat(where.empty() ? "" : absl::StrCat(where, ": "), "a value ", ir::ShortType(tensor.type()),
                   " is read that is to be computed first, which ends the step early");
  if (options_.host_read == HostReads::kForbid) {
    const absl::Status status = UserErrorOf(
        absl::StatusCode::kFailedPrecondition, text,
        "; the option host_read forbids it. A value can be read once weft_sync or weft_eval has launched its computation");
    return where.empty() ? status : WithDetail(status, kPayloadPosition, where);
  }
  // Each place once; of very many places the first.
  constexpr size_t kMostPlaces = 4096;
  if (places_read_.size() < kMostPlaces && places_read_.emplace(at.file, at.line).second)
    services_.Log(LogLevel::kWarning, text);
  return absl::OkStatus();
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

absl::Status Engine::Read(Tensor* tensor, const Window& window, std::span<std::byte> destination,
                          std::string_view what) {
  return UntilReadable(tensor, [&](Ref<Data>* data) { return ReadOnce(tensor, window, destination, what, data); });
}

absl::Status Engine::UntilReadable(Tensor* tensor, absl::FunctionRef<absl::Status(Ref<Data>* read_of)> once) {
  while (true) {
    Ref<Data> data;
    const absl::Status status = once(&data);
    if (status.ok() || data == nullptr || data->word_count > 0) return status;
    if (!AnyFailed(*data)) return status;
    WEFT_ASSIGN_OR_RETURN(const bool again, ReadableAfter(*tensor, *data, status));
    if (!again) return status;
  }
}

absl::Status Engine::ReadOnce(Tensor* tensor, const Window& window, std::span<std::byte> destination,
                              std::string_view what, Ref<Data>* read_of) {
  std::optional<Placement> placement;
  Shards shards;
  DType dtype;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, absl::StrCat(what, ": the tensor")));
    dtype = window.as_held ? options_.held.Of(tensor->dtype()) : tensor->dtype();
    WEFT_RETURN_IF_ERROR(window.Fits(*tensor, dtype, destination.size(), what));
    recorder_.MustShow(*tensor, Replay::Miss::kRead);
    const ir::Value value = tensor->value();
    metrics_->AddAlone(Counter::kHostRead);
    if (tensor->type().count() == 1) metrics_->AddAlone(Counter::kHostReadOfOne);
    WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
    if (data->word_count > 0) {
      const ir::Type& type = tensor->type();
      std::byte words[sizeof(data->words)];
      const std::span<std::byte> all(words, static_cast<size_t>(type.count() * BytesOf(dtype)));
      ReadWordsAs(*data, type, dtype, 0, all);
      return ReadWindow(Placement::Whole(tensor->sharding().mesh()), type.dims, BytesOf(dtype), window.offset,
                        window.box, destination, [&](size_t, int64_t from, std::span<std::byte> to) {
                          std::memcpy(to.data(), words + from, to.size());
                          return absl::OkStatus();
                        });
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
  const absl::Status status =
      ReadWindow(*placement, tensor->dims(), BytesOf(dtype), window.offset, window.box, destination, read);
  for (const Ref<Buffer>& shard : shards) shard->Unhold();
  services_.RunReleases();
  const int64_t now = MonotonicNow();
  part.End(now);
  // Counts the bytes that left the device, where it holds a shorter type.
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
  WEFT_RETURN_IF_ERROR(Read(count, {}, std::as_writable_bytes(std::span(&size, 1)), what));
  return size;
}

absl::Status Engine::ToHost(Tensor* tensor, std::span<std::byte> destination) {
  if (tensor != nullptr && static_cast<int64_t>(destination.size()) != tensor->type().bytes()) {
    return UserError("read: ", ir::ShortType(tensor->type()), " has ", tensor->type().bytes(),
                     " bytes, the destination ", destination.size());
  }
  return Read(tensor, {}, destination, "read");
}

absl::Status Engine::ReadBytes(Tensor* tensor, int64_t offset, std::span<std::byte> destination) {
  return Read(tensor, {.offset = offset}, destination, "read");
}

absl::Status Engine::ReadBox(Tensor* tensor, const ir::Box& box, std::span<std::byte> destination) {
  return Read(tensor, {.box = &box}, destination, "weft_tensor_to_host_box");
}

absl::Status Engine::ReadHeld(Tensor* tensor, int64_t offset, std::span<std::byte> destination) {
  return Read(tensor, {.offset = offset, .as_held = true}, destination, "read");
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
