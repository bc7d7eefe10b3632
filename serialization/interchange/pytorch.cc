// See pytorch.h.
#include "serialization/interchange/pytorch.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "serialization/framing.h"
#include "serialization/interchange/pickle.h"
#include "serialization/interchange/pytorch_values.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kPickle = "/data.pkl";
constexpr std::string_view kOnly = "value";  // the key of what is no dict
// The number 0x1950a86a20f9469cfc6c that old files begin with, as a pickle.
constexpr std::string_view kOldMagic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

class TorchFile final : public ForeignFile {
 public:
  TorchFile(File file, uint64_t file_bytes)
      : ForeignFile(FileFormat::kPyTorch), file_(std::move(file)), host_(file_.path()) {
    path_ = file_.path();
    file_bytes_ = file_bytes;
  }
  absl::Status OpenArchive(const std::vector<ZipMember>& members);
  absl::Status OpenOld();
  absl::Status ReadStored(uint32_t id, std::span<std::byte> out) override;

 protected:
  absl::Status Read(uint32_t id, std::span<std::byte> out) override;
  bool HasParts(uint32_t id) const override { return IsDense(TensorOf(id)); }
  absl::Status Part(uint32_t id, uint64_t offset, std::span<std::byte> out) override;

 private:
  static bool IsDense(const TorchTensor& view);
  void Resolve(const TorchTensor& view, std::span<std::byte> out) const;
  absl::Status CheckSum(uint32_t id, uint64_t crc) const;
  // Where a storage's bytes lie, and the checksum of all of them where there is one.
  struct Place {
    uint64_t offset = 0, bytes = 0;
    std::optional<uint32_t> crc;
  };
  // A container of the pickle whose children are being added.
  struct Level {
    PickleId id = 0;
    Tree::NodeId node = 0;
    size_t next = 0;
  };
  const TorchTensor& TensorOf(uint32_t id) const { return host_.tensors[views_[id]]; }
  absl::Status FindStorages(const std::vector<ZipMember>& members, const std::string& folder);
  absl::Status AddAll(const Pickle& pickle);
  absl::Status AddValue(const Pickle& pickle, PickleId id, Tree::NodeId parent, const std::string& key,
                        std::vector<Level>* levels);
  absl::Status AddView(const PickleValue& value, Tree::NodeId parent, const std::string& key);
  absl::StatusOr<std::string> KeyOf(const PickleValue& key) const;

  File file_;
  uint32_t summed_id_ = 0;  // of the tensor whose parts are read, its bytes so far and their checksum
  uint64_t summed_ = 0, sum_ = 0;
  TorchHost host_;
  std::vector<Place> places_;    // of each storage
  std::vector<uint64_t> views_;  // of each tensor, its number in host_.tensors
  bool swapped_ = false;
  absl::flat_hash_map<PickleId, Tree::NodeId> containers_;  // that stand in the tree
  absl::flat_hash_map<std::string, Tree::NodeId> by_view_;  // tensors by what they show
};

// Short tuples of numbers are repeated; everything else that comes again is an alias.
bool IsRepeated(const Pickle& pickle, const PickleValue& value) {
  constexpr size_t kShort = 16;
  if (value.items.empty()) return true;
  if (value.kind != Kind::kTuple || value.items.size() > kShort) return false;
  return std::all_of(value.items.begin(), value.items.end(),
                     [&](PickleId id) { return pickle.value(id).items.empty() && pickle.value(id).text.empty(); });
}

absl::StatusOr<std::string> TorchFile::KeyOf(const PickleValue& key) const {
  if (key.kind == Kind::kText) return key.text;
  if (key.kind == Kind::kInt) return absl::StrCat(key.number);
  return NotForWeft(path_, "it holds a dict with a key that is a ", NameOf(key.kind),
                    ", neither text nor a whole number");
}

absl::Status TorchFile::AddView(const PickleValue& value, Tree::NodeId parent, const std::string& key) {
  const TorchTensor& view = host_.tensors[static_cast<size_t>(value.number)];
  const std::string shown =
      absl::StrCat(view.storage, " ", static_cast<uint32_t>(view.dtype), " ", view.offset, DimsToString(view.dims),
                   DimsToString(view.strides), view.conjugated, view.negated);
  const auto [at, added] = by_view_.emplace(shown, static_cast<Tree::NodeId>(tree_.size()));
  if (!added) return Add(parent, key, Tree::Alias(at->second)).status();
  ForeignTensor tensor{.dtype = view.dtype, .dims = view.dims};
  const auto width = static_cast<uint64_t>(BytesOf(view.dtype));
  uint64_t elements = CountOf(view.dims) == 0 ? 0 : 1;  // from the first to the last
  for (size_t i = 0; i < view.dims.size() && elements > 0; ++i) {
    elements += static_cast<uint64_t>((view.dims[i] - 1) * view.strides[i]);
  }
  const Place& place = places_[view.storage];
  const uint64_t begin = elements == 0 ? 0 : static_cast<uint64_t>(view.offset) * width;
  tensor.offset = place.offset + begin;
  tensor.file_bytes = elements * width;
  if (begin > place.bytes || tensor.file_bytes > place.bytes - begin) {
    return Damaged(path_, place.offset, "storage '", Shown(host_.storages[view.storage].key), "' has ", place.bytes,
                   " bytes, which a tensor of ", TypeText(view.dtype, view.dims), " does not lie inside");
  }
  views_.push_back(static_cast<uint64_t>(value.number));
  return AddTensor(parent, key, std::move(tensor));
}

absl::Status TorchFile::AddValue(const Pickle& pickle, PickleId id, Tree::NodeId parent, const std::string& key,
                                 std::vector<Level>* levels) {
  const PickleValue& value = pickle.value(id);
  switch (value.kind) {
    case Kind::kObject: return AddView(value, parent, key);
    case Kind::kNone: return Add(parent, key, Tree::None()).status();
    case Kind::kBool: return Add(parent, key, Tree::Bool(value.number != 0)).status();
    case Kind::kInt: return Add(parent, key, Tree::Int64(value.number)).status();
    case Kind::kFloat: return Add(parent, key, Tree::Float64(value.real)).status();
    case Kind::kText:
    case Kind::kBytes: {
      const bool text = value.kind == Kind::kText && IsCleanText(value.text);
      return Add(parent, key, text ? Tree::Text(value.text) : Tree::Bytes(value.text)).status();
    }
    case Kind::kGlobal:  // a type
      return Add(parent, key, Tree::Text(value.text)).status();
    case Kind::kBigInt:
    case Kind::kStorage:
      return NotForWeft(path_, "'", Shown(key), "' is a ",
                        value.kind == Kind::kStorage ? "storage without a tensor" : "whole number beyond 64 bits");
    default: break;
  }
  const bool repeated = IsRepeated(pickle, value);
  const auto [at, added] = containers_.emplace(id, static_cast<Tree::NodeId>(tree_.size()));
  if (!added && !repeated) return Add(parent, key, Tree::Alias(at->second)).status();
  const Tree::Value kind = value.kind == Kind::kDict   ? Tree::Dict()
                           : value.kind == Kind::kList ? Tree::List()
                                                       : Tree::Tuple();
  WEFT_ASSIGN_OR_RETURN(const Tree::NodeId node, Add(parent, key, kind));
  if (!value.items.empty()) levels->push_back({id, node, 0});
  return absl::OkStatus();
}

absl::Status TorchFile::AddAll(const Pickle& pickle) {
  std::vector<Level> levels;
  if (pickle.value(pickle.root()).kind == Kind::kDict) {
    levels.push_back({pickle.root(), Tree::root(), 0});
    containers_.emplace(pickle.root(), Tree::root());
  } else {
    WEFT_RETURN_IF_ERROR(AddValue(pickle, pickle.root(), Tree::root(), std::string(kOnly), &levels));
  }
  while (!levels.empty()) {
    Level& level = levels.back();
    const PickleValue& value = pickle.value(level.id);
    if (level.next == value.items.size()) {
      levels.pop_back();
      continue;
    }
    std::string key;
    if (value.kind == Kind::kDict) {
      WEFT_ASSIGN_OR_RETURN(key, KeyOf(pickle.value(value.items[level.next++])));
    }
    const PickleId child = value.items[level.next++];
    WEFT_RETURN_IF_ERROR(AddValue(pickle, child, level.node, key, &levels));
  }
  Finish();
  return absl::OkStatus();
}

absl::Status TorchFile::FindStorages(const std::vector<ZipMember>& members, const std::string& folder) {
  absl::flat_hash_map<std::string_view, const ZipMember*> by_name;
  for (const ZipMember& member : members) by_name.emplace(member.name, &member);
  for (const TorchStorage& storage : host_.storages) {
    const std::string name = absl::StrCat(folder, "/data/", storage.key);
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Damaged(path_, 0, "member '", Shown(name), "' with a storage's data is missing");
    const ZipMember& member = *found->second;
    if (member.deflated)
      return NotForWeft(path_, "member '", Shown(name), "' is compressed, which PyTorch does not do");
    const uint64_t width = storage.dtype == DType::kInvalid ? 1 : static_cast<uint64_t>(BytesOf(storage.dtype));
    if (member.bytes % width != 0 || member.bytes / width != storage.elements) {
      return Damaged(path_, member.offset, "member '", Shown(name), "' has ", member.bytes, " bytes; the storage has ",
                     storage.elements, " elements of ", width);
    }
    ZipStream stream;
    WEFT_RETURN_IF_ERROR(stream.Open(&file_, member, name));
    places_.push_back({stream.data_offset(), member.bytes, member.crc});
  }
  return absl::OkStatus();
}

absl::Status TorchFile::OpenArchive(const std::vector<ZipMember>& members) {
  const auto named = [&](std::string_view name) { return std::ranges::find(members, name, &ZipMember::name); };
  const auto at = std::ranges::find_if(members, [](const ZipMember& m) { return m.name.ends_with(kPickle); });
  const std::string folder = at->name.substr(0, at->name.size() - kPickle.size());
  for (const ZipMember& member : members) {
    if (member.name.starts_with(folder + "/code/") || member.name == folder + "/constants.pkl") {
      return NotForWeft(path_, "it holds TorchScript ('", member.name, "'); save the state_dict alone");
    }
  }
  const auto text_of = [&](const ZipMember& member, uint64_t most) -> absl::StatusOr<std::string> {
    if (member.bytes > most) {
      return Damaged(path_, member.offset, "member '", member.name, "' has ", member.bytes, " bytes; at most ", most,
                     " are allowed");
    }
    std::string text(member.bytes, '\0');
    ZipStream stream;
    WEFT_RETURN_IF_ERROR(stream.Open(&file_, member, absl::StrCat(path_, "/", member.name)));
    WEFT_RETURN_IF_ERROR(stream.Read(std::as_writable_bytes(std::span(text))));
    WEFT_RETURN_IF_ERROR(stream.Finish());
    return text;
  };
  if (const auto order = named(folder + "/byteorder"); order != members.end()) {
    constexpr uint64_t kWord = 16;
    WEFT_ASSIGN_OR_RETURN(const std::string word, text_of(*order, kWord));
    swapped_ = word == "big";
    if (!swapped_ && word != "little") return Damaged(path_, order->offset, "the byte order is neither little nor big");
  }
  WEFT_ASSIGN_OR_RETURN(std::string text, text_of(*at, kMaxPickleBytes));
  PickleBytes bytes(std::move(text));
  WEFT_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Read(bytes, host_, path_));
  WEFT_RETURN_IF_ERROR(FindStorages(members, folder));
  return AddAll(pickle);
}

// Five pickles: a number, the version, the machine, the object, the keys of storages; then those, each behind its length.
absl::Status TorchFile::OpenOld() {
  PickleBytes bytes(&file_, file_bytes_);
  absl::Status status;
  bytes.Take(kOldMagic.size(), &status);
  WEFT_RETURN_IF_ERROR(status);
  WEFT_ASSIGN_OR_RETURN(const Pickle version, Pickle::Read(bytes, host_, path_));
  constexpr int64_t kVersion = 1001;
  if (version.value(version.root()).number != kVersion) {
    return NotForWeft(path_, "a PyTorch file of protocol ", version.value(version.root()).number, "; Weft reads ",
                      kVersion);
  }
  WEFT_ASSIGN_OR_RETURN(const Pickle machine, Pickle::Read(bytes, host_, path_));
  const PickleValue& facts = machine.value(machine.root());
  for (size_t i = 0; facts.kind == Kind::kDict && i + 1 < facts.items.size(); i += 2) {
    if (machine.value(facts.items[i]).text == "little_endian") {
      swapped_ = machine.value(facts.items[i + 1]).number == 0;
    }
  }
  WEFT_ASSIGN_OR_RETURN(const Pickle object, Pickle::Read(bytes, host_, path_));
  WEFT_ASSIGN_OR_RETURN(const Pickle keys, Pickle::Read(bytes, host_, path_));
  absl::flat_hash_map<std::string_view, uint32_t> by_key;
  for (uint32_t i = 0; i < host_.storages.size(); ++i) by_key.emplace(host_.storages[i].key, i);
  places_.resize(host_.storages.size());
  const PickleValue& list = keys.value(keys.root());
  if (list.kind != Kind::kList || list.items.size() != host_.storages.size()) {
    return Damaged(path_, bytes.position(), "the file has ", list.items.size(), " storages; its tensors have ",
                   host_.storages.size());
  }
  uint64_t at = bytes.position();
  for (const PickleId id : list.items) {
    const auto found = by_key.find(keys.value(id).text);
    if (found == by_key.end()) return Damaged(path_, at, "a storage that no tensor has, or one twice");
    const TorchStorage& storage = host_.storages[found->second];
    const uint64_t width = storage.dtype == DType::kInvalid ? 1 : static_cast<uint64_t>(BytesOf(storage.dtype));
    uint64_t elements = 0;
    if (at > file_bytes_ || file_bytes_ - at < sizeof(elements)) return Damaged(path_, at, "the file ends here");
    WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(at), std::as_writable_bytes(std::span(&elements, 1))));
    if (swapped_) elements = __builtin_bswap64(elements);
    at += sizeof(elements);
    if (elements != storage.elements || elements > (file_bytes_ - at) / width) {
      return Damaged(path_, at, "storage '", Shown(storage.key), "' is said to have ", elements,
                     " elements; its tensors say ", storage.elements, ", and the file has ", file_bytes_ - at,
                     " bytes more");
    }
    places_[found->second] = {at, elements * width, std::nullopt};
    by_key.erase(found);
    at += elements * width;
  }
  return AddAll(object);
}

absl::Status TorchFile::ReadStored(uint32_t id, std::span<std::byte> out) {
  const Place& place = places_[TensorOf(id).storage];
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(tensors_[id].offset), out));
  if (!place.crc || out.size() != place.bytes) return absl::OkStatus();  // only all of a storage has a checksum
  return CheckSum(id, crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(out.data()), out.size()));
}

absl::Status TorchFile::CheckSum(uint32_t id, uint64_t crc) const {
  const Place& place = places_[TensorOf(id).storage];
  if (crc == *place.crc) return absl::OkStatus();
  return Damaged(path_, place.offset, "the checksum of ", place.bytes, " bytes of tensor '", tensors_[id].name,
                 "' does not match");
}

// The checksum of a whole storage goes along with its parts, which come in order.
absl::Status TorchFile::Part(uint32_t id, uint64_t offset, std::span<std::byte> out) {
  const Place& place = places_[TensorOf(id).storage];
  WEFT_RETURN_IF_ERROR(file_.ReadAt(static_cast<int64_t>(tensors_[id].offset + offset), out));
  if (place.crc && tensors_[id].file_bytes == place.bytes) {
    if (offset == 0) summed_id_ = id, summed_ = 0, sum_ = crc32_z(0, nullptr, 0);
    if (summed_id_ == id && summed_ == offset) {
      sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(out.data()), out.size());
      summed_ += out.size();
      if (summed_ == place.bytes) WEFT_RETURN_IF_ERROR(CheckSum(id, sum_));
    }
  }
  Resolve(TensorOf(id), out);
  return absl::OkStatus();
}

// Elements at strides, the last dimension fastest, to dense ones.
void Gather(std::span<const std::byte> in, const TorchTensor& view, size_t width, std::span<std::byte> out) {
  Dims index(view.dims.size(), 0);
  int64_t from = 0;
  for (size_t to = 0; to + width <= out.size(); to += width) {
    std::memcpy(out.data() + to, in.data() + static_cast<size_t>(from) * width, width);
    for (size_t i = view.dims.size(); i-- > 0;) {
      from += view.strides[i];
      if (++index[i] < view.dims[i]) break;
      from -= view.strides[i] * view.dims[i];
      index[i] = 0;
    }
  }
}

// The sign of every part, or of the imaginary one only.
void Negate(DType dtype, bool all, std::span<std::byte> bytes) {
  const auto width = static_cast<size_t>(BytesOf(PartOf(dtype)));
  const size_t step = all ? width : 2 * width;
  for (size_t at = all ? 0 : width; at + width <= bytes.size(); at += step) {
    if (!IsInteger(dtype)) {
      bytes[at + width - 1] ^= std::byte{0x80};
      continue;
    }
    uint64_t number = 0;
    std::memcpy(&number, bytes.data() + at, width);
    number = -number;
    std::memcpy(bytes.data() + at, &number, width);
  }
}

bool TorchFile::IsDense(const TorchTensor& view) {
  Dims dense = StridesOf(view.dims);
  for (size_t i = 0; i < dense.size(); ++i) {
    if (view.dims[i] == 1) dense[i] = view.strides[i];  // which matters to nobody
  }
  return dense == view.strides;
}

absl::Status TorchFile::Read(uint32_t id, std::span<std::byte> out) {
  const TorchTensor& view = TensorOf(id);
  const auto width = static_cast<size_t>(BytesOf(view.dtype));
  if (IsDense(view) || out.empty()) {
    WEFT_RETURN_IF_ERROR(ReadStored(id, out));
  } else {
    std::vector<std::byte> elements(tensors_[id].file_bytes);
    WEFT_RETURN_IF_ERROR(ReadStored(id, elements));
    Gather(elements, view, width, out);
  }
  Resolve(view, out);
  return absl::OkStatus();
}

// Byte order, signs and conjugation of elements as they lie in the file.
void TorchFile::Resolve(const TorchTensor& view, std::span<std::byte> out) const {
  if (swapped_) SwapBytes(out, static_cast<size_t>(BytesOf(PartOf(view.dtype))));
  if (view.negated) Negate(view.dtype, /*all=*/true, out);
  if (view.conjugated && IsComplex(view.dtype)) Negate(view.dtype, /*all=*/false, out);
}

}  // namespace

bool IsPyTorchArchive(const std::vector<ZipMember>& members) {
  return std::ranges::any_of(members, [](const ZipMember& m) { return m.name.ends_with(kPickle); });
}

absl::StatusOr<std::unique_ptr<TensorFile>> OpenPyTorchArchive(File file, uint64_t file_bytes,
                                                               std::vector<ZipMember> members) {
  auto torch = std::make_unique<TorchFile>(std::move(file), file_bytes);
  WEFT_RETURN_IF_ERROR(torch->OpenArchive(members));
  return torch;
}

bool IsOldPyTorch(std::span<const std::byte> first) {
  return first.size() >= kOldMagic.size() && std::memcmp(first.data(), kOldMagic.data(), kOldMagic.size()) == 0;
}

absl::StatusOr<std::unique_ptr<TensorFile>> OpenOldPyTorch(File file, uint64_t file_bytes) {
  auto torch = std::make_unique<TorchFile>(std::move(file), file_bytes);
  WEFT_RETURN_IF_ERROR(torch->OpenOld());
  return torch;
}

}  // namespace weft
