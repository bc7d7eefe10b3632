// The beginning of every test of the compile cache: entries by number, where they lie, and a store that keeps its warnings.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "serialization/compile_cache.h"
#include "tests/support/temp_dir.h"

namespace weft::testing {

inline CacheEntry EntryOf(uint64_t number, size_t bytes = 1000) {
  CacheEntry entry;
  entry.key = {number, number * 7};
  entry.canonical = absl::StrCat("program ", number);
  entry.sections = {{"object", std::string(bytes, static_cast<char>('a' + number % 26))}, {"launch", "list"}, {"empty", ""}};
  for (size_t i = 0; i < bytes; i += 3) entry.sections[0].second[i] = static_cast<char>(i * number >> 3);
  entry.backend = "cpu";
  entry.compiler_version = "19.1.7";
  entry.target = "x86_64";
  entry.compile_micros = 1000;
  entry.graph_ops = 5;
  return entry;
}

inline std::string PathOf(const TempDir& dir, uint64_t number) {
  const std::string name = absl::StrCat(absl::Hex(number * 7, absl::kZeroPad16), absl::Hex(number, absl::kZeroPad16));
  return dir / ("v1/" + name.substr(0, 2) + "/" + name + ".tce");
}

inline std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void WriteContents(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Store {
  explicit Store(const TempDir& dir, CompileCacheOptions options = {}) {
    options.directory = dir.path();
    options.warn = [this](std::string_view text) { warnings.emplace_back(text); };
    store = CompileCacheStore::Open(options);
  }
  bool Has(uint64_t number) {
    const CacheEntry want = EntryOf(number);
    const std::optional<CacheEntry> got = store->Lookup(want.key, want.canonical);
    EXPECT_TRUE(!got.has_value() || got->canonical == want.canonical);
    return got.has_value();
  }
  std::vector<std::string> warnings;
  std::unique_ptr<CompileCacheStore> store;
};

}  // namespace weft::testing
