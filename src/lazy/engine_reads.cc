// Values on their way to the host: computed if need be, waited for, copied.
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "src/lazy/engine.h"
#include "src/runtime/clock.h"

namespace weft::lazy {

absl::StatusOr<Data*> Engine::Materialize(Lock& lock, const Tensor& tensor, const ir::Value& value, CutReason reason) {
  if (Data* data = DataOf(value)) return data;
  WEFT_ASSIGN_OR_RETURN(MeshState * state, recorder_.CheckPlace(tensor.sharding()));
  WEFT_RETURN_IF_ERROR(evaluator_.Know(lock, *state, {&value, 1}, reason));
  return DataOf(value);
}

absl::Status Engine::Read(Tensor* tensor, int64_t offset, std::span<std::byte> destination, std::string_view what) {
  std::optional<Sharding> sharding;
  Shards shards;
  {
    Lock lock(recorder_);
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, absl::StrCat(what, ": the tensor")));
    const int64_t bytes = tensor->type().bytes();
    const auto size = static_cast<int64_t>(destination.size());
    if (offset < 0 || size > bytes || offset > bytes - size) {
      return UserError(what, ": bytes ", offset, " to ", offset + size, " of a tensor ", ir::ShortType(tensor->type()),
                       ", which has ", bytes);
    }
    const ir::Value value = tensor->value();
    WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
    if (data->word_count > 0) {
      // Little-endian words: 64-bit elements lie as they are, narrower ones have a word each.
      const int64_t width = BytesOf(tensor->dtype());
      const auto* words = reinterpret_cast<const std::byte*>(data->words.data());
      for (int64_t i = 0; i < size; ++i) {
        const int64_t at = offset + i;
        destination[static_cast<size_t>(i)] = words[width >= 4 ? at : at / width * 4 + at % width];
      }
      return absl::OkStatus();
    }
    sharding = data->sharding();
    shards.assign(data->shards().begin(), data->shards().end());
    for (const Ref<Buffer>& shard : shards) shard->Hold();
  }
  const int64_t start = MonotonicNow();
  const auto read = [&](size_t i, int64_t from, int64_t at, int64_t size) -> absl::Status {
    Buffer& shard = *shards[i];
    const absl::Status status = services_.WaitFor(shard.ready());
    if (!status.ok() && !shard.ready().done()) return status;
    return shard.device()->backend->FromDevice(shard, from,
                                               destination.subspan(static_cast<size_t>(at), static_cast<size_t>(size)));
  };
  const absl::Status status = sharding->ForEachPiece(offset, static_cast<int64_t>(destination.size()), read);
  for (const Ref<Buffer>& shard : shards) shard->Unhold();
  services_.RunReleases();
  metrics_.Add(Counter::kNanosecondsWaiting, MonotonicNow() - start);
  metrics_.Add(Counter::kBytesFromDevice, static_cast<int64_t>(destination.size()));
  return status;
}

absl::StatusOr<int64_t> Engine::Size(Tensor* count, std::string_view what) {
  {
    Lock lock(recorder_);
    WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(count, what));
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

absl::StatusOr<Ref<Buffer>> Engine::BufferOfWords(const Data& data, const ir::Type& type, Device* device) {
  std::byte bytes[sizeof(data.words)];
  const auto width = static_cast<size_t>(BytesOf(type.dtype));
  const auto size = static_cast<size_t>(type.bytes());
  for (size_t i = 0; i < size; i += width) {
    std::memcpy(bytes + i, &data.words[width == 8 ? i / 4 : i / width], width);
  }
  return device->backend->ToDevice(device, type.dtype, type.dims, {bytes, size});
}

absl::StatusOr<Ref<Buffer>> Engine::ToBuffer(Tensor* tensor) {
  Lock lock(recorder_);
  WEFT_RETURN_IF_ERROR(recorder_.CheckKnowable(tensor, "export: the tensor"));
  const ir::Value value = tensor->value();
  WEFT_ASSIGN_OR_RETURN(Data * data, Materialize(lock, *tensor, value));
  // A scalar stays an argument; the buffer is a copy for whoever asked.
  Ref<Buffer> buffer;
  if (data->word_count > 0) {
    WEFT_ASSIGN_OR_RETURN(buffer, BufferOfWords(*data, tensor->type(), tensor->device()));
  } else {
    buffer = data->whole();
  }
  buffer->Hold();
  return buffer;
}

}  // namespace weft::lazy
