// See file_kind.h.
#include "src/runtime/file_kind.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

struct Kind {
  std::string_view magic, name, what;
};

constexpr Kind kKinds[] = {
    {"ML\xEFR", "mlir_bytecode",
     "MLIR bytecode (as StableHLO's portable artifacts are); weft_function_from_stablehlo reads the text that "
     "stablehlo-translate --deserialize or mlir-opt makes of it"},
    {"HloModule", "hlo_text", "HLO text of XLA; weft_function_from_stablehlo reads StableHLO text"},
    {"\x93NUMPY", "npy", "a NumPy array (.npy), which weft_checkpoint_load and `weft run --input` read"},
    {"PK\x03\x04", "zip", "a ZIP archive; weft_checkpoint_load reads .npz of NumPy and .pt of PyTorch"},
    {"\x89HDF\r\n\x1A\n", "hdf5", "an HDF5 file"},
    {"GGUF", "gguf", "a GGUF file, which weft_checkpoint_load reads"},
    {"\x7F"
     "ELF",
     "elf", "a library or program (ELF)"},
    {"\x1F\x8B", "gzip", "compressed (gzip)"},
    {"\x28\xB5\x2F\xFD", "zstd", "compressed (zstd)"},
    {"\x80\x02", "pickle", "a Python pickle; weft_checkpoint_load reads those of PyTorch's weights"},
    {"\x80\x03", "pickle", "a Python pickle"},
    {"\x80\x04", "pickle", "a Python pickle"},
    {"\x80\x05", "pickle", "a Python pickle"},
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

SniffedFile SniffFile(std::span<const std::byte> first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  if (text.starts_with(std::string_view(reinterpret_cast<const char*>(kCheckpointMagic), 8))) {
    return {"checkpoint", "a Weft checkpoint, which weft_checkpoint_load and `weft show` read"};
  }
  if (text.starts_with(std::string_view(reinterpret_cast<const char*>(kCacheMagic), 8))) {
    const bool function =
        text.size() > kCacheEntryKindAt && static_cast<uint8_t>(text[kCacheEntryKindAt]) == kFunctionKind;
    if (function) {
      return {"function", "the file of a Weft function, which weft_function_load, `weft run` and `weft show` read"};
    }
    return {"cache_entry", "an entry of Weft's compile cache, which only the cache reads; `weft show` says what it is"};
  }
  for (const Kind& kind : kKinds) {
    if (text.starts_with(kind.magic)) return {kind.name, kind.what};
  }
  if (IsSafetensors(text)) return {"safetensors", "a safetensors file, which weft_checkpoint_load reads"};
  if (IsIdx(text)) return {"idx", "an IDX array, which weft_idx_read reads"};
  return {};
}

std::string_view KindOfFile(std::span<const std::byte> first) { return SniffFile(first).what; }

std::string ItIs(std::span<const std::byte> first) {
  const std::string_view kind = KindOfFile(first);
  return kind.empty() ? "" : absl::StrCat("; it is ", kind);
}

}  // namespace weft
