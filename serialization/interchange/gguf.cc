// See gguf.h. Opening walks the header without keeping its values: a tokenizer's are 262,144 texts. A call for the
// metadata reads them again.
#include "serialization/interchange/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "serialization/framing.h"
#include "serialization/interchange/gguf_blocks.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr uint64_t kMostSplits = 4096;
constexpr uint64_t kMostNodes = 16 << 20;  // of metadata, about 150 bytes each
constexpr uint64_t kMostText = 1 << 20;    // as in a tree

// Numbers and texts of a header in order. Nothing is allocated for what the file does not have.
class HeaderReader {
 public:
  HeaderReader(const File* file, uint64_t file_bytes) : file_(file), end_(file_bytes) {}

  bool swapped = false;
  uint64_t position() const { return position_; }
  uint64_t left() const { return end_ - position_; }
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return Damaged(file_->path(), position_, text...);
  }

  absl::Status Bytes(void* out, size_t size) {
    if (size > left()) return Bad("the file ends inside the GGUF header");
    for (auto* to = static_cast<std::byte*>(out); size > 0;) {
      if (position_ < begin_ || position_ >= begin_ + buffer_.size()) {
        begin_ = position_;
        buffer_.resize(std::min<uint64_t>(kAhead, left()));
        WEFT_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(begin_), buffer_));
      }
      const size_t piece = std::min<uint64_t>(size, begin_ + buffer_.size() - position_);
      std::memcpy(to, buffer_.data() + (position_ - begin_), piece);
      to += piece, size -= piece, position_ += piece;
    }
    return absl::OkStatus();
  }
  absl::Status Skip(uint64_t bytes) {
    if (bytes > left()) return Bad("the file ends inside the GGUF header");
    return position_ += bytes, absl::OkStatus();
  }
  template <typename T>
  absl::StatusOr<T> Number() {
    std::array<std::byte, sizeof(T)> raw;
    WEFT_RETURN_IF_ERROR(Bytes(raw.data(), raw.size()));
    if (swapped) std::reverse(raw.begin(), raw.end());
    return std::bit_cast<T>(raw);
  }
  absl::StatusOr<std::string> Text(uint64_t most, std::string_view what) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t size, Number<uint64_t>());
    if (size > left() || size > most) {
      return Bad(what, " is said to have ", size, " bytes; the file has ", left(), " more, and at most ", most,
                 " are allowed");
    }
    std::string text(size, '\0');
    WEFT_RETURN_IF_ERROR(Bytes(text.data(), size));
    return text;
  }

 private:
  static constexpr size_t kAhead = 256 << 10;
  const File* const file_;
  const uint64_t end_;
  uint64_t position_ = 0, begin_ = 0;
  std::vector<std::byte> buffer_;
};

// Kinds of values by their numbers, and bytes of one where that is fixed.
enum Kind : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64, kKinds };
constexpr int kWidths[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct GgufTensor {
  const GgufType* type = nullptr;
  uint32_t file = 0;
};

class GgufFile final : public ForeignFile {
 public:
  GgufFile() : ForeignFile(FileFormat::kGguf) {}
  absl::Status Open(FileSystem* fs, const std::string& path);
  absl::StatusOr<Tree> Metadata() const override;
  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override {
    return files_[infos_[id].file].ReadAt(static_cast<int64_t>(tensors_[id].offset), out);
  }

 protected:
  absl::Status Read(uint32_t id, std::span<std::byte> out) override { return Part(id, 0, out); }
  bool HasParts(uint32_t) const override { return true; }  // 4,096 bytes are whole blocks of f32
  absl::Status Part(uint32_t id, uint64_t offset, std::span<std::byte> out) override;

 private:
  // The facts about the whole file that a reader wants at opening.
  struct Whole {
    uint64_t alignment = 32, count = 1, number = 0;
  };
  absl::Status AddFile(FileSystem* fs, const std::string& path, Whole* whole);
  absl::Status ReadStart(HeaderReader& reader, uint64_t* tensors, uint64_t* values) const;
  absl::Status ReadValues(HeaderReader& reader, uint64_t count, Whole* whole, Tree* tree) const;
  static absl::StatusOr<int64_t> ReadValue(HeaderReader& reader, uint32_t kind, Tree* tree, Tree::NodeId parent,
                                           std::string_view key);
  static absl::Status ReadArray(HeaderReader& reader, Tree* tree, std::string_view key);
  absl::Status ReadInfos(HeaderReader& reader, uint64_t count, uint64_t alignment, uint64_t file_bytes);
  absl::Status ReadInfo(HeaderReader& reader, std::string* name, ForeignTensor* tensor, GgufTensor* info) const;

  std::vector<File> files_;
  std::vector<GgufTensor> infos_;  // of each tensor
  uint64_t first_bytes_ = 0;       // of the first file
  bool swapped_ = false;
};

absl::Status GgufFile::ReadStart(HeaderReader& reader, uint64_t* tensors, uint64_t* values) const {
  char magic[4];
  WEFT_RETURN_IF_ERROR(reader.Bytes(magic, sizeof(magic)));
  WEFT_ASSIGN_OR_RETURN(uint32_t version, reader.Number<uint32_t>());
  if ((version & 0xFFFF) == 0) {
    reader.swapped = true;
    version = __builtin_bswap32(version);
  }
  if (version != 2 && version != 3) {
    return NotForWeft(path_, "a GGUF file of version ", version, "; Weft reads versions 2 and 3");
  }
  WEFT_ASSIGN_OR_RETURN(*tensors, reader.Number<uint64_t>());
  WEFT_ASSIGN_OR_RETURN(*values, reader.Number<uint64_t>());
  constexpr uint64_t kLeastTensor = 24, kLeastValue = 13;
  if (*tensors <= reader.left() / kLeastTensor && *values <= reader.left() / kLeastValue) return absl::OkStatus();
  return reader.Bad("the file is said to have ", *tensors, " tensors and ", *values, " values; it has ", reader.left(),
                    " bytes more");
}

// Into the tree where there is one. Whole numbers come back too; texts give 0.
absl::StatusOr<int64_t> GgufFile::ReadValue(HeaderReader& reader, uint32_t kind, Tree* tree, Tree::NodeId parent,
                                            std::string_view key) {
  Tree::Value value = Tree::Int64(0);
  std::string text;
  const auto whole = [&]<typename T>(T) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const T number, reader.Number<T>());
    return value.int64 = static_cast<int64_t>(number), absl::OkStatus();
  };
  switch (kind) {
    case kU8: WEFT_RETURN_IF_ERROR(whole(uint8_t{})); break;
    case kI8: WEFT_RETURN_IF_ERROR(whole(int8_t{})); break;
    case kU16: WEFT_RETURN_IF_ERROR(whole(uint16_t{})); break;
    case kI16: WEFT_RETURN_IF_ERROR(whole(int16_t{})); break;
    case kU32: WEFT_RETURN_IF_ERROR(whole(uint32_t{})); break;
    case kI32: WEFT_RETURN_IF_ERROR(whole(int32_t{})); break;
    case kI64: WEFT_RETURN_IF_ERROR(whole(int64_t{})); break;
    case kU64: {
      WEFT_ASSIGN_OR_RETURN(const uint64_t number, reader.Number<uint64_t>());
      value.int64 = static_cast<int64_t>(number);
      if (number > uint64_t{INT64_MAX}) value = Tree::Text(text = absl::StrCat(number));
      break;
    }
    case kF32: {
      WEFT_ASSIGN_OR_RETURN(const float number, reader.Number<float>());
      value = Tree::Float64(number);
      break;
    }
    case kF64: {
      WEFT_ASSIGN_OR_RETURN(const double number, reader.Number<double>());
      value = Tree::Float64(number);
      break;
    }
    case kBool: {
      WEFT_ASSIGN_OR_RETURN(const uint8_t truth, reader.Number<uint8_t>());
      if (truth > 1) return reader.Bad("value '", key, "' is a truth of ", int{truth}, ", which is neither 0 nor 1");
      value = Tree::Bool(truth == 1);
      break;
    }
    case kText: {
      WEFT_ASSIGN_OR_RETURN(text, reader.Text(kMostText, "a text"));
      value = IsCleanText(text) ? Tree::Text(text) : Tree::Bytes(text);
      break;
    }
    default: return reader.Bad("value '", key, "' is of kind ", kind, ", which GGUF does not have here");
  }
  if (tree != nullptr) {
    const absl::Status added = tree->Add(parent, key, value).status();
    if (!added.ok()) return reader.Bad(added.message());
  }
  return value.int64;
}

absl::Status GgufFile::ReadArray(HeaderReader& reader, Tree* tree, std::string_view key) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t kind, reader.Number<uint32_t>());
  WEFT_ASSIGN_OR_RETURN(const uint64_t count, reader.Number<uint64_t>());
  if (kind >= kKinds || kind == kArray) {
    return reader.Bad("value '", key, "' is an array of kind ", kind, "; arrays of arrays are not read");
  }
  constexpr uint64_t kLeastText = 8;
  const uint64_t width = kind == kText ? kLeastText : static_cast<uint64_t>(kWidths[kind]);
  if (count > reader.left() / width) {
    return reader.Bad("value '", key, "' is said to have ", count, " elements; the file has ", reader.left(),
                      " bytes more");
  }
  if (tree == nullptr && kind != kText) return reader.Skip(count * width);
  Tree::NodeId list = Tree::root();
  if (tree != nullptr) {
    const absl::StatusOr<Tree::NodeId> added = tree->Add(Tree::root(), key, Tree::List());
    if (!added.ok()) return reader.Bad(added.status().message());
    list = *added;
    if (count > kMostNodes - std::min<uint64_t>(kMostNodes, tree->size())) {
      return UserErrorOf(absl::StatusCode::kResourceExhausted, "the metadata have more than ", kMostNodes, " values");
    }
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (tree != nullptr) {
      WEFT_RETURN_IF_ERROR(ReadValue(reader, kind, tree, list, "").status());
    } else {
      WEFT_ASSIGN_OR_RETURN(const uint64_t size, reader.Number<uint64_t>());
      WEFT_RETURN_IF_ERROR(reader.Skip(size));
    }
  }
  return absl::OkStatus();
}

absl::Status GgufFile::ReadValues(HeaderReader& reader, uint64_t count, Whole* whole, Tree* tree) const {
  constexpr uint64_t kMostKey = 4096;
  absl::flat_hash_set<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::string key, reader.Text(kMostKey, "a key"));
    if (!IsCleanText(key)) return reader.Bad("a key is not UTF-8 without NUL");
    if (!keys.insert(key).second) return reader.Bad("value '", key, "' stands in the file twice");
    WEFT_ASSIGN_OR_RETURN(const uint32_t kind, reader.Number<uint32_t>());
    if (kind == kArray) {
      WEFT_RETURN_IF_ERROR(ReadArray(reader, tree, key));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t number, ReadValue(reader, kind, tree, Tree::root(), key));
    if (whole == nullptr) continue;
    const auto value = static_cast<uint64_t>(number);
    if (key == "general.alignment") {
      whole->alignment = value;
      if (kind != kU32 || !std::has_single_bit(value) || value > uint64_t{1} << 30) {
        return reader.Bad("general.alignment is ", number, "; it is a power of two");
      }
    }
    if (key == "split.count") whole->count = value;
    if (key == "split.no") whole->number = value;
  }
  return absl::OkStatus();
}

absl::Status GgufFile::ReadInfo(HeaderReader& reader, std::string* name, ForeignTensor* tensor,
                                GgufTensor* info) const {
  constexpr uint64_t kMostName = 4096;
  WEFT_ASSIGN_OR_RETURN(*name, reader.Text(kMostName, "a tensor's name"));
  if (!IsCleanText(*name)) return reader.Bad("a tensor's name is not UTF-8 without NUL");
  WEFT_ASSIGN_OR_RETURN(const uint32_t rank, reader.Number<uint32_t>());
  if (rank > kMaxRank) return reader.Bad("tensor '", *name, "' is said to have ", rank, " dimensions");
  for (uint32_t i = 0; i < rank; ++i) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t dim, reader.Number<uint64_t>());
    if (dim > static_cast<uint64_t>(INT64_MAX)) return reader.Bad("tensor '", *name, "' has a dimension of ", dim);
    tensor->dims.push_back(static_cast<int64_t>(dim));
  }
  std::reverse(tensor->dims.begin(), tensor->dims.end());  // the fastest comes first in the file
  WEFT_ASSIGN_OR_RETURN(const uint32_t number, reader.Number<uint32_t>());
  WEFT_ASSIGN_OR_RETURN(tensor->offset, reader.Number<uint64_t>());
  const GgufType* type = info->type = FindGgufType(number);
  if (type == nullptr) {
    return NotForWeft(path_, "tensor '", *name, "' is of GGUF's type ", number, ", whose size Weft does not know");
  }
  const std::optional<int64_t> count = CheckedCount(tensor->dims);
  const int64_t row = tensor->dims.empty() ? 1 : tensor->dims.back();
  if (!count || row % type->elements != 0 ||
      __builtin_mul_overflow(static_cast<uint64_t>(*count) / static_cast<uint64_t>(type->elements),
                             static_cast<uint64_t>(type->bytes), &tensor->file_bytes)) {
    return reader.Bad("tensor '", *name, "' of ", type->name, DimsToString(tensor->dims),
                      " has a row that is no whole blocks of ", type->elements, ", or more bytes than 64 bits count");
  }
  if (type->elements > 1) tensor->encoding = type->name;
  tensor->dtype = type->dtype;
  if (type->dtype == DType::kInvalid || (type->elements > 1 && reader.swapped)) {
    absl::StrAppend(&tensor->encoding, DimsToString(tensor->dims), reader.swapped ? " big-endian" : "");
    tensor->loadable = false;
    tensor->dtype = DType::kU8;
    tensor->dims = {static_cast<int64_t>(tensor->file_bytes)};
  }
  return absl::OkStatus();
}

absl::Status GgufFile::ReadInfos(HeaderReader& reader, uint64_t count, uint64_t alignment, uint64_t file_bytes) {
  const auto first = static_cast<uint32_t>(tensors_.size());
  for (uint64_t i = 0; i < count; ++i) {
    std::string name;
    ForeignTensor tensor;
    GgufTensor info{.file = static_cast<uint32_t>(files_.size())};
    WEFT_RETURN_IF_ERROR(ReadInfo(reader, &name, &tensor, &info));
    tensor.name = name;
    WEFT_RETURN_IF_ERROR(AddTensor(Tree::root(), name, std::move(tensor)));
    infos_.push_back(info);
  }
  const uint64_t data = (reader.position() + alignment - 1) / alignment * alignment;
  std::vector<uint32_t> order(tensors_.size() - first);
  std::iota(order.begin(), order.end(), first);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].offset < tensors_[b].offset; });
  uint64_t end = 0;
  for (const uint32_t id : order) {
    ForeignTensor& t = tensors_[id];
    const uint64_t room = file_bytes - std::min(data, file_bytes);
    if (t.offset % alignment != 0 || t.offset < end || t.offset > room || t.file_bytes > room - t.offset) {
      return Damaged(path_, data, "tensor '", t.name, "' lies at ", t.offset, " to ", t.offset, " + ", t.file_bytes,
                     " of ", room, " bytes of data; the one before ends at ", end, ", and places are multiples of ",
                     alignment);
    }
    end = t.offset + t.file_bytes;
    t.offset += data;
  }
  return absl::OkStatus();
}

absl::Status GgufFile::AddFile(FileSystem* fs, const std::string& path, Whole* whole) {
  path_ = path;
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, &info));
  const auto bytes = static_cast<uint64_t>(info.size);
  HeaderReader reader(&file, bytes);
  uint64_t tensors = 0, values = 0;
  WEFT_RETURN_IF_ERROR(ReadStart(reader, &tensors, &values));
  if (!files_.empty() && reader.swapped != swapped_) return reader.Bad("it has another byte order than the first part");
  swapped_ = reader.swapped;
  WEFT_RETURN_IF_ERROR(ReadValues(reader, values, whole, nullptr));
  WEFT_RETURN_IF_ERROR(ReadInfos(reader, tensors, whole->alignment, bytes));
  if (files_.empty()) first_bytes_ = bytes;
  file_bytes_ += bytes;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status GgufFile::Open(FileSystem* fs, const std::string& path) {
  Whole whole;
  WEFT_RETURN_IF_ERROR(AddFile(fs, path, &whole));
  if (whole.count > 1) {
    const auto part = [&](uint64_t number) {
      return absl::StrCat("-", absl::Dec(number + 1, absl::kZeroPad5), "-of-", absl::Dec(whole.count, absl::kZeroPad5),
                          ".gguf");
    };
    const std::string own = part(0);
    if (whole.count > kMostSplits || whole.number != 0 || !path.ends_with(own)) {
      return UserError("'", path, "' is part ", whole.number, " of a GGUF file of ", whole.count,
                       " parts; open the first, whose name ends in '-00001-of-NNNNN.gguf'");
    }
    const std::string stem = path.substr(0, path.size() - own.size());
    for (uint64_t i = 1; i < whole.count; ++i) {
      Whole next{.alignment = 32};
      WEFT_RETURN_IF_ERROR(AddFile(fs, stem + part(i), &next));
      if (next.count != whole.count || next.number != i) {
        return absl::DataLossError(absl::StrCat("'", path_, "': it is part ", next.number, " of ", next.count,
                                                ", not part ", i, " of ", whole.count));
      }
    }
    path_ = path;
  }
  Finish();
  return absl::OkStatus();
}

absl::StatusOr<Tree> GgufFile::Metadata() const {
  HeaderReader reader(&files_[0], first_bytes_);
  uint64_t tensors = 0, values = 0;
  WEFT_RETURN_IF_ERROR(ReadStart(reader, &tensors, &values));
  Tree tree;
  WEFT_RETURN_IF_ERROR(ReadValues(reader, values, nullptr, &tree));
  return tree;
}

absl::Status GgufFile::Part(uint32_t id, uint64_t offset, std::span<std::byte> out) {
  const GgufType& type = *infos_[id].type;
  const File& file = files_[infos_[id].file];
  if (type.dequantize == nullptr) {
    WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(tensors_[id].offset + offset), out));
    if (swapped_) SwapBytes(out, static_cast<size_t>(BytesOf(type.dtype)));
    return absl::OkStatus();
  }
  // The blocks that are read at once, and the elements that are made of them at once, lie in caches.
  constexpr uint64_t kRead = 1024, kMade = 64;  // blocks
  const uint64_t block = static_cast<uint64_t>(type.bytes), values = static_cast<uint64_t>(type.elements);
  const uint64_t bytes = values * sizeof(float);  // that a block becomes
  uint64_t at = tensors_[id].offset + offset / bytes * block;
  std::vector<std::byte> blocks(std::min(out.size() / bytes, kRead) * block);
  std::vector<float> made(kMade * values);
  while (!out.empty()) {
    const std::span<std::byte> piece = std::span(blocks).first(std::min(out.size() / bytes * block, blocks.size()));
    WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(at), piece));
    at += piece.size();
    for (uint64_t done = 0; done < piece.size();) {
      const std::span<std::byte> some = piece.subspan(done, std::min<uint64_t>(kMade * block, piece.size() - done));
      const std::span<float> floats = std::span(made).first(some.size() / block * values);
      Dequantize(type, some, floats);
      std::memcpy(out.data(), floats.data(), floats.size_bytes());
      out = out.subspan(floats.size_bytes());
      done += some.size();
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFile>> OpenGguf(FileSystem* fs, const std::string& path) {
  auto file = std::make_unique<GgufFile>();
  WEFT_RETURN_IF_ERROR(file->Open(fs, path));
  return file;
}

}  // namespace weft
