// weft_file_describe.
#include <algorithm>

#include "serialization/limits.h"
#include "serialization/retention.h"
#include "src/c_api/cache_tree.h"
#include "src/c_api/guard.h"
#include "src/c_api/tree_object.h"
#include "src/runtime/file_kind.h"
#include "src/runtime/io.h"
#include "weft.h"

namespace weft::c_api {

namespace {

absl::StatusOr<Tree> Described(const std::string& path) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(PosixFileSystem(), path, &info));
  const auto bytes = static_cast<uint64_t>(info.size);
  std::vector<std::byte> start(std::min<uint64_t>(bytes, kCacheHeaderBytes + kMaxCacheMetaBytes));
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, start));
  const SniffedFile kind = SniffFile(std::span(start).first(std::min(start.size(), kSniffedBytes)));
  Tree tree;
  const auto add = [&](std::string_view key, const Tree::Value& value) {
    return tree.Add(Tree::root(), key, value).status();
  };
  WEFT_RETURN_IF_ERROR(add("kind", Tree::Text(kind.name.empty() ? "unknown" : kind.name)));
  WEFT_RETURN_IF_ERROR(add("what", Tree::Text(kind.what)));
  WEFT_RETURN_IF_ERROR(add("bytes", Tree::Int64(info.size)));
  const std::optional<HeaderRecord> header = kind.name == "checkpoint" ? HeaderOf(std::move(file)) : std::nullopt;
  if (header.has_value() && !header->bases.empty()) {
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId list, tree.Add(Tree::root(), "bases", Tree::List()));
    for (const BaseRecord& base : header->bases)
      WEFT_RETURN_IF_ERROR(tree.Append(list, Tree::Text(base.name)).status());
  }
  if (kind.name != "cache_entry") return tree;
  if (bytes > start.size()) {  // every byte of an entry is checked
    start.resize(std::min<uint64_t>(bytes, kMaxCachePjrtBytes + kMaxCacheMetaBytes + kCacheHeaderBytes + 1));
    WEFT_RETURN_IF_ERROR(file.ReadAt(0, start));
  }
  WEFT_RETURN_IF_ERROR(AddEntry(AboutEntry(start, /*whole=*/true), Tree::root(), &tree));
  return tree;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_file_describe(const char* path, size_t path_length, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, path_length));
    TensorTree tree;
    WEFT_ASSIGN_OR_RETURN(tree.tree, Described(file));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

}  // extern "C"
