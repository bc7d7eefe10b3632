// Any bytes as a checkpoint, through the file reader and the stream reader. The first byte says whether checksums count: with
// them ignored mutations reach everything behind. Starts from a valid file of its own, so it needs no seeds.
#include <cstdlib>

#include "serialization/checkpoint_reader.h"
#include "serialization/checkpoint_writer.h"
#include "tests/support/one_file.h"

namespace weft {
namespace {

struct Ones final : TensorSource {
  absl::Status Read(uint32_t, uint64_t, std::span<std::byte> out) override {
    std::fill(out.begin(), out.end(), std::byte{1});
    return absl::OkStatus();
  }
};

// The whole of what a writer writes, gathered by a FileSystem that only appends.
class Gather final : public testing::OneFile {
 public:
  int64_t Write(int, const void* data, size_t size) override {
    bytes.append(static_cast<const char*>(data), size);
    return static_cast<int64_t>(size);
  }
};

std::string ValidFile(bool compress) {
  Tree tree;
  const std::vector<int64_t> small = {3, 5}, middle = {40, 4}, large = {70'000}, none = {};
  const auto model = tree.Add(0, "model", Tree::Dict()).value();
  const auto weight = tree.Add(model, "w", Tree::Tensor(DType::kF32, middle)).value();
  tree.Add(model, "b", Tree::Tensor(DType::kBF16, small)).value();
  tree.Add(model, "m", Tree::Tensor(DType::kBool, middle)).value();
  tree.Add(model, "s", Tree::Tensor(DType::kF64, none)).value();
  tree.Add(model, "z", Tree::Tensor(DType::kU8, large)).value();
  tree.Add(0, "tied", Tree::Alias(weight)).value();
  const auto list = tree.Add(0, "l", Tree::List()).value();
  tree.Append(list, Tree::Int64(1)).value();
  tree.Append(list, Tree::Text("text")).value();
  tree.Append(list, Tree::Bytes("bytes")).value();
  Ones ones;
  Gather gather;
  SaveOptions options;
  options.fs = &gather;
  options.user = {{"key", "value"}};
  options.compress = compress;
  if (!StreamCheckpoint(3, "memory", tree, ones, options).ok()) std::abort();
  return gather.bytes;
}

void ReadAll(testing::OneFile* file) {
  for (const Verify verify : {Verify::kAll, Verify::kUse, Verify::kOff}) {
    auto reader = CheckpointReader::Open("file", {.fs = file, .verify = verify});
    if (!reader.ok()) continue;
    (void)(*reader)->Find("model.w");
    (void)(*reader)->Find("tied");
    if (!(*reader)->LoadAll().ok()) continue;
    for (uint32_t i = 0; i < (*reader)->tensor_count(); ++i) {
      const uint64_t bytes = (*reader)->tensor(i).bytes;
      if (bytes > file->bytes.size()) continue;  // readers bring their own memory, and would not bring this much
      std::vector<std::byte> out(bytes);
      (void)(*reader)->ReadTensor(i, out);
      if (bytes > 1) (void)(*reader)->ReadPart(i, bytes / 2, std::span(out).first(1));
    }
    (void)(*reader)->VerifyPayloads();
  }
  file->Rewind();
  uint64_t seen = 0;
  StreamHandler handler;
  handler.piece = [&](uint32_t, uint64_t, std::span<const std::byte> data) {
    for (std::byte b : data) seen += static_cast<uint8_t>(b);  // touches what was handed out
    return absl::OkStatus();
  };
  (void)ReadCheckpointStream(3, "file", handler, file);
}

}  // namespace
}  // namespace weft

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::testing::OneFile file;
  file.bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  weft::IgnoreChecksumsForFuzzing((data[0] & 1) != 0);
  weft::ReadAll(&file);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  static const std::string files[] = {weft::ValidFile(false), weft::ValidFile(true)};
  const std::string& valid = files[seed % 2 == 0 && max_size > files[0].size() ? 0 : 1];  // the other is 70 KB long
  if (size < 64 && max_size > valid.size()) {
    data[0] = 1;
    std::memcpy(data + 1, valid.data(), valid.size());
    return valid.size() + 1;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
