// The facts of the disk cache and of its entries, as nodes of a weft_tree.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "serialization/compile_cache.h"
#include "serialization/tree.h"

namespace weft::c_api {

// A text of files and paths, which may be any bytes.
Tree::Value TextOrBytes(std::string_view text);
// Adds key, backend, target and their like to the dict; where `about` is an error, its text as "problem".
absl::Status AddEntry(const absl::StatusOr<CacheEntryAbout>& about, Tree::NodeId dict, Tree* tree);
// To an empty tree, as weft_cache_list has it.
absl::Status AddListing(const CacheListing& listing, Tree* tree);
// To an empty tree, as weft_cache_explain has it; `digits` begin the name of the entry; empty: the one that was used last. NOT_FOUND, INVALID_ARGUMENT.
absl::Status AddExplanation(const CacheListing& listing, std::string_view digits, Tree* tree);

}  // namespace weft::c_api
