// Entries of the compile cache with one section: the serialised executable.
#include "src/compiler/disk_store.h"

#include <chrono>

#include "serialization/compile_cache.h"

namespace weft::compiler {
namespace {

constexpr char kSection[] = "program";

class DiskStore final : public ProgramStore {
 public:
  explicit DiskStore(std::shared_ptr<CompileCacheStore> cache) : cache_(std::move(cache)) {}

  std::optional<std::string> Lookup(Key key, std::string_view canonical) override {
    std::optional<CacheEntry> entry = cache_->Lookup(Hash128{key.low, key.high}, canonical, /*claim=*/true);
    if (!entry.has_value()) return std::nullopt;
    for (auto& [name, bytes] : entry->sections) {
      if (name == kSection) return std::move(bytes);
    }
    Reject(key, "the entry has no program");
    return std::nullopt;
  }

  void Publish(StoreEntry program) override {
    CacheEntry entry;
    entry.key = Hash128{program.key.low, program.key.high};
    entry.kind =
        program.backend == "cpu" || program.backend == "reference" ? CacheEntryKind::kObject : CacheEntryKind::kPjrt;
    entry.canonical = std::move(program.canonical);
    entry.sections.emplace_back(kSection, std::move(program.program));
    entry.backend = std::move(program.backend);
    entry.target = std::move(program.target);
    entry.options = std::move(program.options);
    entry.compile_micros = static_cast<uint64_t>(program.compile_nanoseconds / 1000);
    entry.created_unix_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    entry.graph_ops = static_cast<uint32_t>(program.nodes);
    entry.shape = program.shape;
    cache_->Publish(std::move(entry));
  }

  std::vector<std::string> OfShape(uint64_t shape, size_t most) override { return cache_->OfShape(shape, most); }
  void Reject(Key key, std::string_view why) override { cache_->Reject(Hash128{key.low, key.high}, why); }
  void Abandon(Key key) override { cache_->Abandon(Hash128{key.low, key.high}); }
  void Drain() override { cache_->Drain(); }

 private:
  std::shared_ptr<CompileCacheStore> cache_;
};

}  // namespace

std::unique_ptr<ProgramStore> MakeDiskStore(std::shared_ptr<CompileCacheStore> cache) {
  return std::make_unique<DiskStore>(std::move(cache));
}

}  // namespace weft::compiler
