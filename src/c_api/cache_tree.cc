// See cache_tree.h.
#include "src/c_api/cache_tree.h"

#include <span>
#include <utility>
#include <vector>

#include "serialization/cache_folder.h"
#include "src/compiler/entry_difference.h"
#include "src/runtime/status.h"

namespace weft::c_api {
namespace {

absl::StatusOr<std::string> CanonicalOf(const CacheListed& listed) {
  FileInfo info;
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadCacheFile(PosixFileSystem(), listed.path, &info));
  WEFT_ASSIGN_OR_RETURN(CacheEntry entry, DecodeCacheEntry(std::as_bytes(std::span(bytes))));
  return std::move(entry.canonical);
}

absl::StatusOr<const CacheListed*> FindByDigits(const CacheListing& listing, std::string_view digits) {
  constexpr size_t kLeastDigits = 4;
  if (digits.empty()) return listing.entries.empty() ? nullptr : &listing.entries.front();
  if (digits.size() < kLeastDigits) {
    return UserError("'", digits, "' are too few digits of an entry's name; at least ", kLeastDigits, " are wanted");
  }
  const CacheListed* found = nullptr;
  for (const CacheListed& entry : listing.entries) {
    if (!entry.name.starts_with(digits) || (found != nullptr && found->name == entry.name)) continue;
    if (found != nullptr) return UserError("'", digits, "' begins the names of several entries of the disk cache");
    found = &entry;
  }
  if (found != nullptr) return found;
  return UserErrorOf(absl::StatusCode::kNotFound, "the disk cache has no entry whose name begins with '", digits, "'");
}

}  // namespace

Tree::Value TextOrBytes(std::string_view text) { return IsCleanText(text) ? Tree::Text(text) : Tree::Bytes(text); }

absl::Status AddEntry(const absl::StatusOr<CacheEntryAbout>& about, Tree::NodeId dict, Tree* tree) {
  if (!about.ok()) return tree->Add(dict, "problem", TextOrBytes(about.status().message())).status();
  const auto add = [&](std::string_view key, const Tree::Value& value) { return tree->Add(dict, key, value).status(); };
  WEFT_RETURN_IF_ERROR(add("key", Tree::Text(KeyName(about->key))));
  WEFT_RETURN_IF_ERROR(add("backend", TextOrBytes(about->backend)));
  WEFT_RETURN_IF_ERROR(add("target", TextOrBytes(about->target)));
  WEFT_RETURN_IF_ERROR(add("options", TextOrBytes(about->options)));
  WEFT_RETURN_IF_ERROR(add("compile_microseconds", Tree::Int64(static_cast<int64_t>(about->compile_micros))));
  WEFT_RETURN_IF_ERROR(add("created_unix_ns", Tree::Int64(about->created_unix_ns)));
  WEFT_RETURN_IF_ERROR(add("operations", Tree::Int64(about->graph_ops)));
  return add("program_bytes", Tree::Int64(static_cast<int64_t>(about->program_bytes)));
}

absl::Status AddListing(const CacheListing& listing, Tree* tree) {
  constexpr std::string_view kUses[] = {"none", "read", "write"};
  std::vector<std::pair<int64_t, int64_t>> totals(listing.folders.size());  // entries and bytes
  for (const CacheListed& entry : listing.entries) {
    ++totals[entry.folder].first;
    totals[entry.folder].second += static_cast<int64_t>(entry.bytes);
  }
  WEFT_ASSIGN_OR_RETURN(const Tree::NodeId folders, tree->Add(Tree::root(), "folders", Tree::List()));
  for (size_t i = 0; i < listing.folders.size(); ++i) {
    const CacheFolder& folder = listing.folders[i];
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId dict, tree->Append(folders, Tree::Dict()));
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "path", TextOrBytes(folder.path)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "use", Tree::Text(kUses[folder.use])).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "why", TextOrBytes(folder.why)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "entries", Tree::Int64(totals[i].first)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "bytes", Tree::Int64(totals[i].second)).status());
  }
  WEFT_ASSIGN_OR_RETURN(const Tree::NodeId entries, tree->Add(Tree::root(), "entries", Tree::List()));
  for (const CacheListed& entry : listing.entries) {
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId dict, tree->Append(entries, Tree::Dict()));
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "name", TextOrBytes(entry.name)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "folder", Tree::Int64(static_cast<int64_t>(entry.folder))).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "bytes", Tree::Int64(static_cast<int64_t>(entry.bytes))).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "used_unix_ns", Tree::Int64(entry.used_unix_ns)).status());
    WEFT_RETURN_IF_ERROR(AddEntry(entry.about, dict, tree));
  }
  return absl::OkStatus();
}

absl::Status AddExplanation(const CacheListing& listing, std::string_view digits, Tree* tree) {
  WEFT_ASSIGN_OR_RETURN(const CacheListed* const wanted, FindByDigits(listing, digits));
  std::string here, there, nearest;
  if (wanted != nullptr) {
    WEFT_ASSIGN_OR_RETURN(here, CanonicalOf(*wanted));
  }
  double least = 0;
  for (const CacheListed& entry : listing.entries) {
    if (wanted == nullptr || entry.name == wanted->name) continue;
    absl::StatusOr<std::string> other = CanonicalOf(entry);
    if (!other.ok()) continue;
    const double distance = compiler::DistanceOf(here, *other);
    if (!nearest.empty() && distance >= least) continue;
    least = distance;
    nearest = entry.name;
    there = *std::move(other);
  }
  WEFT_RETURN_IF_ERROR(tree->Add(Tree::root(), "name", TextOrBytes(wanted == nullptr ? "" : wanted->name)).status());
  WEFT_RETURN_IF_ERROR(tree->Add(Tree::root(), "nearest", TextOrBytes(nearest)).status());
  WEFT_ASSIGN_OR_RETURN(const Tree::NodeId list, tree->Add(Tree::root(), "differences", Tree::List()));
  if (nearest.empty()) return absl::OkStatus();
  for (const compiler::PartDifference& difference : compiler::DifferencesOf(here, there)) {
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId dict, tree->Append(list, Tree::Dict()));
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "part", Tree::Text(difference.part)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "here", TextOrBytes(difference.here)).status());
    WEFT_RETURN_IF_ERROR(tree->Add(dict, "there", TextOrBytes(difference.there)).status());
  }
  return absl::OkStatus();
}

}  // namespace weft::c_api
