// See read_as.h.
#include "src/lazy/value/read_as.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/runtime/held_types.h"

namespace weft::lazy {
namespace {

// Elements that are on their way at once: half a MiB to 4 MiB, whatever the size of the tensor.
constexpr int64_t kPiece = int64_t{1} << 18;

}  // namespace

absl::Status ReadAs(Buffer& buffer, DType dtype, int64_t from, std::span<std::byte> out) {
  WEFT_RETURN_IF_ERROR(buffer.ready().Wait());  // one that failed may be none of the backend's
  Backend& backend = *buffer.device()->backend;
  const DType held = buffer.dtype();
  if (!IsHeldAs(dtype, held)) return backend.FromDevice(buffer, from, out);
  const int64_t width = BytesOf(dtype), held_width = BytesOf(held);
  std::vector<std::byte> stored, elements;
  for (size_t done = 0; done < out.size();) {
    const int64_t at = from + static_cast<int64_t>(done), first = at / width;
    const int64_t end = from + static_cast<int64_t>(out.size());
    const int64_t count = std::min((end + width - 1) / width - first, kPiece);
    stored.resize(static_cast<size_t>(count * held_width));
    elements.resize(static_cast<size_t>(count * width));
    WEFT_RETURN_IF_ERROR(backend.FromDevice(buffer, first * held_width, stored));
    ConvertHeld(held, stored, dtype, elements);
    const auto skipped = static_cast<size_t>(at - first * width);
    const size_t size = std::min(elements.size() - skipped, out.size() - done);
    std::memcpy(out.data() + done, elements.data() + skipped, size);
    done += size;
  }
  return absl::OkStatus();
}

void ReadWordsAs(const Data& data, const ir::Type& type, DType dtype, int64_t from, std::span<std::byte> out) {
  if (out.empty()) return;
  std::byte seen[sizeof(data.words)], held[sizeof(data.words)];
  const auto width = static_cast<size_t>(BytesOf(type.dtype));
  const auto size = static_cast<size_t>(type.bytes());
  // Little-endian words: 64-bit elements lie as they are, narrower ones have a word each.
  for (size_t i = 0; i < size; i += width) {
    std::memcpy(seen + i, &data.words[width == 8 ? i / 4 : i / width], width);
  }
  const std::byte* bytes = seen;
  if (dtype != type.dtype) {
    ConvertHeld(type.dtype, {seen, size}, dtype, {held, size / width * static_cast<size_t>(BytesOf(dtype))});
    bytes = held;
  }
  std::memcpy(out.data(), bytes + from, out.size());
}

}  // namespace weft::lazy
