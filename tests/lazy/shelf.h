// A program store in memory that survives engines, as a directory survives processes.
#pragma once

#include <map>

#include "src/compiler/store.h"

namespace weft::lazy {

struct Shelf {
  std::map<std::pair<uint64_t, uint64_t>, compiler::StoreEntry> entries;
  int looked_up = 0;
  int rejected = 0;
  int drained = 0;
};

class FakeStore final : public compiler::ProgramStore {
 public:
  explicit FakeStore(Shelf* shelf) : shelf_(shelf) {}
  std::optional<std::string> Lookup(compiler::Key key, std::string_view canonical) override {
    ++shelf_->looked_up;
    auto found = shelf_->entries.find({key.low, key.high});
    if (found == shelf_->entries.end() || found->second.canonical != canonical) return std::nullopt;
    return found->second.program;
  }
  void Publish(compiler::StoreEntry entry) override {
    shelf_->entries[{entry.key.low, entry.key.high}] = std::move(entry);
  }
  void Reject(compiler::Key key, std::string_view) override {
    shelf_->entries.erase({key.low, key.high});
    ++shelf_->rejected;
  }
  void Drain() override { ++shelf_->drained; }

 private:
  Shelf* shelf_;
};

}  // namespace weft::lazy
