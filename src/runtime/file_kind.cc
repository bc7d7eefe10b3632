// See file_kind.h.
#include "src/runtime/file_kind.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct Kind {
  std::string_view magic, what;
};

constexpr Kind kKinds[] = {
    {"ML\xEFR",
     "MLIR bytecode (as StableHLO's portable artifacts are); weft_function_from_stablehlo reads the text that "
     "stablehlo-translate --deserialize or mlir-opt makes of it"},
    {"HloModule", "HLO text of XLA; weft_function_from_stablehlo reads StableHLO text"},
    {"\x93NUMPY", "a NumPy array (.npy), which weft_checkpoint_load and `weft run --input` read"},
    {"PK\x03\x04", "a ZIP archive; weft_checkpoint_load reads .npz of NumPy and .pt of PyTorch"},
    {"\x89HDF\r\n\x1A\n", "an HDF5 file"},
    {"GGUF", "a GGUF file, which weft_checkpoint_load reads"},
    {"\x7F"
     "ELF",
     "a library or program (ELF)"},
    {"\x1F\x8B", "compressed (gzip)"},
    {"\x28\xB5\x2F\xFD", "compressed (zstd)"},
    {"\x80\x02", "a Python pickle; weft_checkpoint_load reads those of PyTorch's weights"},
    {"\x80\x03", "a Python pickle"},
    {"\x80\x04", "a Python pickle"},
    {"\x80\x05", "a Python pickle"},
};

// A length of 64 bits, then a JSON object.
bool IsSafetensors(std::string_view text) {
  uint64_t length = 0;
  if (text.size() < 10 || text[8] != '{') return false;
  std::memcpy(&length, text.data(), sizeof length);
  return length >= 2 && length < uint64_t{1} << 32;
}

bool IsIdx(std::string_view text) {
  if (text.size() < 4 || text[0] != 0 || text[1] != 0) return false;
  const bool known = text[2] == 8 || text[2] == 9 || (text[2] >= 11 && text[2] <= 14);
  return known && text[3] >= 1 && text[3] <= 32;
}

}  // namespace

std::string_view KindOfFile(std::span<const std::byte> first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  if (text.starts_with(std::string_view(reinterpret_cast<const char*>(kCheckpointMagic), 8))) {
    return "a Weft checkpoint, which weft_checkpoint_load and `weft show` read";
  }
  if (text.starts_with(std::string_view(reinterpret_cast<const char*>(kCacheMagic), 8))) {
    const bool function =
        text.size() > kCacheEntryKindAt && static_cast<uint8_t>(text[kCacheEntryKindAt]) == kFunctionKind;
    return function ? "the file of a Weft function, which weft_function_load reads"
                    : "an entry of Weft's compile cache, which only the cache reads";
  }
  for (const Kind& kind : kKinds) {
    if (text.starts_with(kind.magic)) return kind.what;
  }
  if (IsSafetensors(text)) return "a safetensors file, which weft_checkpoint_load reads";
  return IsIdx(text) ? "an IDX array, which weft_idx_read reads" : "";
}

std::string ItIs(std::span<const std::byte> first) {
  const std::string_view kind = KindOfFile(first);
  return kind.empty() ? "" : absl::StrCat("; it is ", kind);
}

}  // namespace weft
