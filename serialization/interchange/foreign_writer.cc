// See foreign_writer.h.
#include "serialization/interchange/foreign_writer.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "serialization/interchange/gguf_blocks.h"
#include "serialization/interchange/npy_header.h"
#include "serialization/interchange/safetensors_header.h"
#include "serialization/interchange/zip.h"
#include "src/runtime/status.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Walks a tree and takes its tensors down.
class Flattener {
 public:
  Flattener(FileFormat format, const Tree& tree, const HeldTypes& held, Tied tied, FlatTree* out)
      : format_(format), tree_(tree), held_(held), tied_(tied), out_(out), stored_(tree.tensors().size()) {}

  absl::Status Run() {
    absl::Status status;
    tree_.ForEachPath([&](Tree::NodeId id, const std::string& path) {
      if (status.ok()) status = Take(id, path);
    });
    WEFT_RETURN_IF_ERROR(status);
    for (auto& [name, leaf] : tied_names_) out_->tied.emplace_back(std::move(name), stored_[leaf]);
    return absl::OkStatus();
  }

 private:
  absl::Status Take(Tree::NodeId id, const std::string& path) {
    const Tree::Node& node = tree_.node(id);
    switch (node.kind) {
      case Tree::Kind::kTensor: return Tensor(path, node.tensor);
      case Tree::Kind::kAlias: return Alias(path, node);
      case Tree::Kind::kDict:
      case Tree::Kind::kList:
      case Tree::Kind::kTuple:
        if (node.children > 0 || id == Tree::root()) return absl::OkStatus();
        [[fallthrough]];
      default:
        return UserError("a ", NameOf(format_), " file holds tensors only; '", path, "' is ",
                         Tree::IsContainer(node.kind) ? "an empty " : "a ", Tree::NameOf(node.kind));
    }
  }
  absl::Status Tensor(const std::string& path, uint32_t leaf) {
    const Tree::TensorLeaf& t = tree_.tensors()[leaf];
    FlatTensor flat{.leaf = leaf, .dtype = held_.Of(t.dtype), .dims = t.dims};
    WEFT_ASSIGN_OR_RETURN(flat.name, NameOfPath(path));
    if (!HasTypeFor(format_, flat.dtype)) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "a ", NameOf(format_), " file has no type for '", flat.name,
                         "' of ", TypeText(flat.dtype, flat.dims));
    }
    const std::optional<uint64_t> bytes = StoredBytes(flat.dtype, flat.dims);
    if (!bytes) return UserError("'", flat.name, "' has more bytes than a file can hold");
    flat.bytes = *bytes;
    if (stored_[leaf].empty()) stored_[leaf] = flat.name;
    out_->tensors.push_back(std::move(flat));
    return absl::OkStatus();
  }
  absl::Status Alias(const std::string& path, const Tree::Node& node) {
    const Tree::Node& target = tree_.node(node.alias);
    if (target.kind != Tree::Kind::kTensor) {
      return UserError("'", path, "' is an alias of a ", Tree::NameOf(target.kind), "; a ", NameOf(format_),
                       " file holds tensors only");
    }
    if (tied_ == Tied::kTwice) return Tensor(path, target.tensor);
    if (tied_ == Tied::kOnce && format_ == FileFormat::kSafetensors) {
      WEFT_ASSIGN_OR_RETURN(std::string name, NameOfPath(path));
      return tied_names_.emplace_back(std::move(name), target.tensor), absl::OkStatus();
    }
    return UserError("'", path, "' is another name of '", tree_.PathOf(node.alias), "', which a ", NameOf(format_),
                     " file cannot say; weft_checkpoint_options.tied stores it twice",
                     format_ == FileFormat::kSafetensors ? ", or once with the name in the metadata" : "");
  }
  absl::StatusOr<std::string> NameOfPath(const std::string& path) {
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
      if (path[i] == '\\' && i + 1 < path.size()) ++i;
      name += path[i];
    }
    if (!names_.insert(name).second) {
      return UserError("two tensors would both be called '", name, "' in a ", NameOf(format_),
                       " file, which has no dicts inside dicts; rename one");
    }
    if (format_ == FileFormat::kSafetensors && name == "__metadata__") {
      return UserError("a safetensors file keeps the name '__metadata__' for itself");
    }
    if (format_ == FileFormat::kNpz && !IsMemberName(name)) {
      return UserError("'", name, "' cannot be the name of an .npz file's member");
    }
    return name;
  }

  const FileFormat format_;
  const Tree& tree_;
  const HeldTypes& held_;
  const Tied tied_;
  FlatTree* const out_;
  std::vector<std::string> stored_;                           // of each leaf, the name under which it is
  std::vector<std::pair<std::string, uint32_t>> tied_names_;  // and their leaves, which may come later
  absl::flat_hash_set<std::string> names_;
};

absl::Status Write(FileFormat format, File& file, const FlatTree& flat, TensorSource& source,
                   const SaveOptions& options) {
  switch (format) {
    case FileFormat::kSafetensors: return WriteSafetensors(file, flat, source, options);
    case FileFormat::kNpy: return WriteNpy(file, flat, source, options);
    case FileFormat::kGguf: return WriteGguf(file, flat, source, options);
    case FileFormat::kNpz: return WriteNpz(file, flat, source, options);
    default: return InternalError("no writer of ", NameOf(format));
  }
}

}  // namespace

bool HasTypeFor(FileFormat format, DType dtype) {
  switch (format) {
    case FileFormat::kWeft: return true;
    case FileFormat::kSafetensors: return SafetensorsTypeOf(dtype) != nullptr;
    case FileFormat::kGguf: return PlainGgufType(dtype) != nullptr;
    default: return NpyTypeOf(dtype) != nullptr;
  }
}

absl::StatusOr<FlatTree> FlattenFor(FileFormat format, const Tree& tree, const HeldTypes& held, Tied tied) {
  if (format == FileFormat::kPyTorch || format == FileFormat::kWeft) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "Weft reads ", NameOf(format),
                       " files and writes none; safetensors is what PyTorch and others read, too");
  }
  FlatTree flat;
  WEFT_RETURN_IF_ERROR(Flattener(format, tree, held, tied, &flat).Run());
  if (format == FileFormat::kNpy && flat.tensors.size() != 1) {
    return UserError("an .npy file holds one tensor; the tree has ", flat.tensors.size(), " (an .npz file holds many)");
  }
  return flat;
}

absl::Status SaveForeign(FileFormat format, FilePlace place, const FlatTree& flat, TensorSource& source,
                         const SaveOptions& options) {
  const std::string path = place.path;
  const absl::Status status = [&]() -> absl::Status {
    auto file = std::make_unique<AtomicFile>();
    WEFT_ASSIGN_OR_RETURN(*file, AtomicFile::Create(std::move(place), {.durability = options.durability}));
    const absl::Status written = Write(format, file->file(), flat, source, options);
    if (written.ok()) return file->Commit(options.wait);
    if (absl::IsCancelled(written) || absl::IsDeadlineExceeded(written)) {
      file->Discard();
      LeaveBehind(options.wait, std::move(file));
    }
    return written;
  }();
  if (status.ok()) return status;
  return WithText(status, absl::StrCat("saving '", path, "': ", status.message()));
}

PieceReader::PieceReader(const FlatTree& flat, TensorSource& source, const SaveOptions& options)
    : source_(source), options_(options) {
  uint64_t most = 0;
  for (const FlatTensor& t : flat.tensors) {
    total_ += t.bytes;
    most = std::max(most, t.bytes);
  }
  buffer_.resize(std::min<uint64_t>(most, kPieceBytes));
}

absl::Status PieceReader::Each(const FlatTensor& tensor,
                               const std::function<absl::Status(std::span<std::byte>)>& write) {
  for (uint64_t at = 0; at < tensor.bytes;) {
    const std::span<std::byte> piece(buffer_.data(), std::min<uint64_t>(buffer_.size(), tensor.bytes - at));
    WEFT_RETURN_IF_ERROR(source_.Read(tensor.leaf, at, piece));
    WEFT_RETURN_IF_ERROR(write(piece));
    at += piece.size();
    done_ += piece.size();
    if (options_.progress) WEFT_RETURN_IF_ERROR(options_.progress(done_, total_));
  }
  return absl::OkStatus();
}

}  // namespace weft
