// Writes tensors as a GGUF file of version 3, plainly: quantising is another program's. Data stands at multiples of 32, GGUF's own
// alignment, and dimensions come in its order, the fastest first.
#include <algorithm>
#include <bit>
#include <ranges>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/gguf_blocks.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 32;
constexpr uint32_t kVersion = 3, kText = 8, kI64 = 11;  // numbers of GGUF's kinds of values
constexpr size_t kMostDims = 4, kMostName = 63;         // that ggml takes

template <typename T>
void Append(T number, std::string* out) {
  static_assert(std::endian::native == std::endian::little);
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void AppendText(std::string_view text, std::string* out) {
  Append<uint64_t>(text.size(), out);
  out->append(text);
}

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The user's words as texts, and the step as "weft.step".
absl::StatusOr<uint64_t> AppendMetadata(const SaveOptions& options, std::string* out) {
  constexpr std::string_view kStep = "weft.step";
  absl::flat_hash_set<std::string_view> keys;
  for (const auto& [key, value] : options.user) {
    if (!keys.insert(key).second) return UserError("the metadata would have '", key, "' twice");
    if (!IsCleanText(key) || !IsCleanText(value)) {
      return UserError("metadata '", key, "' is not UTF-8 without NUL, which a GGUF file wants");
    }
    if (key == "general.alignment" || absl::StartsWith(key, "split.")) {
      return UserError("a GGUF file keeps the metadata '", key, "' for itself");
    }
    AppendText(key, out);
    Append<uint32_t>(kText, out);
    AppendText(value, out);
  }
  if (options.step == 0 || keys.contains(kStep)) return keys.size();
  AppendText(kStep, out);
  Append<uint32_t>(kI64, out);
  Append<int64_t>(options.step, out);
  return keys.size() + 1;
}

absl::Status AppendInfo(const FlatTensor& tensor, uint64_t offset, std::string* out) {
  if (tensor.dims.size() > kMostDims) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "a GGUF file has tensors of at most ", kMostDims,
                       " dimensions; '", tensor.name, "' is ", TypeText(tensor.dtype, tensor.dims));
  }
  if (tensor.name.size() > kMostName) {
    return UserError("a name in a GGUF file has at most ", kMostName, " bytes; '", tensor.name, "' has ",
                     tensor.name.size());
  }
  AppendText(tensor.name, out);
  Append<uint32_t>(static_cast<uint32_t>(tensor.dims.size()), out);
  for (const int64_t dim : std::views::reverse(tensor.dims)) Append<uint64_t>(static_cast<uint64_t>(dim), out);
  Append<uint32_t>(PlainGgufType(tensor.dtype)->number, out);
  Append<uint64_t>(offset, out);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteGguf(File& file, const FlatTree& flat, TensorSource& source, const SaveOptions& options) {
  std::string values, infos;
  WEFT_ASSIGN_OR_RETURN(const uint64_t value_count, AppendMetadata(options, &values));
  uint64_t end = 0;
  for (const FlatTensor& tensor : flat.tensors) {
    WEFT_RETURN_IF_ERROR(AppendInfo(tensor, end, &infos));
    if (__builtin_add_overflow(end, tensor.bytes, &end) || end > uint64_t{1} << 62) {
      return UserError("the tensors have more bytes than a file can hold");
    }
    end = Aligned(end);
  }
  std::string start = "GGUF";
  Append<uint32_t>(kVersion, &start);
  Append<uint64_t>(flat.tensors.size(), &start);
  Append<uint64_t>(value_count, &start);
  start += values + infos;
  start.resize(Aligned(start.size()), '\0');
  WEFT_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(start))));
  PieceReader pieces(flat, source, options);
  constexpr std::byte kZeros[kAlignment] = {};
  for (const FlatTensor& tensor : flat.tensors) {
    WEFT_RETURN_IF_ERROR(pieces.Each(tensor, [&](std::span<std::byte> piece) { return file.Write(piece); }));
    WEFT_RETURN_IF_ERROR(file.Write(std::span(kZeros).first(Aligned(tensor.bytes) - tensor.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace weft
