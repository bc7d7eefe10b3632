// See convert.h. A tree is made for the new file whose leaves know where their elements come from; the writers of checkpoints and
// of other formats then ask for them as they ask for everything.
#include "serialization/interchange/convert.h"

#include <algorithm>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/json_text.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

// The source of a leaf's elements.
struct Leaf {
  uint32_t id = 0;
  DType from = DType::kInvalid, to = DType::kInvalid;
};

void ConvertFloats(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  if (IsHeldAs(from, to) || IsHeldAs(to, from)) return ConvertHeld(from, in, to, out);
  const Dims dims = {static_cast<int64_t>(in.size()) / BytesOf(from)};
  const HostTensor read(from, dims, in);
  HostTensor made(to, dims);
  for (int64_t i = 0; i < dims[0]; ++i) made.SetDouble(i, read.GetDouble(i));
  std::ranges::copy(made.bytes(), out.begin());
}

class FileSource final : public TensorSource {
 public:
  FileSource(TensorFile* file, std::vector<Leaf> leaves) : file_(file), leaves_(std::move(leaves)) {}

  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    const Leaf& leaf = leaves_[tensor];
    if (leaf.from == leaf.to) return Copy(leaf.id, offset, out);
    const auto width = static_cast<uint64_t>(BytesOf(leaf.to)), width_from = static_cast<uint64_t>(BytesOf(leaf.from));
    while (!out.empty()) {
      const std::span<std::byte> piece = out.first(std::min<size_t>(out.size(), kConverted));
      in_.resize(piece.size() / width * width_from);
      WEFT_RETURN_IF_ERROR(Copy(leaf.id, offset / width * width_from, in_));
      ConvertFloats(leaf.from, in_, leaf.to, piece);
      offset += piece.size();
      out = out.subspan(piece.size());
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kWindow = size_t{4} << 20, kConverted = size_t{1} << 20;

  // Out of windows, which lie where every format has parts.
  absl::Status Copy(uint32_t id, uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const uint64_t begin = offset / kWindow * kWindow;
      if (window_.empty() || id_ != id || begin_ != begin) {
        id_ = id, begin_ = begin;
        window_.clear();
        std::vector<std::byte> read(std::min<uint64_t>(kWindow, file_->tensor(id).bytes - begin));
        WEFT_RETURN_IF_ERROR(file_->ReadPart(id, begin, read));
        window_ = std::move(read);
      }
      const size_t at = offset - begin, count = std::min(out.size(), window_.size() - at);
      std::copy_n(window_.begin() + static_cast<ptrdiff_t>(at), count, out.begin());
      out = out.subspan(count);
      offset += count;
    }
    return absl::OkStatus();
  }

  TensorFile* const file_;
  const std::vector<Leaf> leaves_;
  uint32_t id_ = 0;
  uint64_t begin_ = 0;
  std::vector<std::byte> window_, in_;
};

// The tree of the new file.
class TreeMaker {
 public:
  TreeMaker(const TensorFile& file, const ConvertOptions& options) : file_(file), options_(options) {}
  Tree tree;
  std::vector<Leaf> leaves;

  absl::Status Make() {
    types_.assign(file_.tensor_count(), DType::kInvalid);
    for (const ConvertTensor& t : options_.tensors) {
      if (t.dtype != DType::kInvalid) WEFT_RETURN_IF_ERROR(CheckTypes(t));
      types_[t.id] = t.dtype;
    }
    if (!options_.rest) {
      for (const ConvertTensor& t : options_.tensors) WEFT_RETURN_IF_ERROR(AddTensor(t.id, t.name, t.dtype).status());
      return absl::OkStatus();
    }
    if (Nests() && IsFlat()) return AddNested();
    tree = file_.tree();
    for (uint32_t id = 0; id < file_.tensor_count(); ++id) {
      leaves.push_back(LeafOf(id, types_[id]));
      tree.Retype(id, leaves.back().to);
    }
    return absl::OkStatus();
  }

 private:
  bool Nests() const { return options_.nest && options_.format == FileFormat::kWeft; }
  // Tells whether the file has names alone, and no structure.
  bool IsFlat() const {
    const FileFormat format = file_.format();
    return format != FileFormat::kWeft && format != FileFormat::kPyTorch;
  }
  absl::Status CheckTypes(const ConvertTensor& t) const {
    const DType from = file_.tensor(t.id).logical;
    if (from == t.dtype || (IsFloat(from) && IsFloat(t.dtype))) return absl::OkStatus();
    return UserErrorOf(absl::StatusCode::kUnimplemented, "tensor '", file_.tensor(t.id).name, "' of ", NameOf(from),
                       " cannot become ", NameOf(t.dtype), ": only floats become other floats");
  }
  Leaf LeafOf(uint32_t id, DType wanted) const {
    const FileTensor t = file_.tensor(id);
    return {id, t.dtype, wanted == DType::kInvalid ? t.logical : wanted};
  }
  absl::StatusOr<Tree::NodeId> AddTensor(uint32_t id, std::string_view name, DType wanted) {
    Tree::NodeId at = Tree::root();
    WEFT_ASSIGN_OR_RETURN(at, Container(&name));
    const Leaf leaf = LeafOf(id, wanted);
    absl::StatusOr<Tree::NodeId> added = tree.Add(at, name, Tree::Tensor(leaf.to, file_.tensor(id).dims));
    if (!added.ok()) {
      return UserErrorOf(added.status().code(), "tensor '", file_.tensor(id).name, "' cannot be called '", name,
                         "': ", added.status().message());
    }
    leaves.push_back(leaf);
    return added;
  }
  // The dict in which `name` is to stand, which becomes what is left of it.
  absl::StatusOr<Tree::NodeId> Container(std::string_view* name) {
    Tree::NodeId at = Tree::root();
    if (!Nests()) return at;
    const std::string_view whole = *name;
    for (size_t dot; (dot = name->find('.')) != std::string_view::npos; name->remove_prefix(dot + 1)) {
      const std::string_view key = name->substr(0, dot);
      Tree::NodeId next = tree.Find(at, key);
      if (next == Tree::kNoNode) {
        WEFT_ASSIGN_OR_RETURN(next, tree.Add(at, key, Tree::Dict()));
      } else if (tree.node(next).kind != Tree::Kind::kDict) {
        return UserError("'", whole, "' cannot be nested: '", tree.PathOf(next), "' is a tensor");
      }
      at = next;
    }
    return at;
  }
  absl::Status AddNested() {
    const Tree& flat = file_.tree();
    std::vector<Tree::NodeId> made(flat.size(), Tree::kNoNode);
    const Tree::NodeId first = flat.node(Tree::root()).first_child;
    for (Tree::NodeId at = first; at != Tree::kNoNode; at = flat.node(at).next_sibling) {
      if (flat.node(at).kind != Tree::Kind::kTensor) continue;
      WEFT_ASSIGN_OR_RETURN(made[at], AddTensor(flat.node(at).tensor, flat.node(at).key, types_[flat.node(at).tensor]));
    }
    for (Tree::NodeId at = first; at != Tree::kNoNode; at = flat.node(at).next_sibling) {
      if (flat.node(at).kind != Tree::Kind::kAlias) continue;
      std::string_view name = flat.node(at).key;
      WEFT_ASSIGN_OR_RETURN(const Tree::NodeId dict, Container(&name));
      WEFT_RETURN_IF_ERROR(tree.Add(dict, name, Tree::Alias(made[flat.node(at).alias])).status());
    }
    return absl::OkStatus();
  }

  const TensorFile& file_;
  const ConvertOptions& options_;
  std::vector<DType> types_;  // that tensors are to have
};

FileSystem* FileSystemOf(const SaveOptions& save) { return save.fs != nullptr ? save.fs : PosixFileSystem(); }

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

// Tensors in their order, as many as fit into a shard, one at least.
std::vector<FlatTree> Shards(FlatTree flat, uint64_t most) {
  std::vector<FlatTree> shards(1);
  uint64_t bytes = 0;
  for (FlatTensor& tensor : flat.tensors) {
    if (!shards.back().tensors.empty() && tensor.bytes > most - std::min(most, bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    shards.back().tensors.push_back(std::move(tensor));
  }
  return shards;
}

bool MayExist(FileSystem* fs, const std::string& path) {
  FileInfo info;
  return fs->Stat(FileSystem::kHere, path.c_str(), &info) != -ENOENT;
}

// Several files cannot be replaced at once, so that old ones would be neither whole nor gone.
absl::Status CheckFree(FileSystem* fs, const std::string& path) {
  if (!MayExist(fs, path)) return absl::OkStatus();
  return UserError("'", path, "' is there already; shards replace no files");
}

absl::Status WriteIndex(const std::string& to, uint64_t total, const std::vector<std::string>& map,
                        const SaveOptions& save) {
  const std::string text =
      absl::StrCat("{\"metadata\": {\"total_size\": ", total, "}, \"weight_map\": {", absl::StrJoin(map, ", "), "}}\n");
  WEFT_ASSIGN_OR_RETURN(AtomicFile index, AtomicFile::Create(FileSystemOf(save), to, {.durability = save.durability}));
  WEFT_RETURN_IF_ERROR(index.file().Write(std::as_bytes(std::span(text))));
  return index.Commit();
}

absl::Status SaveShards(const std::string& to, FlatTree flat, uint64_t most, TensorSource& source,
                        const SaveOptions& save) {
  FileSystem* const fs = FileSystemOf(save);
  if (!to.ends_with(kIndexSuffix)) {
    return UserError("'", to, "': the index of shards is called '….safetensors.index.json'");
  }
  const std::string stem = to.substr(0, to.size() - kIndexSuffix.size());
  const std::vector<FlatTree> shards = Shards(std::move(flat), most);
  uint64_t total = 0, done = 0;
  std::vector<std::string> paths, written, map;
  WEFT_RETURN_IF_ERROR(CheckFree(fs, to));
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const FlatTensor& tensor : shards[i].tensors) total += tensor.bytes;
    paths.push_back(absl::StrCat(stem, "-", absl::Dec(i + 1, absl::kZeroPad5), "-of-",
                                 absl::Dec(shards.size(), absl::kZeroPad5), ".safetensors"));
    WEFT_RETURN_IF_ERROR(CheckFree(fs, paths.back()));
  }
  absl::Cleanup remove = [&] {
    if (MayExist(fs, to))
      return;  // an index that has its name, and may only not survive a loss of power, has its shards
    for (const std::string& path : written) fs->Unlink(FileSystem::kHere, path.c_str());
  };
  for (size_t i = 0; i < shards.size(); ++i) {
    SaveOptions one = save;
    uint64_t here = 0;
    one.progress = [&](uint64_t bytes, uint64_t) {
      here = bytes;
      return save.progress ? save.progress(done + bytes, total) : absl::OkStatus();
    };
    written.push_back(paths[i]);
    WEFT_ASSIGN_OR_RETURN(FilePlace place, FilePlace::Find(fs, paths[i]));
    WEFT_RETURN_IF_ERROR(SaveForeign(FileFormat::kSafetensors, std::move(place), shards[i], source, one));
    done += here;
    for (const FlatTensor& tensor : shards[i].tensors) {
      map.push_back(absl::StrCat(JsonText(tensor.name), ": ", JsonText(BaseNameOf(paths[i]))));
    }
  }
  WEFT_RETURN_IF_ERROR(WriteIndex(to, total, map, save));
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace

absl::Status ConvertFile(TensorFile& file, const std::string& to, const ConvertOptions& options,
                         const SaveOptions& save) {
  TreeMaker made(file, options);
  WEFT_RETURN_IF_ERROR(made.Make());
  FileSource source(&file, std::move(made.leaves));
  if (options.shard_bytes > 0 && (options.format != FileFormat::kSafetensors || options.tied == Tied::kOnce)) {
    return UserErrorOf(absl::StatusCode::kUnimplemented,
                       "shards are files of safetensors that store tied tensors twice or not at all");
  }
  if (options.format == FileFormat::kWeft) {
    WEFT_ASSIGN_OR_RETURN(FilePlace place, PlaceOfCheckpoint(to, save.fs));
    return SaveCheckpoint(std::move(place), made.tree, source, save);
  }
  WEFT_ASSIGN_OR_RETURN(FlatTree flat, FlattenFor(options.format, made.tree, save.held, options.tied));
  if (options.shard_bytes > 0) return SaveShards(to, std::move(flat), options.shard_bytes, source, save);
  SaveOptions saved = save;  // words that the writer writes by itself come back as words
  std::erase_if(saved.user, [&](const auto& word) {
    return std::ranges::find(flat.tied, word.first, &std::pair<std::string, std::string>::first) != flat.tied.end();
  });
  WEFT_ASSIGN_OR_RETURN(FilePlace place, FilePlace::Find(FileSystemOf(save), to));
  return SaveForeign(options.format, std::move(place), flat, source, saved);
}

}  // namespace weft
