// The fuzzers of other people's formats share this: reading everything that opens, and valid files to start from.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"
#include "tests/support/one_file.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace weft::testing {

// Every tensor that is not larger than a file of this size can give is read, and the metadata. What opens has names that find it.
inline int ReadTensorFile(const uint8_t* data, size_t size) {
  OneFile fs;
  fs.bytes.assign(reinterpret_cast<const char*>(data), size);
  const auto file = OpenTensorFile("file", {.fs = &fs});
  if (!file.ok()) {
    if (file.status().code() == absl::StatusCode::kInternal) std::abort();
    return 0;
  }
  if (!(*file)->LoadAll().ok()) return 0;
  (void)(*file)->Metadata();
  for (uint32_t id = 0; id < (*file)->tensor_count(); ++id) {
    const FileTensor tensor = (*file)->tensor(id);
    if ((*file)->Find(tensor.name).value() != id) std::abort();
    constexpr uint64_t kMost = 1 << 22;
    std::vector<std::byte> out(std::min(tensor.bytes, kMost)), stored(std::min(tensor.file_bytes, kMost));
    if (out.size() == tensor.bytes) (void)(*file)->ReadTensor(id, out);
    if (stored.size() == tensor.file_bytes) (void)(*file)->ReadStored(id, stored);
  }
  return 0;
}

// Gathers what a writer writes, wherever it writes it.
class Written final : public OneFile {
 public:
  int64_t Write(int fd, const void* data, size_t size) override {
    return WriteAt(fd, data, size, static_cast<int64_t>(bytes.size()));
  }
  int64_t WriteAt(int, const void* data, size_t size, int64_t offset) override {
    const auto at = static_cast<size_t>(offset);
    bytes.resize(std::max(bytes.size(), at + size));
    std::memcpy(bytes.data() + at, data, size);
    return static_cast<int64_t>(size);
  }
};

struct Ones final : TensorSource {
  absl::Status Read(uint32_t, uint64_t, std::span<std::byte> out) override {
    std::fill(out.begin(), out.end(), std::byte{1});
    return absl::OkStatus();
  }
};

inline std::string WrittenFile(FileFormat format) {
  Tree tree;
  const std::vector<int64_t> dims = {2, 3};
  bool good = tree.Add(0, "w", Tree::Tensor(DType::kF32, dims)).ok();
  if (format != FileFormat::kNpy) good = good && tree.Add(0, "b.x", Tree::Tensor(DType::kBool, dims)).ok();
  const auto flat = FlattenFor(format, tree, {}, Tied::kRefuse);
  Written fs;
  File file = File::Borrow(&fs, 3, "memory");
  Ones ones;
  SaveOptions options;
  options.user = {{"key", "value"}};
  if (!good || !flat.ok()) std::abort();
  const absl::Status status = format == FileFormat::kNpy   ? WriteNpy(file, *flat, ones, options)
                              : format == FileFormat::kNpz ? WriteNpz(file, *flat, ones, options)
                                                           : WriteSafetensors(file, *flat, ones, options);
  if (!status.ok()) std::abort();
  return fs.bytes;
}

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline void PutText(std::string* out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out->append(text);
}

inline std::string GgufFile() {
  std::string out = "GGUF";
  Put<uint32_t>(&out, 3), Put<uint64_t>(&out, 2), Put<uint64_t>(&out, 3);
  PutText(&out, "general.alignment"), Put<uint32_t>(&out, 4), Put<uint32_t>(&out, 32);
  PutText(&out, "texts"), Put<uint32_t>(&out, 9), Put<uint32_t>(&out, 8), Put<uint64_t>(&out, 2);
  PutText(&out, "a"), PutText(&out, "b");
  PutText(&out, "scale"), Put<uint32_t>(&out, 6), Put<float>(&out, 0.5f);
  PutText(&out, "w"), Put<uint32_t>(&out, 1), Put<uint64_t>(&out, 4), Put<uint32_t>(&out, 0), Put<uint64_t>(&out, 0);
  PutText(&out, "q"), Put<uint32_t>(&out, 2), Put<uint64_t>(&out, 256), Put<uint64_t>(&out, 1);
  Put<uint32_t>(&out, 12), Put<uint64_t>(&out, 32);
  out.resize((out.size() + 31) / 32 * 32 + 32 + 144, '\1');
  return out;
}

// A literal with its zeros.
template <size_t N>
std::string Raw(const char (&text)[N]) {
  return std::string(text, N - 1);
}

// Five pickles (a number, a version, a machine, {"w": a view, "n": [1, None, 2.0]}, the storages' keys) and four floats.
inline std::string OldPyTorchFile() {
  std::string out =
      Raw("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02");
  out += Raw("}(X\x01\0\0\0wctorch._utils\n_rebuild_tensor\n(");
  out += Raw("(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x04NtQ");
  out += Raw("K\x01K\x03\x85K\x01\x85tR");
  out += Raw("X\x01\0\0\0n](K\x01NG@\0\0\0\0\0\0\0eu.");
  out += Raw("\x80\x02](X\x01\0\0\0ke.");
  Put<uint64_t>(&out, 4);
  out.append(16, '\1');
  return out;
}

inline const std::string& ValidFile(FileFormat format) {
  static const std::string file = format == FileFormat::kGguf      ? GgufFile()
                                  : format == FileFormat::kPyTorch ? OldPyTorchFile()
                                                                   : WrittenFile(format);
  return file;
}

inline size_t Mutate(FileFormat format, uint8_t* data, size_t size, size_t max_size) {
  const std::string& valid = ValidFile(format);
  if (size < 16 && max_size >= valid.size()) {
    OneFile fs;
    fs.bytes = valid;
    if (!OpenTensorFile("file", {.fs = &fs}).ok()) std::abort();  // no start at all otherwise
    std::memcpy(data, valid.data(), valid.size());
    return valid.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace weft::testing
